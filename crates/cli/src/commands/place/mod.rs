//! `plimsoll place`: the device of every node, and why.

mod table;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use crate::device_options::{DeviceOptions, Placement};
use crate::failure::{Result, wrong_use};
use crate::names::tags;
use crate::{load, output};

/// The model, and which nodes are shown.
#[derive(Args)]
pub struct PlaceArgs {
    /// A GraphDef (.pb, .pbtxt) or the folder of a SavedModel
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    /// Of the graphs of a SavedModel the one with exactly these tags, as serve,gpu [default: serve, or the only one]
    #[arg(long, value_name = "TAGS")]
    tags: Option<String>,
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
    if matches!(options.placement, Some(Placement::FirstFit)) {
        return wrong_use(
            "--placement first-fit: it depends on the fetches and targets of a run, which plan and eval have: see `plimsoll plan --json`",
        );
    }
    let devices = load::devices(options)?;
    if devices.options().place_pruned_graph {
        return wrong_use(
            "place_pruned_graph: it depends on the fetches and targets of a run, which plan and eval have: see `plimsoll plan --json`",
        );
    }
    let session = load::session(&devices, &args.model, &tags(args.tags.as_deref()))?;
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
