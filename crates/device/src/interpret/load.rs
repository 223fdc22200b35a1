//! A program with its tables flattened, for the threads that run its commands.

use std::sync::Arc;

use crate::{
    Awaited, Bindings, BufferRef, Command, CpuKernel, CpuLibrary, DeviceSpec, KernelCall, Place, Prepared, Program, Round, Rounds, Run,
    Step as KernelStep, Work,
};
use plimsoll_base::{Error, Result};

/// Copies are cut into pieces of this many bytes.
pub const COPY_PIECE: u64 = 256 << 10;

/// Commands predicted to take less than this many seconds on one thread are offered to threads that are awake, but wake none.
const WORTH_WAKING: f64 = 2e-5;

/// The operations of one thread in a second, as far as [`WORTH_WAKING`] is concerned.
const FLOPS: f64 = 3e10;
const BANDWIDTH: f64 = 8e9;

/// Makes the code of a call.
type CodeOf<'a> = &'a dyn Fn(&KernelCall) -> Result<Prepared>;

/// The index in the table of pointers of one that is not there.
pub const NONE: u32 = u32::MAX;

/// A program prepared for a number of threads.
#[derive(Debug)]
pub struct Loaded {
    /// The queue's index in the plan.
    pub queue: u32,
    /// How many threads may compute.
    pub threads: u32,
    /// The commands, in order.
    pub steps: Vec<Step>,
    /// The waits of steps.
    pub waits: Vec<Awaited>,
    /// Every pointer that the steps use, as block and offset.
    pub pointers: Vec<(Place, u64)>,
    /// Which of them lie in feeds and fetches, and so in another place in every run.
    pub moving: Vec<u32>,
    /// Whether some step has several pieces.
    pub has_pieces: bool,
    /// How long the tables of the bindings have to be, in the order of their fields.
    needs: [usize; 6],
    /// How many queues the run has to have.
    queues: usize,
}

/// A command.
#[derive(Debug)]
pub struct Step {
    /// Its action.
    pub action: Action,
    /// Into how many pieces it is cut.
    pub chunks: u32,
    /// The first argument in the table of pointers, and how many there are.
    pub args: (u32, u32),
    /// The scratch that the pieces share, or [`NONE`].
    pub scratch: u32,
    /// The first slice of scratch of the threads that take part, or [`NONE`], and the bytes of a slice.
    pub worker: (u32, u64),
    /// Whether there are fewer slices than threads: then they are handed out first come, first served.
    pub few_slices: bool,
    /// The byte that says whether the step is run, or [`NONE`].
    pub guard: u32,
    /// The first wait and how many there are.
    pub waits: (u32, u32),
    /// What it does to the turn of its queue.
    pub round: Round,
    /// Whether it takes so long that sleeping threads are woken for its pieces.
    pub wakes: bool,
}

/// The action of a step.
#[derive(Debug)]
pub enum Action {
    /// Calls a kernel.
    Kernel {
        /// Its code.
        kernel: Arc<dyn CpuKernel>,
        /// Whether some elements make it fail.
        can_fail: bool,
    },
    /// Copies so many bytes.
    Copy {
        /// How many.
        bytes: u64,
    },
    /// Has the run's [`crate::Outside`] do something.
    Outside {
        /// The number of the call.
        call: u32,
        /// How many of the arguments are read.
        inputs: u32,
        /// Bytes of every argument.
        lengths: Box<[u64]>,
        /// Bytes of scratch.
        scratch: u64,
    },
    /// Goes on with another command, or the next.
    Jump {
        /// The other command.
        to: u32,
        /// What the bool that is argument 0 is then.
        when: bool,
    },
}

impl Step {
    /// The command behind this one where its guard passes it over, for a loop that behind the loop.
    pub(super) fn passed_over(&self, at: u32) -> u32 {
        match self.action {
            Action::Jump { to, when: false } => to,
            _ => at + 1,
        }
    }
}

