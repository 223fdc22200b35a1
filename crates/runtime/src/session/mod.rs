//! A graph with its variables, constants and plans.

mod buckets;
mod freeze;
mod from_file;
mod inner;
mod iterations;
mod lines;
mod open_shapes;
mod stages;
pub(crate) use self::stages::Staged;
mod values;

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use plimsoll_base::{Bytes, Error, Result};
use plimsoll_graph::id::Id;
use plimsoll_graph::{Graph, HostTensor, NodeId};
use plimsoll_ops::Registry;
use plimsoll_plan::{
    Calls, Fitted, Freeze, Inlined, Late, Lines, Objective, OpenRequest, Pass, PlaceOptions, PlaceRequest, Placement, Plan, PlanFile,
    Signature,
};

use crate::cancellation;
use crate::checkpoints::{self, Checkpoints};
use crate::grants::Grants;
use crate::loaded::Loaded;
use crate::signatures::{key, signature, with_values};
use crate::stats::RunMetadata;
use crate::stored::Stored;
use crate::variables::Variables;
use crate::{Callable, Cancellation, Devices, Lane};

pub use from_file::CheckedPlan;
pub use values::{Fill, VariableInfo};

/// A graph on devices. Cloning shares it; any number of threads may use it. A run that writes a variable has that variable
/// alone; runs that do not meet go side by side. Each gets all of its variables at once, first come, first served.
#[derive(Clone)]
pub struct Session {
    inner: Arc<Inner>,
    /// The handle that ends the runs that are asked for here.
    cancellation: Option<Cancellation>,
}

pub(crate) struct Inner {
    /// First: plans and idle arenas go before the variables.
    grants: Grants,
    devices: Devices,
    registry: Arc<Registry>,
    checkpoints: Arc<dyn Checkpoints>,
    stored: Option<Arc<dyn Stored>>,
    graph: Graph,
    /// Which of its nodes came from which call.
    calls: Arc<Calls>,
    placement: Placement,
    /// The graph with folded variables, where they are wanted and there are some.
    freeze: Option<Arc<Freeze>>,
    /// Where every run is placed by itself, the devices of nodes that keep state.
    placed_before: Option<Mutex<BTreeMap<NodeId, String>>>,
    holder: String,
    variables: Mutex<Variables>,
    /// What its plans are made to fit.
    lines: Mutex<Lines>,
    /// Called with each plan.
    observer: OnceLock<Box<PlanObserver>>,
    /// Held while a plan is loaded, so that other threads find it instead of loading another.
    loading: Mutex<()>,
    /// Held while a plan is made, so that other threads find it instead of making another.
    planning: Mutex<()>,
    /// The last to go.
    _heap: Heap,
}

/// Called with the graph and a plan of it.
pub type PlanObserver = dyn Fn(&Graph, &Plan) + Send + Sync;

/// The memory of freed tensors, graphs and plans goes back to the system when the session ends.
struct Heap;

impl Drop for Heap {
    fn drop(&mut self) {
        plimsoll_memory::trim_heap();
    }
}

/// Finds files with values of a graph's variables, if there are any.
pub type FindStored<'a> = dyn FnMut(&Graph) -> Result<Option<Arc<dyn Stored>>> + 'a;

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

/// Nodes that freezing has added are on the devices of those that they take the place of.
fn seat_added(freeze: Option<&Freeze>, placement: &mut Placement) {
    for (node, beside) in freeze.iter().flat_map(|freeze| &freeze.beside) {
        placement.devices[*node] = placement.devices[*beside];
    }
}

impl Session {
    /// A session for `graph`. Calls are inlined and every node is placed here, but with
    /// [`place_pruned_graph`](plimsoll_cards::Options::place_pruned_graph).
    ///
    /// # Errors
    /// NOT_FOUND for operations that are neither registered nor functions of the graph, fetched or not. INVALID_ARGUMENT for device
    /// strings that make no sense. The same for nodes that ask for a device that is not there where soft placement is off. With
    /// [`plimsoll_cards::Options::idle_release`], as [`Session::idle_release`].
    pub fn new(devices: &Devices, graph: &Graph, registry: Arc<Registry>) -> Result<Session> {
        Session::with_files(devices, graph.clone(), registry, Arc::new(checkpoints::None), &mut |_| Ok(None), &[])
    }

