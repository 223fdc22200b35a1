//! The parts of a program that can be bodies of a graph: loops, and successive commands with one guard. The card decides whether a body runs.
//!
//! The driver allows kernels, copies of the card's memory, children and bodies in a body. So no command of a body waits for another queue,
//! and none belongs to a loop of several queues. Whether all its buffers are the card's is known when they are bound.
//!
//! A loop is a node that repeats its body while its condition is not 0. A kernel sets the condition before the node, and another one at the
//! end of the body ([`crate::emit::decide`]). Both set 0 behind a fault, so a fault ends the loops around it. In a body no fault is there
//! until one of its own commands finds it. When a run is given up, the host sets a byte; the next decision of a loop finds it and writes the
//! fault word, so that the commands behind the loop are passed over.

use plimsoll_device::Round;

use super::loaded::{Action, BufferRefs, NONE, Step};

/// The fewest launches and copies with one guard that become a body: it costs a kernel and a node. Work of cuDNN reads no guard: with it, any
/// number does.
const FEWEST: usize = 4;

/// A part of a program that can be a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Body {
    /// Its first command: of a loop that which begins it.
    pub first: u32,
    /// The command behind it.
    pub end: u32,
    /// Whether it is a loop.
    pub repeats: bool,
}

/// All of them, in order; those in a loop come behind it.
pub(super) fn bodies(steps: &[Step], buffers: BufferRefs<'_>) -> Vec<Body> {
    let mut found = Vec::new();
    // Where the last group of one guard ends.
    let mut grouped = 0;
    for (first, step) in steps.iter().enumerate() {
        match step.action {
            Action::Jump { to, when: false } => {
                let end = to as usize;
                let closes = steps.get(first + 1..end).and_then(|rest| rest.last()).map(|last| &last.action);
                let is_closed = matches!(closes, Some(Action::Jump { to, when: true }) if *to as usize == first + 1);
                if is_closed && step.round == Round::Stays && steps[first + 1..end].iter().all(is_alone) {
                    found.push(Body { first: first as u32, end: to, repeats: true });
                }
            }
            Action::Jump { .. } => {}
            _ if first >= grouped && step.guard != NONE => {
                let is_of_it = |next: &&Step| {
                    let has_same = next.guard != NONE && buffers[next.guard as usize] == buffers[step.guard as usize];
                    has_same && is_alone(next) && !matches!(next.action, Action::Jump { .. })
                };
                let group = &steps[first..first + 1 + steps[first + 1..].iter().take_while(is_of_it).count()];
                grouped = first + group.len();
                let nodes = |step: &Step| if let Action::Launch(launches, _) = &step.action { launches.len() } else { 1 };
                if group.iter().any(Step::convolves) || group.iter().map(nodes).sum::<usize>() >= FEWEST {
                    found.push(Body { first: first as u32, end: grouped as u32, repeats: false });
                }
            }
            _ => {}
        }
    }
    found
}

/// Whether a command has to do with no other queue.
fn is_alone(step: &Step) -> bool {
    step.waits.is_empty() && step.round == Round::Stays
}
