//! What makes and what reads each value of a region, while its works change.

use plimsoll_graph::IdVec;

use super::{Lir, ValueId, Work, WorkId};

/// The makers and the readers of values, of a region's works.
pub(crate) struct Edges {
    /// By value: the work that defines it.
    pub makers: IdVec<ValueId, Option<WorkId>>,
    /// By value: the works that read it, each once.
    pub readers: IdVec<ValueId, Vec<WorkId>>,
}

impl Edges {
    /// Of the region at hand.
    pub fn new(lir: &Lir) -> Edges {
        Edges { makers: lir.definitions(), readers: lir.uses() }
    }

    /// A new value: nothing makes it or reads it.
    pub fn push(&mut self) {
        self.makers.push(None);
        self.readers.push(Vec::new());
    }

    /// The work is there, with its operands and results.
    pub fn add(&mut self, id: WorkId, work: &Work) {
        work.reads_once().into_iter().for_each(|value| self.readers[value].push(id));
        work.outputs.iter().for_each(|output| self.makers[*output] = Some(id));
    }

    /// The work is no reader and no maker.
    pub fn forget(&mut self, id: WorkId, work: &Work) {
        work.reads_once().into_iter().for_each(|value| self.readers[value].retain(|reader| *reader != id));
        for output in &work.outputs {
            if self.makers[*output] == Some(id) {
                self.makers[*output] = None;
            }
        }
    }
}
