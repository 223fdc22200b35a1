//! Calls of functions that return resources. The requests that a function's body has for its arguments and results are requests for
//! the nodes around the call.

use std::collections::HashMap;
use std::sync::Arc;

use plimsoll_base::{ArgType, Code, DataType, Error, Result};
use plimsoll_graph::{AttrValue, Attrs, AttrsExt, FuncRef, FunctionDef, Graph, IdVec, Library, Node, NodeDef, NodeId, OpTable, Output};

use super::groups::{Context, Member};
use super::join::{Joined, join};
use crate::inline::{Body, Calls, Functions, check_size};

/// The functions that are being looked into, outermost first, each with the node that calls it.
#[derive(Clone, Copy, Default)]
pub(super) struct Stack<'a>(Option<&'a Frame<'a>>);

struct Frame<'a> {
    function: &'a str,
    node: &'a str,
    outer: Stack<'a>,
}

/// Functions that call each other more deeply than this are not looked into.
const MAX_DEPTH: usize = 200;

impl Stack<'_> {
    fn depth(&self) -> usize {
        self.0.map_or(0, |frame| 1 + frame.outer.depth())
    }

    fn has(&self, function: &str) -> bool {
        self.0.is_some_and(|frame| frame.function == function || frame.outer.has(function))
    }

    fn spell(&self) -> String {
        self.0.map_or_else(String::new, |frame| {
            format!("{}\n  {{{{function_node {}}}}} called by {{{{node {}}}}}", frame.outer.spell(), frame.function, frame.node)
        })
    }
}

/// The function that a node calls.
fn called(node: &Node, functions: &HashMap<&str, &FunctionDef>) -> Option<FuncRef> {
    match node.op.as_str() {
        "PartitionedCall" | "StatefulPartitionedCall" => node.attrs.func("f").ok().cloned(),
        op => functions.contains_key(op).then(|| FuncRef { name: op.to_string(), attrs: node.attrs.clone() }),
    }
}

/// Whether a node calls a function that returns a resource.
pub(super) fn returns_resource(node: &Node, functions: &HashMap<&str, &FunctionDef>) -> bool {
    let function = match node.op.as_str() {
        "PartitionedCall" | "StatefulPartitionedCall" => node.attrs.func("f").ok().map(|func| func.name.as_str()),
        op => Some(op),
    };
    let Some(function) = function.and_then(|name| functions.get(name)) else { return false };
    let types = function.signature.output_types(&called(node, functions).unwrap_or_default().attrs);
    types.is_ok_and(|types| types.iter().any(|arg| arg.base == DataType::Resource))
}

/// The graph with an Identity on every data edge into and out of such calls, appended to its nodes. So a request to an argument is
/// a request to one node. None where there are no such calls.
///
/// # Errors
/// As [`Graph::resolve`].
pub(super) fn isolate(graph: &Graph, ops: &OpTable) -> Result<Option<Graph>> {
    if graph.library.functions.is_empty() {
        return Ok(None);
    }
    let functions: HashMap<&str, &FunctionDef> =
        graph.library.functions.iter().map(|function| (function.signature.name.as_str(), function)).collect();
    let looked_into: Vec<NodeId> = graph.nodes().iter().filter(|(_, node)| returns_resource(node, &functions)).map(|(id, _)| id).collect();
    if looked_into.is_empty() {
        return Ok(None);
    }
    // Bodies are looked into call by call. A function that calls itself is named when it is met.
    match check_size(graph, &Functions::of(&graph.library)) {
        Err(error) if error.code() != Code::Unimplemented => return Err(error),
        _ => {}
    }
    let mut def = graph.to_def();
    let mut added: Vec<NodeDef> = Vec::new();
    for id in looked_into {
        use plimsoll_graph::id::Id;
        let node = graph.node(id);
        let inputs = types(graph, ops, &functions, node, false);
        for (position, data_type) in inputs.iter().enumerate() {
            let identity = identity(graph, format!("{}_in_{position}", node.name), &def.nodes[id.index()].inputs[position], *data_type);
            def.nodes[id.index()].inputs[position] = identity.name.clone();
            added.push(identity);
        }
        for (position, data_type) in types(graph, ops, &functions, node, true).iter().enumerate() {
            let source = if position == 0 { node.name.clone() } else { format!("{}:{position}", node.name) };
            let identity = identity(graph, format!("{}_out_{position}", node.name), &source, *data_type);
            let all = def.nodes.iter_mut().chain(added.iter_mut());
            for input in all.flat_map(|node| node.inputs.iter_mut()) {
                let same = *input == source || (position == 0 && *input == format!("{}:0", node.name));
                if same {
                    input.clone_from(&identity.name);
                }
            }
            added.push(identity);
        }
    }
    def.nodes.extend(added);
    Graph::resolve(def, ops).map(Some)
}

fn types(graph: &Graph, ops: &OpTable, functions: &HashMap<&str, &FunctionDef>, node: &Node, outputs: bool) -> Vec<ArgType> {
    let of = |op: &plimsoll_graph::OpDef| if outputs { op.output_types(&node.attrs) } else { op.input_types(&node.attrs) };
    let found = match ops.get(&node.op) {
        Some(op) => of(&op),
        None => functions.get(node.op.as_str()).map_or(Ok(Vec::new()), |function| of(&function.signature)),
    };
    let mut found = found.unwrap_or_default();
    if !outputs {
        found.truncate(graph.find(&node.name).map_or(0, |id| graph.node(id).inputs.len()));
    }
    found
}

