//! What a loop reads of the regions around it: each value is a parameter, made when a work of the body first reads it.

use plimsoll_base::{Error, Result};
use plimsoll_graph::id::Id;

use super::Brought;
use crate::lir::{ValueId, VariableId, View, WorkId, WorkKind};
use crate::lower::Lowering;
use crate::plan::DeviceId;

impl Lowering<'_> {
    /// The works from `first` on read parameters in place of values from around their region, and what is outside of it, the loop waits
    /// for.
    pub(in crate::lower) fn take_in(&mut self, first: usize) -> Result<()> {
        let Some(start) = self.inside.last().map(|inside| inside.work) else { return Ok(()) };
        let mine: Vec<WorkId> = match self.lir.works.get(WorkId::from_index(first)).map(|work| &work.kind) {
            // The works behind a loop are its body's.
            Some(WorkKind::Loop { .. }) => vec![WorkId::from_index(first)],
            _ => (first..self.lir.works.len()).map(WorkId::from_index).collect(),
        };
        for work in mine {
            for input in 0..self.lir.works[work].inputs.len() {
                let value = self.lir.works[work].inputs[input].value;
                // A copy from another device reads where the value is.
                let is_copy = matches!(self.lir.works[work].kind, WorkKind::Copy);
                let reader = if is_copy { self.lir.values[value].device } else { self.lir.works[work].device };
                self.lir.works[work].inputs[input].value = self.import(value, reader);
            }
            if let Some(guard) = self.lir.works[work].guard {
                self.lir.works[work].guard = Some(self.import(guard, self.lir.works[work].device));
            }
            let (own, outer): (Vec<WorkId>, Vec<WorkId>) = self.lir.works[work].after.iter().copied().partition(|before| *before > start);
            self.lir.works[work].after = own;
            self.lir.works[start].after.extend(outer.into_iter().filter(|before| *before != start));
        }
        Ok(())
    }

    /// A value as the region at hand has it for a reader on a device.
    pub(super) fn import(&mut self, value: ValueId, reader: DeviceId) -> ValueId {
        let of = self.lir.values[value].region;
        // The regions from that of the value to the one at hand.
        let begin = self.inside.iter().position(|inside| inside.region == of).map_or(0, |at| at + 1);
        let here = self.lir.here();
        let mut value = value;
        for level in begin..self.inside.len() {
            let near = self.near(level, reader);
            if let Some(known) = self.inside[level].imports.get(&(value, near)) {
                value = *known;
                continue;
            }
            let inner = self.take_param(level, value, near);
            self.inside[level].imports.insert((value, near), inner);
            value = inner;
        }
        self.lir.enter(here);
        value
    }

    /// Where a loop has what a work on a device reads.
    pub(super) fn near(&self, level: usize, reader: DeviceId) -> DeviceId {
        let inside = &self.inside[level];
        inside.near(self.lir.works[inside.work].device, reader)
    }

    /// A new parameter of a loop on a device, which is given that value. The loop's region is at hand then.
    pub(super) fn take_param(&mut self, level: usize, value: ValueId, device: DeviceId) -> ValueId {
        let (region, work) = (self.inside[level].region, self.inside[level].work);
        let bytes = self.lir.values[value].bytes;
        let param = self.lir.works[work].inputs.len() as u32;
        self.lir.works[work].inputs.push(View::of_bytes(value, bytes));
        self.lir.enter(region);
        // A copy is made for the loop where it is on another device.
        self.given((region, device), param, value)
    }

    /// A variable that is about to be read or written is a parameter of the loops around.
    pub(in crate::lower) fn bring(&mut self, variable: VariableId, writes: bool) -> Result<()> {
        let begin = self.inside.iter().take_while(|inside| inside.has(variable)).count();
        let here = self.lir.here();
        for level in begin..self.inside.len() {
            let before = self.versions[variable];
            let near = self.near(level, self.lir.variables[variable].device);
            self.versions[variable] = self.take_param(level, before, near);
            self.inside[level].variables.push(Brought { variable, before, is_written: false });
        }
        self.lir.enter(here);
        if !writes {
            return Ok(());
        }
        let device = self.lir.variables[variable].device;
        if (0..self.inside.len()).any(|level| self.near(level, device) != device) {
            let name = &self.lir.variables[variable].name;
            return Err(Error::unimplemented(format!("not yet: a loop that writes variable '{name}' of another device")));
        }
        let brought = self.inside.iter_mut().flat_map(|inside| &mut inside.variables);
        brought.filter(|brought| brought.variable == variable).for_each(|brought| brought.is_written = true);
        Ok(())
    }

    /// The flag of a variable that is about to be written, as [`Lowering::bring`].
    pub(in crate::lower) fn bring_flag(&mut self, variable: VariableId, before: ValueId) -> ValueId {
        let of = self.lir.values[before].region;
        let begin = self.inside.iter().position(|inside| inside.region == of).map_or(0, |at| at + 1);
        let (versions, inner) = self.brought(before, begin);
        for (inside, version) in self.inside[begin..].iter_mut().zip(versions) {
            inside.flagged.push((variable, version));
        }
        inner
    }

    /// A value from around the loops from `begin` on: as each of them is given it, and as the innermost has it.
    pub(super) fn brought(&mut self, before: ValueId, begin: usize) -> (Vec<ValueId>, ValueId) {
        let (mut versions, mut value) = (Vec::new(), before);
        for level in begin..self.inside.len() {
            versions.push(value);
            let inner = self.inside.split_off(level + 1);
            value = self.import(value, self.lir.values[before].device);
            self.inside.extend(inner);
        }
        (versions, value)
    }
}
