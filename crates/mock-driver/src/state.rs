//! The memory of the machine that a process has.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::{Arc, Mutex, PoisonError};

use crate::machine::{Machine, Part};
use crate::modules::{Function, Module};
use crate::pinned::Pinned;
use crate::streams::{Event, Stream};
use crate::{graphs, physical, pools};

pub type Status = c_int;
pub type Opaque = *mut std::ffi::c_void;

pub const SUCCESS: Status = 0;
pub const INVALID_VALUE: Status = 1;
pub const OUT_OF_MEMORY: Status = 2;
pub const NOT_INITIALIZED: Status = 3;
pub const NO_DEVICE: Status = 100;
pub const INVALID_DEVICE: Status = 101;
pub const INVALID_CONTEXT: Status = 201;
pub const INVALID_IMAGE: Status = 200;
pub const INVALID_HANDLE: Status = 400;
pub const NOT_FOUND: Status = 500;
pub const NO_ADDRESS: Status = 700;
pub const LOST: Status = 719;
pub const NOT_SUPPORTED: Status = 801;

/// The step of allocations.
pub const STEP: u64 = 512;
pub const BLOCK: u64 = 2 << 20;

/// An allocation of a context.
pub struct Allocation {
    pub card: usize,
    pub bytes: u64,
    pub context: u64,
    /// The pool that it is of.
    pub pool: Option<u64>,
}

/// A context.
pub struct Context {
    pub device: c_int,
    /// How often a device's own context is retained; those that a program made are retained once.
    pub retained: u64,
    /// Bytes that it takes of its card.
    pub bytes: u64,
}

/// A process after `cuInit`.
pub struct State {
    pid: u32,
    pub machine: Machine,
    part: Part,
    /// The cards that are seen, in the order in which they are numbered.
    pub visible: Vec<usize>,
    last: u64,
    pub contexts: HashMap<u64, Context>,
    /// Devices' own contexts.
    pub primaries: HashMap<c_int, u64>,
    pub allocations: HashMap<u64, Allocation>,
    pub physical: physical::State,
    pub pools: pools::State,
    pub graphs: graphs::State,
    pub streams: HashMap<u64, Arc<Stream>>,
    pub events: HashMap<u64, Arc<Event>>,
    pub modules: HashMap<u64, Arc<Module>>,
    pub functions: HashMap<u64, Function>,
    pub pinned: Pinned,
    /// Cards on which nothing works any more, and what every call says.
    pub broken: HashMap<usize, Status>,
}

static STATE: Mutex<Option<State>> = Mutex::new(None);

