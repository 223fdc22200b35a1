//! A graph with its variables, constants and plans.

mod values;

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use plimsoll_base::{Bytes, Error, Kind, Result};
use plimsoll_graph::id::Id;
use plimsoll_graph::{Graph, HostTensor, NodeId};
use plimsoll_ops::Registry;
use plimsoll_plan::{
    Calls, FitRequest, Fitted, Footprint, Inlined, OpenRequest, PlaceOptions, Placement, Plan, PlanFile, PlanVariable, Request, Signature,
};

use crate::access::{AccessRequest, Accesses};
use crate::checkpoints::{self, Checkpoints};
use crate::kept::Kept;
use crate::lane::WeakLane;
use crate::loaded::{Ends, Loaded, Room};
use crate::signatures::{key, signature, with_values};
use crate::stats::RunMetadata;
use crate::stored::{self, Stored};
use crate::turns::Attempt;
use crate::variables::Variables;
use crate::{Callable, Cancellation, Devices, Lane};

pub use values::{Fill, VariableInfo};

/// A graph on devices. Cloning shares it; any number of threads may use it. A run that writes a variable has that variable
/// alone; runs that do not meet go side by side. Each gets all of its variables at once, first come, first served.
#[derive(Clone)]
pub struct Session(Arc<Inner>);

pub(crate) struct Inner {
    devices: Devices,
    registry: Arc<Registry>,
    checkpoints: Arc<dyn Checkpoints>,
    stored: Option<Arc<dyn Stored>>,
    graph: Graph,
    /// Which of its nodes came from which call.
    calls: Arc<Calls>,
    placement: Placement,
    /// Where every run is placed by itself, the devices of nodes that keep state.
    placed_before: Option<Mutex<BTreeMap<NodeId, String>>>,
    holder: String,
    variables: Mutex<Variables>,
    /// Held while a plan is made and loaded: another thread finds it then instead of making its own.
    loading: Mutex<()>,
    /// Plans and idle arenas.
    kept: Arc<Kept>,
    /// Which variables runs have at the moment.
    accesses: Accesses,
    lanes: Mutex<Vec<WeakLane>>,
    closed: AtomicBool,
    /// The last to go.
    _heap: Heap,
}

/// The memory of freed tensors, graphs and plans goes back to the system when the session ends.
struct Heap;

impl Drop for Heap {
    fn drop(&mut self) {
        plimsoll_memory::trim_heap();
    }
}

/// Finds files with values of a graph's variables, if there are any.
pub type FindStored<'a> = dyn FnMut(&Graph) -> Result<Option<Arc<dyn Stored>>> + 'a;

/// More plans than this are not kept.
const MAX_PLANS: usize = 256;

/// # Errors
/// NOT_FOUND at the first node whose operation is neither registered nor a function of the graph, naming all such operations:
/// TensorFlow takes no such graph, for any run.
fn require_operations(graph: &Graph, registry: &Registry) -> Result<()> {
    let mut known: HashSet<&str> = graph.library.functions.iter().map(|function| function.signature.name.as_str()).collect();
    let mut missing: Option<Error> = None;
    let mut others = Vec::new();
    for node in graph.nodes().values() {
        if known.insert(node.op.as_str())
            && let Err(error) = registry.table().require(&node.op)
        {
            match missing {
                None => missing = Some(error.at_node(&node.name).suggesting(&node.op, registry.table().names())),
                Some(_) => others.push(format!("'{}' (node {})", node.op.escape_debug(), node.name)),
            }
        }
    }
    match missing {
        None => Ok(()),
        Some(error) if others.is_empty() => Err(error),
        Some(error) => Err(error.with_remedy(format!("more operations that are not registered: {}", others.join(", ")))),
    }
}

