//! TensorFlow's words where tensors of a convolution do not fit; they differ by the number of axes.

use plimsoll_graph::PartialShape;

use crate::nn::window::Window;

/// The words of an operation.
pub(super) struct Words<'a> {
    op: &'a str,
    /// How many axes the window has.
    rank: usize,
}

impl<'a> Words<'a> {
    pub(super) fn of(window: &Window, op: &'a str) -> Words<'a> {
        Words { op, rank: window.rank() }
    }

    fn is_flat(&self) -> bool {
        self.rank == 2
    }

    pub(super) fn input_rank(&self, shape: &PartialShape) -> String {
        if self.is_flat() {
            return format!("convolution input must be 4-dimensional: {shape}");
        }
        format!("input must be {}-dimensional", self.rank + 2)
    }

    pub(super) fn filter_rank(&self, shape: &PartialShape) -> String {
        if self.is_flat() {
            return format!("convolution filter must be 4-dimensional: {shape}");
        }
        format!("filter must be {}-dimensional", self.rank + 2)
    }

    pub(super) fn no_depth(&self) -> &'static str {
        if self.is_flat() { "filter depth must be stricly positive, got 0" } else { "filter_depth must be non-zero" }
    }

    pub(super) fn uneven_depth(&self, channels: u64, depth: u64) -> String {
        let input = if self.is_flat() { "input" } else { "Input" };
        format!("{input} depth must be evenly divisible by filter depth: {channels} vs {depth}")
    }

    /// How the words of a gradient begin.
    pub(super) fn label(&self) -> &'static str {
        match self.op {
            "Conv2DBackpropInput" => "Conv2DCustomBackpropInput",
            "Conv2DBackpropFilter" => "Conv2DCustomBackpropFilter",
            "Conv3DBackpropInputV2" => "Conv3DBackpropInputOp",
            "Conv3DBackpropFilterV2" => "Conv3DBackpropFilterOp",
            _ => "Conv",
        }
    }

    pub(super) fn operand_rank(&self, name: &str) -> String {
        let dims = self.rank + 2;
        if self.is_flat() {
            return format!("{}: {name} must be {dims}-dimensional", self.label());
        }
        format!("{} tensor must have {dims} dimensions", if name == "filter" { "filter_sizes" } else { name })
    }

    pub(super) fn input_sizes(&self, count: usize) -> String {
        if self.is_flat() {
            return format!("Conv2DBackpropInput requires input_sizes to contain 4 values or 2 values, but got: {count}");
        }
        self.operand_rank("input")
    }

    pub(super) fn other_in_depth(&self, channels: u64, depth: u64) -> String {
        if self.is_flat() {
            return format!("{}: input depth must be evenly divisible by filter depth", self.label());
        }
        format!("input and filter_sizes must have the same number of channels. Got {channels} for input and {depth} for filter_sizes")
    }

    pub(super) fn other_out_depth(&self, actual: u64, depth: u64) -> String {
        if self.is_flat() {
            return format!("{}: filter and out_backprop must have the same out_depth", self.label());
        }
        format!(
            "out_backprop and filter_sizes must have the same number of channels. Got {actual} for out_backprop and {depth} for filter_sizes"
        )
    }
}
