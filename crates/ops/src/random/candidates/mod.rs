//! UniformCandidateSampler and its kin: classes that a sampled loss compares the true ones with.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{Attrs, AttrsExt};
use plimsoll_request::KernelRequest;
use plimsoll_request::random::{Candidates, Random, Sampler};

use super::stateful::seeds;
use crate::registry::Gradient;
use crate::{InferCx, KernelCx, Lower, OpRules, StatefulCall};

const fn rule(name: &'static str) -> OpRules {
    OpRules { name, infer, lower: Lower::Stateful(prepare), gradient: Gradient::Stops }
}

/// The rules of candidate samplers.
pub const RULES: &[OpRules] = &[
    rule("AllCandidateSampler"),
    rule("FixedUnigramCandidateSampler"),
    rule("LearnedUnigramCandidateSampler"),
    rule("LogUniformCandidateSampler"),
    rule("ThreadUnsafeUnigramCandidateSampler"),
    rule("UniformCandidateSampler"),
];

fn count(attrs: &Attrs, name: &str) -> Result<u64> {
    let count = attrs.int(name)?;
    u64::try_from(count)
        .ok()
        .filter(|count| *count > 0)
        .ok_or_else(|| Error::invalid_argument(format!("Attr '{name}' of {count} must be at least minimum 1")))
}

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let (truths, sampled) = (count(cx.attrs(), "num_true")?, count(cx.attrs(), "num_sampled")?);
    let rows = match cx.with_rank(0, 2)? {
        Some([_, Some(columns)]) if *columns != truths => {
            return Err(Error::invalid_argument(format!("true_classes must have num_true columns, expected: {columns} was: {truths}")));
        }
        Some([rows, _]) => *rows,
        _ => None,
    };
    cx.set_dims(0, vec![Some(sampled)]);
    cx.set_dims(1, vec![rows, Some(truths)]);
    cx.set_dims(2, vec![Some(sampled)]);
    Ok(())
}

fn sampler(op: &str, attrs: &Attrs) -> Result<Sampler> {
    Ok(match op {
        "AllCandidateSampler" => Sampler::All { range: count(attrs, "num_sampled")? },
        "FixedUnigramCandidateSampler" => Sampler::Unigram { weights: weights(attrs)? },
        "LogUniformCandidateSampler" => Sampler::LogUniform { range: count(attrs, "range_max")? },
        "UniformCandidateSampler" => Sampler::Uniform { range: count(attrs, "range_max")? },
        _ => Sampler::Learned { range: count(attrs, "range_max")? },
    })
}

/// Classes with weights: a plan holds the weights.
const MOST_WEIGHTS: u64 = 1 << 24;

/// The weights of this shard's classes: 0 for reserved ones, then powers of the numbers that the node states.
fn weights(attrs: &Attrs) -> Result<Vec<f32>> {
    // Who opens a graph reads the file, and states its weights.
    let file = attrs.text("vocab_file")?;
    if !file.is_empty() {
        return Err(Error::not_found(format!("there is no vocabulary with a weight in each line at {}", file.escape_debug())));
    }
    let (range, reserved) = (count(attrs, "range_max")?, attrs.int("num_reserved_ids")?);
    let (shards, shard) = (attrs.int("num_shards")?, attrs.int("shard")?);
    if shards < 1 || shard < 0 || shard >= shards {
        return Err(Error::invalid_argument(format!("shard {shard} is none of {shards}")));
    }
    let (stated, distortion) = (&attrs.list("unigrams")?.floats, attrs.float("distortion")?);
    let reserved = u64::try_from(reserved).map_err(|_| Error::invalid_argument(format!("num_reserved_ids of {reserved}")))?;
    // TensorFlow numbers the stated classes from the shard's own reserved ones on.
    let (shards, shard) = (shards as u64, shard as u64);
    let reserved = reserved.saturating_sub(shard).div_ceil(shards);
    if range > MOST_WEIGHTS {
        return Err(Error::unimplemented(format!("{range} classes with weights of their own")));
    }
    if reserved > range {
        return Err(Error::invalid_argument(format!("range_max is {range}, but {reserved} classes are reserved")));
    }
    let own = stated.iter().zip(reserved..).filter(|(_, class)| class % shards == shard).map(|(weight, _)| weight.powf(distortion));
    let own: Vec<f32> = (0..reserved).map(|_| 0.0).chain(own).collect();
    if own.len() as u64 != range {
        return Err(Error::invalid_argument(format!("range_max is {range}, but there are {} classes", own.len())));
    }
    Ok(own)
}

fn prepare(cx: &KernelCx<'_>) -> Result<StatefulCall> {
    let attrs = cx.attrs();
    let sampler = sampler(&cx.node.op, attrs)?;
    let ((seed, seed2), sampled, unique) = (seeds(cx)?, count(attrs, "num_sampled")?, attrs.bool("unique")?);
    if unique && sampled > sampler.range() {
        return Err(Error::invalid_argument("Sampler's range is too small."));
    }
    let state = sampler.state_bytes().and_then(|bytes| usize::try_from(bytes).ok()).filter(|bytes| *bytes <= 1 << 32);
    let state = state.ok_or_else(|| Error::unimplemented(format!("{} classes that are counted", sampler.range())))?;
    let truths = cx.inputs[0].shape.elements()?;
    let request = Candidates { sampler, unique, sampled, truths, seed, seed2 };
    Ok(StatefulCall { before: None, request: KernelRequest::Random(Random::Candidates(request)), inputs: vec![0], state: vec![0; state] })
}
