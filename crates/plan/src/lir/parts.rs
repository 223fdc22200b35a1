//! Works whose rows do not depend on each other, done part by part: all of them for the first rows, then for the next ones. What is between
//! them is there one part at a time. Those that give results may sum over the rows.

use plimsoll_device::KernelCall;
use plimsoll_graph::NodeId;
use plimsoll_request::Rows;

/// A chain of kernels that runs once for each part of the rows. Places in its scratch are counted from the beginning of
/// that.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    pub rows: Rows,
    /// Those before the first part, then those of parts, then those behind the last part; each in their order.
    pub steps: Vec<PartStep>,
    /// What is between steps, of the largest part, or of all where steps have slices of it: where it is in the scratch, and its bytes.
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
    /// For what has a row more than the fewest, with the predicted seconds of a call.
    pub larger: Option<(KernelCall, f64)>,
    /// How often it is called for each part: for as many parts of the part, one behind the other.
    pub calls: u64,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// Once, before the first part: it depends on no row.
    Before,
    /// For each part.
    Each,
    /// For the first of every so many parts.
    First(u64),
    /// For the last of every so many parts, but for the first so many.
    Last(u64),
    /// Once, behind the last part: it makes a result of sums over the rows.
    Behind,
}

impl When {
    /// Steps before parts, of them, and behind them come in this order.
    pub fn stage(self) -> u8 {
        match self {
            When::Before => 0,
            When::Each | When::First(_) | When::Last(_) => 1,
            When::Behind => 2,
        }
    }

    /// Whether it is for a part.
    fn is_of(self, part: u64) -> bool {
        match self {
            When::Before | When::Behind => false,
            When::Each => true,
            When::First(every) => part.is_multiple_of(every.max(1)),
            When::Last(every) => part >= every && (part + 1).is_multiple_of(every.max(1)),
        }
    }
}

/// An argument of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PartArg {
    pub of: PartOf,
    pub cut: PartCut,
}

/// Which of an argument's bytes a call has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PartCut {
    /// All.
    Whole,
    /// Those of its rows. What is between steps has the rows of a part, others have all.
    Rows,
    /// One of so many equal slices, a divisor of the number of calls: call `c` of `calls` has slice number `c * slices / calls`.
    Slices(u64),
    /// The first half for the first so many calls, then the second half.
    Half(u64),
    /// That half: the first one, or the second one.
    Fixed(bool),
    /// The first bytes: so many for the kernel of the fewest rows, and for the larger one.
    First {
        /// Of a call of the fewest rows.
        fewest: u64,
        /// Of a call of a row more.
        larger: u64,
    },
}

/// A call of a step: its number in the part, and the part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PartCall {
    pub part: u64,
    pub number: u64,
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
        PartArg { of, cut: PartCut::Whole }
    }

    /// Of so many equal slices.
    pub fn slices(of: PartOf, slices: u64) -> PartArg {
        PartArg { of, cut: PartCut::Slices(slices) }
    }

    /// The first half for the first so many calls, then the second half.
    pub fn half(of: PartOf, calls: u64) -> PartArg {
        PartArg { of, cut: PartCut::Half(calls) }
    }

    /// The first half, or the second one.
    pub fn fixed(of: PartOf, is_second: bool) -> PartArg {
        PartArg { of, cut: PartCut::Fixed(is_second) }
    }

    /// The first bytes: so many for the kernel of the fewest rows, and for the larger one.
    pub fn first(of: PartOf, fewest: u64, larger: u64) -> PartArg {
        PartArg { of, cut: PartCut::First { fewest, larger } }
    }

    /// Of the rows.
    pub fn rows(of: PartOf) -> PartArg {
        PartArg { of, cut: PartCut::Rows }
    }
}

impl PartStep {
    /// The parts of which each is a call.
    pub fn pieces(&self, rows: Rows) -> Rows {
        rows.times(self.calls.max(1)).unwrap_or(rows)
    }

