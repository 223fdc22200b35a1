//! The common part of poolings: the window's size, and the shapes that follow.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{Attrs, AttrsExt, PartialShape};
use plimsoll_request::KernelRequest;
use plimsoll_request::pool::{Maxima, PoolSpec};
use plimsoll_request::window::Layout;

use super::layout::{channels_last, laid_out};
use super::window::{Images, Window, floats_or_doubles};
use crate::{KernelCx, Meta, Recipe};

/// A pooling window.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    pub(crate) window: Window,
    /// Along each axis; above 0.
    taps: Vec<u64>,
}

impl Pool {
    /// The pooling in the attributes of operation `op`.
    ///
    /// # Errors
    /// As [`Window::of`]; INVALID_ARGUMENT for empty windows, UNIMPLEMENTED for windows over images or channels.
    pub(crate) fn of(op: &str, attrs: &Attrs) -> Result<Pool> {
        let window = Window::of(op, attrs)?;
        let size = window.each(op, "ksize", &attrs.list("ksize")?.ints)?;
        let all = size.shape(window.layout);
        if let Some(empty) = all.iter().find(|size| **size <= 0) {
            return Err(Error::invalid_argument(if op.starts_with("Avg") {
                format!("ksize must be a positive int32 value, got:{empty}")
            } else {
                let all: Vec<String> = all.iter().map(i64::to_string).collect();
                format!("Sliding window ksize must be positive. The specified or inferred ksize is: {}", all.join(","))
            }));
        }
        if size.batch != 1 {
            return Err(Error::unimplemented("Pooling is not yet supported on the batch dimension."));
        }
        if size.channels != 1 {
            return Err(Error::unimplemented("Non-spatial pooling is not yet supported."));
        }
        Ok(Pool { window, taps: size.sizes.iter().map(|size| *size as u64).collect() })
    }

    /// The kind of maximum that TensorFlow's operation has.
    pub(crate) fn maxima(&self) -> Maxima {
        if self.window.rank() > 2 { Maxima::Every } else { Maxima::First }
    }

    /// The shape of the result, as far as it is known.
    pub(crate) fn output(&self, input: &Images<Option<u64>>) -> Result<Vec<Option<u64>>> {
        let taps: Vec<Option<u64>> = self.taps.iter().copied().map(Some).collect();
        let sizes = self.window.all_positions(&input.sizes, &taps)?;
        Ok(Images { sizes, ..input.clone() }.shape(self.window.layout))
    }

    /// The sizes of pooling an input of that shape.
    pub(crate) fn spec(&self, cx: &KernelCx<'_>, input: &plimsoll_graph::Shape) -> Result<PoolSpec> {
        let input = self.window.complete_images(input)?;
        let axes = self.window.axes(&input.sizes, &self.taps, None)?;
        let spec =
            PoolSpec { data_type: floats_or_doubles(cx)?, batch: input.batch, channels: input.channels, axes, layout: self.window.layout };
        self.window.complete(&spec.output().into())?;
        Ok(spec)
    }

    /// The dimensions of the tensor that is pooled.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for another rank.
    pub(crate) fn input(&self, shape: &PartialShape) -> Result<Images<Option<u64>>> {
        self.window.images(shape, || match self.window.rank() {
            2 => format!("tensor_in_shape must have 2 spatial dimensions. {} 0", shape.0.as_ref().map_or(0, Vec::len)),
            rank => format!("tensor_in must be {}-dimensional", rank + 2),
        })
    }
}

/// The recipe of a request on images, which are all its arguments: `make` gets the sizes with channels last.
///
/// # Errors
/// As [`Recipe::transposed`].
pub(crate) fn pooled(cx: &KernelCx<'_>, spec: PoolSpec, inputs: &[usize], make: impl FnOnce(PoolSpec) -> KernelRequest) -> Result<Recipe> {
    let mut recipe = Recipe::new();
    let mut images = Vec::with_capacity(inputs.len());
    for &input in inputs {
        let input = recipe.input(cx, input);
        images.push(channels_last(&mut recipe, &input, spec.layout)?);
    }
    let last = PoolSpec { layout: Layout::ChannelsLast, ..spec };
    let shape = if cx.outputs[0].shape.to_vec() == spec.input() { last.input() } else { last.output() };
    let result = recipe.one(make(last), images, Meta { data_type: spec.data_type, shape: shape.into() });
    let result = laid_out(&mut recipe, &result, spec.layout)?;
    Ok(recipe.finish([result]))
}

/// Refuses a tensor called `name` whose shape is known not to be `expected`.
///
/// # Errors
/// INVALID_ARGUMENT with both shapes.
pub(crate) fn expect_shape(name: &str, expected: Vec<Option<u64>>, shape: &PartialShape) -> Result<()> {
    let expected = PartialShape(Some(expected));
    match crate::infer::merge_shapes(&expected, shape) {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::invalid_argument(format!("Expected {name} shape to be {expected}, but got {shape}"))),
    }
}

/// A shape that is known, as one that may not be.
pub(crate) fn known(shape: &[u64]) -> Vec<Option<u64>> {
    shape.iter().copied().map(Some).collect()
}