fn identity(graph: &Graph, mut name: String, source: &str, arg: ArgType) -> NodeDef {
    while graph.find(&name).is_some() {
        name.push('_');
    }
    let attrs = Attrs::from([("T".to_string(), AttrValue::data_type(arg.base))]);
    NodeDef { name, op: "Identity".to_string(), inputs: vec![source.to_string()], attrs, ..NodeDef::default() }
}

/// Asks the nodes around a call for the requests of its function to arguments and results.
///
/// # Errors
/// UNIMPLEMENTED where the function is being looked into already. The errors of [`join`] for its body. INVALID_ARGUMENT where its
/// requests and those around it do not go together.
pub(super) fn apply(joined: &mut Joined<'_>, call: NodeId, stack: &Stack<'_>) -> Result<()> {
    let cx = joined.groups.cx;
    let graph = joined.groups.graph;
    let node = graph.node(call);
    let func = called(node, &joined.signatures.functions).unwrap_or_default();
    let missing = || Error::invalid_argument(format!("function '{}' is not in the library", func.name)).at_node(&node.name);
    let function = joined.signatures.functions.get(func.name.as_str()).copied().ok_or_else(missing)?;
    if stack.has(&func.name) {
        return Err(Error::unimplemented(format!(
            "Recursive function calls are not supported. Node {{{{node {}}}}} calls function {{{{function_node {}}}}} which is already \
             present in the call stack:{}",
            node.name,
            func.name,
            stack.spell()
        ))
        .at_node(&node.name));
    }
    if stack.depth() >= MAX_DEPTH {
        return Err(Error::unimplemented(format!("functions that return resources call each other {MAX_DEPTH} deep")).at_node(&node.name));
    }
    let (body, args, rets) = body(function, &func, &graph.library, cx.registry.table()).map_err(|error| error.at_node(&node.name))?;
    let isolated = isolate(&body, cx.registry.table())?;
    let mut order = body.topological()?;
    let whole = isolated.as_ref().unwrap_or(&body);
    order.extend(whole.nodes().ids().skip(body.nodes().len()));
    let frame = Frame { function: &func.name, node: &node.name, outer: *stack };
    let none = Calls::default();
    let mut inner = join(whole, &order, Context { calls: &none, ..cx }, &|_| None, &Stack(Some(&frame)))?;
    // The nodes around the call by the root, in the body, of the argument or result that they give or take.
    let mut around: Vec<(NodeId, Vec<(NodeId, bool)>)> = Vec::new();
    let mut put = |root: NodeId, node: NodeId, takes: bool| match around.iter_mut().find(|(other, _)| *other == root) {
        Some((_, nodes)) => nodes.push((node, takes)),
        None => around.push((root, vec![(node, takes)])),
    };
    for (argument, input) in args.iter().zip(&node.inputs) {
        put(inner.groups.root(*argument), input.node, false);
    }
    let mut consumers = joined.signatures.consumers(call).to_vec();
    consumers.dedup();
    for consumer in consumers {
        for (position, input) in graph.node(consumer).inputs.iter().enumerate().filter(|(_, input)| input.node == call) {
            let Some(result) = rets.get(input.index as usize) else { continue };
            let wanted = joined.signatures.inputs[consumer].get(position).copied();
            put(inner.groups.root(*result), consumer, wanted.is_some_and(|wanted| wanted.base == DataType::Resource));
        }
    }
    for (root, nodes) in around {
        let first = nodes[0].0;
        for &(other, takes) in &nodes[1..] {
            match takes {
                true => joined.groups.unite_along_edge(first, other)?,
                false => joined.unite(first, other)?,
            }
        }
        let asked: &Member = &inner.groups.members[root];
        let own = joined.groups.root(first);
        joined.groups.members[own].limit(asked, cx.soft).map_err(|error| error.at_node(&graph.node(first).name))?;
    }
    joined.groups.notes.append(&mut inner.groups.notes);
    Ok(())
}

/// A function's body as a graph, with a node for each argument and result.
fn body(function: &FunctionDef, func: &FuncRef, library: &Arc<Library>, ops: &OpTable) -> Result<(Graph, Vec<NodeId>, Vec<NodeId>)> {
    let mut nodes: IdVec<NodeId, Node> = IdVec::new();
    let attrs = |of_type: AttrValue, position: usize| {
        Attrs::from([("T".to_string(), of_type), ("index".to_string(), AttrValue::Int(position as i64))])
    };
    for (position, arg) in function.signature.input_types(&func.attrs)?.iter().enumerate() {
        let attrs = attrs(AttrValue::data_type(arg.base), position);
        nodes.push(Node { name: format!("arg_{position}"), op: "_Arg".to_string(), attrs, ..Node::default() });
    }
    let args: Vec<NodeId> = nodes.ids().collect();
    let given: Vec<Output> = args.iter().map(|node| Output { node: *node, index: 0 }).collect();
    let functions = Functions::of(library);
    let inside = Body::put(&mut nodes, &function.signature.name, (ops, &functions), (function, func), &given)?;
    let mut rets = Vec::new();
    for (position, (source, data_type)) in inside.results()?.into_iter().zip(inside.result_types()?).enumerate() {
        let attrs = attrs(AttrValue::Type(data_type), position);
        let (name, op) = (format!("ret_{position}"), "_Retval".to_string());
        rets.push(nodes.push(Node { name, op, inputs: vec![source], attrs, ..Node::default() }));
    }
    let mut graph = Graph::of_nodes(nodes, ops)?;
    graph.library = Arc::clone(library);
    Ok((graph, args, rets))
}
