//! The common part of convolutions and pooling: strides and padding of a window that slides over rows and columns, channels last.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{AttrValue, Attrs, AttrsExt, PartialShape, Shape};
use plimsoll_request::conv::ConvSpec;

use crate::{InferCx, KernelCx};

/// How a window slides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Window {
    /// Rows and columns from position to position; above 0.
    pub(crate) strides: [u64; 2],
    /// Rows and columns from tap to tap; above 0.
    pub(crate) dilations: [u64; 2],
    padding: Padding,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Padding {
    /// As many positions as strides fit the operand; missing elements are padded on both sides, more at the end.
    Same,
    /// None.
    Valid,
    /// `[[top, bottom], [left, right]]`.
    Explicit([[u64; 2]; 2]),
}

/// Where a window lies along one axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Span {
    /// How many positions it takes.
    pub(crate) positions: u64,
    /// How far before the operand the first begins.
    pub(crate) before: u64,
}

impl Window {
    /// The sizes of a convolution that slides so, from the shapes of its input, its filter and its result.
    ///
    /// # Errors
    /// As [`Window::span`].
    pub fn conv_spec(&self, input: [u64; 4], filter: [u64; 4], results: [u64; 4]) -> Result<ConvSpec> {
        let (rows, columns) = (self.span(0, input[1], filter[0])?, self.span(1, input[2], filter[1])?);
        let ([stride_h, stride_w], [dilation_h, dilation_w]) = (self.strides, self.dilations);
        Ok(ConvSpec {
            batch: input[0],
            in_h: input[1],
            in_w: input[2],
            in_c: input[3],
            out_h: results[1],
            out_w: results[2],
            out_c: results[3],
            k_h: filter[0],
            k_w: filter[1],
            stride_h,
            stride_w,
            dilation_h,
            dilation_w,
            pad_top: rows.before,
            pad_left: columns.before,
        })
    }

    /// The window in the attributes of operation `op`.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for attributes that make no sense; UNIMPLEMENTED for channels before rows, and strides and
    /// dilations over images or channels, or dilations of anything but Conv2D.
    pub(crate) fn of(op: &str, attrs: &Attrs) -> Result<Window> {
        let format = attrs.text("data_format")?;
        if format != "NHWC" {
            return Err(Error::unimplemented(format!("not yet: {op} with data_format {format}")));
        }
        let mut rates = [1; 4];
        if attrs.contains_key("dilations") {
            let dilations = &attrs.list("dilations")?.ints;
            if let Some(rate) = dilations.iter().find(|rate| **rate < 1) {
                return Err(Error::invalid_argument(format!("Dilation rate must be >= 1, but got {rate}")));
            }
            rates = four(op, "dilations", dilations)?;
            if rates[0] != 1 || rates[3] != 1 {
                let words = "Current implementation does not yet support dilations in the batch and depth dimensions.";
                return Err(Error::unimplemented(words));
            }
            if rates != [1; 4] && !op.starts_with("Conv2D") {
                return Err(Error::unimplemented(format!("not yet: {op} with dilations above 1")));
            }
        }
        let strides = four(op, "stride", &attrs.list("strides")?.ints)?;
        if let Some(stride) = strides.iter().find(|stride| **stride < 1) {
            return Err(Error::invalid_argument(format!("Stride must be > 0, but got {stride}")));
        }
        if strides[0] != 1 || strides[3] != 1 {
            return Err(Error::unimplemented("Current implementation does not yet support strides in the batch and depth dimensions."));
        }
        let (strides, dilations) = ([strides[1] as u64, strides[2] as u64], [rates[1] as u64, rates[2] as u64]);
        Ok(Window { strides, dilations, padding: Padding::of(attrs)? })
    }

