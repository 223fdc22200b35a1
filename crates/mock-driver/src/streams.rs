//! Streams: a thread each, which does what is pushed in order. Events are marks in them.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::calls::note;
use crate::graphs::Act;
use crate::machine::Idle;
use crate::space::host;
use crate::state::{INVALID_CONTEXT, INVALID_HANDLE, INVALID_VALUE, NO_ADDRESS, Opaque, SUCCESS, State, Status, put, with};

type Work = Box<dyn FnOnce() + Send>;

/// `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED`: of what is pushed only the work of libraries is captured here.
const NOT_CAPTURED: Status = 900;

/// A stream's work.
#[derive(Default)]
pub struct Stream {
    state: Mutex<Queue>,
    changed: Condvar,
    /// The card whose stream it is.
    pub card: usize,
}

#[derive(Default)]
struct Queue {
    work: VecDeque<Work>,
    has_thread: bool,
    is_busy: bool,
    is_closed: bool,
}

/// A mark: how often it was put into a stream, and how often a stream came to it.
#[derive(Default)]
pub struct Event {
    marks: Mutex<(u64, u64)>,
    changed: Condvar,
    /// The card whose streams can have it.
    card: usize,
    /// Whether it keeps the time.
    is_timed: bool,
    /// When a stream came to it last.
    came: Mutex<Option<Time>>,
}

/// A time of a card: by the clock of a stream, where work takes what a test has set, and by the machine's.
#[derive(Clone, Copy)]
struct Time {
    nanoseconds: u64,
    here: Instant,
}

