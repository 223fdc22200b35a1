//! Tables of costs from the kernels of earlier runs.
//!
//! A run with step statistics knows what each kernel is priced by, and how long it took. A table is made true of these kernels class by
//! class: all rates of a class are scaled by one factor. So a few kernels are enough, and sizes that did not run keep their proportions.

use std::collections::BTreeMap;

use plimsoll_base::{Error, Result};
use serde::{Deserialize, Serialize};

use super::{Caches, Class, CostTable, Costs, Load, Rates};
use crate::{Cost, DeviceSpec, InstructionSet, Step};

/// Predicted seconds that count in each class with the factor of all kernels: the clock is no ruler for a class of less.
const OF_ALL: f64 = 2e-5;

/// What writes a profile.
const REMEDY: &str = "write one with `--profile FILE` of bench, train or eval";

/// A kernel that ran: what a table prices of it, and its time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredKernel {
    /// Its work.
    pub load: Load,
    /// Bytes that it reads and writes.
    pub bytes: f64,
    /// Into how many pieces it is cut.
    pub chunks: u32,
    /// The threads of its device.
    pub threads: u32,
    /// From its start to its end.
    pub seconds: f64,
}

/// The kernels of runs on one processor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredKernels {
    /// Which processor, for readers.
    pub processor: String,
    /// Its instructions.
    pub instructions: InstructionSet,
    /// Its caches.
    pub caches: Caches,
    /// The kernels.
    pub kernels: Vec<MeasuredKernel>,
}

/// The part of a profile that is read here.
#[derive(Deserialize)]
struct File {
    measured: Option<Vec<MeasuredKernels>>,
}

impl MeasuredKernel {
    /// The seconds that rates predict for it.
    fn predicted(&self, table: &CostTable, rates: &Rates) -> f64 {
        let MeasuredKernel { load, bytes, chunks, threads, .. } = *self;
        let cost = Cost { flops: load.issued, bytes };
        let step = Step { args: None, chunks, scratch: 0, per_worker: 0, in_place: Vec::new(), cost, load, seconds: None };
        rates.numbers().iter().zip(table.features(&step, threads)).map(|(rate, amount)| rate * amount).sum()
    }
}

impl MeasuredKernels {
    /// None yet, of the processor that computes for these devices. None where tables of processors price none of them.
    pub fn of(devices: &[DeviceSpec]) -> Option<MeasuredKernels> {
        let spec = devices.iter().find(|spec| is_priced(spec))?;
        let DeviceSpec { instructions, caches, .. } = *spec;
        Some(MeasuredKernels { processor: spec.description.clone(), instructions, caches, kernels: Vec::new() })
    }

    /// Adds a step that took `seconds` on a device, unless that is a real card or one whose speed is modelled.
    pub fn add(&mut self, spec: &DeviceSpec, step: &Step, seconds: f64) {
        let kernel = MeasuredKernel { load: step.load, bytes: step.cost.bytes, chunks: step.chunks, threads: spec.threads, seconds };
        self.kernels.extend(is_priced(spec).then_some(kernel));
    }

    /// The kernels in a profile: the file of `--profile` of bench, train and eval.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where it is no profile, has no kernels, or has numbers that nothing measured.
    pub fn from_json(json: &[u8]) -> Result<Vec<MeasuredKernels>> {
        let wrong = |what: String| Error::invalid_argument(what).with_remedy(REMEDY);
        let File { measured } = serde_json::from_slice(json).map_err(|error| wrong(format!("not a profile: {error}")))?;
        let measured = measured.ok_or_else(|| wrong("a profile without measured kernels".to_string()))?;
        let all = measured.iter().flat_map(|measured| &measured.kernels);
        for (index, MeasuredKernel { load, bytes, threads, seconds, .. }) in all.enumerate() {
            let numbers = [load.issued, load.elementwise, *bytes, *seconds];
            let limits = [1e18, 1e18, 1e18, 1e6];
            if *threads == 0 || numbers.iter().zip(limits).any(|(number, limit)| !(0.0..=limit).contains(number)) {
                let message =
                    format!("measured kernel {index} of the profile has numbers that nothing measured: {numbers:?}, {threads} threads");
                return Err(wrong(message));
            }
        }
        Ok(measured)
    }
}

/// Whether tables of processors price a device.
fn is_priced(spec: &DeviceSpec) -> bool {
    spec.kind.computes() && spec.real().is_none() && !spec.is_modelled()
}

