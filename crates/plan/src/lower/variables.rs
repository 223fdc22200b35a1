//! Reads and writes of variables: every write makes a version, every read sees the newest so far.

use std::sync::Arc;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::id::Id;
use plimsoll_graph::{AttrValue, AttrsExt, HostTensor, Node, NodeId, Output, Shape};
use plimsoll_ops::{Call, KernelCx, Lower, Meta};
use plimsoll_request::expr::{ExprBuilder, Scalar};

use super::{Lowering, Meaning};
use crate::condition::Condition;
use crate::lir::{Arg, Home, RegionId, ValueId, VariableId, View, WorkKind};
use crate::plan::{PlanVariable, VariableKind};

impl Lowering<'_> {
    /// A node has in `dtype` or `T` the type of the variables behind its handles: kernels rely on that.
    pub(super) fn check_handles(&self, id: NodeId, node: &Node) -> Result<()> {
        let said = ["dtype", "T"].into_iter().find_map(|name| node.attrs.data_type(name).ok()).filter(|said| *said != DataType::Resource);
        let Some(said) = said else { return Ok(()) };
        for input in &node.inputs {
            let Some(Meaning::Variable(variable)) = self.meanings.get(input) else { continue };
            let variable = &self.lir.variables[*variable];
            if variable.kind == VariableKind::Resource && variable.data_type != said {
                let message = format!("Trying to access variable '{}' of type {} as {said}", variable.name, variable.data_type);
                return Err(Error::invalid_argument(message).at_node(&self.request.graph.node(id).name));
            }
        }
        Ok(())
    }

    pub(super) fn variable(&mut self, id: NodeId, node: &Node) -> Result<()> {
        let fact = &self.pruned.facts[id][0];
        let (data_type, shape, kind) = match &fact.handle {
            Some((data_type, shape)) => (*data_type, shape, VariableKind::Resource),
            None => (fact.data_type, &fact.shape, VariableKind::Reference),
        };
        let shape = shape.complete().ok_or_else(|| Error::unimplemented(format!("not yet: a variable of shape {shape}")))?;
        let variable = self.new_variable(variable_key(node), id, node, kind, data_type, shape, None)?;
        self.define(id, 0, Meaning::Variable(variable));
        Ok(())
    }

    pub(super) fn state(&mut self, id: NodeId, node: &Node, initial: Vec<u8>) -> Result<VariableId> {
        let shape = Shape::from([initial.len() as u64]);
        self.new_variable(state_key(node), id, node, VariableKind::State, DataType::Uint8, shape, Some(initial))
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of a variable")]
    pub(super) fn new_variable(
        &mut self,
        key: String,
        id: NodeId,
        node: &Node,
        kind: VariableKind,
        data_type: DataType,
        shape: Shape,
        initial: Option<Vec<u8>>,
    ) -> Result<VariableId> {
        let device = self.device(id);
        if let Some(&known) = self.variables.get(&key) {
            let variable = &self.lir.variables[known];
            if variable.data_type != data_type || variable.shape != shape || variable.kind != kind || variable.device != device {
                return Err(Error::invalid_argument(format!("variable '{}' is declared twice, and not alike: {}", key, variable.name)));
            }
            return Ok(known);
        }
        let bytes = shape.bytes(data_type)?;
        let name = node.name.clone();
        let variable = PlanVariable {
            key: key.clone(),
            name,
            kind,
            data_type,
            shape,
            bytes,
            device,
            initial,
            read_first_by: None,
            assigned_by: None,
            written: false,
            stored: None,
        };
        let index = self.lir.variables.push(variable);
        self.variables.insert(key, index);
        let here = self.lir.enter(RegionId::from_index(0));
        let value = self.lir.param(device, Home::Variable(index), bytes.0, id);
        self.lir.enter(here);
        self.versions.push(value);
        self.written.push(Condition::known(kind == VariableKind::State));
        Ok(index)
    }

    pub(super) fn variable_of(&self, node: &Node, input: usize) -> Result<VariableId> {
        match self.meaning(node.inputs[input])? {
            Meaning::Variable(variable) => Ok(*variable),
            _ if self.is_reference(node.inputs[input]) => Err(Error::unimplemented("not yet: a change of one of several variables")),
            _ => Err(Error::invalid_argument(format!("input {input} of {} is not a variable (a fed value cannot be assigned)", node.op))),
        }
    }

    fn is_reference(&self, tensor: Output) -> bool {
        !self.pruned.is_fed(tensor) && self.pruned.facts[tensor.node][tensor.index as usize].is_ref
    }

    /// The variable as the nodes so far leave it, seen as a value.
    pub(super) fn current(&mut self, variable: VariableId) -> Result<View> {
        self.bring(variable, false)?;
        let known = &self.lir.variables[variable];
        Ok(View { value: self.versions[variable], data_type: known.data_type, shape: known.shape.clone() })
    }

    pub(super) fn read_variable(&mut self, variable: VariableId, reader: NodeId, shape: Option<Shape>) -> Result<View> {
        let view = self.current(variable)?;
        if let Some(shape) = shape
            && shape != view.shape
        {
            return Err(Error::invalid_argument(format!("the variable has shape {}, not {shape}", view.shape)));
        }
        self.require_initialized(variable, reader)?;
        Ok(view)
    }

    /// The next version of a variable.
    pub(super) fn write(&mut self, variable: VariableId, writer: NodeId) -> Result<ValueId> {
        self.bring(variable, true)?;
        let old = self.versions[variable];
        let new = self.lir.next_version(old, writer);
        self.versions[variable] = new;
        self.lir.variables[variable].written = true;
        self.note_write(variable, writer, new)?;
        Ok(new)
    }

    pub(super) fn is_initialized(&mut self, id: NodeId, node: &Node) -> Result<()> {
        let variable = self.variable_of(node, 0)?;
        let condition = self.initialized(variable)?;
        let meaning = match condition {
            Condition::ALWAYS => Meaning::Known(HostTensor::from_bools(Shape::scalar(), &[true])?),
            _ => Meaning::Value(self.bool_of(condition, id)?),
        };
        self.define(id, 0, meaning);
        Ok(())
    }

    /// Changes the variables that its inputs stand for.
    pub(super) fn change_these(&mut self, id: NodeId, node: &Node, lower: Lower) -> Result<()> {
        let (inputs, outputs) = match lower {
            Lower::Assign => return self.assign(id, node),
            _ => (self.metas(&node.inputs)?, self.output_metas(id).unwrap_or_default()),
        };
        let values = self.values(node);
        let cx = KernelCx { node, inputs: &inputs, outputs: &outputs, values: &values };
        match lower {
            Lower::Update(make) => {
                let update = make(&cx)?;
                self.update(id, node, update)
            }
            Lower::UpdateInPlace(prepare) => {
                let call = prepare(&cx)?;
                self.update_in_place(id, node, call)
            }
            _ => Err(Error::internal(format!("{} changes no variable", node.op))),
        }
    }

    fn assign(&mut self, id: NodeId, node: &Node) -> Result<()> {
        let variable = self.variable_of(node, 0)?;
        let (data_type, shape) = {
            let known = &self.lir.variables[variable];
            (known.data_type, known.shape.clone())
        };
        let meaning = self.meaning(node.inputs[1])?.clone();
        let given = match &meaning {
            Meaning::Known(tensor) => Meta { data_type: tensor.data_type(), shape: tensor.shape().clone() },
            Meaning::Value(view) => Meta { data_type: view.data_type, shape: view.shape.clone() },
            Meaning::Variable(source) => {
                Meta { data_type: self.lir.variables[*source].data_type, shape: self.lir.variables[*source].shape.clone() }
            }
            Meaning::List(_) | Meaning::Same(_) | Meaning::Placed(_) => return Err(self.is_list(node.inputs[1])),
            Meaning::Stored(_) => {
                let source = node.inputs[1];
                let data_type = self.pruned.facts[source.node][source.index as usize].data_type;
                Meta { data_type, shape: shape.clone() }
            }
        };
        if given.data_type != data_type {
            return Err(Error::invalid_argument(format!(
                "Trying to assign variable with wrong dtype. Expected {data_type} got {}",
                given.data_type
            )));
        }
        if given.shape != shape {
            return Err(Error::invalid_argument(format!(
                "Assign requires shapes of both tensors to match. lhs shape= {shape} rhs shape= {}",
                given.shape
            )));
        }
        if let Meaning::Stored(stored) = meaning {
            let result = self.write(variable, id)?;
            self.restore_variable(id, stored, variable, result)?;
            self.define_reference(id, variable);
            return Ok(());
        }
        let splat = match &meaning {
            Meaning::Known(tensor) => tensor.splat().and_then(|bytes| Scalar::from_le_bytes(data_type, bytes)),
            _ => None,
        };
        let mut builder = ExprBuilder::new();
        let (kind, views) = if let Some(scalar) = splat {
            let value = builder.constant(scalar);
            (WorkKind::Expr { expr: builder.finish(vec![value]), shape }, Vec::new())
        } else {
            let view = match meaning {
                Meaning::Variable(source) => self.read_variable(source, id, None)?,
                _ => self.read(node.inputs[1], self.device(id))?,
            };
            match builder.input(data_type) {
                // Only a kernel's result is worth joining with the kernel; the rest is a plain copy.
                Ok(value) if self.lir.values[view.value].home == Home::Arena => {
                    (WorkKind::Expr { expr: builder.finish(vec![value]), shape }, vec![view])
                }
                _ => (WorkKind::Copy, vec![view]),
            }
        };
        let result = self.write(variable, id)?;
        self.work(id, kind, views, vec![result], true);
        self.define_reference(id, variable);
        Ok(())
    }

    /// A kernel that changes the variables at the first of its inputs, in place: as many as it has outputs.
    fn update_in_place(&mut self, id: NodeId, node: &Node, call: Call) -> Result<()> {
        let count = call.request.arguments()?.outputs.len();
        let Some((changed, others)) = call.inputs.split_at_checked(count).filter(|(changed, _)| !changed.is_empty()) else {
            return Err(Error::internal(format!("{} changes {count} of {} inputs", node.op, call.inputs.len())));
        };
        let mut targets: Vec<VariableId> = Vec::with_capacity(count);
        for &input in changed {
            let target = self.variable_of(node, input)?;
            if targets.contains(&target) {
                let name = &self.lir.variables[target].name;
                return Err(Error::invalid_argument(format!("variable '{name}' is changed twice by one update")));
            }
            targets.push(target);
        }
        let mut views = targets.iter().map(|target| self.read_variable(*target, id, None)).collect::<Result<Vec<_>>>()?;
        views.extend(self.read_inputs(id, node, others)?);
        let results = targets.iter().map(|target| self.write(*target, id)).collect::<Result<_>>()?;
        let inputs = (count..views.len()).map(Arg::Input);
        let args = (0..count).map(Arg::Output).chain(inputs).chain((0..count).map(Arg::Output)).collect();
        self.work(id, WorkKind::Request { request: Arc::new(call.request), args }, views, results, true);
        self.define_reference(id, targets[0]);
        Ok(())
    }

    fn update(&mut self, id: NodeId, node: &Node, update: plimsoll_ops::Update) -> Result<()> {
        let targets = update.writes.iter().map(|input| self.variable_of(node, *input)).collect::<Result<Vec<VariableId>>>()?;
        let inputs: Vec<Output> = node.inputs.clone();
        let (expr, views) = self.operands(id, &update.expr, &inputs)?;
        let shape = self.lir.variables[targets[0]].shape.clone();
        for &target in &targets {
            let variable = &self.lir.variables[target];
            if variable.shape != shape {
                return Err(Error::invalid_argument(format!("variables {} and {shape} of one update differ in shape", variable.shape)));
            }
            if variable.device != self.device(id) {
                return Err(Error::invalid_argument(format!("variable '{}' is on another device than its update", variable.name)));
            }
        }
        let results = targets.iter().map(|target| self.write(*target, id)).collect::<Result<_>>()?;
        self.work(id, WorkKind::Expr { expr, shape }, views, results, true);
        self.define_reference(id, targets[0]);
        Ok(())
    }
}

/// The identity of an operation's state among variables and other states: it begins as no container that TensorFlow admits.
pub(crate) fn state_key(node: &Node) -> String {
    format!("\0state;{}", node.name)
}

/// The key of a variable's node: nodes of one key are one variable.
pub fn variable_key(node: &Node) -> String {
    let text = |name: &str| match node.attrs.get(name) {
        Some(AttrValue::Bytes(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
        _ => String::new(),
    };
    let (container, shared) = (text("container"), text("shared_name"));
    format!("{container};{}", if shared.is_empty() { &node.name } else { &shared })
}
