//! Convolutions with fewer multiplications: Winograd's minimal filtering of tiles.
//!
//! A tile of 6x6 positions of the operand gives 4x4 results of a filter of 3x3 taps, or 2x2 of one of 5x5. One of 8x8 positions gives
//! 4x4 of one of 5x5 ([`transform`]). At each of 36 or 64 points the channels of all tiles are a matrix, and those of the filter another.
//! Their product is the results at that point. The first kernel evaluates the filter ([`weights`]). The second evaluates blocks of tiles, multiplies, interpolates, and applies the
//! epilogue, all while a block is in the second cache ([`tiles`]).
//!
//! A convolution that is pooled at once has pieces of whole images ([`winograd_pooled`]).
//!
//! Results are not the bits of the direct form. The error is at most 1e-5 of the largest result where at most
//! [`MOST_TERMS`] channels are summed. Each result is a sum in an order that depends on the channels alone, so results are the same
//! bits however the work is cut.
//!
//! The gradient by the filter has tiles as well: there the result's positions are a filter, and the taps are results. Values at the points
//! are summed over tiles, and interpolated once ([`gradient`]).

mod ahead;
mod filters;
mod gradient;
mod registers;
mod strips;
mod tiles;
mod transform;

use std::sync::Arc;

use plimsoll_base::{DataType, Result};
use plimsoll_device::Prepared;

use super::Sizes;
use super::axis::Axis;
use super::pass::Side;
use super::pooled::Of;
use super::tiles::{Code, Panel, code};
use crate::cut::elements;
use crate::packing::Order;
use crate::simd::Isa;
use plimsoll_request::anchor::Epilogue;
use plimsoll_request::conv::ConvSpec;
use plimsoll_request::pool::Pooling;
use plimsoll_request::window::{Layout, WindowAxis};
use transform::{Transforms, transforms};

pub(crate) use gradient::{ByFilter, by_filter, end_by_filter, some_by_filter};

/// The most channels that are summed, and those that are at eight points along each axis: with more, errors may be larger than promised.
const MOST_TERMS: u64 = 512;
const MOST_TERMS_OF_EIGHT: u64 = 64;

/// The two kernels of a convolution, and the work that tables of costs price.
pub(crate) struct Winograd {
    /// Evaluates the filter. Arguments: filter, values.
    pub weights: Prepared,
    /// Computes the results. Arguments as those of the direct form, with the values in the filter's place.
    pub product: Prepared,
    /// How many values there are.
    pub values: u64,
    /// Arithmetic operations of the products, with those of lanes and tiles that hold nothing.
    pub issued: f64,
    /// The other operations of the second kernel.
    pub elementwise: f64,
}

/// What both kernels need to know.
struct Shape {
    code: &'static Code,
    transforms: Transforms,
    /// Whether this is the gradient by the input.
    is_gradient: bool,
    batch: usize,
    /// Rows and columns.
    axes: [Axis; 2],
    taps: usize,
    /// Points along each axis.
    points: usize,
    /// Channels that are summed, and channels of the result.
    terms: usize,
    columns: usize,
    panels: Vec<Panel>,
}

impl Shape {
    /// Results of a tile along an axis.
    fn step(&self) -> usize {
        self.points + 1 - self.taps
    }

    /// Points of a tile.
    fn planes(&self) -> usize {
        self.points * self.points
    }

    /// Rows and columns of tiles of an image.
    fn grid(&self) -> [usize; 2] {
        self.axes.map(|axis| axis.positions.div_ceil(self.step()))
    }

    fn tiles(&self) -> usize {
        self.batch * self.grid()[0] * self.grid()[1]
    }

    /// Elements of a panel's vectors.
    fn width(&self, panel: &Panel) -> usize {
        panel.vectors * self.code.lanes
    }

    /// The first value of a panel: its points follow, each with a row of the panel for every term.
    fn panel_start(&self, panel: &Panel) -> usize {
        self.planes() * self.terms * panel.column
    }

    /// Arithmetic operations of the products.
    fn multiplications(&self) -> f64 {
        2.0 * (self.planes() * self.tiles()) as f64 * self.terms as f64 * self.columns as f64
    }

    /// Values of the filter: panels that end within a vector are filled up.
    fn values(&self) -> usize {
        self.planes() * self.terms * self.panels.iter().map(|panel| self.width(panel)).sum::<usize>()
    }
}

