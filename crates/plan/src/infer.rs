//! The nodes that have to run for a signature, and the facts about every tensor in it.

use std::collections::{BTreeMap, HashMap, HashSet};

use plimsoll_base::{ArgType, Code, DataType, Error, Kind, Result, Unfed};
use plimsoll_graph::{Graph, HostTensor, IdVec, NodeId, Output, PartialShape, Shape};
use plimsoll_ops::{Each, Fact, ListFact, Lower, Said, infer_asking};

use crate::alive::{Alive, When};
use crate::frames::{Frames, is_exit, round, stays};
use crate::request::{is_unset, unset_rows};
use crate::widen::{Rounds, Stacks, Widening, appends, fills};
use crate::{Request, Signature};

/// The part of the graph that a signature needs.
pub(crate) struct Pruned {
    /// Nodes that run, every one after its inputs, the graph's order among equals.
    pub order: Vec<NodeId>,
    /// For each of them, the facts about its outputs (of fed outputs: the facts about the feed).
    pub facts: IdVec<NodeId, Vec<Fact>>,
    /// The tensors that are fed.
    pub feeds: Vec<Output>,
    /// The tensors that are wanted.
    pub fetches: Vec<Output>,
    /// The nodes that run for their effects.
    pub targets: Vec<NodeId>,
    /// Their loops.
    pub frames: Frames,
    /// When nodes are alive.
    pub alive: Alive,
    /// Of nodes whose results have no known shape: the inputs whose elements their rules asked for.
    pub unanswered: HashMap<NodeId, Vec<usize>>,
    /// The position of every tensor that is fed.
    pub fed: HashMap<Output, usize>,
    /// By node: whether it runs.
    pub needed: IdVec<NodeId, bool>,
    /// The tensors that bound lists, by the Merge of a list that grows in a loop, or the StackV2; their elements are not known.
    pub bounds: HashMap<NodeId, Output>,
    /// Why nodes fail on the side of a condition that may not be taken, or with a list that is one or another as a condition says.
    /// Nothing is known of their results. Optionals of a condition's sides share places: the reader of one side may find what the
    /// other side gave.
    pub refused: HashMap<NodeId, Error>,
}

impl Pruned {
    /// Whether a tensor is fed.
    pub fn is_fed(&self, tensor: Output) -> bool {
        self.fed.contains_key(&tensor)
    }
}

/// The tensors and nodes that a signature names, and the nodes that it needs.
pub(crate) struct Reach {
    /// The tensors that are fed.
    pub feeds: Vec<Output>,
    /// The tensors that are wanted.
    pub fetches: Vec<Output>,
    /// The nodes that run for their effects.
    pub targets: Vec<NodeId>,
    /// The position of every tensor that is fed.
    pub fed: HashMap<Output, usize>,
    /// By node.
    pub needed: IdVec<NodeId, bool>,
}

/// The part that the request's signature reaches; the placement is not looked at.
pub(crate) fn reach(request: &Request<'_>) -> Result<Reach> {
    let graph = request.graph;
    let signature = request.signature;
    if signature.fetches.is_empty() && signature.targets.is_empty() && !signature.is_stage {
        return Err(Error::invalid_argument("Must specify at least one target to fetch or execute."));
    }
    let feeds = signature.feeds.iter().map(|feed| tensor(request, &feed.tensor)).collect::<Result<Vec<_>>>()?;
    let fetches = signature.fetches.iter().map(|name| tensor(request, name)).collect::<Result<Vec<_>>>()?;
    let targets = signature.targets.iter().map(|name| target(graph, name)).collect::<Result<Vec<_>>>()?;
    let mut fed: HashMap<Output, usize> = HashMap::new();
    for (index, output) in feeds.iter().enumerate() {
        // Of the states of a stack, the last one counts.
        if fed.insert(*output, index).is_some() && !is_stack(graph, *output) {
            return Err(Error::invalid_argument(format!("The tensor {} is fed more than once", graph.tensor_name(*output))));
        }
    }
    let is_handed_on = |index: usize| signature.is_stage && (signature.lengths.contains(&index) || is_stack(graph, fetches[index]));
    let handed_on: HashSet<Output> = (0..fetches.len()).filter(|index| is_handed_on(*index)).map(|index| fetches[index]).collect();
    if let Some(both) = fetches.iter().find(|fetch| fed.contains_key(fetch) && !handed_on.contains(fetch)) {
        return Err(Error::invalid_argument(format!("The tensor {} is both fed and fetched", graph.tensor_name(*both))));
    }
    for output in &feeds {
        check_feed(request, &fed, *output)?;
    }
    let done = signature.done.iter().map(|name| target(graph, name)).collect::<Result<HashSet<_>>>()?;
    let made = fetches.iter().filter(|fetch| !fed.contains_key(fetch)).map(|fetch| fetch.node);
    if let Some(again) = made.chain(targets.iter().copied()).find(|id| done.contains(id)) {
        return Err(Error::invalid_argument(format!("{} was done in an earlier stage", graph.node(again).name)));
    }
    let needed = needed(graph, &fed, &done, &fetches, &targets);
    Ok(Reach { feeds, fetches, targets, fed, needed })
}

