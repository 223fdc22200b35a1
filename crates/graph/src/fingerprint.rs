//! The identity of a graph: a hash of everything that a plan depends on.

use std::fmt;
use std::str::FromStr;

use plimsoll_base::Error;
use sha2::{Digest, Sha256};

use crate::id::Id;
use crate::{AttrList, AttrValue, Attrs, FuncRef, Graph, HostTensor, NodeDef, PartialShape, TensorData};

/// The SHA-256 of a graph's nodes, edges, attributes, constants and functions. Graphs of one fingerprint compute the same. A file's
/// spelling of a constant does not count, nor do versions and fields that are only carried along.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

impl Graph {
    /// The fingerprint. It takes time by the bytes of the constants.
    pub fn fingerprint(&self) -> Fingerprint {
        let mut hash = Hash(Sha256::new());
        hash.number(self.nodes().len() as u64);
        for node in self.nodes().values() {
            hash.text(&node.name);
            hash.text(&node.op);
            hash.text(&node.device);
            hash.list(&node.inputs, |hash, input| {
                hash.number(input.node.index() as u64);
                hash.number(input.index.into());
            });
            hash.list(&node.controls, |hash, control| hash.number(control.index() as u64));
            hash.attrs(&node.attrs);
        }
        hash.list(&self.library.functions, |hash, function| {
            hash.text(&function.signature.name);
            hash.list(&function.signature.inputs, |hash, input| hash.text(&input.name));
            hash.list(&function.signature.outputs, |hash, output| hash.text(&output.name));
            hash.list(&function.nodes, Hash::node_def);
            for returned in [&function.ret, &function.control_ret] {
                hash.number(returned.len() as u64);
                returned.iter().for_each(|(name, tensor)| {
                    hash.text(name);
                    hash.text(tensor);
                });
            }
            hash.attrs(&function.attrs);
        });
        Fingerprint(hash.0.finalize().into())
    }
}

/// Every value is preceded by its length or its kind, so that no two sequences of values are one sequence of bytes.
struct Hash(Sha256);

impl Hash {
    fn number(&mut self, number: u64) {
        self.0.update(number.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.update(bytes);
    }

    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    fn list<T>(&mut self, items: &[T], mut item: impl FnMut(&mut Hash, &T)) {
        self.number(items.len() as u64);
        items.iter().for_each(|value| item(self, value));
    }

    fn node_def(&mut self, node: &NodeDef) {
        self.text(&node.name);
        self.text(&node.op);
        self.text(&node.device);
        self.list(&node.inputs, |hash, input| hash.text(input));
        self.attrs(&node.attrs);
    }

    fn attrs(&mut self, attrs: &Attrs) {
        self.number(attrs.len() as u64);
        for (name, value) in attrs {
            self.text(name);
            self.attr(value);
        }
    }

    fn attr(&mut self, value: &AttrValue) {
        self.text(value.kind());
        match value {
            AttrValue::Bytes(bytes) => self.bytes(bytes),
            AttrValue::Int(int) => self.number(*int as u64),
            AttrValue::Float(float) => self.number(float.to_bits().into()),
            AttrValue::Bool(bool) => self.number((*bool).into()),
            AttrValue::Type(number) => self.number(*number as u64),
            AttrValue::Shape(shape) => self.shape(shape),
            AttrValue::Tensor(tensor) => self.tensor(tensor),
            AttrValue::Placeholder(name) => self.text(name),
            AttrValue::Func(func) => self.func(func),
            AttrValue::List(list) => {
                let AttrList { bytes, ints, floats, bools, types, shapes, tensors, funcs } = &**list;
                self.list(bytes, |hash, bytes| hash.bytes(bytes));
                self.list(ints, |hash, int| hash.number(*int as u64));
                self.list(floats, |hash, float| hash.number(float.to_bits().into()));
                self.list(bools, |hash, bool| hash.number((*bool).into()));
                self.list(types, |hash, number| hash.number(*number as u64));
                self.list(shapes, Hash::shape);
                self.list(tensors, Hash::tensor);
                self.list(funcs, Hash::func);
            }
            AttrValue::Unset => {}
            AttrValue::Opaque(encoded) => self.bytes(encoded),
        }
    }

    fn func(&mut self, func: &FuncRef) {
        self.text(&func.name);
        self.attrs(&func.attrs);
    }

    fn shape(&mut self, shape: &PartialShape) {
        match &shape.0 {
            None => self.number(u64::MAX),
            Some(dims) => self.list(dims, |hash, dim| hash.number(dim.unwrap_or(u64::MAX))),
        }
    }

    fn tensor(&mut self, tensor: &HostTensor) {
        self.number(tensor.data_type().number() as u64);
        self.list(tensor.shape().dims(), |hash, dim| hash.number(*dim));
        match tensor.data() {
            TensorData::Strings(strings) => self.list(strings, |hash, string| hash.bytes(string)),
            TensorData::Opaque(encoded) => self.bytes(encoded),
            TensorData::Repeated(leading) => self.bytes(leading),
            // Equal tensors have one fingerprint, however they are held.
            TensorData::Panels(_) => tensor.dense().iter().for_each(|dense| self.elements(dense)),
            TensorData::Dense(_) => self.elements(tensor),
        }
    }

    fn elements(&mut self, tensor: &HostTensor) {
        let bytes = tensor.bytes().unwrap_or_default();
        self.bytes(tensor.data_type().size().map_or(bytes, |size| without_repeats(bytes, size)));
    }
}

/// Elements of `size` bytes without those at the end that repeat the one before.
fn without_repeats(elements: &[u8], size: usize) -> &[u8] {
    let mut len = elements.len();
    while len >= 2 * size && elements[len - 2 * size..len - size] == elements[len - size..len] {
        len -= size;
    }
    &elements[..len]
}

/// In hexadecimal digits.
impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Fingerprint {
    type Err = Error;

    fn from_str(text: &str) -> Result<Fingerprint, Error> {
        let wrong = || Error::invalid_argument("a fingerprint is 64 hexadecimal digits");
        let digits: Vec<u8> =
            text.chars().map(|digit| digit.to_digit(16).map(|digit| digit as u8)).collect::<Option<_>>().ok_or_else(wrong)?;
        let bytes: Vec<u8> = digits.chunks(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit)).collect();
        if digits.len() != 64 {
            return Err(wrong());
        }
        Ok(Fingerprint(bytes.try_into().map_err(|_| wrong())?))
    }
}

