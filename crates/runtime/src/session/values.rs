//! The values of a session's variables: read, written, and had from files when they are first needed.

use std::sync::{Arc, MutexGuard, PoisonError};

use plimsoll_base::{Bytes, DataType, Error, Result};
use plimsoll_device::Device;
use plimsoll_graph::id::Id;
use plimsoll_graph::{HostTensor, Shape};
use plimsoll_plan::{PlanVariable, Signature, VariableKind};

use super::{Inner, Session};
use crate::cancellation;
use crate::grants::{Access, AccessRequest};
use crate::stored::{self, Stored, StoredVariable};
use crate::variables::{Storage, Variables};

/// A variable of a session.
#[derive(Clone, Debug, PartialEq)]
pub struct VariableInfo {
    /// The node's name.
    pub name: String,
    /// The element type.
    pub data_type: DataType,
    /// The shape.
    pub shape: Shape,
    /// Whether anything was assigned to it.
    pub is_initialized: bool,
    /// Whether it is the state of an operation rather than a variable of the graph.
    pub is_state: bool,
}

/// Writes the value of a variable: with a buffer, and a function that takes a piece and its offset.
pub type Fill<'a> = dyn FnMut(&mut [u8], &mut dyn FnMut(u64, &[u8]) -> Result<()>) -> Result<()> + 'a;

impl Session {
    /// The variables that have storage, by name; without folded ones.
    pub fn variables(&self) -> Vec<VariableInfo> {
        let variables = self.inner.variables();
        let info = |storage: &Storage| VariableInfo {
            name: storage.name.clone(),
            data_type: storage.data_type,
            shape: storage.shape.clone(),
            is_initialized: storage.is_initialized(),
            is_state: storage.kind == VariableKind::State,
        };
        let own = variables.all().filter(|(key, _)| variables.folded(key).is_none());
        let mut infos: Vec<VariableInfo> = own.map(|(_, storage)| info(storage)).collect();
        infos.sort_by(|a, b| a.name.cmp(&b.name));
        infos
    }

    /// The value of the variable (or the operation's state) of that name.
    ///
    /// # Errors
    /// NOT_FOUND where none of that name has storage or a value in files. FAILED_PRECONDITION where nothing was assigned to it.
    /// RESOURCE_EXHAUSTED where the line has no room for one in files.
    pub fn read_variable(&self, name: &str) -> Result<HostTensor> {
        if self.inner.stored.is_some() {
            self.inner.grants.check_open()?;
            self.inner.ensure_named(name)?;
        }
        let missing = || Error::not_found(format!("no variable '{name}' has storage"));
        self.inner.with_variable(name, false, missing, |storage| match storage.is_initialized() {
            true => storage.read(),
            false => Err(Error::failed_precondition(format!("Attempting to use uninitialized value {name}"))),
        })
    }

    /// Gives a variable a value; it gets storage if it has none.
    ///
    /// # Errors
    /// NOT_FOUND where the graph has no such variable; INVALID_ARGUMENT for another type or shape; RESOURCE_EXHAUSTED where
    /// the line has no room.
    pub fn write_variable(&self, name: &str, value: &HostTensor) -> Result<()> {
        self.inner.grants.check_open()?;
        self.inner.ensure_named(name)?;
        let missing = || Error::not_found(format!("the graph has no variable '{name}'"));
        self.inner.with_variable(name, true, missing, |storage| storage.write(value))
    }

    /// Gives a variable that has storage a value piece by piece. `fill` gets a buffer of `most` bytes, or fewer where the line of
    /// the host has not as much room. It gives pieces of the value with their offsets. Where it fails, the variable keeps the
    /// written part, and counts as initialised if it was before.
    ///
    /// # Errors
    /// NOT_FOUND where none of that name has storage; RESOURCE_EXHAUSTED where there is no room for a buffer at all; the error of
    /// `fill`.
    pub fn fill_variable(&self, name: &str, most: Bytes, fill: &mut Fill<'_>) -> Result<()> {
        self.inner.grants.check_open()?;
        let missing = || Error::not_found(format!("no variable '{name}' has storage"));
        let host = &self.inner.devices.all()[self.inner.placement.host.index()];
        self.inner.with_variable(name, true, missing, |storage| {
            stored::with_buffer(host, most, &self.inner.holder, |buffer| {
                fill(buffer, &mut |offset, piece| storage.write_piece(offset, piece))
            })?;
            storage.set_initialized();
            Ok(())
        })
    }

