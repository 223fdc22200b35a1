//! A plan with its executables and everything that is bound once.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use plimsoll_base::{Bytes, DataType, Error, Result};
use plimsoll_device::{Bindings, Device, DeviceKind, Executable, Failure, Offsets, Outside, Run, Trace, Work};
use plimsoll_graph::HostTensor;
use plimsoll_graph::id::Id;
use plimsoll_memory::{Address, Block, Loan};
use plimsoll_plan::{Plan, PlanVariable, VariableKind};

use crate::access::{Access, AccessRequest};
use crate::arenas::Arenas;
use crate::cancellation::Cancellation;
use crate::checkpoints::Checkpoints;
use crate::files::{FileCalls, Files, Reached};
use crate::lane::Memory;
use crate::times::Times;
use crate::turns::Attempt;
use crate::variables::{Storage, Variables};

/// A plan, ready to run.
pub(crate) struct Loaded {
    pub plan: Plan,
    devices: Vec<Arc<dyn Device>>,
    executables: Vec<Box<dyn Executable>>,
    /// Of each of the plan's variables: 1 once something was assigned. The session keeps their storage while it is open.
    assigned: Vec<Arc<AtomicU8>>,
    /// The start of a new context: variables, flags and constants are bound for good.
    bindings: Bindings,
    constants: Mutex<Constants>,
    contexts: Mutex<Vec<Context>>,
    /// Devices with an arena: index and bytes.
    arenas: Vec<(usize, Bytes)>,
    /// The device that feeds and fetches count against.
    host: usize,
    /// How much they count for.
    ends: Bytes,
    holder: String,
    /// The accesses of its commands to files; none where there are none.
    files: Option<Arc<FileCalls>>,
    /// The variables that the plan touches.
    pub request: AccessRequest,
}

/// Where a run has its memory from.
pub(crate) enum Room<'a> {
    /// The arenas that the session's runs share.
    Shared(&'a Arenas),
    /// The memory that is kept for it.
    Lane(&'a Memory),
}

/// Constants that kernels read.
#[derive(Default)]
struct Constants {
    /// One for each device: most are read where the graph has them.
    loans: Vec<Loan>,
    /// Those of devices that have memory of their own, with the device's index.
    uploaded: Vec<(usize, Block)>,
    /// Those that the graph has compressed, in full.
    full: Vec<HostTensor>,
}

/// The arguments of a run.
pub(crate) struct Ends<'a, 'b, 'c> {
    /// Dense and of the plan's types and shapes.
    pub feeds: &'a [&'b HostTensor],
    /// As the feeds; they are not shared.
    pub fetches: &'a mut [&'c mut HostTensor],
    /// The trace for the times of commands, if it is wanted.
    pub trace: Option<Trace>,
    /// The sums of how the time was spent, if they are wanted.
    pub times: Option<&'a mut Times>,
    /// The handle that may end the run early.
    pub cancellation: Option<&'a Cancellation>,
}

/// The changing part of a run; used by one run at a time, again and again.
struct Context {
    run: Arc<Run>,
    ends: Loan,
    blocks: Vec<(usize, Block)>,
    files: Option<Arc<Files>>,
}

/// More contexts than this are not kept.
const MAX_IDLE: usize = 16;

