//! `plimsoll ops`: the operations that have rules, and those of a model that have none.

use std::path::{Path, PathBuf};

use clap::Args;
use plimsoll::DataType;
use plimsoll::model::{self, Tags};
use plimsoll::operations::{self, Missing, ModelMissing, Operation};
use plimsoll::text::{column_width, pad_left, pad_right};
use serde::Serialize;

use crate::exit_code::ExitCode;
use crate::failure::{OrUsage, Result};
use crate::{names, output};

/// Which operations are listed.
#[derive(Args)]
pub struct OpsArgs {
    /// List the operations of a model that have no rules, for each of its signatures: a GraphDef (.pb, .pbtxt) or the folder of a
    /// SavedModel. Exit status 1 where there are some
    #[arg(long, value_name = "MODEL")]
    missing: Option<PathBuf>,
    /// Of the graphs of a SavedModel the one with exactly these tags, as serve,gpu [default: serve, or the only one]
    #[arg(long, value_name = "TAGS", requires = "missing")]
    tags: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Lists.
pub fn run(args: OpsArgs) -> Result<ExitCode> {
    match &args.missing {
        Some(model) => missing(model, &names::tags(args.tags.as_deref()), args.json),
        None => list(args.json),
    }
}

#[derive(Serialize)]
struct OperationEntry {
    name: &'static str,
    /// Null where no inputs are known that its rules accept.
    types: Option<Vec<&'static str>>,
    gradient: &'static str,
    devices: Vec<&'static str>,
    /// The types that NVIDIA cards have kernels for.
    nvidia: Vec<&'static str>,
}

#[derive(Serialize)]
struct OperationsDocument {
    operations: Vec<OperationEntry>,
}

fn list(json: bool) -> Result<ExitCode> {
    let entry = |operation: &Operation| OperationEntry {
        name: operation.name,
        types: operation.types.as_ref().map(|types| types.iter().map(|data_type| DataType::name(*data_type)).collect()),
        gradient: operation.gradient.name(),
        devices: operation.devices.iter().map(|kind| kind.name()).collect(),
        nvidia: operation.nvidia.iter().map(|data_type| DataType::name(*data_type)).collect(),
    };
    let operations: Vec<OperationEntry> = operations::operations().iter().map(entry).collect();
    if json {
        output::result_json(&OperationsDocument { operations })?;
        return Ok(ExitCode::SUCCESS);
    }
    let types = |entry: &OperationEntry| entry.types.as_ref().map_or("?".to_string(), |types| types.join(" "));
    let nvidia = |entry: &OperationEntry| match entry.nvidia.len() {
        0 => "host",
        some if entry.types.as_ref().is_some_and(|types| types.len() > some) => "some",
        _ => "all",
    };
    let header = ["operation", "gradient", "devices", "nvidia", "types"].map(str::to_string);
    let row = |entry: &OperationEntry| {
        let [name, gradient, nvidia] = [entry.name, entry.gradient, nvidia(entry)].map(str::to_string);
        [name, gradient, entry.devices.join(" "), nvidia, types(entry)]
    };
    let rows: Vec<[String; 5]> = std::iter::once(header).chain(operations.iter().map(row)).collect();
    let width = |column: usize| column_width(rows.iter().map(|row| row[column].as_str()));
    let widths: Vec<usize> = (0..4).map(width).collect();
    let line = |row: &[String; 5]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| pad_right(cell, *width) + "  ").collect::<String>();
        (cells + &row[4]).trim_end().to_string()
    };
    output::result(rows.iter().map(line).collect::<Vec<_>>().join("\n"))?;
    Ok(ExitCode::SUCCESS)
}

#[derive(Serialize)]
struct MissingEntry<'a> {
    operation: &'a str,
    nodes: usize,
    first: &'a str,
    /// Whether TensorFlow has an operation of that name.
    known: bool,
}

impl MissingEntry<'_> {
    fn of(missing: &Missing) -> MissingEntry<'_> {
        MissingEntry { operation: &missing.op, nodes: missing.count, first: &missing.first, known: missing.is_known }
    }
}

#[derive(Serialize)]
struct SignatureEntry<'a> {
    /// Null for a graph.
    signature: Option<&'a str>,
    missing: Vec<MissingEntry<'a>>,
}

#[derive(Serialize)]
struct MissingDocument<'a> {
    signatures: Vec<SignatureEntry<'a>>,
}

fn missing(path: &Path, tags: &Tags, json: bool) -> Result<ExitCode> {
    model::check(path).or_usage()?;
    let found = operations::missing_of_model(names::tagged(model::read(path)?, path, tags)?, path)?;
    let is_complete = found.iter().all(|signature| signature.operations.is_empty());
    if json {
        let signatures = found.iter().map(signature_entry).collect();
        output::result_json(&MissingDocument { signatures })?;
    } else {
        output::result(found.iter().map(text).collect::<Vec<_>>().join("\n"))?;
    }
    Ok(ExitCode::from(u8::from(!is_complete)))
}

fn signature_entry(found: &ModelMissing) -> SignatureEntry<'_> {
    SignatureEntry { signature: found.signature.as_deref(), missing: found.operations.iter().map(MissingEntry::of).collect() }
}

/// The lines of a signature.
fn text(found: &ModelMissing) -> String {
    let name = found.signature.as_ref().map_or("the graph".to_string(), |name| format!("signature {}", output::plain(name)));
    if found.operations.is_empty() {
        return format!("{name}: every operation has rules");
    }
    let count = |missing: &Missing| format!("{} {}", missing.count, if missing.count == 1 { "node" } else { "nodes" });
    let widths = (
        column_width(found.operations.iter().map(|missing| missing.op.as_str())),
        column_width(found.operations.iter().map(count).collect::<Vec<_>>().iter().map(String::as_str)),
    );
    let line = |missing: &Missing| {
        let unknown = if missing.is_known { "" } else { "  (no operation of TensorFlow 2.21)" };
        let (op, first) = (output::plain(&missing.op), output::plain(&missing.first));
        format!("  {}  {}  first: {first}{unknown}", pad_right(&op, widths.0), pad_left(&count(missing), widths.1))
    };
    let lines: Vec<String> = found.operations.iter().map(line).collect();
    let operations = if lines.len() == 1 { "1 operation has" } else { &format!("{} operations have", lines.len()) };
    format!("{name}: {operations} no rules\n{}", lines.join("\n"))
}
