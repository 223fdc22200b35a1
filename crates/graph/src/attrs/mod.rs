//! Attributes by name.

mod pool;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

pub use self::pool::AttrsPool;
use crate::AttrValue;

/// Attributes by name. Names that begin with `_` are free-form hints.
///
/// A graph has many thousands of these, mostly of two or three attributes, and the same ones in functions, in the copies that calls
/// become and in graphs that were rewritten: they are in one block each, in the order of their names, and shared until a write.
#[derive(Clone)]
pub struct Attrs(Kept);

#[derive(Clone)]
enum Kept {
    /// At most [`FEW`], in the order of their names.
    Few(Arc<Vec<(String, AttrValue)>>),
    /// More than anyone writes: taking them in should not take time in proportion to the square.
    Many(Arc<BTreeMap<String, AttrValue>>),
}

const FEW: usize = 32;

impl Attrs {
    /// None.
    pub fn new() -> Attrs {
        Attrs(Kept::Few(Arc::default()))
    }

    /// The attribute of that name.
    pub fn get(&self, name: &str) -> Option<&AttrValue> {
        match &self.0 {
            Kept::Few(few) => find(few, name).ok().map(|at| &few[at].1),
            Kept::Many(many) => many.get(name),
        }
    }

    /// The attribute of that name, to change.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut AttrValue> {
        match &mut self.0 {
            Kept::Few(few) => {
                let at = find(few, name).ok()?;
                Some(&mut Arc::make_mut(few)[at].1)
            }
            Kept::Many(many) => Arc::make_mut(many).get_mut(name),
        }
    }

    /// Whether there is an attribute of that name.
    pub fn contains_key(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Gives an attribute a value. The value that it had before.
    pub fn insert(&mut self, name: String, value: AttrValue) -> Option<AttrValue> {
        if let Some(known) = self.get_mut(&name) {
            return Some(std::mem::replace(known, value));
        }
        if let Kept::Few(few) = &mut self.0
            && few.len() == FEW
        {
            self.0 = Kept::Many(Arc::new(std::mem::take(Arc::make_mut(few)).into_iter().collect()));
        }
        match &mut self.0 {
            Kept::Few(few) => {
                let few = Arc::make_mut(few);
                let at = few.partition_point(|(known, _)| *known < name);
                few.reserve_exact(1);
                few.insert(at, (name, value));
            }
            Kept::Many(many) => {
                Arc::make_mut(many).insert(name, value);
            }
        }
        None
    }

    /// Gives an attribute the value of `make`, if it has none.
    pub fn insert_missing(&mut self, name: &str, make: impl FnOnce() -> AttrValue) {
        if !self.contains_key(name) {
            self.insert(name.to_string(), make());
        }
    }

    /// Takes an attribute away.
    pub fn remove(&mut self, name: &str) -> Option<AttrValue> {
        match &mut self.0 {
            Kept::Few(few) => {
                let at = find(few, name).ok()?;
                Some(Arc::make_mut(few).remove(at).1)
            }
            Kept::Many(many) => Arc::make_mut(many).remove(name),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        match &self.0 {
            Kept::Few(few) => few.len(),
            Kept::Many(many) => many.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All, in the order of their names.
    pub fn iter(&self) -> Iter<'_> {
        self.into_iter()
    }

    /// The names, in order.
    pub fn keys(&self) -> impl Iterator<Item = &String> {
        self.iter().map(|(name, _)| name)
    }

    /// The values, in the order of the names.
    pub fn values(&self) -> impl Iterator<Item = &AttrValue> {
        self.iter().map(|(_, value)| value)
    }
}

fn find(few: &[(String, AttrValue)], name: &str) -> Result<usize, usize> {
    few.binary_search_by(|(known, _)| known.as_str().cmp(name))
}

impl Default for Attrs {
    fn default() -> Attrs {
        Attrs::new()
    }
}

impl PartialEq for Attrs {
    fn eq(&self, other: &Attrs) -> bool {
        self.len() == other.len() && self.iter().eq(other)
    }
}

/// Attributes by reference, in the order of their names.
pub enum Iter<'a> {
    #[doc(hidden)]
    Few(std::slice::Iter<'a, (String, AttrValue)>),
    #[doc(hidden)]
    Many(std::collections::btree_map::Iter<'a, String, AttrValue>),
}

impl<'a> Iterator for Iter<'a> {
    type Item = (&'a String, &'a AttrValue);

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Iter::Few(few) => few.next().map(|(name, value)| (name, value)),
            Iter::Many(many) => many.next(),
        }
    }
}

impl<'a> IntoIterator for &'a Attrs {
    type Item = (&'a String, &'a AttrValue);
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        match &self.0 {
            Kept::Few(few) => Iter::Few(few.iter()),
            Kept::Many(many) => Iter::Many(many.iter()),
        }
    }
}

