//! GraphDef and its parts: nodes, functions, signatures of operations.

use std::collections::BTreeMap;

use plimsoll_graph::{ArgDef, AttrDef, AttrsPool, FunctionDef, GraphDef, Library, NodeDef, OpDef, Versions};

use crate::attr_value::ArgAttrs;
use crate::flaw::Found;
use crate::message::{Message, Value, message};
use crate::wire::{Field, Reader, put_message};

message! { impl Versions { 1 producer "producer", 2 min_consumer "min_consumer", 3 bad_consumers "bad_consumers", } }
message! { impl Library { 1 functions "function", 2 gradients "gradient", 3 registered_gradients "registered_gradients", } }
message! { impl (String, String) { 1 0 "0", 2 1 "1", } }
message! { impl ArgDef {
    1 name "name", 3 data_type "type", 4 type_attr "type_attr", 5 number_attr "number_attr", 6 type_list_attr "type_list_attr", 16 is_ref "is_ref",
} carried }

impl Message for GraphDef {
    fn merge(&mut self, fields: Reader<'_>) -> Found<()> {
        let mut pool = AttrsPool::default();
        for field in fields {
            let field = field?;
            match field.number {
                1 => absorb_node(&mut self.nodes, &field, &mut pool).map_err(|flaw| flaw.within("node"))?,
                2 => {
                    self.library.absorb(&field).map_err(|flaw| flaw.within("library"))?;
                    carry_unknown(&field, 1..=3, &mut self.carried)?;
                }
                4 => {
                    self.versions.absorb(&field).map_err(|flaw| flaw.within("versions"))?;
                    carry_unknown(&field, 1..=3, &mut self.carried)?;
                }
                _ => field.put(&mut self.carried),
            }
        }
        Ok(())
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.nodes.put(out, 1);
        if !self.library.is_blank() {
            self.library.put(out, 2);
        }
        if !self.versions.is_blank() {
            self.versions.put(out, 4);
        }
        out.extend_from_slice(&self.carried);
    }
}

/// Keeps the fields of a message whose struct has no room for unknown ones. The message around it carries them, as a second
/// occurrence of the field, which every reader merges with the first. A message that is there but empty is kept that way.
fn carry_unknown(field: &Field<'_>, known: std::ops::RangeInclusive<u32>, carried: &mut Vec<u8>) -> Found<()> {
    let (mut unknown, fields) = (Vec::new(), field.message()?);
    let empty = fields.rest().is_empty();
    for inner in fields {
        let inner = inner?;
        if !known.contains(&inner.number) {
            inner.put(&mut unknown);
        }
    }
    if empty || !unknown.is_empty() {
        put_message(carried, field.number, |out| out.extend_from_slice(&unknown));
    }
    Ok(())
}

impl Message for NodeDef {
    fn merge(&mut self, fields: Reader<'_>) -> Found<()> {
        for field in fields {
            let taken = field.and_then(|field| match field.number {
                1 => self.name.absorb(&field).map_err(|flaw| flaw.within("name")),
                2 => self.op.absorb(&field).map_err(|flaw| flaw.within("op")),
                3 => self.inputs.absorb(&field).map_err(|flaw| flaw.within("input")),
                4 => self.device.absorb(&field).map_err(|flaw| flaw.within("device")),
                5 => self.attrs.absorb(&field).map_err(|flaw| flaw.within("attr")),
                _ => {
                    field.put(&mut self.carried);
                    Ok(())
                }
            });
            taken.map_err(|flaw| flaw.at_node(&self.name))?;
        }
        Ok(())
    }

    fn write(&self, out: &mut Vec<u8>) {
        for (number, text) in [(1, &self.name), (2, &self.op)] {
            if !text.is_empty() {
                text.put(out, number);
            }
        }
        self.inputs.put(out, 3);
        if !self.device.is_empty() {
            self.device.put(out, 4);
        }
        self.attrs.put(out, 5);
        out.extend_from_slice(&self.carried);
    }
}

/// Takes in a node. It shares attributes with those before.
fn absorb_node(nodes: &mut Vec<NodeDef>, field: &Field<'_>, pool: &mut AttrsPool) -> Found<()> {
    nodes.absorb(field)?;
    nodes.last_mut().into_iter().for_each(|node| pool.share(&mut node.attrs));
    Ok(())
}

impl Message for FunctionDef {
    fn merge(&mut self, fields: Reader<'_>) -> Found<()> {
        let mut pool = AttrsPool::default();
        for field in fields {
            let field = field?;
            match field.number {
                1 => self.signature.absorb(&field).map_err(|flaw| flaw.within("signature"))?,
                3 => absorb_node(&mut self.nodes, &field, &mut pool).map_err(|flaw| flaw.within("node_def"))?,
                4 => self.ret.absorb(&field).map_err(|flaw| flaw.within("ret"))?,
                5 => self.attrs.absorb(&field).map_err(|flaw| flaw.within("attr"))?,
                6 => self.control_ret.absorb(&field).map_err(|flaw| flaw.within("control_ret"))?,
                7 => {
                    let mut arg_attrs: BTreeMap<u32, ArgAttrs> = BTreeMap::new();
                    arg_attrs.absorb(&field).map_err(|flaw| flaw.within("arg_attr"))?;
                    self.arg_attrs.extend(arg_attrs.into_iter().map(|(position, ArgAttrs(attrs))| (position, attrs)));
                }
                8 => self.resource_arg_unique_id.absorb(&field).map_err(|flaw| flaw.within("resource_arg_unique_id"))?,
                _ => field.put(&mut self.carried),
            }
        }
        self.nodes.shrink_to_fit();
        Ok(())
    }

