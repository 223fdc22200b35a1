//! A function's body, for the place where it is put.

use std::collections::HashMap;

use plimsoll_base::{Error, Result};
use plimsoll_graph::id::Id;
use plimsoll_graph::{AttrValue, Attrs, AttrsExt, AttrsPool, FuncRef, FunctionDef, IdVec, MAX_OUTPUTS, Node, NodeId, OpTable, Output};

use super::functions::Functions;

/// A function's body as a call sees it. Its nodes have ids in the function's order.
pub(crate) struct Body<'a> {
    function: &'a FunctionDef,
    /// The attributes that the call gives.
    given: Attrs,
    /// The tensors of each argument.
    arguments: HashMap<&'a str, Vec<Output>>,
    nodes: HashMap<&'a str, BodyNode>,
    /// How many outputs its nodes have.
    count: usize,
}

/// A node of a body.
struct BodyNode {
    id: NodeId,
    /// Its output arguments, and where they begin.
    outputs: Vec<(String, usize)>,
}

impl<'a> Body<'a> {
    /// The body for a call with these arguments, and for each of its nodes the attributes. The first node is to be `first`.
    pub fn new(
        ops: &OpTable,
        functions: &Functions<'_>,
        function: &'a FunctionDef,
        func: &FuncRef,
        data: &[Output],
        first: NodeId,
        pool: &mut AttrsPool,
    ) -> Result<(Body<'a>, Vec<Attrs>)> {
        let given = &func.attrs;
        let mut arguments = HashMap::new();
        let mut next = data.iter();
        for arg in &function.signature.inputs {
            let count = match (&arg.type_list_attr, &arg.number_attr) {
                (list, _) if !list.is_empty() => given.list(list)?.types.len(),
                (_, number) if !number.is_empty() => usize::try_from(given.int(number)?).unwrap_or(0),
                _ => 1,
            };
            let tensors: Vec<Output> = next.by_ref().take(count).copied().collect();
            if tensors.len() != count {
                return Err(Error::invalid_argument(format!("'{}' takes more than {} arguments", func.name, data.len())));
            }
            arguments.insert(arg.name.as_str(), tensors);
        }
        if next.next().is_some() {
            return Err(Error::invalid_argument(format!("'{}' takes fewer than {} arguments", func.name, data.len())));
        }
        let nodes = HashMap::with_capacity(function.nodes.len());
        let mut body = Body { function, given: given.clone(), arguments, nodes, count: 0 };
        let mut all_attrs = Vec::with_capacity(function.nodes.len());
        for (position, node) in function.nodes.iter().enumerate() {
            let mut attrs = body.attrs(&node.attrs)?;
            // The operation is in the table, or it is a function of the library.
            let (op, signature) = (ops.get(&node.op), functions.find(&node.op).map(|function| &function.signature));
            let outputs = match op.as_deref().or(signature) {
                Some(op) => {
                    op.fill_defaults(&mut attrs).map_err(|error| error.at_node(&node.name))?;
                    let lengths = op.output_lengths(&attrs).map_err(|error| error.at_node(&node.name))?;
                    body.count += lengths.iter().sum::<usize>();
                    if body.count > MAX_OUTPUTS {
                        return Err(too_many_outputs());
                    }
                    let starts = lengths.iter().scan(0, |next, length| {
                        let start = *next;
                        *next += length;
                        Some(start)
                    });
                    op.outputs.iter().zip(starts).map(|(arg, start)| (arg.name.clone(), start)).collect()
                }
                None => Vec::new(),
            };
            body.nodes.insert(&node.name, BodyNode { id: NodeId::from_index(first.index() + position), outputs });
            pool.share(&mut attrs);
            all_attrs.push(attrs);
        }
        Ok((body, all_attrs))
    }

