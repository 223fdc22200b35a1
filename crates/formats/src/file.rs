//! A whole file as a message: binary or text, told apart by its contents.

use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};

use plimsoll_base::{Error, Result};
use plimsoll_graph::GraphDef;

use crate::flaw::Flaw;
use crate::foreign;
use crate::message::{Message, decode, encode};
use crate::schema::Schema;
use crate::text;
use crate::wire::{Reader, read_varint};

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

/// Reads a binary GraphDef node by node, so that its constants are never in memory twice. None where the file is something else or
/// has a flaw: reading it as a whole says what.
///
/// # Errors
/// The file system's error.
pub fn stream_graph_def(file: &mut std::fs::File) -> std::io::Result<Option<GraphDef>> {
    let Some(fields) = scan(&mut BufReader::new(&mut *file))? else { return Ok(None) };
    let (mut graph, mut bytes) = (GraphDef::default(), Vec::new());
    file.seek(SeekFrom::Start(0))?;
    let mut file = BufReader::with_capacity(256 << 10, file);
    for length in fields {
        bytes.resize(length, 0);
        file.read_exact(&mut bytes)?;
        if graph.merge(Reader::of_bytes(&bytes)).is_err() {
            return Ok(None);
        }
    }
    Ok(Some(graph))
}

/// The lengths of the fields of a binary GraphDef, one behind the other; none where that cannot be what the file holds.
fn scan(file: &mut BufReader<&mut std::fs::File>) -> std::io::Result<Option<Vec<usize>>> {
    let length = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(0))?;
    let (mut fields, mut at, mut filled_at) = (Vec::new(), 0u64, None);
    while at < length {
        let head = file.fill_buf()?;
        let Some((tag, taken)) = read_varint(head) else { return Ok(None) };
        let (value, more) = match read_varint(&head[taken..]) {
            Some(value) => value,
            // A number may be cut by the end of the buffer: read on with a full one.
            None if head.len() < 20 && filled_at != Some(at) => {
                filled_at = Some(at);
                file.seek(SeekFrom::Start(at))?;
                continue;
            }
            None => return Ok(None),
        };
        // Nodes, the library, versions, the version of old; whatever else this is, it is no graph.
        let size = match tag {
            0x0a | 0x12 | 0x22 => (taken + more) as u64 + value.min(length),
            0x18 => (taken + more) as u64,
            _ => return Ok(None),
        };
        at += size;
        if at > length {
            return Ok(None);
        }
        fields.push(size as usize);
        file.seek_relative(size as i64)?;
    }
    Ok(Some(fields))
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
    read.map_err(|flaw| match foreign::check(bytes) {
        Err(error) => error,
        Ok(()) => Error::from(flaw).context(format!("this is not a {message}")),
    })
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
    fn a_graph_is_read_node_by_node() {
        let path = std::env::temp_dir().join(format!("plimsoll-stream-{}.pb", std::process::id()));
        let streamed = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            stream_graph_def(&mut std::fs::File::open(&path).unwrap()).unwrap()
        };
        // Fields begin at every place of the reader's buffer of 8 KiB.
        let value = AttrValue::Tensor(HostTensor::from_slice([5000u64], &[1u8; 5000]).unwrap());
        let node = |index: usize| NodeDef {
            name: format!("{}{index}", "n".repeat(index % 37)),
            op: "Const".into(),
            attrs: if index.is_multiple_of(3) { [("value".to_string(), value.clone())].into() } else { Default::default() },
            ..NodeDef::default()
        };
        let graph = GraphDef {
            nodes: (0..3000).map(node).collect(),
            versions: plimsoll_graph::Versions { producer: 9, ..Default::default() },
            ..GraphDef::default()
        };
        let bytes = write_graph_def(&graph);
        assert!(streamed(&bytes) == Some(graph));
        assert!(streamed(&bytes[..bytes.len() - 1]).is_none());
        assert!(streamed(b"node { name: 'a' op: 'NoOp' }").is_none());
        assert!(streamed(b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01").is_none());
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn other_kinds_of_files_are_named() {
        let error = read_graph_def(b"PK\x03\x04rest").unwrap_err();
        assert!(error.remedy().is_some_and(|remedy| remedy.contains("unpack")), "{error}");
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
