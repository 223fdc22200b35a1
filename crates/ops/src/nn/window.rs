//! The common part of convolutions and poolings: strides and padding of a window that slides over images along any number of axes.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{AttrValue, Attrs, AttrsExt, PartialShape, Shape};
use plimsoll_request::conv::ConvSpec;
use plimsoll_request::window::{Axes, Layout, WindowAxis};

use crate::{InferCx, KernelCx};

/// How a window slides.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Window {
    /// Where channels are.
    pub(crate) layout: Layout,
    /// The attribute that says so.
    format: String,
    /// From position to position along each axis; above 0.
    pub(crate) strides: Vec<u64>,
    /// From tap to tap along each axis; above 0.
    pub(crate) dilations: Vec<u64>,
    padding: Padding,
}

#[derive(Clone, Debug, PartialEq)]
enum Padding {
    /// As many positions as strides fit the operand; missing elements are padded on both sides, more at the end.
    Same,
    /// None.
    Valid,
    /// Before and after, along each axis.
    Explicit(Vec<[u64; 2]>),
}

/// Where a window lies along one axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Span {
    /// How many positions it takes.
    pub(crate) positions: u64,
    /// How far before the operand the first begins.
    pub(crate) before: u64,
}

/// The dimensions of a tensor of images: known ones, or as far as they are known.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Images<T> {
    pub(crate) batch: T,
    /// Along each axis.
    pub(crate) sizes: Vec<T>,
    pub(crate) channels: T,
}

impl<T: Copy> Images<T> {
    /// From a shape of a layout; none without two dimensions beside the sizes.
    fn of(layout: Layout, dims: &[T]) -> Option<Images<T>> {
        Some(match (layout, dims) {
            (Layout::ChannelsLast, [batch, sizes @ .., channels]) => Images { batch: *batch, sizes: sizes.to_vec(), channels: *channels },
            (Layout::ChannelsFirst, [batch, channels, sizes @ ..]) => Images { batch: *batch, sizes: sizes.to_vec(), channels: *channels },
            _ => return None,
        })
    }

    /// The shape in a layout.
    pub(crate) fn shape(&self, layout: Layout) -> Vec<T> {
        layout.shape(self.batch, self.sizes.iter().copied(), self.channels)
    }
}

impl Images<u64> {
    /// Dimensions that are all known.
    pub(crate) fn known(&self) -> Images<Option<u64>> {
        Images { batch: Some(self.batch), sizes: self.sizes.iter().copied().map(Some).collect(), channels: Some(self.channels) }
    }
}

impl Window {
    /// The window in the attributes of operation `op`.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for attributes that make no sense; UNIMPLEMENTED for strides and dilations over images or channels, or dilations
    /// of anything but convolutions.
    pub(crate) fn of(op: &str, attrs: &Attrs) -> Result<Window> {
        let format = attrs.text("data_format")?;
        let layout = match format {
            "NHWC" | "NDHWC" => Layout::ChannelsLast,
            "NCHW" | "NCDHW" => Layout::ChannelsFirst,
            other => return Err(Error::unimplemented(format!("not yet: {op} with data_format {other}"))),
        };
        let window = Window {
            layout,
            format: format.to_string(),
            strides: Vec::new(),
            dilations: vec![1; format.len() - 2],
            padding: Padding::of(attrs, layout, format.len())?,
        };
        let mut dilations = window.dilations.clone();
        if attrs.contains_key("dilations") {
            let rates = &attrs.list("dilations")?.ints;
            if let Some(rate) = rates.iter().find(|rate| **rate < 1) {
                return Err(Error::invalid_argument(format!("Dilation rate must be >= 1, but got {rate}")));
            }
            let rates = window.each(op, "dilations", rates)?;
            if (rates.batch, rates.channels) != (1, 1) {
                let words = "Current implementation does not yet support dilations in the batch and depth dimensions.";
                return Err(Error::unimplemented(words));
            }
            if rates.sizes.iter().any(|rate| *rate != 1) && !op.contains("Conv") {
                return Err(Error::unimplemented(format!("not yet: {op} with dilations above 1")));
            }
            dilations = rates.sizes.iter().map(|rate| *rate as u64).collect();
        }
        let strides = window.each(op, "stride", &attrs.list("strides")?.ints)?;
        if let Some(stride) = strides.shape(layout).iter().find(|stride| **stride < 1) {
            return Err(Error::invalid_argument(format!("Stride must be > 0, but got {stride}")));
        }
        if (strides.batch, strides.channels) != (1, 1) {
            return Err(Error::unimplemented("Current implementation does not yet support strides in the batch and depth dimensions."));
        }
        let strides = strides.sizes.iter().map(|stride| *stride as u64).collect();
        Ok(Window { strides, dilations, ..window })
    }