    /// Puts the nodes of a body behind `nodes`, those of its arguments among them. Their names begin with `prefix/`, if that is not empty.
    ///
    /// # Errors
    /// As [`Body::new`] and [`Body::inputs`].
    pub fn put(
        nodes: &mut IdVec<NodeId, Node>,
        prefix: &str,
        (ops, functions): (&OpTable, &Functions<'_>),
        (function, func): (&'a FunctionDef, &FuncRef),
        data: &[Output],
    ) -> Result<Body<'a>> {
        let mut pool = AttrsPool::default();
        let (body, all_attrs) = Body::new(ops, functions, function, func, data, nodes.next_id(), &mut pool)?;
        let full = |name: &str| if prefix.is_empty() { name.to_string() } else { format!("{prefix}/{name}") };
        for (node, mut attrs) in function.nodes.iter().zip(all_attrs) {
            let name = full(&node.name);
            let (inputs, controls) = body.inputs(&node.inputs, prefix).map_err(|error| error.at_node(&name))?;
            if let Some(AttrValue::List(classes)) = attrs.get_mut("_class") {
                for class in &mut classes.bytes {
                    if let Some(label) = std::str::from_utf8(class).ok().and_then(|class| class.strip_prefix("loc:@")) {
                        *class = format!("loc:@{}", full(label)).into_bytes();
                    }
                }
            }
            let (op, device) = (node.op.clone(), node.device.clone());
            nodes.push(Node { name, op, inputs, controls, device, attrs, carried: Vec::new() });
        }
        Ok(body)
    }

    /// The data and control inputs of a node of the body, outside. `prefix` is the beginning of its nodes' names, for errors.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for inputs that are not there, and for data inputs behind control inputs.
    pub fn inputs(&self, texts: &[String], prefix: &str) -> Result<(Vec<Output>, Vec<NodeId>)> {
        let (mut inputs, mut controls) = (Vec::with_capacity(texts.len()), Vec::new());
        for text in texts {
            if let Some(name) = text.strip_prefix('^') {
                controls.push(self.source(name).or_else(|| self.node(name)).ok_or_else(|| unknown(prefix, name))?);
            } else if controls.is_empty() {
                inputs.push(self.tensor(text)?);
            } else {
                return Err(Error::invalid_argument(format!("data input '{}' comes after a control input", text.escape_debug())));
            }
        }
        Ok((inputs, controls))
    }

    fn tensor(&self, text: &str) -> Result<Output> {
        let unknown =
            || Error::invalid_argument(format!("'{}' in function '{}' names nothing", text.escape_debug(), self.function.signature.name));
        let mut parts = text.split(':');
        let (first, second, third) = (parts.next().unwrap_or(""), parts.next(), parts.next());
        if let Some(tensors) = self.arguments.get(first) {
            let index = second.map_or(Ok(0), str::parse::<usize>).map_err(|_| unknown())?;
            return tensors.get(index).copied().ok_or_else(unknown);
        }
        let node = self.nodes.get(first).ok_or_else(unknown)?;
        let index = match (second, third) {
            (None, _) => 0,
            (Some(argument), third) => match node.outputs.iter().find(|(name, _)| name == argument) {
                Some((_, start)) => start.saturating_add(third.map_or(Ok(0), str::parse::<usize>).map_err(|_| unknown())?),
                None => argument.parse().map_err(|_| unknown())?,
            },
        };
        Ok(Output { node: node.id, index: u32::try_from(index).map_err(|_| unknown())? })
    }

    /// The node outside that gives an argument.
    pub fn source(&self, argument: &str) -> Option<NodeId> {
        Some(self.arguments.get(argument)?.first()?.node)
    }

    /// Whether an input, as the function spells it, is an argument.
    pub fn is_argument(&self, text: &str) -> bool {
        let name = text.strip_prefix('^').unwrap_or(text);
        self.arguments.contains_key(name.split(':').next().unwrap_or(name))
    }

    /// How many outputs its nodes have.
    pub fn output_count(&self) -> usize {
        self.count
    }

    /// The node of that name in the body.
    pub fn node(&self, name: &str) -> Option<NodeId> {
        self.nodes.get(name).map(|node| node.id)
    }

    /// Attributes with the function's placeholders filled in.
    fn attrs(&self, attrs: &Attrs) -> Result<Attrs> {
        fill_all(attrs, &self.given, self.function)
    }

    /// The tensors that it gives.
    pub fn results(&self) -> Result<Vec<Output>> {
        let source = |name: &String| {
            let missing = || Error::invalid_argument(format!("the function does not give '{name}'"));
            self.tensor(self.function.ret.get(name).ok_or_else(missing)?)
        };
        self.function.signature.outputs.iter().map(|output| source(&output.name)).collect()
    }

    /// Their types, as far as the call's attributes say them.
    pub fn result_types(&self) -> Result<Vec<i32>> {
        let number = |arg: &plimsoll_graph::ArgDef| match arg.type_attr.as_str() {
            "" => Ok(arg.data_type),
            attr => self.given.data_type(attr).map(|data_type| data_type.number()),
        };
        self.function.signature.outputs.iter().map(number).collect()
    }

    /// The nodes that run whatever is read.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for one that is not in the body.
    pub fn must_run(&self, prefix: &str) -> Result<Vec<NodeId>> {
        self.function.control_ret.values().map(|name| self.node(name).ok_or_else(|| unknown(prefix, name))).collect()
    }
}

fn unknown(prefix: &str, name: &str) -> Error {
    Error::invalid_argument(format!("Unknown input node '{}'", format!("{prefix}/{name}").escape_debug()))
}

/// Nodes of bodies have more outputs than a graph may have.
pub(super) fn too_many_outputs() -> Error {
    Error::invalid_argument(format!("the nodes of all bodies have more than {MAX_OUTPUTS} outputs"))
}

/// Functions in attributes of functions in attributes, deeper than this, are refused: files hold fewer, but calls add to them.
const MAX_DEPTH: usize = 100;

/// Attributes of a node of a function with its placeholders filled in.
///
/// # Errors
/// INVALID_ARGUMENT where the call does not give one and it has no default, or for functions nested beyond measure.
pub(super) fn fill_all(attrs: &Attrs, given: &Attrs, function: &FunctionDef) -> Result<Attrs> {
    let is_filled = |value: &AttrValue| match value {
        AttrValue::Placeholder(_) | AttrValue::Func(_) => false,
        AttrValue::List(list) => list.funcs.is_empty(),
        _ => true,
    };
    if attrs.values().all(is_filled) {
        return Ok(attrs.clone());
    }
    let fill = Fill { given, function };
    attrs.iter().map(|(name, value)| Ok((name.clone(), fill.value(value, 0)?))).collect()
}

struct Fill<'a> {
    given: &'a Attrs,
    function: &'a FunctionDef,
}

