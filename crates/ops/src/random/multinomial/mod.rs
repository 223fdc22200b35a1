//! Multinomial and StatelessMultinomial: classes, as likely as logits say.

use plimsoll_base::{Error, Result};
use plimsoll_request::KernelRequest;
use plimsoll_request::random::{Categorical, Random, SeedSource};

use super::stateful::seeds;
use crate::registry::Gradient;
use crate::{Call, InferCx, KernelCx, Lower, OpRules, StatefulCall};

/// The rules of Multinomial and StatelessMultinomial.
pub const RULES: &[OpRules] = &[
    OpRules { name: "Multinomial", infer, lower: Lower::Stateful(stateful), gradient: Gradient::Stops },
    OpRules { name: "StatelessMultinomial", infer: infer_stateless, lower: Lower::Kernel(stateless), gradient: Gradient::Stops },
];

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let logits = cx.with_rank(0, 2)?;
    cx.with_rank(1, 0)?;
    let samples = cx.int(1).map(|samples| {
        u64::try_from(samples).map_err(|_| Error::invalid_argument(format!("num_samples should be non-negative, got {samples}")))
    });
    let samples = samples.transpose()?;
    if let Some([rows, Some(0)]) = logits
        && *rows != Some(0)
        && samples != Some(0)
    {
        return Err(Error::invalid_argument("num_classes should be positive, got 0"));
    }
    cx.set_dims(0, vec![logits.and_then(|dims| dims[0]), samples]);
    Ok(())
}

fn infer_stateless(cx: &mut InferCx<'_>) -> Result<()> {
    if let Some([length]) = cx.with_rank(2, 1)?
        && length.is_some_and(|length| length != 2)
    {
        return Err(Error::invalid_argument(format!("seed must have shape [2], not {}", cx.shape(2))));
    }
    infer(cx)
}

fn request(cx: &KernelCx<'_>, source: SeedSource) -> KernelRequest {
    let logits = cx.dims(0);
    KernelRequest::Random(Random::Categorical(Categorical {
        data_type: cx.inputs[0].data_type,
        output_type: cx.outputs[0].data_type,
        rows: logits[0],
        classes: logits[1],
        samples: cx.outputs[0].shape[1],
        source,
    }))
}

fn stateful(cx: &KernelCx<'_>) -> Result<StatefulCall> {
    let (seed, seed2) = seeds(cx)?;
    Ok(StatefulCall { before: None, request: request(cx, SeedSource::State { seed, seed2 }), inputs: vec![0], state: vec![0; 8] })
}

fn stateless(cx: &KernelCx<'_>) -> Result<Call> {
    Ok(Call::new(request(cx, SeedSource::Given { seed_type: cx.inputs[2].data_type }), [0, 2]))
}
