//! Seconds that the kernels of this crate take on a card, for predictions: convolutions and products by the card's table ([`Rates`]), all
//! others by what they move and compute, whichever takes longer.

use plimsoll_base::DataType;
use plimsoll_device::{Cost, DeviceSpec};
use plimsoll_request::KernelRequest;
use plimsoll_request::anchor::Anchor;
use plimsoll_request::product::ProductSpec;

use crate::cudnn::ConvolutionKind;
use crate::emit::{Emitted, THREADS};
use crate::rates::{Rates, Task, Way};
use crate::source::multiplied;

/// The part of the peak that arithmetic comes to which is no product's: few operations are multiplications whose result is added.
const ELEMENTWISE: f64 = 0.25;

/// What several products at once come to beside one as large: half of it. GPT-2's attention on an H200 takes 1.6 ms for 26 GFLOP (docs/commands.md).
const SEVERAL: f64 = 0.5;

/// Operations of a power of a float, and of a neighbour whose square is added.
const POWER: f64 = 60.0;
const NEIGHBOUR: f64 = 10.0;

/// Blocks that keep a multiprocessor's way to memory busy. Fewer come to a part of the bandwidth.
const BLOCKS_OF_EACH: f64 = 1024.0 / THREADS as f64;

/// The rates of a card: those of its model.
pub(crate) fn rates_of(spec: &DeviceSpec) -> Rates {
    Rates::on(spec.real().map_or("*", |real| &real.model))
}

/// What the table of a card calls a request; none for requests that are no product and no convolution.
fn task_of(request: &KernelRequest) -> Option<(Task, Anchor)> {
    let of = |kind, anchor| Some((Task::Convolution(kind), anchor));
    match request {
        KernelRequest::Anchor { anchor: anchor @ Anchor::Product(data_type, _), .. } if *data_type != DataType::Double => {
            Some((Task::Product, *anchor))
        }
        KernelRequest::Anchor { anchor: anchor @ Anchor::Conv(_), .. } => of(ConvolutionKind::Forward, *anchor),
        KernelRequest::Anchor { anchor: anchor @ Anchor::ConvBackpropInput(_), .. } => of(ConvolutionKind::ByInput, *anchor),
        KernelRequest::ConvBackpropFilter { spec, .. } => of(ConvolutionKind::ByFilter, Anchor::Conv(*spec)),
        _ => None,
    }
}

/// Bytes that are read once more than the request's arguments say: of tensors whose numbers are needed before their elements are.
fn read_again(request: &KernelRequest) -> f64 {
    let element = |data_type: DataType| data_type.size().unwrap_or(0) as f64;
    match request {
        KernelRequest::BatchNorm { spec, training: true, summed: false, .. } => {
            (spec.rows * spec.channels) as f64 * element(spec.data_type)
        }
        KernelRequest::BatchNormGrad { spec, training, .. } => {
            let tensors = if *training { 2.0 } else { 1.0 };
            tensors * (spec.rows * spec.channels) as f64 * element(spec.data_type)
        }
        _ => 0.0,
    }
}

/// Arithmetic operations as they count for time: those of functions that a cost takes for one.
fn arithmetic(request: &KernelRequest, cost: Cost) -> f64 {
    let (spec, sums) = match request {
        KernelRequest::Lrn(spec) => (spec, 1.0),
        KernelRequest::LrnGrad(spec) => (spec, 2.0),
        _ => return cost.flops,
    };
    (spec.rows * spec.channels) as f64 * (POWER + sums * NEIGHBOUR * (2.0 * spec.depth_radius as f64 + 1.0))
}

/// The predicted seconds of the kernels of a request, of that cost, when the card does nothing else.
pub(crate) fn seconds(spec: &DeviceSpec, request: &KernelRequest, emitted: &Emitted, cost: Cost) -> f64 {
    let Some(further) = emitted.kernels.len().checked_sub(1) else { return 0.0 };
    let further = further as f64 * DeviceSpec::LAUNCH;
    if let Some((task, anchor)) = task_of(request) {
        let several = if matches!(anchor, Anchor::Product(_, ProductSpec { batch: 2.., .. })) { SEVERAL } else { 1.0 };
        return further + rates_of(spec).seconds(spec, task, Way::Kernels, (multiplied(&anchor) / several, cost.bytes));
    }
    let blocks = emitted.kernels.iter().map(|kernel| kernel.blocks).max().unwrap_or(1);
    let multiprocessors = spec.real().map_or(0, |real| real.multiprocessors);
    let share = (f64::from(blocks) / (BLOCKS_OF_EACH * f64::from(multiprocessors)).max(1.0)).min(1.0);
    let bytes = cost.bytes + read_again(request);
    let moved = bytes / (share * DeviceSpec::REACHED * spec.bandwidth);
    DeviceSpec::LAUNCH + further + moved.max(arithmetic(request, cost) / (share * ELEMENTWISE * spec.flops))
}
