//! Functions and the library that holds them.

use std::collections::BTreeMap;

use crate::{Attrs, NodeDef, OpDef};

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
