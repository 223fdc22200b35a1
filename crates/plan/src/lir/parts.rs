//! Works whose rows do not depend on each other, done part by part: all of them for the first rows, then for the next ones. What is between
//! them is there one part at a time.

use plimsoll_device::KernelCall;
use plimsoll_graph::NodeId;

/// A chain of kernels that runs once for each of so many equal parts of the rows. Places in its scratch are counted from the beginning of
/// that.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    pub count: u64,
    /// What depends on no row runs before the first part. The others run for one part after the other, in their order.
    pub steps: Vec<PartStep>,
    /// What is between steps, of one part: where it is in the scratch, and its bytes.
    pub between: Vec<(u64, u64)>,
    /// Bytes of scratch in all.
    pub scratch: u64,
    /// `(input, output)`: the output may be written where the input lies, if nothing reads that later.
    pub in_place: Vec<(usize, usize)>,
}

/// A kernel of a chain.
#[derive(Clone, Debug)]
pub(crate) struct PartStep {
    pub call: KernelCall,
    pub args: Vec<PartArg>,
    /// The nodes that it does, the one that it is named after first.
    pub nodes: Vec<NodeId>,
    /// Whether it depends on no row.
    pub is_once: bool,
    /// Its own scratch: where it is, the bytes that all pieces share, and those of the slices of threads behind them.
    pub scratch: (u64, u64, u64),
    /// Predicted seconds of one call.
    pub seconds: f64,
}

/// An argument of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PartArg {
    /// That input of the work, or the part's bytes of it.
    Input { index: usize, is_cut: bool },
    /// The part's bytes of that output of the work.
    Output(usize),
    /// What is at that place between the steps.
    Between(usize),
}

impl Parts {
    /// Predicted seconds of all parts.
    pub fn seconds(&self) -> f64 {
        self.calls().map(|(_, step)| step.seconds).sum()
    }

    /// Whether a step makes what is between steps there: it is the first of them to name it.
    pub fn makes(&self, step: &PartStep, between: usize) -> bool {
        self.steps.iter().find(|step| step.args.contains(&PartArg::Between(between))).is_some_and(|first| std::ptr::eq(first, step))
    }

    /// The calls in their order, each with its part: first what depends on no row.
    pub fn calls(&self) -> impl Iterator<Item = (u64, &PartStep)> {
        let once = self.steps.iter().filter(|step| step.is_once).map(|step| (0, step));
        let each = (0..self.count).flat_map(|part| self.steps.iter().filter(|step| !step.is_once).map(move |step| (part, step)));
        once.chain(each)
    }
}
