//! SymbolicGradient becomes a call, by name, of a function that is made here: the body of the function, and its gradients.
//!
//! Source of the rules: TensorFlow's `gradients.cc` and `FunctionLibraryRuntimeImpl`. The function's body runs once more, its nodes with
//! effects too. A function of the library's `gradient` entries is called as it is. The gradient of a call in the body is again a
//! SymbolicGradient, which has its turn later: nothing recurses. An argument that no result depends on has the gradient zero.
//! Integers have gradients; where their gradients cannot be made they are zero, as TensorFlow's are behind a loop.
//!
//! What cannot be made stays a SymbolicGradient and says why where it has to run: TensorFlow makes them when they run.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{
    ArgDef, AttrList, AttrValue, Attrs, AttrsExt, FuncRef, FunctionDef, Graph, IdVec, Library, Node, NodeId, OpDef, Output, PartialShape,
};
use plimsoll_ops::control::symbolic::{SYMBOLIC_GRADIENT, refuse};
use plimsoll_ops::{GraphBuilder, Registry};

use super::body::Body;
use super::effects;
use super::functions::Functions;
use super::size::{MAX_GIVEN, MAX_NODES};

/// The graph with calls in the place of its SymbolicGradients and of those in functions that it reaches. None where it has none.
pub(super) fn differentiate(graph: &Graph, registry: &Arc<Registry>) -> Option<Graph> {
    let is_gradient = |op: &str| op == SYMBOLIC_GRADIENT;
    let in_graph = graph.nodes().values().any(|node| is_gradient(&node.op));
    let in_library = || graph.library.functions.iter().flat_map(|function| &function.nodes).any(|node| is_gradient(&node.op));
    if !in_graph && !in_library() {
        return None;
    }
    let library = graph.library.reachable(graph.nodes().values().map(|node| (node.op.as_str(), &node.attrs)));
    let mut maker = Maker::new(&library, registry);
    let mut changed = graph.clone();
    for id in graph.nodes().ids().filter(|id| is_gradient(&graph.node(*id).op)) {
        let node = changed.node_mut(id);
        maker.replace(&mut node.op, &mut node.attrs);
    }
    let mut functions = library.functions.clone();
    let mut next = 0;
    loop {
        functions.append(&mut maker.made);
        let Some(function) = functions.get_mut(next) else { break };
        for node in function.nodes.iter_mut().filter(|node| is_gradient(&node.op)) {
            maker.replace(&mut node.op, &mut node.attrs);
        }
        next += 1;
    }
    changed.library = Arc::new(Library { functions, ..library.clone() });
    Some(changed)
}

struct Maker<'a> {
    registry: &'a Arc<Registry>,
    functions: Functions<'a>,
    /// The gradients that the library has, by function.
    given: HashMap<&'a str, &'a str>,
    /// By function, attributes and types: what a SymbolicGradient calls.
    known: HashMap<String, Result<FuncRef>>,
    /// Bytes of `known`.
    known_bytes: u64,
    /// Functions that are not in the library yet.
    made: Vec<FunctionDef>,
    /// The names of all functions.
    names: HashSet<String>,
    /// By function: how many names of gradients were tried.
    numbers: HashMap<String, u64>,
    /// The nodes of all that were made.
    nodes: u64,
}

/// A function's body, or one node, behind placeholders for its arguments.
struct Flat {
    nodes: IdVec<NodeId, Node>,
    ys: Vec<Output>,
    must_run: Vec<NodeId>,
    /// The signatures of the functions that its nodes call.
    called: Vec<FunctionDef>,
}