impl Session {
    /// A session for `graph`. Calls are inlined and every node is placed here, but with
    /// [`place_pruned_graph`](plimsoll_device::Options::place_pruned_graph).
    ///
    /// # Errors
    /// NOT_FOUND for operations that are neither registered nor functions of the graph, fetched or not. INVALID_ARGUMENT for device
    /// strings that make no sense. The same for nodes that ask for a device that is not there where soft placement is off. With
    /// [`plimsoll_device::Options::idle_release`], as [`Session::idle_release`].
    pub fn new(devices: &Devices, graph: &Graph, registry: Arc<Registry>) -> Result<Session> {
        Session::with_files(devices, graph, registry, Arc::new(checkpoints::None), &mut |_| Ok(None))
    }

    /// As [`Session::new`], with RestoreV2 and SaveV2 going to `checkpoints`. `stored` is asked once, with calls inlined, for files
    /// with values of the graph's variables: a variable that a run reads has its value from there, unless it was given one before.
    ///
    /// # Errors
    /// As [`Session::new`]; the error of `stored`.
    pub fn with_files(
        devices: &Devices,
        graph: &Graph,
        registry: Arc<Registry>,
        checkpoints: Arc<dyn Checkpoints>,
        stored: &mut FindStored<'_>,
    ) -> Result<Session> {
        require_operations(graph, &registry)?;
        let Inlined { mut graph, calls } = plimsoll_plan::inline(graph, registry.table())?;
        graph.drop_unused_functions();
        let calls = Arc::new(calls);
        let stored = stored(&graph)?;
        let options = devices.options();
        let log = options.log_placement;
        let options = PlaceOptions { log, calls: Arc::clone(&calls), ..PlaceOptions::new(options.soft_placement) };
        let (placement, placed_before) = if devices.options().place_pruned_graph {
            (Placement::unplaced(devices.specs())?, Some(Mutex::default()))
        } else {
            (plimsoll_plan::place(&graph, &registry, devices.specs(), &options)?, None)
        };
        Session::placed(devices, (graph, calls), (placement, placed_before), registry, checkpoints, stored)
    }

    fn placed(
        devices: &Devices,
        (graph, calls): (Graph, Arc<Calls>),
        (placement, placed_before): (Placement, Option<Mutex<BTreeMap<NodeId, String>>>),
        registry: Arc<Registry>,
        checkpoints: Arc<dyn Checkpoints>,
        stored: Option<Arc<dyn Stored>>,
    ) -> Result<Session> {
        let kept = Arc::new(Kept::new(devices.all().len()));
        devices.idle().register(&kept);
        let session = Session(Arc::new(Inner {
            holder: format!("session {}", devices.next_session()),
            kept,
            devices: devices.clone(),
            registry,
            checkpoints,
            stored,
            graph,
            calls,
            placement,
            placed_before,
            variables: Mutex::default(),
            loading: Mutex::new(()),
            accesses: Accesses::default(),
            lanes: Mutex::default(),
            closed: AtomicBool::new(false),
            _heap: Heap,
        }));
        if let Some(after) = devices.options().idle_release {
            session.idle_release(after)?;
        }
        Ok(session)
    }

    /// The graph that runs.
    pub fn graph(&self) -> &Graph {
        &self.0.graph
    }

    /// Where its nodes are; of none, where every run is placed by itself
    /// ([`place_pruned_graph`](plimsoll_device::Options::place_pruned_graph)).
    pub fn placement(&self) -> &Placement {
        &self.0.placement
    }

    /// The devices.
    pub fn devices(&self) -> &Devices {
        &self.0.devices
    }

    /// Runs the graph once: feeds by tensor name, fetches by tensor name, targets by node name.
    ///
    /// # Errors
    /// TensorFlow's, with its codes: see [`plimsoll_plan::plan()`] and [`Callable::run_into`]; RESOURCE_EXHAUSTED, before
    /// anything runs, where the plan's peak is over a line.
    pub fn run(&self, feeds: &[(&str, &HostTensor)], fetches: &[&str], targets: &[&str]) -> Result<Vec<HostTensor>> {
        let tensors: Vec<&HostTensor> = feeds.iter().map(|(_, tensor)| *tensor).collect();
        self.callable_for(feeds, fetches, targets)?.run(&tensors)
    }

