#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll_formats::{print_graph_def, read_graph_def, write_graph_def};

fuzz_target!(|text: &str| {
    let Ok(graph) = read_graph_def(text.as_bytes()) else { return };
    let written = write_graph_def(&graph);
    assert_eq!(write_graph_def(&read_graph_def(print_graph_def(&graph).as_bytes()).unwrap()), written);
});
