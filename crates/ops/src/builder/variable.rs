//! Variables, the scopes that name and share them, and their initializers.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{AttrValue, AttrsExt, NodeId, Output, PartialShape, Shape};

use super::GraphBuilder;
use super::initializer::Initializer;
use super::scope::Colocation;

/// Which operations a variable is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VariableKind {
    /// A reference, as in TensorFlow 1: VariableV2, Assign, Identity.
    #[default]
    Reference,
    /// A resource, as in TensorFlow 2: VarHandleOp, AssignVariableOp, ReadVariableOp.
    Resource,
}

/// Whether `get_variable` in a scope makes variables or finds those that exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reuse {
    /// Makes them; it is an error if one exists. Inside a scope that reuses, this is that scope's behaviour.
    #[default]
    No,
    /// Finds them; it is an error if one does not exist.
    Yes,
    /// Finds existing variables, makes missing ones.
    Auto,
}

/// A variable of the graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Variable {
    /// The name, which is that of the node that holds it.
    pub name: String,
    /// Which operations it is made of.
    pub kind: VariableKind,
    /// The element type.
    pub data_type: DataType,
    /// The shape.
    pub shape: Shape,
    /// The reference or the resource handle.
    pub handle: Output,
    /// Its value, read once a step: `name/read` or `name/Read/ReadVariableOp`.
    pub value: Output,
    /// Its first value; none where the graph does not say it (a model whose variables are restored).
    pub initial_value: Option<Output>,
    /// The node that gives it its first value.
    pub initializer: Option<NodeId>,
    /// Whether it is learned.
    pub trainable: bool,
}

/// The variable scopes and all variables.
#[derive(Debug, Default)]
pub(super) struct Variables {
    kind: VariableKind,
    all: Vec<Variable>,
    /// Full names of `get_variable`, and which variable it is.
    shared: std::collections::HashMap<String, usize>,
    scope: VariableScope,
    /// By the node that holds a variable: the present result of `get_variable` for it.
    stand_ins: std::collections::HashMap<NodeId, Variable>,
}

#[derive(Clone, Debug, Default)]
struct VariableScope {
    name: String,
    reuse: Reuse,
}

/// The arguments of [`GraphBuilder::make_variable`].
pub(super) struct NewVariable<'a> {
    /// The name from the root; made unique.
    pub(super) name: &'a str,
    pub(super) kind: VariableKind,
    pub(super) data_type: DataType,
    pub(super) shape: Shape,
    pub(super) initializer: &'a Initializer,
    pub(super) trainable: bool,
    /// The variable that it is a slot of: they are placed together.
    pub(super) slot_of: Option<NodeId>,
}

impl GraphBuilder {
    /// Which operations the variables made from here on consist of; references unless said.
    pub fn set_variable_kind(&mut self, kind: VariableKind) {
        self.variables.kind = kind;
    }

    /// Opens a variable scope, and a name scope of the same name: `get_variable("w")` in `body` is `scope/w`, wherever the name
    /// scopes stand. The same variable scope can be opened again (`reuse` decides then about its variables); its name scope is new
    /// each time (`scope_1`). With an empty name the scope stays, without a name scope.
    pub fn variable_scope<R>(&mut self, name: &str, reuse: Reuse, body: impl FnOnce(&mut GraphBuilder) -> R) -> R {
        let outer = self.variables.scope.clone();
        if !name.is_empty() {
            self.variables.scope.name = if outer.name.is_empty() { name.to_string() } else { format!("{}/{name}", outer.name) };
        }
        if reuse != Reuse::No {
            self.variables.scope.reuse = reuse;
        }
        let result = if name.is_empty() { body(self) } else { self.name_scope(name, body) };
        self.variables.scope = outer;
        result
    }

    /// From here to the end of the innermost variable scope, `get_variable` finds variables that exist.
    pub fn reuse_variables(&mut self) {
        self.variables.scope.reuse = Reuse::Yes;
    }

