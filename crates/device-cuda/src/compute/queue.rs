//! Running a queue of a run: commands are pushed on the device's stream by one thread of the host.

use std::sync::Arc;

use plimsoll_base::Code;
use plimsoll_device::{Bindings, Failure, Fault, Place, Round, Run};

use super::loaded::{Action, Launch, LaunchArg, Loaded, NONE, Step};
use super::memory::LOST;
use super::words::{Word, Words};
use crate::driver::{Context, Event, Function, Pinned, Stream, Trouble};
use crate::emit::{self, FaultNumber, FaultText, NO_FAULT};

/// Bytes of a copy that are in pinned memory at once; there are two such pieces.
const PIECE: usize = 1 << 20;
/// Where the fault word lies in pinned memory, behind the pieces, and a byte behind it.
const WORD: usize = 2 * PIECE;
const BYTE: usize = WORD + 8;

/// What a device has for its queues.
#[derive(Debug)]
pub(super) struct Shared {
    pub context: Arc<Context>,
    pub stream: Stream,
    pub words: Arc<Words>,
}

/// The memory in which an address is.
#[derive(Clone, Debug)]
enum Side {
    /// This card's.
    Here,
    Host,
    Other(Arc<Context>),
    /// It has no bytes.
    Nowhere,
}

/// What a queue of a run keeps from one use of the run to the next.
#[derive(Debug)]
pub(super) struct Kept {
    /// The addresses of the program's buffers.
    bound: Vec<(u64, Side)>,
    last: Bindings,
    arguments: Vec<u64>,
    pinned: Pinned,
    /// When the pieces of pinned memory are free again.
    free: [Event; 2],
    next: usize,
    done: Event,
    word: Word,
    bounce: Vec<u8>,
}

impl Kept {
    pub fn new(shared: &Shared) -> Result<Kept, Fault> {
        let driver = &shared.context.driver;
        let made = || {
            shared.context.enter()?;
            let free = [Event::new(driver)?, Event::new(driver)?];
            Ok((Pinned::new(driver, WORD + 64)?, free, Event::new(driver)?))
        };
        let (pinned, free, done) = made().map_err(|trouble| fault_of(&shared.context, trouble))?;
        let none = Fault { code: Code::ResourceExhausted, message: "more runs at once than a card has words for faults", numbers: [0, 0] };
        let word = shared.words.take().ok_or(none)?;
        let (bound, arguments, bounce) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Kept { bound, last: Bindings::default(), arguments, pinned, free, next: 0, done, word, bounce })
    }

    /// Finds the addresses of the program's buffers. Allocates nothing where no more than feeds and fetches has moved since the last
    /// time.
    fn bind(&mut self, shared: &Shared, loaded: &Loaded, bindings: &Bindings) {
        let Bindings { arenas, variables, flags, constants, .. } = bindings;
        let last = &mut self.last;
        let stayed = *arenas == last.arenas && *variables == last.variables && *flags == last.flags && *constants == last.constants;
        let place = |index: u32| {
            let buffer = loaded.buffers[index as usize];
            (bindings.base(buffer.place).number(), buffer)
        };
        if stayed && self.bound.len() == loaded.buffers.len() {
            for &index in &loaded.moving {
                let (base, buffer) = place(index);
                self.bound[index as usize].0 = base + buffer.offset;
            }
            return;
        }
        last.arenas.clone_from(arenas);
        last.variables.clone_from(variables);
        last.flags.clone_from(flags);
        last.constants.clone_from(constants);
        self.bound.clear();
        for index in 0..loaded.buffers.len() as u32 {
            let (base, buffer) = place(index);
            let side = match buffer.place {
                Place::Feed(_) | Place::Fetch(_) | Place::VariableFlag(_) => Side::Host,
                _ if base == 0 || buffer.bytes == 0 => Side::Nowhere,
                _ => match shared.context.driver.owner(base) {
                    None => Side::Host,
                    Some(owner) if Arc::ptr_eq(&owner, &shared.context) => Side::Here,
                    Some(owner) => Side::Other(owner),
                },
            };
            self.bound.push((base + buffer.offset, side));
        }
    }
}

/// The fault that a call of the driver ends a run with.
fn fault_of(context: &Context, trouble: Trouble) -> Fault {
    context.note(trouble);
    if context.is_lost() {
        return LOST;
    }
    match trouble {
        Trouble::OUT_OF_MEMORY => {
            Fault { code: Code::ResourceExhausted, message: "CUDA_ERROR_OUT_OF_MEMORY: no memory for a run's queue", numbers: [0, 0] }
        }
        Trouble::Missing(_) => {
            Fault { code: Code::FailedPrecondition, message: "the driver lacks a function that runs need", numbers: [0, 0] }
        }
        Trouble::Code(code) => {
            Fault { code: Code::Internal, message: "the driver refuses a command: CUDA error {0}", numbers: [i64::from(code), 0] }
        }
    }
}

