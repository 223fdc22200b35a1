//! Kernels have channels last: tensors of images whose channels are first are transposed before and behind them.

use plimsoll_base::Result;
use plimsoll_request::window::Layout;

use crate::Recipe;
use crate::recipe::Ingredient;

/// Images with their channels last.
///
/// # Errors
/// As [`Recipe::transposed`].
pub(crate) fn channels_last(recipe: &mut Recipe, images: &Ingredient, layout: Layout) -> Result<Ingredient> {
    let rank = images.dims().len();
    match layout {
        Layout::ChannelsFirst if rank > 2 => recipe.transposed(images, &[0].into_iter().chain(2..rank).chain([1]).collect::<Vec<_>>()),
        _ => Ok(images.clone()),
    }
}

/// Images whose channels are last, with their channels where `layout` says.
///
/// # Errors
/// As [`Recipe::transposed`].
pub(crate) fn laid_out(recipe: &mut Recipe, images: &Ingredient, layout: Layout) -> Result<Ingredient> {
    let rank = images.dims().len();
    match layout {
        Layout::ChannelsFirst if rank > 2 => recipe.transposed(images, &[0, rank - 1].into_iter().chain(1..rank - 1).collect::<Vec<_>>()),
        _ => Ok(images.clone()),
    }
}