/// The facts of nodes in loops are found again and again, so often at most.
const MOST_PASSES: usize = 500;

pub(crate) fn prune_and_infer(request: &Request<'_>) -> Result<Pruned> {
    let (graph, signature) = (request.graph, request.signature);
    let Reach { feeds, fetches, targets, fed, needed } = reach(request)?;
    let order: Vec<NodeId> = graph.topological()?.into_iter().filter(|id| needed[*id]).collect();
    require_fed(request, &fed, &order)?;
    require_built(request, &order)?;
    let mut facts: IdVec<NodeId, Vec<Fact>> = IdVec::filled(Vec::new(), graph.nodes().len());
    // A fed tensor's producer need not run; the facts about the tensor are those of the feed.
    for (output, index) in &fed {
        let feed = &signature.feeds[*index];
        let count = facts[output.node].len().max(output.index as usize + 1);
        facts[output.node].resize_with(count, || Fact::new(feed.data_type, feed.shape.clone().into_partial()));
        facts[output.node][output.index as usize] = feed_fact(request, *output, *index);
    }
    let frames = Frames::new(graph, &order)?;
    let stacks = Stacks::new(graph, &order, &fetches, &facts);
    let mut rounds: Rounds = HashMap::new();
    let (mut alive, mut unanswered, mut bounds, mut refused) = (Alive::default(), HashMap::new(), HashMap::new(), HashMap::new());
    // What is taken for the shape of a loop's values may be taken back: only the last pass can say that a node is wrong. By its position.
    let mut wrong: BTreeMap<usize, Error> = BTreeMap::new();
    // By node: whether a pass has found something else than the one before.
    let mut changed = IdVec::filled(false, graph.nodes().len());
    let mut passes = 0;
    loop {
        bounds.clear();
        for stack in stacks.fed() {
            if let (Some((_, Some(list))), Some(handle)) = (rounds.get(&stack), facts[stack].first_mut()) {
                changed[stack] = handle.list.as_ref() != Some(list);
                handle.list = Some(list.clone());
            }
        }
        for (position, &id) in order.iter().enumerate() {
            if passes > 0 && !looks_further(graph, id) && !comes_after(graph, id).any(|before| changed[before]) {
                changed[id] = false;
                continue;
            }
            let known = |input: &Output| facts[input.node].get(input.index as usize);
            let lower = request.registry.require(&graph.node(id).op)?.lower;
            let lives_otherwise = alive.add(graph, id, lower, known, |output| fed.contains_key(&output));
            wrong.remove(&position);
            refused.remove(&id);
            unanswered.remove(&id);
            let (mut outputs, asked) = match node_facts(request, &alive, &facts, (&fed, &rounds), id) {
                Err(error) if may_be_passed_over(graph, &alive, &facts, id, &error) => {
                    refused.insert(id, error);
                    (unknown_facts(request, id)?, Vec::new())
                }
                Err(error) if is_refused(&error) && frames.has_loops() => {
                    wrong.insert(position, error);
                    (unknown_facts(request, id)?, Vec::new())
                }
                facts => facts?,
            };
            if let (Some((_, Some(stack))), [handle]) = (rounds.get(&id), &mut outputs[..])
                && graph.node(id).op == "StackV2"
            {
                handle.list = Some(stack.clone());
            }
            if let ("StackPopV2", [popped]) = (graph.node(id).op.as_str(), &mut outputs[..]) {
                let list = |tensor: Output| facts[tensor.node].get(tensor.index as usize)?.list.as_ref();
                // The push may have been in an earlier stage.
                let said = said_flow(signature, &graph.node(id).name);
                let known = stacks.popped(graph, id).and_then(list).or(said.as_ref());
                if let Some(flow) = known.or_else(|| list(stacks.array(id)?)) {
                    (popped.shape, popped.list) = ((&plimsoll_graph::Shape::scalar()).into(), Some(flow.clone()));
                }
            }
            if let [Fact { list: Some(list), .. }] = &mut outputs[..]
                && list.most.is_none()
                && appends(graph, &frames, &facts, id)
                && let Some(before) = list_before(graph, &facts, id)
            {
                (list.most, list.least) = (before.most.and_then(|most| most.checked_add(1)), before.least.saturating_add(1));
            }
            if let ([left], true) = (&mut outputs[..], is_exit(graph, id))
                && let Some(list) = &mut left.list
            {
                // How often the loop ran may be known.
                list.length = list.length.or(list.most.filter(|most| *most == list.least));
                list.is_enough = false;
                list.is_full |= fills(graph, &frames, &facts, id, list);
            }
            let lacks = |fact: &Fact| match &fact.list {
                Some(list) => list.room.is_none() && list.length.is_none(),
                None => fact.shape.complete().is_none(),
            };
            if !asked.is_empty() && outputs.iter().any(lacks) {
                unanswered.insert(id, asked);
            }
            changed[id] = passes == 0 || lives_otherwise || facts[id] != outputs;
            facts[id] = outputs;
        }
        let first_wrong = || wrong.values().next().cloned();
        let (rounds, trips) = (&mut rounds, HashMap::new());
        let mut widening = Widening { graph, frames: &frames, facts: &facts, rounds, bounds: &mut bounds, trips };
        let widened = widening.widen(&order).map_err(|error| first_wrong().unwrap_or(error))?;
        if !widened && !widening.make_room(&order) && !widening.stacks(&stacks) {
            match first_wrong() {
                Some(error) => return Err(error),
                None => break,
            }
        }
        passes += 1;
        if passes > MOST_PASSES {
            return Err(Error::unimplemented("not yet: loops whose shapes depend on each other as much as these"));
        }
    }
    Ok(Pruned { order, facts, feeds, fetches, targets, frames, alive, unanswered, fed, needed, bounds, refused })
}

