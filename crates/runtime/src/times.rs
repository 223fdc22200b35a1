//! How runs spend their time.

use std::time::Duration;

/// How the time of some runs was spent, all of them together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// How many.
    pub runs: u64,
    /// Before they could begin: other runs had their variables, or the room.
    pub waiting: Duration,
    /// From the beginning to the end.
    pub running: Duration,
    /// For each device, how long some thread advanced its queue while they ran. The rest of `running` the queue waited for
    /// another device, or for a thread, or it had come to its end.
    pub busy: Vec<Duration>,
}
