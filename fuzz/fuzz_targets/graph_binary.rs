#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll_formats::{print_graph_def, read_graph_def, write_graph_def};
use plimsoll_graph::{Graph, OpTable};

fuzz_target!(|bytes: &[u8]| {
    let Ok(graph) = read_graph_def(bytes) else { return };
    let written = write_graph_def(&graph);
    assert_eq!(write_graph_def(&read_graph_def(&written).unwrap()), written);
    read_graph_def(print_graph_def(&graph).as_bytes()).unwrap();
    let _ = Graph::resolve(graph, &OpTable::tensorflow());
});
