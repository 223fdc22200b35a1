//! Anchors: which kernel computes each.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_device::Prepared;
use plimsoll_request::anchor::{Anchor, Epilogue};
use plimsoll_request::pool::Pooling;

use crate::conv::{conv2d_backprop_input_on, conv2d_on, conv2d_pooled_on, depthwise_conv2d_on};
use crate::product::{Tuning, product_generic, product_on};
use crate::simd::Isa;

/// Whether an anchor's elements, which nothing else reads, are best pooled at once: where there are images enough to be cut into
/// pieces, and they stay in the cache.
pub(crate) fn takes(anchor: &Anchor, pooling: &Pooling) -> bool {
    let Anchor::Conv2D(spec) = anchor else { return false };
    let [batch, rows, columns, channels] = spec.output();
    let image = rows.saturating_mul(columns).saturating_mul(channels);
    pooling.spec.input() == spec.output() && batch >= 8 && image <= 128 << 10
}

/// The kernel. With a pooling, that follows the epilogue, and its results are the results.
///
/// # Errors
/// As the kernel's own function; UNIMPLEMENTED for an epilogue or a pooling where there can be none.
pub(crate) fn prepare(isa: Isa, anchor: &Anchor, epilogue: Option<Epilogue>, pooling: Option<Pooling>) -> Result<Prepared> {
    if let Some(pooling) = pooling {
        return match anchor {
            Anchor::Conv2D(spec) => conv2d_pooled_on(isa, *spec, epilogue, pooling),
            _ => Err(Error::unimplemented(format!("{anchor:?} that is pooled at once"))),
        };
    }
    match anchor {
        Anchor::Product(DataType::Float, spec) => product_on(isa, *spec, epilogue, Tuning::default()),
        Anchor::Product(data_type, spec) if epilogue.is_none() => product_generic(*data_type, spec),
        Anchor::Product(data_type, _) => Err(Error::unimplemented(format!("an epilogue on products of {data_type}"))),
        Anchor::Conv2D(spec) => conv2d_on(isa, *spec, epilogue),
        Anchor::Conv2DBackpropInput(spec) => conv2d_backprop_input_on(isa, *spec, epilogue),
        Anchor::DepthwiseConv2D(spec) => depthwise_conv2d_on(isa, *spec, epilogue),
    }
}