    /// Positions and padding over `size` rows (axis 0) or columns (axis 1) of an operand, for a window of `taps`.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where the window is larger than what it slides over by more than a stride.
    pub(crate) fn span(&self, axis: usize, size: u64, taps: u64) -> Result<Span> {
        let (wide, stride) = (i128::from(size), i128::from(self.strides[axis]));
        let window = if taps == 0 { 0 } else { (i128::from(taps) - 1) * i128::from(self.dilations[axis]) + 1 };
        let too_large = || Error::invalid_argument(format!("a dimension of {size} is too large for this padding"));
        if self.padding == Padding::Same {
            let positions = size.div_ceil(self.strides[axis]);
            let needed = ((i128::from(positions) - 1) * stride + window - wide).max(0);
            return Ok(Span { positions, before: u64::try_from(needed / 2).map_err(|_| too_large())? });
        }
        let [before, after] = match self.padding {
            Padding::Explicit(sides) => sides[axis],
            _ => [0, 0],
        };
        let positions = (wide + i128::from(before) + i128::from(after) - window + stride) / stride;
        if positions < 0 {
            return Err(Error::invalid_argument(format!(
                "Computed output size would be negative: {positions} [input_size: {size}, effective_filter_size: {window}, stride: {stride}]"
            )));
        }
        Ok(Span { positions: u64::try_from(positions).map_err(|_| too_large())?, before })
    }

    /// How many positions there are, where sizes are known.
    ///
    /// # Errors
    /// As [`Window::span`].
    pub(crate) fn positions(&self, axis: usize, size: Option<u64>, taps: Option<u64>) -> Result<Option<u64>> {
        match (size, taps) {
            (Some(size), Some(taps)) => Ok(Some(self.span(axis, size, taps)?.positions)),
            (Some(size), None) if self.padding == Padding::Same => Ok(Some(self.span(axis, size, 1)?.positions)),
            _ => Ok(None),
        }
    }
}

impl Padding {
    fn of(attrs: &Attrs) -> Result<Padding> {
        let sides: &[i64] = if attrs.contains_key("explicit_paddings") { &attrs.list("explicit_paddings")?.ints } else { &[] };
        let padding = attrs.text("padding")?;
        if padding != "EXPLICIT" && !sides.is_empty() {
            return Err(Error::invalid_argument("explicit_paddings attribute must be empty if the padding attribute is not EXPLICIT"));
        }
        match padding {
            "SAME" => Ok(Padding::Same),
            "VALID" => Ok(Padding::Valid),
            "EXPLICIT" => {
                let &[n0, n1, top, bottom, left, right, c0, c1] = sides else {
                    return Err(Error::invalid_argument(format!(
                        "explicit_paddings attribute must contain 8 values, but got: {}",
                        sides.len()
                    )));
                };
                let side = |side: i64| {
                    u64::try_from(side).map_err(|_| Error::invalid_argument("All elements of explicit_paddings must be nonnegative"))
                };
                let paddings = [[side(top)?, side(bottom)?], [side(left)?, side(right)?]];
                if [n0, n1, c0, c1] != [0; 4] {
                    let words = "Nonzero explicit padding in the batch or depth dimensions is not supported";
                    return Err(Error::invalid_argument(words));
                }
                Ok(Padding::Explicit(paddings))
            }
            other => Err(Error::invalid_argument(format!("Unknown padding type: {other}"))),
        }
    }
}

/// The four numbers of an attribute, one for each dimension.
pub(crate) fn four(op: &str, name: &str, values: &[i64]) -> Result<[i64; 4]> {
    values.try_into().map_err(|_| {
        Error::invalid_argument(format!(
            "{op} on data format NHWC requires the {name} attribute to contain 4 values, but got: {}",
            values.len()
        ))
    })
}

/// The four dimensions of a shape; unknown ones where the rank is.
///
/// # Errors
/// INVALID_ARGUMENT with `words` where there are more or fewer.
pub(crate) fn four_dims(shape: &PartialShape, words: impl FnOnce() -> String) -> Result<[Option<u64>; 4]> {
    match &shape.0 {
        None => Ok([None; 4]),
        Some(dims) => dims[..].try_into().map_err(|_| Error::invalid_argument(words())),
    }
}

