//! One node: its parts, and making it.

use plimsoll_base::{ArgType, Error, Result};
use plimsoll_graph::{AttrValue, Attrs, HostTensor, Node, NodeId, Output};

use super::GraphBuilder;
use super::signature::complete;

/// A node that is about to be made by [`GraphBuilder::op`] or one of the functions for common operations.
#[derive(Debug)]
#[must_use = "the node is made by build or build_node"]
pub struct OpBuilder<'a> {
    builder: &'a mut GraphBuilder,
    op: String,
    name: Option<String>,
    inputs: Vec<Input>,
    controls: Vec<NodeId>,
    device: String,
    attrs: Attrs,
    error: Option<Error>,
}

#[derive(Debug)]
enum Input {
    Tensor(Output),
    /// A constant that is made with the node, under its name.
    Constant(&'static str, HostTensor),
}

impl GraphBuilder {
    /// Begins a node of this operation.
    pub fn op(&mut self, op: &str) -> OpBuilder<'_> {
        OpBuilder {
            builder: self,
            op: op.to_string(),
            name: None,
            inputs: Vec::new(),
            controls: Vec::new(),
            device: String::new(),
            attrs: Attrs::new(),
            error: None,
        }
    }
}

impl OpBuilder<'_> {
    /// The next input.
    pub fn input(mut self, input: Output) -> Self {
        self.inputs.push(Input::Tensor(input));
        self
    }

    /// The next inputs. Arguments that are lists take as many as the others leave; where an operation has several lists of
    /// different lengths, their length attributes have to be said.
    pub fn inputs(mut self, inputs: impl IntoIterator<Item = Output>) -> Self {
        self.inputs.extend(inputs.into_iter().map(Input::Tensor));
        self
    }

    /// The next input, a constant that is made with the node and named `node/argument`.
    pub fn constant_input(mut self, argument: &'static str, value: HostTensor) -> Self {
        self.inputs.push(Input::Constant(argument, value));
        self
    }

    /// An attribute. Types and lengths that follow from the inputs need not be said.
    pub fn attr(mut self, name: &str, value: AttrValue) -> Self {
        self.attrs.insert(name.to_string(), value);
        self
    }

    /// The node's name in the name scope, by default the operation's; made unique. With a slash at the end it is the name
    /// itself, from the root, and must be free.
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.to_string());
        self
    }

    /// A node that has to have run.
    pub fn control(mut self, node: NodeId) -> Self {
        self.controls.push(node);
        self
    }

    /// Nodes that have to have run.
    pub fn controls(mut self, nodes: impl IntoIterator<Item = NodeId>) -> Self {
        self.controls.extend(nodes);
        self
    }

    /// A device; parts that it does not name are the scope's.
    pub fn device(mut self, device: &str) -> Self {
        self.device = device.to_string();
        self
    }

    /// Making the node will fail with this error.
    pub(super) fn fail(mut self, error: Error) -> Self {
        self.error = Some(error);
        self
    }

    /// Makes the node; its output 0.
    ///
    /// # Errors
    /// As [`OpBuilder::build_node`]; INVALID_ARGUMENT where the operation has no outputs (the node exists then).
    pub fn build(self) -> Result<Output> {
        let (builder, node) = self.finish()?;
        let output = Output { node, index: 0 };
        builder.check_output(output).map_err(|error| error.at_node(&builder.node(node).name))?;
        Ok(output)
    }

    /// Makes the node.
    ///
    /// # Errors
    /// Every error names the node. NOT_FOUND for operations that are not in the table. INVALID_ARGUMENT for texts that are no
    /// names of nodes or devices, for inputs of the wrong number or type or of another graph, and for attributes that are wrong or
    /// missing. The error of the operation's shape rule.
    pub fn build_node(self) -> Result<NodeId> {
        self.finish().map(|(_, node)| node)
    }

    /// Makes the node and gives the borrow back.
    fn finish<'b>(self) -> Result<(&'b mut GraphBuilder, NodeId)>
    where
        Self: 'b,
    {
        let OpBuilder { builder, op, name, inputs, controls, device, attrs, error } = self;
        let name = builder.name_of_node(name.as_deref().unwrap_or(&op));
        let at = |error: Error| error.at_node(name.escape_debug().to_string());
        if let Some(error) = error {
            return Err(at(error));
        }
        let mut tensors = Vec::with_capacity(inputs.len());
        for input in inputs {
            tensors.push(match input {
                Input::Tensor(output) => output,
                Input::Constant(argument, value) => {
                    let make = |builder: &mut GraphBuilder| builder.constant(value).name(argument).device(&device).build();
                    builder.name_scope(&format!("{name}/"), make).map_err(at)?
                }
            });
        }
        let node =
            builder.make(Node { name: name.clone(), op, inputs: tensors, controls, device, attrs, carried: Vec::new() }).map_err(at)?;
        Ok((builder, node))
    }
}

impl GraphBuilder {
    fn name_of_node(&mut self, name: &str) -> String {
        match name.strip_suffix('/') {
            Some(absolute) => {
                self.names.take(absolute);
                absolute.to_string()
            }
            None => self.unique_name(name),
        }
    }

    fn make(&mut self, mut node: Node) -> Result<NodeId> {
        let def = self.registry.table().require(&node.op)?;
        node.inputs.iter().try_for_each(|input| self.check_output(*input))?;
        node.controls.iter().try_for_each(|control| self.check_node(*control))?;
        let facts = node.inputs.iter().map(|input| self.fact(*input));
        let types: Vec<ArgType> = facts.map(|fact| ArgType { base: fact.data_type, is_ref: fact.is_ref }).collect();
        complete(&def, &mut node.attrs, &types)?;
        let wanted = def.input_types(&node.attrs)?;
        let references: Vec<NodeId> =
            wanted.iter().zip(&node.inputs).filter(|(wanted, _)| wanted.is_ref).map(|(_, input)| input.node).collect();
        let (classes, device) = self.placement_here(&references, &node.device)?;
        node.device = device;
        if !classes.is_empty() && !node.attrs.contains_key("_class") {
            node.attrs.insert("_class".to_string(), AttrValue::texts(&classes));
        }
        node.controls = self.control_inputs(&node.controls, node.inputs.iter().map(|input| input.node));
        let id = self.add_node(node)?;
        self.record(id);
        Ok(id)
    }
}
