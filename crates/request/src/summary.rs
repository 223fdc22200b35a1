//! Products and convolutions in a line, for people.

use std::fmt::Write;

use crate::KernelRequest;
use crate::anchor::Anchor;
use crate::conv::ConvSpec;

fn by(sizes: &[u64]) -> String {
    sizes.iter().map(u64::to_string).collect::<Vec<_>>().join("x")
}

fn convolution(what: &str, spec: &ConvSpec) -> String {
    let mut text = format!("{what} {} {} by {} to {}", spec.data_type.name(), by(&spec.input()), by(&spec.filter()), by(&spec.output()));
    if spec.groups > 1 {
        // Writing to a text does not fail.
        let _ = write!(text, " in {} groups", spec.groups);
    }
    text
}

impl KernelRequest {
    /// A product or a convolution with its sizes, in one line: `product float 512x784 by 784x300`. Sizes of matrices are those of A and B as they
    /// are multiplied. Of other requests the kind alone.
    pub fn summary(&self) -> String {
        let (mut text, epilogue) = match self {
            KernelRequest::Anchor { anchor, epilogue, .. } => {
                let text = match anchor {
                    Anchor::Product(data_type, spec) => {
                        let transposed = |is: bool| if is { " transposed" } else { "" };
                        let times = if spec.batch > 1 { format!("{} times ", spec.batch) } else { String::new() };
                        format!(
                            "product {} {times}{}x{}{} by {}x{}{}",
                            data_type.name(),
                            spec.m,
                            spec.k,
                            transposed(spec.transpose_a),
                            spec.k,
                            spec.n,
                            transposed(spec.transpose_b)
                        )
                    }
                    Anchor::Conv(spec) => convolution("convolution", spec),
                    Anchor::ConvBackpropInput(spec) => convolution("gradient by the input", spec),
                    Anchor::DepthwiseConv(spec) => convolution("depthwise", spec),
                };
                (text, epilogue.as_ref())
            }
            KernelRequest::ConvBackpropFilter { spec, .. } => (convolution("gradient by the filter", spec), None),
            KernelRequest::ConvStatistics(spec) => (format!("{} with statistics", convolution("convolution", spec)), None),
            other => {
                let text = format!("{other:?}");
                (text.split(|letter: char| !letter.is_alphanumeric()).next().unwrap_or_default().to_string(), None)
            }
        };
        if let Some(epilogue) = epilogue {
            let _ = write!(text, ", {} steps behind", epilogue.expr.instrs().len() - epilogue.expr.inputs().len());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_base::DataType;

    use super::*;
    use crate::product::ProductSpec;
    use crate::window::{Axes, Layout, WindowAxis};

    #[test]
    fn requests_are_a_line() {
        let spec = ProductSpec { m: 2, n: 3, k: 4, transpose_a: true, transpose_b: false, batch: 1, places: None };
        let product = |spec| KernelRequest::Anchor { anchor: Anchor::Product(DataType::Float, spec), epilogue: None, pooling: None };
        assert_eq!(product(spec).summary(), "product float 2x4 transposed by 4x3");
        assert_eq!(product(ProductSpec { batch: 5, ..spec }).summary(), "product float 5 times 2x4 transposed by 4x3");
        let axis = WindowAxis { size: 6, positions: 5, taps: 2, stride: 1, dilation: 1, pad: 0 };
        let axes = Axes::new(&[axis, axis]).unwrap();
        let spec = ConvSpec { data_type: DataType::Half, batch: 2, in_c: 4, out_c: 8, axes, layout: Layout::ChannelsLast, groups: 2 };
        let request = KernelRequest::ConvBackpropFilter { spec, unpooled: None };
        assert_eq!(request.summary(), "gradient by the filter half 2x6x6x4 by 2x2x2x8 to 2x5x5x8 in 2 groups");
        assert_eq!(KernelRequest::Nothing.summary(), "Nothing");
    }
}
