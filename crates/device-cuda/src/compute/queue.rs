//! Running a queue of a run: commands are pushed on the device's stream by one thread of the host.

use std::sync::Arc;

use plimsoll_base::Code;
use plimsoll_device::{Awaited, Bindings, Failure, Fault, Place, Round, Run};

use super::executable::State;
use super::graph_room::GraphRoom;
use super::loaded::{Action, Launch, LaunchArg, LaunchCode, Loaded, NONE, Step};
use super::marks::Marks;
use super::memory::LOST;
use super::stretch::Graphs;
use super::words::{Word, Words};
use crate::driver::{Context, Event, Function, Pinned, Stream, Trouble};
use crate::emit::{self, FaultNumber, FaultText, NO_FAULT};

/// Bytes of a copy that are in pinned memory at once; there are two such pieces.
pub(super) const PIECE: usize = 1 << 20;
/// Where the fault word lies in pinned memory, behind the pieces, and a byte behind it.
const WORD: usize = 2 * PIECE;
const BYTE: usize = WORD + 8;
/// Where the byte lies by which a loop on the card is given up.
const HALT: usize = WORD + 16;

/// What a device has for its queues.
#[derive(Debug)]
pub(super) struct Shared {
    pub context: Arc<Context>,
    pub stream: Stream,
    pub words: Arc<Words>,
    pub graphs: Arc<GraphRoom>,
    /// Whether graphs are made at the first use of bindings.
    pub at_once: bool,
}

/// The memory in which an address is.
#[derive(Clone, Debug)]
pub(super) enum Side {
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
    pub bound: Vec<(u64, Side)>,
    last: Bindings,
    graphs: Prepared,
    arguments: Vec<u64>,
    pub pinned: Pinned,
    /// When the pieces of pinned memory are free again.
    pub free: [Event; 2],
    pub next: usize,
    done: Event,
    pub word: Word,
    pub bounce: Vec<u8>,
}

/// The graphs of a queue: made at the second use of its bindings, since many are used once.
#[derive(Debug)]
enum Prepared {
    NotYet,
    Next,
    /// None where there was no room for them.
    Done(Option<Graphs>),
}

impl Kept {
    pub fn new(shared: &Shared) -> Result<Kept, Fault> {
        let driver = &shared.context.driver;
        let made = || {
            let _entered = shared.context.enter()?;
            let free = [Event::new(driver)?, Event::new(driver)?];
            Ok((Pinned::new(driver, WORD + 64)?, free, Event::new(driver)?))
        };
        let (pinned, free, done) = made().map_err(|trouble| fault_of(&shared.context, trouble))?;
        let none = Fault { code: Code::ResourceExhausted, message: "more runs at once than a card has words for faults", numbers: [0, 0] };
        let word = shared.words.take().ok_or(none)?;
        let (bound, arguments, bounce) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Kept { bound, last: Bindings::default(), graphs: Prepared::NotYet, arguments, pinned, free, next: 0, done, word, bounce })
    }

    /// Where the fault word lies in pinned memory.
    pub fn fault_place(&self) -> *mut u8 {
        self.pinned.at(WORD, 8)
    }

    /// The byte of pinned memory by which a loop on the card is given up: where it is not 0.
    pub fn halt_place(&self) -> *mut u8 {
        self.pinned.at(HALT, 1)
    }

    /// Makes the graphs where it is time. They are used where commands are not timed one by one.
    fn prepare(&mut self, shared: &Shared, loaded: &Loaded, run: &Run) {
        if run.trace.is_some() {
            return;
        }
        match self.graphs {
            Prepared::NotYet if !shared.at_once => self.graphs = Prepared::Next,
            Prepared::NotYet | Prepared::Next => self.graphs = Prepared::Done(Graphs::new(shared, loaded, self)),
            Prepared::Done(_) => {}
        }
    }

    /// The stretch that begins with a command.
    fn stretch(&self, number: u32) -> Option<u32> {
        match &self.graphs {
            Prepared::Done(Some(graphs)) => graphs.at(number),
            _ => None,
        }
    }

    /// The addresses of the program's buffers in these blocks.
    pub fn bind_to(&mut self, shared: &Shared, loaded: &Loaded, bindings: &Bindings) {
        self.bind(shared, loaded, bindings);
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
        // No launch of them is under way: the run begins.
        self.graphs = Prepared::NotYet;
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
pub(super) fn fault_of(context: &Context, trouble: Trouble) -> Fault {
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
        Trouble::Cudnn(status) => {
            Fault { code: Code::Internal, message: "cuDNN refuses its work: status {0}", numbers: [i64::from(status), 0] }
        }
        Trouble::Code(code) => {
            Fault { code: Code::Internal, message: "the driver refuses a command: CUDA error {0}", numbers: [i64::from(code), 0] }
        }
    }
}