impl<'a> Maker<'a> {
    fn new(library: &'a Library, registry: &'a Arc<Registry>) -> Maker<'a> {
        let names = library.functions.iter().map(|function| function.signature.name.clone()).collect();
        let given = library.gradients.iter().rev().map(|(function, gradient)| (function.as_str(), gradient.as_str())).collect();
        let (functions, known, made) = (Functions::of(library), HashMap::new(), Vec::new());
        Maker { registry, functions, given, known, known_bytes: 0, made, names, numbers: HashMap::new(), nodes: 0 }
    }

    /// Puts a call in the place of a SymbolicGradient, or the reason why there is none.
    fn replace(&mut self, op: &mut String, attrs: &mut Attrs) {
        match self.call(attrs) {
            Ok(func) => {
                let hints = attrs.iter().filter(|(name, _)| name.starts_with('_')).map(|(name, value)| (name.clone(), value.clone()));
                let given = func.attrs.iter().map(|(name, value)| (name.clone(), value.clone()));
                *attrs = given.chain(hints).collect();
                *op = func.name;
            }
            Err(why) => refuse(attrs, &why),
        }
    }

    fn call(&mut self, attrs: &Attrs) -> Result<FuncRef> {
        let func = attrs.func("f")?;
        let (takes, gives) = (&attrs.list("Tin")?.types, &attrs.list("Tout")?.types);
        if func.name == SYMBOLIC_GRADIENT {
            return Err(Error::invalid_argument("Can't take gradient of SymbolicGradient"));
        }
        if func.attrs.values().any(is_open) {
            return Err(Error::unimplemented(format!("the gradient of '{}' with attributes that a call gives", func.name.escape_debug())));
        }
        let key = format!("{func:?} {takes:?} {gives:?}");
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        self.known_bytes = self.known_bytes.saturating_add(key.len() as u64);
        if self.known_bytes > MAX_GIVEN {
            return Err(Error::invalid_argument(format!(
                "gradients of functions with more than {MAX_GIVEN} bytes of different attributes"
            )));
        }
        let made = self.find(func, takes, gives);
        self.known.insert(key, made.clone());
        made
    }

    fn find(&mut self, func: &FuncRef, takes: &[i32], gives: &[i32]) -> Result<FuncRef> {
        let Some(gradient) = self.given.get(func.name.as_str()) else { return self.make(func, takes, gives) };
        let missing = || Error::not_found(format!("function '{}' is not in the library", gradient.escape_debug()));
        let signature = &self.functions.find(gradient).ok_or_else(missing)?.signature;
        let given = FuncRef { name: gradient.to_string(), attrs: func.attrs.clone() };
        let own = (types(signature, &func.attrs, true)?, types(signature, &func.attrs, false)?);
        check(&func.name, (&own.0, &own.1), (takes, gives))?;
        Ok(given)
    }

    /// Makes the function that computes a function's gradients.
    fn make(&mut self, func: &FuncRef, takes: &[i32], gives: &[i32]) -> Result<FuncRef> {
        let at = |error: Error| error.context(format!("the gradient of '{}'", func.name.escape_debug()));
        let table = self.registry.table();
        let no_function = || Error::not_found(format!("No gradient defined for op: {}", func.name.escape_debug()));
        let (signature, function) = match self.functions.find(&func.name) {
            Some(function) => (Arc::new(function.signature.clone()), Some(function)),
            None => (table.get(&func.name).ok_or_else(no_function)?, None),
        };
        let (xs, ys) = (types(&signature, &func.attrs, true)?, types(&signature, &func.attrs, false)?);
        // A handle's gradient is that of its variable.
        let own = xs.iter().zip(gives.iter().chain(std::iter::repeat(&0))).map(|(x, given)| if is_handle(*x) { *given } else { *x });
        check(&func.name, (&[&xs[..], &ys].concat(), &own.collect::<Vec<i32>>()), (takes, gives))?;
        let arguments = arguments(&signature, &xs, gives, &func.attrs)?;
        let flat = match function {
            Some(function) => self.body(function, func, arguments).map_err(at)?,
            None => single(&func.name, &func.attrs, ys.len(), arguments),
        };
        // What is made is some times as large.
        self.nodes = self.nodes.saturating_add(flat.nodes.len() as u64);
        if self.nodes > MAX_NODES {
            return Err(Error::invalid_argument(format!("gradients of functions come to more than {MAX_NODES} nodes")));
        }
        let mut graph = Graph::of_nodes(flat.nodes, table).map_err(at)?;
        graph.library = Arc::new(Library { functions: flat.called, ..Library::default() });
        let wanted = Wanted { xs: xs.len(), gives, ys: &flat.ys };
        let made = wanted.gradients(graph.clone(), self.registry, true).or_else(|_| wanted.gradients(graph, self.registry, false));
        let made = made.map_err(at)?;
        let name = self.name(&func.name);
        let has_effect = |id: NodeId| effects::has_effect(&made.graph.node(id).op, self.registry, &self.functions);
        self.made.push(made.function(&name, gives, &flat.must_run, has_effect));
        Ok(FuncRef { name, attrs: Attrs::new() })
    }

    /// A name that no function has.
    fn name(&mut self, function: &str) -> String {
        let number = self.numbers.entry(function.to_string()).or_insert(0);
        loop {
            *number += 1;
            let name = match *number {
                1 => format!("gradient of {function}"),
                _ => format!("gradient of {function} ({number})"),
            };
            if self.names.insert(name.clone()) {
                return name;
            }
        }
    }

    fn body(&self, function: &'a FunctionDef, func: &FuncRef, mut nodes: IdVec<NodeId, Node>) -> Result<Flat> {
        let given: Vec<Output> = nodes.ids().map(|node| Output { node, index: 0 }).collect();
        let body = Body::put(&mut nodes, "", (self.registry.table(), &self.functions), (function, func), &given)?;
        let mut known = HashSet::new();
        let called = nodes.values().filter(|node| known.insert(node.op.as_str())).filter_map(|node| self.functions.find(&node.op));
        let called = called.map(|function| FunctionDef { signature: function.signature.clone(), ..FunctionDef::default() }).collect();
        let (ys, must_run) = (body.results()?, body.must_run("")?);
        Ok(Flat { nodes, ys, must_run, called })
    }
}

