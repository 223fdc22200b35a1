//! RandomUniform, RandomStandardNormal, TruncatedNormal, RandomUniformInt: numbers that go on where the last run stopped.

use plimsoll_base::{Error, Result};
use plimsoll_graph::AttrsExt;
use plimsoll_request::KernelRequest;
use plimsoll_request::random::{BLOCKS_PER_ELEMENT, Distribution, Random};

use crate::array::fill::stated_shape;
use crate::registry::Gradient;
use crate::{InferCx, KernelCx, Lower, OpRules, StatefulCall};

const fn rule(name: &'static str, prepare: fn(&KernelCx<'_>) -> Result<StatefulCall>) -> OpRules {
    OpRules { name, infer, lower: Lower::Stateful(prepare), gradient: Gradient::Stops }
}

/// The rules of stateful random operations.
pub const RULES: &[OpRules] = &[
    rule("RandomUniform", |cx| prepare(cx, Distribution::Uniform)),
    rule("RandomStandardNormal", |cx| prepare(cx, Distribution::Normal)),
    rule("TruncatedNormal", |cx| prepare(cx, Distribution::TruncatedNormal)),
    rule("RandomUniformInt", |cx| prepare(cx, Distribution::UniformInt)),
];

/// A bound of integers, where the operation has one and it is known.
fn bound(cx: &InferCx<'_>, index: usize) -> Option<i64> {
    if index < cx.inputs.len() { cx.int(index) } else { None }
}

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    cx.with_rank(0, 1)?;
    let shape = stated_shape(cx, 0)?;
    if let (Some(low), Some(high)) = (bound(cx, 1), bound(cx, 2))
        && low >= high
    {
        return Err(Error::invalid_argument(format!("Need minval < maxval, got {low} >= {high}")));
    }
    cx.set(0, shape);
    Ok(())
}

fn prepare(cx: &KernelCx<'_>, distribution: Distribution) -> Result<StatefulCall> {
    let (seed, seed2) = seeds(cx)?;
    let (data_type, elements) = (cx.outputs[0].data_type, cx.outputs[0].shape.elements()?);
    let inputs = if distribution == Distribution::UniformInt { vec![1, 2] } else { Vec::new() };
    for (&input, name) in inputs.iter().zip(["minval", "maxval"]) {
        cx.require_one(input, name)?;
    }
    // Bounds may be wrong, and then no numbers are set aside. Other numbers can be drawn again.
    let (before, request) = if distribution == Distribution::UniformInt {
        (None, Random::Stateful { distribution, data_type, elements, seed, seed2 })
    } else {
        let reserve = Random::Reserve { blocks: elements.wrapping_mul(BLOCKS_PER_ELEMENT) };
        (Some(reserve), Random::Reserved { distribution, data_type, elements, seed, seed2 })
    };
    Ok(StatefulCall { before: before.map(KernelRequest::Random), request: KernelRequest::Random(request), inputs, state: vec![0; 8] })
}

/// The attributes `seed` and `seed2`; seeds that follow from the node's name where both are 0.
pub(super) fn seeds(cx: &KernelCx<'_>) -> Result<(i64, i64)> {
    match (cx.attrs().int("seed")?, cx.attrs().int("seed2")?) {
        // TensorFlow draws a seed here. Ours follow from the node's name: different nodes, different numbers, the same in
        // every run.
        (0, 0) => Ok((DEFAULT_SEED, name_seed(&cx.node.name))),
        stated => Ok(stated),
    }
}

/// TensorFlow's seed of graphs that have none.
const DEFAULT_SEED: i64 = 87_654_321;

/// A number that a name gives (FNV-1a).
fn name_seed(name: &str) -> i64 {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    (hash >> 1) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_give_different_seeds() {
        assert_ne!(name_seed("a/random_uniform"), name_seed("b/random_uniform"));
        assert!(name_seed("") >= 0);
    }
}
