//! Constant folding: the values of an operation with known inputs, by its request.

use plimsoll_base::Result;
use plimsoll_device::Evaluate;
use plimsoll_graph::{HostTensor, Node, Shape};
use plimsoll_request::KernelRequest;
use plimsoll_request::expr::{Expr, PartOperand};

use crate::{AnchorCall, Call, Fact, KernelCx, Lower, Meta, OpRules};

/// Tensors with more elements than this are computed when the graph runs (splats are folded whatever their size).
const MAX_ELEMENTS: u64 = 1024;

/// The outputs of a node, where they follow from known inputs and are cheap to hold: splats, or small tensors. Nothing stateful is
/// ever folded, nor an op that fails (an integer division by zero, say): that fails when the graph runs, if it does.
///
/// # Errors
/// The error of making values that are too large to hold.
pub fn evaluate(by: &dyn Evaluate, rules: &OpRules, node: &Node, inputs: &[Fact], outputs: &[Fact]) -> Result<Option<Vec<HostTensor>>> {
    if let Lower::Counted(compute) = rules.lower {
        let Some(values) = inputs.iter().map(|fact| fact.value.as_ref()).collect::<Option<Vec<_>>>() else { return Ok(None) };
        // A few numbers may ask for a large result: one that nothing bounds is left to the run.
        let is_bounded = |fact: &Fact| {
            let most = fact.shape.complete().or_else(|| fact.most.clone());
            most.is_some_and(|most| most.elements().is_ok_and(|elements| elements <= MAX_ELEMENTS))
        };
        if values.iter().any(|value| value.elements() > MAX_ELEMENTS) || !outputs.iter().all(is_bounded) {
            return Ok(None);
        }
        // What fails here fails again when the graph runs.
        return Ok(compute(node, &values).ok());
    }
    let Some(output_metas) = outputs.iter().map(meta).collect::<Option<Vec<Meta>>>() else { return Ok(None) };
    if let Lower::Alias = rules.lower {
        return alias(inputs, &output_metas);
    }
    let Some(input_metas) = inputs.iter().map(meta).collect::<Option<Vec<Meta>>>() else { return Ok(None) };
    let values: Vec<Option<HostTensor>> = inputs.iter().map(|fact| fact.value.clone()).collect();
    let cx = KernelCx { node, inputs: &input_metas, outputs: &output_metas, values: &values };
    match rules.lower {
        Lower::Unary(_) | Lower::Binary(_) | Lower::Elementwise(_) => {
            let Some(values) = all(&values) else { return Ok(None) };
            let Ok(Some(expr)) = rules.lower.expression(&cx) else { return Ok(None) };
            fold_expression(by, &expr, &values, &output_metas)
        }
        Lower::Move(prepare) => {
            if let Some(splat) = values.first().and_then(|value| value.as_ref()?.splat()) {
                let splats = output_metas.iter().map(|meta| HostTensor::from_leading(meta.data_type, meta.shape.clone(), splat));
                return splats.collect::<Result<_>>().map(Some);
            }
            fold_call(by, prepare, &cx, &values, &output_metas)
        }
        Lower::Kernel(prepare) => fold_call(by, prepare, &cx, &values, &output_metas),
        Lower::Anchor(make) => {
            let prepare = |cx: &KernelCx<'_>| {
                let AnchorCall { anchor, inputs } = make(cx)?;
                Ok(Call::new(KernelRequest::Anchor { anchor, epilogue: None, pooling: None }, inputs))
            };
            fold_call(by, prepare, &cx, &values, &output_metas)
        }
        Lower::Recipe(make) => {
            let Some(values) = all(&values) else { return Ok(None) };
            if !output_metas.iter().all(is_small) || !values.iter().all(|value| value.elements() <= MAX_ELEMENTS) {
                return Ok(None);
            }
            let Ok(recipe) = make(&cx) else { return Ok(None) };
            if !recipe.steps().iter().all(|step| step.outputs.iter().all(is_small)) {
                return Ok(None);
            }
            let values: Vec<HostTensor> = values.into_iter().cloned().collect();
            recipe.evaluate(&values, |request, inputs, outputs| run(by, request, inputs, outputs))
        }
        _ => Ok(None),
    }
}

fn meta(fact: &Fact) -> Option<Meta> {
    fact.data_type.size()?;
    let shape = fact.shape.complete()?;
    (!fact.is_ref).then_some(Meta { data_type: fact.data_type, shape })
}

fn all(values: &[Option<HostTensor>]) -> Option<Vec<&HostTensor>> {
    values.iter().map(Option::as_ref).collect()
}

