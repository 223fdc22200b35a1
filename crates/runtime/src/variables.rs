//! The variables of a session: storage with one address for life, and whether it holds anything yet.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use plimsoll_base::{Bytes, DataType, Error, Result};
use plimsoll_device::{Device, Offsets};
use plimsoll_graph::id::Id;
use plimsoll_graph::{HostTensor, Shape};
use plimsoll_memory::{Address, Block, Ledger};
use plimsoll_plan::{DeviceId, Freeze, PlanVariable, VariableKind};

/// Where a variable is.
#[derive(Clone, Debug)]
pub(crate) struct Storage {
    /// Its number among the session's variables.
    pub number: u32,
    pub name: String,
    pub kind: VariableKind,
    /// The device whose plans it is in.
    pub device: DeviceId,
    pub data_type: DataType,
    pub shape: Shape,
    pub bytes: Bytes,
    pub block: Arc<Block>,
    pub offset: u64,
    /// 1 once something was assigned.
    pub flag: Arc<AtomicU8>,
    /// Whether its value was read from files.
    pub loaded: Arc<AtomicBool>,
    /// Whether nothing was written to it since.
    pub pristine: Arc<AtomicBool>,
}

impl Storage {
    pub fn address(&self) -> Address {
        self.block.address().plus(self.offset)
    }

    pub fn is_initialized(&self) -> bool {
        self.flag.load(Ordering::Acquire) != 0
    }

    pub fn read(&self) -> Result<HostTensor> {
        let mut tensor = HostTensor::zeros(self.data_type, self.shape.clone())?;
        let bytes = tensor.bytes_mut().ok_or_else(|| Error::internal("zeros are dense"))?;
        self.block.read(self.offset, bytes)?;
        Ok(tensor)
    }

    /// Writes a part of the value. The whole of it is there once [`Storage::set_initialized`] says so.
    pub fn write_piece(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let end = offset.checked_add(bytes.len() as u64).filter(|end| *end <= self.bytes.0);
        end.ok_or_else(|| Error::internal(format!("variable '{}' has no {} bytes at {offset}", self.name, bytes.len())))?;
        self.block.write(self.offset + offset, bytes)
    }

    /// Whether its value was read from files.
    pub fn is_loaded(&self) -> bool {
        self.loaded.load(Ordering::Acquire)
    }

    /// Its value was read from files.
    pub fn set_loaded(&self) {
        self.loaded.store(true, Ordering::Release);
        self.set_initialized();
        self.pristine.store(true, Ordering::Release);
    }

    pub fn set_initialized(&self) {
        self.flag.store(1, Ordering::Release);
    }

    pub fn write(&self, value: &HostTensor) -> Result<()> {
        if value.data_type() != self.data_type || *value.shape() != self.shape {
            return Err(Error::invalid_argument(format!(
                "variable '{}' is {}{}, the value {}{}",
                self.name,
                self.data_type,
                self.shape,
                value.data_type(),
                value.shape()
            )));
        }
        let dense = value.dense()?;
        self.block.write(self.offset, dense.bytes().unwrap_or_default())?;
        self.set_initialized();
        Ok(())
    }
}

/// A session's variables, by key.
#[derive(Debug, Default)]
pub(crate) struct Variables {
    storages: HashMap<String, Storage>,
    /// A variable has its number for life, also where its storage goes and comes again.
    numbers: HashMap<String, u32>,
    /// The flags of folded variables (see [`plimsoll_plan::Freeze`]), for life.
    folded: HashMap<String, Arc<AtomicU8>>,
    /// The flags of the folded variables that are computed from a variable.
    dependents: HashMap<String, Vec<Arc<AtomicU8>>>,
}

impl Variables {
    /// None yet; those of `freeze` are folded.
    pub fn new(freeze: Option<&Freeze>) -> Variables {
        let mut variables = Variables::default();
        for folded in freeze.into_iter().flat_map(|freeze| &freeze.folded) {
            let flag = Arc::<AtomicU8>::default();
            for source in &folded.sources {
                variables.dependents.entry(source.clone()).or_default().push(flag.clone());
            }
            variables.folded.insert(folded.key.clone(), flag);
        }
        variables
    }

    /// The flag of a folded variable: 1 while its value is that of the variables that it is computed from.
    pub fn folded(&self, key: &str) -> Option<&Arc<AtomicU8>> {
        self.folded.get(key)
    }

    /// The flags of the folded variables that are out of date after a variable was written.
    pub fn dependents(&self, key: &str) -> &[Arc<AtomicU8>] {
        self.dependents.get(key).map_or(&[], Vec::as_slice)
    }