/// The fault for an access that no card can make.
pub(super) const BEYOND_REACH: Fault =
    Fault { code: Code::Internal, message: "a kernel of a card is given memory of the processor", numbers: [0, 0] };

/// Why a queue does not go on.
pub(super) enum Ended {
    Failed(Failure),
    /// Another queue has failed, or the run is given up.
    Elsewhere,
}

/// Runs the queue. When it is back, nothing on the card uses the run's blocks any more.
pub(super) fn run(shared: &Shared, loaded: &Loaded, run: &Run, kept: &mut Kept, marks: &Marks) {
    let context = &shared.context;
    let entered = context.enter();
    let begun = entered.as_ref().map_err(|trouble| *trouble).and_then(|_| marks.begin());
    if begun.is_ok() {
        kept.bind(shared, loaded, &run.bindings);
        kept.prepare(shared, loaded, run);
    }
    let uses_graphs = run.trace.is_none();
    // A graph at the beginning sets the word itself.
    let begun = begun.and_then(|()| match loaded.can_fail && !(uses_graphs && kept.stretch(0).is_some()) {
        true => shared.stream.set_bytes(kept.word.address(), 0xFF, 8),
        false => Ok(()),
    });
    if let Err(trouble) = begun {
        return run.fail(Failure { queue: loaded.queue, command: 0, fault: fault_of(context, trouble) });
    }
    let mut queue = Queue {
        shared,
        loaded,
        run,
        kept,
        marks,
        told: true,
        number: 0,
        is_pending: true,
        may_have_failed: false,
        word_is_coming: false,
        owed: None,
        uses_graphs,
    };
    let ended = queue.steps();
    // Where the card cannot say that it is done, it does nothing any more.
    let settled = if ended.is_err() { queue.sync() } else { Ok(()) };
    match (ended, settled) {
        (Err(Ended::Failed(failure)), _) | (_, Err(Ended::Failed(failure))) => run.fail(failure),
        _ => {}
    }
    marks.end(run);
}

pub(super) struct Queue<'a> {
    pub shared: &'a Shared,
    pub loaded: &'a Loaded,
    run: &'a Run,
    pub kept: &'a mut Kept,
    marks: &'a Marks,
    /// Whether the run knows of all that is pushed.
    told: bool,
    /// The command that is pushed.
    pub number: u32,
    /// Whether something was pushed since the host last waited for the card.
    pub is_pending: bool,
    /// Whether a kernel that finds faults was.
    pub may_have_failed: bool,
    /// Whether the last thing that was pushed copies the fault word.
    word_is_coming: bool,
    /// The stretch whose results are to be handed on.
    owed: Option<u32>,
    uses_graphs: bool,
}