fn is_small(meta: &Meta) -> bool {
    meta.shape.elements().is_ok_and(|elements| elements <= MAX_ELEMENTS)
}

fn alias(inputs: &[Fact], outputs: &[Meta]) -> Result<Option<Vec<HostTensor>>> {
    let reshaped = inputs.iter().zip(outputs).map(|(fact, meta)| fact.value.as_ref()?.reshaped(meta.shape.clone()).ok());
    Ok(reshaped.collect::<Option<Vec<_>>>().filter(|values| values.len() == outputs.len()))
}

/// As [`fold_part`], in parts where there are many operands.
fn fold_expression(by: &dyn Evaluate, expr: &Expr, values: &[&HostTensor], outputs: &[Meta]) -> Result<Option<Vec<HostTensor>>> {
    /// An expression with more operands is folded in parts of fewer.
    const MOST_OPERANDS: usize = 32;
    const PART_OPERANDS: usize = 25;
    if values.len() <= MOST_OPERANDS {
        return fold_part(by, expr, values, outputs);
    }
    let mut made: Vec<Vec<HostTensor>> = Vec::new();
    for part in expr.split(PART_OPERANDS)? {
        let operand = |operand: &PartOperand| match *operand {
            PartOperand::Input(input) => values[input],
            PartOperand::Made { part, result } => &made[part][result],
        };
        let operands: Vec<&HostTensor> = part.operands.iter().map(operand).collect();
        let meta = |data_type| Meta { data_type, shape: outputs[0].shape.clone() };
        let results: Vec<Meta> = part.expr.output_types().into_iter().map(meta).collect();
        let Some(results) = fold_part(by, &part.expr, &operands, &results)? else { return Ok(None) };
        made.push(results);
    }
    Ok(made.pop())
}

fn fold_part(by: &dyn Evaluate, expr: &Expr, values: &[&HostTensor], outputs: &[Meta]) -> Result<Option<Vec<HostTensor>>> {
    let splats: Option<Vec<&[u8]>> = values.iter().map(|value| value.splat()).collect();
    if let Some(splats) = splats {
        let scalars = vec![Vec::new(); splats.len()];
        let sizes = outputs.iter().map(Meta::element).collect::<Result<Vec<_>>>()?;
        let request = KernelRequest::Expr { expr: expr.clone(), shape: Vec::new(), operands: scalars };
        let Ok(results) = by.evaluate(&request, &splats, &sizes) else { return Ok(None) };
        let tensors = results.iter().zip(outputs).map(|(bytes, meta)| HostTensor::from_leading(meta.data_type, meta.shape.clone(), bytes));
        return tensors.collect::<Result<_>>().map(Some);
    }
    if !outputs.iter().all(is_small) {
        return Ok(None);
    }
    let operands = values.iter().map(|value| value.shape().to_vec()).collect();
    run(by, &KernelRequest::Expr { expr: expr.clone(), shape: outputs[0].shape.to_vec(), operands }, values, outputs)
}

fn fold_call(
    by: &dyn Evaluate,
    prepare: impl Fn(&KernelCx<'_>) -> Result<Call>,
    cx: &KernelCx<'_>,
    values: &[Option<HostTensor>],
    outputs: &[Meta],
) -> Result<Option<Vec<HostTensor>>> {
    if !outputs.iter().all(is_small) || !values.iter().flatten().all(|value| value.elements() <= MAX_ELEMENTS) {
        return Ok(None);
    }
    // A request that cannot be prepared here will say why when the plan needs it.
    let Ok(call) = prepare(cx) else { return Ok(None) };
    let arguments = call.inputs.iter().map(|input| values[*input].as_ref()).collect::<Option<Vec<&HostTensor>>>();
    let Some(arguments) = arguments else { return Ok(None) };
    run(by, &call.request, &arguments, outputs)
}

/// The outputs of the request for the inputs; none where it fails.
fn run(by: &dyn Evaluate, request: &KernelRequest, inputs: &[&HostTensor], outputs: &[Meta]) -> Result<Option<Vec<HostTensor>>> {
    let dense = inputs.iter().map(|tensor| tensor.dense()).collect::<Result<Vec<_>>>()?;
    let bytes: Vec<&[u8]> = dense.iter().map(|tensor| tensor.bytes().unwrap_or_default()).collect();
    let sizes = outputs.iter().map(Meta::bytes).collect::<Result<Vec<_>>>()?;
    let Ok(results) = by.evaluate(request, &bytes, &sizes) else { return Ok(None) };
    let tensors =
        results.iter().zip(outputs).map(|(bytes, meta)| HostTensor::from_leading(meta.data_type, Shape::clone(&meta.shape), bytes));
    tensors.collect::<Result<_>>().map(Some)
}
