//! The bytes that a device keeps for graphs, a part of its overhead. What graphs take is a guess ([`TABLE`]); a graph for which there are
//! no bytes left is not made.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use plimsoll_base::Bytes;

const TABLE: &str = include_str!("../../data/overhead.txt");

/// A number of the table.
fn number(name: &str) -> u64 {
    let line = TABLE.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
    line.unwrap_or_default()
}

/// How a logical device uses the driver's graphs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphUse {
    /// The bytes of its overhead that it keeps for them. What graphs take was not measured.
    pub room: Bytes,
    /// Whether they are made at the first use of a run's bindings, and not at the second: many bindings are used once.
    pub at_once: bool,
}

impl Default for GraphUse {
    fn default() -> GraphUse {
        GraphUse { room: Bytes(number("device")), at_once: false }
    }
}

/// What is left.
#[derive(Debug)]
pub(super) struct GraphRoom(AtomicU64);

/// A graph's part; dropping it gives it back.
#[derive(Debug)]
pub(super) struct GraphShare {
    room: Arc<GraphRoom>,
    bytes: u64,
}

impl GraphRoom {
    pub fn new(bytes: Bytes) -> Arc<GraphRoom> {
        Arc::new(GraphRoom(AtomicU64::new(bytes.0)))
    }

    /// The part of a graph with so many nodes; none where that much is not left.
    pub fn take(self: &Arc<GraphRoom>, nodes: usize) -> Option<GraphShare> {
        let bytes = number("graph") + number("node") * nodes as u64;
        let taken = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes));
        taken.is_ok().then(|| GraphShare { room: self.clone(), bytes })
    }
}

impl Drop for GraphShare {
    fn drop(&mut self) {
        self.room.0.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_graphs_than_there_is_room_for() {
        let (graph, node) = (number("graph"), number("node"));
        assert!(graph > 0 && node > 0 && GraphUse::default().room.0 >= graph + 100 * node);
        let room = GraphRoom::new(Bytes(2 * graph + 5 * node));
        let (first, second) = (room.take(3), room.take(2));
        assert!(first.is_some() && second.is_some() && room.take(0).is_none());
        drop(first);
        assert!(room.take(4).is_none() && room.take(3).is_some());
    }
}
