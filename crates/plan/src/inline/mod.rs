//! Calls of functions become the functions' bodies, If becomes Switch and Merge around its branches' bodies.
//!
//! A call's node stays under its name, so that it can be fetched and targeted as before. It is an IdentityN of the results that
//! waits for what the function must run. Nodes of the body are named `call/node`; those of an If `if/If/then/node`. Where the name
//! of a call is very long, or calls lie very deep in each other, `call` is a shorter name.
//!
//! Nothing here recurses: calls wait in a queue, and a body is made when its call's turn comes. [`size`] has counted the result
//! before.

mod body;
mod branch;
mod calls;
mod functions;
mod site;
mod size;

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::ops::Range;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::id::Id;
use plimsoll_graph::{AttrList, AttrValue, Attrs, AttrsExt, FuncRef, Graph, GraphDef, Library, MAX_OUTPUTS, NodeDef, NodeId, OpTable};

pub(crate) use self::body::Body;
pub use self::calls::{Calls, Part};
pub(crate) use self::functions::Functions;
use self::functions::is_partitioned;
use self::site::{Manner, Scope, ScopeId, Site};
pub(crate) use self::size::check as check_size;

/// A graph without calls.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inlined {
    /// The graph.
    pub graph: Graph,
    /// Which of its nodes came from which call.
    pub calls: Calls,
}

/// The graph with every call replaced by the body of its function, and every If by both of its branches. Functions that are
/// arguments of While and the like stay where they are.
///
/// # Errors
/// UNIMPLEMENTED for functions that call themselves. INVALID_ARGUMENT naming the call where the function does not exist, its body
/// makes no sense, or the graph grows beyond measure. That it would is known before anything is made.
pub fn inline(graph: &Graph, ops: &OpTable) -> Result<Inlined> {
    let functions = Functions::of(&graph.library);
    if !graph.nodes().values().any(|node| functions.expands(&node.op, &node.attrs)) {
        return Ok(Inlined { graph: graph.clone(), calls: Calls::default() });
    }
    size::check(graph, &functions)?;
    // Functions are shared, not copied: most of a file is functions.
    let given = graph.node_defs();
    let mut inliner = Inliner {
        functions: &functions,
        ops,
        items: Vec::with_capacity(given.len()),
        expansions: Vec::new(),
        waiting: VecDeque::new(),
        scopes: Vec::new(),
        names: given.iter().map(|node| node.name.clone()).collect(),
        handles: HashMap::new(),
        beside: HashSet::new(),
        outputs: 0,
        shortened: 0,
    };
    for node in given {
        inliner.put(node, Tag::default(), None);
    }
    let outermost = inliner.items.len();
    while let Some(waiting) = inliner.waiting.pop_front() {
        let name = waiting.node.name.clone();
        inliner.expand(waiting).map_err(|error| error.at_node(name))?;
    }
    let (mut nodes, calls) = inliner.in_order(outermost);
    ask_as_inputs_do(&inliner.beside, &mut nodes);
    read_handles_where_they_are(&inliner.handles, &mut nodes);
    let (versions, carried) = (graph.versions.clone(), graph.carried.clone());
    let def = GraphDef { nodes, library: Library::default(), versions, carried };
    let mut inlined = Graph::resolve(def, ops)?;
    inlined.library = graph.library.clone();
    Ok(Inlined { graph: inlined, calls })
}

struct Inliner<'a> {
    functions: &'a Functions<'a>,
    ops: &'a OpTable,
    /// The nodes that were made, bodies behind their calls.
    items: Vec<Item>,
    /// By number: the items that stand where a call or a condition stood, the node under its name last.
    expansions: Vec<Range<usize>>,
    /// Calls and conditions whose bodies are not made yet.
    waiting: VecDeque<Waiting>,
    scopes: Vec<Scope<'a>>,
    /// The names of all nodes.
    names: BTreeSet<String>,
    /// For results of calls that are resources, as `call:k`: the node that gives them in the body.
    handles: HashMap<String, String>,
    /// The Switches that ask for the device of their data's request.
    beside: HashSet<String>,
    /// How many outputs the nodes of all bodies have.
    outputs: usize,
    /// How many names of calls were too long.
    shortened: usize,
}

