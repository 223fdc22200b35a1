//! The threads.

use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{Builder, JoinHandle, available_parallelism};
use std::time::{Duration, Instant};

use plimsoll_base::{Code, Error, Result};
use plimsoll_device::{Bell, Failure, Fault, Run};

use crate::open_runs::OpenRuns;
use crate::permits::Permits;
use crate::queue::CpuQueue;

/// Bytes of a worker's stack: kernels keep a few tiles there. The default would make many workers a burden under a limit on
/// the address space.
const STACK: usize = 512 << 10;

/// How long a thread that has nothing to do stays awake.
const PATIENCE: Duration = Duration::from_micros(200);

/// The threads that compute for the CPU devices of one `Devices`. Dropping the pool ends them.
#[derive(Debug)]
pub struct CpuPool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    threads: u32,
    /// How many queues of a run may be run at once.
    inter_op: u32,
    cores: u32,
    permits: Permits,
    open_runs: OpenRuns,
    /// On which workers sleep, and threads whose last pieces are with others.
    bell: Bell,
    spinning: AtomicU32,
    /// Workers that serve.
    started: AtomicU32,
    ending: AtomicBool,
}

impl CpuPool {
    /// A pool that computes with at most `intra_op` threads (at least 1): the threads that drive runs, and `intra_op - 1`
    /// workers, which start here.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED where the operating system has no more threads.
    pub fn new(intra_op: usize) -> Result<Arc<CpuPool>> {
        CpuPool::with_inter_op(intra_op, 0)
    }

    /// As [`CpuPool::new`], advancing at most `inter_op` queues of a run at the same time; 0 is no such limit.
    ///
    /// # Errors
    /// As [`CpuPool::new`].
    pub fn with_inter_op(intra_op: usize, inter_op: usize) -> Result<Arc<CpuPool>> {
        let threads = u32::try_from(intra_op.max(1)).unwrap_or(u32::MAX);
        let shared = Arc::new(Shared {
            threads,
            inter_op: if inter_op == 0 { threads } else { u32::try_from(inter_op).unwrap_or(u32::MAX) },
            cores: available_parallelism().map_or(1, |cores| cores.get()) as u32,
            permits: Permits::new(threads),
            open_runs: OpenRuns::new(),
            bell: Bell::new(),
            spinning: AtomicU32::new(0),
            started: AtomicU32::new(0),
            ending: AtomicBool::new(false),
        });
        let mut pool = CpuPool { shared, workers: Vec::new() };
        for thread in 1..threads {
            let shared = pool.shared.clone();
            // On failure the pool is dropped, which ends the workers there are.
            let builder = Builder::new().name(format!("plimsoll-{thread}")).stack_size(STACK);
            let worker = builder.spawn(move || Crew { shared: &shared, thread }.serve());
            pool.workers.push(worker.map_err(|error| {
                let message = format!("thread {thread} of {threads} cannot start: {error}");
                Error::resource_exhausted(message).with_remedy("ask for fewer intra-op threads")
            })?);
        }
        // A thread that starts allocates: that is over when the pool is there.
        let Shared { started, bell, .. } = &*pool.shared;
        loop {
            let ticket = bell.ticket();
            if started.load(Ordering::SeqCst) == threads - 1 {
                return Ok(Arc::new(pool));
            }
            bell.wait(ticket);
        }
    }

    /// How many threads compute at most; their numbers, for scratch, are below that.
    pub fn threads(&self) -> usize {
        self.shared.threads as usize
    }

    /// Lends the calling thread to `run` until it is over: see [`plimsoll_device::Device::drive`].
    pub fn drive(&self, run: &Run) {
        let shared = &*self.shared;
        let crew = Crew { shared, thread: 0 };
        shared.permits.take();
        let _permit = Permit(shared);
        if run.queues.len() == 1
            && let Some(queue) = run.kept::<CpuQueue>(0)
            && (shared.threads == 1 || !queue.has_pieces())
            && queue.claim()
        {
            queue.run(&crew, run, true);
            return;
        }
        crew.drive(run);
    }
}

impl Drop for CpuPool {
    fn drop(&mut self) {
        self.shared.ending.store(true, Ordering::SeqCst);
        self.shared.bell.ring();
        for worker in self.workers.drain(..) {
            // A worker has nothing to report: panics of kernels are caught in `execute`.
            let _ = worker.join();
        }
    }
}

