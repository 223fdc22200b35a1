//! The operations of a graph that cannot be planned, because they have no rules.
//!
//! This looks at names alone: no shape is inferred, so it needs no feeds, and one look finds all of them. Calls and conditions are
//! replaced by bodies when a graph is planned, so their functions are looked into; so are those of operations without rules.

use std::collections::{BTreeMap, HashMap, HashSet};

use plimsoll_graph::{AttrValue, Attrs, FunctionDef, GraphDef, InputRef, NodeDef};
use plimsoll_ops::Registry;
use plimsoll_ops::control::symbolic::SYMBOLIC_GRADIENT;

use crate::inline::Functions;

/// An operation without rules, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The operation.
    pub op: String,
    /// How many nodes name it, in the graph and in all functions that it reaches; a function counts once.
    pub count: usize,
    /// The first of them; a node in a function is named `function/node`.
    pub first: String,
    /// Whether TensorFlow has an operation of that name.
    pub is_known: bool,
}

/// The nodes that a run needs: those that `fetches` and `targets` name, and all before them up to the nodes that are fed. Without
/// any, all nodes of the graph.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reach<'a> {
    /// Nodes or tensors (`node:0`) that are wanted.
    pub wanted: Option<&'a [&'a str]>,
    /// Nodes or tensors that are fed.
    pub fed: &'a [&'a str],
}

/// The operations without rules among the nodes that a run needs: those with the most nodes first, then by name.
pub fn missing(graph: &GraphDef, registry: &Registry, reach: &Reach<'_>) -> Vec<Missing> {
    let mut search = Search {
        registry,
        functions: Functions::of(&graph.library),
        gradients: graph.library.gradients.iter().rev().map(|(function, gradient)| (function.as_str(), gradient.as_str())).collect(),
        seen: HashSet::new(),
        waiting: Vec::new(),
        found: BTreeMap::new(),
    };
    for node in reached(&graph.nodes, reach) {
        search.visit(node, "");
    }
    while let Some(function) = search.waiting.pop() {
        let prefix = format!("{}/", function.signature.name);
        for node in &function.nodes {
            search.visit(node, &prefix);
        }
    }
    let mut found: Vec<Missing> = search.found.into_values().collect();
    found.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.op.cmp(&b.op)));
    found
}

struct Search<'a> {
    registry: &'a Registry,
    functions: Functions<'a>,
    /// The gradients that the library has, by function.
    gradients: HashMap<&'a str, &'a str>,
    /// Functions that were found.
    seen: HashSet<&'a str>,
    /// Those of them whose bodies were not looked at yet.
    waiting: Vec<&'a FunctionDef>,
    found: BTreeMap<&'a str, Missing>,
}

impl<'a> Search<'a> {
    fn visit(&mut self, node: &'a NodeDef, prefix: &str) {
        self.call(&node.op);
        self.calls(&node.attrs);
        if let (SYMBOLIC_GRADIENT, Some(AttrValue::Func(func))) = (node.op.as_str(), node.attrs.get("f"))
            && let Some(gradient) = self.gradients.get(func.name.as_str()).copied()
        {
            self.call(gradient);
        }
        let op = node.op.as_str();
        if self.registry.get(op).is_some() || self.functions.expands(op, &node.attrs) {
            return;
        }
        let is_known = || self.registry.table().get(op).is_some();
        let first = || Missing { op: op.to_string(), count: 0, first: format!("{prefix}{}", node.name), is_known: is_known() };
        self.found.entry(op).or_insert_with(first).count += 1;
    }

    /// The functions that attributes name, but for those beginning with `_`, which are hints.
    fn calls(&mut self, attrs: &'a Attrs) {
        let mut open = vec![attrs];
        while let Some(attrs) = open.pop() {
            for (_, value) in attrs.iter().filter(|(name, _)| !name.starts_with('_')) {
                let funcs = match value {
                    AttrValue::Func(func) => std::slice::from_ref(func),
                    AttrValue::List(list) => &list.funcs,
                    _ => &[],
                };
                for func in funcs {
                    self.call(&func.name);
                    open.push(&func.attrs);
                }
            }
        }
    }

    fn call(&mut self, name: &str) {
        if let Some(function) = self.functions.find(name)
            && self.seen.insert(&function.signature.name)
        {
            self.waiting.push(function);
        }
    }
}

