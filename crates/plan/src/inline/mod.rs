//! Calls of functions become the functions' bodies, If becomes Switch and Merge around its branches' bodies.
//!
//! A call's node stays under its name, as an IdentityN of the results that waits for what the function must run: it can be
//! fetched and targeted as before. Nodes of the body are named `call/node`; those of an If `if/If/then/node`.

mod body;
mod branch;

use std::collections::{BTreeSet, HashMap};

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{AttrList, AttrValue, Attrs, AttrsExt, FuncRef, Graph, GraphDef, Library, NodeDef, OpTable};

pub(crate) use self::body::Body;

/// More nodes than this are taken for functions that call each other without end.
const MAX_NODES: usize = 2_000_000;

/// The graph with every call replaced by the body of its function, and every If by both of its branches. Functions that are
/// arguments of While and the like stay where they are.
///
/// # Errors
/// UNIMPLEMENTED for functions that call themselves; INVALID_ARGUMENT naming the call where the function does not exist, its
/// body makes no sense, or the graph grows beyond measure.
pub fn inline(graph: &Graph, ops: &OpTable) -> Result<Graph> {
    let is_branch = |op: &str| branch::is_branch(op);
    if !graph.nodes().values().any(|node| is_branch(&node.op) || called(&node.op, &node.attrs, &graph.library).is_some()) {
        return Ok(graph.clone());
    }
    // Functions are shared, not copied: most of a file is functions.
    let nodes = graph.node_defs();
    let names = nodes.iter().map(|node| node.name.clone()).collect();
    let mut inliner =
        Inliner { library: &graph.library, ops, nodes: Vec::with_capacity(nodes.len()), names, path: Vec::new(), handles: HashMap::new() };
    for node in nodes {
        inliner.node(node)?;
    }
    inliner.read_handles_where_they_are();
    let (versions, carried) = (graph.versions.clone(), graph.carried.clone());
    let def = GraphDef { nodes: inliner.nodes, library: Library::default(), versions, carried };
    let mut inlined = Graph::resolve(def, ops)?;
    inlined.library = graph.library.clone();
    Ok(inlined)
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
    /// The names of all nodes, of bodies that are on their way too.
    names: BTreeSet<String>,
    /// The functions that are being inlined, outermost first.
    path: Vec<String>,
    /// For results of calls that are resources, as `call:k`: what gives them in the body.
    handles: HashMap<String, String>,
}

/// Where a body is put.
struct Site<'a> {
    /// What its nodes' names begin with.
    prefix: &'a str,
    /// What nodes that name no device ask for or prefer.
    wish: Wish<'a>,
    /// What all its nodes wait for, as control inputs.
    controls: &'a [&'a String],
    /// What those of its nodes wait for that wait for nothing else.
    start: Option<&'a str>,
}

/// The attribute that says which device a node prefers that names none: that of the call whose body it is in.
pub(crate) const CALLER_DEVICE: &str = "_caller_device";

/// What the nodes of a body do that name no device.
#[derive(Clone, Copy)]
struct Wish<'a> {
    /// They ask for this one, where it is said: sides of a condition.
    device: &'a str,
    /// They prefer this one: bodies of calls.
    caller: &'a str,
}

impl<'a> Wish<'a> {
    /// What a node prefers, as a part of the body of a call.
    fn caller_of(attrs: &'a Attrs) -> &'a str {
        attrs.text(CALLER_DEVICE).unwrap_or("")
    }

    /// Writes it to a node.
    fn give(self, device: &mut String, attrs: &mut Attrs) {
        if device.is_empty() {
            *device = self.device.to_string();
        }
        if device.is_empty() && !self.caller.is_empty() {
            attrs.insert(CALLER_DEVICE.to_string(), AttrValue::text(self.caller));
        }
    }
}

/// What a body gives.
struct Given {
    results: Vec<String>,
    types: Vec<i32>,
    /// Control inputs.
    must_run: Vec<String>,
}

impl Inliner<'_> {
    fn node(&mut self, node: NodeDef) -> Result<()> {
        if self.nodes.len() >= MAX_NODES {
            return Err(Error::invalid_argument(format!("the graph has more than {MAX_NODES} nodes once its calls are inlined"))
                .at_node(&node.name));
        }
        let name = node.name.clone();
        let done = match called(&node.op, &node.attrs, self.library) {
            Some(func) => self.call(node, &func),
            None if branch::is_branch(&node.op) => self.branch(node),
            None => {
                self.nodes.push(node);
                Ok(())
            }
        };
        done.map_err(|error| error.at_node(name))
    }

