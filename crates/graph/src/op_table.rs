//! The table of operations: the signature of every operation that TensorFlow 2.21 registers.
//!
//! The table is text (`data/ops.txt`, written by `scripts/record_op_table.py`). A line is read when its operation is first
//! asked for, so that opening the table costs microseconds.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use plimsoll_base::{DataType, Error, Result};

use crate::{ArgDef, AttrDef, AttrList, AttrValue, OpDef, PartialShape};

const BUILT_IN: &str = include_str!("../data/ops.txt");

/// Operations by name. A value, not a global: tests bring their own.
#[derive(Debug, Default)]
pub struct OpTable {
    entries: HashMap<&'static str, Entry>,
    own: HashMap<String, Arc<OpDef>>,
}

#[derive(Debug)]
struct Entry {
    line: &'static str,
    parsed: OnceLock<Option<Arc<OpDef>>>,
}

impl OpTable {
    /// TensorFlow's operations.
    pub fn tensorflow() -> OpTable {
        let entries = BUILT_IN.lines().filter_map(|line| Some((line.split_once('(')?.0, Entry { line, parsed: OnceLock::new() })));
        OpTable { entries: entries.collect(), own: HashMap::new() }
    }

    /// An empty table.
    pub fn empty() -> OpTable {
        OpTable::default()
    }

    /// Adds an operation, or replaces one.
    pub fn insert(&mut self, op: OpDef) {
        self.own.insert(op.name.clone(), Arc::new(op));
    }

    /// Adds an operation spelled as a line of `data/ops.txt`.
    ///
    /// # Errors
    /// INVALID_ARGUMENT that names the unreadable part.
    pub fn insert_line(&mut self, line: &str) -> Result<()> {
        self.insert(parse_line(line).ok_or_else(|| Error::invalid_argument(format!("'{line}' is not a signature")))?);
        Ok(())
    }

    /// The operation of that name.
    pub fn get(&self, name: &str) -> Option<Arc<OpDef>> {
        if let Some(op) = self.own.get(name) {
            return Some(op.clone());
        }
        let entry = self.entries.get(name)?;
        entry.parsed.get_or_init(|| parse_line(entry.line).map(Arc::new)).clone()
    }

    /// The operation of that name.
    ///
    /// # Errors
    /// NOT_FOUND, in TensorFlow's words.
    pub fn require(&self, name: &str) -> Result<Arc<OpDef>> {
        self.get(name).ok_or_else(|| Error::not_found(format!("Op type not registered '{}'", name.escape_debug())))
    }

    /// The names of all operations, in no particular order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().copied().chain(self.own.keys().map(String::as_str))
    }
}

fn parse_line(line: &str) -> Option<OpDef> {
    let (name, rest) = line.split_once('(')?;
    let (inputs, rest) = rest.split_once(") -> (")?;
    let (outputs, rest) = rest.split_once(')')?;
    let rest = rest.trim().strip_prefix('|')?;
    let (attrs, flags) = split_last_bar(rest);
    let flag = |wanted: &str| flags.split_whitespace().any(|flag| flag == wanted);
    Some(OpDef {
        name: name.to_string(),
        inputs: parse_args(inputs)?,
        outputs: parse_args(outputs)?,
        attrs: split_outside_quotes(attrs, ';').map(str::trim).filter(|attr| !attr.is_empty()).map(parse_attr).collect::<Option<_>>()?,
        is_stateful: flag("stateful"),
        is_commutative: flag("commutative"),
        is_aggregate: flag("aggregate"),
        allows_uninitialized_input: flag("uninitialized-ok"),
        ..OpDef::default()
    })
}

fn split_last_bar(text: &str) -> (&str, &str) {
    let mut bar = text.len();
    for (position, part) in indices_outside_quotes(text) {
        if part == '|' {
            bar = position;
        }
    }
    (&text[..bar], text.get(bar + 1..).unwrap_or(""))
}

fn indices_outside_quotes(text: &str) -> impl Iterator<Item = (usize, char)> + '_ {
    let (mut quoted, mut escaped) = (false, false);
    text.char_indices().filter(move |&(_, c)| {
        if escaped {
            escaped = false;
        } else if quoted && c == '\\' {
            escaped = true;
        } else if c == '"' {
            quoted = !quoted;
        } else {
            return !quoted;
        }
        false
    })
}

fn split_outside_quotes(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let mut cuts: Vec<usize> = indices_outside_quotes(text).filter(|&(_, c)| c == separator).map(|(position, _)| position).collect();
    cuts.push(text.len());
    let mut start = 0;
    cuts.into_iter().map(move |cut| {
        let part = &text[start..cut];
        start = (cut + 1).min(text.len());
        part
    })
}

fn parse_args(text: &str) -> Option<Vec<ArgDef>> {
    text.split(", ").filter(|arg| !arg.is_empty()).map(parse_arg).collect()
}

fn parse_arg(text: &str) -> Option<ArgDef> {
    let (name, kind) = text.split_once(':')?;
    let (is_ref, kind) = kind.strip_prefix("ref ").map_or((false, kind), |kind| (true, kind));
    let mut arg = ArgDef { name: name.to_string(), is_ref, ..ArgDef::default() };
    if let Some(list) = kind.strip_prefix("list:") {
        arg.type_list_attr = list.to_string();
        return Some(arg);
    }
    let base = match kind.split_once('*') {
        Some((number, base)) => {
            arg.number_attr = number.to_string();
            base
        }
        None => kind,
    };
    match DataType::from_name(base) {
        Some(data_type) => arg.data_type = data_type.number(),
        None => arg.type_attr = base.to_string(),
    }
    Some(arg)
}