impl Loaded {
    /// Queue `queue` of a plan for a device that computes with so many threads, with the code of that library.
    ///
    /// # Errors
    /// INTERNAL where the program contradicts itself; the library's error for a call.
    pub fn new(queue: u32, program: &Program, threads: usize, spec: &DeviceSpec, library: &dyn CpuLibrary) -> Result<Loaded> {
        let mut loaded = Loaded {
            queue,
            threads: threads as u32,
            steps: Vec::with_capacity(program.commands.len()),
            waits: Vec::new(),
            pointers: Vec::new(),
            moving: Vec::new(),
            has_pieces: false,
            needs: [0; 6],
            queues: queue as usize + 1,
        };
        let mut rounds = Rounds::default();
        for command in &program.commands {
            loaded
                .command(command, &mut rounds, spec.alignment, &|call| library.code(spec, call))
                .map_err(|error| error.at_node(&*command.label))?;
        }
        Ok(loaded)
    }

    fn command(&mut self, command: &Command, rounds: &mut Rounds, alignment: u64, code: CodeOf<'_>) -> Result<()> {
        let at = self.steps.len() as u32;
        let first = self.pointers.len() as u32;
        for buffer in &command.args {
            self.pointer(buffer)?;
        }
        let args = (first, command.args.len() as u32);
        let scratch = match &command.scratch {
            Some(buffer) => self.pointer(buffer)?,
            None => NONE,
        };
        let worker = match &command.worker_scratch {
            Some(buffer) => self.pointer(buffer)?,
            None => NONE,
        };
        let guard = match &command.guard {
            Some(buffer) if buffer.bytes == 1 => self.pointer(buffer)?,
            Some(buffer) => return Err(Error::internal(format!("a guard of {} bytes", buffer.bytes))),
            None => NONE,
        };
        let mut slice_bytes = 0;
        let (action, chunks, wakes) = match &command.work {
            Work::Kernel(call) => {
                let step = call.variant.steps.get(call.step as usize).ok_or_else(|| Error::internal("no such step"))?;
                let prepared = code(call)?;
                if KernelStep::of(&prepared, step.args.clone(), step.load) != *step {
                    return Err(Error::internal(format!("{} is another kernel here", call.variant.name)));
                }
                let (slices, bytes) = step.worker_slices(self.threads, alignment);
                let have = command.worker_scratch.map_or(0, |buffer| buffer.bytes);
                if bytes.checked_mul(u64::from(slices)).is_none_or(|needed| needed > have) {
                    return Err(Error::internal(format!("{have} bytes of scratch are not {slices} slices of {bytes} bytes")));
                }
                slice_bytes = bytes;
                if prepared.scratch > command.scratch.map_or(0, |buffer| buffer.bytes) {
                    return Err(Error::internal(format!("no place for {} bytes of scratch", prepared.scratch)));
                }
                let seconds = (prepared.cost.flops / FLOPS).max(prepared.cost.bytes / BANDWIDTH);
                let wakes = seconds == 0.0 || seconds >= WORTH_WAKING;
                (Action::Kernel { kernel: prepared.kernel, can_fail: call.request.can_fail() }, prepared.chunks, wakes)
            }
            Work::Copy => {
                let [from, to] = command.args[..] else {
                    return Err(Error::internal(format!("a copy with {} arguments", command.args.len())));
                };
                if from.bytes != to.bytes {
                    return Err(Error::internal(format!("a copy of {} bytes to {}", from.bytes, to.bytes)));
                }
                let chunks = u32::try_from(from.bytes.div_ceil(COPY_PIECE)).map_err(|_| Error::internal("a copy of that many bytes"))?;
                (Action::Copy { bytes: from.bytes }, chunks, from.bytes as f64 / BANDWIDTH >= WORTH_WAKING)
            }
            Work::Outside { call, inputs } => {
                if *inputs as usize > command.args.len() {
                    return Err(Error::internal(format!("{inputs} inputs of {} arguments", command.args.len())));
                }
                let lengths = command.args.iter().map(|arg| arg.bytes).collect();
                let scratch = command.scratch.map_or(0, |buffer| buffer.bytes);
                (Action::Outside { call: *call, inputs: *inputs, lengths, scratch }, 1, false)
            }
            Work::Loop { .. } | Work::Again { .. } if !matches!(command.args[..], [BufferRef { bytes: 1, .. }]) => {
                return Err(Error::internal("a loop whose condition is not one bool"));
            }
            Work::Loop { body, .. } => {
                let behind = at.checked_add(2).and_then(|at| at.checked_add(*body));
                (Action::Jump { to: behind.ok_or_else(|| Error::internal("a loop of that many commands"))?, when: false }, 1, false)
            }
            Work::Again { body } => {
                let first = at.checked_sub(*body).filter(|_| command.guard.is_none());
                (
                    Action::Jump { to: first.ok_or_else(|| Error::internal("the end of a loop without its beginning"))?, when: true },
                    1,
                    false,
                )
            }
        };
        let (round, awaited) = rounds.next(command)?;
        let waits = (self.waits.len() as u32, awaited.len() as u32);
        self.waits.extend(awaited);
        self.queues = command.waits.iter().fold(self.queues, |queues, wait| queues.max(wait.queue as usize + 1));
        self.has_pieces |= chunks > 1;
        let few_slices = chunks < self.threads;
        self.steps.push(Step {
            action,
            chunks: chunks.max(1),
            args,
            scratch,
            worker: (worker, slice_bytes),
            few_slices,
            guard,
            waits,
            round,
            wakes,
        });
        Ok(())
    }

