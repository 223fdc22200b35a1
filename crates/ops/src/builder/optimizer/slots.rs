//! The state of an optimizer: constants shared by its updates, and a variable's slots.

use std::collections::HashMap;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{NodeId, Output, Shape};

use super::Hyper;
use crate::builder::functions::splat;
use crate::builder::variable::NewVariable;
use crate::builder::{GraphBuilder, Initializer, Variable, VariableKind};

/// Numbers of an optimizer, made once for each operation and type that asks.
#[derive(Debug, Default)]
pub(super) struct Numbers(HashMap<DataType, Vec<Output>>);

impl Numbers {
    /// The float constants of these names, made in the name scope at hand.
    pub(super) fn prepare(&mut self, builder: &mut GraphBuilder, hypers: &[(&str, Hyper)]) -> Result<()> {
        self.0.clear();
        let mut outputs = Vec::with_capacity(hypers.len());
        for (name, hyper) in hypers {
            outputs.push(match hyper {
                Hyper::Fixed(value) => builder.constant(splat(DataType::Float, &Shape::scalar(), f64::from(*value))?).name(name).build()?,
                Hyper::Tensor(tensor) => *tensor,
            });
        }
        self.0.insert(DataType::Float, outputs);
        Ok(())
    }

    /// The numbers in a variable's type.
    pub(super) fn in_type(&mut self, builder: &mut GraphBuilder, data_type: DataType) -> Result<Vec<Output>> {
        let numbers = self.0.get(&DataType::Float).cloned().unwrap_or_default();
        numbers
            .into_iter()
            .map(|number| if builder.data_type(number) == data_type { Ok(number) } else { builder.cast(number, data_type).build() })
            .collect()
    }
}

/// The slots of an optimizer: a variable and a slot's name give a variable.
#[derive(Debug, Default)]
pub(super) struct Slots(HashMap<(NodeId, &'static str), Variable>);

impl Slots {
    /// A slot of the variable's type and shape, placed with it; named after the optimizer.
    pub(super) fn create(
        &mut self,
        builder: &mut GraphBuilder,
        variable: &Variable,
        slot: &'static str,
        optimizer: &str,
        initializer: &Initializer,
    ) -> Result<()> {
        if self.0.contains_key(&(variable.handle.node, slot)) {
            return Ok(());
        }
        let name = format!("{}/{optimizer}", variable.name);
        let made = builder.make_variable(&NewVariable {
            name: &name,
            kind: variable.kind,
            data_type: variable.data_type,
            shape: variable.shape.clone(),
            initializer,
            trainable: false,
            slot_of: Some(variable.handle.node),
        })?;
        self.0.insert((variable.handle.node, slot), made);
        Ok(())
    }

    pub(super) fn get(&self, variable: &Variable, slot: &'static str) -> Result<&Variable> {
        self.0.get(&(variable.handle.node, slot)).ok_or_else(|| Error::internal(format!("variable {} has no slot {slot}", variable.name)))
    }
}

/// The operation that applies an update, in the form for the kind of variable.
pub(super) fn apply_op(kind: VariableKind, op: &str) -> String {
    match kind {
        VariableKind::Reference => op.to_string(),
        VariableKind::Resource => format!("Resource{op}"),
    }
}