/// The nodes that say what the facts of a node are, and when it is alive; [`looks_further`] has those that look further.
fn comes_after(graph: &Graph, id: NodeId) -> impl Iterator<Item = NodeId> + '_ {
    let node = graph.node(id);
    node.inputs.iter().map(|input| input.node).chain(node.controls.iter().copied())
}

/// Whether a node's facts follow from more than those of its inputs: from what goes round in its loop, from how often that runs, or from
/// what is pushed on a stack.
fn looks_further(graph: &Graph, id: NodeId) -> bool {
    let op = graph.node(id).op.as_str();
    is_exit(graph, id) || matches!(op, "Merge" | "RefMerge" | "StackV2" | "StackPopV2" | "TensorListSetItem" | "TensorArrayWriteV3")
}

/// Whether a node that its rules refuse may still be in a run: one that does not come to it, or not with what is refused.
fn may_be_passed_over(graph: &Graph, alive: &Alive, facts: &IdVec<NodeId, Vec<Fact>>, id: NodeId, error: &Error) -> bool {
    let is_any = |input: &Output| facts[input.node].get(input.index as usize)?.list.as_ref().map(ListFact::is_any);
    let reads_any = || graph.node(id).inputs.iter().any(|input| is_any(input) == Some(true));
    is_refused(error) && (matches!(alive.node(id), When::Under(_)) || reads_any())
}

fn is_refused(error: &Error) -> bool {
    matches!(error.code(), Code::InvalidArgument | Code::Unimplemented)
}

/// What earlier stages say of a flow that a node pops.
fn said_flow(signature: &Signature, pop: &str) -> Option<ListFact> {
    let flow = signature.flows.iter().find(|flow| flow.node == pop)?;
    let length = match &flow.like {
        Some(list) => *signature.feeds.iter().find(|feed| feed.tensor == *list)?.shape.first()?,
        None => flow.length,
    };
    Some(ListFact { is_sum: flow.is_sum, ..list_of_rows(flow.data_type, &unset_rows(length)) })
}

fn is_stack(graph: &Graph, tensor: Output) -> bool {
    graph.node(tensor.node).op == "StackV2"
}

/// What is known of the list that a node writes into.
fn list_before<'a>(graph: &Graph, facts: &'a IdVec<NodeId, Vec<Fact>>, id: NodeId) -> Option<&'a ListFact> {
    let inputs = &graph.node(id).inputs;
    let list = if inputs.len() == 4 { inputs[3] } else { *inputs.first()? };
    facts[list.node].get(list.index as usize)?.list.as_ref()
}

