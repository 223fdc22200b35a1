//! From options to logical devices.

use plimsoll_base::{Error, Result};
use plimsoll_device::{Bf16Instructions, DeviceKind, DeviceSpec, InstructionSet};

use super::{Environment, Options};
use crate::{PhysicalDevice, resolve};

/// More threads or CPU devices than this are taken for a mistake.
pub(crate) const MOST: i32 = 4096;

impl Options {
    /// How many threads compute at the same time: as [`Options::threads_in`] without variables, 0 being every core.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where the number makes no sense.
    pub fn threads(&self) -> Result<usize> {
        self.threads_in(&Environment::new(), std::thread::available_parallelism().map_or(1, |cores| cores.get()))
    }

    /// How many threads compute at the same time on so many cores: the option, else TF_NUM_INTRAOP_THREADS, else one a core.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where the number makes no sense.
    pub fn threads_in(&self, environment: &Environment, cores: usize) -> Result<usize> {
        match self.intra_op {
            0 => Ok(number_of(environment, "TF_NUM_INTRAOP_THREADS").unwrap_or(cores)),
            1..=MOST => Ok(self.intra_op as usize),
            number => Err(Error::invalid_argument(format!("--intra-op {number}: not a number of threads"))
                .with_remedy(format!("write 1 to {MOST}, or 0 for one thread on every core"))),
        }
    }

    /// How many queues of a run advance at the same time; 0 is no limit.
    pub fn queues(&self) -> usize {
        self.queues_in(&Environment::new())
    }

    /// How many queues of a run advance at the same time: the option, else TF_NUM_INTEROP_THREADS; 0 is no limit.
    pub fn queues_in(&self, environment: &Environment) -> usize {
        match self.inter_op {
            0 => number_of(environment, "TF_NUM_INTEROP_THREADS").unwrap_or(0),
            number => number.max(1) as usize,
        }
    }

    /// The simulated cards that are asked for: by the option, else by PLIMSOLL_SIM_GPUS; none where neither is there or the one
    /// that counts is empty.
    ///
    /// # Errors
    /// As [`PhysicalDevice::simulated`].
    pub fn simulated_cards(&self, environment: &Environment) -> Result<Vec<PhysicalDevice>> {
        match (&self.sim_gpus, environment.get("PLIMSOLL_SIM_GPUS")) {
            (Some(cards), _) => PhysicalDevice::simulated("--sim-gpus", cards),
            (None, Some(cards)) => PhysicalDevice::simulated("PLIMSOLL_SIM_GPUS", cards),
            (None, None) => Ok(Vec::new()),
        }
    }

    /// The logical CPU devices that the options make of this machine: all there are where there is no card. An option that cannot
    /// be honoured yet is refused, never ignored. Reads no environment variable.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for options that contradict each other or the machine; NOT_FOUND for no CPU, as in TensorFlow;
    pub fn resolve(&self) -> Result<Vec<DeviceSpec>> {
        let bf16 = self.matmul_precision.instructions(Bf16Instructions::detect());
        let specs = self.resolve_on(self.threads()? as u32, InstructionSet::detect())?;
        Ok(specs.into_iter().map(|spec| DeviceSpec { bf16, ..spec }).collect())
    }

    /// As [`Options::resolve`], for a machine that computes with so many threads of those instructions, and has none for bf16.
    ///
    /// # Errors
    /// As [`Options::resolve`].
    pub fn resolve_on(&self, threads: u32, instructions: InstructionSet) -> Result<Vec<DeviceSpec>> {
        self.check()?;
        let division = resolve(&[], self, &Environment::new())?;
        let cpus = division.of(DeviceKind::Cpu);
        Ok(cpus.map(|device| device.cpu_spec(threads, instructions)).collect())
    }
}

/// A number of threads that a variable names; none where it names none.
fn number_of(environment: &Environment, variable: &str) -> Option<usize> {
    environment.number(variable).filter(|number| (1..=i64::from(MOST)).contains(number)).map(|number| number as usize)
}

