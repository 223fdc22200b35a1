//! The bytes that a device keeps for graphs and for the code of kernels, a part of its overhead ([`Taken`]). A graph for which there are no bytes left is
//! not made; a program whose kernels find none is refused when it is loaded.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use plimsoll_base::{Bytes, Error};

use crate::overhead::Taken;

/// How a logical device uses the driver's graphs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphUse {
    /// The bytes that graphs take, and those of its overhead that it keeps for them and for code.
    pub taken: Taken,
    /// The most bytes that graphs have of those that it keeps.
    pub most: Bytes,
    /// Whether they are made at the first use of a run's bindings, and not at the second: many bindings are used once.
    pub at_once: bool,
}

impl GraphUse {
    /// On cards of that name.
    pub fn on(name: &str) -> GraphUse {
        let taken = Taken::on(name);
        GraphUse { taken, most: taken.device, at_once: false }
    }

    /// The same, with so many bytes for graphs. No less is kept in all: code has a part of it.
    pub fn with_room(self, room: Bytes) -> GraphUse {
        GraphUse { taken: Taken { device: self.taken.device.max(room), ..self.taken }, most: room, ..self }
    }
}

/// What is left.
#[derive(Debug)]
pub(super) struct GraphRoom {
    left: AtomicU64,
    /// Of that, what graphs may still have.
    left_to_graphs: AtomicU64,
    taken: Taken,
}

/// The part of a graph, or of code; dropping it gives it back.
#[derive(Debug)]
pub(super) struct GraphShare {
    room: Arc<GraphRoom>,
    bytes: u64,
    is_graph: bool,
}

impl GraphRoom {
    pub fn new(GraphUse { taken, most, .. }: GraphUse) -> Arc<GraphRoom> {
        Arc::new(GraphRoom { left: AtomicU64::new(taken.device.0), left_to_graphs: AtomicU64::new(most.0), taken })
    }

    /// The part of so many graphs, of which each but one is a body, with so many nodes in all; none where that much is not left.
    pub fn take(self: &Arc<GraphRoom>, graphs: usize, nodes: usize) -> Option<GraphShare> {
        let bytes = self.taken.graph.0 * graphs as u64 + self.taken.node.0 * nodes as u64;
        if !take(&self.left_to_graphs, bytes) {
            return None;
        }
        if !take(&self.left, bytes) {
            self.left_to_graphs.fetch_add(bytes, Ordering::Relaxed);
            return None;
        }
        Some(GraphShare { room: self.clone(), bytes, is_graph: true })
    }

    /// The part of so many bytes of code; none where that much is not left.
    pub fn take_code(self: &Arc<GraphRoom>, bytes: u64) -> Option<GraphShare> {
        take(&self.left, bytes).then(|| GraphShare { room: self.clone(), bytes, is_graph: false })
    }

    /// The refusal of code.
    pub fn without_place_for(&self, bytes: u64) -> Error {
        let (kept, left) = (self.taken.device, Bytes(self.left.load(Ordering::Relaxed)));
        let message =
            format!("the code of kernels takes {}: of the {kept} that the device keeps for graphs and code {left} are left", Bytes(bytes));
        Error::resource_exhausted(message).with_remedy("load fewer programs at once on one device")
    }
}

/// Takes bytes of what is left; whether it has as many.
fn take(left: &AtomicU64, bytes: u64) -> bool {
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes)).is_ok()
}

impl Drop for GraphShare {
    fn drop(&mut self) {
        self.room.left.fetch_add(self.bytes, Ordering::Relaxed);
        if self.is_graph {
            self.room.left_to_graphs.fetch_add(self.bytes, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_graphs_than_there_is_room_for() {
        let taken = Taken { graph: Bytes(10), node: Bytes(3), device: Bytes(2 * 10 + 5 * 3), is_measured: true };
        let room = GraphRoom::new(GraphUse { taken, most: taken.device, at_once: false });
        let (first, second) = (room.take(1, 3), room.take(1, 2));
        assert!(first.is_some() && second.is_some() && room.take(1, 0).is_none());
        drop(first);
        assert!(room.take(1, 4).is_none() && room.take(1, 3).is_some());
        // A body is a graph, too.
        assert!(room.take(2, 0).is_none());
        // Code has what is left in all, also where graphs have no part.
        let none = GraphRoom::new(GraphUse { taken, most: Bytes(0), at_once: false });
        let code = none.take_code(35);
        assert!(none.take(1, 0).is_none() && code.is_some() && none.take_code(1).is_none());
        drop(code);
        assert!(none.take_code(35).is_some());
    }
}