    /// Whether files give the variable of that name a value in place of any other: it has storage, and a checkpoint was named.
    pub fn is_overridden(&self, name: &str) -> bool {
        let variables = self.inner.variables();
        let key = variables.all().find(|(_, storage)| storage.name == name).map(|(key, _)| key);
        self.inner.stored.as_ref().zip(key).is_some_and(|(stored, key)| stored.overrides_key(key))
    }

    /// Variables that have a value in files and no storage: no run has needed them.
    ///
    /// # Errors
    /// The flaw of the files.
    pub fn unloaded(&self) -> Result<Vec<StoredVariable>> {
        let Some(stored) = &self.inner.stored else { return Ok(Vec::new()) };
        let variables = self.inner.variables();
        let mut unloaded = stored.variables()?;
        unloaded.retain(|variable| variables.get(&variable.key).is_none());
        Ok(unloaded)
    }

    /// Reads the value that a variable has in files, piece by piece, through a buffer of 64 KiB: see [`Stored::read_key`].
    ///
    /// # Errors
    /// NOT_FOUND where it has none; the flaw of the file.
    pub fn read_stored(&self, key: &str, give: &mut dyn FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        let stored = self.inner.stored.as_ref().ok_or_else(|| Error::not_found(format!("no files hold a value for '{key}'")))?;
        stored.read_key(key, &mut [0; 64 << 10], give)
    }
}

impl Inner {
    /// Does something with a variable that has storage, when no run is in the way.
    fn with_variable<R>(
        &self,
        name: &str,
        writes: bool,
        missing: impl Fn() -> Error,
        action: impl FnOnce(&Storage) -> Result<R>,
    ) -> Result<R> {
        let find = |variables: &Variables| {
            variables.all().find(|(_, storage)| storage.name == name).map(|(key, storage)| (key.clone(), storage.clone()))
        };
        let number = find(&self.variables()).ok_or_else(&missing)?.1.number;
        let request = AccessRequest::one(number, writes);
        let _granted = self.grants.variables(&request);
        // The session may have been closed meanwhile.
        let (key, storage) = find(&self.variables()).ok_or_else(&missing)?;
        let result = action(&storage);
        if writes {
            self.variables().note_write(&key);
        }
        result
    }

    /// Takes the mark from variables that have values: they are not read again.
    pub(super) fn forget_loaded(&self, wanted: &mut [PlanVariable]) {
        let variables = self.variables();
        for variable in wanted.iter_mut().filter(|variable| variable.stored.is_some()) {
            if variables.get(&variable.key).is_some_and(|storage| !self.awaits_value(variable, storage)) {
                variable.stored = None;
            }
        }
    }

    /// Whether the value of a marked variable is still to be read.
    fn awaits_value(&self, variable: &PlanVariable, storage: &Storage) -> bool {
        match &self.stored {
            Some(stored) if stored.overrides(variable) => !storage.is_loaded(),
            _ => !storage.is_initialized(),
        }
    }

    /// Gives marked variables without a value theirs, when no run is in the way.
    pub(super) fn load_stored(&self, wanted: &[PlanVariable], stored: &dyn Stored, host: &Arc<dyn Device>) -> Result<()> {
        let storage = |variable: &PlanVariable| self.variables().get(&variable.key).cloned();
        let missing =
            |variable: &PlanVariable| Some((variable.clone(), storage(variable).filter(|storage| self.awaits_value(variable, storage))?));
        let missing: Vec<(PlanVariable, Storage)> =
            wanted.iter().filter(|variable| variable.stored.is_some()).filter_map(missing).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let mut accesses: Vec<Access> = missing.iter().map(|(_, storage)| Access { variable: storage.number, writes: true }).collect();
        accesses.sort_unstable_by_key(|access| access.variable);
        let request = AccessRequest::Some(accesses.into());
        let _granted = self.grants.variables(&request);
        self.grants.check_open()?;
        stored::load(&missing, stored, host, &self.holder)
    }

    pub(super) fn variables(&self) -> MutexGuard<'_, Variables> {
        self.variables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ensure_named(&self, name: &str) -> Result<()> {
        let known = self.variables().all().any(|(_, storage)| storage.name == name);
        if known || self.graph.find(name).is_none() {
            return Ok(());
        }
        let _one = cancellation::lock(&self.loading, None)?;
        // A plan that does nothing but have the variable.
        let signature = Signature { targets: vec![name.to_string()], ..Signature::default() };
        let plan = self.planned(&signature, None)?;
        self.grants.make_room(|| self.try_load(plan.clone(), None), None).map(drop)
    }
}