enum Item {
    Node(NodeDef, Tag),
    Expansion(usize),
}

/// Where a node belongs.
#[derive(Clone, Copy, Default)]
struct Tag {
    /// The number of the call in whose body it is.
    call: Option<usize>,
    is_bound: bool,
    branches: u32,
    is_generator: bool,
}

/// A call or condition.
struct Waiting {
    number: usize,
    node: NodeDef,
    tag: Tag,
    /// The body that it is in.
    scope: Option<ScopeId>,
}

/// The results of a body.
struct Given {
    results: Vec<String>,
    types: Vec<i32>,
    /// Control inputs.
    must_run: Vec<String>,
}

impl<'a> Inliner<'a> {
    /// Puts a node where it stands; a call or a condition is looked into later.
    fn put(&mut self, node: NodeDef, tag: Tag, scope: Option<ScopeId>) {
        if !self.functions.expands(&node.op, &node.attrs) {
            self.items.push(Item::Node(node, tag));
            return;
        }
        let number = self.expansions.len();
        self.expansions.push(0..0);
        self.items.push(Item::Expansion(number));
        self.waiting.push_back(Waiting { number, node, tag, scope });
    }

    fn expand(&mut self, waiting: Waiting) -> Result<()> {
        let (number, start) = (waiting.number, self.items.len());
        match self.functions.called(&waiting.node.op, &waiting.node.attrs) {
            Some(func) => self.call(waiting, &func)?,
            None => self.branch(waiting)?,
        }
        self.expansions[number] = start..self.items.len();
        Ok(())
    }

    fn call(&mut self, waiting: Waiting, func: &FuncRef) -> Result<()> {
        let Waiting { number, node: call, tag, scope } = waiting;
        let (controls, data): (Vec<String>, Vec<String>) = call.inputs.iter().cloned().partition(|input| input.starts_with('^'));
        let prefix = self.prefix(&call.name);
        // A function that is called by its own name runs on one device; the requests of a call reach only its nodes.
        let is_bound = !is_partitioned(&call.op);
        let manner = if is_bound { Manner::Bound } else { Manner::Own };
        let start = (!controls.is_empty()).then(|| self.start(func, &prefix, &call, controls.clone(), tag));
        let inside = Tag { call: Some(number), is_bound, branches: 0, is_generator: false };
        let site = Site { prefix, manner, device: call.device.clone(), tag: inside, parent: scope, start, all_wait: true };
        let given = self.body(func, &data, site)?;
        let waits = given.must_run.into_iter().chain(controls);
        let types = call.attrs.list("Tout").map_or(given.types, |list| list.types.clone());
        let are_handles = types.iter().map(|kind| *kind == DataType::Resource.number());
        let handles = given.results.iter().zip(are_handles).enumerate().filter(|(_, (_, is_handle))| *is_handle);
        self.handles.extend(handles.map(|(slot, (result, _))| (format!("{}:{slot}", call.name), result.clone())));
        let is_generator = data.is_empty() && types.len() == 1;
        self.items.push(Item::Node(results(&call, given.results, types, waits), Tag { is_generator, ..tag }));
        Ok(())
    }

    /// A node that waits for the same as a call, for its body to wait for.
    fn start(&mut self, func: &FuncRef, prefix: &str, call: &NodeDef, controls: Vec<String>, tag: Tag) -> String {
        let taken =
            |name: &str| self.functions.find(&func.name).is_some_and(|function| function.nodes.iter().any(|node| node.name == name));
        let mut name = "input_control_node".to_string();
        while taken(&name) {
            name.push('_');
        }
        let name = format!("{prefix}/{name}");
        self.names.insert(name.clone());
        let (op, device) = ("NoOp".to_string(), call.device.clone());
        let node = NodeDef { name: name.clone(), op, inputs: controls, device, ..NodeDef::default() };
        self.items.push(Item::Node(node, tag));
        name
    }