thread_local! {
    /// The contexts of this thread, the current one last.
    pub static CURRENT: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

pub type Answer = Result<(), Status>;

/// The status of an answer.
pub fn status(answer: Answer) -> Status {
    answer.err().unwrap_or(SUCCESS)
}

/// Works with the memory of this process. A fork of a process that came to the driver has nothing.
pub fn with(act: impl FnOnce(&mut State) -> Answer) -> Status {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    match &mut *state {
        Some(state) if state.pid == std::process::id() => status(act(state)),
        _ => NOT_INITIALIZED,
    }
}

/// `cuInit`.
pub fn begin() -> Status {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(state) = &*state {
        return if state.pid == std::process::id() { SUCCESS } else { NOT_INITIALIZED };
    }
    *state = made();
    match &*state {
        Some(state) if !state.visible.is_empty() => SUCCESS,
        _ => NO_DEVICE,
    }
}

/// This process on the machine; none where there is no machine.
fn made() -> Option<State> {
    let machine = Machine::found()?;
    let part = machine.join().ok()?;
    let visible = visible(&machine);
    Some(State {
        pid: std::process::id(),
        machine,
        part,
        visible,
        last: 0,
        contexts: HashMap::new(),
        primaries: HashMap::new(),
        allocations: HashMap::new(),
        physical: physical::State::default(),
        pools: pools::State::default(),
        graphs: graphs::State::default(),
        streams: HashMap::new(),
        events: HashMap::new(),
        modules: HashMap::new(),
        functions: HashMap::new(),
        pinned: Pinned::default(),
        broken: HashMap::new(),
    })
}

/// The cards that CUDA_VISIBLE_DEVICES names: the first that is none ends the list.
fn visible(machine: &Machine) -> Vec<usize> {
    let all = 0..machine.cards().len();
    let Ok(list) = std::env::var("CUDA_VISIBLE_DEVICES") else { return all.filter(|&card| !machine.is_hidden(card)).collect() };
    let find = |word: &str| match word.parse::<usize>() {
        Ok(number) => all.contains(&number).then_some(number),
        Err(_) => all.clone().find(|&card| word.len() > 4 && machine.cards()[card].name().starts_with(word)),
    };
    let mut out = Vec::new();
    for word in list.split(',').map(str::trim) {
        match find(word) {
            Some(card) if machine.is_hidden(card) => {}
            Some(card) if !out.contains(&card) => out.push(card),
            _ => break,
        }
    }
    out
}

/// The next multiple.
pub fn up(bytes: u64, step: u64) -> u64 {
    bytes.div_ceil(step).saturating_mul(step)
}

/// Writes where a program says.
///
/// # Errors
/// INVALID_VALUE where it says nothing.
///
/// # Safety
/// The pointer is null or valid for writes.
pub unsafe fn put<T>(place: *mut T, value: T) -> Answer {
    if place.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: the caller's promise.
    unsafe { place.write(value) };
    Ok(())
}

impl State {
    /// A number that nothing else has: an address, a handle.
    pub fn name(&mut self, room: u64) -> u64 {
        let name = 0x7000_0000_0000 + self.last;
        self.last += up(room.clamp(1, 1 << 40), BLOCK);
        name
    }

    /// # Errors
    /// INVALID_DEVICE where there is none of that number.
    pub fn card(&self, device: c_int) -> Result<usize, Status> {
        let number = usize::try_from(device).map_err(|_| INVALID_DEVICE)?;
        self.visible.get(number).copied().ok_or(INVALID_DEVICE)
    }

    /// The current context of the calling thread, its device and card.
    ///
    /// # Errors
    /// INVALID_CONTEXT where it has none.
    pub fn current(&self) -> Result<(u64, c_int, usize), Status> {
        let context = CURRENT.with_borrow(|stack| stack.last().copied()).filter(|&context| context != 0).ok_or(INVALID_CONTEXT)?;
        let device = self.contexts.get(&context).ok_or(INVALID_CONTEXT)?.device;
        Ok((context, device, self.card(device)?))
    }

    /// The card of a context, or of the calling thread's where that is null.
    ///
    /// # Errors
    /// INVALID_CONTEXT where there is none.
    pub fn card_of(&self, context: Opaque) -> Result<usize, Status> {
        match context as u64 {
            0 => Ok(self.current()?.2),
            context => self.card(self.contexts.get(&context).ok_or(INVALID_CONTEXT)?.device),
        }
    }

    /// # Errors
    /// What every call says once the card is lost, or its context is broken.
    pub fn works(&self, card: usize) -> Answer {
        match self.broken.get(&card) {
            Some(status) => Err(*status),
            None if self.machine.is_lost(card) => Err(LOST),
            None => Ok(()),
        }
    }

    /// As [`State::has_room`], on the card of the thread's context; without one there is nothing to be counted.
    ///
    /// # Errors
    /// As [`State::has_room`].
    pub fn has_room_here(&self) -> Answer {
        match self.current() {
            Ok((_, _, card)) => self.has_room(card),
            Err(_) => Ok(()),
        }
    }

    /// As [`State::works`], for calls that take memory of some kind.
    ///
    /// # Errors
    /// OUT_OF_MEMORY for the call that a test has chosen.
    pub fn has_room(&self, card: usize) -> Answer {
        self.works(card)?;
        if self.machine.refuses(card) { Err(OUT_OF_MEMORY) } else { Ok(()) }
    }

    /// # Errors
    /// OUT_OF_MEMORY where the card has not that much.
    pub fn take(&self, card: usize, bytes: u64) -> Answer {
        match self.machine.take(&self.part, card, bytes) {
            Ok(true) => Ok(()),
            _ => Err(OUT_OF_MEMORY),
        }
    }

    pub fn note_context(&self, card: usize, is_there: bool) {
        let _ = self.machine.note_context(&self.part, card, is_there);
    }

    pub fn give_back(&self, card: usize, bytes: u64) {
        let _ = self.machine.give_back(&self.part, card, bytes);
    }
}