    fn write(&self, out: &mut Vec<u8>) {
        if !self.signature.is_blank() {
            self.signature.put(out, 1);
        }
        self.nodes.put(out, 3);
        self.ret.put(out, 4);
        self.attrs.put(out, 5);
        self.control_ret.put(out, 6);
        for (position, attrs) in &self.arg_attrs {
            BTreeMap::from([(*position, ArgAttrs(attrs.clone()))]).put(out, 7);
        }
        self.resource_arg_unique_id.put(out, 8);
        out.extend_from_slice(&self.carried);
    }
}

message! { impl OpDef {
    1 name "name", 2 inputs "input_arg", 3 outputs "output_arg", 4 attrs "attr", 16 is_aggregate "is_aggregate", 17 is_stateful "is_stateful",
    18 is_commutative "is_commutative", 19 allows_uninitialized_input "allows_uninitialized_input", 20 control_outputs "control_output",
} carried }

impl Message for AttrDef {
    fn merge(&mut self, fields: Reader<'_>) -> Found<()> {
        let (mut has_minimum, mut minimum) = (self.minimum.is_some(), self.minimum.unwrap_or(0));
        for field in fields {
            let field = field?;
            match field.number {
                1 => self.name.absorb(&field).map_err(|flaw| flaw.within("name"))?,
                2 => self.kind.absorb(&field).map_err(|flaw| flaw.within("type"))?,
                3 => self.default.absorb(&field).map_err(|flaw| flaw.within("default_value"))?,
                5 => has_minimum.absorb(&field).map_err(|flaw| flaw.within("has_minimum"))?,
                6 => minimum.absorb(&field).map_err(|flaw| flaw.within("minimum"))?,
                7 => self.allowed.absorb(&field).map_err(|flaw| flaw.within("allowed_values"))?,
                _ => field.put(&mut self.carried),
            }
        }
        self.minimum = has_minimum.then_some(minimum);
        Ok(())
    }

    fn write(&self, out: &mut Vec<u8>) {
        for (number, text) in [(1, &self.name), (2, &self.kind)] {
            if !text.is_empty() {
                text.put(out, number);
            }
        }
        self.default.put(out, 3);
        if let Some(minimum) = self.minimum {
            true.put(out, 5);
            if minimum != 0 {
                minimum.put(out, 6);
            }
        }
        self.allowed.put(out, 7);
        out.extend_from_slice(&self.carried);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{decode, encode};
    use plimsoll_base::Error;

    fn round_trip(bytes: &[u8]) -> GraphDef {
        let graph: GraphDef = decode(Reader::of_file(bytes)).unwrap();
        assert_eq!(decode::<GraphDef>(Reader::of_bytes(&encode(&graph))).unwrap(), graph);
        graph
    }

    #[test]
    fn fields_without_a_place_are_carried() {
        // version: 3, library { 9: 7 }, versions { producer: 5, 9: 7 }, 15: "x"
        let bytes = [0x18, 3, 0x12, 2, 0x48, 7, 0x22, 4, 0x08, 5, 0x48, 7, 0x7a, 1, b'x'];
        let graph = round_trip(&bytes);
        assert_eq!(graph.versions.producer, 5);
        assert_eq!(graph.carried, [0x18, 3, 0x12, 2, 0x48, 7, 0x22, 2, 0x48, 7, 0x7a, 1, b'x']);
    }

    #[test]
    fn a_flaw_names_its_node() {
        // node { name: "n" attr { key: "v" value { tensor { dtype: DT_FLOAT tensor_content: "abc" } } } }
        let tensor = [0x08, 1, 0x22, 3, b'a', b'b', b'c'];
        let value = [&[0x42, tensor.len() as u8][..], &tensor].concat();
        let entry = [&[0x0a, 1, b'v', 0x12, value.len() as u8][..], &value].concat();
        let node = [&[0x0a, 1, b'n', 0x2a, entry.len() as u8][..], &entry].concat();
        let graph = [&[0x0a, node.len() as u8][..], &node].concat();
        let error = Error::from(decode::<GraphDef>(Reader::of_file(&graph)).unwrap_err());
        assert_eq!(
            error.to_string(),
            "INVALID_ARGUMENT: node[0].attr[\"v\"].tensor.tensor_content, at byte 16: a float tensor of shape [] takes 4 bytes, not 3 {{node n}}"
        );
    }

    #[test]
    fn a_minimum_of_zero_is_not_none() {
        let attr = AttrDef { name: "N".into(), kind: "int".into(), minimum: Some(0), ..AttrDef::default() };
        assert_eq!(decode::<AttrDef>(Reader::of_bytes(&encode(&attr))).unwrap(), attr);
    }

    #[test]
    fn deep_nesting_is_refused() {
        // node { attr { value { func { attr { value { func … } } } } } }, written from the inside out.
        let mut bytes = Vec::new();
        for _ in 0..200 {
            let mut func = Vec::new();
            put_message(&mut func, 10, |out| out.extend_from_slice(&bytes));
            let mut outer = Vec::new();
            put_message(&mut outer, 2, |out| put_message(out, 2, |out| out.extend_from_slice(&func)));
            bytes = outer;
        }
        let mut graph = Vec::new();
        put_message(&mut graph, 1, |out| {
            put_message(out, 5, |out| put_message(out, 2, |out| put_message(out, 10, |out| out.extend_from_slice(&bytes))))
        });
        let error = Error::from(decode::<GraphDef>(Reader::of_file(&graph)).unwrap_err());
        assert!(error.message().contains("more than 100 deep"), "{error}");
    }
}