/// The fact about a tensor that is fed.
fn feed_fact(request: &Request<'_>, output: Output, position: usize) -> Fact {
    let feed = &request.signature.feeds[position];
    if !request.signature.lists.contains(&position) {
        return Fact { value: feed.value.clone(), ..Fact::new(feed.data_type, feed.shape.clone().into_partial()) };
    }
    let data_type = tensor_type(request, output).unwrap_or(DataType::Variant);
    let traits = request.signature.traits.iter().find(|(of, _)| *of == position).map(|(_, traits)| traits);
    let list = list_of_rows(feed.data_type, &feed.shape);
    let list = traits.map_or(list.clone(), |traits| traits.on(list));
    Fact { list: Some(list), ..Fact::new(data_type, (&Shape::scalar()).into()) }
}

/// The list that has these rows.
fn list_of_rows(data_type: DataType, rows: &Shape) -> ListFact {
    let length = rows.first().copied().unwrap_or(0);
    let item = match rows.dims() {
        _ if is_unset(rows) => PartialShape::unknown(),
        [] => PartialShape::unknown(),
        dims => PartialShape(Some(dims[1..].iter().copied().map(Some).collect())),
    };
    ListFact {
        data_type,
        said: Said::NOTHING,
        item,
        room: Some(length),
        limit: None,
        length: Some(length),
        most: Some(length),
        least: length,
        is_enough: false,
        each: Each::Unknown,
        grows: false,
        is_sum: false,
        is_full: false,
        has_list: false,
        inner: None,
    }
}

/// The element type of a tensor of the graph.
fn tensor_type(request: &Request<'_>, output: Output) -> Result<DataType> {
    let node = request.graph.node(output.node);
    let types = request.registry.table().require(&node.op)?.output_types(&node.attrs)?;
    types.get(output.index as usize).map(|arg| arg.base).ok_or_else(|| Error::internal("a tensor without a type"))
}

trait IntoPartial {
    fn into_partial(self) -> PartialShape;
}

impl IntoPartial for plimsoll_graph::Shape {
    fn into_partial(self) -> PartialShape {
        (&self).into()
    }
}

/// The tensor of that name, which must exist: the errors are TensorFlow's.
fn tensor(request: &Request<'_>, name: &str) -> Result<Output> {
    let graph = request.graph;
    let output = graph.tensor(name).map_err(|error| match error.code() {
        Code::NotFound => {
            Error::invalid_argument(format!("Tensor {name}, specified in either feed_devices or fetch_devices was not found in the Graph"))
                .suggesting(name.split(':').next().unwrap_or(name), graph.node_names())
        }
        _ => error,
    })?;
    let node = graph.node(output.node);
    let outputs = request.registry.table().require(&node.op)?.output_types(&node.attrs)?.len();
    if output.index as usize >= outputs {
        return Err(Error::out_of_range(format!(
            "Node '{}' (type: '{}', num of outputs: {outputs}) does not have output {}",
            node.name, node.op, output.index
        )));
    }
    Ok(output)
}

fn target(graph: &Graph, name: &str) -> Result<NodeId> {
    let node = name.strip_suffix(":0").unwrap_or(name);
    graph.find(node).ok_or_else(|| {
        Error::not_found(format!("PruneForTargets: Some target nodes not found: {name}")).suggesting(node, graph.node_names())
    })
}

/// The nodes that fetches and targets reach without passing a tensor that is fed, or a node that is done.
pub(crate) fn needed(
    graph: &Graph,
    fed: &HashMap<Output, usize>,
    done: &HashSet<NodeId>,
    fetches: &[Output],
    targets: &[NodeId],
) -> IdVec<NodeId, bool> {
    let mut needed = IdVec::filled(false, graph.nodes().len());
    let wanted = fetches.iter().filter(|fetch| !fed.contains_key(fetch)).map(|fetch| fetch.node);
    let mut stack: Vec<NodeId> = wanted.chain(targets.iter().copied()).collect();
    while let Some(id) = stack.pop() {
        if done.contains(&id) || std::mem::replace(&mut needed[id], true) {
            continue;
        }
        let node = graph.node(id);
        stack.extend(node.inputs.iter().filter(|input| !fed.contains_key(input)).map(|input| input.node));
        stack.extend(node.controls.iter().copied().filter(|control| fed_instead(graph, fed, *control).is_none()));
    }
    needed
}