    fn pointer(&mut self, buffer: &BufferRef) -> Result<u32> {
        let (table, index) = match buffer.place {
            Place::Arena(index) => (0, index),
            Place::Variable(index) => (1, index),
            Place::VariableFlag(index) => (2, index),
            Place::Constant(index) => (3, index),
            Place::Feed(index) => (4, index),
            Place::Fetch(index) => (5, index),
        };
        let position = u32::try_from(self.pointers.len()).ok().filter(|&position| position != NONE);
        let position = position.ok_or_else(|| Error::internal("more arguments than fit a program"))?;
        self.needs[table] = self.needs[table].max(index as usize + 1);
        if matches!(buffer.place, Place::Feed(_) | Place::Fetch(_)) {
            self.moving.push(position);
        }
        self.pointers.push((buffer.place, buffer.offset));
        Ok(position)
    }

    /// The first thing that `step` waits for and that has not happened.
    pub fn unmet(&self, run: &Run, step: &Step) -> Option<Awaited> {
        let (first, count) = (step.waits.0 as usize, step.waits.1 as usize);
        self.waits[first..first + count].iter().copied().find(|wait| !run.has_reached(self.queue, wait))
    }

    /// Whether the run has every queue, and its bindings every block, that the program names.
    pub fn fits(&self, run: &Run) -> bool {
        let Bindings { arenas, variables, flags, constants, feeds, fetches } = &run.bindings;
        let have = [arenas, variables, flags, constants, feeds, fetches].map(Vec::len);
        self.queues <= run.queues.len() && self.needs.iter().zip(have).all(|(&needed, length)| needed <= length)
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_request::KernelRequest;

    use super::*;

    fn buffer(place: Place, bytes: u64) -> BufferRef {
        BufferRef { place, offset: 64, bytes }
    }

    fn copy(args: Vec<BufferRef>) -> Command {
        Command { work: Work::Copy, args, scratch: None, worker_scratch: None, guard: None, waits: vec![], label: "copy".into() }
    }

    #[derive(Debug)]
    struct Nothing;

    impl CpuKernel for Nothing {
        unsafe fn run(&self, _: std::ops::Range<u32>, _: &crate::Args<'_>) -> std::result::Result<(), crate::Fault> {
            Ok(())
        }
    }

    /// Gives every call the kernel that its step describes, or another one.
    #[derive(Debug)]
    struct Library(bool);

    impl crate::Library for Library {
        fn variants(&self, _: &DeviceSpec, _: &KernelRequest) -> Result<Vec<crate::Variant>> {
            Ok(Vec::new())
        }
    }

    impl CpuLibrary for Library {
        fn code(&self, _: &DeviceSpec, call: &KernelCall) -> Result<Prepared> {
            let KernelStep { chunks, scratch, per_worker, cost, in_place, .. } = call.step().clone();
            let chunks = if self.0 { chunks } else { chunks + 1 };
            Ok(Prepared { chunks, scratch, per_worker, cost, in_place, kernel: Arc::new(Nothing) })
        }
    }

    fn load(program: &Program, threads: usize, library: &Library) -> Result<Loaded> {
        Loaded::new(0, program, threads, &DeviceSpec::cpu(0, None, 1, crate::InstructionSet::Baseline), library)
    }

    fn loaded(program: &Program, threads: usize) -> Result<Loaded> {
        load(program, threads, &Library(true))
    }

    fn call(per_worker: u64, chunks: u32, worker_scratch: Option<BufferRef>) -> Command {
        let cost = crate::Cost::default();
        let step =
            KernelStep { args: None, chunks, scratch: 0, per_worker, in_place: vec![], cost, load: crate::Load::default(), seconds: None };
        let variant = crate::Variant { name: "a".into(), numerics: "a".into(), between: vec![], steps: vec![step], laid_out: None };
        let call = KernelCall { request: Arc::new(KernelRequest::Nothing), variant: Arc::new(variant), step: 0 };
        Command { work: Work::Kernel(call), args: vec![], scratch: None, worker_scratch, guard: None, waits: vec![], label: "call".into() }
    }

    #[test]
    fn programs_that_contradict_themselves_are_errors() {
        let arena = |bytes| buffer(Place::Arena(0), bytes);
        let programs = [
            Program { commands: vec![copy(vec![arena(8)])] },
            Program { commands: vec![copy(vec![arena(8), arena(9)])] },
            Program { commands: vec![call(65, 4, Some(arena(128)))] },
            Program { commands: vec![call(64, 4, Some(arena(127)))] },
            Program { commands: vec![call(1, 1, None)] },
            Program { commands: vec![call(u64::MAX - 100, 4, Some(arena(128)))] },
        ];
        for program in programs {
            let error = loaded(&program, 2).unwrap_err();
            assert_eq!(error.code(), plimsoll_base::Code::Internal, "{error}");
        }
        assert!(loaded(&Program { commands: vec![call(64, 4, Some(arena(128)))] }, 2).is_ok());
        let call_of_another = Program { commands: vec![call(64, 4, Some(arena(128)))] };
        assert!(load(&call_of_another, 2, &Library(false)).unwrap_err().message().contains("is another kernel here"));
        // One piece, one thread.
        assert!(loaded(&Program { commands: vec![call(64, 1, Some(arena(64)))] }, 8).is_ok());
    }

    #[test]
    fn knows_what_has_to_be_bound() {
        let program = Program { commands: vec![copy(vec![buffer(Place::Feed(1), 8), buffer(Place::Variable(0), 8)])] };
        let loaded = loaded(&program, 1).unwrap();
        assert_eq!((&loaded.moving[..], &loaded.pointers[..]), (&[0][..], &[(Place::Feed(1), 64), (Place::Variable(0), 64)][..]));
        let null = plimsoll_memory::Address::NULL;
        let mut bindings = Bindings { feeds: vec![null; 2], ..Bindings::default() };
        assert!(!loaded.fits(&Run::new(1, bindings.clone())));
        bindings.variables.push(null);
        assert!(!loaded.fits(&Run::new(0, bindings.clone())));
        assert!(loaded.fits(&Run::new(1, bindings)));
    }
}
