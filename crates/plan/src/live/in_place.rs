//! Values that share their bytes: a result that is written over an operand whose last reader is the work.

use std::collections::BTreeSet;

use plimsoll_graph::IdVec;

use super::{Lane, Ranges};
use crate::lir::{Arg, Lir, ValueId, Work, WorkKind};

/// The operands that a work writes over, each with its result. `dies` says of an operand that it is in this device's arena and
/// that no other work needs it from here on.
pub(crate) fn pairs(lir: &Lir, work: &Work, dies: impl Fn(ValueId) -> bool) -> Vec<(ValueId, ValueId)> {
    let mut pairs: Vec<(ValueId, ValueId)> = Vec::new();
    for (source, target) in candidates(lir, work) {
        let is_free = pairs.iter().all(|(from, to)| *from != source && *to != target);
        if is_free && dies(source) {
            pairs.push((source, target));
        }
    }
    pairs
}

/// The results that could as well be written over another operand than in [`pairs`] with the same `dies`.
pub(crate) fn with_others(lir: &Lir, work: &Work, dies: impl Fn(ValueId) -> bool) -> BTreeSet<ValueId> {
    let pairs = pairs(lir, work, &dies);
    candidates(lir, work).into_iter().filter(|pair| dies(pair.0) && !pairs.contains(pair)).map(|(_, target)| target).collect()
}

/// The operands that a work may write over, each with a result.
fn candidates(lir: &Lir, work: &Work) -> Vec<(ValueId, ValueId)> {
    if let WorkKind::Loop { carried, .. } = work.kind {
        // What it carries may begin where its value is.
        let carried = (0..carried).map(|index| (work.inputs[index].value, work.outputs[index]));
        return fitting(lir, work, carried);
    }
    let inputs: Vec<usize> = match &work.kind {
        WorkKind::Expr { .. } | WorkKind::Anchor { .. } => (0..work.inputs.len()).collect(),
        // A variable that is changed in place is both already.
        WorkKind::Kernel { args, .. } if args.first() == Some(&Arg::Output(0)) => return Vec::new(),
        WorkKind::Kernel { args, .. } => {
            args.iter().filter_map(|arg| if let Arg::Input(input) = arg { Some(*input) } else { None }).collect()
        }
        WorkKind::Parts(parts) => {
            let may = parts.in_place.iter().map(|(input, output)| (work.inputs[*input].value, work.outputs[*output]));
            return fitting(lir, work, may);
        }
        _ => return Vec::new(),
    };
    let Some(kernel) = work.prepared.as_ref().and_then(|prepared| prepared.kernel.as_ref()) else { return Vec::new() };
    let may = kernel.step().in_place.iter().map(|(input, output)| (work.inputs[inputs[*input]].value, work.outputs[*output]));
    fitting(lir, work, may)
}

/// Those pairs of values that may be one buffer.
fn fitting(lir: &Lir, work: &Work, pairs: impl Iterator<Item = (ValueId, ValueId)>) -> Vec<(ValueId, ValueId)> {
    let is_read_once = |source: ValueId| work.inputs.iter().filter(|view| view.value == source).count() == 1;
    let fits = |source: ValueId, target: ValueId| {
        lir.values[source].bytes == lir.values[target].bytes && lir.values[target].home == crate::lir::Home::Arena
    };
    pairs.filter(|&(source, target)| is_read_once(source) && fits(source, target)).collect()
}

/// Which values share their bytes, in one arena.
pub(crate) struct Sharing {
    /// By value that is written over an operand: the operand whose bytes it takes, or one before that.
    parents: IdVec<ValueId, Option<ValueId>>,
}

impl Sharing {
    pub fn new(lir: &Lir, lane: &Lane, ranges: &Ranges) -> Sharing {
        let mut sharing = Sharing { parents: IdVec::filled(None, lir.values.len()) };
        for (position, id) in lane.works.iter().enumerate() {
            let at = position as u32;
            let dies = |source: ValueId| {
                lir.values[source].device == lane.device
                    && ranges[source].is_some_and(|range| range.last == at && range.unread_elsewhere <= at)
            };
            for (source, target) in pairs(lir, &lir.works[*id], dies) {
                let root = sharing.root(source);
                sharing.parents[target] = Some(root);
            }
        }
        sharing
    }

    /// The value that stands for all that share its bytes.
    pub fn root(&self, value: ValueId) -> ValueId {
        let mut root = value;
        while let Some(parent) = self.parents[root] {
            root = parent;
        }
        root
    }
}
