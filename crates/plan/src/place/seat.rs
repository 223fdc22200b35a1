//! Control flow's own nodes move to their data, against any request. TensorFlow does so when it cuts a placed graph into the parts
//! of the devices (`OptimizeControlFlowColocation`).

use std::collections::BTreeMap;

use plimsoll_graph::{Graph, IdVec, NodeId};

use super::why::Why;
use crate::plan::DeviceId;

/// Switch and Exit go where their data comes from, Enter (but of references) and NextIteration to the first node that reads them.
/// Each sees where those stand that were visited before it, in TensorFlow's order: depth first from the nodes without inputs. The
/// nodes that moved, with the device that the placer had chosen.
pub(super) fn seat(
    graph: &Graph,
    order: &[NodeId],
    devices: &mut IdVec<NodeId, DeviceId>,
    why: &mut IdVec<NodeId, Why>,
) -> BTreeMap<NodeId, DeviceId> {
    let mut moved = BTreeMap::new();
    if !graph.nodes().values().any(|node| Seat::of(&node.op).is_some()) {
        return moved;
    }
    let consumers = consumers(graph, order);
    let is_source = |id: &&NodeId| graph.node(**id).inputs.is_empty() && graph.node(**id).controls.is_empty();
    let mut stack: Vec<NodeId> = order.iter().filter(is_source).copied().collect();
    let mut visited = IdVec::filled(false, graph.nodes().len());
    while let Some(id) = stack.pop() {
        if std::mem::replace(&mut visited[id], true) {
            continue;
        }
        let node = graph.node(id);
        let beside = match Seat::of(&node.op) {
            Some(Seat::Producer) => node.inputs.first().map(|input| input.node),
            Some(Seat::Consumer) => consumers[id].iter().find(|(_, is_data)| *is_data).map(|(consumer, _)| *consumer),
            None => None,
        };
        if let Some(beside) = beside.filter(|beside| devices[*beside] != devices[id]) {
            moved.entry(id).or_insert(devices[id]);
            devices[id] = devices[beside];
            why[id] = Why::Seated(beside);
        }
        stack.extend(consumers[id].iter().map(|(consumer, _)| *consumer).filter(|consumer| !visited[*consumer]));
    }
    moved
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

/// The readers of each node, and whether it is their data. They are in the order in which TensorFlow makes edges; edges back to a
/// Merge come last.
fn consumers(graph: &Graph, order: &[NodeId]) -> IdVec<NodeId, Vec<(NodeId, bool)>> {
    let mut consumers: IdVec<NodeId, Vec<(NodeId, bool)>> = IdVec::filled(Vec::new(), graph.nodes().len());
    let mut place = IdVec::filled(0, graph.nodes().len());
    order.iter().enumerate().for_each(|(at, id)| place[*id] = at);
    let mut back = Vec::new();
    for &id in order {
        let node = graph.node(id);
        let data = node.inputs.iter().map(|input| (input.node, true));
        for (source, is_data) in data.chain(node.controls.iter().map(|source| (*source, false))) {
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
        let moved = seat(&graph, &graph.topological().unwrap(), &mut devices, &mut why);
        let device = |name: &str| devices[graph.find(name).unwrap()].index();
        assert_eq!(["enter", "merge", "switch", "exit", "next", "unread"].map(device), [2, 2, 2, 2, 2, 3]);
        assert!(moved.values().all(|from| from.index() == 3) && moved.len() == 4);
        assert_eq!(why[graph.find("next").unwrap()].describe(&graph), "follows merge");
    }
}