    /// The kernel of a call, and its predicted seconds.
    pub fn kernel(&self, rows: Rows, at: PartCall) -> (&KernelCall, f64) {
        match &self.larger {
            Some((call, seconds)) if self.is_larger(rows, at) => (call, *seconds),
            _ => (&self.call, self.seconds),
        }
    }

    /// Whether a call has a row more than the fewest.
    fn is_larger(&self, rows: Rows, at: PartCall) -> bool {
        self.when == When::Each && self.range(rows, at).1 > self.pieces(rows).least()
    }

    /// The first row of a call, and how many it has.
    fn range(&self, rows: Rows, at: PartCall) -> (u64, u64) {
        let (pieces, piece) = (self.pieces(rows), at.part * self.calls.max(1) + at.number);
        let first = pieces.first(piece);
        (first, pieces.first(piece + 1) - first)
    }

    /// Where what a call has of an argument begins in so many bytes, and its own bytes. None where there are no such slices or rows.
    pub fn slice(&self, rows: Rows, arg: PartArg, bytes: u64, at: PartCall) -> Option<(u64, u64)> {
        let calls = rows.parts.checked_mul(self.calls)?;
        match arg.cut {
            PartCut::Whole => Some((0, bytes)),
            PartCut::Slices(slices) => {
                let is_divided = slices > 0 && calls.is_multiple_of(slices) && bytes.is_multiple_of(slices);
                let (each, call) = is_divided.then(|| (bytes / slices, at.part * self.calls + at.number))?;
                Some((call / (calls / slices).max(1) * each, each))
            }
            PartCut::Half(first) => {
                let is_second = at.part * self.calls + at.number >= first;
                bytes.is_multiple_of(2).then_some((if is_second { bytes / 2 } else { 0 }, bytes / 2))
            }
            PartCut::Fixed(is_second) => bytes.is_multiple_of(2).then_some((if is_second { bytes / 2 } else { 0 }, bytes / 2)),
            PartCut::First { fewest, larger } => {
                let own = if self.is_larger(rows, at) { larger } else { fewest };
                (own <= bytes).then_some((0, own))
            }
            PartCut::Rows => {
                let (first, own) = self.range(rows, at);
                let (all, before) = match arg.of {
                    PartOf::Between(_) => (rows.most(), rows.first(at.part)),
                    PartOf::Input(_) | PartOf::Output(_) => (rows.all, 0),
                };
                let row = (all > 0 && bytes.is_multiple_of(all)).then(|| bytes / all)?;
                Some(((first - before) * row, own * row))
            }
        }
    }
}

impl Parts {
    /// Predicted seconds of all parts.
    pub fn seconds(&self) -> f64 {
        self.calls().map(|(at, step)| step.kernel(self.rows, at).1).sum()
    }

    /// Whether a step makes what is there: it is the first of them to name it.
    pub fn makes(&self, step: &PartStep, of: PartOf) -> bool {
        let names = |step: &&PartStep| step.args.iter().any(|arg| arg.of == of);
        self.steps.iter().find(names).is_some_and(|first| std::ptr::eq(first, step))
    }

