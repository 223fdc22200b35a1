//! Freezing: tensors that a graph computes from variables and constants alone are computed once, into variables of their own, which
//! the rest of the graph then reads. A batch norm behind a convolution becomes part of its filter and a bias.
//!
//! ```text
//!  W ─ ReadVariableOp ─┐                                   W ─ … ─ Mul ─ Assign ─▶ folded/filter      (a plan that runs before)
//!                x ─ Conv2D ─ BatchNorm ─ Relu      ⇒
//!                                                    x ─ Conv2D ─ BiasAdd ─ Relu                      (reads folded/filter, folded/bias)
//! ```
//!
//! The graph keeps all of its nodes, with the new ones behind them. A second graph, the rewired one, has the same nodes and reads the
//! folded variables. A plan is made of the rewired graph where that gives the values of the graph as written: where the signature
//! assigns no variable that a folded one is computed from, and feeds none of the tensors that are left out.

mod append;
mod chain;
mod closed;
mod laid_out;

use std::collections::{BTreeSet, HashMap, HashSet};

use plimsoll_base::Result;
use plimsoll_graph::{Graph, IdVec, NodeId, Output};
use plimsoll_ops::Registry;

pub(crate) use self::append::is_added;
use self::closed::Closed;
pub use self::laid_out::{hold_in_panels, in_panels};
use crate::infer::needed;
use crate::lower::variable_key;
use crate::request::Signature;

/// The folded variables of a graph.
#[derive(Clone, Debug)]
pub struct Freeze {
    /// The graph, with folded variables in the place of the tensors that they hold.
    pub rewired: Graph,
    /// In the order in which they were found.
    pub folded: Vec<Folded>,
    /// Nodes that were added, with the nodes on whose devices they are.
    pub beside: Vec<(NodeId, NodeId)>,
    /// By node: whether the rewired graph passes it by, or computes it beforehand.
    left_out: IdVec<NodeId, bool>,
    /// Numbers of folded variables by the nodes that read them.
    readers: HashMap<NodeId, usize>,
}

/// A variable that holds a tensor that was computed beforehand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folded {
    /// Its key among the variables of a session.
    pub key: String,
    /// The node that assigns it.
    pub assign: String,
    /// The keys of the variables that it is computed from.
    pub sources: BTreeSet<String>,
    /// Bytes of these.
    pub source_bytes: u64,
}

/// Adds folded variables to a graph whose calls are inlined. `called` are tensors that signatures compute: a variable that one of
/// these assigns is not folded through. None where there is nothing to fold.
///
/// # Errors
/// INVALID_ARGUMENT for cycles; the error of a shape rule for nodes that are added.
pub fn freeze(graph: &mut Graph, registry: &Registry, called: &[String]) -> Result<Option<Freeze>> {
    let mut closed = Closed::new(graph, registry, &assigned(graph, registry, called))?;
    let mut builder = append::Appender::new(graph, registry, &mut closed);
    let chains = chain::fold(&mut builder)?;
    for (tensor, reader) in builder.closed.frontier(builder.graph, &chains) {
        let name = &builder.graph.node(tensor.node).name;
        let name = if tensor.index == 0 { format!("{name}/folded") } else { format!("{name}/folded_{}", tensor.index) };
        builder.keep(tensor, name, reader)?;
    }
    let append::Appender { beside, readers, kept, folded, .. } = builder;
    if folded.is_empty() {
        return Ok(None);
    }
    let mut rewired = graph.clone();
    closed.rewire(&mut rewired, &chains, &kept);
    let mut left_out = closed.nodes();
    chains.iter().flat_map(chain::Chain::nodes).for_each(|node| left_out[node] = true);
    Ok(Some(Freeze { rewired, folded, beside, left_out, readers }))
}

