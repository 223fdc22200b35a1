//! Attention.

use plimsoll_base::{DataType, Error, Result};
use serde::{Deserialize, Serialize};

use crate::anchor::Epilogue;
use crate::product::{Place, ProductSpec};

/// `softmax(f(Q K)) V` for several matrices: each row of Q weighs the rows of V by its scores, the products with the columns of K. Floats.
///
/// The scores are in no argument. Arguments: Q, K, the further operands of `f`, V, the result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attention {
    /// The products Q K. The scores follow each other as if they were somewhere.
    pub scores: ProductSpec,
    /// The shape of all scores; a row of the softmax is its last dimension.
    pub shape: Vec<u64>,
    /// `f`, with one result; the score, if it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub between: Option<Epilogue>,
    /// The products with V. Their left sides are where the scores were.
    pub values: ProductSpec,
}

impl Attention {
    /// How many scores there are.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where its parts do not fit each other.
    pub fn check(&self) -> Result<u64> {
        let Attention { scores, shape, between, values } = self;
        let all = scores.extents()?[2];
        values.extents()?;
        let lie = is_dense(scores, &scores.places().c, [scores.m, scores.n])
            && is_dense(values, &values.places().a, [values.m, values.k])
            && !values.transpose_a;
        let fit = (scores.batch, scores.m, scores.n) == (values.batch, values.m, values.k);
        let elements = shape.iter().try_fold(1u64, |product, size| product.checked_mul(*size));
        let of_floats = between.as_ref().is_none_or(|Epilogue { expr, .. }| {
            expr.inputs().first() == Some(&DataType::Float) && expr.output_types() == [DataType::Float] && !expr.can_fail()
        });
        if !lie || !fit || !of_floats || elements != Some(all) || shape.last() != Some(&scores.n) {
            return Err(Error::invalid_argument("an attention whose parts do not fit each other"));
        }
        Ok(all)
    }
}

/// Whether matrices of so many rows and columns follow each other without gaps, in the order of their numbers.
fn is_dense(spec: &ProductSpec, place: &Place, [rows, columns]: [u64; 2]) -> bool {
    let mut distance = rows.saturating_mul(columns);
    let follows = |(size, stride): (u64, u64)| {
        let follows = size <= 1 || stride == distance;
        distance = distance.saturating_mul(size);
        follows
    };
    (rows <= 1 || place.row == columns) && spec.places().sizes.into_iter().zip(place.matrix).rev().all(follows)
}
