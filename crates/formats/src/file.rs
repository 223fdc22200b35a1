//! A whole file as a message: binary or text, told apart by its contents.

use plimsoll_base::{Error, Result};
use plimsoll_graph::GraphDef;

use crate::flaw::Flaw;
use crate::message::{Message, decode, encode};
use crate::schema::Schema;
use crate::text;
use crate::wire::Reader;

/// How a message is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Protobuf's wire form (`.pb`).
    Binary,
    /// Protobuf's text form (`.pbtxt`).
    Text,
}

impl Format {
    /// The format that `bytes` look like. Text is UTF-8 without control characters other than blanks. An encoded message of more
    /// than a few bytes nearly always has some, and readers here try the other form before they give up.
    pub fn of(bytes: &[u8]) -> Format {
        let control = |byte: &u8| *byte < b' ' && !matches!(byte, b'\t' | b'\n' | b'\r' | 0x0b | 0x0c) || *byte == 0x7f;
        if bytes.iter().any(control) || std::str::from_utf8(bytes).is_err() { Format::Binary } else { Format::Text }
    }
}

/// Reads a GraphDef, binary or text.
///
/// # Errors
/// DATA_LOSS where the bytes are no message, INVALID_ARGUMENT where text cannot be read or a value makes no sense. With the path of
/// fields, the byte or line, and the node, as far as they are known.
pub fn read_graph_def(bytes: &[u8]) -> Result<GraphDef> {
    read("GraphDef", bytes)
}

/// A GraphDef in protobuf's wire form.
pub fn write_graph_def(graph: &GraphDef) -> Vec<u8> {
    encode(graph)
}

/// A GraphDef in protobuf's text form.
pub fn print_graph_def(graph: &GraphDef) -> String {
    print("GraphDef", graph)
}

pub(crate) fn read<M: Message>(message: &str, bytes: &[u8]) -> Result<M> {
    let binary = || decode(Reader::of_file(bytes));
    let read = match (Format::of(bytes), std::str::from_utf8(bytes)) {
        (Format::Text, Ok(text)) => read_text(message, text).or_else(|flaw| binary().map_err(|_| flaw)),
        _ => binary(),
    };
    read.map_err(|flaw| foreign(bytes).unwrap_or_else(|| Error::from(flaw).context(format!("this is not a {message}"))))
}

fn read_text<M: Message>(message: &str, text: &str) -> Result<M, Flaw> {
    let schema = Schema::tensorflow();
    decode(Reader::of_bytes(&text::parse(&schema, root(&schema, message), text)?))
}

pub(crate) fn print<M: Message>(name: &str, message: &M) -> String {
    let schema = Schema::tensorflow();
    // Everything that we encode decodes. Only carried bytes that were never read from a file could be no message.
    text::print(&schema, root(&schema, name), &encode(message)).unwrap_or_default()
}

fn root(schema: &Schema, message: &str) -> usize {
    schema.message(message).expect("the names of root messages are ours")
}

/// The error for files of other kinds, by their first bytes, with the tool that turns them into a kind that is read here.
fn foreign(bytes: &[u8]) -> Option<Error> {
    let (kind, remedy) = match bytes {
        [b'P', b'K', 3, 4, ..] => (
            "a zip archive, as .keras files are",
            "python -c \"import keras; keras.saving.load_model('MODEL.keras').export('MODEL')\" writes a SavedModel folder",
        ),
        [0x89, b'H', b'D', b'F', ..] => {
            ("an HDF5 file", "python -c \"import keras; keras.saving.load_model('MODEL.h5').export('MODEL')\" writes a SavedModel folder")
        }
        [_, _, _, _, b'T', b'F', b'L', b'3', ..] => ("a TensorFlow Lite model", "give the SavedModel folder that it was converted from"),
        [0x93, b'N', b'U', b'M', b'P', b'Y', ..] => ("a numpy array", "arrays are fed, with --feed NAME=FILE.npy"),
        _ => return None,
    };
    Some(Error::invalid_argument(format!("this is {kind}, not a graph")).with_remedy(remedy))
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_graph::{AttrValue, HostTensor, NodeDef};

    fn graph() -> GraphDef {
        let value = AttrValue::Tensor(HostTensor::scalar(1.5f32));
        let node = NodeDef { name: "c".into(), op: "Const".into(), attrs: [("value".to_string(), value)].into(), ..NodeDef::default() };
        GraphDef { nodes: vec![node], ..GraphDef::default() }
    }

    #[test]
    fn binary_and_text_are_told_apart() {
        let graph = graph();
        let (binary, text) = (write_graph_def(&graph), print_graph_def(&graph));
        assert_eq!((Format::of(&binary), Format::of(text.as_bytes())), (Format::Binary, Format::Text));
        assert_eq!(read_graph_def(&binary).unwrap(), graph);
        assert_eq!(read_graph_def(text.as_bytes()).unwrap(), graph);
        assert_eq!(read_graph_def(b"").unwrap(), GraphDef::default());
        // node { name: 32 letters }: all bytes are printable.
        let bytes = [b"\n\"\n ", &[b'a'; 32][..]].concat();
        assert_eq!(read_graph_def(&bytes).unwrap().nodes[0].name.len(), 32);
    }

    #[test]
    fn other_kinds_of_files_are_named() {
        let error = read_graph_def(b"PK\x03\x04rest").unwrap_err();
        assert!(error.remedy().is_some_and(|remedy| remedy.contains("export")), "{error}");
    }

    #[test]
    fn a_flaw_in_text_names_the_node_too() {
        let error =
            read_graph_def(b"node { name: 'n' attr { key: 'v' value { tensor { dtype: DT_FLOAT tensor_content: 'abc' } } } }").unwrap_err();
        assert_eq!(
            error.to_string(),
            "INVALID_ARGUMENT: this is not a GraphDef: node[0].attr[\"v\"].tensor.tensor_content: a float tensor of shape [] takes 4 bytes, not 3 {{node n}}"
        );
    }
}
