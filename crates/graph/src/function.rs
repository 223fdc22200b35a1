//! Functions and the library that holds them.

use std::collections::{BTreeMap, HashMap};

use crate::{AttrValue, Attrs, FuncRef, NodeDef, OpDef};

/// A function, as a file spells it. Inside the body data inputs are `arg` or `node:output:k`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FunctionDef {
    /// Name, arguments and results.
    pub signature: OpDef,
    /// The body.
    pub nodes: Vec<NodeDef>,
    /// For each result of the signature, the tensor that it is.
    pub ret: BTreeMap<String, String>,
    /// For each control output, the node that has to have run.
    pub control_ret: BTreeMap<String, String>,
    /// Attributes of the function.
    pub attrs: Attrs,
    /// Attributes of arguments, by position.
    pub arg_attrs: BTreeMap<u32, Attrs>,
    /// Which resource an argument is, by position.
    pub resource_arg_unique_id: BTreeMap<u32, u32>,
    /// Encoded fields of the FunctionDef message that have no place above; only carried along.
    pub carried: Vec<u8>,
}

/// The functions that a graph can call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Library {
    /// In the file's order.
    pub functions: Vec<FunctionDef>,
    /// `(function, gradient function)`.
    pub gradients: Vec<(String, String)>,
    /// `(gradient function, registered operation type)`.
    pub registered_gradients: Vec<(String, String)>,
}

impl Library {
    /// The function of that name.
    pub fn find(&self, name: &str) -> Option<&FunctionDef> {
        self.functions.iter().find(|function| function.signature.name == name)
    }
}

impl Library {
    /// The library without functions that nothing of `used` calls, directly or through others: `used` are nodes' operations and
    /// attributes.
    pub fn reachable<'a>(&self, used: impl Iterator<Item = (&'a str, &'a Attrs)>) -> Library {
        let is_used = self.called(used);
        let functions =
            self.functions.iter().zip(&is_used).filter(|(_, is_used)| **is_used).map(|(function, _)| function.clone()).collect();
        let gradients = self.gradients_of(&is_used);
        Library { functions, gradients, registered_gradients: self.registered_gradients.clone() }
    }

    /// Lets go of the functions that [`Library::reachable`] leaves out.
    pub(crate) fn retain_called<'a>(&mut self, used: impl Iterator<Item = (&'a str, &'a Attrs)>) {
        let is_used = self.called(used);
        self.gradients = self.gradients_of(&is_used);
        let mut is_used = is_used.into_iter();
        self.functions.retain(|_| is_used.next().unwrap_or(true));
        self.functions.shrink_to_fit();
    }

    /// For each function, whether `used` calls it, directly or through others.
    fn called<'a>(&self, used: impl Iterator<Item = (&'a str, &'a Attrs)>) -> Vec<bool> {
        let by_name = self.by_name();
        let gradients: HashMap<&str, &str> = self.gradients.iter().map(|(name, gradient)| (name.as_str(), gradient.as_str())).collect();
        let mut is_used = vec![false; self.functions.len()];
        let mut open: Vec<usize> = Vec::new();
        let mut note = |name: &str, open: &mut Vec<usize>| {
            for name in [Some(name), gradients.get(name).copied()].into_iter().flatten() {
                if let Some(&index) = by_name.get(name)
                    && !std::mem::replace(&mut is_used[index], true)
                {
                    open.push(index);
                }
            }
        };
        for (op, attrs) in used {
            note(op, &mut open);
            names(attrs, &mut |name| note(name, &mut open));
        }
        while let Some(index) = open.pop() {
            for node in &self.functions[index].nodes {
                note(&node.op, &mut open);
                names(&node.attrs, &mut |name| note(name, &mut open));
            }
        }
        is_used
    }

    /// The gradient functions of functions that are used.
    fn gradients_of(&self, is_used: &[bool]) -> Vec<(String, String)> {
        let by_name = self.by_name();
        let is_kept = |name: &str| by_name.get(name).is_some_and(|index| is_used[*index]);
        self.gradients.iter().filter(|(name, _)| is_kept(name)).cloned().collect()
    }

    /// The first function of each name.
    fn by_name(&self) -> HashMap<&str, usize> {
        self.functions.iter().enumerate().rev().map(|(index, function)| (function.signature.name.as_str(), index)).collect()
    }
}

/// The functions that attributes name, those in attributes of functions included.
fn names(attrs: &Attrs, note: &mut dyn FnMut(&str)) {
    let mut open: Vec<&Attrs> = vec![attrs];
    while let Some(attrs) = open.pop() {
        for value in attrs.values() {
            let funcs: &[FuncRef] = match value {
                AttrValue::Func(func) => std::slice::from_ref(func),
                AttrValue::List(list) => &list.funcs,
                _ => &[],
            };
            for func in funcs {
                note(&func.name);
                open.push(&func.attrs);
            }
        }
    }
}
