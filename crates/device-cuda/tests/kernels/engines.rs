//! The ways to run kernels, and the comparison with the processor's.

use plimsoll_base::{Bf16, DataType, F16};
use plimsoll_device_cuda::emit::{self, Emitted, FaultNumber, KernelArg};
use plimsoll_ptx::{Host, Job, Launch, Module, Nvrtc, Value};
use plimsoll_request::KernelRequest;

use super::cases::Near;

/// A request that is to be run: its kernels, its arguments, and what the processor makes of them.
pub struct Run {
    pub name: String,
    pub request: KernelRequest,
    pub emitted: Emitted,
    pub inputs: Vec<Vec<u8>>,
    pub outputs: Vec<usize>,
    /// The results, or the fault's message.
    pub expected: Result<Vec<Vec<u8>>, String>,
    /// The types of the results.
    pub types: Vec<DataType>,
    pub near: Near,
    /// The types of arguments that faults name.
    pub input_types: Vec<DataType>,
    /// Outputs whose bytes are there before: they lie where an input does.
    pub in_place: Option<(usize, usize)>,
}

impl Run {
    pub fn job(&self) -> Job {
        let mut job = Job::default();
        // Arguments, buffers between, the fault word.
        for input in &self.inputs {
            job.buffers.push(input.clone());
            job.written.push(true);
        }
        for bytes in self.outputs.iter().map(|bytes| *bytes as u64).chain(self.emitted.between.iter().copied()) {
            job.buffers.push(vec![0xA7; bytes as usize]);
            job.written.push(false);
        }
        job.buffers.push(u64::MAX.to_le_bytes().to_vec());
        job.written.push(true);
        let arguments = self.inputs.len() + self.outputs.len();
        let fault = arguments + self.emitted.between.len();
        let place = |argument: usize| match self.in_place {
            Some((input, output)) if argument == self.inputs.len() + output => input,
            _ => argument,
        };
        for kernel in &self.emitted.kernels {
            let args = kernel.args.iter().map(|arg| match *arg {
                KernelArg::Argument(argument) => Value::Buffer(place(argument as usize)),
                KernelArg::Between(buffer) => Value::Buffer(arguments + buffer as usize),
                KernelArg::U32(number) => Value::Number(number.into()),
                KernelArg::U64(number) => Value::Number(number),
                KernelArg::Guard => Value::Number(0),
                KernelArg::Fault | KernelArg::Stop => Value::Buffer(fault),
                KernelArg::FaultBase => Value::Number(5 << 44),
            });
            job.launches.push(Launch { entry: kernel.entry.clone(), blocks: kernel.blocks, threads: emit::THREADS, args: args.collect() });
        }
        job
    }

    /// The outputs, or the fault's message.
    pub fn result(&self, job: &Job) -> Result<Vec<Vec<u8>>, String> {
        let word = u64::from_le_bytes(job.buffers.last().unwrap()[..].try_into().unwrap());
        if let Some((number, element)) = emit::fault_of(word) {
            assert_eq!(word >> 44, 5, "{}: the command of the fault", self.name);
            let fault = &self.emitted.faults[number as usize - 1];
            let numbers = fault.numbers.map(|number| match number {
                FaultNumber::Constant(number) => number,
                FaultNumber::Element => element as i64,
                FaultNumber::Value(argument, data_type) => {
                    assert_eq!(data_type, self.input_types[argument as usize], "{}: the type of argument {argument}", self.name);
                    integer(data_type, &self.inputs[argument as usize], element)
                }
            });
            return Err(fault.message.replace("{0}", &numbers[0].to_string()).replace("{1}", &numbers[1].to_string()));
        }
        for (at, input) in self.inputs.iter().enumerate().filter(|(at, _)| self.in_place.is_none_or(|(input, _)| input != *at)) {
            assert!(job.buffers[at] == *input, "{}: input {at} was written", self.name);
        }
        let output = |output: usize| match self.in_place {
            Some((input, at)) if at == output => job.buffers[input].clone(),
            _ => job.buffers[self.inputs.len() + output].clone(),
        };
        Ok((0..self.outputs.len()).map(output).collect())
    }

    /// Fails the test where a result is not the expected one.
    pub fn compare(&self, engine: &str, result: &Result<Vec<Vec<u8>>, String>) {
        if let Some(why) = self.differs(result) {
            panic!("{} by {engine}{why}", self.name);
        }
    }

    /// How a result is not the expected one.
    pub fn differs(&self, result: &Result<Vec<Vec<u8>>, String>) -> Option<String> {
        match (result, &self.expected) {
            (Err(fault), Err(expected)) => (fault != expected).then(|| format!(": {fault} and not {expected}")),
            (Ok(results), Ok(expected)) => results.iter().zip(expected).enumerate().find_map(|(at, (result, expected))| {
                differ(self.types[at], self.near, result, expected).map(|why| format!(", result {at}{why}"))
            }),
            (result, expected) => Some(format!(": {:?} and not {:?}", result.as_ref().err(), expected.as_ref().err())),
        }
    }
}