/// As [`winograd_of`], of a convolution whose results are pooled image by image, and exist in a worker's scratch only. Arguments of the second
/// kernel: those of [`crate::conv::conv_pooled`], with the values in the filter's place.
///
/// # Errors
/// As [`crate::conv::conv_pooled`].
pub(crate) fn winograd_pooled(
    isa: Isa,
    spec: &ConvSpec,
    epilogue: Option<Epilogue>,
    pooling: &Pooling,
    order: Order,
) -> Result<Option<Winograd>> {
    let of_results = Of::new(spec, epilogue.as_ref(), pooling)?;
    let Some(mut made) = winograd_of(isa, spec, false, epilogue, (order, true))? else { return Ok(None) };
    let before = made.product.cost.flops;
    made.product = of_results.behind(isa, made.product, 1)?;
    made.elementwise += made.product.cost.flops - before;
    Ok(Some(made))
}

/// The kernels of a convolution, or of its gradient by the input: none where there is no such form. The epilogue is over the result.
///
/// # Errors
/// As [`super::conv_on`].
#[cfg(test)]
pub(crate) fn winograd(isa: Isa, spec: &ConvSpec, is_gradient: bool, epilogue: Option<Epilogue>) -> Result<Option<Winograd>> {
    winograd_of(isa, spec, is_gradient, epilogue, (Order::Rows, false))
}

/// As [`winograd`], with a filter of that order; a gradient has it row by row. With `by_images` a piece of the second kernel is an image.
pub(crate) fn winograd_of(
    isa: Isa,
    spec: &ConvSpec,
    is_gradient: bool,
    epilogue: Option<Epilogue>,
    (order, by_images): (Order, bool),
) -> Result<Option<Winograd>> {
    super::require_order(isa, spec, order)?;
    let Some(shape) = shape(isa, spec, is_gradient)? else { return Ok(None) };
    let values = elements(&[shape.values() as u64])? as u64;
    let result = if is_gradient { spec.input() } else { spec.output() };
    let shape = Arc::new(shape);
    let weights = filters::prepare(isa, &shape, order)?;
    let product = tiles::prepare(isa, &shape, &result, epilogue, by_images)?;
    let issued = 2.0 * shape.tiles() as f64 * shape.values() as f64;
    let elementwise = product.cost.flops - shape.multiplications();
    Ok(Some(Winograd { weights, product, values, issued, elementwise }))
}

/// Whether there is such a form of a convolution.
pub(crate) fn has_form(spec: &ConvSpec, is_gradient: bool) -> bool {
    let terms = if is_gradient { spec.out_c } else { spec.in_c };
    has_tiles(spec) && terms <= MOST_TERMS
}

/// Whether a convolution is of tiles: of floats, along two axes, in single steps, and not empty. Along both axes there are more than half as
/// many elements and positions as taps: all taps have a share in the errors, so of fewer they are large for what there is.
fn has_tiles(spec: &ConvSpec) -> bool {
    let is_enough = |size: u64, taps: u64| size > taps / 2;
    let is_plain = |axis: &WindowAxis| {
        let is_long = is_enough(axis.positions, axis.taps) && is_enough(axis.size, axis.taps);
        axis.stride == 1 && axis.dilation == 1 && is_long
    };
    let [planes, rows, columns] = spec.axes.filled();
    spec.data_type == DataType::Float
        && spec.layout == Layout::ChannelsLast
        && spec.groups == 1
        && planes == WindowAxis::ONE
        && is_plain(&rows)
        && is_plain(&columns)
        && rows.taps == columns.taps
        && matches!(rows.taps, 3 | 5)
        && spec.batch > 0
        && spec.in_c > 0
        && spec.out_c > 0
}

fn shape(isa: Isa, spec: &ConvSpec, is_gradient: bool) -> Result<Option<Shape>> {
    if !has_form(spec, is_gradient) {
        return Ok(None);
    }
    spec.check()?;
    let [_, rows, columns] = spec.sides();
    let terms = if is_gradient { spec.out_c } else { spec.in_c };
    let points = if rows.taps == 5 && terms <= MOST_TERMS_OF_EIGHT { 8 } else { 6 };
    let Some(transforms) = transforms(isa, points, rows.taps) else { return Ok(None) };
    let code = code(isa);
    let channels = if is_gradient { spec.in_c } else { spec.out_c };
    let side = |axis: Axis| if is_gradient { Side::backward(axis, 0).axis } else { axis };
    let shape = Shape {
        code,
        transforms,
        is_gradient,
        batch: spec.batch as usize,
        axes: [side(rows), side(columns)],
        taps: rows.taps,
        points,
        terms: terms as usize,
        columns: channels as usize,
        panels: code.panels(channels as usize),
    };
    // Tiles reach over the results, and there are values of each.
    let [grid_rows, grid_columns] = shape.grid();
    elements(&[spec.batch, grid_rows as u64, grid_columns as u64, shape.planes() as u64, terms.max(channels.next_multiple_of(16))])?;
    Ok(Some(shape))
}
