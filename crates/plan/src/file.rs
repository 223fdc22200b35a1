//! Plans as files: JSON that names the request that the plan was made for, so that it is refused elsewhere.

use std::collections::BTreeMap;

use plimsoll_base::{Error, Result};
use plimsoll_device::{Costs, DeviceSpec, Library};
use plimsoll_graph::{Fingerprint, Graph, HostTensor};
use plimsoll_ops::Registry;
use serde::{Deserialize, Serialize};

use crate::fit::Lines;
use crate::infer::{Pruned, prune_and_infer};
use crate::place::Placement;
use crate::plan::{Plan, PlanConstant};
use crate::request::{Request, Signature};
use crate::verify::verify;

/// The first bytes of files of plans.
const FORMAT: &str = "plimsoll plan";
/// The form of the rest. Plans of another form are refused.
const VERSION: u32 = 6;

/// A plan with the request that it was made for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PlanFile {
    format: String,
    version: u32,
    /// The version of this project that made it.
    made_by: String,
    graph: Fingerprint,
    devices: Vec<DeviceSpec>,
    signature: Signature,
    plan: Plan,
    /// By number: the elements of constants of which neither the graph nor the signature says them. Planning makes such for lists: zeros
    /// that were never set, lengths, and what a loop finds in them.
    made: BTreeMap<usize, HostTensor>,
}

/// The header that tells whether a file is to be read on.
#[derive(Deserialize)]
struct Header {
    format: String,
    version: u32,
    made_by: String,
}

/// The request for which a plan from a file is opened.
#[derive(Clone, Copy)]
pub struct OpenRequest<'a> {
    /// The graph, calls inlined.
    pub graph: &'a Graph,
    /// The operations' rules.
    pub registry: &'a Registry,
    /// The devices.
    pub devices: &'a [DeviceSpec],
    /// For each device, the kernels that it has.
    pub libraries: &'a [&'a dyn Library],
}

impl PlanFile {
    /// A plan that was made for these.
    ///
    /// # Errors
    /// Those of finding what is known of the signature's tensors. A plan that was made for these has none.
    pub fn new(request: &OpenRequest<'_>, signature: &Signature, plan: &Plan) -> Result<PlanFile> {
        let OpenRequest { graph, registry, devices, libraries } = *request;
        let (placement, costs) = (&Placement::unplaced(devices)?, &Costs::committed());
        let pruned = prune_and_infer(&Request { graph, registry, devices, libraries, costs, placement, signature, lines: &Lines::NONE })?;
        let is_made = |(constant, value): (&PlanConstant, &HostTensor)| said(graph, &pruned, constant) != Some(value);
        let made = plan.constant_values().enumerate().filter(|(_, constant)| is_made(*constant));
        Ok(PlanFile {
            format: FORMAT.to_string(),
            version: VERSION,
            made_by: env!("CARGO_PKG_VERSION").to_string(),
            graph: graph.fingerprint(),
            devices: devices.iter().map(DeviceSpec::without_limits).collect(),
            signature: signature.clone(),
            plan: plan.clone(),
            made: made.map(|(number, (_, value))| (number, value.clone())).collect(),
        })
    }

    /// The file.
    ///
    /// # Errors
    /// INTERNAL where the plan has a number that JSON has not.
    pub fn to_json(&self) -> Result<Vec<u8>> {
        let mut json = serde_json::to_vec(self).map_err(|error| Error::internal(format!("a plan cannot be written: {error}")))?;
        json.push(b'\n');
        Ok(json)
    }

    /// The plan of a file. It has not been checked: see [`PlanFile::open`].
    ///
    /// # Errors
    /// DATA_LOSS where it is no such file, or damaged; FAILED_PRECONDITION for the plan of another version.
    pub fn from_json(json: &[u8]) -> Result<PlanFile> {
        let damaged = |error: serde_json::Error| Error::data_loss(format!("not a plan: {error}"));
        let header: Header = serde_json::from_slice(json).map_err(damaged)?;
        if header.format != FORMAT {
            return Err(Error::data_loss("not a plan"));
        }
        let here = env!("CARGO_PKG_VERSION");
        if header.version != VERSION || header.made_by != here {
            let message =
                format!("the plan was made by version {} (form {}), this is {here} (form {VERSION})", header.made_by, header.version);
            return Err(Error::failed_precondition(message).with_remedy("make it again"));
        }
        serde_json::from_slice(json).map_err(damaged)
    }