fn parse_attr(text: &str) -> Option<AttrDef> {
    let (name, rest) = text.split_once(':')?;
    let kind_end = rest.find(['{', '>', '=']).unwrap_or(rest.len());
    let (kind, mut rest) = rest.split_at(kind_end);
    let mut attr = AttrDef { name: name.to_string(), kind: kind.to_string(), ..AttrDef::default() };
    if let Some(after) = rest.strip_prefix('{') {
        let (allowed, after) = after.split_once('}')?;
        let words: Vec<&str> = allowed.split(' ').collect();
        let mut list = AttrList::default();
        if kind.contains("type") {
            list.types = words.iter().map(|word| Some(DataType::from_name(word)?.number())).collect::<Option<_>>()?;
        } else {
            list.bytes = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        }
        attr.allowed = Some(AttrValue::List(Box::new(list)));
        rest = after;
    }
    if let Some(after) = rest.strip_prefix(">=") {
        let end = after.find('=').unwrap_or(after.len());
        attr.minimum = Some(after[..end].parse().ok()?);
        rest = &after[end..];
    }
    if let Some(default) = rest.strip_prefix('=') {
        attr.default = Some(parse_default(kind, default)?);
    }
    Some(attr)
}

fn parse_default(kind: &str, text: &str) -> Option<AttrValue> {
    let Some(item_kind) = kind.strip_prefix("list(").and_then(|kind| kind.strip_suffix(')')) else {
        return parse_scalar(kind, text);
    };
    let inner = text.strip_prefix('[')?.strip_suffix(']')?;
    let mut list = AttrList::default();
    for item in split_outside_quotes(inner, ',').filter(|item| !item.is_empty()) {
        match parse_scalar(item_kind, item)? {
            AttrValue::Bytes(value) => list.bytes.push(value),
            AttrValue::Int(value) => list.ints.push(value),
            AttrValue::Float(value) => list.floats.push(value),
            AttrValue::Bool(value) => list.bools.push(value),
            AttrValue::Type(value) => list.types.push(value),
            _ => return None,
        }
    }
    Some(AttrValue::List(Box::new(list)))
}

fn parse_scalar(kind: &str, text: &str) -> Option<AttrValue> {
    Some(match kind {
        "string" => AttrValue::Bytes(unquote(text)?),
        "int" => AttrValue::Int(text.parse().ok()?),
        "float" => AttrValue::Float(text.parse().ok()?),
        "bool" => AttrValue::Bool(text.parse().ok()?),
        "type" => AttrValue::Type(DataType::from_name(text)?.number()),
        "shape" => AttrValue::Shape(parse_shape(text)?),
        "tensor" => AttrValue::Unset,
        "func" => AttrValue::Func(crate::FuncRef { name: text.strip_prefix('@')?.to_string(), ..Default::default() }),
        _ => return None,
    })
}

fn parse_shape(text: &str) -> Option<PartialShape> {
    if text == "?" {
        return Some(PartialShape::unknown());
    }
    let inner = text.strip_prefix('[')?.strip_suffix(']')?;
    let dim = |text: &str| if text == "?" { Some(None) } else { text.parse().ok().map(Some) };
    inner.split(',').filter(|dim| !dim.is_empty()).map(dim).collect::<Option<Vec<_>>>().map(|dims| PartialShape(Some(dims)))
}

fn unquote(text: &str) -> Option<Vec<u8>> {
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    let mut out = Vec::with_capacity(inner.len());
    let mut bytes = inner.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'\\' => match bytes.next()? {
                b'n' => b'\n',
                other => other,
            },
            other => other,
        });
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AttrsExt;

    #[test]
    fn every_line_is_read() {
        let table = OpTable::tensorflow();
        let mut count = 0;
        for name in table.names() {
            assert!(table.get(name).is_some(), "{name}");
            count += 1;
        }
        assert_eq!(count, BUILT_IN.lines().count());
    }

    #[test]
    fn signatures_say_types_and_defaults() {
        let table = OpTable::tensorflow();
        let conv = table.require("Conv2D").unwrap();
        let mut attrs = crate::Attrs::from([
            ("T".to_string(), AttrValue::data_type(DataType::Float)),
            ("strides".to_string(), AttrValue::ints([1, 1, 1, 1])),
            ("padding".to_string(), AttrValue::text("SAME")),
        ]);
        conv.fill_defaults(&mut attrs).unwrap();
        assert_eq!(attrs.text("data_format"), Ok("NHWC"));
        assert_eq!(attrs.list("dilations").unwrap().ints, [1, 1, 1, 1]);
        assert_eq!(attrs.bool("use_cudnn_on_gpu"), Ok(true));
        assert_eq!(conv.input_types(&attrs).unwrap().len(), 2);

        let adam = table.require("ApplyAdam").unwrap();
        assert!(adam.inputs[0].is_ref && !adam.inputs[3].is_ref);
        assert!(table.require("VarHandleOp").unwrap().is_stateful);
        assert!(table.require("Assign").unwrap().allows_uninitialized_input);
        assert_eq!(table.require("NoSuchOp").unwrap_err().code(), plimsoll_base::Code::NotFound);
    }

    #[test]
    fn runs_of_tensors_cannot_be_absurd() {
        let add_n = OpTable::tensorflow().require("AddN").unwrap();
        for count in [-1, i64::MAX] {
            let attrs =
                crate::Attrs::from([("N".to_string(), AttrValue::Int(count)), ("T".to_string(), AttrValue::data_type(DataType::Float))]);
            assert!(add_n.input_types(&attrs).is_err());
        }
    }
}
