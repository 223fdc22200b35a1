//! Scores before the softmax: products, a number that they are multiplied by, and what is added to them or hides some.

use plimsoll_request::expr::BinaryOp;

use super::lying::Product;
use super::reading::{back, cast, chosen, factor, maker, operation, scaled, transposition};
use crate::fusion::{View, WorkId, Works};

/// A hidden score is at most this: Keras' number for half. Its share is zero, unless the others of its row are as low. Of minus infinity it is no
/// number where all of a row are hidden: such choices stay.
const LOW: f32 = -3e4;

/// What is done to scores before the softmax.
pub(super) enum Change {
    Nothing,
    /// A tensor is added.
    Added(View),
    /// Where a condition does not hold, they are so low that their shares are zero.
    Hidden(View),
}

/// Scores before the softmax.
pub(super) struct Scores {
    pub scale: f32,
    pub change: Change,
    pub product: WorkId,
    /// Whether the product has keys as rows.
    pub are_turned: bool,
}

impl Scores {
    /// What scores are, and the works behind their product, last one first.
    pub fn of(works: &dyn Works, scores: &View) -> Option<(Vec<WorkId>, Scores)> {
        let (value, mut behind) = back(works, scores, cast);
        let work = maker(works, &value)?;
        let bare = |value: &View| (value.elements() == scores.elements()).then(|| Scores::scaled(works, value)).flatten();
        let (change, (passed, of)) = if let Some([one, other]) = operation(works, work, BinaryOp::Add) {
            behind.push(work);
            match bare(&one) {
                Some(found) => (Change::Added(other), found),
                None => (Change::Added(one), bare(&other)?),
            }
        } else if let Some(chosen) = chosen(works, work).filter(|chosen| chosen.otherwise <= LOW && chosen.otherwise.is_finite()) {
            behind.push(work);
            (Change::Hidden(chosen.condition), bare(&chosen.of)?)
        } else {
            (Change::Nothing, bare(&value)?)
        };
        behind.extend(passed);
        Some((behind, Scores { change, ..of }))
    }

    /// Products that are multiplied by a number, and may have been transposed before.
    fn scaled(works: &dyn Works, value: &View) -> Option<(Vec<WorkId>, Scores)> {
        let (mut first, mut passed) = back(works, value, |expr, reg| scaled(expr, reg).map(|_| ()));
        let scale = passed.iter().rev().try_fold(1.0f32, |scale, work| Some(scale * factor(works, *work)?))?;
        let mut product = maker(works, &first)?;
        let are_turned = transposition(works, product).is_some_and(|(_, perm)| perm == [0, 1, 3, 2]);
        if are_turned {
            passed.push(product);
            first = works.inputs(product).first()?.clone();
            product = maker(works, &first)?;
        }
        Product::of(works, product)?;
        Some((passed, Scores { scale, change: Change::Nothing, product, are_turned }))
    }
}
