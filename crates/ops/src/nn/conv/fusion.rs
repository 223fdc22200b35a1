//! Fusions of convolutions' gradients.

use plimsoll_request::KernelRequest;

use crate::fusion::{Becomes, Computes, Fusion, Patch, Stage, WorkId, Works};
use crate::nn::max_pool::fusion::grad_by_positions;

/// Conv2DBackpropFilter of what MaxPoolGrad computes reads what that reads, where the device has a kernel for it. If BiasAddGrad
/// is its only other reader, MaxPoolGrad's output is never materialised.
pub const FUSIONS: &[Fusion] = &[Fusion { name: "conv2d_filter_of_max_pool_grad", stage: Stage::Lowered, find: filter_of_max_pool_grad }];

fn filter_of_max_pool_grad(works: &dyn Works, work: WorkId) -> Option<Patch> {
    let Computes::Request(KernelRequest::ConvBackpropFilter { spec, unpooled: None }) = works.computes(work) else { return None };
    let [input, unpooled] = works.inputs(work) else { return None };
    let (pool, positions, gradient) = grad_by_positions(works, works.maker(unpooled.value)?)?;
    let reads_otherwise = |reader: &WorkId| {
        let is_filter = matches!(works.computes(*reader), Computes::Request(KernelRequest::ConvBackpropFilter { .. }));
        let reads_as_gradient = works.inputs(*reader).iter().position(|view| view.value == unpooled.value) == Some(1);
        !(is_filter && reads_as_gradient || works.op(*reader) == "BiasAddGrad")
    };
    if pool.data_type != spec.data_type
        || pool.input() != spec.output()
        || works.is_kept(unpooled.value)
        || works.readers(unpooled.value).iter().any(reads_otherwise)
    {
        return None;
    }
    let request = KernelRequest::ConvBackpropFilter { spec: *spec, unpooled: Some(pool) };
    if !works.answers(work, &request) {
        return None;
    }
    let inputs = vec![input.clone(), positions.clone(), gradient.clone()];
    Some(Patch::new(works).change(work, Becomes::Request(request), inputs, works.outputs(work).to_vec()))
}