impl<'a> Queue<'a> {
    fn steps(&mut self) -> Result<(), Ended> {
        let loaded = self.loaded;
        while let Some(step) = loaded.steps.get(self.number as usize) {
            self.wait(step)?;
            if self.run.has_failed() {
                return Err(Ended::Elsewhere);
            }
            // The host has the results of a stretch before it does anything else.
            if self.owed.is_some() {
                self.sync()?;
            }
            if let Some(stretch) = self.kept.stretch(self.number).filter(|_| self.uses_graphs) {
                // It begins without a fault: its first kernels do not look for one.
                if self.may_have_failed {
                    self.sync()?;
                }
                self.launch_stretch(stretch)?;
                self.announce()?;
                continue;
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
                    if self.comes_to(step)? {
                        self.may_have_failed |= !faults.is_empty();
                        self.word_is_coming = false;
                        launches.iter().try_for_each(|launch| self.launch(step, launch))?;
                    } else {
                        start = None;
                    }
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
            self.announce()?;
        }
        self.settle()
    }

    /// Tells queues on other streams what was pushed, where none of it can fail and the host owes nothing. Otherwise these wait for the card
    /// to have done it.
    fn announce(&mut self) -> Result<(), Ended> {
        self.told = false;
        if self.is_asked() {
            return self.settle();
        }
        if !self.is_open() {
            self.marks.announce(self.run, self.run.turn(self.loaded.queue), self.number);
        }
        Ok(())
    }

    /// Launches a stretch, whose first command is the next.
    fn launch_stretch(&mut self, at: u32) -> Result<(), Ended> {
        let since = self.run.begins();
        let Prepared::Done(Some(graphs)) = &mut self.kept.graphs else { return Ok(()) };
        self.is_pending = true;
        let launched = graphs.launch(at, self.shared, &self.kept.bound);
        let stretch = graphs.stretch(at);
        let (end, can_fail, hands_on) = (stretch.end, stretch.can_fail, stretch.hands_on());
        self.check(launched)?;
        self.may_have_failed = can_fail;
        self.word_is_coming = can_fail;
        self.owed = hands_on.then_some(at);
        self.number = end;
        self.run.was_busy(self.loaded.queue, since);
        Ok(())
    }

    /// Hands on what the commands before `end` of the stretch that has run have written.
    fn pay(&mut self, owed: Option<u32>, end: u32) {
        if let (Some(at), Prepared::Done(Some(graphs))) = (owed, &self.kept.graphs) {
            graphs.finish(at, end, &self.kept.bound);
        }
    }

    /// Waits until the waits of the step are over. The card's part is said before: another queue may wait for it.
    fn wait(&mut self, step: &Step) -> Result<(), Ended> {
        for wait in &step.waits {
            if self.has_come(wait)? {
                continue;
            }
            let come = self.sleep_for(wait);
            self.leaves(0);
            come?;
        }
        Ok(())
    }

    /// Whether something that is pushed may fail, or the host has still to do its part.
    fn is_open(&self) -> bool {
        self.may_have_failed || self.owed.is_some()
    }

    /// Before and behind a sleep: the commands that are pushed and not known to others, 0 for none.
    fn leaves(&self, commands: u32) {
        self.run.leaves_unrecorded(self.loaded.queue, commands);
        self.marks.leaves_unannounced(if self.is_open() { commands } else { 0 });
    }

    /// Sleeps until a wait is over, or the card's.
    fn sleep_for(&mut self, wait: &Awaited) -> Result<(), Ended> {
        loop {
            self.leaves(if self.told { 0 } else { self.number });
            let ticket = self.run.bell().ticket();
            // A queue that is on no card, or that has not begun, says when its commands have run.
            let partner = self.partner(wait).filter(|_| self.uses_graphs);
            let is_watched =
                partner.map(|marks| marks.watch(self.run, wait.wait.commands)).is_some() || !self.run.watch(self.loaded.queue, wait);
            if self.has_come(wait)? {
                return Ok(());
            }
            if self.run.has_failed() {
                return Err(Ended::Elsewhere);
            }
            // Others may wait for what is done here.
            if self.is_asked() {
                self.settle()?;
            } else if is_watched {
                self.run.bell().wait(ticket);
            }
        }
    }

    /// Whether a thread waits for what is pushed and not known to it: a processor's for what has run, a card's for what cannot fail.
    fn is_asked(&self) -> bool {
        let asked = self.run.is_awaited(self.loaded.queue, self.number) || self.is_open() && self.marks.is_awaited(self.number);
        asked && !self.told
    }

    /// The marks of a queue that waits can be ordered behind: one of a card of the same driver.
    fn partner(&self, wait: &Awaited) -> Option<&'a Marks> {
        let marks = &self.run.kept::<State>(wait.wait.queue)?.marks;
        marks.is_of(self.shared).then_some(marks)
    }

    /// Whether a wait is over, or from now on the card's. Commands that are timed wait for what has run.
    fn has_come(&mut self, wait: &Awaited) -> Result<bool, Ended> {
        if self.run.has_reached(self.loaded.queue, wait) {
            return Ok(true);
        }
        let Some(marks) = self.partner(wait).filter(|_| self.uses_graphs) else { return Ok(false) };
        let ordered = marks.order(self.shared, wait, self.run.turn(self.loaded.queue));
        // What is done here comes behind work of another card: that is over when this stream has come so far.
        self.is_pending |= ordered.as_ref().is_ok_and(|ordered| *ordered);
        ordered.map_err(|(context, trouble)| self.failed(fault_of(context, trouble)))
    }

