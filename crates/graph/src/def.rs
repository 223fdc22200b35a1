//! Graphs as files and builders spell them: names, not ids.

use std::fmt;

use plimsoll_base::{Error, Result};

use crate::{Attrs, Library};

/// A node as it is spelled in a GraphDef or a function body.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeDef {
    /// The node's name, unique in its graph.
    pub name: String,
    /// The operation's name.
    pub op: String,
    /// `name`, `name:k` or `^name`; inside functions `arg` or `node:output:k`.
    pub inputs: Vec<String>,
    /// The device asked for, in any of TensorFlow's spellings; empty for none.
    pub device: String,
    /// Attributes.
    pub attrs: Attrs,
    /// Encoded fields of the NodeDef message that have no place above; only carried along.
    pub carried: Vec<u8>,
}

/// Producer and consumer versions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Versions {
    /// The version of the program that wrote the graph.
    pub producer: i32,
    /// The lowest version that may read it.
    pub min_consumer: i32,
    /// Versions that may not.
    pub bad_consumers: Vec<i32>,
}

/// A graph as a file spells it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GraphDef {
    /// Nodes, in the file's order.
    pub nodes: Vec<NodeDef>,
    /// Functions.
    pub library: Library,
    /// Versions.
    pub versions: Versions,
    /// Encoded fields of the GraphDef message that have no place above; only carried along.
    pub carried: Vec<u8>,
}

/// An entry of [`NodeDef::inputs`], taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputRef<'a> {
    /// Output `index` of a node.
    Data {
        /// The node's name.
        node: &'a str,
        /// Which of its outputs.
        index: u32,
    },
    /// The node has to have run.
    Control(&'a str),
}

impl<'a> InputRef<'a> {
    /// Takes `name`, `name:k` or `^name` apart.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where the text is none of these.
    pub fn parse(text: &'a str) -> Result<InputRef<'a>> {
        if let Some(node) = text.strip_prefix('^') {
            return if node.is_empty() { Err(malformed(text)) } else { Ok(InputRef::Control(node)) };
        }
        let (node, index) = split_index(text)?;
        Ok(InputRef::Data { node, index })
    }
}

/// The name of a tensor: a node and one of its outputs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TensorName {
    /// The node's name.
    pub node: String,
    /// Which of its outputs.
    pub index: u32,
}

impl TensorName {
    /// Takes `name` (output 0) or `name:k` apart.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where the text is neither.
    pub fn parse(text: &str) -> Result<TensorName> {
        let (node, index) = split_index(text)?;
        Ok(TensorName { node: node.to_string(), index })
    }
}

impl fmt::Display for TensorName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.node, self.index)
    }
}

fn split_index(text: &str) -> Result<(&str, u32)> {
    let (node, index) = match text.rsplit_once(':') {
        None => (text, 0),
        Some((node, digits)) => (node, digits.parse().map_err(|_| malformed(text))?),
    };
    if node.is_empty() || node.contains(':') {
        return Err(malformed(text));
    }
    Ok((node, index))
}

fn malformed(text: &str) -> Error {
    Error::invalid_argument(format!("'{}' is not a tensor name: write node, node:k or ^node", text.escape_debug()))
}

/// Whether `name` may name a node: a letter, digit, `_` or `.` first, then also `/`, `>`, `\`, `-`.
pub(crate) fn is_node_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    let first = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_');
    bytes.next().is_some_and(first) && bytes.all(|byte| first(byte) || matches!(byte, b'/' | b'>' | b'\\' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_inputs_apart() {
        assert_eq!(InputRef::parse("a/b").unwrap(), InputRef::Data { node: "a/b", index: 0 });
        assert_eq!(InputRef::parse("a:2").unwrap(), InputRef::Data { node: "a", index: 2 });
        assert_eq!(InputRef::parse("^a").unwrap(), InputRef::Control("a"));
        for text in ["", "^", ":1", "a:", "a:x", "a:-1", "a:b:1", "a:99999999999"] {
            assert!(InputRef::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn node_names_follow_tensorflow() {
        for name in ["a", "A1", ".x", "0", "a/b>c\\d-e_f.g", "_Arg"] {
            assert!(is_node_name(name), "{name}");
        }
        for name in ["", "-a", "/a", "a b", "a:0", "ä", "^a"] {
            assert!(!is_node_name(name), "{name}");
        }
    }
}
