//! Products of matrices.

use serde::{Deserialize, Serialize};

use plimsoll_base::{Error, Result};

/// `C = op(A) op(B)`, row-major.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProductSpec {
    /// Rows of C.
    pub m: u64,
    /// Columns of C.
    pub n: u64,
    /// The length of the sum.
    pub k: u64,
    /// A lies as k rows of m.
    pub transpose_a: bool,
    /// B lies as n rows of k.
    pub transpose_b: bool,
    /// How many products.
    pub batch: u64,
    /// Where the matrices lie. None: each argument is `batch` dense matrices, one after the other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub places: Option<Places>,
}

/// Where the matrices of several products lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Places {
    /// The dimensions that number the products, the last one fastest; their product is `batch`.
    pub sizes: [u64; Places::DIMS],
    /// Where the matrices A are.
    pub a: Place,
    /// Where the matrices B are.
    pub b: Place,
    /// Where the matrices C are: together they are every element of the result, once.
    pub c: Place,
}

/// Distances between elements of an argument. Elements of a row, as it lies, follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// From row to row as they lie.
    pub row: u64,
    /// From matrix to matrix along each dimension of [`Places::sizes`]; 0 where all use the same one.
    pub matrix: [u64; Places::DIMS],
}

impl Places {
    /// Dimensions that number products, at most.
    pub const DIMS: usize = 4;
}

/// A dimension of an argument: how many, and how far apart.
type Dim = (u64, u64);

impl ProductSpec {
    /// Where the matrices lie, dense ones too.
    pub fn places(&self) -> Places {
        self.places.unwrap_or_else(|| {
            let place = |rows: u64, columns: u64| {
                let mut matrix = [0; Places::DIMS];
                matrix[Places::DIMS - 1] = rows.saturating_mul(columns);
                Place { row: columns, matrix }
            };
            let mut sizes = [1; Places::DIMS];
            sizes[Places::DIMS - 1] = self.batch;
            Places {
                sizes,
                a: if self.transpose_a { place(self.k, self.m) } else { place(self.m, self.k) },
                b: if self.transpose_b { place(self.n, self.k) } else { place(self.k, self.n) },
                c: place(self.m, self.n),
            }
        })
    }

    /// The elements of A, B and C, from the first to the last that a matrix has.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where sizes contradict each other, are more than can be addressed, or the matrices C are not every element of
    /// the result, once.
    pub fn extents(&self) -> Result<[u64; 3]> {
        let places = self.places();
        let batch = places.sizes.iter().try_fold(1u64, |product, size| product.checked_mul(*size));
        if batch != Some(self.batch) {
            return Err(Error::invalid_argument("a request says another number of products than their dimensions"));
        }
        let (a, b) = (if self.transpose_a { [self.k, self.m] } else { [self.m, self.k] }, [self.k, self.n]);
        let b = if self.transpose_b { [b[1], b[0]] } else { b };
        let [a, b, c] = [(places.a, a), (places.b, b), (places.c, [self.m, self.n])].map(|(place, [rows, columns])| {
            let matrices = places.sizes.into_iter().zip(place.matrix);
            matrices.chain([(rows, place.row), (columns, 1)]).collect::<Vec<Dim>>()
        });
        Ok([extent(&a)?, extent(&b)?, covered(c)?])
    }
}

/// The largest number of elements between two of an argument.
const MOST: u64 = 1 << 47;

/// From the first to the last of the elements of these dimensions. Those of distance 0 are the same elements again.
fn extent(dims: &[Dim]) -> Result<u64> {
    let distance = |(size, stride): &Dim| size.saturating_sub(1).checked_mul(*stride);
    let last = dims.iter().try_fold(0u64, |sum, dim| sum.checked_add(distance(dim)?)).filter(|last| *last < MOST);
    let last = last.ok_or_else(|| Error::invalid_argument("a request says sizes that no memory has"))?;
    Ok(if dims.iter().any(|(size, stride)| *size == 0 && *stride > 0) { 0 } else { last + 1 })
}

/// How many elements these dimensions cover without gap or overlap.
fn covered(mut dims: Vec<Dim>) -> Result<u64> {
    if dims.iter().any(|(size, _)| *size == 0) {
        return Ok(0);
    }
    dims.retain(|(size, _)| *size > 1);
    dims.sort_by_key(|(_, stride)| *stride);
    let mut all = 1u64;
    for (size, stride) in dims {
        if stride != all {
            return Err(Error::invalid_argument("a request says products that leave gaps in their result"));
        }
        all = all
            .checked_mul(size)
            .filter(|all| *all <= MOST)
            .ok_or_else(|| Error::invalid_argument("a request says sizes that no memory has"))?;
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DENSE: ProductSpec = ProductSpec { m: 2, n: 3, k: 4, transpose_a: true, transpose_b: false, batch: 5, places: None };

    #[test]
    fn dense_matrices_follow_each_other() {
        assert_eq!(DENSE.extents().unwrap(), [40, 60, 30]);
        assert_eq!(ProductSpec { places: Some(DENSE.places()), ..DENSE }.extents().unwrap(), [40, 60, 30]);
        assert_eq!(ProductSpec { k: 0, ..DENSE }.extents().unwrap(), [0, 0, 30]);
        assert_eq!(ProductSpec { m: 0, ..DENSE }.extents().unwrap(), [0, 60, 0]);
    }

    #[test]
    fn repeated_operands_count_once_and_results_have_neither_gap_nor_overlap() {
        let mut places = DENSE.places();
        places.b.matrix = [0; Places::DIMS];
        let spec = |places| ProductSpec { places: Some(places), ..DENSE };
        assert_eq!(spec(places).extents().unwrap(), [40, 12, 30]);
        // Rows of all matrices beside each other.
        let beside = |distance: u64| Place { row: 15, matrix: [0, 0, 0, distance] };
        assert_eq!(spec(Places { c: beside(3), ..places }).extents().unwrap(), [40, 12, 30]);
        for distance in [0, 2, 4, u64::MAX] {
            assert!(spec(Places { c: beside(distance), ..places }).extents().is_err(), "{distance}");
        }
        assert!(spec(Places { sizes: [1, 1, 2, 5], ..places }).extents().is_err());
        assert!(spec(Places { a: Place { row: u64::MAX, ..places.a }, ..places }).extents().is_err());
    }
}
