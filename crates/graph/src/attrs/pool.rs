//! Equal attributes, kept once.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::{Attrs, Kept};
use crate::AttrValue;

/// Attributes that were seen. Nodes of one operation mostly have the same ones.
#[derive(Default)]
pub struct AttrsPool(HashMap<u64, Vec<Attrs>>);

/// So many of one hash are kept, so that a file with many of them takes no more time.
const MOST_ALIKE: usize = 4;

impl AttrsPool {
    /// Lets `attrs` share the memory of equal ones, if such were here before. Those with tensors are left as they are.
    pub fn share(&mut self, attrs: &mut Attrs) {
        let Kept::Few(_) = &attrs.0 else { return };
        let Some(hash) = hash(attrs) else { return };
        let alike = self.0.entry(hash).or_default();
        match alike.iter().find(|known| *known == attrs) {
            Some(known) => *attrs = known.clone(),
            None if alike.len() < MOST_ALIKE => alike.push(attrs.clone()),
            None => {}
        }
    }
}

/// None where there is a tensor: comparing it would take its bytes' time.
fn hash(attrs: &Attrs) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    for (name, value) in attrs {
        name.hash(&mut hasher);
        std::mem::discriminant(value).hash(&mut hasher);
        match value {
            AttrValue::Bytes(bytes) => bytes.hash(&mut hasher),
            AttrValue::Int(int) => int.hash(&mut hasher),
            AttrValue::Float(float) => float.to_bits().hash(&mut hasher),
            AttrValue::Bool(bool) => bool.hash(&mut hasher),
            AttrValue::Type(number) => number.hash(&mut hasher),
            AttrValue::Shape(shape) => shape.hash(&mut hasher),
            AttrValue::Placeholder(name) => name.hash(&mut hasher),
            AttrValue::Func(func) => func.name.hash(&mut hasher),
            AttrValue::List(list) if list.tensors.is_empty() => {
                (&list.bytes, &list.ints, &list.bools, &list.types, &list.shapes).hash(&mut hasher);
            }
            AttrValue::Opaque(bytes) => bytes.hash(&mut hasher),
            AttrValue::Unset => {}
            AttrValue::Tensor(_) | AttrValue::List(_) => return None,
        }
    }
    Some(hasher.finish())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn is_shared(a: &Attrs, b: &Attrs) -> bool {
        matches!((&a.0, &b.0), (Kept::Few(a), Kept::Few(b)) if Arc::ptr_eq(a, b))
    }

    #[test]
    fn equal_attributes_are_kept_once() {
        let mut pool = AttrsPool::default();
        let mut of = |value: AttrValue| {
            let mut attrs = Attrs::from([("a".to_string(), value)]);
            pool.share(&mut attrs);
            attrs
        };
        assert!(is_shared(&of(AttrValue::Int(1)), &of(AttrValue::Int(1))));
        assert!(!is_shared(&of(AttrValue::Int(1)), &of(AttrValue::Int(2))));
        // A zero is not another one, and a number that equals nothing shares nothing.
        let (plus, minus) = (of(AttrValue::Float(0.0)), of(AttrValue::Float(-0.0)));
        assert!(!is_shared(&plus, &minus) && matches!(minus["a"], AttrValue::Float(zero) if zero.is_sign_negative()));
        assert!(!is_shared(&of(AttrValue::Float(f32::NAN)), &of(AttrValue::Float(f32::NAN))));
        let mut changed = of(AttrValue::Int(1));
        changed.insert("b".to_string(), AttrValue::Unset);
        assert_eq!(of(AttrValue::Int(1)).len(), 1, "a write is the writer's alone");
    }
}