    /// Waits for the card, and says how far the queue is.
    fn settle(&mut self) -> Result<(), Ended> {
        self.sync()?;
        self.run.advance(self.loaded.queue, self.number);
        self.told = true;
        self.marks.announce(self.run, self.run.turn(self.loaded.queue), self.number);
        Ok(())
    }

    /// Waits for the card, and looks for faults.
    pub fn sync(&mut self) -> Result<(), Ended> {
        if !std::mem::take(&mut self.is_pending) {
            return Ok(());
        }
        let looks = std::mem::take(&mut self.may_have_failed);
        let is_coming = std::mem::take(&mut self.word_is_coming);
        let owed = self.owed.take();
        let (stream, kept) = (&self.shared.stream, &mut *self.kept);
        let synced = match looks && !is_coming {
            true => stream.copy_out(&kept.pinned, WORD, kept.word.address(), 8),
            false => Ok(()),
        };
        let synced = synced.and_then(|()| kept.done.record(stream)).and_then(|()| kept.done.synchronize());
        self.check(synced)?;
        if !looks {
            self.pay(owed, u32::MAX);
            return Ok(());
        }
        let mut word = [0; 8];
        self.kept.pinned.read(WORD, &mut word);
        match u64::from_le_bytes(word) {
            NO_FAULT => {
                self.pay(owed, u32::MAX);
                Ok(())
            }
            word if self.run.has_failed() && emit::fault_of(word).is_some_and(|(number, _)| number == emit::GIVEN_UP) => {
                self.pay(owed, emit::command_of(word));
                Err(Ended::Elsewhere)
            }
            word => {
                let failure = self.fault(word);
                // What came before the command that failed stays.
                self.pay(owed, failure.command);
                Err(Ended::Failed(failure))
            }
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
        let Some((step, FaultText { code, message, numbers }, element)) = found else { return Failure { queue, command, fault: strange } };
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
        Failure { queue, command, fault: Fault { code: *code, message, numbers } }
    }

    pub fn check(&self, done: Result<(), Trouble>) -> Result<(), Ended> {
        done.map_err(|trouble| self.failed(fault_of(&self.shared.context, trouble)))
    }

    pub fn failed(&self, fault: Fault) -> Ended {
        // At the end of the queue no command is left to be pushed.
        let last = self.loaded.steps.len().saturating_sub(1) as u32;
        Ended::Failed(Failure { queue: self.loaded.queue, command: self.number.min(last), fault })
    }

    pub fn is_reached(&self, index: u32) -> bool {
        matches!(self.kept.bound[index as usize].1, Side::Here | Side::Nowhere)
    }

    pub fn address(&self, index: u32) -> u64 {
        if index == NONE { 0 } else { self.kept.bound[index as usize].0 }
    }

    /// Whether a step is pushed. cuDNN's work reads neither guard nor fault word: the host does, and nothing of it comes behind a fault.
    fn comes_to(&mut self, step: &Step) -> Result<bool, Ended> {
        if !step.convolves() {
            return Ok(true);
        }
        if self.may_have_failed {
            self.sync()?;
        }
        self.is_wanted(step)
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
        let pushed = match &launch.code {
            LaunchCode::Kernel(function, blocks) => self.push(*function, *blocks, &mut arguments),
            LaunchCode::Convolution(convolution) => {
                self.is_pending = true;
                let pushed = convolution.push(&self.shared.stream, &arguments);
                self.check(pushed)
            }
        };
        self.kept.arguments = arguments;
        pushed
    }

    pub fn push(&mut self, function: Function, blocks: u32, arguments: &mut [u64]) -> Result<(), Ended> {
        self.is_pending = true;
        let launched = self.shared.stream.launch(function, blocks, emit::THREADS, arguments);
        self.check(launched)
    }

    /// Whether the guard lets the step run, as the host sees it.
    pub fn is_wanted(&mut self, step: &Step) -> Result<bool, Ended> {
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
}
