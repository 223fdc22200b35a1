//! Anchors: which kernel computes each.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_device::Prepared;
use plimsoll_request::anchor::{Anchor, Epilogue};
use plimsoll_request::pool::{Maxima, Pooling};
use plimsoll_request::window::WindowAxis;

use crate::conv::{conv_backprop_input_on, conv_on, conv_pooled_on, depthwise_conv_on};
use crate::product::{Tuning, product_generic, product_on};
use crate::simd::Isa;

/// Whether an anchor's elements, which nothing else reads, are best pooled at once: where there are images enough to be cut into
/// pieces, and they stay in the cache.
pub(crate) fn takes(anchor: &Anchor, pooling: &Pooling) -> bool {
    let Anchor::Conv(spec) = anchor else { return false };
    let output = spec.output();
    let image = output[1..].iter().fold(1u64, |elements, size| elements.saturating_mul(*size));
    let flat = spec.data_type == DataType::Float && spec.axes.filled()[0] == WindowAxis::ONE && pooling.maxima == Maxima::First;
    flat && pooling.spec.input() == output && spec.batch >= 8 && image <= 128 << 10
}

/// The kernel. With a pooling, that follows the epilogue, and its results are the results.
///
/// # Errors
/// As the kernel's own function; UNIMPLEMENTED for an epilogue or a pooling where there can be none.
pub(crate) fn prepare(isa: Isa, anchor: &Anchor, epilogue: Option<Epilogue>, pooling: Option<Pooling>) -> Result<Prepared> {
    if let Some(pooling) = pooling {
        return match anchor {
            Anchor::Conv(spec) => conv_pooled_on(isa, *spec, epilogue, pooling),
            _ => Err(Error::unimplemented(format!("{anchor:?} that is pooled at once"))),
        };
    }
    match anchor {
        Anchor::Product(DataType::Float, spec) => product_on(isa, *spec, epilogue, Tuning::default()),
        Anchor::Product(data_type, spec) if epilogue.is_none() => product_generic(isa, *data_type, spec),
        Anchor::Product(data_type, _) => Err(Error::unimplemented(format!("an epilogue on products of {data_type}"))),
        Anchor::Conv(spec) => conv_on(isa, *spec, epilogue),
        Anchor::ConvBackpropInput(spec) => conv_backprop_input_on(isa, *spec, epilogue),
        Anchor::DepthwiseConv(spec) => depthwise_conv_on(isa, *spec, epilogue),
    }
}
