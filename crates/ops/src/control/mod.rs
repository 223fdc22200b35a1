//! Control flow: ops that run only where a predicate says so. If and its kin become these where calls are inlined.
//!
//! Source of the rules: TensorFlow's executor. A node with a dead input does not run and its outputs are dead. Switch makes one of
//! its outputs dead, Merge gives on the first input that is not.

pub mod symbolic;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{AttrValue, HostTensor, NodeId, Output, PartialShape, Shape};
use plimsoll_request::expr::{BinaryOp, Expr, ExprBuilder, Scalar};

use crate::infer::unknown;
use crate::list::together;
use crate::registry::Gradient;
use crate::{Fact, GraphBuilder, InferCx, KernelCx, ListFact, Lower, OpRules};

const fn rule(name: &'static str, infer: crate::infer::InferFn, lower: Lower) -> OpRules {
    OpRules { name, infer, lower, gradient: Gradient::Unknown }
}

/// The rules of this family.
pub const RULES: &[&[OpRules]] = &[&[
    OpRules { name: "Switch", infer: switch, lower: Lower::Switch, gradient: Gradient::Rule(switch_gradient) },
    OpRules { name: "RefSwitch", infer: switch, lower: Lower::Switch, gradient: Gradient::Rule(switch_gradient) },
    OpRules { name: "Merge", infer: merge, lower: Lower::Merge, gradient: Gradient::Rule(merge_gradient) },
    OpRules { name: "RefMerge", infer: merge, lower: Lower::Merge, gradient: Gradient::Rule(merge_gradient) },
    rule("ControlTrigger", unknown, Lower::ControlTrigger),
    // A loop is planned as a whole: these say where its frame begins and ends.
    rule("Enter", pass, Lower::Alias),
    rule("RefEnter", pass, Lower::Alias),
    rule("NextIteration", pass, Lower::Alias),
    rule("RefNextIteration", pass, Lower::Alias),
    rule("Exit", pass, Lower::Alias),
    rule("RefExit", pass, Lower::Alias),
    rule("LoopCond", pass, Lower::Alias),
    symbolic::RULES,
    OpRules { name: "ToBool", infer: to_bool, lower: Lower::Elementwise(is_true), gradient: Gradient::Stops },
]];

fn switch(cx: &mut InferCx<'_>) -> Result<()> {
    cx.with_rank(1, 0)?;
    for output in &mut cx.outputs {
        let Fact { shape, handle, value, .. } = cx.inputs[0].clone();
        (output.shape, output.handle) = (shape, handle);
        output.value = value.filter(|_| !output.is_ref);
    }
    Ok(())
}

/// Output 0 is input 0.
fn pass(cx: &mut InferCx<'_>) -> Result<()> {
    let Fact { shape, handle, partial, .. } = cx.inputs[0].clone();
    (cx.outputs[0].shape, cx.outputs[0].handle, cx.outputs[0].partial) = (shape, handle, partial);
    Ok(())
}

/// Output 0 is one of the inputs, output 1 says which.
fn merge(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(first) = cx.inputs.first() else { return Err(Error::invalid_argument("a Merge without inputs")) };
    let alike = |other: &Fact| other.shape == first.shape;
    let shape = if cx.inputs.iter().all(alike) { first.shape.clone() } else { common_shape(cx.inputs.iter().map(|input| &input.shape)) };
    cx.set(0, shape);
    cx.outputs[0].handle = first.handle.clone().filter(|handle| cx.inputs.iter().all(|input| input.handle.as_ref() == Some(handle)));
    // Of lists that differ, one counts: which one is known when it is known which side of the condition is taken.
    let different = || {
        let lists = || cx.inputs.iter().filter_map(|input| input.list.as_ref());
        let first = lists().next()?;
        let is_like = |list: &ListFact| (list.data_type, list.has_list, &list.inner) == (first.data_type, first.has_list, &first.inner);
        let alike = lists().all(is_like);
        let data_type = if alike { first.data_type } else { DataType::Variant };
        let inner = first.inner.clone().filter(|_| alike);
        Some(ListFact { data_type, inner, has_list: alike && first.has_list, ..first.unsized_list() })
    };
    cx.outputs[0].list = together(cx.inputs).unwrap_or_else(|_| different());
    cx.set(1, (&Shape::scalar()).into());
    Ok(())
}

