//! The bytes that a device keeps for graphs, a part of its overhead ([`Taken`]). A graph for which there are no bytes left is not made.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use plimsoll_base::Bytes;

use crate::overhead::Taken;

/// How a logical device uses the driver's graphs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphUse {
    /// The bytes that graphs take, and those of its overhead that it keeps for them.
    pub taken: Taken,
    /// Whether they are made at the first use of a run's bindings, and not at the second: many bindings are used once.
    pub at_once: bool,
}

impl GraphUse {
    /// On cards of that name.
    pub fn on(name: &str) -> GraphUse {
        GraphUse { taken: Taken::on(name), at_once: false }
    }

    /// The same, with so many bytes for graphs.
    pub fn with_room(self, room: Bytes) -> GraphUse {
        GraphUse { taken: Taken { device: room, ..self.taken }, ..self }
    }
}

/// What is left.
#[derive(Debug)]
pub(super) struct GraphRoom {
    left: AtomicU64,
    taken: Taken,
}

/// A graph's part; dropping it gives it back.
#[derive(Debug)]
pub(super) struct GraphShare {
    room: Arc<GraphRoom>,
    bytes: u64,
}

impl GraphRoom {
    pub fn new(taken: Taken) -> Arc<GraphRoom> {
        Arc::new(GraphRoom { left: AtomicU64::new(taken.device.0), taken })
    }

    /// The part of so many graphs, of which each but one is a body, with so many nodes in all; none where that much is not left.
    pub fn take(self: &Arc<GraphRoom>, graphs: usize, nodes: usize) -> Option<GraphShare> {
        let bytes = self.taken.graph.0 * graphs as u64 + self.taken.node.0 * nodes as u64;
        let taken = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes));
        taken.is_ok().then(|| GraphShare { room: self.clone(), bytes })
    }
}

impl Drop for GraphShare {
    fn drop(&mut self) {
        self.room.left.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_graphs_than_there_is_room_for() {
        let taken = Taken { graph: Bytes(10), node: Bytes(3), device: Bytes(2 * 10 + 5 * 3), is_measured: true };
        let room = GraphRoom::new(taken);
        let (first, second) = (room.take(1, 3), room.take(1, 2));
        assert!(first.is_some() && second.is_some() && room.take(1, 0).is_none());
        drop(first);
        assert!(room.take(1, 4).is_none() && room.take(1, 3).is_some());
        // A body is a graph, too.
        assert!(room.take(2, 0).is_none());
    }
}
