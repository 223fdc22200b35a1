//! Anchors: which kernel computes each.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_device::{LaidOut, Prepared};
use plimsoll_request::KernelRequest;
use plimsoll_request::anchor::{Anchor, Epilogue};
use plimsoll_request::bands::Bands;
use plimsoll_request::pool::{Maxima, Pooling};
use plimsoll_request::window::WindowAxis;

use crate::conv::{self, conv_backprop_input_on, conv_of, conv_pooled_of, depthwise_conv_on};
use crate::packing::{Order, panels_of};
use crate::product::{self, Tuning, product_generic, product_of_panels, product_on};
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

/// Whether a request can have an argument in panels: the filter of a convolution, that of the first of several by bands, or the right operand of a
/// product.
pub(crate) fn reads_panels(isa: Isa, request: &KernelRequest, laid_out: LaidOut) -> bool {
    let anchor = match request {
        KernelRequest::Anchor { anchor, .. } => anchor,
        KernelRequest::Bands(Bands { stages }) if !stages.is_empty() => &stages[0].anchor,
        _ => return false,
    };
    let (reads, columns) = match anchor {
        Anchor::Conv(spec) => (conv::reads_panels(isa, spec), spec.out_c),
        Anchor::Product(DataType::Float, spec) => (product::reads_panels(isa, spec), spec.n),
        _ => (false, 0),
    };
    reads && laid_out.argument == 1 && panels_of(isa, columns) == Some(laid_out.panels)
}

/// The kernel. With a pooling, that follows the epilogue, and its results are the results. The second argument lies in that order.
///
/// # Errors
/// As the kernel's own function; UNIMPLEMENTED for an epilogue, a pooling or panels where there can be none.
pub(crate) fn prepare(isa: Isa, anchor: &Anchor, epilogue: Option<Epilogue>, pooling: Option<Pooling>, order: Order) -> Result<Prepared> {
    if let Some(pooling) = pooling {
        return match anchor {
            Anchor::Conv(spec) => conv_pooled_of(isa, *spec, epilogue, pooling, order),
            _ => Err(Error::unimplemented(format!("{anchor:?} that is pooled at once"))),
        };
    }
    match anchor {
        Anchor::Conv(spec) => conv_of(isa, *spec, epilogue, order),
        Anchor::Product(DataType::Float, spec) if order == Order::Panels => product_of_panels(isa, *spec, epilogue, Tuning::default()),
        _ if order == Order::Panels => Err(Error::unimplemented(format!("{anchor:?} with an operand in panels"))),
        Anchor::Product(DataType::Float, spec) => product_on(isa, *spec, epilogue, Tuning::default()),
        Anchor::Product(data_type, spec) if epilogue.is_none() => product_generic(isa, *data_type, spec),
        Anchor::Product(data_type, _) => Err(Error::unimplemented(format!("an epilogue on products of {data_type}"))),
        Anchor::ConvBackpropInput(spec) => conv_backprop_input_on(isa, *spec, epilogue),
        Anchor::DepthwiseConv(spec) => depthwise_conv_on(isa, *spec, epilogue),
    }
}