fn integer(data_type: DataType, bytes: &[u8], element: u64) -> i64 {
    let size = data_type.size().unwrap();
    let bytes = &bytes[element as usize * size..][..size];
    match data_type {
        DataType::Int32 => i32::from_le_bytes(bytes.try_into().unwrap()).into(),
        _ => i64::from_le_bytes(bytes.try_into().unwrap()),
    }
}

fn differ(data_type: DataType, near: Near, result: &[u8], expected: &[u8]) -> Option<String> {
    let size = data_type.size().unwrap();
    if result.len() != expected.len() {
        return Some(format!(" of {} bytes and not {}", result.len(), expected.len()));
    }
    for (at, (a, b)) in result.chunks(size).zip(expected.chunks(size)).enumerate() {
        if a == b {
            continue;
        }
        let (x, y, unit) = match data_type {
            DataType::Float => {
                let [x, y] = [a, b].map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()));
                (f64::from(x), f64::from(y), f64::from(f32::EPSILON))
            }
            DataType::Double => {
                let [x, y] = [a, b].map(|bytes| f64::from_le_bytes(bytes.try_into().unwrap()));
                (x, y, f64::EPSILON)
            }
            DataType::Half => {
                let [x, y] = [a, b].map(|bytes| F16::from_bits(u16::from_le_bytes(bytes.try_into().unwrap())).to_f32());
                (f64::from(x), f64::from(y), 1.0 / 1024.0)
            }
            DataType::Bfloat16 => {
                let [x, y] = [a, b].map(|bytes| Bf16::from_bits(u16::from_le_bytes(bytes.try_into().unwrap())).to_f32());
                (f64::from(x), f64::from(y), 1.0 / 128.0)
            }
            _ => return Some(format!(", element {at}: {a:?} and not {b:?}")),
        };
        // No number is any other that is none.
        if x.is_nan() && y.is_nan() {
            continue;
        }
        let allowed = match near {
            Near::Exact => 0.0,
            Near::Units(units) => units * unit * x.abs().max(y.abs()),
            Near::Rounded(..) if size == 2 => 2.0 * unit * y.abs().max(1.0),
            Near::Of(size, units) | Near::Rounded(size, units) => units * unit * size.max(y.abs()),
        };
        if !(x == y && near != Near::Exact || (x - y).abs() <= allowed && allowed > 0.0) {
            return Some(format!(", element {at}: {x:e} and not {y:e}"));
        }
    }
    None
}

/// A result of an engine.
pub struct Outcome<'a> {
    pub engine: &'static str,
    pub run: &'a Run,
    pub result: Result<Vec<Vec<u8>>, String>,
}

pub struct Engines {
    host: Option<Host>,
    nvrtc: Option<Nvrtc>,
}

impl Engines {
    pub fn find() -> Engines {
        let engines = Engines { host: Host::find(), nvrtc: Nvrtc::find() };
        match &engines.host {
            None => eprintln!("skipped: there is no C compiler to compile kernels for the processor with"),
            Some(host) if !host.checks_bounds() => eprintln!("skipped: the C compiler has no sanitizers to check bounds with"),
            Some(_) => {}
        }
        if engines.nvrtc.is_none() {
            eprintln!("skipped: NVRTC is not installed (PLIMSOLL_CUDA_LIBS names its folder), so no PTX is interpreted");
        }
        engines
    }

    /// Runs everything on every engine.
    pub fn run<'a>(&self, runs: &'a [Run]) -> Vec<Outcome<'a>> {
        let mut outcomes = Vec::new();
        let program = emit::program(runs.iter().flat_map(|run| &run.emitted.kernels));
        let jobs: Vec<Job> = runs.iter().map(Run::job).collect();
        let mut add = |engine, jobs: Vec<Job>| {
            let results = runs.iter().zip(jobs).map(|(run, job)| Outcome { engine, run, result: run.result(&job) });
            outcomes.extend(results);
        };
        if let Some(host) = &self.host {
            let compiled = host.compile(&program).unwrap_or_else(|error| panic!("{error}\n{program}"));
            for (engine, descending) in [("the processor", false), ("the processor, threads descending", true)] {
                let mut jobs = jobs.clone();
                if let Err(error) = compiled.run(&mut jobs, descending) {
                    let last = error.lines().filter_map(|line| line.strip_prefix("job ")).next_back().unwrap_or("0");
                    let number: usize = last.split(' ').next().unwrap().parse().unwrap_or(0);
                    panic!("{} by {engine}: {error}", runs[number].name);
                }
                add(engine, jobs);
            }
        }
        if let Some(nvrtc) = &self.nvrtc {
            let ptx = nvrtc.ptx(&program, "compute_90", emit::OPTIONS).unwrap_or_else(|error| panic!("{error}"));
            let module = Module::parse(&ptx).unwrap_or_else(|error| panic!("{error}"));
            let mut jobs = jobs;
            for (run, job) in runs.iter().zip(&mut jobs) {
                module.run(job).unwrap_or_else(|error| panic!("{} by PTX: {error}", run.name));
            }
            add("PTX", jobs);
        }
        outcomes
    }
}