    /// How many axes there are.
    pub(crate) fn rank(&self) -> usize {
        self.format.len() - 2
    }

    /// The numbers of an attribute, one for each dimension.
    pub(crate) fn each(&self, op: &str, name: &str, values: &[i64]) -> Result<Images<i64>> {
        let images = Images::of(self.layout, values).filter(|_| values.len() == self.format.len());
        images.ok_or_else(|| {
            Error::invalid_argument(format!(
                "{op} on data format {} requires the {name} attribute to contain {} values, but got: {}",
                self.format,
                self.format.len(),
                values.len()
            ))
        })
    }

    /// The dimensions of a shape; unknown ones where the rank is.
    ///
    /// # Errors
    /// INVALID_ARGUMENT with `words` where there are more or fewer.
    pub(crate) fn dims(&self, shape: &PartialShape, words: impl FnOnce() -> String) -> Result<Vec<Option<u64>>> {
        dims_of(shape, self.format.len(), words)
    }

    /// As [`Window::dims`], of a tensor of images.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn images(&self, shape: &PartialShape, words: impl FnOnce() -> String) -> Result<Images<Option<u64>>> {
        self.images_of(&self.dims(shape, words)?)
    }

    /// The dimensions of a tensor of images.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for other ranks.
    pub(crate) fn images_of<T: Copy>(&self, dims: &[T]) -> Result<Images<T>> {
        let images = Images::of(self.layout, dims).filter(|images| images.sizes.len() == self.rank());
        images.ok_or_else(|| Error::invalid_argument(format!("a tensor of images of {} dimensions", dims.len())))
    }

    /// The dimensions that the vector of sizes at input `index` states, as far as they are known.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for negative sizes, and with `words` where there are more or fewer.
    pub(crate) fn stated_dims(&self, cx: &InferCx<'_>, index: usize, words: impl Fn(usize) -> String) -> Result<Vec<Option<u64>>> {
        if let Some(dims) = cx.dims(index)
            && dims.len() != 1
        {
            return Err(Error::invalid_argument(format!("sizes must be a vector, got shape {}", cx.shape(index))));
        }
        if let Some(length) = cx.vector_len(index)
            && length != self.format.len()
        {
            return Err(Error::invalid_argument(words(length)));
        }
        match cx.ints(index) {
            Some(ints) => self.dims(&crate::infer::shape_of_ints(&ints)?, || words(ints.len())),
            None => Ok(vec![None; self.format.len()]),
        }
    }

    /// The dimensions of a complete shape.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where there are more or fewer; UNIMPLEMENTED for empty tensors with very large dimensions.
    pub(crate) fn complete(&self, shape: &Shape) -> Result<Vec<u64>> {
        complete(shape, self.format.len())
    }

    /// As [`Window::complete`], of a tensor of images.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn complete_images(&self, shape: &Shape) -> Result<Images<u64>> {
        self.images_of(&self.complete(shape)?)
    }

    /// The sizes of a convolution that slides so, from the shapes of its input, its filter and its result.
    ///
    /// # Errors
    /// As [`Window::span`], and UNIMPLEMENTED for many axes.
    pub(crate) fn conv_spec(
        &self,
        data_type: DataType,
        input: &Images<u64>,
        filter: &[u64],
        results: &Images<u64>,
        is_depthwise: bool,
    ) -> Result<ConvSpec> {
        let axes = self.axes(&input.sizes, filter, Some(&results.sizes))?;
        // A filter has the channels of a group.
        let depth = filter.get(self.rank()).copied().unwrap_or(0);
        let groups = if is_depthwise { 1 } else { input.channels.checked_div(depth).unwrap_or(1).max(1) };
        Ok(ConvSpec { data_type, batch: input.batch, in_c: input.channels, out_c: results.channels, axes, layout: self.layout, groups })
    }

    /// The axes of a window of `taps` over `sizes`; as many positions as `positions` says, or as there are.
    ///
    /// # Errors
    /// As [`Window::span`], and UNIMPLEMENTED for many axes.
    pub(crate) fn axes(&self, sizes: &[u64], taps: &[u64], positions: Option<&[u64]>) -> Result<Axes> {
        let axis = |at: usize| {
            let span = self.span(at, sizes[at], taps[at])?;
            Ok(WindowAxis {
                size: sizes[at],
                positions: positions.map_or(span.positions, |positions| positions[at]),
                taps: taps[at],
                stride: self.strides[at],
                dilation: self.dilations[at],
                pad: span.before,
            })
        };
        Axes::new(&(0..self.rank()).map(axis).collect::<Result<Vec<WindowAxis>>>()?)
    }

    /// Positions and padding over `size` elements of an operand along an axis, for a window of `taps`.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where the window is larger than its operand by more than a stride.
    pub(crate) fn span(&self, axis: usize, size: u64, taps: u64) -> Result<Span> {
        let (wide, stride) = (i128::from(size), i128::from(self.strides[axis]));
        let window = if taps == 0 { 0 } else { (i128::from(taps) - 1) * i128::from(self.dilations[axis]) + 1 };
        let too_large = || Error::invalid_argument(format!("a dimension of {size} is too large for this padding"));
        if self.padding == Padding::Same {
            let positions = size.div_ceil(self.strides[axis]);
            let needed = ((i128::from(positions) - 1) * stride + window - wide).max(0);
            return Ok(Span { positions, before: u64::try_from(needed / 2).map_err(|_| too_large())? });
        }
        let [before, after] = match &self.padding {
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

    /// As [`Window::positions`], along all axes.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn all_positions(&self, sizes: &[Option<u64>], taps: &[Option<u64>]) -> Result<Vec<Option<u64>>> {
        (0..self.rank()).map(|axis| self.positions(axis, sizes[axis], taps[axis])).collect()
    }
}