/// The nodes that are needed, in the graph's order.
fn reached<'a>(nodes: &'a [NodeDef], reach: &Reach<'_>) -> Vec<&'a NodeDef> {
    let Some(wanted) = reach.wanted else { return nodes.iter().collect() };
    let by_name: HashMap<&str, usize> = nodes.iter().enumerate().map(|(index, node)| (node.name.as_str(), index)).collect();
    let mut is_needed = vec![false; nodes.len()];
    // Nodes that are fed are not computed, nor is anything for them alone.
    let fed: HashSet<usize> = reach.fed.iter().filter_map(|name| by_name.get(node_of(name)).copied()).collect();
    let mut open: Vec<usize> = wanted.iter().filter_map(|name| by_name.get(node_of(name)).copied()).collect();
    while let Some(index) = open.pop() {
        if fed.contains(&index) || std::mem::replace(&mut is_needed[index], true) {
            continue;
        }
        open.extend(nodes[index].inputs.iter().filter_map(|input| by_name.get(node_of(input)).copied()));
    }
    nodes.iter().zip(is_needed).filter(|(_, is_needed)| *is_needed).map(|(node, _)| node).collect()
}

/// The node of an input, or of a tensor. Texts that are neither name no node.
fn node_of(text: &str) -> &str {
    match InputRef::parse(text) {
        Ok(InputRef::Data { node, .. } | InputRef::Control(node)) => node,
        Err(_) => text,
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_graph::{AttrList, FuncRef, Library, OpDef};

    use super::*;

    fn node(name: &str, op: &str, inputs: &[&str]) -> NodeDef {
        let inputs = inputs.iter().map(|input| input.to_string()).collect();
        NodeDef { name: name.to_string(), op: op.to_string(), inputs, ..NodeDef::default() }
    }

    fn function(name: &str, nodes: Vec<NodeDef>) -> FunctionDef {
        FunctionDef { signature: OpDef { name: name.to_string(), ..OpDef::default() }, nodes, ..FunctionDef::default() }
    }

    fn naming(node: NodeDef, attr: &str, function: &str) -> NodeDef {
        let func = FuncRef { name: function.to_string(), ..FuncRef::default() };
        let attrs = [(attr.to_string(), AttrValue::Func(func))].into_iter().collect();
        NodeDef { attrs, ..node }
    }

    fn registry() -> Registry {
        Registry::standard(std::sync::Arc::new(plimsoll_kernels::CpuKernels))
    }

    fn found(graph: &GraphDef, reach: &Reach<'_>) -> Vec<(String, usize, String, bool)> {
        missing(graph, &registry(), reach).into_iter().map(|m| (m.op, m.count, m.first, m.is_known)).collect()
    }

    #[test]
    fn functions_are_looked_into_once_and_only_what_a_run_needs_counts() {
        let call = |name: &str| naming(node(name, "PartitionedCall", &["x"]), "f", "outer");
        let nodes = vec![
            node("x", "Placeholder", &[]),
            node("lost", "Unbuilt", &["x"]),
            call("a"),
            call("b"),
            node("sum", "AddV2", &["a:0", "b", "^lost"]),
            node("other", "Elsewhere", &["sum"]),
        ];
        let branches = AttrList { funcs: vec![FuncRef { name: "inner".to_string(), ..FuncRef::default() }], ..AttrList::default() };
        let case = NodeDef {
            attrs: [("branches".to_string(), AttrValue::List(Box::new(branches)))].into_iter().collect(),
            ..node("c", "Case", &[])
        };
        let functions = vec![
            function("outer", vec![case, node("inner_call", "inner", &[]), naming(node("n", "Abort", &[]), "_hint", "hinted")]),
            function("inner", vec![node("u", "Unbuilt", &[]), node("ok", "Mul", &[])]),
            function("hinted", vec![node("h", "Hinted", &[])]),
            function("uncalled", vec![node("z", "Uncalled", &[])]),
        ];
        let graph = GraphDef { nodes, library: Library { functions, ..Library::default() }, ..GraphDef::default() };
        let of = |op: &str, count, first: &str, is_known| (op.to_string(), count, first.to_string(), is_known);
        let (abort, elsewhere) = (of("Abort", 1, "outer/n", true), of("Elsewhere", 1, "other", false));
        let everything = found(&graph, &Reach::default());
        assert_eq!(everything, [of("Unbuilt", 2, "lost", false), abort.clone(), elsewhere]);
        let (wanted, fed): (&[&str], &[&str]) = (&["sum:0"], &["lost:0"]);
        assert_eq!(found(&graph, &Reach { wanted: Some(wanted), fed }), [abort, of("Unbuilt", 1, "inner/u", false)]);
        assert_eq!(found(&graph, &Reach { wanted: Some(&["x", "nowhere", ":"]), fed: &[] }), []);
    }

    #[test]
    fn functions_that_call_each_other_end() {
        let again = |name: &str, other: &str| function(name, vec![node("n", other, &[])]);
        let library = Library { functions: vec![again("a", "b"), again("b", "a")], ..Library::default() };
        let graph = GraphDef { nodes: vec![node("start", "a", &[])], library, ..GraphDef::default() };
        assert_eq!(found(&graph, &Reach::default()), []);
    }
}
