//! Nodes that are several works, one behind another.

use plimsoll_base::Result;
use plimsoll_graph::{Node, NodeId, Output};
use plimsoll_ops::Recipe;
use plimsoll_ops::recipe::{Computation, Ingredient, Source};

use super::{Lowering, Meaning, Operand};
use crate::lir::{Home, ValueId, View, WorkKind};

impl Lowering<'_> {
    /// The works of a recipe, and the node's outputs.
    pub(super) fn recipe(&mut self, id: NodeId, node: &Node, recipe: &Recipe) -> Result<()> {
        let device = self.device(id);
        let mut made: Vec<Vec<ValueId>> = Vec::with_capacity(recipe.steps().len());
        for step in recipe.steps() {
            let outputs = step.outputs.iter().map(|meta| Ok(self.lir.value(device, Home::Arena, meta.bytes()?, id)));
            let outputs = outputs.collect::<Result<Vec<_>>>()?;
            let (kind, views) = match &step.computes {
                Computation::Expr(expr, shape) => {
                    let operand = |input: &Ingredient| match input.source {
                        Source::Input(index) if self.is_splat(node.inputs[index]) && self.is_of(node.inputs[index], input)? => {
                            self.operand(id, node.inputs[index])
                        }
                        _ => self.ingredient(id, node, input, &made).map(Operand::View),
                    };
                    let operands = step.inputs.iter().map(operand).collect::<Result<Vec<_>>>()?;
                    let (expr, views) = super::inline(expr, operands)?;
                    (WorkKind::Expr { expr, shape: shape.clone() }, views)
                }
                computes => {
                    let views = step.inputs.iter().map(|input| self.ingredient(id, node, input, &made)).collect::<Result<Vec<_>>>()?;
                    match computes {
                        Computation::Anchor(anchor) if anchor.shape().is_some() => {
                            (WorkKind::Anchor { anchor: *anchor, epilogue: None }, views)
                        }
                        _ => (WorkKind::request(step.request(), views.len(), outputs.len()), views),
                    }
                }
            };
            self.work(id, kind, views, outputs.clone(), outputs.is_empty());
            made.push(outputs);
        }
        for (index, result) in recipe.results().iter().enumerate() {
            let view = self.ingredient(id, node, result, &made)?;
            self.define(id, index, Meaning::Value(view));
        }
        Ok(())
    }

    /// Whether the ingredient is seen in the type that the input has.
    fn is_of(&self, input: Output, ingredient: &Ingredient) -> Result<bool> {
        Ok(self.metas(&[input])?[0].data_type == ingredient.data_type())
    }

    fn ingredient(&mut self, id: NodeId, node: &Node, ingredient: &Ingredient, made: &[Vec<ValueId>]) -> Result<View> {
        let value = match ingredient.source {
            Source::Input(index) => self.read_input(id, node, index)?.value,
            Source::Made { step, result } => made[step][result],
        };
        Ok(View { value, data_type: ingredient.meta.data_type, shape: ingredient.meta.shape.clone() })
    }
}