/// The gradients of one function.
struct Wanted<'a> {
    /// How many arguments it has: the first nodes of its graph.
    xs: usize,
    /// The types of their gradients.
    gives: &'a [i32],
    ys: &'a [Output],
}

impl Wanted<'_> {
    fn gradients(&self, graph: Graph, registry: &Arc<Registry>, integers: bool) -> Result<Gradients> {
        let xs: Vec<Output> = graph.nodes().ids().take(self.xs).map(|node| Output { node, index: 0 }).collect();
        let mut builder = GraphBuilder::extend(graph, Arc::clone(registry))?;
        let mut ys = Vec::with_capacity(self.ys.len());
        for y in self.ys {
            let data_type = builder.data_type(*y);
            ys.push((*y, builder.placeholder("gradient_of_result", data_type, PartialShape::unknown()).build()?));
        }
        let found = builder.gradients_of_body(&ys, &xs, integers)?;
        let mut all = Vec::with_capacity(xs.len());
        for ((x, gradient), data_type) in xs.iter().zip(found).zip(self.gives) {
            let gradient = match gradient {
                Some(gradient) => gradient,
                None => {
                    let like = match builder.data_type(*x) {
                        DataType::Resource => builder.op("ReadVariableOp").input(*x).attr("dtype", AttrValue::Type(*data_type)).build()?,
                        _ => *x,
                    };
                    builder.op("ZerosLike").input(like).build()?
                }
            };
            let made = builder.data_type(gradient);
            if made.number() != *data_type {
                let wanted = DataType::from_number(*data_type).map_or("unknown", DataType::name);
                return Err(Error::invalid_argument(format!("the gradient of argument {} is {made}, not {wanted}", all.len())));
            }
            all.push(gradient);
        }
        let arguments = xs.iter().chain(ys.iter().map(|(_, gradient)| gradient)).map(|argument| argument.node).collect();
        Ok(Gradients { graph: builder.finish(), arguments, found: all })
    }
}

/// A body with its gradients.
struct Gradients {
    graph: Graph,
    /// The placeholders of the arguments, and of the gradients of the results.
    arguments: Vec<NodeId>,
    /// The gradients of the arguments.
    found: Vec<Output>,
}

impl Gradients {
    /// The function of that name. Its own operation has no effects: where nothing reads a SymbolicGradient, it does not run.
    fn function(&self, function: &str, gives: &[i32], must_run: &[NodeId], has_effect: impl Fn(NodeId) -> bool) -> FunctionDef {
        let name = |id: NodeId| self.graph.node(id).name.clone();
        // Calls in the body mostly give nothing that gradients need: bodies in bodies would run again and again.
        let effects = self.graph.nodes().ids().filter(|id| has_effect(*id));
        let mut open: Vec<NodeId> = self.found.iter().map(|tensor| tensor.node).chain(must_run.iter().copied()).chain(effects).collect();
        let mut is_left_out = IdVec::filled(true, self.graph.nodes().len());
        while let Some(id) = open.pop() {
            if std::mem::replace(&mut is_left_out[id], false) {
                let node = self.graph.node(id);
                open.extend(node.inputs.iter().map(|input| input.node).chain(node.controls.iter().copied()));
            }
        }
        self.arguments.iter().for_each(|id| is_left_out[*id] = true);
        let nodes = self.graph.node_defs().into_iter().zip(self.graph.nodes().ids());
        let nodes = nodes.filter(|(_, id)| !is_left_out[*id]).map(|(node, _)| node).collect();
        let argument = |name: String, data_type: i32| ArgDef { name, data_type, ..ArgDef::default() };
        let taken = |id: &NodeId| argument(name(*id), self.graph.node(*id).attrs.data_type("dtype").map_or(0, DataType::number));
        let inputs = self.arguments.iter().map(taken).collect();
        let result = |index: usize| format!("gradient_{index}");
        let outputs = gives.iter().enumerate().map(|(index, data_type)| argument(result(index), *data_type)).collect();
        let ret = self.found.iter().enumerate().map(|(index, tensor)| (result(index), self.graph.tensor_name(*tensor))).collect();
        let control_ret = must_run.iter().map(|id| (name(*id), name(*id))).collect();
        let signature = OpDef { name: function.to_string(), inputs, outputs, ..OpDef::default() };
        FunctionDef { signature, nodes, ret, control_ret, ..FunctionDef::default() }
    }
}