    /// As [`Session::run`], until `cancellation` ends it. Planning and loading are not ended.
    ///
    /// # Errors
    /// As [`Session::run`]; CANCELLED or DEADLINE_EXCEEDED where it was ended.
    pub fn run_until(
        &self,
        feeds: &[(&str, &HostTensor)],
        fetches: &[&str],
        targets: &[&str],
        cancellation: &Cancellation,
    ) -> Result<Vec<HostTensor>> {
        let tensors: Vec<&HostTensor> = feeds.iter().map(|(_, tensor)| *tensor).collect();
        let callable = self.callable_for(feeds, fetches, targets)?;
        let mut outputs = callable.outputs()?;
        callable.run_until(&tensors, &mut outputs.iter_mut().collect::<Vec<_>>(), cancellation)?;
        Ok(outputs)
    }

    /// As [`Session::run`], and says what ran when on which device.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn run_with_stats(
        &self,
        feeds: &[(&str, &HostTensor)],
        fetches: &[&str],
        targets: &[&str],
    ) -> Result<(Vec<HostTensor>, RunMetadata)> {
        let tensors: Vec<&HostTensor> = feeds.iter().map(|(_, tensor)| *tensor).collect();
        let callable = self.callable_for(feeds, fetches, targets)?;
        let mut outputs = callable.outputs()?;
        let metadata = callable.run_with_stats(&tensors, &mut outputs.iter_mut().collect::<Vec<_>>())?;
        Ok((outputs, metadata))
    }

    /// The plan of a run with such feeds. Limits are not looked at.
    ///
    /// # Errors
    /// As [`plimsoll_plan::plan()`].
    pub fn plan(&self, feeds: &[(&str, &HostTensor)], fetches: &[&str], targets: &[&str]) -> Result<Plan> {
        self.0.plan_with_values(&signature(feeds, fetches, targets), feeds).map(|(_, plan)| plan)
    }

    /// The signature of such a run: with the elements of feeds where its plan depends on them.
    ///
    /// # Errors
    /// As [`plimsoll_plan::plan()`].
    pub fn signature(&self, feeds: &[(&str, &HostTensor)], fetches: &[&str], targets: &[&str]) -> Result<Signature> {
        self.0.plan_with_values(&signature(feeds, fetches, targets), feeds).map(|(signature, _)| signature)
    }

    /// The places of the nodes if these runs, one after the other, are to fit beside the bytes that others take of each device (see
    /// [`plimsoll_plan::first_fit`]). Nothing is changed.
    ///
    /// # Errors
    /// As [`plimsoll_plan::first_fit`].
    pub fn first_fit(&self, runs: &[Signature], taken: &[Bytes]) -> Result<Fitted> {
        let (devices, options) = (&self.0.devices, self.0.devices.options());
        plimsoll_plan::first_fit(&FitRequest {
            graph: &self.0.graph,
            registry: &self.0.registry,
            devices: devices.specs(),
            libraries: &devices.libraries(),
            options: PlaceOptions { log: options.log_placement, calls: self.0.calls.clone(), ..PlaceOptions::new(options.soft_placement) },
            runs,
            taken,
            mark: &|variables| self.0.mark(variables),
        })
    }

    /// Another session for the same graph, placed like this. It shares nothing but the devices.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for the placement of another graph or for other devices; otherwise as [`Session::new`].
    pub fn with_placement(&self, placement: Placement) -> Result<Session> {
        let is_ours = placement.devices.len() == self.0.graph.nodes().len()
            && placement.devices.values().chain([&placement.host]).all(|device| device.index() < self.0.devices.all().len());
        if !is_ours {
            return Err(Error::invalid_argument("the placement is of another graph, or for other devices"));
        }
        let Inner { devices, registry, checkpoints, stored, graph, calls, .. } = &*self.0;
        let graph = (graph.clone(), calls.clone());
        Session::placed(devices, graph, (placement, None), registry.clone(), checkpoints.clone(), stored.clone())
    }

    /// The plan of a signature. Limits are not looked at.
    ///
    /// # Errors
    /// As [`plimsoll_plan::plan()`].
    pub fn plan_signature(&self, signature: &Signature) -> Result<Plan> {
        self.0.plan(signature)
    }

    /// A signature, prepared.
    ///
    /// # Errors
    /// As [`Session::run`], but for errors of the run itself.
    pub fn callable(&self, signature: &Signature) -> Result<Callable> {
        let key = key(signature);
        if let Some(loaded) = self.0.find(&key, signature) {
            return Ok(Callable::new(self.0.clone(), loaded));
        }
        let _one = self.0.loading.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(loaded) = self.0.find(&key, signature) {
            return Ok(Callable::new(self.0.clone(), loaded));
        }
        let plan = self.0.plan(signature)?;
        Ok(Callable::new(self.0.clone(), self.0.load(key, signature.clone(), plan)?))
    }

    /// The callable of a run with such feeds.
    ///
    /// # Errors
    /// As [`Session::callable`].
    pub fn callable_for(&self, feeds: &[(&str, &HostTensor)], fetches: &[&str], targets: &[&str]) -> Result<Callable> {
        let signature = signature(feeds, fetches, targets);
        let key = key(&signature);
        let with_values = Signature { feeds: with_values(&signature, feeds), ..signature.clone() };
        let find = || [&signature, &with_values].into_iter().find_map(|candidate| self.0.find(&key, candidate));
        if let Some(loaded) = find() {
            return Ok(Callable::new(self.0.clone(), loaded));
        }
        let _one = self.0.loading.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(loaded) = find() {
            return Ok(Callable::new(self.0.clone(), loaded));
        }
        let (signature, plan) = self.0.plan_with_values(&signature, feeds)?;
        Ok(Callable::new(self.0.clone(), self.0.load(key, signature, plan)?))
    }

    /// A plan of this session's graph as a file: [`Session::callable_of_file`] takes it.
    pub fn plan_file(&self, signature: &Signature, plan: &Plan) -> PlanFile {
        PlanFile::new(&self.0.graph, self.0.devices.specs(), signature, plan)
    }

    /// A plan from a file, ready to run; it is checked before a device gets it. Later runs of its signature take it, too.
    ///
    /// # Errors
    /// As [`PlanFile::open`] and [`Session::callable`]; INVALID_ARGUMENT where it has a variable on another device than the session.
    pub fn callable_of_file(&self, file: PlanFile) -> Result<Callable> {
        let devices = &self.0.devices;
        let (graph, registry) = (&self.0.graph, &*self.0.registry);
        let open = OpenRequest { graph, registry, devices: devices.specs(), libraries: &devices.libraries() };
        let (signature, mut plan) = file.open(&open)?;
        self.0.mark(&mut plan.variables);
        let _one = self.0.loading.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Callable::new(self.0.clone(), self.0.load(key(&signature), signature, plan)?))
    }

    /// Keeps memory for the runs of these callables, one run at a time: as much as the greatest of them takes of each device.
    /// Callables that run in it ([`Callable::in_lane`]) never wait for room, and take none beyond it. Lanes are how several
    /// threads share a line whose peak is known: the sum of their lanes, variables and constants.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED where a line has no room; CANCELLED after the session was closed; INVALID_ARGUMENT for a callable of
    /// another session.
    pub fn lane(&self, callables: &[&Callable]) -> Result<Lane> {
        self.0.check_open()?;
        if callables.iter().any(|callable| !std::ptr::eq(callable.session(), &*self.0)) {
            return Err(Error::invalid_argument("a lane is for callables of its session"));
        }
        let plans: Vec<&Loaded> = callables.iter().map(|callable| callable.loaded()).collect();
        let lane = self.0.make_room(|| Lane::new(&plans, self.0.devices.all(), &self.0.holder))?;
        let mut lanes = self.0.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.retain(|lane| lane.upgrade().is_some());
        lanes.push(lane.downgrade());
        Ok(lane)
    }

    /// Gives back memory that no run needs now: idle arenas, and plans without a holder.
    pub fn release_unused(&self) {
        self.0.release_unused();
        plimsoll_memory::trim_heap();
    }

    /// From now on, gives back memory that is kept for the next run whenever the session has not run for so long: idle arenas, and
    /// memory that the devices hold beyond reservations. The next run reserves them again, and is refused where others have taken
    /// them meanwhile. Variables, constants and lanes stay. [`Duration::MAX`] is never.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED where the system has no thread to look after it; there is one for all sessions of the devices.
    pub fn idle_release(&self, after: Duration) -> Result<()> {
        self.0.kept.set_limit((after < Duration::MAX).then_some(after));
        if after < Duration::MAX { self.0.devices.idle().watch() } else { Ok(()) }
    }

    /// Ends the session: later runs fail with CANCELLED; runs that are under way come to their end first. All its memory goes
    /// back to the devices.
    pub fn close(&self) {
        self.0.closed.store(true, Ordering::Release);
        let _alone = self.0.accesses.take(&AccessRequest::All);
        let mut plans = self.0.kept.plans();
        // Callables may hold plans, but they run no more.
        plans.values().flatten().for_each(|(_, loaded)| loaded.give_back());
        plans.clear();
        drop(plans);
        *self.0.variables() = Variables::default();
        self.0.kept.arenas.clear();
        self.0.kept.set_limit(None);
        for lane in self.0.lanes.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            lane.upgrade().into_iter().for_each(|lane| *lane.memory() = None);
        }
        plimsoll_memory::trim_heap();
    }
}