    /// As [`Session::new`], with RestoreV2 and SaveV2 going to `checkpoints`. `stored` is asked once, with calls inlined, for files
    /// with values of the graph's variables. A variable that a run reads has its value from there, unless it was given one before.
    /// `called` are tensors that signatures of the graph compute: with [`plimsoll_cards::Options::freeze`] nothing is folded through
    /// the variables that they assign. Then weights that are constants are held as kernels read them, too: in place, where nobody else
    /// has the graph.
    ///
    /// # Errors
    /// As [`Session::new`]; the error of `stored`.
    pub fn with_files(
        devices: &Devices,
        written: Graph,
        registry: Arc<Registry>,
        checkpoints: Arc<dyn Checkpoints>,
        stored: &mut FindStored<'_>,
        called: &[String],
    ) -> Result<Session> {
        require_operations(&written, &registry)?;
        let Inlined { mut graph, calls } = plimsoll_plan::inline(&written, &registry)?;
        graph.drop_unused_functions();
        let calls = Arc::new(calls);
        let stored = stored(&graph)?;
        if let Some(stored) = &stored {
            open_shapes::settle(&mut graph, &**stored)?;
        }
        let mut freeze = freeze::freeze(devices.options(), &mut graph, &registry, called)?;
        let options = devices.options();
        let log = options.log_placement;
        let options = PlaceOptions { log, calls: Arc::clone(&calls), ..PlaceOptions::new(options.soft_placement) };
        let (mut placement, placed_before) = if devices.options().place_pruned_graph {
            (Placement::unplaced(devices.specs())?, Some(Mutex::default()))
        } else {
            let mut placement = plimsoll_plan::place(&graph, &registry, devices.specs(), &options)?;
            plimsoll_plan::place_lowered((&written, &graph), &registry, devices.specs(), &options, &mut placement)?;
            (placement, None)
        };
        drop(written);
        seat_added(freeze.as_ref(), &mut placement);
        freeze::lay_out(devices, &mut graph, freeze.as_mut(), &registry, &placement)?;
        let freeze = freeze.map(Arc::new);
        Session::placed(devices, (graph, calls, freeze), (placement, placed_before), registry, checkpoints, stored)
    }

    fn placed(
        devices: &Devices,
        (graph, calls, freeze): (Graph, Arc<Calls>, Option<Arc<Freeze>>),
        (mut placement, placed_before): (Placement, Option<Mutex<BTreeMap<NodeId, String>>>),
        registry: Arc<Registry>,
        checkpoints: Arc<dyn Checkpoints>,
        stored: Option<Arc<dyn Stored>>,
    ) -> Result<Session> {
        seat_added(freeze.as_deref(), &mut placement);
        let holder = format!("session {}", devices.next_session());
        let inner = Arc::new(Inner {
            grants: Grants::new(devices, &holder),
            holder,
            devices: devices.clone(),
            registry,
            checkpoints,
            stored,
            graph,
            calls,
            placement,
            placed_before,
            variables: Mutex::new(Variables::new(freeze.as_deref())),
            freeze,
            lines: Mutex::new(Inner::limits(devices)),
            observer: OnceLock::new(),
            loading: Mutex::default(),
            planning: Mutex::default(),
            _heap: Heap,
        });
        let session = Session { inner, cancellation: None };
        if let Some(after) = devices.options().idle_release {
            session.idle_release(after)?;
        }
        Ok(session)
    }

    /// The same session, where `cancellation` ends runs: those that compute, those that wait for variables or room, planning, between
    /// two passes, and loading a plan that waits for room. Reading or writing of variables is not ended.
    #[must_use]
    pub fn until(&self, cancellation: &Cancellation) -> Session {
        Session { inner: self.inner.clone(), cancellation: Some(cancellation.clone()) }
    }

