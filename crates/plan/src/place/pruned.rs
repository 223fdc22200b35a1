//! Placement of the nodes that one signature needs (`graph_options.place_pruned_graph`): other nodes may be wrong, and feeds and
//! fetches are on the host.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_base::{DataType, Result};
use plimsoll_graph::id::Id;
use plimsoll_graph::{AttrValue, Attrs, Graph, IdVec, Node, NodeId, Output};

use super::{PlaceOptions, Placement, place};
use crate::Request;
use crate::infer::{Reach, fed_instead, reach};
use crate::inline::{Calls, Part};

/// Places the nodes that the request's signature needs; its placement is not looked at. Of the rest, devices and reasons say
/// nothing, and they are not in the order.
///
/// # Errors
/// Those of [`place`] for the part that is needed; those of a plan for names that make no sense.
pub fn place_pruned(request: &Request<'_>, options: &PlaceOptions) -> Result<Placement> {
    let wanted = reach(request)?;
    let part = Subgraph::new(request, &wanted)?;
    let unplaced = Placement::unplaced(request.devices)?;
    let host = request.devices[unplaced.host.index()].name.to_string();
    let own = part.origins.iter().filter(|(_, origin)| !origin.is_node).map(|(id, _)| (id, host.clone()));
    let assigned = options.assigned.iter().filter_map(|(id, device)| Some((part.ids[*id]?, device.clone()))).chain(own).collect();
    let calls = Arc::new(part.calls(&options.calls));
    let placed = place(&part.graph, request.registry, request.devices, &PlaceOptions { assigned, calls, ..options.clone() })?;

    let count = request.graph.nodes().len();
    let mut placement = Placement { notes: placed.notes, soft: placed.soft, ..unplaced };
    placement.devices = IdVec::filled(placement.host, count);
    placement.why = IdVec::filled(super::Why::Default, count);
    let node = |id: NodeId| part.origins[id].is_node.then(|| part.origins[id].node);
    for (id, origin) in part.origins.iter().filter(|(_, origin)| origin.is_node) {
        placement.devices[origin.node] = placed.devices[id];
        placement.why[origin.node] = placed.why[id].clone().of(|other| part.origins[other].node);
    }
    placement.moved = placed.moved.into_iter().filter_map(|(id, device)| Some((node(id)?, device))).collect();
    placement.order = placed.order.into_iter().filter_map(node).collect();
    Ok(placement)
}

/// The origin of a node of the part.
#[derive(Clone, Copy)]
struct Origin {
    /// The node; of a feed or a fetch that whose tensor it is.
    node: NodeId,
    /// Whether it is that node itself.
    is_node: bool,
}

/// The part of a graph that is needed, with nodes for feeds and fetches, as TensorFlow rewrites it.
struct Subgraph {
    graph: Graph,
    /// The nodes of the whole graph that are in it.
    ids: IdVec<NodeId, Option<NodeId>>,
    origins: IdVec<NodeId, Origin>,
}

impl Subgraph {
    fn new(request: &Request<'_>, wanted: &Reach) -> Result<Subgraph> {
        let whole = request.graph;
        let mut graph = Graph::new();
        (graph.library, graph.versions) = (whole.library.clone(), whole.versions.clone());
        let mut part = Subgraph { graph, ids: IdVec::filled(None, whole.nodes().len()), origins: IdVec::new() };
        // Feeds come first, so that the nodes keep their order: all of them have their devices already.
        let feeds = wanted.feeds.iter().enumerate().map(|(at, feed)| part.end(request, *feed, at, "_Arg", Vec::new()));
        let feeds: Vec<NodeId> = feeds.collect::<Result<_>>()?;
        let order: Vec<NodeId> = whole.topological()?.into_iter().filter(|id| wanted.needed[*id]).collect();
        for &id in &order {
            let node = Node { inputs: Vec::new(), controls: Vec::new(), ..whole.node(id).clone() };
            part.ids[id] = Some(part.add(node, Origin { node: id, is_node: true })?);
        }
        // Edges when all are there: those of loops go back.
        for &id in &order {
            let (node, own) = (whole.node(id), part.ids[id]);
            let input = |input: &Output| match wanted.fed.get(input) {
                Some(feed) => Some(Output { node: feeds[*feed], index: 0 }),
                None => part.ids[input.node].map(|node| Output { node, ..*input }),
            };
            let control = |control: &NodeId| fed_instead(whole, &wanted.fed, *control).map_or(part.ids[*control], |feed| Some(feeds[feed]));
            let (inputs, controls) = (node.inputs.iter().filter_map(input).collect(), node.controls.iter().filter_map(control).collect());
            if let Some(own) = own {
                let node = part.graph.node_mut(own);
                (node.inputs, node.controls) = (inputs, controls);
            }
        }
        for (at, fetch) in wanted.fetches.iter().enumerate() {
            let source = part.ids[fetch.node].map(|node| Output { node, ..*fetch });
            part.end(request, *fetch, at, "_Retval", source.into_iter().collect())?;
        }
        Ok(part)
    }

    /// Of the part's nodes, which came from which call.
    fn calls(&self, whole: &Calls) -> Calls {
        let part = |origin: &Origin| match origin.is_node {
            true => Part { call: whole.part(origin.node).call.and_then(|call| self.ids[call]), ..whole.part(origin.node) },
            false => Part::default(),
        };
        Calls::new(self.origins.values().map(part).collect())
    }

    fn add(&mut self, node: Node, origin: Origin) -> Result<NodeId> {
        self.origins.push(origin);
        self.graph.add(node)
    }

    /// The node of a feed or fetch.
    fn end(&mut self, request: &Request<'_>, tensor: Output, at: usize, op: &str, inputs: Vec<Output>) -> Result<NodeId> {
        let source = request.graph.node(tensor.node);
        let types = request.registry.table().require(&source.op)?.output_types(&source.attrs)?;
        let data_type = types.get(tensor.index as usize).map_or(DataType::Float, |output| output.base);
        let attrs = [("T", AttrValue::data_type(data_type)), ("index", AttrValue::Int(at as i64))];
        let attrs: Attrs = attrs.into_iter().map(|(name, value)| (name.to_string(), value)).collect();
        // No node of a graph that was read has such a name.
        let name = format!("{}_{}_{}_{at}", op.to_lowercase(), source.name, tensor.index);
        let node = Node { name, op: op.to_string(), inputs, controls: Vec::new(), device: String::new(), attrs, carried: Vec::new() };
        self.add(node, Origin { node: tensor.node, is_node: false })
    }
}

/// The devices of nodes that keep state, to be given as assigned when another signature is placed: a node stays where it was.
pub fn stateful(request: &Request<'_>, placement: &Placement) -> BTreeMap<NodeId, String> {
    let is_stateful = |op: &str| request.registry.table().get(op).is_some_and(|op| op.is_stateful);
    let kept = placement.order.iter().filter(|id| is_stateful(&request.graph.node(**id).op));
    kept.map(|id| (*id, request.devices[placement.devices[*id].index()].name.to_string())).collect()
}
