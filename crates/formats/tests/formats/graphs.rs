//! Graphs that TensorFlow wrote: every one is read, printed, read again to the same graph, and accepted by the graph crate.

use std::path::{Path, PathBuf};

use plimsoll_formats::{print_graph_def, read_graph_def, write_graph_def};
use plimsoll_graph::{Graph, OpTable};

/// The files that end in `.pb` under a folder beside the workspace; none, with a word on stderr, where there is no such folder.
fn graph_files(folder: &str) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared").join(folder);
    let Ok(entries) = std::fs::read_dir(&root) else {
        eprintln!("skipped: {} is not there", root.display());
        return Vec::new();
    };
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.extend(files.clone().iter().map(|folder| folder.join("graph.pb")));
    files.retain(|path| path.extension().is_some_and(|extension| extension == "pb") && path.is_file());
    files.sort();
    files
}

#[test]
fn tensorflows_graphs_survive_both_forms() {
    let ops = OpTable::tensorflow();
    for path in graph_files("graphs").into_iter().chain(graph_files("golden")) {
        let bytes = std::fs::read(&path).unwrap();
        let graph = read_graph_def(&bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(!graph.nodes.is_empty());
        let written = write_graph_def(&graph);
        assert!(read_graph_def(&written).unwrap() == graph, "{}: binary", path.display());
        let text = print_graph_def(&graph);
        let again = read_graph_def(text.as_bytes()).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(again == graph, "{}: text", path.display());
        assert_eq!(write_graph_def(&again), written);
        Graph::resolve(graph, &ops).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}
