//! `plimsoll place`: the device of every node, and why.

mod table;

use std::path::PathBuf;

use clap::Args;
use plimsoll::{Devices, Session, Signature};
use serde::Serialize;

use crate::device_options::DeviceOptions;
use crate::exit_code::ExitCode;
use crate::failure::{Result, wrong_use};
use crate::names::{Sized, tags};
use crate::requests::{AskedArgs, Requested, Requests, requests};
use crate::{load, output};

/// The model, and which nodes are shown.
#[derive(Args)]
pub struct PlaceArgs {
    /// A GraphDef (.pb, .pbtxt) or the folder of a SavedModel
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    /// What the runs are, for placements that look at them: first-fit and auto
    #[command(flatten)]
    asked: AskedArgs,
    /// A line for every node, instead of one for nodes of a name scope that go together
    #[arg(short = 'v', long = "all", visible_alias = "verbose")]
    all: bool,
}

#[derive(Serialize)]
struct Document {
    nodes: Vec<Entry>,
}

/// A node of the graph that runs: functions that are called are part of it.
#[derive(Serialize)]
struct Entry {
    name: String,
    op: String,
    /// The full name.
    device: String,
    why: String,
    /// The reason without the node that it names.
    #[serde(skip)]
    kind: String,
}

/// Places.
pub fn run(args: PlaceArgs, options: &DeviceOptions, json: bool) -> Result<ExitCode> {
    let devices = load::devices_to_plan_for(options)?;
    if devices.options().place_pruned_graph {
        return wrong_use(
            "place_pruned_graph: it depends on the fetches and targets of a run, which plan and eval have: see `plimsoll plan --json`",
        );
    }
    let session = match devices.options().placement.looks_at_runs() {
        true => by_runs(&devices, args.model, &args.asked)?,
        false => load::session(&devices, &args.model, &tags(args.asked.tags.first().map(String::as_str)))?,
    };
    let graph = session.graph();
    let reasons = session.why().map(|why| (why.describe(graph), table::kind(why, graph)));
    let nodes = session.placements().zip(reasons).map(|((node, device), (why, kind))| {
        let (name, op) = (node.name.clone(), node.op.clone());
        Entry { name, op, device, why, kind }
    });
    let document = Document { nodes: nodes.collect() };
    if json {
        output::result_json(&document)?;
    } else {
        output::result(table::text(&document.nodes, args.all))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The model, placed for its runs. The attempts are printed.
fn by_runs(devices: &Devices, model: PathBuf, asked: &AskedArgs) -> Result<Session> {
    let Requests { models, all } = requests(devices, &[model], asked)?;
    let ([model], [Requested { init, signature }]) = (models.all(), &all[..]) else { return wrong_use("one model is placed") };
    let Sized::Whole(signature) = signature else {
        return wrong_use("a placement that looks at the runs needs a shape for each feed, as --feed-shape x=32x6");
    };
    let runs: Vec<Signature> = init.iter().chain([signature]).cloned().collect();
    let placed = load::place(devices, &model.label, &model.session, &runs)?;
    placed.log.iter().for_each(output::note);
    Ok(placed.session)
}