/// The gradient that comes from the side that is taken; zeros where nothing depends on that side's value.
fn switch_gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    let [data, predicate] = builder.node(node).inputs[..] else { return Err(Error::internal("a Switch has two inputs")) };
    let Some(given) = gradients.iter().flatten().next().copied() else { return Ok(vec![None, None]) };
    let data_type = builder.data_type(given);
    let mut sides = Vec::new();
    for (index, gradient) in gradients.iter().enumerate() {
        sides.push(match gradient {
            Some(gradient) => *gradient,
            None => {
                let like = match builder.data_type(data) {
                    DataType::Resource => {
                        builder.op("ReadVariableOp").input(data).attr("dtype", AttrValue::data_type(data_type)).build()?
                    }
                    _ => data,
                };
                let zeros = builder.op("ZerosLike").input(like).build()?;
                let node = builder.op("Switch").inputs([zeros, predicate]).build_node()?;
                Output { node, index: index as u32 }
            }
        });
    }
    let node = builder.op("Merge").inputs(sides).build_node()?;
    Ok(vec![Some(Output { node, index: 0 }), None])
}

/// The gradient goes to the side that was taken. Merges of more than two are nobody's conditions.
fn merge_gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    let count = builder.node(node).inputs.len();
    let (Some(gradient), 2) = (gradients[0], count) else {
        return Err(Error::unimplemented(format!("the gradient of a Merge of {count}")));
    };
    if builder.node(node).inputs.iter().any(|input| builder.node(input.node).op.ends_with("NextIteration")) {
        return Err(Error::unimplemented("the gradient of a loop of frames (Enter to Exit)"));
    }
    let second = builder.scalar(1i32)?;
    let is_second = builder.equal(Output { node, index: 1 }, second).build()?;
    let taken = builder.op("Switch").inputs([gradient, is_second]).build_node()?;
    Ok(vec![Some(Output { node: taken, index: 0 }), Some(Output { node: taken, index: 1 })])
}

/// The dimensions that all have.
pub fn common_shape<'a>(shapes: impl IntoIterator<Item = &'a PartialShape>) -> PartialShape {
    let mut shapes = shapes.into_iter().map(|shape| shape.0.as_ref());
    let Some(Some(first)) = shapes.next() else { return PartialShape::unknown() };
    let mut dims = first.clone();
    for shape in shapes {
        match shape {
            Some(other) if other.len() == dims.len() => {
                dims.iter_mut().zip(other).for_each(|(dim, other)| *dim = dim.filter(|dim| *other == Some(*dim)));
            }
            _ => return PartialShape::unknown(),
        }
    }
    PartialShape(Some(dims))
}

/// A scalar is true unless it is zero or an empty string; anything else is true if it has elements.
fn to_bool(cx: &mut InferCx<'_>) -> Result<()> {
    cx.set(0, (&Shape::scalar()).into());
    let Some(shape) = cx.shape(0).complete() else { return Ok(()) };
    let known = if shape.rank() > 0 {
        Some(shape.elements()? > 0)
    } else {
        cx.inputs[0].value.as_ref().and_then(|value| value.strings()).map(|strings| strings.iter().any(|text| !text.is_empty()))
    };
    if let Some(known) = known {
        cx.set_value(0, HostTensor::from_bools(Shape::scalar(), &[known])?);
    }
    Ok(())
}

fn is_true(cx: &KernelCx<'_>) -> Result<Expr> {
    let data_type = cx.inputs[0].data_type;
    let mut builder = ExprBuilder::new();
    let x = builder.input(data_type)?;
    let result = match data_type {
        DataType::Bool => x,
        _ => {
            let zero = Scalar::from_f64(data_type, 0.0).ok_or_else(|| Error::unimplemented(format!("ToBool of {data_type}")))?;
            let zero = builder.constant(zero);
            builder.binary(BinaryOp::NotEqual, x, zero)?
        }
    };
    Ok(builder.finish(vec![result]))
}