/// The feed that a control edge out of this node comes from instead: that of a placeholder.
pub(crate) fn fed_instead(graph: &Graph, fed: &HashMap<Output, usize>, id: NodeId) -> Option<usize> {
    fed.get(&Output { node: id, index: 0 }).copied().filter(|_| is_placeholder(graph, id))
}

pub(crate) fn is_placeholder(graph: &Graph, id: NodeId) -> bool {
    matches!(graph.node(id).op.as_str(), "Placeholder" | "PlaceholderWithDefault" | "PlaceholderV2")
}

/// The facts about a node's outputs. Of nodes that are dead in any case only the types are known: their rules may refuse what the
/// other side of a condition has. A Merge has the facts of its other inputs.
fn node_facts(
    request: &Request<'_>,
    alive: &Alive,
    facts: &IdVec<NodeId, Vec<Fact>>,
    (fed, rounds): (&HashMap<Output, usize>, &Rounds),
    id: NodeId,
) -> Result<(Vec<Fact>, Vec<usize>)> {
    let node = request.graph.node(id);
    let at = |error: Error| error.at_node(&node.name);
    let rules = request.registry.require(&node.op).map_err(at)?;
    let def = request.registry.table().require(&node.op).map_err(at)?;
    let is_fed = |output: Output| fed.contains_key(&output);
    let known = |input: &Output| facts[input.node].get(input.index as usize);
    let is_dead = alive.node(id) == When::Never;
    // What leaves a loop without an end is dead, and has a shape.
    let leaves = is_exit(request.graph, id);
    let lives = |input: &Output| leaves || is_fed(*input) || alive.output(*input) != When::Never;
    let positions = 0..if is_dead { 0 } else { node.inputs.len() };
    let round = round(request.graph, id);
    // What goes round is first what comes in.
    let comes_in = |input: &Output| round.is_none_or(|(first, _)| *input == first);
    let living: Vec<usize> = positions.filter(|position| lives(&node.inputs[*position]) && comes_in(&node.inputs[*position])).collect();
    let fact = |position: &usize| known(&node.inputs[*position]).cloned().ok_or_else(|| absent(request.graph, node.inputs[*position]));
    let mut inputs: Vec<Fact> = living.iter().map(fact).collect::<Result<_>>().map_err(at)?;
    if let (Some((_, next)), [input]) = (round, &mut inputs[..])
        && !stays(request.graph, id, next)
    {
        // It has the shape of the first iteration; the elements change.
        let Fact { data_type, shape, handle, list, is_ref, .. } = input.clone();
        let (known_shape, known_list) = rounds.get(&id).cloned().unwrap_or_default();
        // What has become known of the first list since holds of the later ones.
        let list = match (known_list, list) {
            (Some(known), Some(first)) => Some(known.refined_by(&first)),
            (known, first) => known.or(first),
        };
        *input = Fact { handle, list, is_ref, ..Fact::new(data_type, known_shape.unwrap_or(shape)) };
    }
    let (mut outputs, asked) =
        if is_dead { (unknown_facts(request, id)?, Vec::new()) } else { infer_asking(request.registry, &def, node, &inputs)? };
    if let (Lower::Merge, [only], [value, index]) = (rules.lower, &living[..], &mut outputs[..]) {
        index.value = round.is_none().then(|| HostTensor::scalar(*only as i32));
        let Fact { value: known, partial, .. } = inputs[0].clone();
        (value.value, value.partial) = (known.filter(|_| !value.is_ref), partial);
    }
    if let (Lower::PlaceholderWithDefault, [output], [default]) = (rules.lower, &mut outputs[..], &inputs[..]) {
        // A placeholder that is not fed has its default, of any shape.
        *output = Fact { is_ref: output.is_ref, ..default.clone() };
    }
    for (index, fact) in outputs.iter_mut().enumerate() {
        if let Some(feed) = fed.get(&Output { node: id, index: index as u32 }) {
            *fact = feed_fact(request, Output { node: id, index: index as u32 }, *feed);
        }
    }
    Ok((outputs, asked))
}

/// The types of a node's outputs, and no more.
fn unknown_facts(request: &Request<'_>, id: NodeId) -> Result<Vec<Fact>> {
    let node = request.graph.node(id);
    let types = request.registry.table().require(&node.op).and_then(|def| def.output_types(&node.attrs));
    let fact = |arg: &ArgType| Fact { is_ref: arg.is_ref, ..Fact::new(arg.base, PartialShape::unknown()) };
    types.map(|types| types.iter().map(fact).collect()).map_err(|error| error.at_node(&node.name))
}

