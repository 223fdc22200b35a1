//! A graph on devices, with its variables.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use plimsoll_base::Result;
use plimsoll_formats::SignatureDef;
use plimsoll_graph::id::Id;
use plimsoll_graph::{HostTensor, Node};

use crate::checkpoint::{self, Restored};
use crate::model::{find_signature, tensor_of};
use crate::{Plan, RunMetadata, Signature};

/// A feed of a run: the name of a tensor, `x` or `x:0`, and its value.
pub type Fed<'a> = (&'a str, HostTensor);

/// A graph on devices, with its variables and plans. Cloning shares it; any number of threads may use it. When the last clone
/// is dropped, every byte goes back to the devices.
///
/// Everything of [`plimsoll_runtime::Session`] is here too: callables, variables, [`close`](plimsoll_runtime::Session::close).
#[derive(Clone)]
pub struct Session {
    inner: plimsoll_runtime::Session,
    signatures: Arc<BTreeMap<String, SignatureDef>>,
    preparation: Arc<Vec<String>>,
}

impl Session {
    /// Runs the graph once: fetches are tensor names, targets node names. Values of fetches come in the order asked for.
    ///
    /// # Errors
    /// TensorFlow's, with its status codes; RESOURCE_EXHAUSTED, before anything runs, where the plan's peak is over a line.
    pub fn run(&self, feeds: &[Fed<'_>], fetches: &[&str], targets: &[&str]) -> Result<Vec<HostTensor>> {
        self.inner.run(&by_reference(feeds), fetches, targets)
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
        let plan = self.inner.plan(&by_reference(feeds), fetches, targets)?;
        Ok(Plan::new(&self.inner, plan))
    }

    /// The signature of such a run, for [`crate::Several`] and [`crate::Devices::place`]: with the elements of feeds where its plan
    /// depends on them.
    ///
    /// # Errors
    /// As [`Session::plan`].
    pub fn signature(&self, feeds: &[Fed<'_>], fetches: &[&str], targets: &[&str]) -> Result<Signature> {
        self.inner.signature(&by_reference(feeds), fetches, targets)
    }

    /// The plan of a signature, without values to feed.
    ///
    /// # Errors
    /// As [`Session::plan`]; UNIMPLEMENTED where shapes depend on elements of a feed that the signature does not hold.
    pub fn plan_signature(&self, signature: &Signature) -> Result<Plan> {
        Ok(Plan::new(&self.inner, self.inner.plan_signature(signature)?))
    }

    /// The callable of a run with such feeds, for loops where every microsecond counts.
    ///
    /// # Errors
    /// As [`Session::run`], but for errors of the run itself.
    pub fn callable_for(&self, feeds: &[Fed<'_>], fetches: &[&str], targets: &[&str]) -> Result<crate::Callable> {
        self.inner.callable_for(&by_reference(feeds), fetches, targets)
    }

    /// Writes a checkpoint that TensorFlow reads: see [`checkpoint::save`].
    ///
    /// # Errors
    /// FAILED_PRECONDITION where no variable has a value; the file system's error.
    pub fn save(&self, prefix: impl AsRef<Path>) -> Result<()> {
        checkpoint::save(&self.inner, prefix.as_ref())
    }

    /// Gives variables the values of a checkpoint: see [`checkpoint::restore`].
    ///
    /// # Errors
    /// As [`checkpoint::restore`].
    pub fn restore(&self, checkpoint: impl AsRef<Path>) -> Result<Restored> {
        checkpoint::restore(&self.inner, checkpoint.as_ref())
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
        self.inner.graph().nodes().iter().filter_map(move |(id, node)| Some((node, device(id)?)))
    }

    /// The text of TensorFlow's `log_device_placement`: `name: (operation): device` for every node, in the order in which they were
    /// placed. Nodes of control flow move afterwards: [`Session::placements`] says where they run.
    pub fn placement_log(&self) -> impl Iterator<Item = String> {
        let (graph, specs, placement) = (self.inner.graph(), self.inner.devices().specs(), self.inner.placement());
        placement.order.iter().map(move |id| {
            let (node, device) = (graph.node(*id), placement.moved.get(id).unwrap_or(&placement.devices[*id]));
            format!("{}: ({}): {}", node.name, node.op, specs[device.index()].name)
        })
    }

    /// Why every node is where it is, in words, in the order of the graph.
    pub fn reasons(&self) -> impl Iterator<Item = String> {
        let graph = self.inner.graph();
        self.inner.placement().why.values().map(|why| why.describe(graph))
    }
}

fn by_reference<'a>(feeds: &'a [Fed<'a>]) -> Vec<(&'a str, &'a HostTensor)> {
    feeds.iter().map(|(name, tensor)| (*name, tensor)).collect()
}

impl From<plimsoll_runtime::Session> for Session {
    fn from(inner: plimsoll_runtime::Session) -> Session {
        Session { inner, signatures: Arc::default(), preparation: Arc::default() }
    }
}

impl Deref for Session {
    type Target = plimsoll_runtime::Session;

    fn deref(&self) -> &plimsoll_runtime::Session {
        &self.inner
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session of {} nodes", self.inner.graph().nodes().len())
    }
}
