//! Vocabularies of candidate samplers: files that nodes name. They are read when a session is opened, since plans read no files.

use std::path::Path;
use std::sync::Arc;

use plimsoll_base::{Error, Result};
use plimsoll_graph::{AttrList, AttrValue, Attrs, AttrsExt, Graph};

/// The operation whose attribute `vocab_file` names one.
const SAMPLER: &str = "FixedUnigramCandidateSampler";

/// The graph, with the weights of vocabularies in their nodes; none where no node names a file. A node whose file cannot be read stays
/// as it is, and is refused when a run needs it.
pub(crate) fn read_in(graph: &Graph) -> Option<Graph> {
    let is_named = |op: &str, attrs: &Attrs| op == SAMPLER && attrs.text("vocab_file").is_ok_and(|file| !file.is_empty());
    let nodes: Vec<_> = graph.nodes().iter().filter(|(_, node)| is_named(&node.op, &node.attrs)).map(|(id, _)| id).collect();
    let bodies = || graph.library.functions.iter().flat_map(|function| &function.nodes);
    let is_called = bodies().any(|node| is_named(&node.op, &node.attrs));
    if nodes.is_empty() && !is_called {
        return None;
    }
    let mut graph = graph.clone();
    for id in nodes {
        state(&mut graph.node_mut(id).attrs);
    }
    if is_called {
        let bodies = Arc::make_mut(&mut graph.library).functions.iter_mut().flat_map(|function| &mut function.nodes);
        bodies.filter(|node| is_named(&node.op, &node.attrs)).for_each(|node| state(&mut node.attrs));
    }
    Some(graph)
}

/// Lets a node state the weights of its file.
fn state(attrs: &mut Attrs) {
    let weights = attrs.text("vocab_file").and_then(|file| weights(Path::new(file)));
    if let Ok(floats) = weights {
        attrs.insert("unigrams".to_string(), AttrValue::List(Box::new(AttrList { floats, ..AttrList::default() })));
        attrs.insert("vocab_file".to_string(), AttrValue::text(""));
    }
}

/// The last column of each line.
fn weights(path: &Path) -> Result<Vec<f32>> {
    let bytes = crate::model::read_file(path)?;
    let text = String::from_utf8_lossy(&bytes);
    let weight = |line: &str| {
        let column = line.rsplit(',').next().unwrap_or(line).trim();
        column.parse().map_err(|_| Error::invalid_argument(format!("Wrong vocabulary format at line: {}", line.escape_debug())))
    };
    text.lines().map(weight).collect()
}

#[cfg(test)]
mod tests {
    use plimsoll_graph::Node;

    use super::*;

    #[test]
    fn weights_are_the_last_column_of_each_line() {
        let file = std::env::temp_dir().join(format!("plimsoll-vocabulary-{}", std::process::id()));
        let stated = |content: &[u8]| {
            std::fs::write(&file, content).unwrap();
            let mut attrs = Attrs::new();
            attrs.insert("vocab_file".to_string(), AttrValue::text(file.to_str().unwrap()));
            let mut graph = Graph::new();
            let id = graph.add(Node { name: "sampler".into(), op: SAMPLER.into(), attrs, ..Node::default() }).unwrap();
            let attrs = read_in(&graph).unwrap().node(id).attrs.clone();
            attrs.list("unigrams").ok().map(|list| list.floats.clone())
        };
        assert_eq!(stated(b"a,3\nb,x,1.5\n 2 \r\n"), Some(vec![3.0, 1.5, 2.0]));
        assert_eq!(stated(b""), Some(Vec::new()));
        // A line without a number: the node stays as it is.
        assert_eq!(stated(b"a,3\nb\n"), None);
        std::fs::remove_file(&file).unwrap();
        assert_eq!(read_in(&Graph::new()), None);
    }
}
