//! `plimsoll plan`: does it fit, where does everything go, and how big is it.

mod growth;

use std::fmt;
use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use plimsoll::fit::CurvePoint;
use plimsoll::page::{self, Picture};
use plimsoll::placing::{Beside, Compared};
use plimsoll::share::terminal;
use plimsoll::{Bytes, Certainty, DevicePlan, Devices, Error, Footprint, Joint, Need, Needs, Pass, Plan, Signature, Together};
use serde::Serialize;

use crate::device_options::DeviceOptions;
use crate::exit_code::ExitCode;
use crate::failure::{Result, wrong_use};
use crate::names::Sized;
use crate::requests::{AskedArgs, Requested, Requests, requests};
use crate::{load, output};

/// The models, and the request to them.
#[derive(Args)]
pub struct PlanArgs {
    /// GraphDefs (.pb, .pbtxt), MetaGraphs (.meta) or SavedModel folders; several are planned side by side and in
    /// turn. A name below is then for every model that has it, and MODEL::NAME for one: its path, its file's name with or without
    /// extension, or its number from 1
    #[arg(value_name = "MODEL", required = true)]
    models: Vec<PathBuf>,
    #[command(flatten)]
    asked: AskedArgs,
    /// Compute once what the model computes from variables and constants alone, and keep it in their place: batch norms become part of
    /// the convolutions before them; the answer covers that
    #[arg(long)]
    freeze: bool,
    /// What less memory costs: for ten limits between the least that a device can do with and what the plan takes as it is, the time of a
    /// step
    #[arg(long)]
    curve: bool,
    /// Print the largest N that fits the limits, and nothing else: the largest batch
    #[arg(long, conflicts_with = "curve")]
    largest_batch: bool,
    /// Several models: exit status 1 where they do not fit side by side, also where they fit in turn
    #[arg(long)]
    together: bool,
    /// Print what there is after this pass of the planner instead: lower, soften, patch, transfer, fuse, select, hazard, order, fit or
    /// pack
    #[arg(long, value_name = "PASS")]
    after: Option<String>,
    /// A file for the plan, which `eval --plan` runs; for one model
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write a page to look at: memory over the step with every buffer, queues over predicted time, and what less memory costs. One file
    /// that any browser shows. Where a dimension is N, it has the peaks of every N, and the plans of three: the smallest, one in the
    /// middle and the largest that fits
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the memory over the step of the device that takes most as a picture (SVG); for one model. Where a dimension is N, that of the
    /// largest N that fits
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// Plans. Exit status 1 where it does not fit; of several models where one does not fit by itself, and with `--together` where they
/// do not fit side by side.
pub fn run(args: PlanArgs, options: &DeviceOptions, json: bool) -> Result<ExitCode> {
    if (args.output.is_some() || args.svg.is_some()) && args.models.len() > 1 {
        return wrong_use("--output and --svg are for the plan of one model");
    }
    let options = &DeviceOptions { freeze: args.freeze, ..options.clone() };
    let after = args.after.as_deref().map(str::parse::<Pass>).transpose()?;
    if after.is_some() && json {
        return Err(Error::invalid_argument("--after prints text, and --json one document").into());
    }
    let devices = load::devices_to_plan_for(options)?;
    let requests = requests(&devices, &args.models, &args.asked)?;
    if let ([model], [Requested { init, signature: Sized::InN(signature) }]) = (requests.models.all(), &requests.all[..]) {
        if args.output.is_some() || after.is_some() || args.curve {
            return wrong_use("--output, --after and --curve are for one plan: give every feed a shape, as --feed-shape x=32x6");
        }
        let how = growth::How { json, largest: args.largest_batch, html: args.html.as_deref(), svg: args.svg.as_deref() };
        return growth::run(&devices, model, init.as_ref(), signature, how);
    }
    if args.largest_batch {
        return wrong_use("--largest-batch is for one model with a dimension that is open: leave its --feed-shape out, or write N there");
    }
    let planned = plans(&devices, &args, requests, after)?;
    if after.is_some() {
        planned.into_iter().try_for_each(|planned| output::result(planned.text.trim_end()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let drawn = pictures(&args, json, &planned)?;
    let fitted = Fitted {
        minimums: planned.iter().map(|planned| planned.minimum).collect(),
        curves: if args.curve { curves(&planned) } else { Vec::new() },
        placements: planned.iter().flat_map(placements).collect(),
    };
    let (plans, footprints): (Vec<Plan>, Vec<Footprint>) = planned.into_iter().map(|planned| (planned.plan, planned.footprint)).unzip();
    let names: Vec<String> = args.models.iter().map(|model| model.display().to_string()).collect();
    let joint = Joint::new(names.iter().cloned().zip(footprints.iter().cloned()));
    let document = Document::new(&names, &plans, &joint, &fitted, args.together);
    if json {
        output::result_json(&document)?;
    } else {
        output::result(text(&names, &plans, &document, &joint) + &drawn)?;
    }
    Ok(ExitCode::from(u8::from(!document.answer.fits)))
}

/// A model, planned.
struct Planned {
    label: String,
    /// The step's plan.
    plan: Plan,
    /// The model's footprint over all runs.
    footprint: Footprint,
    /// The smallest limit for them.
    minimum: Bytes,
    /// For each device what less memory costs, where that was asked for.
    curves: Vec<(String, Vec<CurvePoint>)>,
    /// The text after a pass, where one was asked for.
    text: String,
    /// What the rules of placement come to, where it was placed by time.
    compared: Vec<Compared>,
}

/// What is known of other limits.
struct Fitted {
    /// For each model, the smallest limit for it alone.
    minimums: Vec<Bytes>,
    curves: Vec<CurveEntry>,
    placements: Vec<PlacementEntry>,
}

/// What the rules of placement come to for a model.
fn placements(planned: &Planned) -> impl Iterator<Item = PlacementEntry> + '_ {
    planned.compared.iter().map(|compared| PlacementEntry {
        model: planned.label.clone(),
        placement: compared.rule,
        fits: compared.fits,
        made_to_fit: compared.is_fitted,
        predicted_step_seconds: compared.seconds,
        predicted_interval_seconds: compared.interval,
        moved_bytes: compared.moved.0,
        devices: compared.footprint.needs().iter().map(|need| PeakEntry { name: need.name.clone(), peak_bytes: need.peak.0 }).collect(),
        text: compared.text.clone(),
    })
}

/// The curves of the models.
fn curves(planned: &[Planned]) -> Vec<CurveEntry> {
    let several = planned.len() > 1;
    let mut entries = Vec::new();
    for planned in planned {
        for (device, points) in &planned.curves {
            entries.extend(points.iter().map(|point| CurveEntry {
                device: device.clone(),
                limit_bytes: point.limit.0,
                peak_bytes: point.peak.0,
                predicted_step_seconds: point.seconds,
                recomputed: point.recomputed,
                offloaded_bytes: point.offloaded.0,
                masked: point.masked,
                parts: point.parts,
                segments: point.segments,
                model: several.then(|| planned.label.clone()),
            }));
        }
    }
    entries
}

/// Every model, planned.
fn plans(devices: &Devices, args: &PlanArgs, requests: Requests, after: Option<Pass>) -> Result<Vec<Planned>> {
    let mut asked: Vec<(Signature, Vec<Signature>)> = Vec::with_capacity(args.models.len());
    for (model, Requested { init, signature }) in requests.models.all().iter().zip(requests.all) {
        let Sized::Whole(signature) = signature else {
            let shapes = "a shape for each of its feeds, as --feed-shape x=32x6";
            return wrong_use(format!("{}: its peak for every N is the answer for one model; of several each needs {shapes}", model.label));
        };
        let runs = init.into_iter().chain([signature.clone()]).collect();
        asked.push((signature, runs));
    }
    let models = requests.models.all().iter();
    let beside = models.clone().zip(&asked).map(|(model, (_, runs))| Beside { name: &model.label, session: &model.session, runs });
    let all = load::place_all(devices, &beside.collect::<Vec<_>>())?;
    let mut planned: Vec<Planned> = Vec::with_capacity(args.models.len());
    for ((model, (signature, runs)), one) in models.zip(asked).zip(all) {
        one.log.iter().for_each(output::note);
        if let Some(output) = &args.output {
            let file = one.session.plan_file(&signature)?;
            plimsoll::model::replace_output(output, |out| {
                out.write_all(&file).map_err(|error| plimsoll::model::file_error(output, &error))
            })?;
        }
        let text = after.map(|pass| one.session.text_after(&signature, pass)).transpose()?.unwrap_or_default();
        let minimum = one.session.minimum_limit(&runs, &one.footprint)?;
        let plan = one.session.plan_signature(&signature)?.with_minimum(minimum);
        if let Some((size, limit)) = one.session.larger_file(&runs, &one.footprint)? {
            output::note(format!("{}: with a file of {size} (--spill) the smallest limit is about {limit}", model.label));
        }
        let is_asked = args.curve || (args.html.is_some() && plan.stages().is_none());
        let curves = if is_asked { one.session.curves(&signature)? } else { Vec::new() };
        let (footprint, compared) = (one.footprint, one.compared);
        planned.push(Planned { label: model.label.clone(), plan, footprint, minimum, curves, text, compared });
    }
    Ok(planned)
}

/// Writes the pictures that are asked for. A terminal shows one as text, behind the table.
fn pictures(args: &PlanArgs, json: bool, planned: &[Planned]) -> Result<String> {
    let columns = if json { None } else { terminal::size().map(|(columns, _)| columns) };
    if args.html.is_none() && args.svg.is_none() && columns.is_none() {
        return Ok(String::new());
    }
    let model = |planned: &Planned| planned.plan.with_footprint(&planned.footprint).picture_of_model(&planned.label, &planned.curves);
    let models: Vec<_> = planned.iter().map(model).collect();
    if let (Some(path), [model]) = (&args.svg, &models[..]) {
        output::file(path, &page::svg::memory(model, &model.name).unwrap_or_default())?;
    }
    let text = columns.map(|columns| models.iter().map(|model| format!("\n\n{}", page::text::memory(model, columns).trim_end())).collect());
    if let Some(path) = &args.html {
        let title = planned.iter().map(|planned| planned.label.as_str()).collect::<Vec<_>>().join(", ");
        output::file(path, &Picture { title, models, ..Picture::default() }.html())?;
    }
    Ok(text.unwrap_or_default())
}

#[derive(Serialize)]
struct Document {
    /// Of several models: in turn, and with `--together` side by side. So are the two below.
    #[serde(flatten)]
    answer: Answer,
    devices: Vec<DeviceEntry>,
    /// Of all models, one after the other; null where a device has neither a table of costs nor a virtual clock.
    predicted_step_seconds: Option<f64>,
    /// The name of the table of costs.
    costs: String,
    nodes: Vec<NodeEntry>,
    /// For each command that runs again, so that less memory is needed, the node that it is named after.
    recomputed: Vec<RecomputedEntry>,
    /// Bytes that wait in another device's memory meanwhile.
    offloaded_bytes: u64,
    /// For each value of which a mask is kept in its place, its node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    masked: Vec<MaskedEntry>,
    /// For each chain of operations that is done part by part of its rows, its node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parts: Vec<PartsEntry>,
    /// For each loop that keeps its state at every k-th iteration in the place of lists, its node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    segments: Vec<SegmentsEntry>,
    /// The constants that are laid out once, as kernels read them. They are among `constants_bytes`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    laid_out: Vec<LaidOutEntry>,
    /// Of a model that is placed by time, what TensorFlow's rules, first fit and predicted time come to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    placements: Vec<PlacementEntry>,
    /// With `--curve`, what less memory costs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    curve: Vec<CurveEntry>,
    /// The copies of a step between devices, if there are any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    transfers: Vec<TransferEntry>,
    /// The nodes that the host computes because their device cannot, if there are any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    softened: Vec<SoftenedEntry>,
    /// The runs that are in stages, if there are any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    stages: Vec<StagesEntry>,
    /// Of several models, how they can run: `side_by_side`, `in_turn` or `never`.
    #[serde(skip_serializing_if = "Option::is_none")]
    together: Option<&'static str>,
    /// Of several models.
    #[serde(skip_serializing_if = "Option::is_none")]
    side_by_side: Option<Answer>,
    /// Of several models.
    #[serde(skip_serializing_if = "Option::is_none")]
    in_turn: Option<InTurn>,
}

/// What a rule of placement comes to.
#[derive(Clone, Serialize)]
struct PlacementEntry {
    model: String,
    /// `tensorflow`, `first-fit` or `auto`.
    placement: &'static str,
    fits: bool,
    made_to_fit: bool,
    predicted_step_seconds: f64,
    /// Between two steps of a stream.
    predicted_interval_seconds: f64,
    moved_bytes: u64,
    devices: Vec<PeakEntry>,
    #[serde(skip)]
    text: String,
}

/// What a device holds at most.
#[derive(Clone, Serialize)]
struct PeakEntry {
    name: String,
    peak_bytes: u64,
}

/// Whether there is room.
#[derive(Clone, Copy, Serialize)]
struct Answer {
    fits: bool,
    /// Of all devices together; in turn, for the model that lacks most.
    shortfall_bytes: u64,
    /// The smallest limit that is enough, given to every device that has one; to every device, where none has.
    minimum_limit_bytes: u64,
}

/// Several models, one after the other or in rounds.
#[derive(Serialize)]
struct InTurn {
    #[serde(flatten)]
    answer: Answer,
    /// Rounds, one after the other, of models that run side by side, by their positions; none where one does not fit by itself.
    rounds: Vec<Vec<usize>>,
}

/// A model's part of a device.
#[derive(Serialize)]
struct Share {
    model: String,
    peak_bytes: u64,
    #[serde(flatten)]
    packing: Packing,
}

/// How well the buffers of a step lie in a device's arena.
#[derive(Serialize)]
struct Packing {
    /// The bytes that they take as they are packed.
    packed_bytes: u64,
    /// The most of them that are live at once: no packing takes less.
    live_bytes: u64,
    /// The difference.
    unused_bytes: u64,
    /// No plan of these commands takes less of the device, in whatever order, and whatever runs again or waits elsewhere.
    lower_bound_bytes: u64,
}

#[derive(Serialize)]
struct DeviceEntry {
    name: String,
    limit_bytes: Option<u64>,
    peak_bytes: u64,
    certainty: &'static str,
    variables_bytes: u64,
    constants_bytes: u64,
    activations_bytes: u64,
    workspace_bytes: u64,
    transfer_bytes: u64,
    overhead_bytes: u64,
    /// Of one model.
    #[serde(flatten)]
    packing: Option<Packing>,
    /// Of several models, in their order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    models: Vec<Share>,
}

#[derive(Serialize)]
struct NodeEntry {
    name: String,
    op: String,
    device: String,
    /// Where several models are planned.
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
}

/// A constant that is laid out once.
#[derive(Serialize)]
struct LaidOutEntry {
    node: String,
    bytes: u64,
    /// Where several models are planned.
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
}

/// A command that runs again.
#[derive(Serialize)]
struct RecomputedEntry {
    node: String,
    /// Where several models are planned.
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
}

/// A value of which a mask is kept in its place.
#[derive(Serialize)]
struct MaskedEntry {
    node: String,
    mask_bytes: u64,
    /// Where several models are planned.
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
}

/// A chain of operations that is done part by part.
#[derive(Serialize)]
struct PartsEntry {
    node: String,
    /// The number of parts.
    parts: u64,
    /// Where several models are planned.
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
}

/// A loop that keeps its state in the place of lists.
#[derive(Serialize)]
struct SegmentsEntry {
    node: String,
    /// The state is kept of every so many iterations.
    every: u64,
    /// Where several models are planned.
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
}

/// A limit for a device, and the plan that fits it.
#[derive(Clone, Serialize)]
struct CurveEntry {
    device: String,
    limit_bytes: u64,
    peak_bytes: u64,
    predicted_step_seconds: f64,
    /// How many commands run again.
    recomputed: usize,
    /// Bytes that wait in slower memory meanwhile.
    offloaded_bytes: u64,
    /// Of how many values a mask is kept in their place.
    masked: usize,
    /// How many chains of operations are done part by part.
    parts: usize,
    /// How many loops keep their state at every k-th iteration in the place of lists.
    segments: usize,
    /// Where several models are planned.
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
}

/// A tensor that is copied to another device: once, however many read it there.
#[derive(Serialize)]
struct TransferEntry {
    /// The node that makes it.
    node: String,
    from: String,
    to: String,
    bytes: u64,
    /// Where several models are planned.
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
}

/// A node that the host computes.
#[derive(Serialize)]
struct SoftenedEntry {
    node: String,
    /// The device that cannot compute it.
    device: String,
    /// Where several models are planned.
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
}

/// A run whose sizes only the run knows.
#[derive(Serialize)]
struct StagesEntry {
    /// The first node whose size only the run knows.
    from: String,
    /// The tensors that it depends on, which the first stage makes; or the nodes that are computed behind it.
    tensors: Vec<String>,
    /// How many plans the rest may have, the peak being that of the greatest; 0 where only the run knows them.
    plans: usize,
    /// How many loops the session drives behind the first stage, an iteration behind another.
    loops: usize,
    /// Where several models are planned.
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
}

impl Document {
    /// Of models on the same devices. `plans` is not empty.
    fn new(names: &[String], plans: &[Plan], joint: &Joint, fitted: &Fitted, is_together: bool) -> Document {
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
    fn new(shortfall: Bytes, minimum_limit: Bytes) -> Answer {
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
    fn of(device: &DevicePlan) -> Packing {
        Packing {
            packed_bytes: device.packed.0,
            live_bytes: device.live.0,
            unused_bytes: device.unused().0,
            lower_bound_bytes: device.least.0,
        }
    }
}

impl DeviceEntry {
    fn new(need: &Need) -> DeviceEntry {
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

fn text(names: &[String], plans: &[Plan], document: &Document, joint: &Joint) -> String {
    if let ([plan], [footprint]) = (plans, joint.footprints()) {
        let placements: String = document.placements.iter().map(|entry| format!("\nplacement {}", entry.text)).collect();
        return plan.with_footprint(footprint).to_string() + &placements + &curve_text(&document.curve);
    }
    let mut text = String::new();
    for ((name, plan), footprint) in names.iter().zip(plans).zip(joint.footprints()) {
        let of_model = document.placements.iter().filter(|entry| entry.model == **name);
        let placements: String = of_model.map(|entry| format!("\nplacement {}", entry.text)).collect();
        text += &format!("{name}\n{}{placements}\n\n", plan.with_footprint(footprint));
    }
    for need in joint.needs() {
        let device = need.name.rsplit("device:").next().unwrap_or_default();
        let shares: Vec<String> = names.iter().zip(&need.shares).map(|(name, share)| format!("{name} {share}")).collect();
        let limit = need.limit.map_or_else(String::new, |limit| format!(" of {limit}"));
        text += &format!("{device}: {}{limit} side by side: {}\n", need.peak, shares.join(", "));
    }
    if let Some(side_by_side) = &document.side_by_side {
        text += &format!("side by side: {side_by_side}");
    }
    if let Some(error) = joint.check_side_by_side().err() {
        text += &format!("\n  {}", error.message());
    }
    if let Some(in_turn) = &document.in_turn {
        text += &format!("\nin turn: {}", in_turn.answer);
    }
    text + &rounds(names, joint)
}

/// What less memory costs, a line for each limit.
fn curve_text(curve: &[CurveEntry]) -> String {
    let mut text = String::new();
    let mut device = "";
    for entry in curve {
        if entry.device != device {
            device = &entry.device;
            text += &format!("\n{} with less memory:", device.rsplit("device:").next().unwrap_or_default());
        }
        let again = if entry.recomputed == 1 { "op runs" } else { "ops run" };
        let (limit, milliseconds) = (Bytes(entry.limit_bytes).to_string(), entry.predicted_step_seconds * 1e3);
        text += &format!("\n  limit {limit:>10}: a step takes {milliseconds:>9.3} ms, {} {again} again", entry.recomputed);
        if entry.offloaded_bytes > 0 {
            text += &format!(", {} in slower memory meanwhile", Bytes(entry.offloaded_bytes));
        }
        if entry.masked > 0 {
            text += &format!(", masks of {} {}", entry.masked, if entry.masked == 1 { "value" } else { "values" });
        }
        if entry.parts > 0 {
            text += &format!(", {} in parts", if entry.parts == 1 { "1 chain".to_string() } else { format!("{} chains", entry.parts) });
        }
        match entry.segments {
            0 => {}
            1 => text += ", 1 loop keeps the state of every k-th iteration",
            loops => text += &format!(", {loops} loops keep the state of every k-th iteration"),
        }
    }
    text
}

/// In which rounds the models run, or why one of them cannot.
fn rounds(names: &[String], joint: &Joint) -> String {
    match joint.rounds() {
        Err(error) => format!("\n  {}", error.message()),
        Ok(rounds) => {
            let round = |round: &Vec<usize>| round.iter().map(|&index| names[index].as_str()).collect::<Vec<_>>().join(" beside ");
            let rounds: Vec<String> = rounds.iter().map(round).collect();
            format!("; eval --parallel runs them as {}", rounds.join(", then "))
        }
    }
}
