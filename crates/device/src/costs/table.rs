//! The tables.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_base::{Error, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{Class, Load};
use crate::interpret::COPY_PIECE;
use crate::{Cost, DeviceKind, DeviceSpec, InstructionSet, Step, Tuned, Variant};

/// The form of files of tables.
const VERSION: u32 = 1;

/// Seconds between two commands of a device without a table.
const SECONDS_PER_COMMAND: f64 = 2e-7;

/// Bytes of a core's caches; 0 where it is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caches {
    /// Data of the first level.
    pub l1: u64,
    /// The second level.
    pub l2: u64,
    /// The third level, which cores share.
    pub l3: u64,
}

impl Caches {
    /// How unlike two machines are: the sum of the distances between the levels' sizes, in powers of two.
    fn distance(self, other: Caches) -> f64 {
        let levels = [(self.l1, other.l1), (self.l2, other.l2), (self.l3, other.l3)];
        levels.iter().map(|(one, other)| ((*one).max(1) as f64 / (*other).max(1) as f64).log2().abs()).sum()
    }
}

/// Seconds that kernels of a class take: for a call, and for a unit of each part of its work on one thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// A call, whatever its size.
    pub call: f64,
    /// More for a call in which several threads take part.
    pub fork: f64,
    /// An arithmetic operation that is issued.
    pub issued: f64,
    /// An operation of the expression behind the main loop.
    pub elementwise: f64,
    /// A byte of a call whose bytes fit the second cache.
    pub near: f64,
    /// A byte of other calls.
    pub far: f64,
}

impl Rates {
    /// The rates as numbers, in the order of [`super::Sample::features`].
    pub(super) fn of(numbers: [f64; 6]) -> Rates {
        let [call, fork, issued, elementwise, near, far] = numbers;
        Rates { call, fork, issued, elementwise, near, far }
    }

    /// See [`Rates::of`].
    pub(super) fn numbers(&self) -> [f64; 6] {
        [self.call, self.fork, self.issued, self.elementwise, self.near, self.far]
    }
}

/// The costs of a processor, for one instruction set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CostTable {
    /// Which processor was measured, for readers.
    pub processor: String,
    /// The model of the real card that the table is for, as its driver calls it. None: the table is for processors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub card: Option<String>,
    /// The kernels that were measured. For a card it says nothing.
    pub instructions: InstructionSet,
    /// The caches of the machine.
    pub caches: Caches,
    /// How many threads took part at most. More are not predicted to move bytes of memory faster.
    pub threads: u32,
    /// Seconds between two commands of a queue.
    pub command: f64,
    /// The rates of the classes. One that is not there has the rates of [`Class::Other`].
    pub rates: BTreeMap<Class, Rates>,
}

impl CostTable {
    /// The predicted seconds of a step on `threads` threads, when nothing else computes.
    pub fn seconds(&self, step: &Step, threads: u32) -> f64 {
        let Some(rates) = self.rates.get(&step.load.class).or_else(|| self.rates.get(&Class::Other)) else { return self.command };
        let features = self.features(step, threads);
        self.command + rates.numbers().iter().zip(features).map(|(rate, amount)| rate * amount).sum::<f64>()
    }

    /// The predicted seconds of a copy.
    fn copy_seconds(&self, bytes: f64, threads: u32) -> f64 {
        let chunks = (bytes / COPY_PIECE as f64).ceil().max(1.0) as u32;
        let (cost, load) = (Cost { flops: 0.0, bytes: 2.0 * bytes }, Load { class: Class::Movement, ..Load::default() });
        self.seconds(&Step { args: None, chunks, scratch: 0, per_worker: 0, in_place: Vec::new(), cost, load, seconds: None }, threads)
    }

    /// The amounts that the rates price, of the busiest thread.
    pub(super) fn features(&self, step: &Step, threads: u32) -> [f64; 6] {
        let (chunks, taking) = (f64::from(step.chunks.max(1)), f64::from(step.chunks.min(threads).max(1)));
        let part = (chunks / taking).ceil() / chunks;
        let far_part = part.max(1.0 / f64::from(self.threads.max(1)));
        let is_near = step.cost.bytes <= self.caches.l2 as f64;
        let (near, far) = if is_near { (step.cost.bytes * part, 0.0) } else { (0.0, step.cost.bytes * far_part) };
        let fork = if taking > 1.0 { 1.0 } else { 0.0 };
        [1.0, fork, step.load.issued * part, step.load.elementwise * part, near, far]
    }

