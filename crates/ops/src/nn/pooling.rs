//! The common part of MaxPool and AvgPool: the window's size, and the shapes that follow.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{Attrs, AttrsExt, PartialShape};
use plimsoll_request::pool::PoolSpec;

use super::window::{Window, complete, four, require_floats};
use crate::KernelCx;

/// A pooling window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pool {
    window: Window,
    /// Rows and columns; above 0.
    size: [u64; 2],
}

impl Pool {
    /// The pooling in the attributes of operation `op`.
    ///
    /// # Errors
    /// As [`Window::of`]; INVALID_ARGUMENT for empty windows, UNIMPLEMENTED for windows over images or channels.
    pub(crate) fn of(op: &str, attrs: &Attrs) -> Result<Pool> {
        let size = four(op, "ksize", &attrs.list("ksize")?.ints)?;
        if let Some(empty) = size.iter().find(|size| **size <= 0) {
            return Err(Error::invalid_argument(if op.starts_with("Avg") {
                format!("ksize must be a positive int32 value, got:{empty}")
            } else {
                let [a, b, c, d] = size;
                format!("Sliding window ksize must be positive. The specified or inferred ksize is: {a},{b},{c},{d}")
            }));
        }
        if size[0] != 1 {
            return Err(Error::unimplemented("Pooling is not yet supported on the batch dimension."));
        }
        if size[3] != 1 {
            return Err(Error::unimplemented("Non-spatial pooling is not yet supported."));
        }
        Ok(Pool { window: Window::of(op, attrs)?, size: [size[1] as u64, size[2] as u64] })
    }

    /// The shape of the result, as far as it is known.
    pub(crate) fn output(&self, input: [Option<u64>; 4]) -> Result<[Option<u64>; 4]> {
        let rows = self.window.positions(0, input[1], Some(self.size[0]))?;
        let columns = self.window.positions(1, input[2], Some(self.size[1]))?;
        Ok([input[0], rows, columns, input[3]])
    }

    /// The sizes of pooling `input`.
    pub(crate) fn spec(&self, cx: &KernelCx<'_>, input: [u64; 4]) -> Result<PoolSpec> {
        require_floats(cx)?;
        let (rows, columns) = (self.window.span(0, input[1], self.size[0])?, self.window.span(1, input[2], self.size[1])?);
        let spec = PoolSpec {
            batch: input[0],
            in_h: input[1],
            in_w: input[2],
            channels: input[3],
            out_h: rows.positions,
            out_w: columns.positions,
            k_h: self.size[0],
            k_w: self.size[1],
            stride_h: self.window.strides[0],
            stride_w: self.window.strides[1],
            pad_top: rows.before,
            pad_left: columns.before,
        };
        complete(&spec.output().into())?;
        Ok(spec)
    }
}

/// Refuses a tensor called `name` whose shape is known not to be `expected`.
///
/// # Errors
/// INVALID_ARGUMENT with both shapes.
pub(crate) fn expect_shape(name: &str, expected: [Option<u64>; 4], shape: &PartialShape) -> Result<()> {
    let expected = PartialShape(Some(expected.to_vec()));
    match crate::infer::merge_shapes(&expected, shape) {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::invalid_argument(format!("Expected {name} shape to be {expected}, but got {shape}"))),
    }
}

/// The error of pooling for an input that is not of rank 4.
pub(crate) fn input_words(shape: &PartialShape) -> String {
    let rank = shape.0.as_ref().map_or(0, Vec::len);
    format!("tensor_in_shape must have 2 spatial dimensions. {rank} 0")
}
