//! A function's body, spelled for the place where it is put.

use std::collections::HashMap;

use plimsoll_base::{Error, Result};
use plimsoll_graph::{AttrValue, Attrs, AttrsExt, FuncRef, FunctionDef, OpTable};

/// A function's body as a call sees it.
pub(crate) struct Body<'a> {
    function: &'a FunctionDef,
    call: &'a str,
    /// The attributes that the call gives.
    given: &'a Attrs,
    /// What each argument is, tensor by tensor.
    arguments: HashMap<&'a str, Vec<String>>,
    /// For each node of the body, where its output arguments begin.
    outputs: HashMap<&'a str, HashMap<String, usize>>,
}

impl<'a> Body<'a> {
    pub fn new(ops: &OpTable, function: &'a FunctionDef, func: &'a FuncRef, call: &'a str, data: &[String]) -> Result<Body<'a>> {
        let given = &func.attrs;
        let mut arguments = HashMap::new();
        let mut next = data.iter();
        for arg in &function.signature.inputs {
            let count = match (&arg.type_list_attr, &arg.number_attr) {
                (list, _) if !list.is_empty() => given.list(list)?.types.len(),
                (_, number) if !number.is_empty() => usize::try_from(given.int(number)?).unwrap_or(0),
                _ => 1,
            };
            let tensors: Vec<String> = next.by_ref().take(count).cloned().collect();
            if tensors.len() != count {
                return Err(Error::invalid_argument(format!("'{}' takes more than {} arguments", func.name, data.len())));
            }
            arguments.insert(arg.name.as_str(), tensors);
        }
        if next.next().is_some() {
            return Err(Error::invalid_argument(format!("'{}' takes fewer than {} arguments", func.name, data.len())));
        }
        let mut body = Body { function, call, given, arguments, outputs: HashMap::new() };
        for node in &function.nodes {
            let mut attrs = body.attrs(&node.attrs)?;
            let starts = match ops.get(&node.op) {
                Some(op) => {
                    op.fill_defaults(&mut attrs).map_err(|error| error.at_node(&node.name))?;
                    let lengths = op.output_lengths(&attrs).map_err(|error| error.at_node(&node.name))?;
                    let starts = lengths.iter().scan(0, |next, length| {
                        let start = *next;
                        *next += length;
                        Some(start)
                    });
                    op.outputs.iter().zip(starts).map(|(arg, start)| (arg.name.clone(), start)).collect()
                }
                None => HashMap::new(),
            };
            body.outputs.insert(&node.name, starts);
        }
        Ok(body)
    }

    /// An input of a node of the body, as it is spelled outside.
    pub fn input(&self, text: &str) -> Result<String> {
        let unknown =
            || Error::invalid_argument(format!("'{}' in function '{}' names nothing", text.escape_debug(), self.function.signature.name));
        if let Some(node) = text.strip_prefix('^') {
            return Ok(format!("^{}/{node}", self.call));
        }
        let mut parts = text.split(':');
        let (first, second, third) = (parts.next().unwrap_or(""), parts.next(), parts.next());
        if let Some(tensors) = self.arguments.get(first) {
            let index = second.map_or(Ok(0), str::parse::<usize>).map_err(|_| unknown())?;
            return tensors.get(index).cloned().ok_or_else(unknown);
        }
        let starts = self.outputs.get(first).ok_or_else(unknown)?;
        let index = match (second, third) {
            (None, _) => 0,
            (Some(argument), third) => match starts.get(argument) {
                Some(start) => start + third.map_or(Ok(0), str::parse::<usize>).map_err(|_| unknown())?,
                None => argument.parse().map_err(|_| unknown())?,
            },
        };
        Ok(format!("{}/{first}:{index}", self.call))
    }

    /// Attributes with the function's placeholders filled in.
    pub fn attrs(&self, attrs: &Attrs) -> Result<Attrs> {
        let fill = |(name, value): (&String, &AttrValue)| {
            let value = match value {
                AttrValue::Placeholder(placeholder) => self
                    .given
                    .get(placeholder)
                    .cloned()
                    .ok_or_else(|| Error::invalid_argument(format!("the call gives no attribute '{placeholder}'")))?,
                other => other.clone(),
            };
            Ok((name.clone(), value))
        };
        attrs.iter().map(fill).collect()
    }

    /// The tensors that it gives.
    pub fn results(&self) -> Result<Vec<String>> {
        let source = |name: &String| {
            let missing = || Error::invalid_argument(format!("the function does not give '{name}'"));
            self.input(self.function.ret.get(name).ok_or_else(missing)?)
        };
        self.function.signature.outputs.iter().map(|output| source(&output.name)).collect()
    }

    /// Their types, as far as the call's attributes say them.
    pub fn result_types(&self) -> Result<Vec<i32>> {
        let number = |arg: &plimsoll_graph::ArgDef| match arg.type_attr.as_str() {
            "" => Ok(arg.data_type),
            attr => self.given.data_type(attr).map(|data_type| data_type.number()),
        };
        self.function.signature.outputs.iter().map(number).collect()
    }

    /// The nodes that run whatever is read, as control inputs.
    pub fn must_run(&self) -> Vec<String> {
        self.function.control_ret.values().map(|node| format!("^{}/{node}", self.call)).collect()
    }
}
