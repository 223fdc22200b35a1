//! `plimsoll plan`: does it fit, where does everything go, and how big is it.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use plimsoll::{Certainty, DevicePlan, Devices, Plan};
use serde::Serialize;

use crate::device_options::DeviceOptions;
use crate::failure::{Result, not_yet, wrong_use};
use crate::names::{self, Asked, FeedShapes};
use crate::{load, output};

/// What is planned.
#[derive(Args)]
pub struct PlanArgs {
    /// GraphDefs (.pb, .pbtxt); several are planned as if they ran at the same time
    #[arg(value_name = "MODEL", required = true)]
    models: Vec<PathBuf>,
    /// The signature of a SavedModel (not yet)
    #[arg(long, value_name = "NAME")]
    signature: Option<String>,
    /// A tensor that is wanted, as loss:0
    #[arg(long, value_name = "TENSOR")]
    fetch: Vec<String>,
    /// An operation to run
    #[arg(long, value_name = "OPERATION")]
    target: Vec<String>,
    /// The shape of a tensor that is fed
    #[arg(long, value_name = "NAME=2x3")]
    feed_shape: Vec<String>,
    /// A file of such shapes: lines NAME=2x3, or JSON {"NAME": [2, 3]}
    #[arg(long, value_name = "FILE")]
    shapes: Option<PathBuf>,
    /// A page with the plan (not yet)
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Plans. Exit status 1 where it does not fit.
pub fn run(args: PlanArgs, options: &DeviceOptions, json: bool) -> Result<ExitCode> {
    if args.html.is_some() {
        return Err(not_yet("--html"));
    }
    let mut shapes = args.shapes.as_deref().map(names::read_shapes).transpose()?.unwrap_or_default();
    for text in &args.feed_shape {
        let (name, shape) = names::parse_feed_shape(text)?;
        shapes.insert(name, shape);
    }
    let devices = load::devices(options)?;
    let asked = Asked { fetches: args.fetch, targets: args.target };
    let plans = plans(&devices, &args.models, args.signature.as_deref(), &asked, &shapes)?;
    let names: Vec<String> = args.models.iter().map(|model| model.display().to_string()).collect();
    let document = Document::new(&names, &plans);
    if json {
        output::result_json(&document)?;
    } else {
        output::result(text(&names, &plans, &document))?;
    }
    Ok(ExitCode::from(u8::from(!document.fits)))
}

fn plans(devices: &Devices, models: &[PathBuf], signature: Option<&str>, asked: &Asked, shapes: &FeedShapes) -> Result<Vec<Plan>> {
    let sessions = models.iter().map(|model| load::session(devices, model)).collect::<Result<Vec<_>>>()?;
    if let Some(name) = signature {
        return wrong_use(format!("--signature {name}: a GraphDef has no signatures; say --fetch and --target"));
    }
    let graphs = sessions.iter().map(|session| session.graph());
    asked.check(graphs.clone())?;
    for name in shapes.keys() {
        names::check_name(name, graphs.clone())?;
    }
    let plan = |session: &plimsoll::Session| {
        let asked = asked.of_graph(session.graph(), devices.registry())?;
        Ok(session.plan_signature(&names::signature(session.graph(), devices.registry(), &asked, shapes)?)?)
    };
    sessions.iter().map(plan).collect()
}

#[derive(Serialize)]
struct Document {
    fits: bool,
    /// Of all devices together.
    shortfall_bytes: u64,
    /// The smallest limit that is enough, given to every device that has one; to every device, where none has.
    minimum_limit_bytes: u64,
    devices: Vec<DeviceEntry>,
    predicted_step_seconds: f64,
    nodes: Vec<NodeEntry>,
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

impl Document {
    /// Of models that run at the same time. `plans` is not empty.
    fn new(names: &[String], plans: &[Plan]) -> Document {
        let mut devices: Vec<DeviceEntry> = plans[0].devices.iter().map(DeviceEntry::new).collect();
        for plan in &plans[1..] {
            devices.iter_mut().zip(&plan.devices).for_each(|(entry, device)| entry.join(&DeviceEntry::new(device)));
        }
        let short = |device: &DeviceEntry| device.limit_bytes.map_or(0, |limit| device.peak_bytes.saturating_sub(limit));
        let is_limited = devices.iter().any(|device| device.limit_bytes.is_some());
        let counts = |device: &&DeviceEntry| device.limit_bytes.is_some() || !is_limited;
        let nodes = names.iter().zip(plans).flat_map(|(model, plan)| {
            let model = (plans.len() > 1).then(|| model.clone());
            plan.node_places().map(move |(name, op, device)| NodeEntry {
                name: name.to_string(),
                op: op.to_string(),
                device: device.to_string(),
                model: model.clone(),
            })
        });
        let shortfall_bytes = devices.iter().map(short).sum();
        Document {
            fits: shortfall_bytes == 0,
            shortfall_bytes,
            minimum_limit_bytes: devices.iter().filter(counts).map(|device| device.peak_bytes).max().unwrap_or(0),
            predicted_step_seconds: plans.iter().map(|plan| plan.seconds).sum(),
            nodes: nodes.collect(),
            devices,
        }
    }
}

impl DeviceEntry {
    fn new(device: &DevicePlan) -> DeviceEntry {
        DeviceEntry {
            name: device.name.clone(),
            limit_bytes: device.limit.map(|limit| limit.0),
            peak_bytes: device.peak.total().0,
            certainty: match device.certainty {
                Certainty::Exact => "exact",
                Certainty::AtMost => "at_most",
                Certainty::OpenFrom(_) => "open",
            },
            variables_bytes: device.peak.variables.0,
            constants_bytes: device.peak.constants.0,
            activations_bytes: device.peak.activations.0,
            workspace_bytes: device.peak.workspace.0,
            transfer_bytes: device.peak.transfer.0,
            overhead_bytes: device.peak.overhead.0,
        }
    }

    /// Two models' peaks need not be at the same time, so that their sum is a bound.
    fn join(&mut self, other: &DeviceEntry) {
        if self.certainty != "open" {
            self.certainty = if other.certainty == "open" { "open" } else { "at_most" };
        }
        self.peak_bytes += other.peak_bytes;
        self.variables_bytes += other.variables_bytes;
        self.constants_bytes += other.constants_bytes;
        self.activations_bytes += other.activations_bytes;
        self.workspace_bytes += other.workspace_bytes;
        self.transfer_bytes += other.transfer_bytes;
        self.overhead_bytes += other.overhead_bytes;
    }
}

fn text(names: &[String], plans: &[Plan], document: &Document) -> String {
    if let [plan] = plans {
        return plan.to_string();
    }
    let mut text = String::new();
    for (name, plan) in names.iter().zip(plans) {
        text += &format!("{name}\n{plan}\n\n");
    }
    text += "at the same time: ";
    text += &match document.shortfall_bytes {
        0 => "fit".to_string(),
        bytes => format!("do not fit, {bytes} bytes short"),
    };
    text + &format!("; the smallest limit that fits is {} bytes", document.minimum_limit_bytes)
}
