//! Calls of functions become the functions' bodies, If becomes Switch and Merge around its branches' bodies, and While a frame
//! around its condition and its body.
//!
//! A call's node stays under its name, so that it can be fetched and targeted as before. It is an IdentityN of the results that
//! waits for what the function must run. Nodes of the body are named `call/node`; those of an If `if/If/then/node`. Where the name
//! of a call is very long, or calls lie very deep in each other, `call` is a shorter name.
//!
//! Edges are ids from the beginning; a name is made once for each node.
//!
//! Nothing here recurses: calls wait in a queue, and a body is made when its call's turn comes. [`size`] has counted the result
//! before.

mod body;
mod branch;
mod calls;
mod effects;
mod functions;
mod gradient;
mod lowered;
mod repeat;
mod site;
mod size;

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::id::Id;
use plimsoll_graph::{
    AttrList, AttrValue, Attrs, AttrsExt, AttrsPool, FuncRef, FunctionDef, Graph, IdVec, MAX_OUTPUTS, Node, NodeId, Output,
};
use plimsoll_ops::Registry;

pub(crate) use self::body::Body;
pub use self::calls::{Calls, Part};
use self::effects::Effects;
pub(crate) use self::functions::Functions;
use self::functions::{is_loop, is_partitioned};
pub(crate) use self::lowered::lowered;
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

/// The graph with every call replaced by the body of its function, every If by both of its branches, and every While by its
/// condition and its body in a frame. Functions that are arguments of other operations stay where they are.
///
/// # Errors
/// UNIMPLEMENTED for functions that call themselves. INVALID_ARGUMENT naming the call where the function does not exist, its body
/// makes no sense, or the graph grows beyond measure. That it would is known before anything is made.
pub fn inline(graph: &Graph, registry: &Arc<Registry>) -> Result<Inlined> {
    let ops = registry.table();
    let written = graph;
    let differentiated = gradient::differentiate(graph, registry);
    let graph = differentiated.as_ref().unwrap_or(written);
    let functions = Functions::of(&graph.library);
    if !graph.nodes().values().any(|node| functions.expands(&node.op, &node.attrs)) {
        let mut inlined = Inlined { graph: graph.clone(), calls: Calls::default() };
        inlined.graph.library = written.library.clone();
        return Ok(inlined);
    }
    size::check(graph, &functions)?;
    // Functions are shared, not copied: most of a file is functions.
    let mut inliner = Inliner::new(graph, &functions, registry);
    for (id, node) in graph.nodes().iter() {
        inliner.put(id, Node::clone(node), Tag::default(), None);
    }
    let outermost = inliner.items.len();
    while let Some(waiting) = inliner.waiting.pop_front() {
        let id = waiting.id;
        inliner.expand(waiting).map_err(|error| error.at_node(inliner.name(id)))?;
    }
    let (order, calls) = inliner.in_order(outermost);
    inliner.ask_as_inputs_do(&order);
    inliner.read_handles_where_they_are(&order);
    let mut inlined = Graph::of_nodes(inliner.numbered(order)?, ops)?;
    let Graph { library, versions, carried, .. } = written.clone();
    (inlined.library, inlined.versions, inlined.carried) = (library, versions, carried);
    Ok(Inlined { graph: inlined, calls })
}

/// A name that no node of a function has.
fn free_name(function: &FunctionDef, wanted: &str) -> String {
    let mut name = wanted.to_string();
    while function.nodes.iter().any(|node| node.name == name) {
        name.push('_');
    }
    name
}

struct Inliner<'a> {
    functions: &'a Functions<'a>,
    registry: &'a Registry,
    /// All nodes, by numbers that they have until they are in order. Until its turn comes, a node has its name only. The first are
    /// those of the graph.
    made: IdVec<NodeId, Made>,
    /// The nodes as they stand in the graph and in functions.
    items: Vec<Item>,
    /// By number: the items that stand where a call or a condition stood, the node under its name last.
    expansions: Vec<Range<usize>>,
    /// Calls and conditions whose bodies are not made yet.
    waiting: VecDeque<Waiting>,
    scopes: Vec<Scope<'a>>,
    /// The beginnings of all names, up to each `/`.
    prefixes: HashSet<String>,
    /// For results of calls that are resources: the tensor that they are in the body; for those of loops, the tensor that came in.
    handles: HashMap<Output, Output>,
    /// The nodes that ask for the device of another node's request.
    beside: HashMap<NodeId, NodeId>,
    /// How many outputs the nodes of all bodies have.
    outputs: usize,
    /// How many names of calls were too long.
    shortened: usize,
    /// The attributes of bodies' nodes.
    pool: AttrsPool,
}

