//! Optimizers' updates of variables: dense ones as expressions, sparse ones in place.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_request::expr::{BinaryOp, ExprBuilder, Reg, Scalar, UnaryOp};

use crate::infer::merge_shapes;
use crate::registry::Gradient;
use crate::{InferCx, KernelCx, Lower, OpRules, Update};

pub mod adadelta;
pub mod adagrad;
pub mod adam;
pub mod adamax;
pub mod ftrl;
pub mod momentum;
pub mod proximal;
pub mod rms_prop;
pub mod scatter;
pub mod sgd;
pub mod sign;
pub mod sparse;

/// The rules of this family.
pub const RULES: &[&[OpRules]] = &[
    adadelta::RULES,
    adagrad::RULES,
    adam::RULES,
    adamax::RULES,
    ftrl::RULES,
    momentum::RULES,
    proximal::RULES,
    rms_prop::RULES,
    scatter::RULES,
    sgd::RULES,
    sign::RULES,
    sparse::RULES,
];

/// An update: its first inputs are variables, all of the shape of the gradient; the others are scalars.
const fn rule(name: &'static str, infer: crate::infer::InferFn, update: fn(&KernelCx<'_>) -> Result<Update>) -> OpRules {
    OpRules { name, infer, lower: Lower::Update(update), gradient: Gradient::Stops }
}

/// Checks the variables (the first inputs, references or handles) and the gradient at input `gradient` against each other.
/// A reference goes through as output 0.
fn check(cx: &mut InferCx<'_>, variables: usize, gradient: usize) -> Result<()> {
    let mut shape = cx.shape(gradient).clone();
    for input in (0..cx.inputs.len()).filter(|input| *input != gradient) {
        if input < variables {
            let fact = &cx.inputs[input];
            let variable = fact.handle.as_ref().map_or_else(
                || if fact.data_type == DataType::Resource { crate::infer::of_rank(None) } else { fact.shape.clone() },
                |(_, shape)| shape.clone(),
            );
            shape = merge_shapes(&shape, &variable).map_err(|_| {
                Error::invalid_argument(format!("var and grad do not have the same shape: {variable} {}", cx.shape(gradient)))
            })?;
        } else if cx.shape(input).0.as_ref().is_some_and(|dims| !dims.is_empty()) {
            return Err(Error::invalid_argument(format!("input {input} of {} is not a scalar: {}", cx.node.op, cx.shape(input))));
        }
    }
    if !cx.outputs.is_empty() {
        cx.set(0, shape);
    }
    Ok(())
}

/// Instructions on all inputs of an update.
struct Steps {
    builder: ExprBuilder,
    inputs: Vec<Reg>,
}

impl Steps {
    fn new(cx: &KernelCx<'_>) -> Result<Steps> {
        let mut builder = ExprBuilder::new();
        let inputs = cx.inputs.iter().map(|meta| builder.input(meta.data_type)).collect::<Result<_>>()?;
        Ok(Steps { builder, inputs })
    }

    /// The inputs, which are as many as the operation has.
    fn inputs<const N: usize>(&self) -> Result<[Reg; N]> {
        <[Reg; N]>::try_from(&self.inputs[..])
            .map_err(|_| Error::invalid_argument(format!("{N} inputs are needed, not {}", self.inputs.len())))
    }

    fn one(&mut self) -> Result<Reg> {
        self.number(1.0)
    }

    /// A number of the variable's type.
    fn number(&mut self, value: f64) -> Result<Reg> {
        let data_type = self.builder.type_of(self.inputs[0]);
        let number = Scalar::from_f64(data_type, value).filter(|_| data_type.is_floating());
        Ok(self.builder.constant(number.ok_or_else(|| Error::unimplemented(format!("optimizers of {data_type}")))?))
    }

    fn add(&mut self, a: Reg, b: Reg) -> Result<Reg> {
        self.builder.binary(BinaryOp::Add, a, b)
    }

    fn sub(&mut self, a: Reg, b: Reg) -> Result<Reg> {
        self.builder.binary(BinaryOp::Sub, a, b)
    }

    fn mul(&mut self, a: Reg, b: Reg) -> Result<Reg> {
        self.builder.binary(BinaryOp::Mul, a, b)
    }

    fn div(&mut self, a: Reg, b: Reg) -> Result<Reg> {
        self.builder.binary(BinaryOp::Div, a, b)
    }

    fn binary(&mut self, op: BinaryOp, a: Reg, b: Reg) -> Result<Reg> {
        self.builder.binary(op, a, b)
    }

    fn unary(&mut self, op: UnaryOp, a: Reg) -> Result<Reg> {
        self.builder.unary(op, a)
    }

    /// The update in which `results` become the variables at these inputs.
    fn finish(self, results: &[(usize, Reg)]) -> Result<Update> {
        let (writes, results): (Vec<usize>, Vec<Reg>) = results.iter().copied().unzip();
        Ok(Update { expr: self.builder.finish(results), writes })
    }
}