impl Loaded {
    pub fn new(
        plan: Plan,
        host: usize,
        devices: &[Arc<dyn Device>],
        variables: &Variables,
        holder: &str,
        checkpoints: &Arc<dyn Checkpoints>,
    ) -> Result<Loaded> {
        let storage = plan.variables.iter().map(|variable| {
            variables.get(&variable.key).ok_or_else(|| Error::internal(format!("variable '{}' has no storage", variable.name)))
        });
        let storages = storage.collect::<Result<Vec<_>>>()?;
        let mut constants = Constants::default();
        for (index, device) in devices.iter().enumerate() {
            let here = plan.constants.iter().filter(|constant| constant.device.is_some_and(|device| device.index() == index));
            let bytes = device.spec().reserved_for(here.map(|constant| constant.bytes));
            if bytes > Bytes::ZERO && device.spec().kind != DeviceKind::Cpu {
                constants.uploaded.push((index, device.allocate(bytes, &format!("{holder}: constants"))?));
            } else if bytes > Bytes::ZERO {
                let mut loan = device.lend(&format!("{holder}: constants"));
                loan.set(bytes).map_err(Error::from)?;
                constants.loans.push(loan);
            }
        }
        // Reserved, so that they may be held in full now.
        let mut addresses = Vec::with_capacity(plan.constants.len());
        let mut used: Vec<Offsets> = devices.iter().map(|device| Offsets::new(device.spec())).collect();
        if plan.values.len() != plan.constants.len() {
            return Err(Error::internal("a plan without the elements of its constants"));
        }
        for (constant, value) in plan.constants.iter().zip(&plan.values) {
            let index = constant.device.map_or(usize::MAX, Id::index);
            if let Some((_, block)) = constants.uploaded.iter().find(|(device, _)| *device == index) {
                let at = used[index].push(constant.bytes);
                let dense = value.dense()?;
                block.write(at, dense.bytes().unwrap_or_default())?;
                addresses.push(block.address().plus(at));
                continue;
            }
            if value.bytes().is_none() {
                constants.full.push(value.dense()?);
            }
            let bytes = value.bytes().or_else(|| constants.full.last()?.bytes());
            addresses.push(bytes.map_or(Address::NULL, |bytes| Address::new(bytes.as_ptr().cast_mut())));
        }
        let executables = plan
            .queues()
            .iter()
            .enumerate()
            .map(|(index, queue)| devices[queue.device.index()].load(index as u32, queue.program.clone()))
            .collect::<Result<Vec<_>>>()?;
        let bindings = Bindings {
            arenas: vec![Address::NULL; devices.len()],
            variables: storages.iter().map(|storage| storage.address()).collect(),
            flags: storages.iter().map(|storage| Address::new(storage.flag.as_ptr())).collect(),
            constants: addresses,
            feeds: vec![Address::NULL; plan.sources().count()],
            fetches: vec![Address::NULL; plan.sinks().count()],
        };
        let stored = |(variable, storage): (&PlanVariable, &&Storage)| Reached {
            block: storage.block.clone(),
            offset: storage.offset,
            bytes: variable.bytes.0,
            data_type: variable.data_type,
            shape: variable.shape.clone(),
            kind: variable.kind,
        };
        let files = (!plan.calls.is_empty()).then(|| {
            let variables = plan.variables.iter().zip(&storages).map(stored).collect();
            Arc::new(FileCalls { calls: plan.calls.clone(), variables, checkpoints: checkpoints.clone() })
        });
        let arenas = plan
            .devices
            .iter()
            .enumerate()
            .filter(|(_, device)| device.arena > Bytes::ZERO)
            .map(|(index, device)| (index, device.arena))
            .collect();
        let access = |(variable, storage): (&PlanVariable, &&Storage)| Access { variable: storage.number, writes: variable.written };
        let mut accesses: Vec<Access> = plan.variables.iter().zip(&storages).map(access).collect();
        accesses.sort_unstable_by_key(|access| access.variable);
        Ok(Loaded {
            devices: devices.to_vec(),
            executables,
            assigned: storages.iter().map(|storage| storage.flag.clone()).collect(),
            bindings,
            constants: Mutex::new(constants),
            contexts: Mutex::new(Vec::with_capacity(MAX_IDLE)),
            arenas,
            host,
            ends: devices[host].spec().reserved_for(plan.ends()),
            holder: holder.to_string(),
            files,
            request: AccessRequest::Some(accesses.into()),
            plan,
        })
    }

    /// Gives back its memory beside its session's variables. For a session that ends: it must not run any more.
    pub fn give_back(&self) {
        *self.constants.lock().unwrap_or_else(PoisonError::into_inner) = Constants::default();
    }

    /// Bytes of one run's arena on each device that it has one on, with the device's index.
    pub fn arenas(&self) -> &[(usize, Bytes)] {
        &self.arenas
    }

    /// The bytes for which fed and fetched tensors count while a run uses them, on the device that they count against.
    pub fn ends(&self) -> (usize, Bytes) {
        (self.host, self.ends)
    }

    /// Runs the plan once. The session's variables have storage: it is not closed, nor will it be before this returns. The
    /// caller has been granted the request. `has_room` is called when the run's memory is there, before it starts.
    ///
    /// # Errors
    /// FAILED_PRECONDITION for variables that were not initialised; the error of a kernel, with its node. Where a line has no room
    /// for the run's memory it is not an error yet.
    pub fn run(
        &self,
        room: Room<'_>,
        ends: &mut Ends<'_, '_, '_>,
        graph: &plimsoll_graph::Graph,
        has_room: &mut dyn FnMut(),
    ) -> Attempt<()> {
        if let Err(error) = self.check_initialized(graph) {
            return Attempt::Over(Err(error));
        }
        let mut context = self.context();
        let attempt = match self.reserve(&mut context, &room) {
            Ok(()) => {
                has_room();
                Attempt::Over(self.execute(&mut context, &room, ends))
            }
            Err(error) if error.is_no_room() => Attempt::NoRoom(error),
            Err(error) => Attempt::Over(Err(error)),
        };
        if let Room::Shared(arenas) = room {
            for (device, block) in context.blocks.drain(..) {
                arenas.put(device, block);
            }
            // Less is always granted.
            let _ = context.ends.set(Bytes::ZERO);
        }
        let mut idle = self.contexts.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MAX_IDLE {
            idle.push(context);
        }
        attempt
    }

    fn reserve(&self, context: &mut Context, room: &Room<'_>) -> Result<()> {
        let Room::Shared(arenas) = room else { return Ok(()) };
        context.ends.set(self.ends).map_err(Error::from)?;
        for &(device, bytes) in &self.arenas {
            let block = arenas.take(device, &*self.devices[device], bytes, &self.holder)?;
            context.blocks.push((device, block));
        }
        Ok(())
    }