#[cfg(test)]
mod tests {

    use super::*;

    fn limits(options: &Options) -> Result<Vec<Option<u64>>, String> {
        let specs = options.resolve_on(2, InstructionSet::Baseline).map_err(|error| error.to_string())?;
        for (index, spec) in specs.iter().enumerate() {
            assert_eq!((spec.name.short(), spec.threads), (format!("CPU:{index}"), 2));
        }
        Ok(specs.iter().map(|spec| spec.memory_limit.map(|limit| limit.0)).collect())
    }

    #[test]
    fn cpu_devices_with_their_limits() {
        let new = Options::new;
        assert_eq!(limits(&new()), Ok(vec![None]));
        assert_eq!(limits(&new().limit("CPU:0", "64MiB")), Ok(vec![Some(64 << 20)]));
        assert_eq!(limits(&new().device_count_flag("CPU=3,GPU=0").unwrap().limit("cpu:2", "7")), Ok(vec![None, None, Some(7)]));
        assert_eq!(limits(&new().memory_limit_flag("CPU:0=1B+2B").unwrap()), Ok(vec![Some(1), Some(2)]));
        assert_eq!(limits(&new().visible_devices("-1").device_count(DeviceKind::Gpu, 2)), Ok(vec![None]));
        assert_eq!(new().intra_op(3).resolve().unwrap()[0].threads, 3);
        assert_eq!((new().queues(), new().inter_op(-1).queues(), new().inter_op(4).queues()), (0, 1, 4));
    }

    #[test]
    fn options_that_cannot_be_say_what_could() {
        let new = Options::new;
        for (options, text) in [
            (new().limit("CPU:1", "5"), "--memory-limit CPU:1=5B: there is no such device\n  hint: the only device is CPU:0"),
            (new().limit("GPU:0", "1GiB"), "--memory-limit GPU:0=1GiB: there is no such device\n  hint: the only device is CPU:0"),
            (new().memory_limit_flag("2GiB").unwrap(), "there is no GPU\n  hint: to limit the processor write --memory-limit CPU:0=2GiB"),
            (new().device_count(DeviceKind::Cpu, 3).limit("CPU:0", "1+2"), "the devices are CPU:0 to CPU:2; give a limit for each"),
            (new().limit("CPU:1", "1+2"), "does not divide the processor"),
            (new().limit("CPU:0", "much").limit("GPU:0", "1"), "--memory-limit CPU:0=much: 'much' is not a size"),
            (new().limit("CPU:0", "64MiB").limit("/cpu:0", "1k"), "--memory-limit CPU:0=64MiB,CPU:0=1KiB: CPU:0 has two limits"),
            (new().limit("GPU", "1GiB").limit("GPU", "2GiB"), "--memory-limit 1GiB,2GiB: every GPU has two limits"),
            (new().limit("CPU:0", "1+2").limit("CPU:1", "3"), "--memory-limit CPU:1=3B: CPU:0's limits are the limit of this device, too"),
            (new().limit("CPU:1", "3").limit("CPU:0", "1+2"), "--memory-limit CPU:0=1B+2B: another limit is for one of these devices"),
            (new().memory_fraction(0.5).limit("GPU:1", "1GiB"), "--memory-fraction and --memory-limit GPU:1=1GiB contradict each other"),
            (new().device_count_flag("CPU=0").unwrap(), "NOT_FOUND: No CPU devices are available in this process"),
            (new().device_count(DeviceKind::Cpu, 1 << 20), "--device-count CPU=1048576: not a number of devices"),
        ] {
            let error = limits(&options).unwrap_err();
            assert!(error.contains(text), "{error}");
        }
        for threads in [-1, i32::MIN, i32::MAX] {
            assert!(Options::new().intra_op(threads).resolve().unwrap_err().message().contains("not a number of threads"));
        }
    }
}
