//! What `plan --json` prints.

use std::fmt;

use plimsoll::{Bytes, Certainty, DevicePlan, Joint, Need, Needs, Plan, Together};
use serde::Serialize;

use super::Fitted;

#[derive(Serialize)]
pub(super) struct Document {
    /// Of several models: in turn, and with `--together` side by side. So are the two below.
    #[serde(flatten)]
    pub answer: Answer,
    pub devices: Vec<DeviceEntry>,
    /// Of all models, one after the other; null where a device has neither a table of costs nor a virtual clock.
    pub predicted_step_seconds: Option<f64>,
    /// The name of the table of costs.
    pub costs: String,
    pub nodes: Vec<NodeEntry>,
    /// For each command that runs again, so that less memory is needed, the node that it is named after.
    pub recomputed: Vec<RecomputedEntry>,
    /// Bytes that wait in another device's memory meanwhile.
    pub offloaded_bytes: u64,
    /// For each value of which a mask is kept in its place, its node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub masked: Vec<MaskedEntry>,
    /// For each chain of operations that is done part by part of its rows, its node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<PartsEntry>,
    /// For each loop that keeps its state at every k-th iteration in the place of lists, its node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub segments: Vec<SegmentsEntry>,
    /// The constants that are laid out once, as kernels read them. They are among `constants_bytes`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub laid_out: Vec<LaidOutEntry>,
    /// Of a model that is placed by time, what TensorFlow's rules, first fit and predicted time come to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub placements: Vec<PlacementEntry>,
    /// With `--curve`, what less memory costs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub curve: Vec<CurveEntry>,
    /// The copies of a step between devices, if there are any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub transfers: Vec<TransferEntry>,
    /// The nodes that the host computes because their device cannot, if there are any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub softened: Vec<SoftenedEntry>,
    /// The runs that are in stages, if there are any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<StagesEntry>,
    /// Of several models, how they can run: `side_by_side`, `in_turn` or `never`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub together: Option<&'static str>,
    /// Of several models.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub side_by_side: Option<Answer>,
    /// Of several models.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_turn: Option<InTurn>,
}

/// What a rule of placement comes to.
#[derive(Clone, Serialize)]
pub(super) struct PlacementEntry {
    pub model: String,
    /// `tensorflow`, `first-fit` or `auto`.
    pub placement: &'static str,
    pub fits: bool,
    pub made_to_fit: bool,
    pub predicted_step_seconds: f64,
    /// Between two steps of a stream.
    pub predicted_interval_seconds: f64,
    pub moved_bytes: u64,
    pub devices: Vec<PeakEntry>,
    #[serde(skip)]
    pub text: String,
}

/// What a device holds at most.
#[derive(Clone, Serialize)]
pub(super) struct PeakEntry {
    pub name: String,
    pub peak_bytes: u64,
}

/// Whether there is room.
#[derive(Clone, Copy, Serialize)]
pub(super) struct Answer {
    pub fits: bool,
    /// Of all devices together; in turn, for the model that lacks most.
    pub shortfall_bytes: u64,
    /// The smallest limit that is enough, given to every device that has one; to every device, where none has.
    pub minimum_limit_bytes: u64,
}

/// Several models, one after the other or in rounds.
#[derive(Serialize)]
pub(super) struct InTurn {
    #[serde(flatten)]
    pub answer: Answer,
    /// Rounds, one after the other, of models that run side by side, by their positions; none where one does not fit by itself.
    pub rounds: Vec<Vec<usize>>,
}

/// A model's part of a device.
#[derive(Serialize)]
pub(super) struct Share {
    pub model: String,
    pub peak_bytes: u64,
    #[serde(flatten)]
    pub packing: Packing,
}

/// How well the buffers of a step lie in a device's arena.
#[derive(Serialize)]
pub(super) struct Packing {
    /// The bytes that they take as they are packed.
    pub packed_bytes: u64,
    /// The most of them that are live at once: no packing takes less.
    pub live_bytes: u64,
    /// The difference.
    pub unused_bytes: u64,
    /// No plan of these commands takes less of the device, in whatever order, and whatever runs again or waits elsewhere.
    pub lower_bound_bytes: u64,
}

#[derive(Serialize)]
pub(super) struct DeviceEntry {
    pub name: String,
    pub limit_bytes: Option<u64>,
    pub peak_bytes: u64,
    pub certainty: &'static str,
    pub variables_bytes: u64,
    pub constants_bytes: u64,
    pub activations_bytes: u64,
    pub workspace_bytes: u64,
    pub transfer_bytes: u64,
    pub overhead_bytes: u64,
    /// Of one model.
    #[serde(flatten)]
    pub packing: Option<Packing>,
    /// Of several models, in their order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<Share>,
}