    /// The calls in their order.
    pub fn calls(&self) -> impl Iterator<Item = (PartCall, &PartStep)> {
        let once =
            move |when: When| self.steps.iter().filter(move |step| step.when == when).map(|step| (PartCall { part: 0, number: 0 }, step));
        let each = move |part: u64| {
            let of = self.steps.iter().filter(move |step| step.when.is_of(part));
            of.flat_map(move |step| (0..step.calls).map(move |number| (PartCall { part, number }, step)))
        };
        once(When::Before).chain((0..self.rows.parts).flat_map(each)).chain(once(When::Behind))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use plimsoll_device::Variant;
    use plimsoll_request::KernelRequest;

    use super::*;

    fn step(calls: u64) -> PartStep {
        let call = || KernelCall {
            request: Arc::new(KernelRequest::Named("nothing".into())),
            variant: Arc::new(Variant {
                name: "one".into(),
                numerics: "one".into(),
                between: Vec::new(),
                laid_out: None,
                steps: Vec::new(),
            }),
            step: 0,
        };
        let (larger, seconds) = (Some((call(), 2.0)), 1.0);
        PartStep { call: call(), larger, calls, args: Vec::new(), nodes: Vec::new(), when: When::Each, scratch: (0, 0, 0), seconds }
    }

    #[test]
    fn sums_are_begun_and_added_as_parts_of_each_come() {
        let with = |when: When, args: Vec<PartArg>| PartStep { when, args, larger: None, ..step(1) };
        let of = PartOf::Between(0);
        let steps = vec![
            with(When::First(2), vec![PartArg::half(of, 2)]),
            with(When::Each, vec![PartArg::half(of, 2)]),
            with(When::Last(2), vec![PartArg::fixed(of, false), PartArg::fixed(of, true)]),
            with(When::Behind, vec![PartArg::fixed(of, false)]),
        ];
        let parts = Parts { rows: Rows::equal(6), steps, between: vec![(0, 16)], scratch: 16, in_place: Vec::new() };
        let call = |(at, step): (PartCall, &PartStep)| {
            let begins: Vec<u64> = step.args.iter().map(|arg| step.slice(parts.rows, *arg, 16, at).unwrap().0).collect();
            (at.part, step.when, begins)
        };
        let part = |part: u64| {
            let (begin, half) = (part.is_multiple_of(2), if part < 2 { 0 } else { 8 });
            let mut calls = vec![(part, When::Each, vec![half])];
            if begin {
                calls.insert(0, (part, When::First(2), vec![half]));
            } else if part > 1 {
                calls.push((part, When::Last(2), vec![0, 8]));
            }
            calls
        };
        let expected = (0..6).flat_map(part).chain([(0, When::Behind, vec![0])]);
        assert_eq!(parts.calls().map(call).collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    }

    #[test]
    fn calls_have_all_rows_and_all_slices_one_behind_the_other() {
        for (all, parts, calls) in [(8, 8, 1), (40, 8, 2), (37, 4, 4), (41, 8, 1), (16, 16, 1)] {
            let (rows, step) = (Rows { all, parts }, step(calls));
            let (mut next, mut between, mut slices) = (0, 0, 0);
            for at in (0..parts).flat_map(|part| (0..calls).map(move |number| PartCall { part, number })) {
                let (begin, bytes) = step.slice(rows, PartArg::rows(PartOf::Input(0)), all * 24, at).unwrap();
                assert_eq!(begin, next);
                next += bytes;
                // What is between steps begins anew with each part.
                between = if at.number == 0 { 0 } else { between };
                let inside = step.slice(rows, PartArg::rows(PartOf::Between(0)), rows.most() * 24, at).unwrap();
                assert_eq!(inside, (between, bytes));
                between += bytes;
                assert!(between <= rows.most() * 24);
                assert_eq!(step.slice(rows, PartArg::slices(PartOf::Output(0), parts * calls), parts * calls * 64, at), Some((slices, 64)));
                slices += 64;
                let is_larger = bytes / 24 > all / (parts * calls);
                let own = if is_larger { 80 } else { 64 };
                assert_eq!(step.slice(rows, PartArg::first(PartOf::Between(0), 64, 80), 128, at), Some((0, own)));
                assert_eq!(step.kernel(rows, at).1, if is_larger { 2.0 } else { 1.0 });
            }
            assert_eq!(next, all * 24);
        }
        let (rows, at) = (Rows { all: 37, parts: 4 }, PartCall { part: 0, number: 0 });
        assert_eq!(step(1).slice(rows, PartArg::rows(PartOf::Input(0)), 36, at), None);
        assert_eq!(step(1).slice(rows, PartArg::slices(PartOf::Input(0), 3), 36, at), None);
    }
}
