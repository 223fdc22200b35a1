//! Control flow's own nodes move to their data, against any request. TensorFlow does so when it cuts a placed graph into the parts
//! of the devices (`OptimizeControlFlowColocation`): for each signature, of the nodes that this one needs.

use std::collections::{BTreeMap, HashMap};

use plimsoll_graph::{Graph, IdVec, NodeId, Output};

use super::Placement;
use super::why::Why;
use crate::Request;
use crate::infer::{Reach, is_placeholder, reach};
use crate::inline::Calls;
use crate::plan::DeviceId;

/// The request's placement with control flow's own nodes where its signature has them: nodes that it does not need draw none of them,
/// and what is fed is on the host. None where that is the placement itself, and for one that was chosen by what runs take.
pub fn seated(request: &Request<'_>, calls: &Calls) -> Option<Placement> {
    let (graph, placement) = (request.graph, request.placement);
    if !placement.seats || !graph.nodes().values().any(|node| Seat::of(&node.op).is_some()) {
        return None;
    }
    // What cannot be reached has an error of its own.
    let Reach { fed, needed, .. } = reach(request).ok()?;
    let mut order = graph.topological().ok()?;
    order.retain(|id| needed[*id]);
    let mut here = placement.clone();
    for (id, device) in std::mem::take(&mut here.moved) {
        here.devices[id] = device;
    }
    let is_own = |feed: &Output| !request.signature.is_stage || is_placeholder(graph, feed.node);
    let feeds = fed.keys().map(|feed| (*feed, if is_own(feed) { placement.host } else { here.devices[feed.node] })).collect();
    let run = Seats { graph, order: &order, calls, feeds, needed: Some(needed) };
    here.moved = run.seat(&mut here.devices, &mut here.why);
    Some(here)
}

/// The nodes whose control flow is seated.
pub(super) struct Seats<'a> {
    pub graph: &'a Graph,
    /// Each behind its inputs.
    pub order: &'a [NodeId],
    /// Who reads a value in the body of a call is the call.
    pub calls: &'a Calls,
    /// The tensors that are fed, with the devices that they come from.
    pub feeds: HashMap<Output, DeviceId>,
    /// The nodes in the order; all, where there is none.
    pub needed: Option<IdVec<NodeId, bool>>,
}

impl Seats<'_> {
    /// Switch and Exit go where their data comes from, Enter (but of references) and NextIteration to the first node that reads them.
    /// Each sees where those stand that were visited before it, in TensorFlow's order: depth first from the nodes without inputs. The
    /// nodes that moved, with the device that the placer had chosen.
    pub fn seat(&self, devices: &mut IdVec<NodeId, DeviceId>, why: &mut IdVec<NodeId, Why>) -> BTreeMap<NodeId, DeviceId> {
        let graph = self.graph;
        let mut moved = BTreeMap::new();
        if !self.order.iter().any(|id| Seat::of(&graph.node(*id).op).is_some()) {
            return moved;
        }
        let consumers = self.consumers();
        let is_source = |id: &&NodeId| self.inputs(**id).next().is_none() && self.controls(**id).next().is_none();
        let mut stack: Vec<NodeId> = self.order.iter().filter(is_source).copied().collect();
        let mut visited = IdVec::filled(false, graph.nodes().len());
        while let Some(id) = stack.pop() {
            if std::mem::replace(&mut visited[id], true) {
                continue;
            }
            let node = graph.node(id);
            let beside = match Seat::of(&node.op) {
                Some(Seat::Producer) => node.inputs.first().map(|input| (input.node, self.feeds.get(input).copied())),
                Some(Seat::Consumer) => {
                    let reader = consumers[id].iter().find(|(_, is_data)| *is_data).map(|(consumer, _)| *consumer);
                    reader.map(|reader| (self.calls.seen_from(self.calls.level(id), reader), None))
                }
                None => None,
            };
            let there = beside.map(|(beside, fed)| (beside, fed.unwrap_or(devices[beside])));
            if let Some((beside, device)) = there.filter(|(_, device)| *device != devices[id]) {
                moved.entry(id).or_insert(devices[id]);
                devices[id] = device;
                why[id] = Why::Seated(beside);
            }
            stack.extend(consumers[id].iter().map(|(consumer, _)| *consumer).filter(|consumer| !visited[*consumer]));
        }
        moved
    }

    fn runs(&self, id: NodeId) -> bool {
        self.needed.as_ref().is_none_or(|needed| needed[id])
    }

    /// The nodes that make what a node reads.
    fn inputs(&self, id: NodeId) -> impl Iterator<Item = NodeId> {
        let made = self.graph.node(id).inputs.iter().filter(|input| !self.feeds.contains_key(input)).map(|input| input.node);
        made.filter(|source| self.runs(*source))
    }

    fn controls(&self, id: NodeId) -> impl Iterator<Item = NodeId> {
        let is_fed = |source: NodeId| self.feeds.contains_key(&Output { node: source, index: 0 }) && is_placeholder(self.graph, source);
        self.graph.node(id).controls.iter().copied().filter(move |source| self.runs(*source) && !is_fed(*source))
    }

    /// The readers of each node, and whether it is their data. They are in the order in which TensorFlow makes edges; edges back to a
    /// Merge come last.
    fn consumers(&self) -> IdVec<NodeId, Vec<(NodeId, bool)>> {
        let count = self.graph.nodes().len();
        let mut consumers: IdVec<NodeId, Vec<(NodeId, bool)>> = IdVec::filled(Vec::new(), count);
        let mut place = IdVec::filled(0, count);
        self.order.iter().enumerate().for_each(|(at, id)| place[*id] = at);
        let mut back = Vec::new();
        for &id in self.order {
            let data = self.inputs(id).map(|source| (source, true));
            for (source, is_data) in data.chain(self.controls(id).map(|source| (source, false))) {
                if place[source] > place[id] {
                    back.push((source, id));
                } else {
                    consumers[source].push((id, is_data));
                }
            }
        }
        back.into_iter().for_each(|(source, id)| consumers[source].push((id, true)));
        consumers
    }
}