#[derive(Serialize)]
pub(super) struct NodeEntry {
    pub name: String,
    pub op: String,
    pub device: String,
    /// Where several models are planned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

/// A constant that is laid out once.
#[derive(Serialize)]
pub(super) struct LaidOutEntry {
    pub node: String,
    pub bytes: u64,
    /// Where several models are planned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

/// A command that runs again.
#[derive(Serialize)]
pub(super) struct RecomputedEntry {
    pub node: String,
    /// Where several models are planned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

/// A value of which a mask is kept in its place.
#[derive(Serialize)]
pub(super) struct MaskedEntry {
    pub node: String,
    pub mask_bytes: u64,
    /// Where several models are planned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

/// A chain of operations that is done part by part.
#[derive(Serialize)]
pub(super) struct PartsEntry {
    pub node: String,
    /// The number of parts.
    pub parts: u64,
    /// Where several models are planned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

/// A loop that keeps its state in the place of lists.
#[derive(Serialize)]
pub(super) struct SegmentsEntry {
    pub node: String,
    /// The state is kept of every so many iterations.
    pub every: u64,
    /// Where several models are planned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

/// A limit for a device, and the plan that fits it.
#[derive(Clone, Serialize)]
pub(super) struct CurveEntry {
    pub device: String,
    pub limit_bytes: u64,
    pub peak_bytes: u64,
    pub predicted_step_seconds: f64,
    /// How many commands run again.
    pub recomputed: usize,
    /// Bytes that wait in slower memory meanwhile.
    pub offloaded_bytes: u64,
    /// Of how many values a mask is kept in their place.
    pub masked: usize,
    /// How many chains of operations are done part by part.
    pub parts: usize,
    /// How many loops keep their state at every k-th iteration in the place of lists.
    pub segments: usize,
    /// Where several models are planned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

/// A tensor that is copied to another device: once, however many read it there.
#[derive(Serialize)]
pub(super) struct TransferEntry {
    /// The node that makes it.
    pub node: String,
    pub from: String,
    pub to: String,
    pub bytes: u64,
    /// Where several models are planned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

/// A node that the host computes.
#[derive(Serialize)]
pub(super) struct SoftenedEntry {
    pub node: String,
    /// The device that cannot compute it.
    pub device: String,
    /// Where several models are planned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

/// A run whose sizes only the run knows.
#[derive(Serialize)]
pub(super) struct StagesEntry {
    /// The first node whose size only the run knows.
    pub from: String,
    /// The tensors that it depends on, which the first stage makes; or the nodes that are computed behind it.
    pub tensors: Vec<String>,
    /// How many plans the rest may have, the peak being that of the greatest; 0 where only the run knows them.
    pub plans: usize,
    /// How many loops the session drives behind the first stage, an iteration behind another.
    pub loops: usize,
    /// Where several models are planned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

impl Document {
    /// Of models on the same devices. `plans` is not empty.
    pub fn new(names: &[String], plans: &[Plan], joint: &Joint, fitted: &Fitted, is_together: bool) -> Document {
        let needs = joint.together_needs();
        let mut devices: Vec<DeviceEntry> = needs.iter().map(DeviceEntry::new).collect();
        let several = plans.len() > 1;
        for (index, (entry, need)) in devices.iter_mut().zip(joint.needs()).enumerate() {
            if let [plan] = plans {
                entry.packing = Some(Packing::of(&plan.devices()[index]));
                continue;
            }
            let models = names.iter().zip(plans).zip(&need.shares);
            let share = |((model, plan), share): ((&String, &Plan), &Bytes)| {
                let packing = Packing::of(&plan.devices()[index]);
                Share { model: model.clone(), peak_bytes: share.0, packing }
            };
            entry.models = models.map(share).collect();
        }
        let in_turn = Answer::new(joint.shortfall_in_turn(), fitted.minimums.iter().copied().max().unwrap_or_default());
        let side_by_side = if several { Answer::new(needs.shortfall(), needs.minimum_limit()) } else { in_turn };
        let nodes = names.iter().zip(plans).flat_map(|(model, plan)| {
            let model = several.then(|| model.clone());
            plan.node_places().map(move |(name, op, device)| NodeEntry {
                name: name.to_string(),
                op: op.to_string(),
                device: device.to_string(),
                model: model.clone(),
            })
        });
        let transfers = names.iter().zip(plans).flat_map(|(model, plan)| {
            let name = |device: usize| plan.devices()[device].name.clone();
            plan.transfers().into_iter().map(move |transfer| TransferEntry {
                node: transfer.node.to_string(),
                from: name(transfer.from),
                to: name(transfer.to),
                bytes: transfer.bytes,
                model: several.then(|| model.clone()),
            })
        });
        let recomputed = names.iter().zip(plans).flat_map(|(model, plan)| {
            plan.recomputed().map(move |node| RecomputedEntry { node: node.to_string(), model: several.then(|| model.clone()) })
        });
        let masked = names.iter().zip(plans).flat_map(|(model, plan)| {
            plan.masked().map(move |(node, bytes)| MaskedEntry {
                node: node.to_string(),
                mask_bytes: bytes.0,
                model: several.then(|| model.clone()),
            })
        });
        let parts = names.iter().zip(plans).flat_map(|(model, plan)| {
            plan.parts().map(move |(node, parts)| PartsEntry { node: node.to_string(), parts, model: several.then(|| model.clone()) })
        });
        let segments = names.iter().zip(plans).flat_map(|(model, plan)| {
            plan.segments().map(move |(node, every)| SegmentsEntry { node: node.to_string(), every, model: several.then(|| model.clone()) })
        });
        let laid_out = names.iter().zip(plans).flat_map(|(model, plan)| {
            plan.laid_out().map(move |(node, bytes)| LaidOutEntry {
                node: node.to_string(),
                bytes: bytes.0,
                model: several.then(|| model.clone()),
            })
        });
        let softened = names.iter().zip(plans).flat_map(|(model, plan)| {
            plan.softened().map(move |(node, device)| SoftenedEntry {
                node: node.to_string(),
                device: device.to_string(),
                model: several.then(|| model.clone()),
            })
        });
        let stages = names.iter().zip(plans).filter_map(|(model, plan)| {
            let stages = plan.stages()?;
            let (from, tensors) = (stages.from.to_string(), stages.tensors.to_vec());
            Some(StagesEntry { from, tensors, plans: stages.plans, loops: stages.loops, model: several.then(|| model.clone()) })
        });
        Document {
            answer: if is_together { side_by_side } else { in_turn },
            predicted_step_seconds: plans.iter().map(Plan::predicted_seconds).sum(),
            costs: plans.first().map_or_else(String::new, |plan| plan.costs().to_string()),
            nodes: nodes.collect(),
            recomputed: recomputed.collect(),
            offloaded_bytes: plans.iter().map(|plan| plan.offloaded().0).sum(),
            masked: masked.collect(),
            parts: parts.collect(),
            segments: segments.collect(),
            laid_out: laid_out.collect(),
            placements: fitted.placements.clone(),
            curve: fitted.curves.clone(),
            transfers: transfers.collect(),
            softened: softened.collect(),
            stages: stages.collect(),
            devices,
            together: several.then(|| match joint.together() {
                Together::SideBySide => "side_by_side",
                Together::InTurn => "in_turn",
                Together::Never => "never",
            }),
            side_by_side: several.then_some(side_by_side),
            in_turn: several.then(|| InTurn { answer: in_turn, rounds: joint.rounds().unwrap_or_default() }),
        }
    }
}

impl Answer {
    pub fn new(shortfall: Bytes, minimum_limit: Bytes) -> Answer {
        Answer { fits: shortfall == Bytes::ZERO, shortfall_bytes: shortfall.0, minimum_limit_bytes: minimum_limit.0 }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.shortfall_bytes {
            0 => f.write_str("fit")?,
            bytes => write!(f, "do not fit, {bytes} bytes short")?,
        }
        write!(f, "; the smallest limit that fits is {} bytes", self.minimum_limit_bytes)
    }
}

impl Packing {
    pub fn of(device: &DevicePlan) -> Packing {
        Packing {
            packed_bytes: device.packed.0,
            live_bytes: device.live.0,
            unused_bytes: device.unused().0,
            lower_bound_bytes: device.least.0,
        }
    }
}

impl DeviceEntry {
    pub fn new(need: &Need) -> DeviceEntry {
        DeviceEntry {
            name: need.name.clone(),
            limit_bytes: need.limit.map(|limit| limit.0),
            peak_bytes: need.peak.0,
            certainty: match need.certainty {
                Certainty::Exact => "exact",
                Certainty::AtMost => "at_most",
                Certainty::OpenFrom(_) => "open",
            },
            variables_bytes: need.parts.variables.0,
            constants_bytes: need.parts.constants.0,
            activations_bytes: need.parts.activations.0,
            workspace_bytes: need.parts.workspace.0,
            transfer_bytes: need.parts.transfer.0,
            overhead_bytes: need.parts.overhead.0,
            packing: None,
            models: Vec::new(),
        }
    }
}