impl IntoIterator for Attrs {
    type Item = (String, AttrValue);
    type IntoIter = std::vec::IntoIter<(String, AttrValue)>;

    fn into_iter(self) -> Self::IntoIter {
        match self.0 {
            Kept::Few(few) => Arc::unwrap_or_clone(few).into_iter(),
            Kept::Many(many) => Arc::unwrap_or_clone(many).into_iter().collect::<Vec<_>>().into_iter(),
        }
    }
}

impl Extend<(String, AttrValue)> for Attrs {
    fn extend<I: IntoIterator<Item = (String, AttrValue)>>(&mut self, all: I) {
        for (name, value) in all {
            self.insert(name, value);
        }
    }
}

impl FromIterator<(String, AttrValue)> for Attrs {
    fn from_iter<I: IntoIterator<Item = (String, AttrValue)>>(all: I) -> Attrs {
        let mut attrs = Attrs::new();
        attrs.extend(all);
        attrs
    }
}

impl<const N: usize> From<[(String, AttrValue); N]> for Attrs {
    fn from(all: [(String, AttrValue); N]) -> Attrs {
        all.into_iter().collect()
    }
}

impl std::ops::Index<&str> for Attrs {
    type Output = AttrValue;

    /// # Panics
    /// Where there is no such attribute.
    fn index(&self, name: &str) -> &AttrValue {
        self.get(name).expect("an attribute of that name")
    }
}

impl fmt::Debug for Attrs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_in_the_order_of_their_names_and_shared_until_a_write() {
        let mut attrs = Attrs::from([("b".to_string(), AttrValue::Int(1)), ("a".to_string(), AttrValue::Bool(true))]);
        let shared = attrs.clone();
        assert_eq!(attrs.insert("b".to_string(), AttrValue::Int(2)), Some(AttrValue::Int(1)));
        assert_eq!(attrs.insert("c".to_string(), AttrValue::Unset), None);
        attrs.insert_missing("b", || AttrValue::Unset);
        assert_eq!(attrs.keys().map(String::as_str).collect::<String>(), "abc");
        assert_eq!(attrs["b"], AttrValue::Int(2));
        assert_eq!((attrs.remove("a"), attrs.remove("a")), (Some(AttrValue::Bool(true)), None));
        assert_eq!((shared.get("b"), shared.len()), (Some(&AttrValue::Int(1)), 2));
        // As in a map, the later of two wins.
        let twice: Attrs = [1, 2].map(|value| ("a".to_string(), AttrValue::Int(value))).into();
        assert_eq!(twice.into_iter().collect::<Vec<_>>(), [("a".to_string(), AttrValue::Int(2))]);
    }

    #[test]
    fn any_number_of_attributes_is_like_a_map() {
        let entries = |count: i64| (0..count).rev().map(|value| (format!("{value:03}"), AttrValue::Int(value)));
        for count in [FEW as i64 - 1, FEW as i64, FEW as i64 + 1, 100] {
            let mut attrs: Attrs = entries(count).collect();
            let map: BTreeMap<String, AttrValue> = entries(count).collect();
            assert!(attrs.iter().eq(&map), "{count}");
            assert!((attrs.contains_key("003"), attrs.contains_key("x"), attrs.len()) == (true, false, map.len()));
            let before = attrs.clone();
            *attrs.get_mut("003").unwrap() = AttrValue::Unset;
            assert_eq!((attrs.remove("003"), attrs.remove("003")), (Some(AttrValue::Unset), None));
            assert!(attrs != before && before == entries(count).collect::<Attrs>());
            assert_eq!(before.into_iter().collect::<Vec<_>>(), map.into_iter().collect::<Vec<_>>());
        }
    }
}