    /// A name under which there are no nodes yet.
    fn prefix(&mut self, wanted: &str) -> String {
        let short = self.shortened(wanted);
        let wanted = short.as_deref().unwrap_or(wanted);
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

    /// A short name for a prefix that would begin all names of a body with too many bytes.
    fn shortened(&mut self, wanted: &str) -> Option<String> {
        if wanted.len() <= size::MAX_PREFIX {
            return None;
        }
        self.shortened += 1;
        let head: String = wanted.chars().take(64).collect();
        Some(format!("{head}.._{}", self.shortened))
    }

    /// Puts the body of a function at a site.
    fn body(&mut self, func: &FuncRef, data: &[String], site: Site) -> Result<Given> {
        let function = self
            .functions
            .find(&func.name)
            .ok_or_else(|| Error::invalid_argument(format!("function '{}' is not in the library", func.name)))?;
        let body = Body::new(self.ops, self.functions, function, func, &site.prefix, data)?;
        self.outputs += body.output_count();
        if self.outputs > MAX_OUTPUTS {
            return Err(body::too_many_outputs());
        }
        let given = Given { results: body.results()?, types: body.result_types()?, must_run: body.must_run() };
        self.names.extend(function.nodes.iter().map(|node| format!("{}/{}", site.prefix, node.name)));
        let id = self.scopes.len();
        self.scopes.push(Scope { body, manner: site.manner, prefix: site.prefix, parent: site.parent });
        for node in &function.nodes {
            let Scope { body, prefix, .. } = &self.scopes[id];
            let mut inputs = node.inputs.iter().map(|input| body.input(input)).collect::<Result<Vec<_>>>()?;
            let mut attrs = body.attrs(&node.attrs)?;
            if let Some(start) = &site.start {
                // Nodes that an argument or the start reaches wait through it. A call hands its controls on to its body.
                let has_controls = || node.inputs.iter().any(|input| input.starts_with('^'));
                let is_first = node.inputs.is_empty() || (site.all_wait && node.inputs.iter().any(|input| body.is_argument(input)));
                if is_first || (self.functions.expands(&node.op, &attrs) && !has_controls()) {
                    inputs.push(format!("^{start}"));
                }
            }
            let name = format!("{prefix}/{}", node.name);
            let device = site.manner.device(&node.device, &site.device);
            self.colocate(&mut attrs, id);
            let node = NodeDef { name, op: node.op.clone(), inputs, device, attrs, carried: node.carried.clone() };
            self.put(node, site.tag, Some(id));
        }
        Ok(given)
    }

    /// `_class` names nodes of a body by their names there.
    fn colocate(&self, attrs: &mut Attrs, scope: ScopeId) {
        if self.scopes[scope].manner == Manner::Bound {
            attrs.remove("_class");
            return;
        }
        let Some(AttrValue::List(classes)) = attrs.get_mut("_class") else { return };
        for class in &mut classes.bytes {
            if let Some(label) = std::str::from_utf8(class).ok().and_then(|class| class.strip_prefix("loc:@")) {
                *class = format!("loc:@{}", self.label(label, scope)).into_bytes();
            }
        }
    }

    /// The label outside, for a label of a body. In the body of a call it is a node of it, an argument, or a name for a group of
    /// its nodes. A branch of a condition may also name a node around the condition.
    fn label(&self, label: &str, scope: ScopeId) -> String {
        let mut here = Some(scope);
        while let Some(id) = here {
            let Scope { body, manner, prefix, parent } = &self.scopes[id];
            if let Some(source) = body.source(label) {
                return source.to_string();
            }
            if *manner != Manner::Branch || body.has_node(label) {
                return format!("{prefix}/{label}");
            }
            here = *parent;
        }
        label.to_string()
    }

    /// All nodes in the order in which they stand in the graph and in functions, and where they belong.
    fn in_order(&mut self, outermost: usize) -> (Vec<NodeDef>, Calls) {
        let mut items: Vec<Option<Item>> = std::mem::take(&mut self.items).into_iter().map(Some).collect();
        let (mut nodes, mut tags) = (Vec::with_capacity(items.len()), Vec::with_capacity(items.len()));
        let mut stands = vec![None; self.expansions.len()];
        let mut open = vec![(0..outermost, None)];
        while let Some((range, number)) = open.last_mut() {
            let Some(at) = range.next() else {
                if let Some(number) = *number {
                    stands[number] = Some(NodeId::from_index(nodes.len() - 1));
                }
                open.pop();
                continue;
            };
            match items[at].take() {
                Some(Item::Node(node, tag)) => {
                    nodes.push(node);
                    tags.push(tag);
                }
                Some(Item::Expansion(inner)) => open.push((self.expansions[inner].clone(), Some(inner))),
                None => {}
            }
        }
        let part = |tag: &Tag| Part {
            call: tag.call.and_then(|number| stands[number]),
            is_bound: tag.is_bound,
            branches: tag.branches,
            is_generator: tag.is_generator,
        };
        let calls = Calls::new(tags.iter().map(part).collect());
        (nodes, calls)
    }
}

/// Gives these Switches the requests of the nodes whose outputs they read. A node comes before the Switches that read it.
fn ask_as_inputs_do(beside: &HashSet<String>, nodes: &mut [NodeDef]) {
    if beside.is_empty() {
        return;
    }
    let mut asked: HashMap<String, String> = HashMap::new();
    for node in nodes {
        if beside.contains(&node.name) {
            let source = node.inputs[0].split(':').next().unwrap_or_default();
            node.device = asked.get(source).cloned().unwrap_or_default();
        }
        asked.insert(node.name.clone(), node.device.clone());
    }
}

/// Lets readers of a resource that a call returned read it in the body, when the call is over. The IdentityN in place of the call
/// would hide from placement whose device they share.
fn read_handles_where_they_are(handles: &HashMap<String, String>, nodes: &mut [NodeDef]) {
    if handles.is_empty() {
        return;
    }
    let spelled = |input: &str| if input.contains(':') { input.to_string() } else { format!("{input}:0") };
    let mut ends: HashMap<String, String> = HashMap::new();
    for node in nodes {
        let mut waits = BTreeSet::new();
        for input in &mut node.inputs {
            let key = spelled(input);
            if !handles.contains_key(&key) {
                continue;
            }
            // The call waits for those in it.
            waits.insert(format!("^{}", input.split(':').next().unwrap_or_default()));
            let (mut way, mut here) = (Vec::new(), key);
            // A graph may be wrong and go in circles.
            while !ends.contains_key(&here)
                && way.len() <= handles.len()
                && let Some(next) = handles.get(&here)
            {
                way.push(std::mem::replace(&mut here, spelled(next)));
            }
            let end = ends.get(&here).cloned().unwrap_or(here);
            ends.extend(way.into_iter().map(|passed| (passed, end.clone())));
            *input = end;
        }
        waits.retain(|wait| !node.inputs.contains(wait));
        node.inputs.extend(waits);
    }
}

/// The node that stands where a call stood.
fn results(call: &NodeDef, mut inputs: Vec<String>, types: Vec<i32>, waits: impl IntoIterator<Item = String>) -> NodeDef {
    inputs.extend(waits);
    let (op, attrs) = match types.is_empty() {
        true => ("NoOp", Attrs::new()),
        false => ("IdentityN", Attrs::from([("T".to_string(), AttrValue::List(Box::new(AttrList { types, ..AttrList::default() })))])),
    };
    let (name, device, carried) = (call.name.clone(), call.device.clone(), call.carried.clone());
    NodeDef { name, op: op.to_string(), inputs, device, attrs, carried }
}