#[derive(Default)]
struct Made {
    node: Node,
    tag: Tag,
}

#[derive(Clone, Copy)]
enum Item {
    Node(NodeId),
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
    id: NodeId,
    /// Its name is with the nodes that were made.
    node: Node,
    tag: Tag,
    /// The body that it is in.
    scope: Option<ScopeId>,
}

/// The results of a body.
struct Given {
    results: Vec<Output>,
    types: Vec<i32>,
    must_run: Vec<NodeId>,
}

impl<'a> Inliner<'a> {
    /// Knows the names of the graph's nodes.
    fn new(graph: &Graph, functions: &'a Functions<'a>, registry: &'a Registry) -> Inliner<'a> {
        let mut inliner = Inliner {
            functions,
            registry,
            made: IdVec::new(),
            items: Vec::with_capacity(graph.nodes().len()),
            expansions: Vec::new(),
            waiting: VecDeque::new(),
            scopes: Vec::new(),
            prefixes: HashSet::new(),
            handles: HashMap::new(),
            beside: HashMap::new(),
            outputs: 0,
            shortened: 0,
            pool: AttrsPool::default(),
        };
        for node in graph.nodes().values() {
            inliner.named(node.name.clone());
        }
        inliner
    }

    /// A node that has a name, and the rest later.
    fn named(&mut self, name: String) -> NodeId {
        let mut end = name.len();
        // Where a beginning is known, shorter ones are, too.
        while let Some(slash) = name[..end].rfind('/')
            && !self.prefixes.contains(&name[..slash])
        {
            self.prefixes.insert(name[..slash].to_string());
            end = slash;
        }
        self.made.push(Made { node: Node { name, ..Node::default() }, tag: Tag::default() })
    }

    fn name(&self, id: NodeId) -> &str {
        &self.made[id].node.name
    }

    /// The node of a name, made, where it stands.
    fn set(&mut self, id: NodeId, node: Node, tag: Tag) {
        let made = &mut self.made[id];
        let name = std::mem::take(&mut made.node.name);
        *made = Made { node: Node { name, ..node }, tag };
        self.items.push(Item::Node(id));
    }

    /// A node that stands in no function.
    fn add(&mut self, mut node: Node, tag: Tag) -> NodeId {
        let id = self.named(std::mem::take(&mut node.name));
        self.set(id, node, tag);
        id
    }

    /// Puts a node where it stands; a call or a condition is looked into later.
    fn put(&mut self, id: NodeId, node: Node, tag: Tag, scope: Option<ScopeId>) {
        if !self.functions.expands(&node.op, &node.attrs) {
            self.set(id, node, tag);
            return;
        }
        let number = self.expansions.len();
        self.expansions.push(0..0);
        self.items.push(Item::Expansion(number));
        self.waiting.push_back(Waiting { number, id, node, tag, scope });
    }

    fn expand(&mut self, waiting: Waiting) -> Result<()> {
        let (number, start) = (waiting.number, self.items.len());
        match self.functions.called(&waiting.node.op, &waiting.node.attrs) {
            Some(func) => self.call(waiting, &func)?,
            None if is_loop(&waiting.node.op) => self.repeat(waiting)?,
            None => self.branch(waiting)?,
        }
        self.expansions[number] = start..self.items.len();
        Ok(())
    }

    fn call(&mut self, waiting: Waiting, func: &FuncRef) -> Result<()> {
        let Waiting { number, id, node: call, tag, scope } = waiting;
        let prefix = self.name(id).to_string();
        let prefix = self.prefix(&prefix);
        // A function that is called by its own name runs on one device; the requests of a call reach only its nodes.
        let is_bound = !is_partitioned(&call.op);
        let manner = if is_bound { Manner::Bound } else { Manner::Own };
        let start = (!call.controls.is_empty()).then(|| self.start(func, &prefix, &call, tag));
        let inside = Tag { call: Some(number), is_bound, branches: 0, is_generator: false };
        let site =
            Site { prefix, manner, device: call.device.clone(), tag: inside, parent: scope, start, all_wait: true, has_effects: is_bound };
        let given = self.body(func, &call.inputs, site)?;
        let waits = given.must_run.into_iter().chain(call.controls.iter().copied()).collect();
        let types = call.attrs.list("Tout").map_or(given.types, |list| list.types.clone());
        let are_handles = types.iter().map(|kind| *kind == DataType::Resource.number());
        let handles = (0..).zip(given.results.iter().zip(are_handles)).filter(|(_, (_, is_handle))| *is_handle);
        self.handles.extend(handles.map(|(index, (result, _))| (Output { node: id, index }, *result)));
        let is_generator = call.inputs.is_empty() && types.len() == 1;
        self.results(id, call, given.results, types, waits, Tag { is_generator, ..tag });
        Ok(())
    }

    /// A node that waits for the same as a call, for its body to wait for.
    fn start(&mut self, func: &FuncRef, prefix: &str, call: &Node, tag: Tag) -> NodeId {
        let name = match self.functions.find(&func.name) {
            Some(function) => free_name(function, "input_control_node"),
            None => String::new(),
        };
        let (name, op, device) = (format!("{prefix}/{name}"), "NoOp".to_string(), call.device.clone());
        self.add(Node { name, op, controls: call.controls.clone(), device, ..Node::default() }, tag)
    }

    /// Puts the node that stands where a call stood.
    fn results(&mut self, id: NodeId, call: Node, inputs: Vec<Output>, types: Vec<i32>, controls: Vec<NodeId>, tag: Tag) {
        let (op, attrs) = match types.is_empty() {
            true => ("NoOp", Attrs::new()),
            false => ("IdentityN", Attrs::from([("T".to_string(), AttrValue::List(Box::new(AttrList { types, ..AttrList::default() })))])),
        };
        self.set(id, Node { op: op.to_string(), inputs, controls, attrs, ..call }, tag);
    }

    /// A beginning that no name has.
    fn prefix(&mut self, wanted: &str) -> String {
        let short = self.shortened(wanted);
        let wanted = short.as_deref().unwrap_or(wanted);
        let mut prefix = wanted.to_string();
        for attempt in 1.. {
            if !self.prefixes.contains(&prefix) {
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
    fn body(&mut self, func: &FuncRef, data: &[Output], site: Site) -> Result<Given> {
        let function = self
            .functions
            .find(&func.name)
            .ok_or_else(|| Error::invalid_argument(format!("function '{}' is not in the library", func.name)))?;
        let (body, all_attrs) =
            Body::new(self.registry.table(), self.functions, function, func, data, self.made.next_id(), &mut self.pool)?;
        self.outputs += body.output_count();
        if self.outputs > MAX_OUTPUTS {
            return Err(body::too_many_outputs());
        }
        let mut given = Given { results: body.results()?, types: body.result_types()?, must_run: body.must_run(&site.prefix)? };
        let ids: Vec<NodeId> = function.nodes.iter().map(|node| self.named(format!("{}/{}", site.prefix, node.name))).collect();
        let effects = if site.has_effects { Effects::of(function, self.registry, self.functions) } else { Effects::default() };
        given.must_run.extend(effects.always.iter().map(|at| ids[*at]));
        let trigger = (!effects.maybe.is_empty()).then(|| {
            // It runs where they do not.
            let (name, op) = (format!("{}/{}", site.prefix, free_name(function, "effects")), "ControlTrigger".to_string());
            let controls = effects.maybe.iter().map(|at| ids[*at]).collect();
            Node { name, op, controls, device: site.manner.device("", &site.device), ..Node::default() }
        });
        let scope = self.scopes.len();
        self.scopes.push(Scope { body, manner: site.manner, prefix: site.prefix, parent: site.parent });
        for ((id, node), mut attrs) in ids.into_iter().zip(&function.nodes).zip(all_attrs) {
            let Scope { body, prefix, .. } = &self.scopes[scope];
            let (inputs, mut controls) = body.inputs(&node.inputs, prefix).map_err(|error| error.at_node(self.name(id)))?;
            if let Some(start) = site.start {
                // Nodes that an argument or the start reaches wait through it. A call hands its controls on to its body.
                let has_controls = || node.inputs.iter().any(|input| input.starts_with('^'));
                let is_first = node.inputs.is_empty() || (site.all_wait && node.inputs.iter().any(|input| body.is_argument(input)));
                if is_first || (self.functions.expands(&node.op, &attrs) && !has_controls()) {
                    controls.push(start);
                }
            }
            let device = site.manner.device(&node.device, &site.device);
            self.colocate(&mut attrs, scope);
            if let ("Enter" | "RefEnter", Some(AttrValue::Bytes(frame))) = (node.op.as_str(), attrs.get_mut("frame_name")) {
                // A body that is put twice has two loops.
                frame.splice(0..0, format!("{}/", self.scopes[scope].prefix).into_bytes());
            }
            let (name, op, carried) = (String::new(), node.op.clone(), node.carried.clone());
            self.put(id, Node { name, op, inputs, controls, device, attrs, carried }, site.tag, Some(scope));
        }
        given.must_run.extend(trigger.map(|trigger| self.add(trigger, site.tag)));
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
                return self.name(source).to_string();
            }
            if *manner != Manner::Branch || body.node(label).is_some() {
                return format!("{prefix}/{label}");
            }
            here = *parent;
        }
        label.to_string()
    }

    /// All nodes in the order in which they stand in the graph and in functions, and where they belong.
    fn in_order(&self, outermost: usize) -> (Vec<NodeId>, Calls) {
        let mut order = Vec::with_capacity(self.made.len());
        let mut stands = vec![None; self.expansions.len()];
        let mut open = vec![(0..outermost, None)];
        while let Some((range, number)) = open.last_mut() {
            let Some(at) = range.next() else {
                if let Some(number) = *number {
                    stands[number] = Some(NodeId::from_index(order.len() - 1));
                }
                open.pop();
                continue;
            };
            match self.items[at] {
                Item::Node(id) => order.push(id),
                Item::Expansion(inner) => open.push((self.expansions[inner].clone(), Some(inner))),
            }
        }
        let part = |id: &NodeId| {
            let tag = &self.made[*id].tag;
            Part {
                call: tag.call.and_then(|number| stands[number]),
                is_bound: tag.is_bound,
                branches: tag.branches,
                is_generator: tag.is_generator,
            }
        };
        let calls = Calls::new(order.iter().map(part).collect());
        (order, calls)
    }

    /// Gives the nodes in `beside` the requests of the others, which come before them.
    fn ask_as_inputs_do(&mut self, order: &[NodeId]) {
        if self.beside.is_empty() {
            return;
        }
        let mut is_before = IdVec::filled(false, self.made.len());
        for &id in order {
            is_before[id] = true;
            if let Some(&source) = self.beside.get(&id) {
                let asked = if is_before[source] && source != id { self.made[source].node.device.clone() } else { String::new() };
                self.made[id].node.device = asked;
            }
        }
    }

    /// Lets readers of a resource that a call returned read it in the body, when the call is over. The IdentityN in place of the call
    /// would hide from placement whose device they share.
    fn read_handles_where_they_are(&mut self, order: &[NodeId]) {
        if self.handles.is_empty() {
            return;
        }
        let mut ends: HashMap<Output, Output> = HashMap::new();
        for &id in order {
            let mut waits = Vec::new();
            let mut inputs = std::mem::take(&mut self.made[id].node.inputs);
            for input in &mut inputs {
                if !self.handles.contains_key(input) {
                    continue;
                }
                // The call waits for those in it.
                waits.push(input.node);
                let (mut way, mut here) = (Vec::new(), *input);
                // A graph may be wrong and go in circles.
                while !ends.contains_key(&here)
                    && way.len() <= self.handles.len()
                    && let Some(next) = self.handles.get(&here)
                {
                    way.push(std::mem::replace(&mut here, *next));
                }
                let end = ends.get(&here).copied().unwrap_or(here);
                ends.extend(way.into_iter().map(|passed| (passed, end)));
                *input = end;
            }
            waits.sort_by(|a, b| self.name(*a).cmp(self.name(*b)));
            waits.dedup();
            let node = &mut self.made[id].node;
            node.inputs = inputs;
            waits.retain(|wait| !node.controls.contains(wait));
            node.controls.extend(waits);
        }
    }

    /// The nodes, numbered in their order.
    fn numbered(self, order: Vec<NodeId>) -> Result<IdVec<NodeId, Node>> {
        let mut numbers: IdVec<NodeId, Option<NodeId>> = IdVec::filled(None, self.made.len());
        for (index, id) in order.iter().enumerate() {
            numbers[*id] = Some(NodeId::from_index(index));
        }
        let number = |id: NodeId| numbers[id].ok_or_else(|| Error::internal("a node of a body was left out"));
        let mut made = self.made;
        let renumber = |id: NodeId| {
            let mut node = std::mem::take(&mut made[id].node);
            for input in &mut node.inputs {
                input.node = number(input.node)?;
            }
            for control in &mut node.controls {
                *control = number(*control)?;
            }
            Ok(node)
        };
        order.into_iter().map(renumber).collect()
    }
}