impl Fill<'_> {
    fn value(&self, value: &AttrValue, depth: usize) -> Result<AttrValue> {
        Ok(match value {
            AttrValue::Placeholder(name) => {
                let default = || self.function.signature.attrs.iter().find(|attr| attr.name == *name)?.default.as_ref();
                let missing = || Error::invalid_argument(format!("the call gives no attribute '{name}'"));
                let found = self.given.get(name).or_else(default).ok_or_else(missing)?;
                if depth > 0 && depth + nesting(found) > MAX_DEPTH {
                    return Err(too_deep(&self.function.signature.name));
                }
                found.clone()
            }
            AttrValue::Func(func) => AttrValue::Func(self.func(func, depth)?),
            AttrValue::List(list) if !list.funcs.is_empty() => {
                let mut list = list.clone();
                for func in &mut list.funcs {
                    *func = self.func(func, depth)?;
                }
                AttrValue::List(list)
            }
            other => other.clone(),
        })
    }

    fn func(&self, func: &FuncRef, depth: usize) -> Result<FuncRef> {
        if depth >= MAX_DEPTH {
            return Err(too_deep(&self.function.signature.name));
        }
        let attrs = func.attrs.iter().map(|(name, value)| Ok((name.clone(), self.value(value, depth + 1)?)));
        Ok(FuncRef { name: func.name.clone(), attrs: attrs.collect::<Result<_>>()? })
    }
}

fn too_deep(function: &str) -> Error {
    Error::invalid_argument(format!("in '{function}' functions are attributes of functions more than {MAX_DEPTH} deep"))
}

/// How many functions lie in each other in a value.
fn nesting(value: &AttrValue) -> usize {
    let below = |func: &FuncRef| 1 + func.attrs.values().map(nesting).max().unwrap_or(0);
    match value {
        AttrValue::Func(func) => below(func),
        AttrValue::List(list) => list.funcs.iter().map(below).max().unwrap_or(0),
        _ => 0,
    }
}