    /// A variable was written, or a part of it.
    pub fn note_write(&self, key: &str) {
        if let Some(storage) = self.storages.get(key) {
            storage.pristine.store(false, Ordering::Release);
        }
        self.dependents(key).iter().for_each(|flag| flag.store(0, Ordering::Release));
    }

    /// Gives back the storage of those of these variables that files have as they are, and that no loaded plan has.
    pub fn give_back<'a>(&mut self, keys: impl Iterator<Item = &'a str>) {
        for key in keys {
            let is_idle = |storage: &Storage| storage.pristine.load(Ordering::Acquire) && Arc::strong_count(&storage.flag) == 1;
            if self.storages.get(key).is_some_and(is_idle) {
                self.storages.remove(key);
            }
        }
    }

    pub fn get(&self, key: &str) -> Option<&Storage> {
        self.storages.get(key)
    }

    pub fn all(&self) -> impl Iterator<Item = (&String, &Storage)> {
        self.storages.iter()
    }

    /// The bytes that they take of each device.
    pub fn resident(&self, devices: &[Arc<dyn Device>]) -> Vec<Bytes> {
        let mut resident = vec![Bytes::ZERO; devices.len()];
        let mut seen = HashSet::new();
        for storage in self.storages.values().filter(|storage| storage.kind != VariableKind::State) {
            if seen.insert(Arc::as_ptr(&storage.block)) {
                let device = storage.device.index();
                resident[device] += devices[device].spec().reserved(storage.block.bytes());
            }
        }
        resident
    }

    /// Gives storage to those of `wanted` that have none. The variables of each device get one block. States get one of their own,
    /// which is the process's and under no line.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED where a line has no room; INVALID_ARGUMENT where a variable exists with another type or shape.
    pub fn ensure(&mut self, wanted: &[PlanVariable], devices: &[Arc<dyn Device>], holder: &str) -> Result<()> {
        for variable in wanted {
            if let Some(storage) = self.storages.get(&variable.key)
                && (storage.data_type != variable.data_type || storage.shape != variable.shape)
            {
                return Err(Error::invalid_argument(format!(
                    "variable '{}' exists as {}{}",
                    variable.name, storage.data_type, storage.shape
                )));
            }
            // A state is the process's own: it is on whatever device computes with it.
            if let Some(storage) = self.storages.get(&variable.key)
                && storage.device != variable.device
                && variable.kind != VariableKind::State
            {
                let there = devices.get(storage.device.index()).map_or(String::new(), |device| device.spec().name.to_string());
                return Err(Error::invalid_argument(format!("variable '{}' exists on {there}", variable.name)));
            }
        }
        let lines = devices.iter().enumerate().map(|(index, device)| (Some(index), Offsets::new(device.spec())));
        for (index, mut offsets) in lines.chain([(None, Offsets::of_host())]) {
            let is_here = |variable: &&PlanVariable| match variable.kind {
                VariableKind::State => index.is_none(),
                _ => index == Some(variable.device.index()),
            };
            let missing: Vec<&PlanVariable> =
                wanted.iter().filter(is_here).filter(|variable| !self.storages.contains_key(&variable.key)).collect();
            if missing.is_empty() {
                continue;
            }
            let placed: Vec<(u64, &PlanVariable)> = missing.into_iter().map(|variable| (offsets.push(variable.bytes), variable)).collect();
            let total = offsets.end();
            let block = match index {
                Some(index) => devices[index].allocate(total, holder)?,
                None => Block::host(&Ledger::new("states", None), total, holder)?,
            };
            let block = Arc::new(block);
            for (offset, variable) in placed {
                if let Some(initial) = &variable.initial {
                    block.write(offset, initial)?;
                }
                let next = self.numbers.len() as u32;
                let flag = self.folded.get(&variable.key).cloned().unwrap_or_default();
                if variable.initial.is_some() {
                    flag.store(1, Ordering::Release);
                }
                let storage = Storage {
                    number: *self.numbers.entry(variable.key.clone()).or_insert(next),
                    name: variable.name.clone(),
                    kind: variable.kind,
                    device: variable.device,
                    data_type: variable.data_type,
                    shape: variable.shape.clone(),
                    bytes: variable.bytes,
                    block: block.clone(),
                    offset,
                    loaded: Arc::default(),
                    pristine: Arc::default(),
                    flag,
                };
                self.storages.insert(variable.key.clone(), storage);
            }
        }
        Ok(())
    }
}
