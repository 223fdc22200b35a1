//! A plan with its executables and everything that is bound once, and the constants that it has on devices.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use plimsoll_base::{Bytes, Error, Result};
use plimsoll_device::{Bindings, Device, DeviceKind, Executable, Failure, Outside, Run, Work};
use plimsoll_graph::id::Id;
use plimsoll_memory::{Address, Block, Loan};
use plimsoll_plan::{Plan, PlanVariable, VariableKind};

use crate::cancellation::Cancellation;
use crate::checkpoints::Checkpoints;
use crate::files::{FileCalls, Files, Reached};
use crate::grants::{Access, AccessRequest, Arenas, Constants, PlanConstants, Used};
use crate::times::Times;
use crate::variables::{Storage, Variables};

/// A plan, ready to run.
pub(crate) struct Loaded {
    pub plan: Arc<Plan>,
    devices: Vec<Arc<dyn Device>>,
    executables: Vec<Box<dyn Executable>>,
    /// Of each of the plan's variables: 1 once something was assigned. The session keeps their storage while it is open.
    assigned: Vec<Arc<AtomicU8>>,
    /// The flags of folded variables that it reads: 0 where one has to be computed before a run.
    folded: Vec<Arc<AtomicU8>>,
    /// What is no longer so after a run: that variables are as their files have them, and that folded variables are up to date.
    writes: Writes,
    /// The start of a new context: variables and flags are bound for good.
    bindings: Bindings,
    constants: Arc<PlanConstants>,
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

/// What the writes of a plan change beside the variables.
#[derive(Default)]
struct Writes {
    pristine: Vec<Arc<AtomicBool>>,
    folded: Vec<Arc<AtomicU8>>,
}

/// The changing part of a run; used by one run at a time, again and again.
pub(crate) struct Context {
    pub run: Arc<Run>,
    /// Fed and fetched tensors.
    pub ends: Loan,
    /// Its arenas, with the devices' indices; none of a lane.
    pub blocks: Vec<(usize, Block)>,
    /// When its constants were bound: see [`Used::bind`].
    bound: u64,
    files: Option<Arc<Files>>,
}

/// More contexts than this are not kept.
const MAX_IDLE: usize = 16;

impl Loaded {
    pub fn new(
        plan: Arc<Plan>,
        host: usize,
        devices: &[Arc<dyn Device>],
        variables: &Variables,
        constants: &Constants,
        holder: &str,
        checkpoints: &Arc<dyn Checkpoints>,
    ) -> Result<Loaded> {
        let storage = plan.variables.iter().map(|variable| {
            variables.get(&variable.key).ok_or_else(|| Error::internal(format!("variable '{}' has no storage", variable.name)))
        });
        let storages = storage.collect::<Result<Vec<_>>>()?;
        let executables = plan
            .queues
            .iter()
            .enumerate()
            .map(|(index, queue)| devices[queue.device.index()].load(index as u32, queue.program.clone()))
            .collect::<Result<Vec<_>>>()?;
        let bindings = Bindings {
            arenas: vec![Address::NULL; devices.len()],
            variables: storages.iter().map(|storage| storage.address()).collect(),
            flags: storages.iter().map(|storage| Address::new(storage.flag.as_ptr())).collect(),
            constants: vec![Address::NULL; plan.constants.len()],
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
        let mut writes = Writes::default();
        for (variable, storage) in plan.variables.iter().zip(&storages).filter(|(variable, _)| variable.written) {
            writes.pristine.push(storage.pristine.clone());
            writes.folded.extend(variables.dependents(&variable.key).iter().cloned());
        }
        let read = plan.variables.iter().filter(|variable| !variable.written);
        Ok(Loaded {
            folded: read.filter_map(|variable| variables.folded(&variable.key)).cloned().collect(),
            writes,
            devices: devices.to_vec(),
            executables,
            assigned: storages.iter().map(|storage| storage.flag.clone()).collect(),
            bindings,
            constants: constants.of_plan(&plan),
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

    /// Its constants on devices.
    pub fn constants(&self) -> &Arc<PlanConstants> {
        &self.constants
    }

    /// Has the constants on their devices, bound in the context, until the guard is dropped.
    ///
    /// # Errors
    /// As [`PlanConstants::take`].
    pub fn bind_constants(&self, context: &mut Context, cancellation: Option<&Cancellation>) -> Result<Used<'_>> {
        let used = self.constants.take(cancellation)?;
        used.bind(&mut context.bound, &mut Run::alone(&mut context.run).bindings.constants);
        Ok(used)
    }

    /// Bytes of one run's arena on each device that it has one on, with the device's index.
    pub fn arenas(&self) -> &[(usize, Bytes)] {
        &self.arenas
    }

    /// The bytes for which fed and fetched tensors count while a run uses them, on the device that they count against.
    pub fn ends(&self) -> (usize, Bytes) {
        (self.host, self.ends)
    }

    /// Reserves the memory of a run that is in no lane, constants aside.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED where a line has no room.
    pub fn reserve(&self, context: &mut Context, arenas: &Arenas) -> Result<()> {
        context.ends.set(self.ends).map_err(Error::from)?;
        for &(device, bytes) in &self.arenas {
            let block = arenas.take(device, &*self.devices[device], bytes, &self.holder)?;
            context.blocks.push((device, block));
        }
        Ok(())
    }

    /// The queues, each prepared by its device.
    pub fn executables(&self) -> &[Box<dyn Executable>] {
        &self.executables
    }

    /// The device that threads are lent to: that of the only queue, or the host.
    pub fn driver(&self) -> &dyn Device {
        match &*self.plan.queues {
            [only] => &*self.devices[only.device.index()],
            _ => &*self.devices[self.host],
        }
    }

    /// Notes the variables that a finished run has assigned. Whether all of its commands are done: it may have been ended early.
    ///
    /// # Errors
    /// The error of the operation that failed.
    pub fn end(&self, context: &Context) -> Result<bool> {
        let failure = context.run.failure();
        let is_done = failure.is_none() && (!context.run.has_failed() || self.is_done(&context.run));
        self.mark_assigned(&context.run, !is_done);
        let said = context.files.as_ref().and_then(|files| files.forget());
        failure.map_or(Ok(is_done), |failure| Err(self.error(failure, said)))
    }

    /// Whether every queue of a run that is over has finished all of its commands.
    fn is_done(&self, run: &Run) -> bool {
        let finished = |queue: usize| run.queues[queue].finished() as usize;
        self.plan.queues.iter().enumerate().all(|(index, queue)| finished(index) >= queue.program.commands.len())
    }

    /// Adds how a run that is over spent its time.
    pub fn note(&self, times: &mut Times, since: Instant, run: &Run) {
        times.runs += 1;
        times.running += since.elapsed();
        for (index, queue) in self.plan.queues.iter().enumerate() {
            times.busy[queue.device.index()] += run.busy(index as u32);
        }
    }

    /// A context that no run has.
    pub fn context(&self) -> Context {
        if let Some(context) = self.contexts.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            return context;
        }
        let files = self.files.as_ref().map(|calls| Arc::new(Files::new(calls)));
        let mut run = Run::new(self.executables.len(), self.bindings.clone());
        run.outside = files.clone().map(|files| files as Arc<dyn Outside>);
        let ends = self.devices[self.host].lend(&format!("{}: fed and fetched", self.holder));
        Context { run: Arc::new(run), ends, blocks: Vec::with_capacity(self.arenas.len()), bound: 0, files }
    }

    /// Takes a context back, after its run or without one.
    pub fn put_back(&self, context: Context) {
        let mut idle = self.contexts.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MAX_IDLE {
            idle.push(context);
        }
    }

    /// Whether a folded variable that it reads has to be computed first.
    pub fn is_stale(&self) -> bool {
        self.folded.iter().any(|flag| flag.load(Ordering::Acquire) == 0)
    }

    /// # Errors
    /// FAILED_PRECONDITION for a variable that is read and was not initialised.
    pub fn check_initialized(&self, graph: &plimsoll_graph::Graph) -> Result<()> {
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
        self.writes.pristine.iter().for_each(|flag| flag.store(false, Ordering::Release));
        self.writes.folded.iter().for_each(|flag| flag.store(0, Ordering::Release));
        for (variable, assigned) in self.plan.variables.iter().zip(&self.assigned) {
            let Some((queue, command)) = variable.assigned_by else { continue };
            if !failed || run.queues[queue as usize].finished() > command {
                assigned.store(1, Ordering::Release);
            }
        }
    }

    /// A run's error; `said` is the error of a call on files.
    fn error(&self, failure: Failure, said: Option<Error>) -> Error {
        let queue = &self.plan.queues[failure.queue as usize];
        let command = queue.program.commands.get(failure.command as usize);
        let is_outside = command.is_some_and(|command| matches!(command.work, Work::Outside { .. }));
        let error = said.filter(|_| is_outside).unwrap_or_else(|| failure.fault.to_error());
        let spec = self.devices[queue.device.index()].spec();
        // Which file it is, the device's name does not say.
        let error = if spec.kind == DeviceKind::Spill { error.context(&spec.description) } else { error };
        let error = error.on_device(spec.name.to_string());
        match command {
            Some(command) => error.at_node(command.label.to_string()),
            None => error,
        }
    }
}