/// The error for a tensor that an earlier stage has made and that is not fed.
fn absent(graph: &Graph, tensor: Output) -> Error {
    Error::invalid_argument(format!("{} was made in an earlier stage and is not fed", graph.tensor_name(tensor)))
}

/// Placeholders that have to run and are not fed: TensorFlow's error for the first, and all of them as data.
///
/// # Errors
/// INVALID_ARGUMENT of the kind [`Kind::NotFed`].
fn require_fed(request: &Request<'_>, fed: &HashMap<Output, usize>, order: &[NodeId]) -> Result<()> {
    let is_unfed = |id: &NodeId| {
        let lower = request.registry.require(&request.graph.node(*id).op).map(|rules| rules.lower);
        matches!(lower, Ok(Lower::Placeholder)) && !fed.contains_key(&Output { node: *id, index: 0 })
    };
    let missing: Vec<Unfed> = order.iter().filter(|id| is_unfed(id)).map(|id| unfed(request, *id)).collect();
    let Some(first) = missing.first() else { return Ok(()) };
    let said = |unfed: &Unfed| match unfed.shape.as_str() {
        "" => format!("'{}' with dtype {}", unfed.name, unfed.data_type),
        shape => format!("'{}' with dtype {} and shape {shape}", unfed.name, unfed.data_type),
    };
    let mut message = format!("You must feed a value for placeholder tensor {}", said(first));
    if let [_, others @ ..] = &missing[..]
        && !others.is_empty()
    {
        message += &format!("; and for {}", others.iter().map(said).collect::<Vec<_>>().join(", "));
    }
    Err(Error::invalid_argument(message).at_node(&first.name).with_kind(Kind::NotFed(missing)))
}

/// Operations that have to run and have no rules: all of them at once, each with a node.
///
/// # Errors
/// UNIMPLEMENTED at the first of the nodes.
fn require_built(request: &Request<'_>, order: &[NodeId]) -> Result<()> {
    let mut counts: BTreeMap<&str, (NodeId, usize)> = BTreeMap::new();
    for &id in order {
        let op = request.graph.node(id).op.as_str();
        if request.registry.get(op).is_none() {
            counts.entry(op).or_insert((id, 0)).1 += 1;
        }
    }
    let Some(first) = counts.values().map(|(id, _)| *id).min() else { return Ok(()) };
    let node = request.graph.node(first);
    let error = request.registry.require(&node.op).err().unwrap_or_else(|| Error::internal("an operation has rules and has none"));
    if counts.len() == 1 {
        return Err(error.at_node(&node.name));
    }
    let said = |(op, (id, count)): (&&str, &(NodeId, usize))| match count {
        1 => format!("{op} (node {})", request.graph.node(*id).name),
        _ => format!("{op} ({count} nodes, the first is {})", request.graph.node(*id).name),
    };
    let all: Vec<String> = counts.iter().map(said).collect();
    let message = format!("{} operations are not built yet: {}", all.len(), all.join(", "));
    Err(Error::new(error.code(), message).at_node(&node.name))
}

fn unfed(request: &Request<'_>, id: NodeId) -> Unfed {
    let node = request.graph.node(id);
    let def = request.registry.table().get(&node.op);
    let data_type =
        def.and_then(|def| def.output_types(&node.attrs).ok()).and_then(|types| Some(types.first()?.base.name())).unwrap_or("unknown");
    let shape = match node.attrs.get("shape") {
        Some(plimsoll_graph::AttrValue::Shape(shape)) if shape.0.as_ref().is_some_and(|dims| !dims.is_empty()) => shape.to_string(),
        _ => String::new(),
    };
    Unfed { name: node.name.clone(), data_type: data_type.to_string(), shape }
}

fn check_feed(request: &Request<'_>, fed: &HashMap<Output, usize>, output: Output) -> Result<()> {
    let feed = &request.signature.feeds[fed[&output]];
    let node = request.graph.node(output.node);
    let wanted = tensor_type(request, output)?;
    if wanted == feed.data_type || request.signature.lists.contains(&fed[&output]) {
        return Ok(());
    }
    Err(Error::invalid_argument(format!("Expects arg[{}] to be {wanted} but {} is provided", fed[&output], feed.data_type))
        .at_node(&node.name))
}