impl Padding {
    fn of(attrs: &Attrs, layout: Layout, dims: usize) -> Result<Padding> {
        let sides: &[i64] = if attrs.contains_key("explicit_paddings") { &attrs.list("explicit_paddings")?.ints } else { &[] };
        let padding = attrs.text("padding")?;
        if padding != "EXPLICIT" && !sides.is_empty() {
            return Err(Error::invalid_argument("explicit_paddings attribute must be empty if the padding attribute is not EXPLICIT"));
        }
        match padding {
            "SAME" => Ok(Padding::Same),
            "VALID" => Ok(Padding::Valid),
            "EXPLICIT" => {
                let (pairs, rest) = sides.as_chunks::<2>();
                let Some(images) = Images::of(layout, pairs).filter(|_| rest.is_empty() && pairs.len() == dims) else {
                    return Err(Error::invalid_argument(format!(
                        "explicit_paddings attribute must contain {} values, but got: {}",
                        2 * dims,
                        sides.len()
                    )));
                };
                let side = |side: i64| {
                    u64::try_from(side).map_err(|_| Error::invalid_argument("All elements of explicit_paddings must be nonnegative"))
                };
                let paddings = images.sizes.iter().map(|[before, after]| Ok([side(*before)?, side(*after)?])).collect::<Result<_>>()?;
                if (images.batch, images.channels) != ([0; 2], [0; 2]) {
                    let words = "Nonzero explicit padding in the batch or depth dimensions is not supported";
                    return Err(Error::invalid_argument(words));
                }
                Ok(Padding::Explicit(paddings))
            }
            other => Err(Error::invalid_argument(format!("Unknown padding type: {other}"))),
        }
    }
}

/// The type of the elements, which are floats of two or four bytes.
///
/// # Errors
/// UNIMPLEMENTED for others.
pub(crate) fn floats(cx: &KernelCx<'_>) -> Result<DataType> {
    let data_type = cx.outputs[0].data_type;
    match data_type.compute_type() {
        DataType::Float => Ok(data_type),
        _ => Err(Error::unimplemented(format!("not yet: {} of {data_type}", cx.node.op))),
    }
}