    fn call(&mut self, call: NodeDef, func: &FuncRef) -> Result<()> {
        let (controls, data): (Vec<&String>, Vec<&String>) = call.inputs.iter().partition(|input| input.starts_with('^'));
        let data: Vec<String> = data.into_iter().cloned().collect();
        let prefix = self.prefix(&call.name);
        let caller = if call.device.is_empty() { Wish::caller_of(&call.attrs) } else { &call.device };
        let wish = Wish { device: "", caller };
        let given = self.body(func, &data, &Site { prefix: &prefix, wish, controls: &controls, start: None })?;
        let waits = given.must_run.into_iter().chain(controls.into_iter().cloned());
        let types = call.attrs.list("Tout").map_or(given.types, |list| list.types.clone());
        let are_handles = types.iter().map(|kind| *kind == DataType::Resource.number());
        let handles = given.results.iter().zip(are_handles).enumerate().filter(|(_, (_, is_handle))| *is_handle);
        self.handles.extend(handles.map(|(slot, (result, _))| (format!("{}:{slot}", call.name), result.clone())));
        let results = results(&call, given.results, types, waits);
        self.nodes.push(results);
        Ok(())
    }

    /// A name under which there are no nodes yet.
    fn prefix(&mut self, wanted: &str) -> String {
        let mut prefix = wanted.to_string();
        for attempt in 1.. {
            let below = format!("{prefix}/");
            if !self.names.range(below.clone()..).next().is_some_and(|name| name.starts_with(&below)) {
                break;
            }
            prefix = format!("{wanted}_{attempt}");
        }
        prefix
    }

    /// Puts the body of a function at a site.
    fn body(&mut self, func: &FuncRef, data: &[String], site: &Site<'_>) -> Result<Given> {
        let library = self.library;
        let function =
            library.find(&func.name).ok_or_else(|| Error::invalid_argument(format!("function '{}' is not in the library", func.name)))?;
        if self.path.contains(&func.name) {
            return Err(Error::unimplemented(format!("recursive function calls: '{}' calls itself", func.name)));
        }
        let body = Body::new(self.ops, function, func, site.prefix, data)?;
        self.path.push(func.name.clone());
        self.names.extend(function.nodes.iter().map(|node| format!("{}/{}", site.prefix, node.name)));
        for node in &function.nodes {
            let mut inputs = node.inputs.iter().map(|input| body.input(input)).collect::<Result<Vec<_>>>()?;
            inputs.extend(site.controls.iter().map(|control| control.to_string()));
            if inputs.is_empty() {
                inputs.extend(site.start.map(|start| format!("^{start}")));
            }
            let (mut device, mut attrs) = (node.device.clone(), body.attrs(&node.attrs)?);
            site.wish.give(&mut device, &mut attrs);
            self.colocate(&mut attrs, site.prefix);
            let name = format!("{}/{}", site.prefix, node.name);
            self.node(NodeDef { name, op: node.op.clone(), inputs, device, attrs, carried: node.carried.clone() })?;
        }
        self.path.pop();
        Ok(Given { results: body.results()?, types: body.result_types()?, must_run: body.must_run() })
    }
}

impl Inliner<'_> {
    /// Lets those who read a resource that a call returned read it in the body, when the call is over: the IdentityN that stands
    /// for the call would hide from placement whose device they share.
    fn read_handles_where_they_are(&mut self) {
        if self.handles.is_empty() {
            return;
        }
        for node in &mut self.nodes {
            let mut waits = BTreeSet::new();
            for input in &mut node.inputs {
                // A graph may be wrong and go in circles.
                let mut passed = BTreeSet::new();
                while let Some(result) = self.handles.get(&if input.contains(':') { input.clone() } else { format!("{input}:0") }) {
                    if !passed.insert(format!("^{}", input.split(':').next().unwrap_or_default())) {
                        break;
                    }
                    *input = result.clone();
                }
                waits.extend(passed);
            }
            waits.retain(|wait| !node.inputs.contains(wait));
            node.inputs.extend(waits);
        }
    }

    /// `_class` names nodes of the body by what they are called there; what is neither in the body nor outside is forgotten.
    fn colocate(&self, attrs: &mut Attrs, prefix: &str) {
        let Some(AttrValue::List(classes)) = attrs.get_mut("_class") else { return };
        let spelled = |class: &Vec<u8>| {
            let Some(name) = std::str::from_utf8(class).ok().and_then(|class| class.strip_prefix("loc:@")) else {
                return Some(class.clone());
            };
            let inside = format!("{prefix}/{name}");
            let found = [inside, name.to_string()].into_iter().find(|name| self.names.contains(name))?;
            Some(format!("loc:@{found}").into_bytes())
        };
        classes.bytes = classes.bytes.iter().filter_map(spelled).collect();
    }
}

/// The node that stands where a call stood.
fn results(call: &NodeDef, mut inputs: Vec<String>, types: Vec<i32>, waits: impl IntoIterator<Item = String>) -> NodeDef {
    inputs.extend(waits);
    let (op, mut attrs) = match types.is_empty() {
        true => ("NoOp", Attrs::new()),
        false => ("IdentityN", Attrs::from([("T".to_string(), AttrValue::List(Box::new(AttrList { types, ..AttrList::default() })))])),
    };
    attrs.extend(call.attrs.get_key_value(CALLER_DEVICE).map(|(name, value)| (name.clone(), value.clone())));
    let (name, device, carried) = (call.name.clone(), call.device.clone(), call.carried.clone());
    NodeDef { name, op: op.to_string(), inputs, device, attrs, carried }
}
