//! Calls of functions become the functions' bodies.
//!
//! A call's node stays under its name, as an IdentityN of the results that waits for what the function must run: it can be
//! fetched and targeted as before. Nodes of the body are named `call/node`.

use std::collections::HashMap;

use plimsoll_base::{Error, Result};
use plimsoll_graph::{AttrList, AttrValue, Attrs, AttrsExt, FuncRef, FunctionDef, Graph, GraphDef, Library, NodeDef, OpTable};

/// More nodes than this are taken for functions that call each other without end.
const MAX_NODES: usize = 2_000_000;

/// The graph with every call replaced by the body of its function. Functions that are arguments of If, While and the like
/// stay where they are.
///
/// # Errors
/// UNIMPLEMENTED for functions that call themselves; INVALID_ARGUMENT naming the call where the function does not exist, its
/// body makes no sense, or the graph grows beyond measure.
pub fn inline(graph: &Graph, ops: &OpTable) -> Result<Graph> {
    if !graph.nodes().values().any(|node| called(&node.op, &node.attrs, &graph.library).is_some()) {
        return Ok(graph.clone());
    }
    let def = graph.to_def();
    let mut inliner = Inliner { library: &graph.library, ops, nodes: Vec::with_capacity(def.nodes.len()), path: Vec::new() };
    for node in def.nodes {
        inliner.node(node)?;
    }
    Graph::resolve(GraphDef { nodes: inliner.nodes, library: def.library, versions: def.versions, carried: def.carried }, ops)
}

/// The function that a node calls, if it is a call.
fn called(op: &str, attrs: &Attrs, library: &Library) -> Option<FuncRef> {
    match op {
        "PartitionedCall" | "StatefulPartitionedCall" => attrs.func("f").ok().cloned(),
        op => library.find(op).map(|_| FuncRef { name: op.to_string(), attrs: attrs.clone() }),
    }
}

struct Inliner<'a> {
    library: &'a Library,
    ops: &'a OpTable,
    nodes: Vec<NodeDef>,
    /// The functions that are being inlined, outermost first.
    path: Vec<String>,
}

impl Inliner<'_> {
    fn node(&mut self, node: NodeDef) -> Result<()> {
        if self.nodes.len() >= MAX_NODES {
            return Err(Error::invalid_argument(format!("the graph has more than {MAX_NODES} nodes once its calls are inlined"))
                .at_node(&node.name));
        }
        match called(&node.op, &node.attrs, self.library) {
            None => self.nodes.push(node),
            Some(func) => {
                let name = node.name.clone();
                self.call(node, &func).map_err(|error| error.at_node(name))?;
            }
        }
        Ok(())
    }

    fn call(&mut self, call: NodeDef, func: &FuncRef) -> Result<()> {
        let library = self.library;
        let function =
            library.find(&func.name).ok_or_else(|| Error::invalid_argument(format!("function '{}' is not in the library", func.name)))?;
        if self.path.contains(&func.name) {
            return Err(Error::unimplemented(format!("recursive function calls: '{}' calls itself", func.name)));
        }
        let (data, controls): (Vec<&String>, Vec<&String>) = call.inputs.iter().partition(|input| !input.starts_with('^'));
        let body = Body::new(self.ops, function, func, &call.name, &data)?;
        self.path.push(func.name.clone());
        for node in &function.nodes {
            let mut inputs = node.inputs.iter().map(|input| body.input(input)).collect::<Result<Vec<_>>>()?;
            inputs.extend(controls.iter().map(|control| control.to_string()));
            let device = if node.device.is_empty() { call.device.clone() } else { node.device.clone() };
            let attrs = body.attrs(&node.attrs)?;
            self.node(NodeDef {
                name: format!("{}/{}", call.name, node.name),
                op: node.op.clone(),
                inputs,
                device,
                attrs,
                carried: node.carried.clone(),
            })?;
        }
        self.path.pop();
        self.nodes.push(body.results(&call, &controls)?);
        Ok(())
    }
}

/// A function's body as a call sees it.
struct Body<'a> {
    function: &'a FunctionDef,
    call: &'a str,
    /// The attributes that the call gives.
    given: &'a Attrs,
    /// What each argument is, tensor by tensor.
    arguments: HashMap<&'a str, Vec<String>>,
    /// For each node of the body, where its output arguments begin.
    outputs: HashMap<&'a str, HashMap<String, usize>>,
}

