//! Typed ids and the dense maps that they index.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

#[doc(hidden)]
pub use serde;

/// A type that stands for a position in an [`IdVec`].
pub trait Id: Copy + Eq {
    /// The id of position `index`.
    fn from_index(index: usize) -> Self;
    /// The position.
    fn index(self) -> usize;
}

/// Declares typed ids, written by their numbers: `define_id!(/** doc */ pub struct NodeId);`
#[macro_export]
macro_rules! define_id {
    ($(#[$doc:meta])* $visibility:vis struct $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $visibility struct $name(u32);

        impl $crate::id::Id for $name {
            fn from_index(index: usize) -> Self {
                $name(u32::try_from(index).expect("more than 2^32 ids"))
            }
            fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl $crate::id::serde::Serialize for $name {
            fn serialize<S: $crate::id::serde::Serializer>(&self, serializer: S) -> ::std::result::Result<S::Ok, S::Error> {
                serializer.serialize_u32(self.0)
            }
        }

        impl<'de> $crate::id::serde::Deserialize<'de> for $name {
            fn deserialize<D: $crate::id::serde::Deserializer<'de>>(deserializer: D) -> ::std::result::Result<$name, D::Error> {
                <u32 as $crate::id::serde::Deserialize>::deserialize(deserializer).map($name)
            }
        }

        impl ::std::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                write!(f, "{}{}", stringify!($name), self.0)
            }
        }
    };
}

define_id!(
    /// A node of a [`crate::Graph`].
    pub struct NodeId
);

/// A vector indexed by a typed id.
#[derive(Clone, PartialEq, Eq)]
pub struct IdVec<I, T> {
    items: Vec<T>,
    id: PhantomData<fn(I) -> I>,
}

impl<I: Id, T> IdVec<I, T> {
    /// An empty map.
    pub fn new() -> Self {
        IdVec { items: Vec::new(), id: PhantomData }
    }

    /// One value for each of the first `len` ids.
    pub fn filled(value: T, len: usize) -> Self
    where
        T: Clone,
    {
        IdVec { items: vec![value; len], id: PhantomData }
    }

    /// Adds a value and returns its id.
    pub fn push(&mut self, value: T) -> I {
        self.items.push(value);
        I::from_index(self.items.len() - 1)
    }

    /// The id that the next `push` will return.
    pub fn next_id(&self) -> I {
        I::from_index(self.items.len())
    }

    /// How many ids there are.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The value of `id`, or none where the id is of another map.
    pub fn get(&self, id: I) -> Option<&T> {
        self.items.get(id.index())
    }

    /// All ids, ascending.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = I> + ExactSizeIterator + use<I, T> {
        (0..self.items.len()).map(I::from_index)
    }

    /// Ids and values, ascending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (I, &T)> + ExactSizeIterator {
        self.items.iter().enumerate().map(|(index, item)| (I::from_index(index), item))
    }

    /// Ids and values, ascending, to change.
    pub fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = (I, &mut T)> + ExactSizeIterator {
        self.items.iter_mut().enumerate().map(|(index, item)| (I::from_index(index), item))
    }

    /// The values, ascending.
    pub fn values(&self) -> std::slice::Iter<'_, T> {
        self.items.iter()
    }

    /// The values, ascending, to change.
    pub fn values_mut(&mut self) -> std::slice::IterMut<'_, T> {
        self.items.iter_mut()
    }

    /// The values, ascending.
    pub fn into_values(self) -> Vec<T> {
        self.items
    }
}

impl<I: Id, T> Default for IdVec<I, T> {
    fn default() -> Self {
        IdVec::new()
    }
}

impl<I: Id, T> Index<I> for IdVec<I, T> {
    type Output = T;
    fn index(&self, id: I) -> &T {
        &self.items[id.index()]
    }
}

impl<I: Id, T> IndexMut<I> for IdVec<I, T> {
    fn index_mut(&mut self, id: I) -> &mut T {
        &mut self.items[id.index()]
    }
}

impl<I: Id, T> FromIterator<T> for IdVec<I, T> {
    fn from_iter<It: IntoIterator<Item = T>>(iter: It) -> Self {
        IdVec { items: iter.into_iter().collect(), id: PhantomData }
    }
}

impl<I: Id + fmt::Debug, T: fmt::Debug> fmt::Debug for IdVec<I, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