/// The fault for an access that no card can make.
const BEYOND_REACH: Fault = Fault { code: Code::Internal, message: "a kernel of a card is given memory of the processor", numbers: [0, 0] };

/// Why a queue does not go on.
enum Ended {
    Failed(Failure),
    /// Another queue has failed, or the run is given up.
    Elsewhere,
}

/// Runs the queue. When it is back, nothing on the card uses the run's blocks any more.
pub(super) fn run(shared: &Shared, loaded: &Loaded, run: &Run, kept: &mut Kept) {
    let context = &shared.context;
    let begun = context.enter().and_then(|()| match loaded.can_fail {
        true => shared.stream.set_bytes(kept.word.address(), 0xFF, 8),
        false => Ok(()),
    });
    if let Err(trouble) = begun {
        return run.fail(Failure { queue: loaded.queue, command: 0, fault: fault_of(context, trouble) });
    }
    kept.bind(shared, loaded, &run.bindings);
    let mut queue = Queue { shared, loaded, run, kept, number: 0, is_pending: true, may_have_failed: false };
    let ended = queue.steps();
    // Where the card cannot say that it is done, it does nothing any more.
    let settled = if ended.is_err() { queue.sync() } else { Ok(()) };
    match (ended, settled) {
        (Err(Ended::Failed(failure)), _) | (_, Err(Ended::Failed(failure))) => run.fail(failure),
        _ => {}
    }
}

struct Queue<'a> {
    shared: &'a Shared,
    loaded: &'a Loaded,
    run: &'a Run,
    kept: &'a mut Kept,
    /// The command that is pushed.
    number: u32,
    /// Whether something was pushed since the host last waited for the card.
    is_pending: bool,
    /// Whether a kernel that finds faults was.
    may_have_failed: bool,
}