    /// From now on calls `observer` with each plan that the session makes, or takes from a file. A session has one observer: the
    /// first that it is given.
    pub fn observe_plans(&self, observer: Box<PlanObserver>) {
        // Another one is there already.
        let _ = self.inner.observer.set(observer);
    }

    /// The graph that runs.
    pub fn graph(&self) -> &Graph {
        &self.inner.graph
    }

    /// Where its nodes are; of none, where every run is placed by itself
    /// ([`place_pruned_graph`](plimsoll_cards::Options::place_pruned_graph)).
    pub fn placement(&self) -> &Placement {
        &self.inner.placement
    }

    /// Where its nodes are in such a run. Control flow's own nodes are beside the data that the run has.
    ///
    /// # Errors
    /// Where every run is placed by itself, those of [`plimsoll_plan::place_pruned`].
    pub fn placement_of(&self, feeds: &[(&str, &HostTensor)], fetches: &[&str], targets: &[&str]) -> Result<Placement> {
        self.inner.requested(&signature(feeds, fetches, targets), |request| Ok(request.placement.clone()))
    }

    /// The devices.
    pub fn devices(&self) -> &Devices {
        &self.inner.devices
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

    /// As [`Session::run`], until `cancellation` ends it: see [`Session::until`].
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
        self.until(cancellation).run(feeds, fetches, targets)
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
        self.planned_for(&signature(feeds, fetches, targets), feeds).map(|(_, plan)| Plan::clone(&plan))
    }

    /// The signature of such a run: with the elements of feeds where its plan depends on them.
    ///
    /// # Errors
    /// As [`plimsoll_plan::plan()`].
    pub fn signature(&self, feeds: &[(&str, &HostTensor)], fetches: &[&str], targets: &[&str]) -> Result<Signature> {
        self.planned_for(&signature(feeds, fetches, targets), feeds).map(|(signature, _)| signature)
    }

    /// The places of the nodes with which these runs, one after the other, fit beside the bytes that others take of each device. See
    /// [`plimsoll_plan::first_fit`]. Nothing is changed.
    ///
    /// # Errors
    /// As [`plimsoll_plan::first_fit`].
    pub fn first_fit(&self, runs: &[Signature], taken: &[Bytes]) -> Result<Fitted> {
        self.placed_by(plimsoll_plan::first_fit, runs, taken)
    }

    /// The places of the nodes with which the last of these runs ends first, or most often in a stream, and all fit beside the bytes that others take. See
    /// [`plimsoll_plan::auto`]. Nothing is changed.
    ///
    /// # Errors
    /// As [`plimsoll_plan::auto`].
    pub fn auto(&self, runs: &[Signature], taken: &[Bytes], objective: Objective) -> Result<Fitted> {
        self.placed_by(|request| plimsoll_plan::auto(request, objective), runs, taken)
    }