    fn execute(&self, context: &mut Context, room: &Room<'_>, ends: &mut Ends<'_, '_, '_>) -> Result<()> {
        let Ends { feeds, fetches, trace, times, cancellation } = ends;
        let run = Run::alone(&mut context.run);
        match room {
            Room::Shared(_) => context.blocks.iter().for_each(|(device, block)| run.bindings.arenas[*device] = block.address()),
            Room::Lane(memory) => self.arenas.iter().for_each(|(device, _)| run.bindings.arenas[*device] = memory.arena(*device)),
        }
        for (address, feed) in run.bindings.feeds.iter_mut().zip(feeds.iter()) {
            // An element that the plan knows already (strings are only known that way) is not read.
            if feed.data_type() != DataType::String {
                let bytes = feed.bytes().ok_or_else(|| Error::internal("a feed is not dense"))?;
                *address = Address::new(bytes.as_ptr().cast_mut());
            }
        }
        for (address, fetch) in run.bindings.fetches.iter_mut().zip(fetches.iter_mut()) {
            let bytes = fetch.bytes_mut().ok_or_else(|| Error::internal("a fetch is not dense"))?;
            *address = Address::new(bytes.as_mut_ptr());
        }
        run.trace = trace.take();
        run.is_timed = times.is_some();
        let since = run.begins();
        run.restart();
        let watched = cancellation.map(|cancellation| cancellation.watch(&context.run)).transpose()?;
        if !self.executables.is_empty() {
            self.executables.iter().for_each(|executable| executable.submit(&context.run));
            self.devices[self.host].drive(&context.run);
        }
        drop(watched);
        if let (Some(times), Some(since)) = (times, since) {
            self.note(times, since, &context.run);
        }
        if context.run.trace.is_some() {
            *trace = Run::alone(&mut context.run).trace.take();
        }
        let failure = context.run.failure();
        let is_done = failure.is_none() && (!context.run.has_failed() || self.is_done(&context.run));
        self.mark_assigned(&context.run, !is_done);
        let said = context.files.as_ref().and_then(|files| files.forget());
        match failure {
            Some(failure) => Err(self.error(failure, said)),
            None if is_done => Ok(()),
            None => Err(cancellation.and_then(Cancellation::error).unwrap_or_else(|| Error::internal("a run gave up"))),
        }
    }

    /// Whether every queue of a run that is over has finished all of its commands.
    fn is_done(&self, run: &Run) -> bool {
        let finished = |queue: usize| run.queues[queue].finished.load(Ordering::Acquire) as usize;
        self.plan.queues().iter().enumerate().all(|(index, queue)| finished(index) >= queue.program.commands.len())
    }

    /// Adds how a run that is over spent its time.
    fn note(&self, times: &mut Times, since: Instant, run: &Run) {
        times.runs += 1;
        times.running += since.elapsed();
        for (index, queue) in self.plan.queues().iter().enumerate() {
            times.busy[queue.device.index()] += run.busy(index as u32);
        }
    }

    fn context(&self) -> Context {
        if let Some(context) = self.contexts.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            return context;
        }
        let files = self.files.as_ref().map(|calls| Arc::new(Files::new(calls)));
        let mut run = Run::new(self.executables.len(), self.bindings.clone());
        run.outside = files.clone().map(|files| files as Arc<dyn Outside>);
        let ends = self.devices[self.host].lend(&format!("{}: fed and fetched", self.holder));
        Context { run: Arc::new(run), ends, blocks: Vec::with_capacity(self.arenas.len()), files }
    }

    fn check_initialized(&self, graph: &plimsoll_graph::Graph) -> Result<()> {
        for (variable, assigned) in self.plan.variables.iter().zip(&self.assigned) {
            let Some(reader) = variable.read_first_by else { continue };
            if assigned.load(Ordering::Acquire) != 0 {
                continue;
            }
            let message = match variable.kind {
                VariableKind::Reference => format!("Attempting to use uninitialized value {}", variable.name),
                _ => format!(
                    "Could not find variable {}. This could mean that the variable has been deleted. In TF1, it can also mean the variable is uninitialized.",
                    variable.name
                ),
            };
            return Err(Error::failed_precondition(message)
                .at_node(&graph.node(reader).name)
                .with_remedy("run the initializer, or restore a checkpoint, before this"));
        }
        Ok(())
    }

    /// The variable that a finished assignment leaves behind, also where the run failed later.
    fn mark_assigned(&self, run: &Run, failed: bool) {
        for (variable, assigned) in self.plan.variables.iter().zip(&self.assigned) {
            let Some((queue, command)) = variable.assigned_by else { continue };
            if !failed || run.queues[queue as usize].finished.load(Ordering::Acquire) > command {
                assigned.store(1, Ordering::Release);
            }
        }
    }

    /// A run's error; `said` is the error of a call on files.
    fn error(&self, failure: Failure, said: Option<Error>) -> Error {
        let queue = &self.plan.queues()[failure.queue as usize];
        let command = &queue.program.commands[failure.command as usize];
        let label = &command.label;
        let error = said.filter(|_| matches!(command.work, Work::Outside { .. })).unwrap_or_else(|| failure.fault.to_error());
        let device = self.devices[queue.device.index()].spec().name.to_string();
        error.at_node(label.to_string()).on_device(device)
    }
}