/// The type of the elements: floats of two, four or eight bytes.
///
/// # Errors
/// UNIMPLEMENTED for others.
pub(crate) fn floats_or_doubles(cx: &KernelCx<'_>) -> Result<DataType> {
    match cx.outputs[0].data_type {
        DataType::Double => Ok(DataType::Double),
        _ => floats(cx),
    }
}

/// The most positions of an empty tensor: kernels walk them though there is nothing at any.
const MOST_OF_NOTHING: u64 = 1 << 20;

/// The dimensions of a complete shape of a rank.
///
/// # Errors
/// INVALID_ARGUMENT where there are more or fewer; UNIMPLEMENTED for empty tensors with very large dimensions.
pub(crate) fn complete(shape: &Shape, rank: usize) -> Result<Vec<u64>> {
    if shape.rank() != rank {
        return Err(Error::invalid_argument(format!("the tensor must be {rank}-dimensional: {shape}")));
    }
    let positions = shape.iter().fold(1u64, |product, size| product.saturating_mul((*size).max(1)));
    if shape.contains(&0) && positions > MOST_OF_NOTHING {
        return Err(Error::unimplemented(format!("not yet: an empty tensor of shape {shape}")));
    }
    Ok(shape.to_vec())
}

/// The dimensions of a shape of a rank; unknown ones where the rank is.
///
/// # Errors
/// INVALID_ARGUMENT with `words` where there are more or fewer.
pub(crate) fn dims_of(shape: &PartialShape, rank: usize, words: impl FnOnce() -> String) -> Result<Vec<Option<u64>>> {
    match &shape.0 {
        None => Ok(vec![None; rank]),
        Some(dims) if dims.len() == rank => Ok(dims.clone()),
        Some(_) => Err(Error::invalid_argument(words())),
    }
}

/// The attributes that a gradient's operation takes over; those that there are.
pub(crate) fn taken_over(attrs: &Attrs, names: &[&'static str]) -> Vec<(&'static str, AttrValue)> {
    names.iter().filter_map(|name| Some((*name, attrs.get(name)?.clone()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(stride: u64, padding: Padding) -> Window {
        Window { layout: Layout::ChannelsLast, format: "NHWC".into(), strides: vec![stride; 2], dilations: vec![1; 2], padding }
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
        let far = Padding::Explicit(vec![[u64::MAX; 2]; 2]);
        assert!(window(1, far).span(0, u64::MAX, 1).is_err());
        assert_eq!(window(u64::MAX, Padding::Same).span(0, u64::MAX, u64::MAX).unwrap().positions, 1);
        assert!(window(1, Padding::Valid).span(0, 0, u64::MAX).is_err());
        assert!(window(1, Padding::Valid).complete(&Shape::from([1, 1 << 40, 2, 0])).is_err());
        assert_eq!(window(1, Padding::Valid).complete(&Shape::from([0, 3, 2, 1])).unwrap(), [0, 3, 2, 1]);
        assert!(window(1, Padding::Valid).complete(&Shape::from([1, 3, 2, 1, 1])).is_err());
    }

    #[test]
    fn a_data_format_says_how_many_axes_there_are_and_where_channels_are() {
        let attrs = |format: &str, strides: &[i64]| {
            let mut attrs = Attrs::default();
            attrs.insert("data_format".into(), AttrValue::text(format));
            attrs.insert("padding".into(), AttrValue::text("VALID"));
            attrs.insert("strides".into(), AttrValue::ints(strides.to_vec()));
            attrs
        };
        let deep = Window::of("Conv3D", &attrs("NCDHW", &[1, 1, 2, 3, 4])).unwrap();
        assert_eq!((deep.layout, deep.strides.as_slice(), deep.rank()), (Layout::ChannelsFirst, &[2, 3, 4][..], 3));
        let images = deep.images_of(&[5, 6, 7, 8, 9]).unwrap();
        assert_eq!(images, Images { batch: 5, sizes: vec![7, 8, 9], channels: 6 });
        assert!(Window::of("Conv3D", &attrs("NDHWC", &[1, 1, 2, 3])).is_err());
        assert!(Window::of("Conv3D", &attrs("NDHWC", &[1, 1, 2, 3, 4])).is_err());
        assert!(Window::of("Conv2D", &attrs("NHWC_VECT_C", &[1, 1, 1, 1])).is_err());
    }
}