    fn placed_by(&self, place: impl Fn(&PlaceRequest<'_>) -> Result<Fitted>, runs: &[Signature], taken: &[Bytes]) -> Result<Fitted> {
        let (devices, options) = (&self.inner.devices, self.inner.devices.options());
        place(&PlaceRequest {
            graph: &self.inner.graph,
            registry: &self.inner.registry,
            devices: devices.specs(),
            libraries: &devices.libraries(),
            costs: devices.costs(),
            options: PlaceOptions {
                log: options.log_placement,
                calls: self.inner.calls.clone(),
                ..PlaceOptions::new(options.soft_placement)
            },
            runs,
            taken,
            graph_for: &|signature| self.inner.graph_for(signature),
            beside: self.inner.freeze.as_deref().map_or(&[], |freeze| &freeze.beside),
            complete: &|plan, placement| self.inner.completed_with(plan, placement),
            fit: options.fit,
            searches: self.inner.searches(),
        })
    }

    /// Another session for the same graph, placed like this. It shares the devices and what searches of plans have found.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for the placement of another graph or for other devices; otherwise as [`Session::new`].
    pub fn with_placement(&self, placement: Placement) -> Result<Session> {
        let is_ours = placement.devices.len() == self.inner.graph.nodes().len()
            && placement.devices.values().chain([&placement.host]).all(|device| device.index() < self.inner.devices.all().len());
        if !is_ours {
            return Err(Error::invalid_argument("the placement is of another graph, or for other devices"));
        }
        let Inner { devices, registry, checkpoints, stored, graph, calls, freeze, .. } = &*self.inner;
        let graph = (graph.clone(), calls.clone(), freeze.clone());
        // Its plans are known: runs move nothing.
        let placement = Placement { seats: false, ..placement };
        let session = Session::placed(devices, graph, (placement, None), registry.clone(), checkpoints.clone(), stored.clone())?;
        session.inner.share_searches(&self.inner);
        Ok(session)
    }

    /// The plan of a signature. Limits are not looked at. Where the elements of feeds decide sizes, and the signature does not say them,
    /// it is open from the first node that they decide.
    ///
    /// # Errors
    /// As [`plimsoll_plan::plan()`].
    pub fn plan_signature(&self, signature: &Signature) -> Result<Plan> {
        self.inner.planned_as_known(signature, self.cancellation.as_ref())
    }

    /// The text of what there is of a signature's plan after a pass of the planner; of a run in stages of the first one.
    ///
    /// # Errors
    /// As [`plimsoll_plan::plan()`].
    pub fn text_after(&self, signature: &Signature, pass: Pass) -> Result<String> {
        let text = |signature: &Signature| self.inner.requested(signature, |request| plimsoll_plan::text_after(request, pass));
        text(signature).or_else(|error| {
            match self.inner.requested_of(self.graph(), signature, |request| plimsoll_plan::late(request, &error))? {
                Some(Late::Stage(split)) => text(&split.first),
                _ => Err(error),
            }
        })
    }

    /// A signature, prepared.
    ///
    /// # Errors
    /// As [`Session::run`], but for errors of the run itself.
    pub fn callable(&self, signature: &Signature) -> Result<Callable> {
        let plan = || Ok((signature.clone(), self.inner.planned_in_stages(signature, self.cancellation.as_ref())?));
        self.prepared(&key(signature), &[signature], plan)
    }

    /// The callable of a run with such feeds.
    ///
    /// # Errors
    /// As [`Session::callable`].
    pub fn callable_for(&self, feeds: &[(&str, &HostTensor)], fetches: &[&str], targets: &[&str]) -> Result<Callable> {
        let signature = signature(feeds, fetches, targets);
        let valued = Signature { feeds: with_values(&signature, feeds), ..signature.clone() };
        self.prepared(&key(&signature), &[&signature, &valued], || self.planned_for(&signature, feeds))
    }

    fn planned_for(&self, signature: &Signature, feeds: &[(&str, &HostTensor)]) -> Result<(Signature, Arc<Plan>)> {
        self.inner.planned_for(signature, feeds, self.cancellation.as_ref())
    }

    /// The callable of the first of these signatures that is loaded. If none is, that of the signature and plan that `plan` gives.
    fn prepared(&self, key: &str, known: &[&Signature], plan: impl FnOnce() -> Result<(Signature, Arc<Plan>)>) -> Result<Callable> {
        let cancellation = self.cancellation.as_ref();
        let find = || self.inner.plans().loaded(key, known);
        let callable = |loaded| Callable::new(self.inner.clone(), loaded, self.cancellation.clone());
        if let Some(loaded) = find() {
            return Ok(callable(loaded));
        }
        let _one = cancellation::lock(&self.inner.loading, cancellation)?;
        if let Some(loaded) = find() {
            return Ok(callable(loaded));
        }
        let (signature, plan) = plan()?;
        self.inner.load(key, &signature, plan, cancellation).map(callable)
    }

    /// The plan of a signature as a file, which [`Session::open_plan`] reads.
    ///
    /// # Errors
    /// As [`plimsoll_plan::plan()`].
    pub fn plan_file(&self, signature: &Signature) -> Result<Vec<u8>> {
        let plan = self.plan_signature(signature)?;
        if plan.later.is_some() {
            return Err(Error::unimplemented("not yet: a file for the plan of a run in stages"));
        }
        let (devices, libraries) = (&self.inner.devices, self.inner.devices.libraries());
        let (graph, registry) = (self.inner.graph_for(signature), &*self.inner.registry);
        let request = OpenRequest { graph, registry, devices: devices.specs(), libraries: &libraries };
        let json = PlanFile::new(&request, signature, &plan)?.to_json()?;
        // No file is written that would be refused.
        self.check_plan(&json).map_err(|error| Error::unimplemented(format!("not yet: a file for this plan: {error}")))?;
        Ok(json)
    }

    /// Reads a plan from a file and checks it. The file is not trusted; no device is given anything here.
    ///
    /// # Errors
    /// As [`PlanFile::from_json`] and [`PlanFile::open`]; those of planning what computes folded variables.
    pub fn open_plan(&self, json: &[u8]) -> Result<CheckedPlan> {
        let checked = self.check_plan(json)?;
        self.inner.observe(&checked.plan);
        Ok(checked)
    }

    fn check_plan(&self, json: &[u8]) -> Result<CheckedPlan> {
        let devices = &self.inner.devices;
        let file = PlanFile::from_json(json)?;
        let (graph, registry) = (self.inner.graph_for(file.signature()), &*self.inner.registry);
        let open = OpenRequest { graph, registry, devices: devices.specs(), libraries: &devices.libraries() };
        let (signature, plan) = file.open(&open)?;
        // Plans that compute folded variables are not in the file: they follow from the graph.
        let _one = cancellation::lock(&self.inner.planning, self.cancellation.as_ref())?;
        let check = || self.cancellation.as_ref().and_then(Cancellation::error).map_or(Ok(()), Err);
        let plan = self.inner.completed(plan, &check)?;
        Ok(CheckedPlan { session: self.inner.clone(), signature, plan: Arc::new(plan) })
    }

    /// A plan from a file, loaded. The session keeps it: later runs of its signature take it, unless they have one already.
    ///
    /// # Errors
    /// As [`Session::callable`]; INVALID_ARGUMENT for a plan that another session has checked, and where a variable is on another device
    /// in this one.
    pub fn callable_of(&self, checked: &CheckedPlan) -> Result<Callable> {
        if !Arc::ptr_eq(&checked.session, &self.inner) {
            return Err(Error::invalid_argument("a plan that another session has checked"));
        }
        let cancellation = self.cancellation.as_ref();
        let _one = cancellation::lock(&self.inner.loading, cancellation)?;
        let loaded = self.inner.load(&key(&checked.signature), &checked.signature, checked.plan.clone(), cancellation)?;
        Ok(Callable::new(self.inner.clone(), loaded, self.cancellation.clone()))
    }

    /// Keeps memory for the runs of these callables, one run at a time: as much as the greatest of them takes of each device.
    /// Callables that run in it ([`Callable::in_lane`]) never wait for room, and take none beyond it. Lanes are how several
    /// threads share a line whose peak is known: the sum of their lanes, variables and constants.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED where a line has no room; CANCELLED after the session was closed; INVALID_ARGUMENT for a callable of
    /// another session.
    pub fn lane(&self, callables: &[&Callable]) -> Result<Lane> {
        self.inner.grants.check_open()?;
        if callables.iter().any(|callable| !std::ptr::eq(callable.session(), &*self.inner)) {
            return Err(Error::invalid_argument("a lane is for callables of its session"));
        }
        let plans: Vec<&Loaded> = callables.iter().map(|callable| callable.loaded()).collect();
        self.inner.grants.lane(&plans, &self.inner.holder, self.cancellation.as_ref())
    }

    /// Gives memory back that no run needs now: idle arenas, and the constants of plans without a callable.
    pub fn release_unused(&self) {
        self.inner.release_unused();
        plimsoll_memory::trim_heap();
    }

    /// From now on, gives back memory that is kept for the next run whenever the session has not run for so long. That is idle arenas,
    /// and memory that the devices hold beyond reservations. The next run reserves them again, and is refused where others have taken
    /// them meanwhile. Variables, constants and lanes stay. [`Duration::MAX`] is never.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED where the system has no thread to look after it; there is one for all sessions of the devices.
    pub fn idle_release(&self, after: Duration) -> Result<()> {
        self.inner.grants.kept().set_limit((after < Duration::MAX).then_some(after));
        if after < Duration::MAX { self.inner.devices.idle().watch() } else { Ok(()) }
    }

    /// Ends the session: later runs fail with CANCELLED; runs that are under way come to their end first. All its memory goes
    /// back to the devices.
    pub fn close(&self) {
        self.inner.grants.close(|| *self.inner.variables() = Variables::default());
        plimsoll_memory::trim_heap();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use plimsoll_base::DataType;
    use plimsoll_cards::Options;
    use plimsoll_graph::PartialShape;
    use plimsoll_ops::GraphBuilder;

    use super::*;

    #[test]
    fn a_signature_is_planned_once() {
        let devices = Devices::open(&Options::new()).unwrap();
        let mut b = GraphBuilder::new(Arc::new(crate::standard_registry()));
        let vector = |dim| PartialShape(Some(vec![Some(dim)]));
        let x = b.placeholder("x", DataType::Float, vector(4)).build().unwrap();
        let shape = b.placeholder("shape", DataType::Int32, vector(2)).build().unwrap();
        let square = b.mul(x, x).name("y").build().unwrap();
        b.op("Reshape").input(square).input(shape).name("z").build().unwrap();
        let registry = b.registry().clone();
        let session = Session::new(&devices, &b.finish(), registry).unwrap();
        let x = HostTensor::from_slice([4], &[1f32, 2.0, 3.0, 4.0]).unwrap();
        let shapes = [[2i32, 2], [1, 4]].map(|shape| HostTensor::from_slice([2], &shape).unwrap());
        let mut plans = Vec::new();
        for (feeds, fetch) in
            [(vec![("x", &x)], "y"), (vec![("x", &x), ("shape", &shapes[0])], "z"), (vec![("x", &x), ("shape", &shapes[1])], "z")]
        {
            let planned = || session.planned_for(&signature(&feeds, &[fetch], &[]), &feeds).unwrap();
            let (_, first) = planned();
            let callable = session.callable_for(&feeds, &[fetch], &[]).unwrap();
            assert!(Arc::ptr_eq(&first, &callable.loaded().plan), "{fetch}");
            drop(callable);
            session.release_unused();
            let (asked, again) = planned();
            assert!(Arc::ptr_eq(&first, &again), "{fetch}: what it has of devices goes, the plan stays");
            assert!(Arc::ptr_eq(&first, &session.callable(&asked).unwrap().loaded().plan), "{fetch}");
            plans.push(first);
        }
        assert!(session.inner.plans().needs_values(&key(&signature(&[("x", &x), ("shape", &shapes[0])], &["z"], &[]))).is_some());
        let start = Barrier::new(4);
        let same = std::thread::scope(|scope| {
            let plan = || {
                start.wait();
                session.inner.planned(&signature(&[("x", &x)], &["y"], &["y"]), None).unwrap()
            };
            let threads = [0; 4].map(|_| scope.spawn(plan));
            threads.map(|thread| thread.join().unwrap())
        });
        assert!(same.iter().all(|plan| Arc::ptr_eq(plan, &same[0])), "threads find the plan of the first");
        assert!(!Arc::ptr_eq(&plans[1], &plans[2]), "other elements of feeds, another plan");
    }
}