/// A permit that was taken.
struct Permit<'a>(&'a Shared);

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.0.permits.give();
        if !self.0.open_runs.are_empty() {
            // A worker may sleep because it got no permit.
            self.0.bell.ring();
        }
    }
}

/// A thread at work for the pool: a driver, which is thread 0 of its run, or a worker.
pub(crate) struct Crew<'a> {
    shared: &'a Shared,
    /// Its number in every run that it takes part in.
    pub thread: u32,
}

impl Crew<'_> {
    pub fn bell(&self) -> &Bell {
        &self.shared.bell
    }

    fn is_driver(&self) -> bool {
        self.thread == 0
    }

    /// Whether this is a worker and a driver waits for its permit.
    pub fn is_needed_elsewhere(&self) -> bool {
        !self.is_driver() && self.shared.permits.are_wanted()
    }

    pub fn wake_workers(&self) {
        if self.shared.threads > 1 {
            self.shared.bell.ring();
        }
    }

    /// Wakes threads that could take pieces of a command that this thread runs.
    pub fn wake_for_pieces(&self, run: &Run) {
        self.wake_workers();
        if !self.is_driver() {
            run.ring();
        }
    }

    /// Patience of a thread that has a permit, for one occasion.
    pub fn patience(&self) -> Patience<'_> {
        Patience { shared: self.shared, has_permit: true, since: None }
    }

    /// Does something in `run`. Returns whether there was something.
    fn work(&self, run: &Run, running: &AtomicU32, alone: bool) -> bool {
        let count = run.queues.len() as u32;
        let mut some = false;
        for index in (0..count).map(|index| (index + self.thread) % count) {
            let Some(queue) = run.kept::<CpuQueue>(index).filter(|queue| queue.is_runnable(run)) else {
                continue;
            };
            let mine = running.fetch_add(1, Ordering::SeqCst) < self.shared.inter_op && queue.claim();
            if mine {
                some = true;
                queue.run(self, run, alone);
            }
            running.fetch_sub(1, Ordering::SeqCst);
            if mine && self.shared.inter_op < self.shared.threads {
                self.wake_workers();
            }
            if mine && !self.is_driver() {
                // The driver may have gone to sleep while this thread had the queue: now it has to watch it again.
                run.ring();
            }
            if self.is_needed_elsewhere() {
                return some;
            }
        }
        if !some {
            some = (0..count).any(|index| run.kept::<CpuQueue>(index).is_some_and(|queue| queue.take_pieces(self, run, true)));
        }
        some
    }

    /// Whether [`Crew::work`] would find something to do.
    fn sees_work(&self, run: &Run, running: &AtomicU32) -> bool {
        let may_run = running.load(Ordering::SeqCst) < self.shared.inter_op;
        queues(run).any(|(_, queue)| queue.offers_pieces() || (may_run && queue.is_runnable(run)))
    }

    /// Asks to be woken when an unclaimed queue that waits can go on. Returns whether one can since it was asked. A queue that did not
    /// wait when it was asked is none of these: look with [`Crew::sees_work`] thereafter.
    fn watch(&self, run: &Run) -> bool {
        queues(run).any(|(index, queue)| queue.is_ready() && queue.blocked_by(run).is_some_and(|wait| run.watch(index, &wait)))
    }

    /// Runs and helps until the run is over.
    fn drive(&self, run: &Run) {
        let opened = if self.shared.threads > 1 { self.shared.open_runs.open(run) } else { None };
        let alone = opened.is_none();
        let own = AtomicU32::new(0);
        let running = opened.as_ref().map_or(&own, |opened| opened.running());
        if !alone && run.queues.len() > 1 {
            self.wake_workers();
        }
        while !run.is_over() {
            if !self.work(run, running, alone) && !run.is_over() {
                self.idle(run, running);
            }
        }
    }

    /// Waits for something to do in the run, or for its end.
    fn idle(&self, run: &Run, running: &AtomicU32) {
        let mut patience = self.patience();
        while patience.spin() {
            if run.is_over() || self.sees_work(run, running) {
                return;
            }
        }
        let ticket = run.bell().ticket();
        // A queue that can go on before it is watched rings no bell.
        if run.is_over() || self.watch(run) || self.sees_work(run, running) {
            return;
        }
        if let Some(queue) = stuck(run) {
            let fault = Fault { code: Code::Internal, message: "the queues of the plan wait for each other", numbers: [0, 0] };
            return run.fail(Failure { queue, command: run.queues[queue as usize].finished(), fault });
        }
        self.shared.permits.give();
        if self.shared.open_runs.are_several() {
            // A worker may sleep because it got no permit to work for another run.
            self.wake_workers();
        }
        run.bell().wait(ticket);
        self.shared.permits.take();
    }

    /// The life of a worker.
    fn serve(&self) {
        let shared = self.shared;
        let mut patience = Patience { shared, has_permit: false, since: None };
        shared.started.fetch_add(1, Ordering::SeqCst);
        shared.bell.ring();
        loop {
            let ticket = shared.bell.ticket();
            if shared.ending.load(Ordering::SeqCst) {
                return;
            }
            if self.look_around(&mut patience) {
                patience.restore();
            } else if !patience.spin() {
                let mut some = false;
                shared.open_runs.visit(self.thread, |run, running| {
                    some |= self.watch(run) || self.sees_work(run, running);
                    true
                });
                // Where there is something but no permit, the thread that gives one back rings.
                if !some || shared.permits.are_wanted() || shared.permits.free() == 0 {
                    shared.bell.wait(ticket);
                }
            }
        }
    }

    /// Works for whichever run has something to do. Returns whether one had.
    fn look_around(&self, patience: &mut Patience<'_>) -> bool {
        let mut permit = None;
        let mut some = false;
        self.shared.open_runs.visit(self.thread, |run, running| {
            while self.sees_work(run, running) {
                if permit.is_none() && self.shared.permits.take_idle() {
                    permit = Some(Permit(self.shared));
                    // It counts among those that compute now.
                    patience.restore();
                }
                if permit.is_none() || !self.work(run, running, false) {
                    break;
                }
                some = true;
                if self.is_needed_elsewhere() {
                    return false;
                }
            }
            true
        });
        some
    }
}