    /// In `body`, `get_variable` finds the second variable of a pair where it would find the first: a network built there
    /// computes with moving averages, say, or with copies on another device (TensorFlow's `custom_getter`).
    pub fn with_stand_ins<'a, R>(
        &mut self,
        pairs: impl IntoIterator<Item = (&'a Variable, &'a Variable)>,
        body: impl FnOnce(&mut GraphBuilder) -> R,
    ) -> R {
        let outer = self.variables.stand_ins.clone();
        self.variables.stand_ins.extend(pairs.into_iter().map(|(variable, stand_in)| (variable.handle.node, stand_in.clone())));
        let result = body(self);
        self.variables.stand_ins = outer;
        result
    }

    /// The variable `name` of the variable scope, made or found as the scope says; learned if it is made of floats.
    ///
    /// # Errors
    /// ALREADY_EXISTS or NOT_FOUND where the scope's `reuse` says otherwise; INVALID_ARGUMENT where the variable that exists has
    /// another type or shape; the errors of making nodes.
    pub fn get_variable(
        &mut self,
        name: &str,
        data_type: DataType,
        shape: impl Into<Shape>,
        initializer: &Initializer,
    ) -> Result<Variable> {
        self.shared_variable(name, data_type, shape.into(), initializer, data_type.is_floating())
    }

    /// As [`GraphBuilder::get_variable`], but its new variable is not learned.
    ///
    /// # Errors
    /// As [`GraphBuilder::get_variable`].
    pub fn get_untrained_variable(
        &mut self,
        name: &str,
        data_type: DataType,
        shape: impl Into<Shape>,
        initializer: &Initializer,
    ) -> Result<Variable> {
        self.shared_variable(name, data_type, shape.into(), initializer, false)
    }

    fn shared_variable(
        &mut self,
        name: &str,
        data_type: DataType,
        shape: Shape,
        initializer: &Initializer,
        trainable: bool,
    ) -> Result<Variable> {
        let VariableScope { name: scope, reuse } = self.variables.scope.clone();
        let full = if scope.is_empty() { name.to_string() } else { format!("{scope}/{name}") };
        let stands_in = |variable: &Variable| self.variables.stand_ins.get(&variable.handle.node).unwrap_or(variable).clone();
        let existing = self.variables.shared.get(&full).map(|index| stands_in(&self.variables.all[*index]));
        match (existing, reuse) {
            (Some(_), Reuse::No) => {
                let error = Error::already_exists(format!("variable {full} already exists"));
                Err(error.with_remedy("open its variable scope with Reuse::Yes or Reuse::Auto to share it"))
            }
            (None, Reuse::Yes) => Err(Error::not_found(format!("variable {full} does not exist, and its scope only reuses variables"))),
            (Some(variable), _) if variable.data_type != data_type || variable.shape != shape => {
                Err(Error::invalid_argument(format!("variable {full} is {}{}, not {data_type}{shape}", variable.data_type, variable.shape)))
            }
            (Some(variable), _) => Ok(variable),
            (None, _) => {
                let variable = self.make_variable(&NewVariable {
                    name: &full,
                    data_type,
                    shape,
                    initializer,
                    trainable,
                    slot_of: None,
                    kind: self.variables.kind,
                })?;
                self.variables.shared.insert(full, self.variables.all.len() - 1);
                Ok(variable)
            }
        }
    }

    /// A variable of its own, named in the name scope and made unique. It is not learned.
    ///
    /// # Errors
    /// The errors of making nodes.
    pub fn untrained_variable(
        &mut self,
        name: &str,
        data_type: DataType,
        shape: impl Into<Shape>,
        initializer: &Initializer,
    ) -> Result<Variable> {
        let scope = self.current_name_scope();
        let full = if scope.is_empty() { name.to_string() } else { format!("{scope}/{name}") };
        self.make_variable(&NewVariable {
            name: &full,
            data_type,
            shape: shape.into(),
            initializer,
            trainable: false,
            slot_of: None,
            kind: self.variables.kind,
        })
    }

    /// The variable that a node of a graph from elsewhere holds (see [`GraphBuilder::extend`]), as if it had been made here.
    /// Its value is its first read in the graph, or a new one; its initializer the first node that assigns to it, if any does.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where the node holds no variable, or its shape is not known in full.
    pub fn adopt_variable(&mut self, node: NodeId, trainable: bool) -> Result<Variable> {
        self.check_node(node)?;
        if let Some(known) = self.variables.all.iter().find(|variable| variable.handle.node == node) {
            return Ok(known.clone());
        }
        let (name, attrs) = (self.node(node).name.clone(), self.node(node).attrs.clone());
        let (kind, read, assign) = match self.node(node).op.as_str() {
            "VariableV2" | "Variable" => (VariableKind::Reference, "Identity", "Assign"),
            "VarHandleOp" => (VariableKind::Resource, "ReadVariableOp", "AssignVariableOp"),
            op => return Err(Error::invalid_argument(format!("{op} holds no variable")).at_node(name)),
        };
        let shape = attrs.shape("shape").map_err(|error| error.at_node(&name))?;
        let shape =
            shape.complete().ok_or_else(|| Error::invalid_argument(format!("the variable's shape {shape} is open")).at_node(&name))?;
        let data_type = attrs.data_type("dtype").map_err(|error| error.at_node(&name))?;
        let handle = Output { node, index: 0 };
        let user =
            |op: &str| self.graph.nodes().iter().find(|(_, user)| user.op == op && user.inputs.first() == Some(&handle)).map(|(id, _)| id);
        let (value, initializer) = (user(read), user(assign));
        let initial_value = initializer.and_then(|initializer| self.node(initializer).inputs.get(1).copied());
        let mut variable = Variable { name, kind, data_type, shape, handle, value: handle, initial_value, initializer, trainable };
        variable.value = match value {
            Some(node) => Output { node, index: 0 },
            None => self.name_scope(&format!("{}/", variable.name), |b| b.colocate_with(node, |b| b.read(&variable)))?,
        };
        self.variables.shared.insert(variable.name.clone(), self.variables.all.len());
        self.variables.all.push(variable.clone());
        Ok(variable)
    }

    /// All variables, in the order they were made.
    pub fn variables(&self) -> &[Variable] {
        &self.variables.all
    }

    /// The variables that are learned, in the order they were made.
    pub fn trainable_variables(&self) -> Vec<Variable> {
        self.variables.all.iter().filter(|variable| variable.trainable).cloned().collect()
    }

    /// A node named `init` that gives every variable made so far its first value.
    ///
    /// # Errors
    /// As [`super::OpBuilder::build_node`].
    pub fn global_variables_initializer(&mut self) -> Result<NodeId> {
        let nodes: Vec<NodeId> = self.variables.all.iter().filter_map(|variable| variable.initializer).collect();
        self.group(&nodes, "init")
    }

    /// The variable's value, read anew here: after the control dependencies of the scope.
    ///
    /// # Errors
    /// As [`super::OpBuilder::build`].
    pub fn read(&mut self, variable: &Variable) -> Result<Output> {
        match variable.kind {
            VariableKind::Reference => self.colocate_with(variable.handle.node, |b| b.identity(variable.handle).name("read").build()),
            VariableKind::Resource => self.read_handle(variable).build(),
        }
    }

    fn read_handle(&mut self, variable: &Variable) -> super::OpBuilder<'_> {
        self.op("ReadVariableOp").input(variable.handle).attr("dtype", AttrValue::data_type(variable.data_type))
    }

    /// The variable becomes `value`.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where type or shape differ.
    pub fn assign(&mut self, variable: &Variable, value: Output) -> Result<NodeId> {
        self.update_variable("Assign", variable, value).build_node()
    }

    /// `value` is added to the variable.
    ///
    /// # Errors
    /// As [`GraphBuilder::assign`].
    pub fn assign_add(&mut self, variable: &Variable, value: Output) -> Result<NodeId> {
        self.update_variable("AssignAdd", variable, value).build_node()
    }

    /// `value` is taken from the variable.
    ///
    /// # Errors
    /// As [`GraphBuilder::assign`].
    pub fn assign_sub(&mut self, variable: &Variable, value: Output) -> Result<NodeId> {
        self.update_variable("AssignSub", variable, value).build_node()
    }

    /// Begins a node that changes the variable.
    pub(super) fn update_variable(&mut self, op: &str, variable: &Variable, value: Output) -> super::OpBuilder<'_> {
        match variable.kind {
            VariableKind::Reference => self.op(op),
            VariableKind::Resource => self.op(&format!("{op}VariableOp")),
        }
        .inputs([variable.handle, value])
    }

    pub(super) fn make_variable(&mut self, new: &NewVariable<'_>) -> Result<Variable> {
        // Variables stand outside of the scopes around: names from the root, no control dependencies.
        let variable = self.no_control_dependencies(|b| {
            let make = |b: &mut GraphBuilder| b.name_scope("", |b| b.name_scope(new.name, |b| b.variable_nodes(new)));
            match new.slot_of {
                Some(primary) => b.colocate_with(primary, make),
                None => make(b),
            }
        })?;
        self.variables.all.push(variable.clone());
        Ok(variable)
    }

    fn variable_nodes(&mut self, new: &NewVariable<'_>) -> Result<Variable> {
        let name = self.current_name_scope().to_string();
        let own = Colocation { classes: vec![format!("loc:@{name}")], device: String::new() };
        let initial_value =
            |b: &mut GraphBuilder| b.name_scope("Initializer", |b| b.initial_value(new.initializer, new.data_type, &new.shape));
        let initial_value = if new.slot_of.is_some() { initial_value(self)? } else { self.colocate(own, initial_value)? };
        let class = match new.slot_of {
            Some(_) => None,
            None => Some(AttrValue::texts(&[format!("loc:@{name}")])),
        };
        let (handle, value, initializer) = match new.kind {
            VariableKind::Reference => self.reference_nodes(&name, new, class, initial_value)?,
            VariableKind::Resource => self.resource_nodes(&name, new, class, initial_value)?,
        };
        let NewVariable { data_type, ref shape, trainable, .. } = *new;
        Ok(Variable {
            name,
            kind: new.kind,
            data_type,
            shape: shape.clone(),
            handle,
            value,
            initial_value: Some(initial_value),
            initializer: Some(initializer),
            trainable,
        })
    }

    fn reference_nodes(
        &mut self,
        name: &str,
        new: &NewVariable<'_>,
        class: Option<AttrValue>,
        initial: Output,
    ) -> Result<(Output, Output, NodeId)> {
        let mut holder = self.op("VariableV2").name(&format!("{name}/")).attr("dtype", AttrValue::data_type(new.data_type));
        holder = holder.attr("shape", AttrValue::Shape(PartialShape::from(&new.shape)));
        if let Some(class) = class {
            holder = holder.attr("_class", class);
        }
        let handle = holder.build()?;
        let initializer = self.op("Assign").inputs([handle, initial]).build_node()?;
        let value = self.colocate_with(handle.node, |b| b.identity(handle).name("read").build())?;
        Ok((handle, value, initializer))
    }

    fn resource_nodes(
        &mut self,
        name: &str,
        new: &NewVariable<'_>,
        class: Option<AttrValue>,
        initial: Output,
    ) -> Result<(Output, Output, NodeId)> {
        let data_type = AttrValue::data_type(new.data_type);
        let mut holder =
            self.op("VarHandleOp").name(&format!("{name}/")).attr("dtype", data_type.clone()).attr("shared_name", AttrValue::text(name));
        holder = holder.attr("shape", AttrValue::Shape(PartialShape::from(&new.shape)));
        if let Some(class) = class {
            holder = holder.attr("_class", class);
        }
        let handle = holder.attr("allowed_devices", AttrValue::List(Box::default())).build()?;
        self.name_scope("IsInitialized", |b| b.op("VarIsInitializedOp").input(handle).build())?;
        let initializer = self.op("AssignVariableOp").name("Assign").inputs([handle, initial]).build_node()?;
        let value = self.name_scope("Read", |b| b.op("ReadVariableOp").input(handle).attr("dtype", data_type).build())?;
        Ok((handle, value, initializer))
    }
}