/// Placeholders for a function's arguments, under their names.
fn arguments(signature: &OpDef, xs: &[i32], gives: &[i32], attrs: &Attrs) -> Result<IdVec<NodeId, Node>> {
    let mut nodes = IdVec::new();
    let mut next = xs.iter().zip(gives);
    for (arg, count) in signature.inputs.iter().zip(signature.input_lengths(attrs)?) {
        for (index, (data_type, gradient)) in next.by_ref().take(count).enumerate() {
            let name = if index == 0 { arg.name.clone() } else { format!("{}/{index}", arg.name) };
            let shape = AttrValue::Shape(PartialShape::unknown());
            let mut attrs = Attrs::from([("dtype".to_string(), AttrValue::Type(*data_type)), ("shape".to_string(), shape)]);
            if is_handle(*data_type) {
                let types = AttrList { types: vec![*gradient], ..AttrList::default() };
                attrs.insert("_handle_dtypes".to_string(), AttrValue::List(Box::new(types)));
            }
            nodes.push(Node { name, op: "Placeholder".to_string(), attrs, ..Node::default() });
        }
    }
    Ok(nodes)
}

/// An operation by itself.
fn single(op: &str, attrs: &Attrs, results: usize, mut nodes: IdVec<NodeId, Node>) -> Flat {
    let inputs = nodes.ids().map(|node| Output { node, index: 0 }).collect();
    let node = nodes.push(Node { name: op.to_string(), op: op.to_string(), inputs, attrs: attrs.clone(), ..Node::default() });
    let ys = (0..results as u32).map(|index| Output { node, index }).collect();
    Flat { nodes, ys, must_run: Vec::new(), called: Vec::new() }
}

/// The types of the arguments, or of the results, by their wire numbers.
fn types(signature: &OpDef, attrs: &Attrs, arguments: bool) -> Result<Vec<i32>> {
    let types = if arguments { signature.input_types(attrs)? } else { signature.output_types(attrs)? };
    Ok(types.iter().map(|arg| arg.number()).collect())
}

fn is_handle(data_type: i32) -> bool {
    data_type == DataType::Resource.number()
}

/// Whether a value has a part that the call of a function gives.
fn is_open(value: &AttrValue) -> bool {
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        match value {
            AttrValue::Placeholder(_) => return true,
            AttrValue::Func(func) => open.extend(func.attrs.values()),
            AttrValue::List(list) => open.extend(list.funcs.iter().flat_map(|func| func.attrs.values())),
            _ => {}
        }
    }
    false
}

/// Refuses a SymbolicGradient of other types than its function's: what it takes and gives.
fn check(function: &str, own: (&[i32], &[i32]), node: (&[i32], &[i32])) -> Result<()> {
    let name = |number: &i32| DataType::from_number(*number).map_or("unknown", DataType::name);
    for (what, own, node) in [("takes", own.0, node.0), ("gives", own.1, node.1)] {
        let function = function.escape_debug();
        if own.len() != node.len() {
            let text = format!("the gradient of '{function}' {what} {} tensors, and the node {}", own.len(), node.len());
            return Err(Error::invalid_argument(text));
        }
        if let Some(index) = (0..own.len()).find(|index| own[*index] != node[*index]) {
            let (own, node) = (name(&own[index]), name(&node[index]));
            let text = format!("tensor {index} that the gradient of '{function}' {what} is {own}, and that of the node {node}");
            return Err(Error::invalid_argument(text));
        }
    }
    Ok(())
}
