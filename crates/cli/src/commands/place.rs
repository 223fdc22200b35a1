//! `plimsoll place`: the device of every node, and why.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use crate::device_options::DeviceOptions;
use crate::failure::Result;
use crate::{load, output};

/// What is placed.
#[derive(Args)]
pub struct PlaceArgs {
    /// A GraphDef (.pb, .pbtxt)
    #[arg(value_name = "MODEL")]
    model: PathBuf,
}

#[derive(Serialize)]
struct Document {
    nodes: Vec<Entry>,
}

#[derive(Serialize)]
struct Entry {
    name: String,
    op: String,
    device: String,
    why: String,
}

/// Places.
pub fn run(args: PlaceArgs, options: &DeviceOptions, json: bool) -> Result<ExitCode> {
    let devices = load::devices(options)?;
    let session = load::session(&devices, &args.model)?;
    let entry =
        |((node, device), why): ((&plimsoll::Node, String), String)| Entry { name: node.name.clone(), op: node.op.clone(), device, why };
    let nodes: Vec<Entry> = session.placements().zip(session.reasons()).map(entry).collect();
    if json {
        output::result_json(&Document { nodes })?;
    } else {
        let lines: Vec<String> = nodes.iter().map(|node| format!("{} ({}) {}: {}", node.name, node.op, node.device, node.why)).collect();
        output::result(lines.join("\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}
