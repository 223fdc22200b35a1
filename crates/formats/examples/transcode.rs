//! Reads a GraphDef and writes it again: `transcode IN OUT`, where OUT is text if it ends in `.pbtxt`, else binary.
use std::error::Error;

use plimsoll_formats::{print_graph_def, read_graph_def, write_graph_def};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [from, to] = &arguments[..] else { return Err("usage: transcode IN OUT".into()) };
    let graph = read_graph_def(&std::fs::read(from)?)?;
    let written = if to.ends_with(".pbtxt") { print_graph_def(&graph).into_bytes() } else { write_graph_def(&graph) };
    std::fs::write(to, written)?;
    Ok(())
}
