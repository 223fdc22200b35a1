//! The functions of a library, and which nodes a body takes the place of.

use std::collections::HashMap;

use plimsoll_graph::{Attrs, AttrsExt, FuncRef, FunctionDef, Library};

/// The functions of a library by name. Of several of one name the first counts.
pub(crate) struct Functions<'a>(HashMap<&'a str, &'a FunctionDef>);

impl<'a> Functions<'a> {
    pub fn of(library: &'a Library) -> Functions<'a> {
        let mut functions = HashMap::with_capacity(library.functions.len());
        for function in &library.functions {
            functions.entry(function.signature.name.as_str()).or_insert(function);
        }
        Functions(functions)
    }

    pub fn find(&self, name: &str) -> Option<&'a FunctionDef> {
        self.0.get(name).copied()
    }

    /// Whether a node is replaced by one or more bodies.
    pub fn expands(&self, op: &str, attrs: &Attrs) -> bool {
        is_branch(op) || is_loop(op) || if is_partitioned(op) { attrs.func("f").is_ok() } else { self.0.contains_key(op) }
    }

    /// The function that a node calls, if it is a call.
    pub fn called(&self, op: &str, attrs: &Attrs) -> Option<FuncRef> {
        if is_partitioned(op) {
            return attrs.func("f").ok().cloned();
        }
        self.find(op).map(|_| FuncRef { name: op.to_string(), attrs: attrs.clone() })
    }
}

pub(crate) fn is_partitioned(op: &str) -> bool {
    matches!(op, "PartitionedCall" | "StatefulPartitionedCall")
}

pub(super) fn is_branch(op: &str) -> bool {
    matches!(op, "If" | "StatelessIf" | "Case" | "StatelessCase")
}

pub(super) fn is_loop(op: &str) -> bool {
    matches!(op, "While" | "StatelessWhile")
}

/// The functions of an If, a Case or a While, by the names of their branches.
///
/// # Errors
/// INVALID_ARGUMENT where the attributes do not name them.
pub(super) fn branches(op: &str, attrs: &Attrs) -> plimsoll_base::Result<Vec<(String, FuncRef)>> {
    if matches!(op, "If" | "StatelessIf") {
        let branch = |side: &str| Ok((side.to_string(), attrs.func(&format!("{side}_branch"))?.clone()));
        return ["then", "else"].into_iter().map(branch).collect();
    }
    if is_loop(op) {
        let part = |part: &str| Ok((part.to_string(), attrs.func(part)?.clone()));
        return ["cond", "body"].into_iter().map(part).collect();
    }
    Ok(attrs.list("branches")?.funcs.iter().enumerate().map(|(index, func)| (index.to_string(), func.clone())).collect())
}