thread_local! {
    /// What the work of the stream that this thread is has taken so far, as a test has set it.
    static CLOCK: Cell<u64> = const { Cell::new(0) };
    /// What a unit of a library's work takes that is under way here.
    static UNIT: Cell<u64> = const { Cell::new(0) };
    /// The card whose stream this thread is; none for other threads.
    static CARD: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Counts work of the stream that the calling thread is.
pub fn spend(nanoseconds: u64) {
    CLOCK.set(CLOCK.get() + nanoseconds);
}

/// `CUDA_ERROR_NOT_READY`
const NOT_READY: Status = 600;

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stream {
    fn push(self: &Arc<Stream>, work: impl FnOnce() + Send + 'static) {
        let mut queue = locked(&self.state);
        queue.work.push_back(Box::new(work));
        if !std::mem::replace(&mut queue.has_thread, true) {
            let stream = self.clone();
            std::thread::spawn(move || stream.run());
        }
        drop(queue);
        self.changed.notify_all();
    }

    fn run(&self) {
        let mut queue = locked(&self.state);
        loop {
            if let Some(work) = queue.work.pop_front() {
                queue.is_busy = true;
                drop(queue);
                work();
                queue = locked(&self.state);
                queue.is_busy = false;
                self.changed.notify_all();
            } else if queue.is_closed {
                return;
            } else {
                queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    fn has_done_all(&self) -> bool {
        let queue = locked(&self.state);
        !queue.is_busy && queue.work.is_empty()
    }

    fn wait(&self) {
        let mut queue = locked(&self.state);
        while queue.is_busy || !queue.work.is_empty() {
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Event {
    /// One step for every other thread: a wait that knows of the mark comes behind it.
    fn record(self: &Arc<Event>, stream: &Arc<Stream>) {
        let mut marks = locked(&self.marks);
        marks.0 += 1;
        let (number, event) = (marks.0, self.clone());
        // A stream that has done everything is there at once, and need not be woken. Its thread alone has the time.
        if !self.is_timed && stream.has_done_all() {
            marks.1 = number;
            drop(marks);
            return self.changed.notify_all();
        }
        stream.push(move || {
            *locked(&event.came) = Some(Time { nanoseconds: CLOCK.get(), here: Instant::now() });
            let mut marks = locked(&event.marks);
            marks.1 = marks.1.max(number);
            drop(marks);
            event.changed.notify_all();
        });
    }

    fn last(&self) -> u64 {
        locked(&self.marks).0
    }

    /// When a stream came to it, where it keeps that.
    fn time(&self) -> Result<Time, Status> {
        let (recorded, passed) = *locked(&self.marks);
        match *locked(&self.came) {
            _ if !self.is_timed || recorded == 0 => Err(INVALID_HANDLE),
            Some(time) if passed == recorded => Ok(time),
            _ => Err(NOT_READY),
        }
    }

    fn wait(&self, number: u64) {
        let mut marks = locked(&self.marks);
        while marks.1 < number {
            marks = self.changed.wait(marks).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl State {
    /// The stream of a handle, on a card that works.
    pub fn stream(&self, handle: Opaque) -> Result<Arc<Stream>, Status> {
        let stream = self.streams.get(&(handle as u64)).cloned().ok_or(INVALID_HANDLE)?;
        self.works(stream.card).map(|()| stream)
    }

    fn event(&self, handle: Opaque) -> Result<Arc<Event>, Status> {
        self.events.get(&(handle as u64)).cloned().ok_or(INVALID_HANDLE)
    }

    fn make_stream(&mut self) -> Result<Opaque, Status> {
        let (_, _, card) = self.current()?;
        self.has_room(card)?;
        let handle = self.name(1);
        self.streams.insert(handle, Arc::new(Stream { card, ..Stream::default() }));
        Ok(handle as Opaque)
    }
}

/// Does something with a stream that the lock of the process is not held for.
fn on(handle: Opaque, act: impl FnOnce(&Arc<Stream>)) -> Status {
    let mut found = None;
    let status = with(|state| {
        found = Some(state.stream(handle)?);
        Ok(())
    });
    if let Some(stream) = found.filter(|_| status == SUCCESS) {
        act(&stream);
    }
    status
}

/// Work of a library like cuDNN, and what it is made of.
struct Foreign {
    act: unsafe extern "C" fn(*mut c_void) -> Status,
    end: unsafe extern "C" fn(*mut c_void),
    with: usize,
}

impl Drop for Foreign {
    fn drop(&mut self) {
        // SAFETY: by the promise of who pushed it; nothing uses it any more.
        unsafe { (self.end)(self.with as *mut c_void) };
    }
}

/// What a test has set for libraries on the card of the thread's context, by its number: bytes of a handle, and more workspace. A library asks
/// where it needs memory of some kind.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_mock_setting(which: c_int, place: *mut u64) -> Status {
    with(|state| {
        let (_, _, card) = state.current()?;
        state.has_room(card)?;
        let value = if which == 0 { state.machine.handle(card) } else { state.machine.more_workspace(card) };
        // SAFETY: the caller's promise.
        unsafe { put(place, value) }
    })
}

/// Pushes kernels of another library, `act`, on a stream, or into the graph that it is captured into. They are left out where kernels
/// are. `end` is called when they are never run again, whatever this returns.
///
/// # Safety
/// Both may be called with `with`, from any thread; `act` uses memory of the stream's card alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_mock_push(
    stream: Opaque,
    act: Option<unsafe extern "C" fn(*mut c_void) -> Status>,
    end: Option<unsafe extern "C" fn(*mut c_void)>,
    with: *mut c_void,
) -> Status {
    note("kernels of a library");
    let (Some(act), Some(end)) = (act, end) else { return INVALID_VALUE };
    let of = Foreign { act, end, with: with as usize };
    let mut card = 0;
    let found = self::with(|state| {
        card = state.stream(stream)?.card;
        Ok(())
    });
    if found != SUCCESS {
        return found;
    }
    let act: Act = Arc::new(move || {
        let of = &of;
        let idles = self::with(|state| if state.machine.idles(card, Idle::Kernels) { Err(INVALID_VALUE) } else { Ok(()) });
        if idles != SUCCESS {
            return SUCCESS;
        }
        self::with(|state| {
            UNIT.set(state.machine.library_time(card));
            Ok(())
        });
        // SAFETY: the caller's promise.
        unsafe { (of.act)(of.with as *mut c_void) }
    });
    let mut is_captured = false;
    let status = self::with(|state| {
        is_captured = state.captured(stream, card, &act)?;
        Ok(())
    });
    if status != SUCCESS || is_captured { status } else { push(stream, move || act()) }
}

/// Counts so many units of a library's work, which calls this where it does it.
#[unsafe(no_mangle)]
pub extern "C" fn plimsoll_mock_spend(units: u64) {
    spend(units * UNIT.get());
}

/// Where a range of a card's memory is for its kernels; null where it cannot be used.
#[unsafe(no_mangle)]
pub extern "C" fn plimsoll_mock_host(address: u64, bytes: u64) -> *mut u8 {
    if usable(address, bytes) == SUCCESS { host(address) } else { std::ptr::null_mut() }
}

/// Work of a stream that the caller's call may find no memory for: it breaks the card's context where it says so.
pub fn push(handle: Opaque, work: impl FnOnce() -> Status + Send + 'static) -> Status {
    let mut is_idle = false;
    let room = with(|state| {
        let card = state.stream(handle)?.card;
        if state.pools.capturing.contains_key(&(handle as u64)) {
            return Err(NOT_CAPTURED);
        }
        is_idle = state.machine.idles(card, Idle::All);
        state.has_room(card)
    });
    if room != SUCCESS || is_idle {
        return room;
    }
    on(handle, |stream| {
        let card = stream.card;
        stream.push(move || {
            CARD.set(Some(card));
            if with(|state| state.works(card)) == SUCCESS {
                let status = work();
                if status != SUCCESS {
                    with(|state| {
                        state.broken.insert(card, status);
                        Ok(())
                    });
                }
            }
        });
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreate(place: *mut Opaque, _flags: c_uint) -> Status {
    // SAFETY: the caller's promise.
    with(|state| state.make_stream().and_then(|made| unsafe { put(place, made) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreateWithPriority(place: *mut Opaque, _flags: c_uint, _priority: c_int) -> Status {
    note("cuStreamCreateWithPriority");
    // SAFETY: the caller's promise.
    with(|state| state.make_stream().and_then(|made| unsafe { put(place, made) }))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamDestroy_v2(stream: Opaque) -> Status {
    with(|state| {
        if let Some(stream) = state.streams.remove(&(stream as u64)) {
            locked(&stream.state).is_closed = true;
            stream.changed.notify_all();
        }
        Ok(())
    })
}

/// The streams of a program that makes none.
fn wait(stream: Opaque) -> Status {
    if !stream.is_null() {
        let status = on(stream, |stream| stream.wait());
        if status != SUCCESS {
            return status;
        }
    }
    with(|state| {
        state.waited();
        let card = state.streams.get(&(stream as u64)).map(|stream| stream.card);
        card.map_or(Ok(()), |card| state.works(card))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamSynchronize(stream: Opaque) -> Status {
    note("cuStreamSynchronize");
    wait(stream)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamSynchronize_ptsz(stream: Opaque) -> Status {
    wait(stream)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamWaitEvent(stream: Opaque, event: Opaque, _flags: c_uint) -> Status {
    note("cuStreamWaitEvent");
    let mut found = None;
    let status = with(|state| {
        found = Some(state.event(event)?);
        Ok(())
    });
    match found {
        Some(event) if status == SUCCESS => {
            let number = event.last();
            // The driver lets such a wait pass. It orders nothing, so it is a mistake: a wait that was pushed before its event.
            if number == 0 {
                return INVALID_VALUE;
            }
            push(stream, move || {
                event.wait(number);
                SUCCESS
            })
        }
        _ => status,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventCreate(place: *mut Opaque, flags: c_uint) -> Status {
    // `CU_EVENT_DISABLE_TIMING`
    let is_timed = flags & 2 == 0;
    with(|state| {
        let (_, _, card) = state.current()?;
        state.has_room(card)?;
        let handle = state.name(1);
        state.events.insert(handle, Arc::new(Event { card, is_timed, ..Event::default() }));
        // SAFETY: the caller's promise.
        unsafe { put(place, handle as Opaque) }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventDestroy_v2(event: Opaque) -> Status {
    with(|state| state.events.remove(&(event as u64)).map(drop).ok_or(INVALID_HANDLE))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventRecord(event: Opaque, stream: Opaque) -> Status {
    note("cuEventRecord");
    let mut found = None;
    let status = with(|state| {
        found = Some(state.event(event)?);
        Ok(())
    });
    match found {
        Some(event) if status == SUCCESS => {
            // Event and stream are of one context.
            let mut fits = true;
            let status = on(stream, |stream| {
                fits = stream.card == event.card;
                if fits {
                    event.record(stream);
                }
            });
            if fits { status } else { INVALID_HANDLE }
        }
        _ => status,
    }
}

/// Milliseconds from one event to another of the same card, which streams have passed: of the work between them as a test has set it, and
/// otherwise of this machine's clock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventElapsedTime_v2(place: *mut f32, from: Opaque, to: Opaque) -> Status {
    note("cuEventElapsedTime");
    with(|state| {
        let (from, to) = (state.event(from)?, state.event(to)?);
        if from.card != to.card {
            return Err(INVALID_HANDLE);
        }
        state.works(from.card)?;
        let (from, to) = (from.time()?, to.time()?);
        let here = to.here.saturating_duration_since(from.here).as_nanos() as u64;
        let nanoseconds = to.nanoseconds.checked_sub(from.nanoseconds).filter(|set| *set > 0).unwrap_or(here);
        // SAFETY: the caller's promise.
        unsafe { put(place, nanoseconds as f32 * 1e-6) }
    })
}

/// Nothing is the cheapest event there is.
#[unsafe(no_mangle)]
pub extern "C" fn cuEventSynchronize(event: *mut c_void) -> Status {
    note("cuEventSynchronize");
    if event.is_null() {
        return SUCCESS;
    }
    let mut found = None;
    let status = with(|state| {
        found = Some(state.event(event)?);
        Ok(())
    });
    let Some(event) = found.filter(|_| status == SUCCESS) else { return status };
    event.wait(event.last());
    // What broke before is said by every call from then on, as far as the thread's card is concerned.
    with(|state| state.current().and_then(|(_, _, card)| state.works(card)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchHostFunc(stream: Opaque, act: Option<unsafe extern "C" fn(*mut c_void)>, with: *mut c_void) -> Status {
    note("cuLaunchHostFunc");
    let Some(act) = act else { return INVALID_VALUE };
    let with = with as usize;
    push(stream, move || {
        // SAFETY: the caller's promise.
        unsafe { act(with as *mut c_void) };
        SUCCESS
    })
}

/// Whether the stream that the calling thread is can use a range of a card's memory: a kernel that does otherwise breaks the context.
pub fn usable(address: u64, bytes: u64) -> Status {
    with(|state| match address.checked_add(bytes).map(|end| address..end) {
        Some(range) if state.physical.space.is_open(&range) && CARD.get().is_none_or(|card| state.physical.is_open_to(&range, card)) => {
            Ok(())
        }
        _ => Err(NO_ADDRESS),
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD8Async(address: u64, value: u8, bytes: usize, stream: Opaque) -> Status {
    note("cuMemsetD8Async");
    push(stream, move || match usable(address, bytes as u64) {
        SUCCESS => {
            // SAFETY: the card's memory, which nothing but its streams uses.
            unsafe { host(address).write_bytes(value, bytes) };
            SUCCESS
        }
        status => status,
    })
}

/// From memory that is pinned the copy reads when it comes to it, from other memory at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: Opaque) -> Status {
    note("cuMemcpyHtoDAsync");
    let pinned = with(|state| if state.pinned.contains(from as u64, bytes as u64) { Ok(()) } else { Err(INVALID_VALUE) }) == SUCCESS;
    let mut now = Vec::new();
    if !pinned {
        // SAFETY: the caller's promise.
        now = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), bytes) }.to_vec();
    }
    let from = from as usize;
    push(stream, move || match usable(to, bytes as u64) {
        SUCCESS => {
            let from = if pinned { from as *const u8 } else { now.as_ptr() };
            // SAFETY: the card's memory, and as many bytes that the caller keeps until then.
            unsafe { host(to).copy_from_nonoverlapping(from, bytes) };
            SUCCESS
        }
        status => status,
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: Opaque) -> Status {
    note("cuMemcpyDtoHAsync");
    let pinned = with(|state| if state.pinned.contains(to as u64, bytes as u64) { Ok(()) } else { Err(INVALID_VALUE) }) == SUCCESS;
    let place = to as usize;
    let pushed = push(stream, move || match usable(from, bytes as u64) {
        SUCCESS => {
            // SAFETY: the card's memory, and as many bytes that the caller keeps until then.
            unsafe { host(from).copy_to_nonoverlapping(place as *mut u8, bytes) };
            SUCCESS
        }
        status => status,
    });
    if pinned || pushed != SUCCESS { pushed } else { wait(stream) }
}

/// A stream of either card. Each address is of the card of its context.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyPeerAsync(to: u64, onto: Opaque, from: u64, of: Opaque, bytes: usize, stream: Opaque) -> Status {
    note("cuMemcpyPeerAsync");
    let status = with(|state| {
        let card = |context: Opaque| state.card(state.contexts.get(&(context as u64)).ok_or(INVALID_CONTEXT)?.device);
        let (onto, of, on) = (card(onto)?, card(of)?, state.stream(stream)?.card);
        state.works(onto).and(state.works(of))?;
        // Memory is a peer's only where it was opened to it.
        let lies = |address: u64, card: usize| {
            let range = address..address.saturating_add(bytes as u64);
            state.physical.card(address) == Some(card) && state.physical.is_open_to(&range, on)
        };
        if (on == onto || on == of) && lies(to, onto) && lies(from, of) { Ok(()) } else { Err(INVALID_VALUE) }
    });
    if status != SUCCESS {
        return status;
    }
    push(stream, move || match usable(from, bytes as u64).max(usable(to, bytes as u64)) {
        SUCCESS => {
            // SAFETY: the cards' memory, which nothing but their streams uses.
            unsafe { host(to).copy_from(host(from), bytes) };
            SUCCESS
        }
        status => status,
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: Opaque) -> Status {
    note("cuMemcpyDtoDAsync");
    push(stream, move || match usable(from, bytes as u64).max(usable(to, bytes as u64)) {
        SUCCESS => {
            // SAFETY: the card's memory, which nothing but its streams uses.
            unsafe { host(to).copy_from(host(from), bytes) };
            SUCCESS
        }
        status => status,
    })
}