    fn check(&self) -> Result<()> {
        let numbers = self.rates.values().flat_map(Rates::numbers).chain([self.command]);
        match numbers.into_iter().all(|number| number.is_finite() && (0.0..=1.0).contains(&number)) {
            true if self.threads > 0 && !self.rates.is_empty() => Ok(()),
            _ => Err(Error::invalid_argument(format!("the costs of {} are not those of a machine", self.instructions))),
        }
    }
}

/// Tables of costs: an input of planning.
#[derive(Clone, Debug, PartialEq)]
pub struct Costs {
    tables: Vec<CostTable>,
    fingerprint: String,
    exact_convolutions: bool,
}

/// A file of tables.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: u32,
    tables: Vec<CostTable>,
}

impl Costs {
    /// Costs of these tables.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for rates that no machine has: negative, infinite, or of more than a second.
    pub fn of(tables: Vec<CostTable>) -> Result<Costs> {
        tables.iter().try_for_each(CostTable::check)?;
        let mut costs = Costs { tables, fingerprint: String::new(), exact_convolutions: false };
        let digest = Sha256::digest(costs.to_json()?);
        costs.fingerprint = digest[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(costs)
    }

    /// The tables of this version of the project.
    pub fn committed() -> Costs {
        let none = Costs { tables: Vec::new(), fingerprint: String::new(), exact_convolutions: false };
        Costs::from_json(include_bytes!("../../data/costs.json")).unwrap_or(none)
    }

    /// The tables of a file.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where it is no such file, of another version, or has rates that no machine has.
    pub fn from_json(json: &[u8]) -> Result<Costs> {
        let File { version, tables } =
            serde_json::from_slice(json).map_err(|error| Error::invalid_argument(format!("not a table of costs: {error}")))?;
        if version != VERSION {
            let message = format!("a table of costs of form {version}, this is form {VERSION}");
            return Err(Error::invalid_argument(message).with_remedy("measure it again with `plimsoll calibrate`"));
        }
        Costs::of(tables)
    }

    /// The file.
    ///
    /// # Errors
    /// INTERNAL where a rate cannot be written.
    pub fn to_json(&self) -> Result<Vec<u8>> {
        let file = File { version: VERSION, tables: self.tables.clone() };
        let mut json = serde_json::to_vec_pretty(&file).map_err(|error| Error::internal(format!("costs cannot be written: {error}")))?;
        json.push(b'\n');
        Ok(json)
    }

    /// The tables.
    pub fn tables(&self) -> &[CostTable] {
        &self.tables
    }

    /// A name for these costs, which plans keep: 16 digits of the SHA-256 of the file. Equal tables have equal ones. Those for exact
    /// convolutions end in `-exact`.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// The same tables, for plans whose libraries choose by a table of times, too: its fingerprint is in the name.
    #[must_use]
    pub fn beside(mut self, tuned: &Tuned) -> Costs {
        self.fingerprint = format!("{}-tuned-{}", self.fingerprint, tuned.fingerprint());
        self
    }

    /// The same tables, for plans of these devices. Real cards of models that no table is for are priced by their library: the fingerprint of what it
    /// goes by, which `priced_by` gives for a model, is in the name.
    #[must_use]
    pub fn with_cards(mut self, devices: &[DeviceSpec], priced_by: impl Fn(&str) -> String) -> Costs {
        let models: BTreeSet<&str> = devices.iter().filter_map(DeviceSpec::real).map(|real| &*real.model).collect();
        let text: Vec<String> = models
            .into_iter()
            .filter(|model| self.of_card(model).is_none())
            .map(|model| format!("{model}\n{}", priced_by(model)))
            .collect();
        if !text.is_empty() {
            let digest = Sha256::digest(text.join("\n"));
            let digits: String = digest[..8].iter().map(|byte| format!("{byte:02x}")).collect();
            self.fingerprint = format!("{}-cards-{digits}", self.fingerprint);
        }
        self
    }

    /// The same tables, for plans whose convolutions do all multiplications: no faster variant of other bits is chosen.
    #[must_use]
    pub fn with_exact_convolutions(mut self) -> Costs {
        if !self.exact_convolutions {
            self.exact_convolutions = true;
            self.fingerprint.push_str("-exact");
        }
        self
    }

    /// The numerics of a request that a device can compute with these variants, in the order of its library; none where there are no
    /// variants. It is that of the fastest variant on one thread, by the first table of the device's instruction set. So it is the
    /// same for all devices of an instruction set, whatever their threads, caches, limits and speeds. It is that of the first
    /// variant where there is no such table, for exact convolutions, and where the library predicts seconds by itself.
    pub fn numerics<'a>(&self, instructions: InstructionSet, variants: &'a [Variant]) -> Option<&'a str> {
        let first = &*variants.first()?.numerics;
        let is_by_library =
            self.exact_convolutions || variants.iter().flat_map(|variant| &variant.steps).any(|step| step.seconds.is_some());
        let of_processors = self.tables.iter().filter(|table| table.card.is_none() && !is_by_library);
        let table = of_processors.into_iter().find(|table| table.instructions == instructions);
        let Some(table) = table.filter(|_| variants.iter().any(|variant| *variant.numerics != *first)) else { return Some(first) };
        let seconds = |variant: &Variant| variant.steps.iter().map(|step| table.seconds(step, 1)).sum::<f64>();
        let fastest = variants.iter().min_by(|one, other| seconds(one).total_cmp(&seconds(other)));
        fastest.map(|variant| &*variant.numerics)
    }

    /// The table for a device: of its instruction set, and of these the one with the most similar caches. For a real card that of its model. None for
    /// devices whose time is modelled, for other kinds of device, and for cards of other models: their library predicts seconds.
    pub fn table(&self, spec: &DeviceSpec) -> Option<&CostTable> {
        if let Some(real) = spec.real() {
            return self.of_card(&real.model);
        }
        let is_of_kind = |table: &&CostTable| !spec.is_modelled() && table.card.is_none() && table.instructions == spec.instructions;
        let of_kind = self.tables.iter().filter(is_of_kind);
        of_kind.min_by(|one, other| one.caches.distance(spec.caches).total_cmp(&other.caches.distance(spec.caches)))
    }

    fn of_card(&self, model: &str) -> Option<&CostTable> {
        self.tables.iter().find(|table| table.card.as_deref() == Some(model))
    }

    /// Whether the times of a device are predicted: by a table, or by the library of a real card.
    pub fn predicts(&self, spec: &DeviceSpec) -> bool {
        spec.real().is_some() || self.table(spec).is_some()
    }

    /// The predicted seconds of a step on a device, when nothing else computes.
    pub fn step_seconds(&self, spec: &DeviceSpec, step: &Step) -> f64 {
        let by_library = || step.seconds.filter(|_| !spec.is_modelled() && spec.kind == DeviceKind::Gpu);
        match self.table(spec).filter(|table| table.card.is_some() || step.seconds.is_none()) {
            Some(table) => table.seconds(step, spec.threads),
            None => by_library().unwrap_or_else(|| spec.seconds(step.cost) + SECONDS_PER_COMMAND),
        }
    }

    /// The predicted seconds of a copy of `bytes` bytes between the memories of two devices, or in that of one.
    pub fn copy_seconds(&self, from: &DeviceSpec, to: &DeviceSpec, bytes: f64) -> f64 {
        let is_real = from.real().or(to.real()).is_some();
        let is_in_memory = !from.is_modelled() && !is_real && from.kind.computes() && to.kind.computes();
        match self.table(to).filter(|_| is_in_memory) {
            Some(table) => table.copy_seconds(bytes, to.threads),
            None => to.copy_seconds(from, bytes) + SECONDS_PER_COMMAND,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cost, Load};

    fn table(instructions: InstructionSet, caches: Caches, rates: Rates) -> CostTable {
        let rates = BTreeMap::from([(Class::Product, rates), (Class::Other, Rates { call: 1e-3, ..Rates::default() })]);
        CostTable { processor: "made up".to_string(), card: None, instructions, caches, threads: 2, command: 0.0, rates }
    }

    fn step(class: Class, chunks: u32, issued: f64, bytes: f64) -> Step {
        let load = Load { class, issued, elementwise: 0.0 };
        Step {
            args: None,
            chunks,
            scratch: 0,
            per_worker: 0,
            in_place: Vec::new(),
            cost: Cost { flops: issued, bytes },
            load,
            seconds: None,
        }
    }

    const SMALL: Caches = Caches { l1: 32 << 10, l2: 256 << 10, l3: 8 << 20 };

    #[test]
    fn the_busiest_thread_counts() {
        let table = table(InstructionSet::Avx2, SMALL, Rates { fork: 5.0, issued: 1.0, ..Rates::default() });
        let seconds = |chunks, threads| table.seconds(&step(Class::Product, chunks, 12.0, 0.0), threads);
        assert_eq!(seconds(1, 8), 12.0);
        assert_eq!(seconds(3, 2), 5.0 + 8.0);
        assert_eq!(seconds(4, 2), 5.0 + 6.0);
        assert_eq!(seconds(4, 1), 12.0);
    }

    #[test]
    fn bytes_beyond_the_second_cache_have_a_rate_of_their_own() {
        let table = table(InstructionSet::Avx2, SMALL, Rates { near: 1.0, far: 10.0, ..Rates::default() });
        let seconds = |bytes: f64, threads| table.seconds(&step(Class::Product, 64, 0.0, bytes), threads);
        assert_eq!(seconds(1024.0, 1), 1024.0);
        assert_eq!(seconds(1024.0, 64), 16.0);
        let large = (1 << 20) as f64;
        assert_eq!(seconds(large, 1), 10.0 * large);
        // Two threads were measured: more are not said to read memory faster.
        assert_eq!(seconds(large, 64), 5.0 * large);
    }

    #[test]
    fn a_device_has_the_table_of_its_instructions_and_caches() {
        let large = Caches { l3: 256 << 20, ..SMALL };
        let tables = [(InstructionSet::Avx2, SMALL), (InstructionSet::Avx512, SMALL), (InstructionSet::Avx512, large)];
        let costs = Costs::of(tables.map(|(set, caches)| table(set, caches, Rates::default())).to_vec()).unwrap();
        let spec = |instructions, caches| DeviceSpec { caches, ..DeviceSpec::cpu(0, None, 1, instructions) };
        let of = |instructions, caches| costs.table(&spec(instructions, caches)).map(|table| (table.instructions, table.caches.l3));
        assert_eq!(of(InstructionSet::Avx512, Caches { l3: 128 << 20, ..SMALL }), Some((InstructionSet::Avx512, large.l3)));
        assert_eq!(of(InstructionSet::Avx512, SMALL), Some((InstructionSet::Avx512, SMALL.l3)));
        assert_eq!(of(InstructionSet::Avx2, large), Some((InstructionSet::Avx2, SMALL.l3)));
        assert_eq!(of(InstructionSet::Neon, SMALL), None);
        // A class without rates has those of the others.
        let seconds = costs.step_seconds(&spec(InstructionSet::Avx2, SMALL), &step(Class::Loss, 1, 1.0, 1.0));
        assert_eq!(seconds, 1e-3);
    }

    #[test]
    fn files_are_held_against_their_form() {
        let costs = Costs::of(vec![table(InstructionSet::Avx2, SMALL, Rates { call: 2.5e-7, ..Rates::default() })]).unwrap();
        let json = costs.to_json().unwrap();
        let read = Costs::from_json(&json).unwrap();
        assert_eq!((&read, read.fingerprint()), (&costs, costs.fingerprint()));
        let text = String::from_utf8(json).unwrap();
        for (from, to) in
            [("\"version\": 1", "\"version\": 2"), ("2.5e-7", "-2.5e-7"), ("2.5e-7", "1e300"), ("\"l1\"", "\"l9\""), ("[", "")]
        {
            assert!(text.contains(from), "{from}: {text}");
            let error = Costs::from_json(text.replacen(from, to, 1).as_bytes()).unwrap_err();
            assert_eq!(error.code(), plimsoll_base::Code::InvalidArgument, "{to}: {error}");
        }
    }

    #[test]
    fn every_instruction_set_of_x86_has_committed_costs() {
        for instructions in [InstructionSet::Baseline, InstructionSet::Avx2, InstructionSet::Avx512] {
            let costs = Costs::committed();
            let table = costs.table(&DeviceSpec::cpu(0, None, 2, instructions)).expect("a table");
            assert!(Class::ALL.iter().all(|class| table.rates.contains_key(class)), "{instructions}: {:?}", table.rates.keys());
        }
    }
}