impl Costs {
    /// A table for the processor of measured kernels: the one of these costs that a device of that processor has, each class scaled by its
    /// measured seconds over its predicted ones. Classes of little time, or none, come close to the factor of all kernels together.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where no kernels of a processor took time, where they are of several processors, and where no table is for that
    /// processor's instructions.
    pub fn scaled(&self, measured: &[MeasuredKernels]) -> Result<CostTable> {
        let kernels: Vec<&MeasuredKernel> = measured.iter().flat_map(|measured| &measured.kernels).collect();
        let nothing = || {
            let message = "no kernel of a processor took time in the profile: tables of cards are not scaled";
            Error::invalid_argument(message).with_remedy("profile a step that computes on a processor")
        };
        let first = measured.iter().find(|measured| !measured.kernels.is_empty()).ok_or_else(nothing)?;
        let is_other = |other: &&MeasuredKernels| (other.instructions, other.caches) != (first.instructions, first.caches);
        if let Some(other) = measured.iter().filter(|other| !other.kernels.is_empty()).find(is_other) {
            let message = format!(
                "the profiles are of two processors: {} with {} and {} with {}",
                first.processor, first.instructions, other.processor, other.instructions
            );
            return Err(Error::invalid_argument(message).with_remedy("make a table of each"));
        }
        let of_processor = DeviceSpec { caches: first.caches, ..DeviceSpec::cpu(0, None, 1, first.instructions) };
        let table = self.table(&of_processor).ok_or_else(|| {
            let message = format!("no table of costs is for {}, so there is nothing to scale", first.instructions);
            Error::invalid_argument(message).with_remedy("measure one there with `plimsoll calibrate`")
        })?;
        let mut table = CostTable { processor: first.processor.clone(), caches: first.caches, ..table.clone() };
        let rates = |class: Class| table.rates.get(&class).or_else(|| table.rates.get(&Class::Other)).copied().unwrap_or_default();
        // By class: predicted and measured seconds.
        let mut classes: BTreeMap<Class, [f64; 2]> = Class::ALL.into_iter().map(|class| (class, [0.0; 2])).collect();
        for kernel in kernels {
            let [predicted, seconds] = classes.entry(kernel.load.class).or_default();
            *predicted += kernel.predicted(&table, &rates(kernel.load.class));
            *seconds += kernel.seconds;
        }
        let [predicted, seconds] = [0, 1].map(|which| classes.values().map(|sums| sums[which]).sum::<f64>());
        if !(predicted > 0.0 && seconds > 0.0) {
            return Err(nothing());
        }
        let of_all = seconds / predicted;
        let scaled = |(class, [predicted, seconds]): (Class, [f64; 2])| {
            let factor = (seconds + of_all * OF_ALL) / (predicted + OF_ALL);
            (class, Rates::of(rates(class).numbers().map(|rate| rate * factor)))
        };
        table.rates = classes.into_iter().map(scaled).collect();
        Ok(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CACHES: Caches = Caches { l1: 32 << 10, l2: 1 << 20, l3: 32 << 20 };

    fn measured(kernels: &[(Class, f64, f64)]) -> MeasuredKernels {
        let kernel = |(class, issued, seconds): &(Class, f64, f64)| {
            let load = Load { class: *class, issued: *issued, elementwise: issued / 8.0 };
            MeasuredKernel { load, bytes: issued / 4.0, chunks: 8, threads: 2, seconds: *seconds }
        };
        let kernels = kernels.iter().map(kernel).collect();
        MeasuredKernels { processor: "made up".to_string(), instructions: InstructionSet::Avx2, caches: CACHES, kernels }
    }

    fn predicted(table: &CostTable, kernel: &MeasuredKernel) -> f64 {
        kernel.predicted(table, &table.rates[&kernel.load.class])
    }

    /// What a machine takes that is `factor` times as slow in a class as the committed table says.
    fn as_slow(costs: &Costs, kernels: &[(Class, f64)], factor: impl Fn(Class) -> f64) -> MeasuredKernels {
        let table = costs.table(&DeviceSpec { caches: CACHES, ..DeviceSpec::cpu(0, None, 2, InstructionSet::Avx2) }).unwrap();
        let table = CostTable { caches: CACHES, ..table.clone() };
        let mut measured = measured(&kernels.iter().map(|(class, issued)| (*class, *issued, 0.0)).collect::<Vec<_>>());
        measured.kernels.iter_mut().for_each(|kernel| kernel.seconds = factor(kernel.load.class) * predicted(&table, kernel));
        measured
    }

    #[test]
    fn each_class_takes_what_was_measured_and_others_what_all_do() {
        let costs = Costs::committed();
        let kernels = [(Class::Product, 1e10), (Class::Product, 3e9), (Class::Convolution, 1e10), (Class::Random, 1.0)];
        let factor = |class| [3.0, 1.5][usize::from(class == Class::Convolution)];
        let of_run = as_slow(&costs, &kernels, factor);
        let table = costs.scaled(std::slice::from_ref(&of_run)).unwrap();
        assert_eq!((table.caches, table.instructions, &*table.processor), (CACHES, InstructionSet::Avx2, "made up"));
        for kernel in &of_run.kernels[..3] {
            let quotient = predicted(&table, kernel) / kernel.seconds;
            assert!((0.99..1.01).contains(&quotient), "{kernel:?}: {quotient}");
        }
        let before = costs.table(&DeviceSpec { caches: CACHES, ..DeviceSpec::cpu(0, None, 2, InstructionSet::Avx2) }).unwrap();
        let seconds = |factor: fn(&MeasuredKernel) -> f64| of_run.kernels.iter().map(factor).sum::<f64>();
        let of_all =
            seconds(|kernel| kernel.seconds) / as_slow(&costs, &kernels, |_| 1.0).kernels.iter().map(|kernel| kernel.seconds).sum::<f64>();
        // A class that did not run, and one whose time says little.
        for (class, near) in [(Class::Pooling, 1e-9), (Class::Random, 0.05)] {
            let quotient = table.rates[&class].call / before.rates[&class].call;
            assert!((quotient / of_all - 1.0).abs() <= near, "{class}: {quotient}, all {of_all}");
        }
        // What was measured on a machine as the table says changes nothing.
        let same = costs.scaled(&[as_slow(&costs, &kernels, |_| 1.0)]).unwrap();
        for class in Class::ALL {
            for (new, old) in same.rates[&class].numbers().into_iter().zip(before.rates[&class].numbers()) {
                assert!((new - old).abs() <= 1e-9 * old, "{class}: {new} for {old}");
            }
        }
    }

    #[test]
    fn kernels_that_say_nothing_are_refused() {
        let costs = Costs::committed();
        let refused = |measured: &[MeasuredKernels]| costs.scaled(measured).unwrap_err().to_string();
        let one = measured(&[(Class::Product, 1e9, 1e-2)]);
        for nothing in [&[][..], &[measured(&[])], &[measured(&[(Class::Product, 1e9, 0.0)])]] {
            assert!(refused(nothing).contains("no kernel of a processor took time"), "{}", refused(nothing));
        }
        let other = MeasuredKernels { caches: Caches { l3: 1 << 20, ..CACHES }, ..one.clone() };
        assert!(refused(&[one.clone(), other]).contains("of two processors: made up with "), "of {one:?}");
        let arm = MeasuredKernels { instructions: InstructionSet::Neon, ..one.clone() };
        assert!(refused(&[arm]).contains("no table of costs is for"));
        // None of another processor is no other processor.
        let none = MeasuredKernels { instructions: InstructionSet::Neon, kernels: Vec::new(), ..one.clone() };
        assert!(costs.scaled(&[none, one]).is_ok());
    }

    #[test]
    fn only_what_a_processor_computes_is_measured() {
        let step = Step {
            args: None,
            chunks: 4,
            scratch: 0,
            per_worker: 0,
            in_place: Vec::new(),
            cost: Cost { flops: 1.0, bytes: 8.0 },
            load: Load { class: Class::Loss, issued: 2.0, elementwise: 3.0 },
            seconds: None,
        };
        let processor = DeviceSpec::cpu(0, None, 2, InstructionSet::Avx2);
        let mut of_run = MeasuredKernels::of(std::slice::from_ref(&processor)).unwrap();
        let file = DeviceSpec::spill(0, plimsoll_base::Bytes(1 << 20), "folder");
        assert_eq!(MeasuredKernels::of(std::slice::from_ref(&file)), None);
        of_run.add(&file, &step, 1.0);
        of_run.add(&processor, &step, 2.0);
        let kernel = MeasuredKernel { load: step.load, bytes: 8.0, chunks: 4, threads: 2, seconds: 2.0 };
        assert_eq!(of_run.kernels, [kernel]);
    }

    #[test]
    fn files_are_held_against_their_form() {
        let one = vec![measured(&[(Class::Product, 1e9, 0.5)])];
        let text = format!("{{\"traceEvents\": [], \"measured\": {}}}", serde_json::to_string(&one).unwrap());
        assert_eq!(MeasuredKernels::from_json(text.as_bytes()).unwrap(), one);
        for (from, to, why) in [
            ("\"seconds\":0.5", "\"seconds\":-0.5", "numbers that nothing measured"),
            ("\"seconds\":0.5", "\"seconds\":1e300", "numbers that nothing measured"),
            ("\"seconds\":0.5", "\"seconds\":null", "not a profile"),
            ("\"threads\":2", "\"threads\":0", "numbers that nothing measured"),
            ("\"issued\":1000000000.0", "\"issued\":1e300", "numbers that nothing measured"),
            ("\"product\"", "\"quotient\"", "not a profile: unknown variant `quotient`"),
            ("\"measured\"", "\"commands\"", "without measured kernels"),
            ("{", "", "not a profile"),
        ] {
            assert!(text.contains(from), "{from}: {text}");
            let error = MeasuredKernels::from_json(text.replacen(from, to, 1).as_bytes()).unwrap_err();
            assert!(error.to_string().contains(why) && error.to_string().contains("--profile FILE"), "{to}: {error}");
        }
    }
}
