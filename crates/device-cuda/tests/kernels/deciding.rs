//! The kernel that decides whether a body of a graph is run: all that it looks at, on every engine. A handle of a condition is the address of its
//! value here.

use plimsoll_device_cuda::emit::{self, Kernel, NO_FAULT};
use plimsoll_ptx::{Host, Job, Launch, Module, Nvrtc, Value};

/// The number of the command, and faults of one before and one behind.
const COMMAND: u64 = 5 << 44;
const BEFORE: u64 = 4 << 44 | 9 << 4 | 1;
const BEHIND: u64 = 6 << 44 | 1;

/// What there is besides the command; an absent one is the address 0.
#[derive(Clone, Copy, Debug)]
struct Given {
    guard: Option<u8>,
    /// The fault word, where it is looked at.
    stop: Option<u64>,
    condition: Option<u8>,
    halt: Option<u8>,
}

impl Given {
    fn all() -> Vec<Given> {
        let mut all = Vec::new();
        let bools = [None, Some(0), Some(1)];
        for guard in bools {
            for stop in [None, Some(NO_FAULT), Some(BEFORE), Some(BEHIND)] {
                for condition in bools {
                    all.extend(bools.map(|halt| Given { guard, stop, condition, halt }));
                }
            }
        }
        all
    }

    fn job(&self, kernel: &Kernel) -> Job {
        let word = self.stop.unwrap_or(NO_FAULT).to_le_bytes().to_vec();
        let byte = |byte: Option<u8>| vec![byte.unwrap_or(0)];
        let buffers = vec![byte(self.guard), word, byte(self.condition), byte(self.halt), vec![0xA7; 4]];
        let at = |buffer: usize, is_there: bool| if is_there { Value::Buffer(buffer) } else { Value::Number(0) };
        let (guard, stop) = (at(0, self.guard.is_some()), at(1, self.stop.is_some()));
        let (condition, halt) = (at(2, self.condition.is_some()), at(3, self.halt.is_some()));
        let base = Value::Number(COMMAND);
        let args = vec![guard, stop, base, Value::Buffer(1), base, condition, halt, Value::Buffer(4)];
        let launches = vec![Launch { entry: kernel.entry.clone(), blocks: 1, threads: 1, args }];
        Job { launches, buffers, written: vec![true, true, true, true, false] }
    }

    /// The condition behind it, and the fault word.
    fn expected(&self) -> (u32, u64) {
        let word = self.stop.unwrap_or(NO_FAULT);
        let comes = self.guard != Some(0) && self.stop.is_none_or(|stop| stop >= COMMAND) && self.condition != Some(0);
        match comes && self.halt == Some(1) {
            true => (0, word.min(COMMAND | u64::from(emit::GIVEN_UP))),
            false => (u32::from(comes), word),
        }
    }
}

fn compare(engine: &str, given: &[Given], jobs: &[Job]) {
    for (given, job) in given.iter().zip(jobs) {
        let [value, word] = [4, 1].map(|at| job.buffers[at].iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)));
        assert_eq!((value as u32, word), given.expected(), "{engine}: {given:?}");
    }
}

#[test]
fn decisions_look_at_guards_faults_conditions_and_the_hosts_byte() {
    let kernel = emit::decide().unwrap();
    let (program, given) = (emit::program([&kernel]), Given::all());
    let jobs: Vec<Job> = given.iter().map(|given| given.job(&kernel)).collect();
    match Host::find() {
        None => eprintln!("skipped: there is no C compiler to compile kernels for the processor with"),
        Some(host) => {
            let mut jobs = jobs.clone();
            host.compile(&program).unwrap().run(&mut jobs, false).unwrap();
            compare("the processor", &given, &jobs);
        }
    }
    let Some(nvrtc) = Nvrtc::find() else {
        eprintln!("skipped: NVRTC is not installed (PLIMSOLL_CUDA_LIBS names its folder), so no PTX is interpreted");
        return;
    };
    let module = Module::parse(&nvrtc.ptx(&program, "compute_90", emit::OPTIONS).unwrap()).unwrap();
    let mut jobs = jobs;
    jobs.iter_mut().zip(&given).for_each(|(job, given)| module.run(job).unwrap_or_else(|error| panic!("{given:?}: {error}")));
    compare("PTX", &given, &jobs);
    // A library that defines the function is not needed: the cubin names it, and the driver has it.
    for architecture in ["sm_80", "sm_90a", "sm_100a"] {
        let (cubin, log) = nvrtc.cubin(&program, architecture, emit::OPTIONS).unwrap();
        let name = b"cudaGraphSetConditional";
        assert!(cubin.windows(name.len()).any(|text| text == name), "{architecture}: {log}");
    }
}
