//! StatelessRandomUniformV2 and its kin: numbers that follow from a key and a counter; and where these come from.

use plimsoll_base::{Error, Result};
use plimsoll_graph::Shape;
use plimsoll_request::KernelRequest;
use plimsoll_request::random::{Distribution, Random};

use crate::array::fill::stated_shape;
use crate::infer::int_tensor;
use crate::registry::Gradient;
use crate::{Call, InferCx, KernelCx, Lower, OpRules};

const fn rule(name: &'static str, prepare: fn(&KernelCx<'_>) -> Result<Call>) -> OpRules {
    OpRules { name, infer, lower: Lower::Kernel(prepare), gradient: Gradient::Stops }
}

/// The rules of stateless random operations.
pub const RULES: &[OpRules] = &[
    rule("StatelessRandomUniformV2", |cx| prepare(cx, Distribution::Uniform)),
    rule("StatelessRandomNormalV2", |cx| prepare(cx, Distribution::Normal)),
    rule("StatelessTruncatedNormalV2", |cx| prepare(cx, Distribution::TruncatedNormal)),
    rule("StatelessRandomUniformIntV2", |cx| prepare(cx, Distribution::UniformInt)),
    OpRules { name: "StatelessRandomGetKeyCounter", infer: infer_keys, lower: Lower::Kernel(prepare_keys), gradient: Gradient::Stops },
    OpRules { name: "StatelessRandomGetAlg", infer: algorithm, lower: Lower::Nothing, gradient: Gradient::Stops },
];

/// The number of the Philox algorithm.
const PHILOX: i64 = 1;
/// The number that leaves the choice to the device: Philox on processors.
const AUTO: i64 = 3;

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    cx.with_rank(1, 1)?;
    cx.with_rank(2, 1)?;
    let shape = stated_shape(cx, 0)?;
    cx.set(0, shape);
    Ok(())
}

fn prepare(cx: &KernelCx<'_>, distribution: Distribution) -> Result<Call> {
    let algorithm = cx.int(3)?;
    if algorithm != PHILOX && algorithm != AUTO {
        return Err(Error::unimplemented(format!("random numbers by algorithm {algorithm}; Philox is {PHILOX}")));
    }
    if cx.dims(1) != [1] || cx.dims(2) != [2] {
        return Err(Error::invalid_argument(format!(
            "key must have shape [1], counter [2], not {} and {}",
            cx.inputs[1].shape, cx.inputs[2].shape
        )));
    }
    let (data_type, elements) = (cx.outputs[0].data_type, cx.outputs[0].shape.elements()?);
    let inputs = if distribution == Distribution::UniformInt { vec![1, 2, 4, 5] } else { vec![1, 2] };
    for (&input, name) in inputs[2..].iter().zip(["minval", "maxval"]) {
        cx.require_one(input, name)?;
    }
    Ok(Call::new(KernelRequest::Random(Random::Stateless { distribution, data_type, elements }), inputs))
}

fn infer_keys(cx: &mut InferCx<'_>) -> Result<()> {
    if let Some(dims) = cx.with_rank(0, 1)?
        && dims[0].is_some_and(|length| length != 2)
    {
        return Err(Error::invalid_argument(format!("seed must have shape [2], not {}", cx.shape(0))));
    }
    cx.set_dims(0, vec![Some(1)]);
    cx.set_dims(1, vec![Some(2)]);
    Ok(())
}

fn prepare_keys(cx: &KernelCx<'_>) -> Result<Call> {
    Ok(Call::new(KernelRequest::Random(Random::KeyCounter { seed_type: cx.inputs[0].data_type }), [0]))
}

fn algorithm(cx: &mut InferCx<'_>) -> Result<()> {
    let value = int_tensor(&[PHILOX], Shape::scalar(), cx.outputs[0].data_type)?;
    cx.set_value(0, value);
    Ok(())
}