/// The queues of a run that belong to processors.
fn queues(run: &Run) -> impl Iterator<Item = (u32, &CpuQueue)> {
    (0..run.queues.len() as u32).filter_map(|index| run.kept::<CpuQueue>(index).map(|queue| (index, queue)))
}

/// A queue that waits in vain: no thread runs any queue, and each that is not at its end waits for another of them. A queue that
/// waits cannot be claimed for more than a moment, so if nothing advanced while all were looked at, nothing ever will.
fn stuck(run: &Run) -> Option<u32> {
    let before = run.progress();
    let mut waiting = None;
    for (index, queue) in queues(run) {
        if queue.is_claimed() {
            return None;
        }
        if queue.is_ready() {
            run.kept::<CpuQueue>(queue.blocked_by(run)?.wait.queue)?;
            waiting = waiting.or(Some(index));
        }
    }
    waiting.filter(|_| !run.has_failed() && run.progress() == before)
}

/// How long a thread goes on looking before it sleeps. None at all where threads would take the cores from each other.
pub(crate) struct Patience<'a> {
    shared: &'a Shared,
    /// Whether the thread is counted among those that have a permit.
    has_permit: bool,
    since: Option<Instant>,
}

impl Patience<'_> {
    /// Lets a moment pass. Returns false when it is time to sleep; the next time it begins anew.
    pub fn spin(&mut self) -> bool {
        let shared = self.shared;
        let since = *self.since.get_or_insert_with(|| {
            if !self.has_permit {
                shared.spinning.fetch_add(1, Ordering::Relaxed);
            }
            Instant::now()
        });
        let computing = shared.threads - shared.permits.free().min(shared.threads);
        let crowded = shared.threads > shared.cores
            || shared.permits.are_wanted()
            || computing + shared.spinning.load(Ordering::Relaxed) > shared.cores;
        if crowded || since.elapsed() >= PATIENCE {
            self.restore();
            return false;
        }
        for _ in 0..16 {
            spin_loop();
        }
        true
    }

    /// Patience as at the beginning.
    pub fn restore(&mut self) {
        if self.since.take().is_some() && !self.has_permit {
            self.shared.spinning.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Patience<'_> {
    fn drop(&mut self) {
        self.restore();
    }
}