impl serde::Serialize for Fingerprint {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Fingerprint {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Fingerprint, D::Error> {
        let text = <std::borrow::Cow<'de, str> as serde::Deserialize>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_base::DataType;

    use super::*;
    use crate::{Node, Output, Shape};

    fn graph(value: HostTensor) -> Graph {
        let mut graph = Graph::new();
        let node = |name: &str, op: &str| Node {
            name: name.into(),
            op: op.into(),
            inputs: Vec::new(),
            controls: Vec::new(),
            device: String::new(),
            attrs: Attrs::new(),
            carried: Vec::new(),
        };
        let mut constant = node("a", "Const");
        constant.attrs.insert("value".into(), AttrValue::Tensor(value));
        let a = graph.add(constant).unwrap();
        graph.add(Node { inputs: vec![Output { node: a, index: 0 }], ..node("b", "Neg") }).unwrap();
        graph
    }

    #[test]
    fn depends_on_what_is_computed_and_not_on_how_constants_are_spelled() {
        let splat = HostTensor::from_leading(DataType::Float, Shape::from([4]), &1f32.to_le_bytes()).unwrap();
        let dense = HostTensor::from_slice([4], &[1f32; 4]).unwrap();
        let one = graph(splat).fingerprint();
        assert_eq!(one, graph(dense).fingerprint());
        assert_eq!(one.to_string().parse::<Fingerprint>().unwrap(), one);
        let mut others = vec![graph(HostTensor::from_slice([4], &[1f32, 1.0, 1.0, 2.0]).unwrap()), graph(HostTensor::scalar(1f32))];
        let changes: [fn(&mut Node); 5] = [
            |node| node.op = "Abs".into(),
            |node| node.device = "/cpu:1".into(),
            |node| node.inputs[0].index = 1,
            |node| node.controls = vec![node.inputs[0].node],
            |node| _ = node.attrs.insert("T".into(), AttrValue::Int(1)),
        ];
        for change in changes {
            let mut other = graph(HostTensor::from_slice([4], &[1f32; 4]).unwrap());
            change(other.node_mut(other.find("b").unwrap()));
            others.push(other);
        }
        let mut seen = vec![one];
        for other in others {
            let fingerprint = other.fingerprint();
            assert!(!seen.contains(&fingerprint), "{other:?}");
            seen.push(fingerprint);
        }
        for wrong in ["", "0", "g".repeat(64).as_str(), "0".repeat(65).as_str(), "é".repeat(32).as_str()] {
            assert!(wrong.parse::<Fingerprint>().is_err());
        }
    }
}