impl Queue<'_> {
    fn steps(&mut self) -> Result<(), Ended> {
        let loaded = self.loaded;
        while let Some(step) = loaded.steps.get(self.number as usize) {
            self.wait(step)?;
            if self.run.has_failed() {
                return Err(Ended::Elsewhere);
            }
            let since = self.run.begins();
            let mut start = self.run.trace.as_ref().map(|trace| (trace, trace.now()));
            let mut behind = self.number + 1;
            match &step.action {
                Action::Launch(launches, faults) => {
                    let reached = [step.scratch, step.guard].into_iter().filter(|index| *index != NONE);
                    if !(step.args.0..step.args.0 + step.args.1).chain(reached).all(|index| self.is_reached(index)) {
                        return Err(self.failed(BEYOND_REACH));
                    }
                    self.may_have_failed |= !faults.is_empty();
                    launches.iter().try_for_each(|launch| self.launch(step, launch))?;
                }
                Action::Copy => {
                    if !self.copy(step)? {
                        start = None;
                    }
                }
                Action::Jump { to, when } => {
                    let jumps = match self.is_wanted(step)? {
                        false => !*when,
                        true => self.byte(step.args.0)? == *when,
                    };
                    start = None;
                    if jumps {
                        behind = *to;
                    }
                }
            }
            if let Some((trace, start)) = start {
                // A command's time is that until the card has run it.
                self.sync()?;
                trace.record(loaded.queue, self.number, start);
            }
            self.run.was_busy(loaded.queue, since);
            if step.round != Round::Stays {
                // Partners see each iteration begin, and before it the one before end.
                self.settle()?;
                self.run.advance_round(loaded.queue, step.round, behind);
            }
            self.number = behind;
        }
        self.settle()
    }

    /// Waits until the waits of the step are over. The card's part is said before: another queue may wait for it.
    fn wait(&mut self, step: &Step) -> Result<(), Ended> {
        for wait in &step.waits {
            if self.run.has_reached(self.loaded.queue, wait) {
                continue;
            }
            self.settle()?;
            while !self.run.has_reached(self.loaded.queue, wait) {
                let ticket = self.run.bell().ticket();
                if self.run.has_failed() {
                    return Err(Ended::Elsewhere);
                }
                if !self.run.watch(self.loaded.queue, wait) {
                    self.run.bell().wait(ticket);
                }
            }
        }
        Ok(())
    }

    /// Waits for the card, and says how far the queue is.
    fn settle(&mut self) -> Result<(), Ended> {
        self.sync()?;
        self.run.advance(self.loaded.queue, self.number);
        Ok(())
    }

    /// Waits for the card, and looks for faults.
    fn sync(&mut self) -> Result<(), Ended> {
        if !std::mem::take(&mut self.is_pending) {
            return Ok(());
        }
        let looks = std::mem::take(&mut self.may_have_failed);
        let (stream, kept) = (&self.shared.stream, &mut *self.kept);
        let synced = match looks {
            true => stream.copy_out(&kept.pinned, WORD, kept.word.address(), 8),
            false => Ok(()),
        };
        let synced = synced.and_then(|()| kept.done.record(stream)).and_then(|()| kept.done.synchronize());
        self.check(synced)?;
        if !looks {
            return Ok(());
        }
        let mut word = [0; 8];
        self.kept.pinned.read(WORD, &mut word);
        match u64::from_le_bytes(word) {
            NO_FAULT => Ok(()),
            word => Err(Ended::Failed(self.fault(word))),
        }
    }

    /// The failure that a kernel has left.
    fn fault(&mut self, word: u64) -> Failure {
        let queue = self.loaded.queue;
        let command = emit::command_of(word);
        let strange = Fault { code: Code::Internal, message: "a kernel left a fault that is none", numbers: [0, 0] };
        let found = emit::fault_of(word).and_then(|(number, element)| {
            let step = self.loaded.steps.get(command as usize)?;
            let Action::Launch(_, faults) = &step.action else { return None };
            Some((step, faults.get((number as usize).checked_sub(1)?)?, element))
        });
        let Some((step, FaultText { message, numbers }, element)) = found else { return Failure { queue, command, fault: strange } };
        let numbers = numbers.map(|number| match number {
            FaultNumber::Constant(number) => number,
            FaultNumber::Element => element as i64,
            FaultNumber::Value(argument, data_type) => {
                let size = data_type.size().unwrap_or(8).min(8);
                let at = self.kept.bound[(step.args.0 + argument) as usize].0 + element * size as u64;
                let mut bytes = [0; 8];
                // Commands behind the fault have not run: the argument is as the kernel found it.
                let read = self.shared.context.read(at, &mut bytes[..size]);
                let word = i64::from_le_bytes(bytes);
                let spare = 64 - 8 * size as u32;
                if read.is_ok() { word << spare >> spare } else { 0 }
            }
        });
        Failure { queue, command, fault: Fault::invalid(message, numbers) }
    }

    fn check(&self, done: Result<(), Trouble>) -> Result<(), Ended> {
        done.map_err(|trouble| self.failed(fault_of(&self.shared.context, trouble)))
    }

    fn failed(&self, fault: Fault) -> Ended {
        // At the end of the queue no command is left to be pushed.
        let last = self.loaded.steps.len().saturating_sub(1) as u32;
        Ended::Failed(Failure { queue: self.loaded.queue, command: self.number.min(last), fault })
    }

    fn is_reached(&self, index: u32) -> bool {
        matches!(self.kept.bound[index as usize].1, Side::Here | Side::Nowhere)
    }

    fn address(&self, index: u32) -> u64 {
        if index == NONE { 0 } else { self.kept.bound[index as usize].0 }
    }

    fn launch(&mut self, step: &Step, launch: &Launch) -> Result<(), Ended> {
        let mut arguments = std::mem::take(&mut self.kept.arguments);
        arguments.clear();
        arguments.extend(launch.args.iter().map(|arg| match *arg {
            LaunchArg::Argument(index) => self.address(step.args.0 + index),
            LaunchArg::Scratch(offset) => self.address(step.scratch) + offset,
            LaunchArg::Value(value) => value,
            LaunchArg::Guard => self.address(step.guard),
            LaunchArg::Stop if self.may_have_failed => self.kept.word.address(),
            LaunchArg::Stop => 0,
            LaunchArg::Fault => self.kept.word.address(),
            LaunchArg::FaultBase => emit::fault_base(self.number),
        }));
        let pushed = self.push(launch.function, launch.blocks, &mut arguments);
        self.kept.arguments = arguments;
        pushed
    }

    fn push(&mut self, function: Function, blocks: u32, arguments: &mut [u64]) -> Result<(), Ended> {
        self.is_pending = true;
        let launched = self.shared.stream.launch(function, blocks, emit::THREADS, arguments);
        self.check(launched)
    }

    /// Whether the guard lets the step run, as the host sees it.
    fn is_wanted(&mut self, step: &Step) -> Result<bool, Ended> {
        if step.guard == NONE { Ok(true) } else { self.byte(step.guard) }
    }

    /// The bool of a buffer, when everything before is done.
    fn byte(&mut self, index: u32) -> Result<bool, Ended> {
        let (address, side) = self.kept.bound[index as usize].clone();
        let mut byte = [0u8];
        match side {
            Side::Here => {
                self.is_pending = true;
                let copied = self.shared.stream.copy_out(&self.kept.pinned, BYTE, address, 1);
                self.check(copied)?;
                self.sync()?;
                self.kept.pinned.read(BYTE, &mut byte);
            }
            Side::Host => {
                self.sync()?;
                // SAFETY: a byte of the host, which the run keeps, and which no other command writes meanwhile.
                byte = [unsafe { (address as *const u8).read() }];
            }
            Side::Other(_) | Side::Nowhere => return Err(self.failed(BEYOND_REACH)),
        }
        Ok(byte[0] != 0)
    }

    /// Copies; whether the guard let it.
    fn copy(&mut self, step: &Step) -> Result<bool, Ended> {
        let bytes = self.loaded.buffers[step.args.0 as usize].bytes;
        let (from, to) = (self.kept.bound[step.args.0 as usize].clone(), self.kept.bound[step.args.0 as usize + 1].clone());
        if let ((from, Side::Here), (to, Side::Here)) = (&from, &to) {
            return self.copy_here(step, *from, *to, bytes).map(|()| true);
        }
        if !self.is_wanted(step)? {
            return Ok(false);
        }
        // Pieces go by pinned memory. Nothing is written behind a fault.
        if self.may_have_failed {
            self.sync()?;
        }
        for at in (0..bytes).step_by(PIECE) {
            let size = (bytes - at).min(PIECE as u64) as usize;
            let slot = self.kept.next;
            self.kept.next = 1 - slot;
            let freed = self.kept.free[slot].synchronize();
            self.check(freed)?;
            self.read_piece(&from, at, slot, size)?;
            self.write_piece(&to, at, slot, size)?;
        }
        Ok(true)
    }

    /// Bytes of the source to a piece of pinned memory. They are there when it is back.
    fn read_piece(&mut self, (address, side): &(u64, Side), at: u64, slot: usize, size: usize) -> Result<(), Ended> {
        let (address, offset) = (address + at, slot * PIECE);
        match side {
            Side::Here => {
                self.is_pending = true;
                let copied = self.shared.stream.copy_out(&self.kept.pinned, offset, address, size);
                self.check(copied)?;
                self.sync()
            }
            Side::Host => {
                // SAFETY: the run keeps so many bytes there, and no other command writes them meanwhile.
                let bytes = unsafe { std::slice::from_raw_parts(address as *const u8, size) };
                self.kept.pinned.write(offset, bytes);
                Ok(())
            }
            Side::Other(other) => {
                let mut bounce = std::mem::take(&mut self.kept.bounce);
                bounce.resize(size, 0);
                let read = other.read(address, &mut bounce);
                self.kept.pinned.write(offset, &bounce);
                self.kept.bounce = bounce;
                read.map_err(|trouble| self.failed(fault_of(other, trouble)))?;
                let entered = self.shared.context.enter();
                self.check(entered)
            }
            Side::Nowhere => Ok(()),
        }
    }

    /// Bytes of a piece of pinned memory to where they go.
    fn write_piece(&mut self, (address, side): &(u64, Side), at: u64, slot: usize, size: usize) -> Result<(), Ended> {
        let (address, offset) = (address + at, slot * PIECE);
        match side {
            Side::Here => {
                self.is_pending = true;
                let copied = self.shared.stream.copy_in(address, &self.kept.pinned, offset, size);
                let copied = copied.and_then(|()| self.kept.free[slot].record(&self.shared.stream));
                self.check(copied)
            }
            Side::Host => {
                // SAFETY: the run keeps so many bytes there, and no other command uses them meanwhile.
                let bytes = unsafe { std::slice::from_raw_parts_mut(address as *mut u8, size) };
                self.kept.pinned.read(offset, bytes);
                Ok(())
            }
            Side::Other(other) => {
                let mut bounce = std::mem::take(&mut self.kept.bounce);
                bounce.resize(size, 0);
                self.kept.pinned.read(offset, &mut bounce);
                let written = other.write(address, &bounce);
                self.kept.bounce = bounce;
                written.map_err(|trouble| self.failed(fault_of(other, trouble)))?;
                let entered = self.shared.context.enter();
                self.check(entered)
            }
            Side::Nowhere => Ok(()),
        }
    }

    /// A copy in the card's memory: the driver's, or a kernel's where it may be passed over.
    fn copy_here(&mut self, step: &Step, from: u64, to: u64, bytes: u64) -> Result<(), Ended> {
        self.is_pending = true;
        if step.guard == NONE && !self.may_have_failed {
            let copied = self.shared.stream.copy(to, from, bytes);
            return self.check(copied);
        }
        let Some(function) = self.loaded.copy.filter(|_| step.guard == NONE || self.is_reached(step.guard)) else {
            return Err(self.failed(BEYOND_REACH));
        };
        let stop = if self.may_have_failed { self.kept.word.address() } else { 0 };
        let mut arguments = [self.address(step.guard), stop, emit::fault_base(self.number), from, to, bytes];
        self.push(function, emit::copy_blocks(bytes), &mut arguments)
    }
}
