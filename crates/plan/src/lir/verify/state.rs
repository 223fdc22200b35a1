//! What lies outside of arenas: feeds, fetches, constants, and the versions of variables.

use plimsoll_base::Result;
use plimsoll_graph::IdVec;
use plimsoll_graph::id::Id;

use super::{Checker, Maker, Makers, name};
use crate::hazard::reads_out_of_step;
use crate::lir::{CallId, FetchId, Home, ValueId, VariableId, WorkId, WorkKind};
use crate::passes::Pass;

const TOP: usize = 0;

impl Checker<'_> {
    pub(super) fn state(&self, makers: &Makers) -> Result<()> {
        let mut first: IdVec<VariableId, u32> = IdVec::filled(0, self.lir.variables.len());
        let mut fetched: IdVec<FetchId, u32> = IdVec::filled(0, self.lir.fetches.len());
        for (id, value) in self.lir.values.iter() {
            let Some(maker) = makers[id] else { continue };
            match (value.home, maker) {
                // What loops and conditions pass on keeps the home that it has outside.
                (_, Maker::Param(region)) if region.index() != TOP => {}
                (Home::Variable(_) | Home::Flag(_) | Home::Constant(_) | Home::Feed(_), Maker::Param(_)) if value.previous.is_none() => {
                    if let Home::Variable(variable) = value.home {
                        first[variable] += 1;
                    }
                }
                (Home::Arena | Home::Fetch(_), Maker::Work(..)) if value.previous.is_none() => {
                    if let Home::Fetch(fetch) = value.home {
                        fetched[fetch] += 1;
                    }
                }
                (Home::Variable(_) | Home::Flag(_) | Home::Given { .. }, Maker::Work(_, work)) => self.version(id, work, makers)?,
                (_, Maker::Work(_, work)) => return Err(self.broken_at(work, format!("it cannot define {} in its home", name(id)))),
                (_, Maker::Param(_)) => return Err(self.broken(format!("{} is not there when the run starts", name(id)))),
            }
            self.home(id)?;
        }
        if let Some((id, count)) = first.iter().find(|(_, count)| **count != 1) {
            return Err(self.broken(format!("variable{} has {count} first versions", id.index())));
        }
        if let Some((id, count)) = fetched.iter().find(|(_, count)| **count != 1) {
            return Err(self.broken(format!("fetch{} is written by {count} values", id.index())));
        }
        self.files()?;
        self.versions(makers)?;
        for &(variable, version) in &self.lir.initialized {
            let is_version = self.lir.values.get(version).is_some_and(|value| value.home == Home::Variable(variable));
            if !is_version || !matches!(makers[version], Some(Maker::Work(..))) {
                return Err(self.broken(format!("variable{} is not initialised by {}", variable.index(), name(version))));
            }
        }
        Ok(())
    }

    /// A value is as large as its home, and on its device.
    fn home(&self, id: ValueId) -> Result<()> {
        let value = &self.lir.values[id];
        let (bytes, device) = match value.home {
            Home::Arena => (value.bytes, Some(value.device)),
            Home::Given { region, param } => {
                let given = self.lir.passed(region).nth(param as usize).map(|given| &self.lir.values[given]);
                given.map_or((0, None), |given| (given.bytes, Some(given.device)))
            }
            Home::Variable(variable) => (self.lir.variables[variable].bytes.0, Some(self.lir.variables[variable].device)),
            Home::Flag(_) => (1, Some(self.host)),
            Home::Constant(constant) => (self.lir.constants[constant].bytes.0, self.lir.constants[constant].device),
            Home::Feed(feed) => (self.lir.feeds[feed].bytes.0, Some(self.host)),
            Home::Fetch(fetch) => (self.lir.fetches[fetch].bytes.0, Some(self.host)),
        };
        if value.bytes != bytes || device.is_some_and(|device| device != value.device) {
            return Err(self.broken(format!("{} is not as large as its home, or on another device", name(id))));
        }
        Ok(())
    }

    /// No two works do the same with files.
    fn files(&self) -> Result<()> {
        let mut seen: IdVec<CallId, bool> = IdVec::filled(false, self.lir.calls.len());
        for (id, work) in self.lir.works.iter() {
            if let WorkKind::Outside { call, .. } = work.kind {
                self.require(id, !std::mem::replace(&mut seen[call], true), || "another work does the same with files".to_string())?;
            }
        }
        Ok(())
    }

    /// A later version of a variable or a flag overwrites one of the same home.
    fn version(&self, id: ValueId, work: WorkId, makers: &Makers) -> Result<()> {
        let previous = self.lir.values[id].previous;
        let is_next = previous.is_some_and(|previous| self.lir.values[previous].home == self.lir.values[id].home && previous < id);
        self.require(work, is_next && previous.is_some_and(|previous| makers[previous].is_some()), || {
            format!("{} overwrites no version of its variable", name(id))
        })
    }

    /// No version is overwritten twice. Once accesses are ordered, the writer of a version waits for all readers of the version
    /// before. It does not itself read elements that it has overwritten.
    fn versions(&self, makers: &Makers) -> Result<()> {
        let mut next: IdVec<ValueId, bool> = IdVec::filled(false, self.lir.values.len());
        for (old, _) in self.lir.versions().filter(|(_, new)| makers[*new].is_some()) {
            if std::mem::replace(&mut next[old], true) {
                return Err(self.broken(format!("{} is overwritten twice", name(old))));
            }
        }
        if self.after < Pass::Hazard {
            return Ok(());
        }
        let mut uses: IdVec<ValueId, Vec<WorkId>> = IdVec::filled(Vec::new(), self.lir.values.len());
        for (id, work) in self.lir.works.iter() {
            work.reads_once().into_iter().for_each(|value| uses[value].push(id));
        }
        for (old, new) in self.lir.versions() {
            let Some(Maker::Work(_, writer)) = makers[new] else { continue };
            let is_safe = !reads_out_of_step(self.request, self.lir, writer, old)?;
            self.require(writer, is_safe, || format!("it overwrites {} while it still reads it", name(old)))?;
            let mut before: Vec<WorkId> = uses[old].iter().copied().filter(|reader| *reader != writer).collect();
            before.extend(match makers[old] {
                Some(Maker::Work(_, previous)) if previous != writer => Some(previous),
                _ => None,
            });
            // Waits are sorted by then.
            let missing = before.iter().find(|reader| self.lir.works[writer].after.binary_search(reader).is_err());
            self.require(writer, missing.is_none(), || {
                format!("it overwrites {} and does not wait for w{}", name(old), missing.map_or(0, |reader| reader.index()))
            })?;
        }
        Ok(())
    }
}