/// Beside which neighbour a node of control flow stands.
#[derive(Clone, Copy)]
enum Seat {
    Producer,
    Consumer,
}

impl Seat {
    fn of(op: &str) -> Option<Seat> {
        match op {
            "Switch" | "RefSwitch" | "_SwitchN" | "Exit" | "RefExit" => Some(Seat::Producer),
            "Enter" | "NextIteration" | "RefNextIteration" => Some(Seat::Consumer),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_graph::id::Id;

    use super::*;

    fn node(name: &str, op: &str, inputs: &[usize]) -> plimsoll_graph::Node {
        let inputs = inputs.iter().map(|at| plimsoll_graph::Output { node: NodeId::from_index(*at), index: 0 }).collect();
        let (name, op) = (name.to_string(), op.to_string());
        plimsoll_graph::Node {
            name,
            op,
            inputs,
            controls: Vec::new(),
            device: String::new(),
            attrs: Default::default(),
            carried: Vec::new(),
        }
    }

    #[test]
    fn control_flow_stands_beside_its_data() {
        // A loop over a value of device 1 whose body is on device 2; everything else was asked for on device 3.
        let mut graph = Graph::new();
        let nodes = [
            (1, node("x", "Placeholder", &[])),
            (3, node("enter", "Enter", &[0])),
            (2, node("merge", "Merge", &[1])),
            (1, node("p", "Placeholder", &[])),
            (3, node("switch", "Switch", &[2, 3])),
            (3, node("exit", "Exit", &[4])),
            (2, node("body", "Neg", &[4])),
            (3, node("next", "NextIteration", &[6])),
            (3, node("unread", "Enter", &[0])),
        ];
        let mut devices = IdVec::new();
        for (device, node) in nodes {
            graph.add(node).unwrap();
            devices.push(DeviceId::from_index(device));
        }
        let next = plimsoll_graph::Output { node: graph.find("next").unwrap(), index: 0 };
        graph.node_mut(NodeId::from_index(2)).inputs.push(next);
        let mut why = IdVec::filled(Why::Requested, graph.nodes().len());
        let order = graph.topological().unwrap();
        let seats = Seats { graph: &graph, order: &order, calls: &Calls::default(), feeds: HashMap::new(), needed: None };
        let moved = seats.seat(&mut devices, &mut why);
        let device = |name: &str| devices[graph.find(name).unwrap()].index();
        assert_eq!(["enter", "merge", "switch", "exit", "next", "unread"].map(device), [2, 2, 2, 2, 2, 3]);
        assert!(moved.values().all(|from| from.index() == 3) && moved.len() == 4);
        assert_eq!(why[graph.find("next").unwrap()].describe(&graph), "follows merge");
    }
}