impl Freeze {
    /// Whether a plan of this signature may be made of the rewired graph. `graph` is the graph with the nodes that were added.
    pub fn applies(&self, graph: &Graph, registry: &Registry, signature: &Signature) -> bool {
        // The rest of a run in stages goes on from tensors of the graph as written.
        if !signature.done.is_empty() {
            return false;
        }
        // Names that make no sense are refused when the plan is made.
        let tensor = |name: &String| graph.tensor(name).ok();
        let Some(feeds) = signature.feeds.iter().map(|feed| tensor(&feed.tensor)).collect::<Option<Vec<Output>>>() else { return false };
        if feeds.iter().any(|feed| self.left_out.get(feed.node).is_some_and(|left_out| *left_out)) {
            return false;
        }
        let fed: HashMap<Output, usize> = feeds.into_iter().enumerate().map(|(index, feed)| (feed, index)).collect();
        let fetches: Vec<Output> = signature.fetches.iter().filter_map(tensor).collect();
        let targets: Vec<NodeId> =
            signature.targets.iter().filter_map(|name| graph.find(name.strip_suffix(":0").unwrap_or(name))).collect();
        let needed = needed(&self.rewired, &fed, &HashSet::new(), &fetches, &targets);
        let read = |(node, index): (&NodeId, &usize)| needed[*node].then(|| &self.folded[*index].sources);
        let sources: BTreeSet<&String> = self.readers.iter().filter_map(read).flatten().collect();
        let nodes = needed.iter().filter(|(_, is_needed)| **is_needed).map(|(id, _)| id);
        !nodes.flat_map(|id| writes(&self.rewired, registry, id)).any(|key| key.is_none_or(|key| sources.contains(&key)))
    }

    /// The folded variables with these keys, in groups that are computed one after the other. What a group is computed from takes
    /// no more than what the largest single one is computed from, so that few variables are there twice.
    pub fn groups(&self, keys: &BTreeSet<&str>) -> Vec<Vec<&Folded>> {
        let wanted: Vec<&Folded> = self.folded.iter().filter(|folded| keys.contains(folded.key.as_str())).collect();
        let most = wanted.iter().map(|folded| folded.source_bytes).max().unwrap_or(0);
        let mut groups: Vec<Vec<&Folded>> = Vec::new();
        let mut bytes = 0;
        for folded in wanted {
            let shares = |other: &&Folded| !other.sources.is_disjoint(&folded.sources);
            match groups.last_mut() {
                // Those of one source are computed together: it is read once.
                Some(last) if last.iter().any(shares) => last.push(folded),
                Some(last) if bytes + folded.source_bytes <= most => {
                    bytes += folded.source_bytes;
                    last.push(folded);
                }
                _ => {
                    bytes = folded.source_bytes;
                    groups.push(vec![folded]);
                }
            }
        }
        groups
    }
}

/// The keys of variables that signatures with these results assign.
fn assigned(graph: &Graph, registry: &Registry, called: &[String]) -> BTreeSet<String> {
    let fetches: Vec<Output> = called.iter().filter_map(|name| graph.tensor(name).ok()).collect();
    let needed = needed(graph, &HashMap::new(), &HashSet::new(), &fetches, &[]);
    let nodes = needed.iter().filter(|(_, is_needed)| **is_needed).map(|(id, _)| id);
    nodes.flat_map(|id| writes(graph, registry, id)).flatten().collect()
}

/// The keys of the variables that a node may change; none in the place of one that is known only when the graph runs.
fn writes<'a>(graph: &'a Graph, registry: &'a Registry, id: NodeId) -> impl Iterator<Item = Option<String>> + 'a {
    let node = graph.node(id);
    let reads = matches!(node.op.as_str(), "ReadVariableOp" | "VarIsInitializedOp" | "VariableShape" | "IsVariableInitialized")
        || matches!(node.op.as_str(), "ResourceGather" | "ResourceGatherNd" | "Switch" | "RefSwitch" | "Merge" | "RefMerge")
        || matches!(node.op.as_str(), "Identity" | "RefIdentity");
    let def = registry.table().get(&node.op);
    let types = def.as_ref().and_then(|def| def.input_types(&node.attrs).ok()).filter(|_| !reads).unwrap_or_default();
    node.inputs.iter().zip(types).filter(|(_, arg)| arg.is_ref || arg.base == plimsoll_base::DataType::Resource).filter_map(
        move |(input, _)| match source(graph, *input) {
            Some(variable) if is_variable(graph, variable) => Some(Some(variable_key(graph.node(variable)))),
            // A table, a generator: no variable of ours.
            Some(_) => None,
            None => Some(None),
        },
    )
}

/// The node that a handle or a reference comes from; none where it is one of several.
fn source(graph: &Graph, mut tensor: Output) -> Option<NodeId> {
    loop {
        let node = graph.node(tensor.node);
        match node.op.as_str() {
            "Identity" | "RefIdentity" | "Switch" | "RefSwitch" => tensor = *node.inputs.first()?,
            "Merge" | "RefMerge" => return None,
            _ => return Some(tensor.node),
        }
    }
}

fn is_variable(graph: &Graph, id: NodeId) -> bool {
    matches!(graph.node(id).op.as_str(), "VarHandleOp" | "VariableV2" | "Variable")
}