/// The shape that the vector of sizes at input `index` states, as far as it is known.
///
/// # Errors
/// INVALID_ARGUMENT for negative sizes, and with `words` where there are not four.
pub(crate) fn stated_dims(cx: &InferCx<'_>, index: usize, words: impl Fn(usize) -> String) -> Result<[Option<u64>; 4]> {
    if let Some(dims) = cx.dims(index)
        && dims.len() != 1
    {
        return Err(Error::invalid_argument(format!("sizes must be a vector, got shape {}", cx.shape(index))));
    }
    if let Some(length) = cx.vector_len(index)
        && length != 4
    {
        return Err(Error::invalid_argument(words(length)));
    }
    match cx.ints(index) {
        Some(ints) => four_dims(&crate::infer::shape_of_ints(&ints)?, || words(ints.len())),
        None => Ok([None; 4]),
    }
}

/// Refuses operands that are not floats.
///
/// # Errors
/// UNIMPLEMENTED with the type.
pub(crate) fn require_floats(cx: &KernelCx<'_>) -> Result<()> {
    match cx.outputs[0].data_type {
        DataType::Float => Ok(()),
        other => Err(Error::unimplemented(format!("not yet: {} of {other}", cx.node.op))),
    }
}

/// The most positions of an empty tensor: kernels walk them though there is nothing at any.
const MOST_OF_NOTHING: u64 = 1 << 20;

/// The four dimensions of a complete shape.
///
/// # Errors
/// INVALID_ARGUMENT where there are more or fewer; UNIMPLEMENTED for empty tensors with very large dimensions.
pub(crate) fn complete(shape: &Shape) -> Result<[u64; 4]> {
    let dims: [u64; 4] =
        shape.dims().try_into().map_err(|_| Error::invalid_argument(format!("the tensor must be 4-dimensional: {shape}")))?;
    let positions = dims.iter().fold(1u64, |product, size| product.saturating_mul((*size).max(1)));
    if dims.contains(&0) && positions > MOST_OF_NOTHING {
        return Err(Error::unimplemented(format!("not yet: an empty tensor of shape {shape}")));
    }
    Ok(dims)
}

/// The attributes that a gradient's operation takes over; those that there are.
pub(crate) fn taken_over(attrs: &Attrs, names: &[&'static str]) -> Vec<(&'static str, AttrValue)> {
    names.iter().filter_map(|name| Some((*name, attrs.get(*name)?.clone()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(stride: u64, padding: Padding) -> Window {
        Window { strides: [stride; 2], dilations: [1; 2], padding }
    }

    #[test]
    fn same_pads_more_at_the_end() {
        assert_eq!(window(2, Padding::Same).span(0, 5, 3).unwrap(), Span { positions: 3, before: 1 });
        assert_eq!(window(2, Padding::Same).span(0, 4, 3).unwrap(), Span { positions: 2, before: 0 });
        assert_eq!(window(3, Padding::Same).span(0, 7, 1).unwrap(), Span { positions: 3, before: 0 });
        assert_eq!(window(1, Padding::Same).span(1, 0, 3).unwrap().positions, 0);
        assert_eq!(window(2, Padding::Same).positions(0, Some(5), None).unwrap(), Some(3));
        assert_eq!(window(2, Padding::Valid).positions(0, Some(5), None).unwrap(), None);
    }

    #[test]
    fn sizes_at_the_edge_of_numbers_are_answers_or_errors() {
        let far = Padding::Explicit([[u64::MAX; 2]; 2]);
        assert!(window(1, far).span(0, u64::MAX, 1).is_err());
        assert_eq!(window(u64::MAX, Padding::Same).span(0, u64::MAX, u64::MAX).unwrap().positions, 1);
        assert!(window(1, Padding::Valid).span(0, 0, u64::MAX).is_err());
        assert!(complete(&Shape::from([1, 1 << 40, 2, 0])).is_err());
        assert_eq!(complete(&Shape::from([0, 3, 2, 1])).unwrap(), [0, 3, 2, 1]);
    }
}
