//! Shapes: known ([`Shape`]) and as far as they are known ([`PartialShape`]).

use std::fmt;
use std::ops::Deref;

use plimsoll_base::{Bytes, DataType, Error, Result};

/// A shape whose every dimension is known. A scalar has none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct Shape(Vec<u64>);

impl Shape {
    /// The shape with these dimensions, in elements.
    pub fn new(dims: impl Into<Vec<u64>>) -> Shape {
        Shape(dims.into())
    }

    /// The shape of a single element.
    pub fn scalar() -> Shape {
        Shape(Vec::new())
    }

    /// The dimensions.
    pub fn dims(&self) -> &[u64] {
        &self.0
    }

    /// The number of dimensions.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// The number of elements.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where the product does not fit 63 bits (which is TensorFlow's bound too).
    pub fn elements(&self) -> Result<u64> {
        if self.0.contains(&0) {
            return Ok(0);
        }
        self.0
            .iter()
            .try_fold(1u64, |product, &dim| product.checked_mul(dim))
            .filter(|&product| product <= i64::MAX as u64)
            .ok_or_else(|| Error::invalid_argument(format!("shape {self} has more than 2^63 elements")))
    }

    /// Bytes of a tensor of this shape.
    ///
    /// # Errors
    /// UNIMPLEMENTED for types whose elements have no fixed size; INVALID_ARGUMENT where the product does not fit 63 bits.
    pub fn bytes(&self, data_type: DataType) -> Result<Bytes> {
        if data_type.size().is_none() {
            return Err(Error::unimplemented(format!("not yet: values of type {data_type} in a plan")));
        }
        let bytes = data_type.bytes_of(self.elements()?).filter(|bytes| i64::try_from(*bytes).is_ok());
        bytes.map(Bytes).ok_or_else(|| Error::invalid_argument(format!("a tensor of {data_type}{self} has more than 2^63 bytes")))
    }

    /// The shape that `self` and `other` have together under numpy's broadcasting rules; none where they clash.
    pub fn broadcast(&self, other: &Shape) -> Option<Shape> {
        let rank = self.rank().max(other.rank());
        let dim = |shape: &Shape, axis: usize| (axis + shape.rank()).checked_sub(rank).map_or(1, |axis| shape.0[axis]);
        (0..rank)
            .map(|axis| match (dim(self, axis), dim(other, axis)) {
                (a, b) if a == b => Some(a),
                (1, b) => Some(b),
                (a, 1) => Some(a),
                _ => None,
            })
            .collect::<Option<Vec<u64>>>()
            .map(Shape)
    }
}

impl Deref for Shape {
    type Target = [u64];
    fn deref(&self) -> &[u64] {
        &self.0
    }
}

impl From<Vec<u64>> for Shape {
    fn from(dims: Vec<u64>) -> Shape {
        Shape(dims)
    }
}

impl<const N: usize> From<[u64; N]> for Shape {
    fn from(dims: [u64; N]) -> Shape {
        Shape(dims.to_vec())
    }
}

impl FromIterator<u64> for Shape {
    fn from_iter<I: IntoIterator<Item = u64>>(iter: I) -> Shape {
        Shape(iter.into_iter().collect())
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_dims(f, self.0.iter().map(|dim| Some(*dim)))
    }
}

/// A shape as far as it is known: no rank (`None`), or dimensions of which some are open.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartialShape(pub Option<Vec<Option<u64>>>);

impl PartialShape {
    /// A shape of which nothing is known, not even the rank.
    pub fn unknown() -> PartialShape {
        PartialShape(None)
    }

    /// The shape in full, where every dimension is known.
    pub fn complete(&self) -> Option<Shape> {
        self.0.as_ref()?.iter().copied().collect::<Option<Vec<u64>>>().map(Shape)
    }

    /// Whether `shape` could be it.
    pub fn admits(&self, shape: &Shape) -> bool {
        let Some(dims) = &self.0 else { return true };
        dims.len() == shape.rank() && dims.iter().zip(shape.dims()).all(|(mine, theirs)| mine.is_none_or(|mine| mine == *theirs))
    }
}

impl From<&Shape> for PartialShape {
    fn from(shape: &Shape) -> PartialShape {
        PartialShape(Some(shape.0.iter().copied().map(Some).collect()))
    }
}

impl fmt::Display for PartialShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            None => f.write_str("<unknown>"),
            Some(dims) => write_dims(f, dims.iter().copied()),
        }
    }
}

fn write_dims(f: &mut fmt::Formatter<'_>, dims: impl Iterator<Item = Option<u64>>) -> fmt::Result {
    f.write_str("[")?;
    for (position, dim) in dims.enumerate() {
        if position > 0 {
            f.write_str(",")?;
        }
        match dim {
            Some(dim) => write!(f, "{dim}")?,
            None => f.write_str("?")?,
        }
    }
    f.write_str("]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_elements_without_overflow() {
        assert_eq!(Shape::scalar().elements(), Ok(1));
        assert_eq!(Shape::from([3, 0, u64::MAX]).elements(), Ok(0));
        assert!(Shape::from([u64::MAX, 2]).elements().is_err());
        assert!(Shape::from([1 << 62, 2]).elements().is_err());
    }

    #[test]
    fn broadcasts_as_numpy_does() {
        let broadcast = |a: &[u64], b: &[u64]| Shape::new(a).broadcast(&Shape::new(b)).map(|shape| shape.0);
        assert_eq!(broadcast(&[2, 3], &[3]), Some(vec![2, 3]));
        assert_eq!(broadcast(&[2, 1], &[1, 3]), Some(vec![2, 3]));
        assert_eq!(broadcast(&[], &[4]), Some(vec![4]));
        assert_eq!(broadcast(&[0], &[1]), Some(vec![0]));
        assert_eq!(broadcast(&[2], &[3]), None);
    }

    #[test]
    fn prints_what_is_open() {
        assert_eq!(PartialShape(Some(vec![None, Some(3)])).to_string(), "[?,3]");
        assert_eq!(PartialShape::unknown().to_string(), "<unknown>");
        assert_eq!(Shape::scalar().to_string(), "[]");
    }
}
