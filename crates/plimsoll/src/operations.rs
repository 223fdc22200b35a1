//! The operations that can be run, and those of a model that cannot.

use std::collections::BTreeMap;
use std::path::Path;

use plimsoll_base::{DataType, Result};
use plimsoll_device::DeviceKind;
use plimsoll_device_cuda::{CudaLibrary, any_card};
use plimsoll_formats::{INIT_OP, SignatureDef, TensorInfo};
use plimsoll_graph::GraphDef;
use plimsoll_ops::control::symbolic::SYMBOLIC_GRADIENT;
use plimsoll_ops::{DEFAULT_DEVICE, Gradient, Registry};
use plimsoll_plan::{Reach, missing};

use crate::model::{self, Model, SavedGraph, Tags};

pub use plimsoll_plan::Missing;

/// An operation that has rules.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// Its name.
    pub name: &'static str,
    /// The types that it computes, as the processor's library answers the requests that it becomes. None where no inputs are known
    /// that its rules accept.
    pub types: Option<Vec<DataType>>,
    /// How gradients go through it.
    pub gradient: Differentiable,
    /// The kinds of device where placement puts nodes of it: those for which TensorFlow has a kernel.
    pub devices: Vec<DeviceKind>,
    /// The types of which a real NVIDIA card has kernels: nodes of others compute on the host, by soft placement.
    pub nvidia: Vec<DataType>,
}

/// How gradients go through an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Differentiable {
    /// It has a gradient.
    Yes,
    /// None goes through: it is constant, or gives integers.
    Stops,
    /// Asking for a gradient through it is an error.
    No,
}

impl Differentiable {
    /// One word.
    pub fn name(self) -> &'static str {
        match self {
            Differentiable::Yes => "yes",
            Differentiable::Stops => "stops",
            Differentiable::No => "no",
        }
    }
}

/// All operations that have rules, by name.
pub fn operations() -> Vec<Operation> {
    let registry = plimsoll_runtime::standard_registry();
    // It becomes a call, as others of functions.
    let names = registry.names().into_iter().filter(|name| *name != SYMBOLIC_GRADIENT);
    names.map(|name| operation(&registry, name)).collect()
}

fn operation(registry: &Registry, name: &'static str) -> Operation {
    let kernels = registry.kernels().of(name);
    let has = |kind: &DeviceKind| kernels.iter().any(|kernel| kernel.device == kind.name() || kernel.device == DEFAULT_DEVICE);
    let gradient = match registry.get(name).map(|rules| rules.gradient) {
        Some(Gradient::Rule(_)) => Differentiable::Yes,
        Some(Gradient::Stops) => Differentiable::Stops,
        Some(Gradient::Unknown) | None => Differentiable::No,
    };
    let devices: Vec<DeviceKind> = [DeviceKind::Cpu, DeviceKind::Gpu].into_iter().filter(has).collect();
    let found = plimsoll_runtime::computed_types(registry, (&CudaLibrary, &any_card()), name);
    let (types, mut nvidia) = found.map_or((None, Vec::new()), |(types, nvidia)| (Some(types), nvidia));
    if !devices.contains(&DeviceKind::Gpu) {
        nvidia.clear();
    }
    Operation { name, types, gradient, devices, nvidia }
}

/// The operations without rules that a run of a model needs.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelMissing {
    /// The signature that is called; none for a graph, all of whose nodes count.
    pub signature: Option<String>,
    /// Those with the most nodes first.
    pub operations: Vec<Missing>,
}

/// The operations without rules of a model, for each signature that can be called and for its initializer. Nothing is planned.
///
/// # Errors
/// As [`model::read`], and for a SavedModel that makes no sense.
pub fn missing_of(path: &Path) -> Result<Vec<ModelMissing>> {
    missing_of_tagged(path, &Tags::default())
}

/// As [`missing_of`], of the graphs of a SavedModel the one with these tags.
///
/// # Errors
/// As [`missing_of`] and [`model::Model::with_tags`].
pub fn missing_of_tagged(path: &Path, tags: &Tags) -> Result<Vec<ModelMissing>> {
    missing_of_model(model::read(path)?.with_tags(tags).map_err(|error| error.context(path.display()))?, path)
}

/// As [`missing_of`], of what was read from this path.
///
/// # Errors
/// INVALID_ARGUMENT and others for a SavedModel that makes no sense.
pub fn missing_of_model(model: Model, path: &Path) -> Result<Vec<ModelMissing>> {
    let registry = plimsoll_runtime::standard_registry();
    let saved = SavedGraph::of(model, path).map_err(|error| error.context(path.display()))?;
    let SavedGraph { graph, signatures, init, .. } = saved;
    let mut found: Vec<ModelMissing> = Vec::new();
    if !init.is_empty() {
        let operations = missing_with(&graph, &registry, &Run { wanted: &init, fed: &[] });
        found.push(ModelMissing { signature: Some(INIT_OP.to_string()), operations });
    }
    let callable = signatures.iter().filter(|(name, _)| *name != INIT_OP);
    found.extend(callable.map(|(name, signature)| of_signature(&graph, &registry, name, signature)));
    if signatures.is_empty() {
        found.push(ModelMissing { signature: None, operations: missing(&graph, &registry, &Reach::default()) });
    }
    Ok(found)
}

fn of_signature(graph: &GraphDef, registry: &Registry, name: &str, signature: &SignatureDef) -> ModelMissing {
    let tensors = |infos: &BTreeMap<String, TensorInfo>| infos.values().map(|info| info.name.clone()).collect::<Vec<_>>();
    let (wanted, fed) = (tensors(&signature.outputs), tensors(&signature.inputs));
    ModelMissing { signature: Some(name.to_string()), operations: missing_with(graph, registry, &Run { wanted: &wanted, fed: &fed }) }
}

/// A run of a graph, by nodes or tensors.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// What is fetched or run.
    pub wanted: &'a [String],
    /// What is fed.
    pub fed: &'a [String],
}

/// The operations without rules that a run of a graph needs, those with the most nodes first.
pub fn missing_in(graph: &GraphDef, run: &Run<'_>) -> Vec<Missing> {
    missing_with(graph, &plimsoll_runtime::standard_registry(), run)
}

fn missing_with(graph: &GraphDef, registry: &Registry, run: &Run<'_>) -> Vec<Missing> {
    let wanted: Vec<&str> = run.wanted.iter().map(String::as_str).collect();
    let fed: Vec<&str> = run.fed.iter().map(String::as_str).collect();
    missing(graph, registry, &Reach { wanted: Some(&wanted), fed: &fed })
}