impl<'a> Body<'a> {
    fn new(ops: &OpTable, function: &'a FunctionDef, func: &'a FuncRef, call: &'a str, data: &[&String]) -> Result<Body<'a>> {
        let given = &func.attrs;
        let mut arguments = HashMap::new();
        let mut next = data.iter();
        for arg in &function.signature.inputs {
            let count = match (&arg.type_list_attr, &arg.number_attr) {
                (list, _) if !list.is_empty() => given.list(list)?.types.len(),
                (_, number) if !number.is_empty() => usize::try_from(given.int(number)?).unwrap_or(0),
                _ => 1,
            };
            let tensors: Vec<String> = next.by_ref().take(count).map(|input| input.to_string()).collect();
            if tensors.len() != count {
                return Err(Error::invalid_argument(format!("'{}' takes more than {} arguments", func.name, data.len())));
            }
            arguments.insert(arg.name.as_str(), tensors);
        }
        if next.next().is_some() {
            return Err(Error::invalid_argument(format!("'{}' takes fewer than {} arguments", func.name, data.len())));
        }
        let mut body = Body { function, call, given, arguments, outputs: HashMap::new() };
        for node in &function.nodes {
            let mut attrs = body.attrs(&node.attrs)?;
            let starts = match ops.get(&node.op) {
                Some(op) => {
                    op.fill_defaults(&mut attrs).map_err(|error| error.at_node(&node.name))?;
                    let lengths = op.output_lengths(&attrs).map_err(|error| error.at_node(&node.name))?;
                    let starts = lengths.iter().scan(0, |next, length| {
                        let start = *next;
                        *next += length;
                        Some(start)
                    });
                    op.outputs.iter().zip(starts).map(|(arg, start)| (arg.name.clone(), start)).collect()
                }
                None => HashMap::new(),
            };
            body.outputs.insert(&node.name, starts);
        }
        Ok(body)
    }

    /// An input of a node of the body, as it is spelled outside.
    fn input(&self, text: &str) -> Result<String> {
        let unknown =
            || Error::invalid_argument(format!("'{}' in function '{}' names nothing", text.escape_debug(), self.function.signature.name));
        if let Some(node) = text.strip_prefix('^') {
            return Ok(format!("^{}/{node}", self.call));
        }
        let mut parts = text.split(':');
        let (first, second, third) = (parts.next().unwrap_or(""), parts.next(), parts.next());
        if let Some(tensors) = self.arguments.get(first) {
            let index = second.map_or(Ok(0), str::parse::<usize>).map_err(|_| unknown())?;
            return tensors.get(index).cloned().ok_or_else(unknown);
        }
        let starts = self.outputs.get(first).ok_or_else(unknown)?;
        let index = match (second, third) {
            (None, _) => 0,
            (Some(argument), third) => match starts.get(argument) {
                Some(start) => start + third.map_or(Ok(0), str::parse::<usize>).map_err(|_| unknown())?,
                None => argument.parse().map_err(|_| unknown())?,
            },
        };
        Ok(format!("{}/{first}:{index}", self.call))
    }

    /// Attributes with the function's placeholders filled in.
    fn attrs(&self, attrs: &Attrs) -> Result<Attrs> {
        let fill = |(name, value): (&String, &AttrValue)| {
            let value = match value {
                AttrValue::Placeholder(placeholder) => self
                    .given
                    .get(placeholder)
                    .cloned()
                    .ok_or_else(|| Error::invalid_argument(format!("the call gives no attribute '{placeholder}'")))?,
                other => other.clone(),
            };
            Ok((name.clone(), value))
        };
        attrs.iter().map(fill).collect()
    }

    /// The node that stands where the call stood.
    fn results(&self, call: &NodeDef, controls: &[&String]) -> Result<NodeDef> {
        let mut inputs = Vec::new();
        for output in &self.function.signature.outputs {
            let source = self
                .function
                .ret
                .get(&output.name)
                .ok_or_else(|| Error::invalid_argument(format!("the function does not give '{}'", output.name)))?;
            inputs.push(self.input(source)?);
        }
        let types = match call.attrs.list("Tout") {
            Ok(list) => list.types.clone(),
            Err(_) => {
                let number = |arg: &plimsoll_graph::ArgDef| match arg.type_attr.as_str() {
                    "" => Ok(arg.data_type),
                    attr => self.given.data_type(attr).map(|data_type| data_type.number()),
                };
                self.function.signature.outputs.iter().map(number).collect::<Result<_>>()?
            }
        };
        inputs.extend(self.function.control_ret.values().map(|node| format!("^{}/{node}", self.call)));
        inputs.extend(controls.iter().map(|control| control.to_string()));
        let (op, attrs) = if types.is_empty() {
            ("NoOp", Attrs::new())
        } else {
            ("IdentityN", Attrs::from([("T".to_string(), AttrValue::List(Box::new(AttrList { types, ..AttrList::default() })))]))
        };
        Ok(NodeDef {
            name: call.name.clone(),
            op: op.to_string(),
            inputs,
            device: call.device.clone(),
            attrs,
            carried: call.carried.clone(),
        })
    }
}