impl Inner {
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    pub fn devices(&self) -> &Devices {
        &self.devices
    }

    pub fn run_loaded(&self, loaded: &Loaded, lane: Option<&Lane>, ends: &mut Ends<'_, '_, '_>) -> Result<()> {
        let result = self.run_in_turn(loaded, lane, ends);
        self.kept.ran();
        result
    }

    fn run_in_turn(&self, loaded: &Loaded, lane: Option<&Lane>, ends: &mut Ends<'_, '_, '_>) -> Result<()> {
        let turns = self.devices.turns();
        if lane.is_some() || turns.is_free() {
            let attempt = self.attempt(loaded, lane, ends, &mut || ());
            turns.ended();
            if let Attempt::Over(result) = attempt {
                return result;
            }
        }
        // A run that found no room beside others waits for them before it starts.
        turns.wait(self.devices.idle(), ends.cancellation, |has_room| self.attempt(loaded, lane, ends, has_room))
    }

    /// One attempt to run, once the variables are granted; `has_room` is called when its memory is there, before it starts.
    fn attempt(&self, loaded: &Loaded, lane: Option<&Lane>, ends: &mut Ends<'_, '_, '_>, has_room: &mut dyn FnMut()) -> Attempt<()> {
        let asked = ends.times.is_some().then(Instant::now);
        let mut attempt = || {
            self.check_open()?;
            let _granted = self.accesses.take_until(&loaded.request, ends.cancellation)?;
            self.check_open()?;
            Ok(match lane {
                Some(lane) => {
                    let memory = lane.memory();
                    let memory = memory.as_ref().ok_or_else(closed)?;
                    note_wait(ends, asked);
                    loaded.run(Room::Lane(memory), ends, &self.graph, has_room)
                }
                None => {
                    note_wait(ends, asked);
                    let _under_way = self.kept.under_way();
                    loaded.run(Room::Shared(&self.kept.arenas), ends, &self.graph, has_room)
                }
            })
        };
        attempt().unwrap_or_else(|error| Attempt::Over(Err(error)))
    }

