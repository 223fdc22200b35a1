//! Products of matrices in recipes. Those of complex numbers are four products of their parts.

use plimsoll_base::Result;
use plimsoll_graph::Shape;
use plimsoll_request::anchor::Anchor;
use plimsoll_request::expr::{BinaryOp, ExprBuilder, UnaryOp};
use plimsoll_request::product::ProductSpec;

use crate::Recipe;
use crate::recipe::Ingredient;

/// The products of matrices, of the complex conjugates of the operands for which `conj` says so.
pub(crate) fn product(
    recipe: &mut Recipe,
    spec: ProductSpec,
    operands: [Ingredient; 2],
    conj: [bool; 2],
    shape: impl Into<Shape>,
) -> Result<Ingredient> {
    let shape = shape.into();
    in_parts(recipe, operands, conj, |recipe, operands| {
        Ok(recipe.anchor(Anchor::Product(operands[0].data_type(), spec), operands, shape.clone()))
    })
}

/// A function of two tensors that is linear in each: of complex tensors, four such functions of their parts.
pub(crate) fn in_parts(
    recipe: &mut Recipe,
    operands: [Ingredient; 2],
    conj: [bool; 2],
    mut function: impl FnMut(&mut Recipe, [Ingredient; 2]) -> Result<Ingredient>,
) -> Result<Ingredient> {
    if !operands[0].data_type().is_complex() {
        return function(recipe, operands);
    }
    let mut parts = Vec::with_capacity(4);
    for (operand, conj) in operands.into_iter().zip(conj) {
        let mut builder = ExprBuilder::new();
        let x = builder.input(operand.data_type())?;
        let (re, mut im) = (builder.unary(UnaryOp::Real, x)?, builder.unary(UnaryOp::Imag, x)?);
        if conj {
            im = builder.unary(UnaryOp::Neg, im)?;
        }
        let shape = operand.meta.shape.clone();
        parts.extend(recipe.expression(builder.finish(vec![re, im]), [operand], shape));
    }
    let mut products = Vec::with_capacity(4);
    for [one, other] in [[0, 2], [1, 3], [0, 3], [1, 2]] {
        products.push(function(recipe, [parts[one].clone(), parts[other].clone()])?);
    }
    let mut builder = ExprBuilder::new();
    let terms = products.iter().map(|product| builder.input(product.data_type())).collect::<Result<Vec<_>>>()?;
    let re = builder.binary(BinaryOp::Sub, terms[0], terms[1])?;
    let im = builder.binary(BinaryOp::Add, terms[2], terms[3])?;
    let result = builder.binary(BinaryOp::Complex, re, im)?;
    let shape = products[0].meta.shape.clone();
    Ok(recipe.expression(builder.finish(vec![result]), products, shape).swap_remove(0))
}