    /// Its feeds, fetches and targets.
    pub fn signature(&self) -> &Signature {
        &self.signature
    }

    /// The plan, checked, with the elements of its constants: devices may be given it.
    ///
    /// # Errors
    /// FAILED_PRECONDITION where it was made for another graph or other devices. INVALID_ARGUMENT where it is not one that could
    /// have been made for these: see [`crate::verify`].
    pub fn open(self, request: &OpenRequest<'_>) -> Result<(Signature, Plan)> {
        let OpenRequest { graph, registry, devices, libraries } = *request;
        if libraries.len() != devices.len() {
            return Err(Error::invalid_argument(format!("{} libraries for {} devices", libraries.len(), devices.len())));
        }
        if graph.fingerprint() != self.graph {
            return Err(Error::failed_precondition("the plan was made for another graph").with_remedy("make it again"));
        }
        self.require_devices(devices)?;
        let placement = Placement::unplaced(devices)?;
        // A plan that is made depends on costs; one that is checked does not.
        let (signature, costs) = (self.signature, &Costs::committed());
        let request =
            Request { graph, registry, devices, libraries, costs, placement: &placement, signature: &signature, lines: &Lines::NONE };
        let pruned = prune_and_infer(&request)?;
        let (mut plan, mut made) = (self.plan, self.made);
        let unknown = |constant: &PlanConstant| Error::invalid_argument(format!("the graph does not say what {} is", constant.name));
        let value_of = |(number, constant): (usize, &PlanConstant)| {
            let value = made.remove(&number).or_else(|| said(graph, &pruned, constant).cloned());
            value.ok_or_else(|| unknown(constant))
        };
        plan.values = plan.constants.iter().enumerate().map(value_of).collect::<Result<_>>()?;
        if let Some((number, _)) = made.pop_first() {
            return Err(Error::invalid_argument(format!("there is no constant {number}")));
        }
        for (device, spec) in plan.devices.iter_mut().zip(devices) {
            (device.kind, device.limit, device.machine) = (spec.kind, spec.memory_limit, spec.machine);
        }
        // Where values are in files, the session says.
        plan.variables.iter_mut().for_each(|variable| variable.stored = None);
        if plan.host != placement.host {
            return Err(Error::invalid_argument("it feeds and fetches on another device than the host"));
        }
        verify(&request, &pruned, &plan).map_err(|error| error.context("the plan does not hold"))?;
        Ok((signature, plan))
    }

    fn require_devices(&self, devices: &[DeviceSpec]) -> Result<()> {
        let refused = |what: String| {
            Err(Error::failed_precondition(format!("the plan was made for other devices: {what}")).with_remedy("make it again"))
        };
        if self.devices.len() != devices.len() {
            return refused(format!("for {}, and here are {}", self.devices.len(), devices.len()));
        }
        for (said, here) in self.devices.iter().zip(devices) {
            if *said == here.without_limits() {
                continue;
            }
            let differs = said.difference(here).unwrap_or_else(|| "otherwise".to_string());
            return refused(format!("{} is {differs}", here.name));
        }
        Ok(())
    }
}

/// The elements that a feed or the graph has for a constant, or that follow from these; none where nothing says them.
fn said<'a>(graph: &Graph, pruned: &'a Pruned, constant: &PlanConstant) -> Option<&'a HostTensor> {
    let id = constant.tensor.node;
    graph.nodes().get(id).filter(|node| node.name == constant.name)?;
    pruned.facts[id].get(constant.tensor.index as usize)?.value.as_ref()
}
