//! Works whose rows do not depend on each other, done part by part: all of them for the first rows, then for the next ones. What is between
//! them is there one part at a time. The last of them may sum over the rows.

use plimsoll_device::KernelCall;
use plimsoll_graph::NodeId;

/// A chain of kernels that runs once for each of so many equal parts of the rows. Places in its scratch are counted from the beginning of
/// that.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    pub count: u64,
    /// Those before the first part, then those of each part, then those behind the last part; each in their order.
    pub steps: Vec<PartStep>,
    /// What is between steps, of one part, or of all where steps have slices of it: where it is in the scratch, and its bytes.
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
    pub when: When,
    /// Its own scratch: where it is, the bytes that all pieces share, and those of the slices of threads behind them.
    pub scratch: (u64, u64, u64),
    /// Predicted seconds of one call.
    pub seconds: f64,
}

/// How often a step runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum When {
    /// Once, before the first part: it depends on no row.
    Before,
    /// For each part.
    Each,
    /// Once, behind the last part: it makes a result of sums over the rows.
    Behind,
}

/// An argument of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PartArg {
    pub of: PartOf,
    /// A divisor of the number of parts: the argument is one of so many equal slices. Part `p` of `count` has slice number
    /// `p * slices / count`. Of 1 slice it is all.
    pub slices: u64,
}

/// What an argument of a step is, or is a slice of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PartOf {
    /// That input of the work.
    Input(usize),
    /// That output of the work.
    Output(usize),
    /// What is at that place between the steps.
    Between(usize),
}

impl PartArg {
    /// All of it.
    pub fn whole(of: PartOf) -> PartArg {
        PartArg { of, slices: 1 }
    }

    /// Where the slice of a part of so many begins in so many bytes, and its own bytes. None where there are no such slices.
    pub fn slice(self, bytes: u64, part: u64, parts: u64) -> Option<(u64, u64)> {
        let is_divided = self.slices > 0 && parts.is_multiple_of(self.slices) && bytes.is_multiple_of(self.slices);
        let (each, number) = is_divided.then(|| (bytes / self.slices, part / (parts / self.slices).max(1)))?;
        Some((number * each, each))
    }
}

impl Parts {
    /// Predicted seconds of all parts.
    pub fn seconds(&self) -> f64 {
        self.calls().map(|(_, step)| step.seconds).sum()
    }

    /// Whether a step makes what is between steps there: it is the first of them to name it.
    pub fn makes(&self, step: &PartStep, between: usize) -> bool {
        let names = |step: &&PartStep| step.args.iter().any(|arg| arg.of == PartOf::Between(between));
        self.steps.iter().find(names).is_some_and(|first| std::ptr::eq(first, step))
    }

    /// The calls in their order, each with its part.
    pub fn calls(&self) -> impl Iterator<Item = (u64, &PartStep)> {
        let of = |when: When| self.steps.iter().filter(move |step| step.when == when);
        let once = move |when: When| of(when).map(|step| (0, step));
        let each = (0..self.count).flat_map(move |part| of(When::Each).map(move |step| (part, step)));
        once(When::Before).chain(each).chain(once(When::Behind))
    }
}