    /// Takes memory that stays. Where there is no room, waits for runs that are under way, and has given back kept memory.
    fn make_room<R>(&self, mut take: impl FnMut() -> Result<R>) -> Result<R> {
        let turns = self.devices.turns();
        if turns.is_free()
            && let Attempt::Over(result) = Attempt::of(take())
        {
            return result;
        }
        turns.wait(self.devices.idle(), None, |_| Attempt::of(take()))
    }

    fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) { Err(closed()) } else { Ok(()) }
    }

    fn plan(&self, signature: &Signature) -> Result<Plan> {
        let (graph, registry, devices) = (&self.graph, &*self.registry, self.devices.specs());
        let libraries = self.devices.libraries();
        let request = Request { graph, registry, devices, libraries: &libraries, placement: &self.placement, signature };
        let mut plan = self.plan_placed(request)?;
        self.mark(&mut plan.variables);
        Ok(plan)
    }

    /// Marks the variables whose values are in files.
    fn mark(&self, variables: &mut [PlanVariable]) {
        if let Some(stored) = &self.stored {
            stored::mark(variables, &**stored);
        }
    }

    fn plan_placed(&self, request: Request<'_>) -> Result<Plan> {
        let Some(before) = &self.placed_before else { return plimsoll_plan::plan(&request) };
        let placement = {
            let mut before = before.lock().unwrap_or_else(PoisonError::into_inner);
            let options = PlaceOptions::new(self.devices.options().soft_placement);
            let placement =
                plimsoll_plan::place_pruned(&request, &PlaceOptions { assigned: before.clone(), calls: self.calls.clone(), ..options })?;
            before.extend(plimsoll_plan::stateful(&request, &placement));
            placement
        };
        plimsoll_plan::plan(&Request { placement: &placement, ..request })
    }

    /// The plan, made with the elements of small integer feeds where it cannot be made without them.
    fn plan_with_values(&self, signature: &Signature, feeds: &[(&str, &HostTensor)]) -> Result<(Signature, Plan)> {
        match self.plan(signature) {
            Ok(plan) => Ok((signature.clone(), plan)),
            Err(error) if error.kind() == Kind::NeedsValues => {
                let signature = Signature { feeds: with_values(signature, feeds), ..signature.clone() };
                if signature.feeds.iter().all(|feed| feed.value.is_none()) {
                    return Err(error);
                }
                self.plan(&signature).map(|plan| (signature, plan))
            }
            Err(error) => Err(error),
        }
    }

    fn find(&self, key: &str, signature: &Signature) -> Option<Arc<Loaded>> {
        let plans = self.kept.plans();
        plans.get(key)?.iter().find(|(known, _)| known == signature).map(|(_, loaded)| loaded.clone())
    }

    fn load(&self, key: String, signature: Signature, plan: Plan) -> Result<Arc<Loaded>> {
        self.check_open()?;
        let mut plan = plan;
        self.forget_loaded(&mut plan.variables);
        let mut footprint = Footprint::new(self.devices.specs());
        footprint.add(&plan);
        footprint.check()?;
        // Reading, placing and planning leave free memory behind: the step should not come on top of it.
        plimsoll_memory::trim_heap();
        let loaded = Arc::new(self.make_room(|| self.try_load(plan.clone()))?);
        let mut plans = self.kept.plans();
        if plans.len() >= MAX_PLANS {
            plans.retain(|_, plans| plans.iter().any(|(_, loaded)| Arc::strong_count(loaded) > 1));
        }
        plans.entry(key).or_default().push((signature, loaded.clone()));
        Ok(loaded)
    }

    fn try_load(&self, plan: Plan) -> Result<Loaded> {
        self.variables().ensure(&plan.variables, self.devices.all(), &format!("{}: variables", self.holder))?;
        let host = self.placement.host.index();
        if let Some(stored) = &self.stored {
            self.load_stored(&plan.variables, &**stored, &self.devices.all()[host])?;
        }
        let variables = self.variables();
        self.check_open()?;
        Loaded::new(plan, host, self.devices.all(), &variables, &self.holder, &self.checkpoints)
    }

    fn release_unused(&self) {
        self.kept.release();
        self.devices.all().iter().for_each(|device| device.release_unused());
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Now, and not when a thread that happens to look at it lets go.
        self.kept.arenas.clear();
        self.kept.plans().clear();
    }
}

/// Adds the time that a run waited before it could begin.
fn note_wait(ends: &mut Ends<'_, '_, '_>, since: Option<Instant>) {
    if let (Some(times), Some(since)) = (&mut ends.times, since) {
        times.waiting += since.elapsed();
    }
}

fn closed() -> Error {
    Error::cancelled("Session has been closed.")
}
