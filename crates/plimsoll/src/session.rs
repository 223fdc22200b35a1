//! A graph on devices, with its variables.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_base::Result;
use plimsoll_formats::SignatureDef;
use plimsoll_graph::id::Id;
use plimsoll_graph::{Graph, HostTensor, Node};
use plimsoll_plan::DeviceId;

use crate::checkpoint::{self, Restored};
use crate::model::{find_signature, tensor_of};
use crate::values::Objects;
use crate::{Callable, Cancellation, Lane, OpenedPlan, Plan, Registry, RunMetadata, Signature, VariableInfo, Why, preparation};

/// A feed of a run: the name of a tensor, `x` or `x:0`, and its value.
pub type Fed<'a> = (&'a str, HostTensor);

/// A graph on devices, with its variables and plans. Cloning shares it; any number of threads may use it. When the last clone
/// is dropped, every byte goes back to the devices.
#[derive(Clone)]
pub struct Session {
    inner: plimsoll_runtime::Session,
    signatures: Arc<BTreeMap<String, SignatureDef>>,
    preparation: Arc<Vec<String>>,
    objects: Arc<Objects>,
}

impl Session {
    /// Runs the graph once: fetches are tensor names, targets node names. Values of fetches come in the order asked for.
    ///
    /// # Errors
    /// TensorFlow's, with its status codes; RESOURCE_EXHAUSTED, before anything runs, where the plan's peak is over a line.
    pub fn run(&self, feeds: &[Fed<'_>], fetches: &[&str], targets: &[&str]) -> Result<Vec<HostTensor>> {
        self.inner.run(&by_reference(feeds), fetches, targets)
    }

    /// As [`Session::run`], until `cancellation` ends it: see [`Session::until`].
    ///
    /// # Errors
    /// As [`Session::run`]; CANCELLED or DEADLINE_EXCEEDED where it was ended.
    pub fn run_until(&self, feeds: &[Fed<'_>], fetches: &[&str], targets: &[&str], cancellation: &Cancellation) -> Result<Vec<HostTensor>> {
        self.inner.run_until(&by_reference(feeds), fetches, targets, cancellation)
    }

    /// As [`Session::run`], and says what ran when on which device: TensorFlow's RunMetadata.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn run_with_stats(&self, feeds: &[Fed<'_>], fetches: &[&str], targets: &[&str]) -> Result<(Vec<HostTensor>, RunMetadata)> {
        self.inner.run_with_stats(&by_reference(feeds), fetches, targets)
    }

    /// Calls a signature of a SavedModel (see [`crate::Devices::load`]): arguments and results by the signature's names, results in
    /// the order of these.
    ///
    /// # Errors
    /// NOT_FOUND where the model has no such signature; INVALID_ARGUMENT for an argument that it does not take, naming those that
    /// it takes; otherwise as [`Session::run`].
    pub fn call(&self, signature: &str, arguments: &[Fed<'_>]) -> Result<Vec<(String, HostTensor)>> {
        let found = find_signature(&self.signatures, signature)?;
        let feeds = arguments.iter().map(|(name, tensor)| Ok((tensor_of(&found.inputs, name, signature, "argument")?, tensor)));
        let feeds = feeds.collect::<Result<Vec<_>>>()?;
        let fetches: Vec<&str> = found.outputs.values().map(|info| info.name.as_str()).collect();
        let values = self.inner.run(&feeds, &fetches, &[])?;
        Ok(found.outputs.keys().cloned().zip(values).collect())
    }

    /// The signatures that can be called: those of a SavedModel, none for a graph.
    pub fn signatures(&self) -> &BTreeMap<String, SignatureDef> {
        &self.signatures
    }

    /// Operations to run before the first call, of a SavedModel; mostly none: values of variables are read where runs need them.
    pub fn preparation(&self) -> &[String] {
        &self.preparation
    }

    /// The part of the [preparation](Session::preparation) that a run of these tensors and operations needs: what gives values to
    /// tables and variables that it does not use is left out.
    pub fn preparation_for(&self, names: &[&str]) -> Vec<String> {
        preparation::needed(self.graph(), &self.preparation, names, None)
    }

    /// Leaves out the preparation that no signature needs, and that no rule is known for: a call that needs it fails by itself.
    pub(crate) fn prepared_for_signatures(self, registry: &Registry) -> Session {
        if self.signatures.is_empty() || self.preparation.is_empty() {
            return self;
        }
        let outputs = self.signatures.values().flat_map(|signature| signature.outputs.values());
        let names: Vec<&str> = outputs.map(|info| info.name.as_str()).collect();
        let needed = preparation::needed(self.graph(), &self.preparation, &names, Some(registry));
        self.with_preparation(needed)
    }

    /// Runs the [preparation](Session::preparation), and gives back memory that only that needed.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn prepare(&self) -> Result<()> {
        if !self.preparation.is_empty() {
            self.run(&[], &[], &self.preparation.iter().map(String::as_str).collect::<Vec<_>>())?;
            self.release_unused();
        }
        Ok(())
    }

    /// The same session, where `cancellation` ends runs: those that compute, those that wait for variables or room, planning, between
    /// two passes, and loading a plan that waits for room. Reading or writing of variables is not ended.
    #[must_use]
    pub fn until(&self, cancellation: &Cancellation) -> Session {
        Session { inner: self.inner.until(cancellation), ..self.clone() }
    }

    pub(crate) fn with_preparation(self, preparation: Vec<String>) -> Session {
        Session { preparation: Arc::new(preparation), ..self }
    }

    pub(crate) fn with_signatures(self, signatures: BTreeMap<String, SignatureDef>) -> Session {
        Session { signatures: Arc::new(signatures), ..self }
    }

    /// The plan of such a run, with its peak on every device. Limits are not held against it here: see [`Plan::fits`].
    ///
    /// # Errors
    /// TensorFlow's for names and types that make no sense; UNIMPLEMENTED for operations that are not built yet.
    pub fn plan(&self, feeds: &[Fed<'_>], fetches: &[&str], targets: &[&str]) -> Result<Plan> {
        self.expect_minimum();
        let plan = Plan::new(&self.inner, self.inner.plan(&by_reference(feeds), fetches, targets)?);
        let signature = self.inner.signature(&by_reference(feeds), fetches, targets)?;
        let minimum = self.minimum_limit(&[signature], plan.footprint())?;
        Ok(plan.with_minimum(minimum))
    }

    /// The signature of such a run, for [`crate::Several`] and [`crate::Devices::place`]: with the elements of feeds where its plan
    /// depends on them.
    ///
    /// # Errors
    /// As [`Session::plan`].
    pub fn signature(&self, feeds: &[Fed<'_>], fetches: &[&str], targets: &[&str]) -> Result<Signature> {
        self.inner.signature(&by_reference(feeds), fetches, targets)
    }

    /// The plan of a signature, without values to feed. Where shapes depend on elements of a feed that the signature does not hold, its peak
    /// is open from the first node that they decide.
    ///
    /// # Errors
    /// As [`Session::plan`].
    pub fn plan_signature(&self, signature: &Signature) -> Result<Plan> {
        Ok(Plan::new(&self.inner, self.inner.plan_signature(signature)?))
    }

    /// The text of what there is of a signature's plan after a pass of the planner: for people who look into it.
    ///
    /// # Errors
    /// As [`Session::plan_signature`].
    pub fn text_after(&self, signature: &Signature, pass: crate::Pass) -> Result<String> {
        self.inner.text_after(signature, pass)
    }

    /// The plan of a signature as a file: [`Session::open_plan`] reads it, also in another program and on another machine, where
    /// graph and devices are the same.
    ///
    /// # Errors
    /// As [`Session::plan_signature`].
    pub fn plan_file(&self, signature: &Signature) -> Result<Vec<u8>> {
        self.inner.plan_file(signature)
    }

    /// Reads a plan from a file, and checks it: the file is not trusted.
    ///
    /// # Errors
    /// DATA_LOSS where it is no such file, or damaged; FAILED_PRECONDITION where it was made by another version, for another graph or
    /// for other devices; INVALID_ARGUMENT where no plan for these is like that.
    pub fn open_plan(&self, json: &[u8]) -> Result<OpenedPlan> {
        self.inner.open_plan(json).map(|checked| OpenedPlan::new(&self.inner, checked))
    }

    /// The callable of a run with such feeds, for loops where every microsecond counts.
    ///
    /// # Errors
    /// As [`Session::run`], but for errors of the run itself.
    pub fn callable_for(&self, feeds: &[Fed<'_>], fetches: &[&str], targets: &[&str]) -> Result<Callable> {
        self.inner.callable_for(&by_reference(feeds), fetches, targets).map(Callable::of)
    }

    /// A plan from a file, ready to run. The session keeps it.
    ///
    /// # Errors
    /// As [`Session::callable`]; INVALID_ARGUMENT for a plan that another session has opened, and where a variable is on another device
    /// in this one.
    pub fn callable_of(&self, plan: &OpenedPlan) -> Result<Callable> {
        self.inner.callable_of(plan.checked()).map(Callable::of)
    }

    /// A signature, prepared.
    ///
    /// # Errors
    /// As [`Session::callable_for`].
    pub fn callable(&self, signature: &Signature) -> Result<Callable> {
        self.inner.callable(signature).map(Callable::of)
    }

    /// Keeps memory for the runs of these callables, one run at a time: as much as the greatest of them takes of each device.
    /// Callables that run in it ([`Callable::in_lane`]) never wait for room, and take none beyond it.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED where a line has no room; CANCELLED after the session was closed; INVALID_ARGUMENT for a callable of
    /// another session.
    pub fn lane(&self, callables: &[&Callable]) -> Result<Lane> {
        self.inner.lane(&callables.iter().map(|callable| callable.inner()).collect::<Vec<_>>())
    }

    /// Gives memory back that no run needs now: idle arenas, and the device memory of plans without a callable.
    pub fn release_unused(&self) {
        self.inner.release_unused();
    }

    /// From now on, gives back memory that is kept for the next run whenever the session has not run for so long. Variables, constants
    /// and lanes stay. [`Duration::MAX`] is never.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED where the system has no thread to look after it.
    pub fn idle_release(&self, after: Duration) -> Result<()> {
        self.inner.idle_release(after)
    }

    /// Ends the session: later runs fail with CANCELLED; runs that are under way come to their end first. All its memory goes
    /// back to the devices.
    pub fn close(&self) {
        self.inner.close();
    }

    /// The variables that have storage, by name.
    pub fn variables(&self) -> Vec<VariableInfo> {
        self.inner.variables()
    }

    /// The value of the variable (or the operation's state) of that name.
    ///
    /// # Errors
    /// NOT_FOUND where none of that name has storage or a value in files; FAILED_PRECONDITION where nothing was assigned to it;
    /// RESOURCE_EXHAUSTED where the line has no room for one in files.
    pub fn read_variable(&self, name: &str) -> Result<HostTensor> {
        self.inner.read_variable(name)
    }

    /// Gives a variable a value; it gets storage if it has none.
    ///
    /// # Errors
    /// NOT_FOUND where the graph has no such variable; INVALID_ARGUMENT for another type or shape; RESOURCE_EXHAUSTED where
    /// the line has no room.
    pub fn write_variable(&self, name: &str, value: &HostTensor) -> Result<()> {
        self.inner.write_variable(name, value)
    }

    /// The graph that runs, its calls inlined.
    pub fn graph(&self) -> &Graph {
        self.inner.graph()
    }

    pub(crate) fn with_objects(self, objects: Objects) -> Session {
        Session { objects: Arc::new(objects), ..self }
    }

    pub(crate) fn of(inner: plimsoll_runtime::Session) -> Session {
        Session { inner, signatures: Arc::default(), preparation: Arc::default(), objects: Arc::default() }
    }

    /// The keys of its variables in checkpoints.
    pub(crate) fn objects(&self) -> &Objects {
        &self.objects
    }

    /// The same model, placed elsewhere.
    pub(crate) fn placed(&self, inner: plimsoll_runtime::Session) -> Session {
        Session { inner, ..self.clone() }
    }

    pub(crate) fn inner(&self) -> &plimsoll_runtime::Session {
        &self.inner
    }

    /// The remarks of the placer.
    pub(crate) fn placement_notes(&self) -> &[String] {
        &self.inner.placement().notes
    }

    /// Writes a checkpoint that TensorFlow reads: see [`checkpoint::save`].
    ///
    /// # Errors
    /// FAILED_PRECONDITION where no variable has a value; the file system's error.
    pub fn save(&self, prefix: impl AsRef<Path>) -> Result<()> {
        checkpoint::save(self, prefix.as_ref())
    }

    /// Gives variables the values of a checkpoint: see [`checkpoint::restore`].
    ///
    /// # Errors
    /// As [`checkpoint::restore`].
    pub fn restore(&self, checkpoint: impl AsRef<Path>) -> Result<Restored> {
        checkpoint::restore(self, checkpoint.as_ref())
    }

    /// The index, among the devices, of the one that a node is placed on.
    pub fn device_of(&self, node: plimsoll_graph::NodeId) -> Option<usize> {
        self.inner.placement().devices.get(node).map(|device| device.index())
    }

    /// Every node that is placed, with the full name of its device. None, where every run is placed by itself
    /// ([`place_pruned_graph`](crate::Options::place_pruned_graph)): see [`Plan::node_places`] then.
    pub fn placements(&self) -> impl Iterator<Item = (&Node, String)> {
        let placement = self.inner.placement();
        let specs = self.inner.devices().specs();
        let device = move |id| Some(specs.get(placement.devices.get(id)?.index())?.name.to_string());
        self.inner.graph().nodes().iter().filter_map(move |(id, node)| Some((&**node, device(id)?)))
    }

    /// As [`Session::placements`], for such a run: control flow's own nodes are beside the data that the run has.
    ///
    /// # Errors
    /// Where every run is placed by itself, why its nodes cannot be placed.
    pub fn placements_of(&self, feeds: &[Fed<'_>], fetches: &[&str], targets: &[&str]) -> Result<BTreeMap<String, String>> {
        let placement = self.inner.placement_of(&by_reference(feeds), fetches, targets)?;
        let (nodes, specs) = (self.inner.graph().nodes().iter(), self.inner.devices().specs());
        let placed =
            nodes.filter_map(|(id, node)| Some((node.name.clone(), specs.get(placement.devices.get(id)?.index())?.name.to_string())));
        Ok(placed.collect())
    }

    /// The text of TensorFlow's `log_device_placement`: `name: (operation): device` for every node, in the order in which they were
    /// placed. Nodes of control flow move afterwards: [`Session::placements`] says where they run.
    pub fn placement_log(&self) -> impl Iterator<Item = String> {
        let (graph, specs, placement) = (self.inner.graph(), self.inner.devices().specs(), self.inner.placement());
        let line = |name: &str, op: &str, device: &DeviceId| format!("{name}: ({op}): {}", specs[device.index()].name);
        let own = placement.order.iter().map(move |id| {
            let (node, device) = (graph.node(*id), placement.moved.get(id).unwrap_or(&placement.devices[*id]));
            line(&node.name, &node.op, device)
        });
        let lowered = placement.lowered.iter().flatten().map(move |logged| line(&logged.name, &logged.op, &logged.device));
        lowered.chain(own.take(if placement.lowered.is_some() { 0 } else { usize::MAX }))
    }

    /// Why every node is where it is, in the order of the graph.
    pub fn why(&self) -> impl Iterator<Item = &Why> {
        self.inner.placement().why.values()
    }

    /// Why every node is where it is, in words, in the order of the graph.
    pub fn reasons(&self) -> impl Iterator<Item = String> {
        self.why().map(|why| why.describe(self.graph()))
    }
}

fn by_reference<'a>(feeds: &'a [Fed<'a>]) -> Vec<(&'a str, &'a HostTensor)> {
    feeds.iter().map(|(name, tensor)| (*name, tensor)).collect()
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session of {} nodes", self.inner.graph().nodes().len())
    }
}
