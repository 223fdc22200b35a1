//! The nodes of a function's body that run although nothing reads them.
//!
//! Source of the rule: TensorFlow's `PruneFunctionGraph`. Where its runtime calls a function, operations with effects run.

use std::collections::HashMap;

use plimsoll_graph::{FunctionDef, NodeDef};
use plimsoll_ops::{Lower, Registry};

use super::functions::Functions;

/// Positions of nodes in a body.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Effects {
    /// Nodes that run whenever the body does.
    pub always: Vec<usize>,
    /// Nodes behind a Switch, which may be dead.
    pub maybe: Vec<usize>,
}

impl Effects {
    /// The nodes with effects outside of loops. Those in a loop run if an Exit needs them.
    pub fn of(function: &FunctionDef, registry: &Registry, functions: &Functions<'_>) -> Effects {
        let nodes = &function.nodes;
        let found: Vec<usize> = (0..nodes.len()).filter(|at| has_effect(&nodes[*at].op, registry, functions)).collect();
        if found.is_empty() {
            return Effects::default();
        }
        let readers = readers(nodes);
        let is = |ops: &'static [&'static str]| move |node: &NodeDef| ops.contains(&node.op.as_str());
        let in_loop = behind(nodes, &readers, is(&["Enter", "RefEnter"]), is(&["Exit", "RefExit"]));
        let in_branch = behind(nodes, &readers, is(&["Switch", "RefSwitch"]), is(&["Merge", "RefMerge"]));
        let (maybe, always) = found.into_iter().filter(|at| !in_loop[*at]).partition(|at| in_branch[*at]);
        Effects { always, maybe }
    }
}

/// Whether an operation changes more than its outputs. Reading a variable does not, nor does a new list.
pub(super) fn has_effect(op: &str, registry: &Registry, functions: &Functions<'_>) -> bool {
    let lower = registry.get(op).map(|rules| rules.lower);
    let Some(op) = registry.table().get(op) else {
        return functions.find(op).is_some_and(|function| function.signature.is_stateful);
    };
    let only_gives = matches!(
        lower,
        Some(Lower::Variable | Lower::ReadVariable | Lower::IsInitialized | Lower::Stateful(_) | Lower::List(_) | Lower::Nothing)
    );
    op.is_stateful && !only_gives
}

/// For each node, those that it is an input of.
fn readers(nodes: &[NodeDef]) -> Vec<Vec<usize>> {
    let by_name: HashMap<&str, usize> = nodes.iter().enumerate().map(|(at, node)| (node.name.as_str(), at)).collect();
    let mut readers = vec![Vec::new(); nodes.len()];
    for (at, node) in nodes.iter().enumerate() {
        for input in &node.inputs {
            let name = input.strip_prefix('^').unwrap_or(input).split(':').next().unwrap_or_default();
            if let Some(source) = by_name.get(name) {
                readers[*source].push(at);
            }
        }
    }
    readers
}

/// Which nodes are reached from those that begin, up to those that end.
fn behind(nodes: &[NodeDef], readers: &[Vec<usize>], begins: impl Fn(&NodeDef) -> bool, ends: impl Fn(&NodeDef) -> bool) -> Vec<bool> {
    let mut open: Vec<usize> = (0..nodes.len()).filter(|at| begins(&nodes[*at])).collect();
    let mut is_behind = vec![false; nodes.len()];
    while let Some(at) = open.pop() {
        if !std::mem::replace(&mut is_behind[at], true) {
            open.extend(readers[at].iter().copied().filter(|reader| !ends(&nodes[*reader])));
        }
    }
    is_behind
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use plimsoll_graph::Library;
    use plimsoll_kernels::CpuKernels;

    use super::*;

    #[test]
    fn effects_run_outside_of_loops_and_those_in_branches_may_be_dead() {
        let node = |(name, op, inputs): (&str, &str, &str)| NodeDef {
            name: name.to_string(),
            op: op.to_string(),
            inputs: inputs.split_whitespace().map(str::to_string).collect(),
            ..NodeDef::default()
        };
        let nodes = [
            ("one", "Const", ""),
            ("read", "ReadVariableOp", "v"),
            ("add", "AssignAddVariableOp", "v one:output:0"),
            ("enter", "Enter", "one:output:0"),
            ("again", "AssignAddVariableOp", "w enter:output:0"),
            ("exit", "Exit", "again:0"),
            ("last", "AssignVariableOp", "v exit:output:0"),
            ("fork", "Switch", "one:output:0 p"),
            ("taken", "AssignAddVariableOp", "v fork:output_true:0"),
            ("join", "Merge", "fork:output_false:0 one:output:0 ^taken"),
            ("after", "AssignSubVariableOp", "v join:output:0"),
            ("random", "RandomUniform", "shape"),
            ("call", "changes", "v"),
            ("pure", "computes", "v"),
        ];
        let function = FunctionDef { nodes: nodes.into_iter().map(node).collect(), ..FunctionDef::default() };
        let named = |name: &str, is_stateful: bool| {
            let signature = plimsoll_graph::OpDef { name: name.to_string(), is_stateful, ..Default::default() };
            FunctionDef { signature, ..FunctionDef::default() }
        };
        let library = Library { functions: vec![named("changes", true), named("computes", false)], ..Library::default() };
        let registry = Registry::standard(Arc::new(CpuKernels));
        let effects = Effects::of(&function, &registry, &Functions::of(&library));
        assert_eq!(effects, Effects { always: vec![2, 6, 10, 12], maybe: vec![8] });
        assert_eq!(Effects::of(&FunctionDef::default(), &registry, &Functions::of(&library)), Effects::default());
    }
}
