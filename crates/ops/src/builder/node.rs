//! One node: what is said of it, and making it.

use plimsoll_base::{ArgType, Result};
use plimsoll_graph::{AttrValue, Attrs, Node, NodeId, Output};

use super::GraphBuilder;
use super::scope::merge_devices;
use super::signature::complete;

/// A node that is about to be made by [`GraphBuilder::op`].
#[derive(Debug)]
#[must_use = "the node is made by build or build_node"]
pub struct OpBuilder<'a> {
    builder: &'a mut GraphBuilder,
    op: String,
    name: Option<String>,
    inputs: Vec<Output>,
    controls: Vec<NodeId>,
    device: Option<String>,
    attrs: Attrs,
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
            device: None,
            attrs: Attrs::new(),
        }
    }
}

impl OpBuilder<'_> {
    /// The next input.
    pub fn input(mut self, input: Output) -> Self {
        self.inputs.push(input);
        self
    }

    /// The next inputs. Arguments that are lists take as many as the others leave; where an operation has several lists of
    /// different lengths, their length attributes have to be said.
    pub fn inputs(mut self, inputs: impl IntoIterator<Item = Output>) -> Self {
        self.inputs.extend(inputs);
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
        self.device = Some(device.to_string());
        self
    }

    /// Makes the node; its output 0.
    ///
    /// # Errors
    /// As [`OpBuilder::build_node`]; INVALID_ARGUMENT where the operation has no outputs (the node exists then).
    pub fn build(self) -> Result<Output> {
        let builder = self.builder;
        let node = OpBuilder { builder: &mut *builder, ..self }.build_node()?;
        let output = Output { node, index: 0 };
        builder.check_output(output).map_err(|error| error.at_node(&builder.node(node).name))?;
        Ok(output)
    }

    /// Makes the node.
    ///
    /// # Errors
    /// Every error names the node. NOT_FOUND for operations that are not in the table; INVALID_ARGUMENT for names that are
    /// none, inputs of the wrong number or type or of another graph, attributes that are wrong or missing, devices that are
    /// no device names, and what the operation's shape rule says.
    pub fn build_node(self) -> Result<NodeId> {
        let OpBuilder { builder, op, name, inputs, controls, device, attrs } = self;
        let name = match name.as_deref().map(|name| name.strip_suffix('/').ok_or(name)) {
            Some(Ok(absolute)) => {
                builder.names.take(absolute);
                absolute.to_string()
            }
            Some(Err(name)) => builder.unique_name(name),
            None => builder.unique_name(&op),
        };
        let result =
            builder.make(Node { name: name.clone(), op, inputs, controls, device: device.unwrap_or_default(), attrs, carried: Vec::new() });
        result.map_err(|error| error.at_node(name.escape_debug().to_string()))
    }
}

impl GraphBuilder {
    fn make(&mut self, mut node: Node) -> Result<NodeId> {
        let def = self.registry.table().require(&node.op)?;
        node.inputs.iter().try_for_each(|input| self.check_output(*input))?;
        node.controls.iter().try_for_each(|control| self.check_node(*control))?;
        let types: Vec<ArgType> =
            node.inputs.iter().map(|input| self.fact(*input)).map(|fact| ArgType { base: fact.data_type, is_ref: fact.is_ref }).collect();
        complete(&def, &mut node.attrs, &types)?;
        node.controls = self.control_inputs(&node.controls, node.inputs.iter().map(|input| input.node));
        node.device = merge_devices(&self.device_here()?, &node.device)?;
        let classes = self.colocation_classes();
        if !classes.is_empty() && !node.attrs.contains_key("_class") {
            node.attrs.insert("_class".to_string(), AttrValue::texts(&classes));
        }
        let id = self.add(node)?;
        self.record(id);
        Ok(id)
    }
}
