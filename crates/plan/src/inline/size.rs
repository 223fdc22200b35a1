//! How large a graph becomes when its calls are inlined. It is counted over the functions, each once for its arguments, before
//! anything is built. Thirty functions that each call the next twice are a few kilobytes, and 2^30 bodies.

use std::collections::{BTreeSet, HashMap};

use plimsoll_base::{Error, Result};
use plimsoll_graph::{AttrList, AttrValue, Attrs, FuncRef, FunctionDef, Graph, Library};

use super::functions::{Functions, branches, is_branch, is_loop};

/// More nodes than this are not made of calls.
pub(super) const MAX_NODES: u64 = 500_000;
/// Names, inputs and attributes of these nodes may take this many bytes.
const MAX_BYTES: u64 = 1 << 29;
/// Names of nodes of a body begin with at most this many bytes of their call's.
pub(super) const MAX_PREFIX: usize = 1024;
/// The attributes that functions are called with may take this many bytes, each kind of call counted once.
pub(super) const MAX_GIVEN: u64 = 1 << 24;

/// The size of bodies. All sums saturate.
#[derive(Clone, Copy, Default, Debug)]
struct Size {
    nodes: u64,
    /// Names and inputs: texts that begin with the name of the call.
    names: u64,
    /// Bytes of these as they are spelled in the functions, and of attributes.
    bytes: u64,
    /// Bytes that the names of calls add.
    paths: u64,
}

impl Size {
    fn add(&mut self, other: Size) {
        self.nodes = self.nodes.saturating_add(other.nodes);
        self.names = self.names.saturating_add(other.names);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.paths = self.paths.saturating_add(other.paths);
    }

    /// The same below a call whose name is that long.
    fn below(self, name: u64) -> Size {
        Size { paths: self.paths.saturating_add(self.names.saturating_mul(name + 1)), ..self }
    }

    fn all_bytes(self) -> u64 {
        self.bytes.saturating_add(self.paths.min(self.names.saturating_mul(MAX_PREFIX as u64)))
    }
}

/// Refuses graphs that are too large, and those without an end.
///
/// # Errors
/// UNIMPLEMENTED for functions that call themselves, INVALID_ARGUMENT for graphs that grow beyond the bounds; both name the node
/// of the graph and the function.
pub(crate) fn check(graph: &Graph, functions: &Functions<'_>) -> Result<()> {
    let mut counter = Counter::new(functions, &graph.library);
    let mut total = Size::default();
    for node in graph.nodes().values() {
        if !functions.expands(&node.op, &node.attrs) {
            continue;
        }
        let mut calls = Vec::new();
        let inputs = node.inputs.len() + node.controls.len();
        let counted = counter.expansion(&node.name, &node.op, &node.attrs, inputs, &mut calls).and_then(|own| {
            total.add(own);
            for call in calls {
                total.add(counter.size(call.instance)?.below(call.name));
            }
            Ok(())
        });
        counted.map_err(|error| error.at_node(&node.name))?;
        let name = || functions.called(&node.op, &node.attrs).map_or_else(|| node.op.clone(), |func| format!("function '{}'", func.name));
        let (nodes, bytes) = (total.nodes, total.all_bytes());
        if nodes > MAX_NODES || bytes > MAX_BYTES {
            let (count, bound) =
                if nodes > MAX_NODES { (nodes, format!("{MAX_NODES} nodes")) } else { (bytes, format!("{MAX_BYTES} bytes")) };
            let unit = if nodes > MAX_NODES { "nodes" } else { "bytes" };
            let count = if count == u64::MAX { "far more".to_string() } else { format!("{count} {unit}") };
            let text = format!("with {} inlined, the bodies of all calls come to {count}; at most {bound} are made of calls", name());
            return Err(Error::invalid_argument(text).at_node(&node.name));
        }
    }
    Ok(())
}

/// A call in a body.
#[derive(Clone, Copy)]
struct Call {
    instance: usize,
    /// The length of its name.
    name: u64,
}

/// A function with the types of its placeholders.
struct Instance<'a> {
    function: &'a FunctionDef,
    given: Attrs,
    /// None until it is known.
    size: Option<Size>,
    is_open: bool,
}

struct Counter<'a> {
    functions: &'a Functions<'a>,
    /// By function: the placeholders of its body.
    placeholders: HashMap<&'a str, Vec<String>>,
    known: HashMap<String, usize>,
    instances: Vec<Instance<'a>>,
    /// Bytes of `known`.
    given: u64,
}

/// A function whose calls are being counted.
struct Visit {
    instance: usize,
    size: Size,
    calls: Vec<Call>,
    next: usize,
}

impl<'a> Counter<'a> {
    fn new(functions: &'a Functions<'a>, library: &'a Library) -> Counter<'a> {
        let mut placeholders = HashMap::new();
        for function in &library.functions {
            let mut names = BTreeSet::new();
            function.nodes.iter().flat_map(|node| node.attrs.values()).for_each(|value| collect(value, &mut names));
            placeholders.entry(function.signature.name.as_str()).or_insert_with(|| names.into_iter().collect());
        }
        Counter { functions, placeholders, known: HashMap::new(), instances: Vec::new(), given: 0 }
    }

    /// The size of a body with all bodies in it. Calls are followed without recursion.
    fn size(&mut self, root: usize) -> Result<Size> {
        if let Some(size) = self.instances[root].size {
            return Ok(size);
        }
        let mut path = vec![self.open(root)?];
        while let Some(visit) = path.last_mut() {
            let Some(call) = visit.calls.get(visit.next).copied() else {
                let instance = &mut self.instances[visit.instance];
                (instance.size, instance.is_open) = (Some(visit.size), false);
                path.pop();
                continue;
            };
            match &self.instances[call.instance] {
                Instance { size: Some(size), .. } => {
                    visit.size.add(size.below(call.name));
                    visit.next += 1;
                }
                Instance { is_open: true, .. } => return Err(self.recursion(&path, call.instance)),
                _ => path.push(self.open(call.instance)?),
            }
        }
        self.instances[root].size.ok_or_else(|| Error::internal("a function without a size"))
    }

    fn recursion(&self, path: &[Visit], again: usize) -> Error {
        let name = |instance: usize| self.instances[instance].function.signature.name.as_str();
        let between = path.iter().map(|visit| visit.instance).skip_while(|instance| *instance != again).skip(1);
        let between: Vec<String> = between.map(|instance| format!("'{}'", name(instance))).collect();
        let through = match &between[..] {
            [] => String::new(),
            few @ [.., _] if few.len() <= 4 => format!(" through {}", few.join(", ")),
            [first, .., last] => format!(" through {first}, {} others, {last}", between.len() - 2),
            [_] => String::new(),
        };
        Error::unimplemented(format!("recursive function calls: '{}' calls itself{through}", name(again)))
    }

    fn open(&mut self, instance: usize) -> Result<Visit> {
        self.instances[instance].is_open = true;
        let function = self.instances[instance].function;
        let given = std::mem::take(&mut self.instances[instance].given);
        let mut visit = Visit { instance, size: Size::default(), calls: Vec::new(), next: 0 };
        for node in &function.nodes {
            let may_expand = super::functions::is_partitioned(&node.op)
                || is_branch(&node.op)
                || is_loop(&node.op)
                || self.functions.find(&node.op).is_some();
            let attrs = if may_expand { Some(super::body::fill_all(&node.attrs, &given, function)?) } else { None };
            let inputs: u64 = node.inputs.iter().map(|input| input.len() as u64).sum();
            let attr_bytes = node.attrs.iter().map(|(name, value)| name.len() as u64 + weight(value, &given)).fold(0, u64::saturating_add);
            visit.size.add(Size {
                nodes: 1,
                names: 1 + node.inputs.len() as u64,
                bytes: attr_bytes.saturating_add(inputs + (node.name.len() + node.device.len() + node.carried.len()) as u64),
                paths: 0,
            });
            if let Some(attrs) = attrs.filter(|attrs| self.functions.expands(&node.op, attrs)) {
                let more = self.expansion(&node.name, &node.op, &attrs, node.inputs.len(), &mut visit.calls)?;
                visit.size.add(more);
            }
        }
        Ok(visit)
    }

    /// The nodes of a call or a branch beside its bodies, at most, and its calls. The node itself is not counted.
    fn expansion(&mut self, name: &str, op: &str, attrs: &Attrs, inputs: usize, calls: &mut Vec<Call>) -> Result<Size> {
        let length = name.len() as u64;
        let mut size = Size::default();
        if let Some(func) = self.functions.called(op, attrs) {
            calls.extend(self.instance(&func)?.map(|instance| Call { instance, name: length }));
            // The node that the body waits for, and the one that waits for effects.
            size.add(Size { nodes: 2, names: 3 + inputs as u64, bytes: 128, paths: 0 });
        } else {
            let branches = branches(op, attrs)?;
            let count = branches.len() as u64;
            let results = match attrs.get("Tout") {
                Some(AttrValue::List(list)) => list.types.len() as u64,
                _ => 0,
            };
            for (side, func) in &branches {
                let length = length + (op.len() + side.len() + 2) as u64;
                calls.extend(self.instance(func)?.map(|instance| Call { instance, name: length }));
            }
            let nodes = match is_loop(op) {
                // Enter, Merge, Switch, NextIteration and Exit for each input; starts, a ToBool and a LoopCond.
                true => (inputs as u64).saturating_mul(6).saturating_add(6),
                // Predicates, a Switch for each input and branch but the last, a start and an end for each branch, Merges.
                false => count.saturating_mul(5 + inputs as u64).saturating_add(1 + results),
            };
            size.add(Size { nodes, names: nodes.saturating_mul(3), bytes: nodes.saturating_mul(64), paths: 0 });
        }
        Ok(size.below(length))
    }

    /// The number of a function as it is called; none where it is not in the library.
    fn instance(&mut self, func: &FuncRef) -> Result<Option<usize>> {
        let Some(function) = self.functions.find(&func.name) else { return Ok(None) };
        let placeholders = &self.placeholders[function.signature.name.as_str()];
        let mut given = Attrs::new();
        let mut key = func.name.clone();
        for placeholder in placeholders {
            let Some(value) = func.attrs.get(placeholder) else { continue };
            // Only functions and lengths of lists decide the count.
            match value {
                AttrValue::Func(_) | AttrValue::List(_) => key += &format!("\0{placeholder}={value:?}"),
                _ => key += &format!("\0{placeholder}"),
            }
            given.insert(placeholder.clone(), value.clone());
        }
        if let Some(known) = self.known.get(&key) {
            return Ok(Some(*known));
        }
        self.given = self.given.saturating_add(key.len() as u64);
        if self.given > MAX_GIVEN {
            let text = format!("function '{}' and others are called with more than {MAX_GIVEN} bytes of different attributes", func.name);
            return Err(Error::invalid_argument(text));
        }
        self.known.insert(key, self.instances.len());
        self.instances.push(Instance { function, given, size: None, is_open: false });
        Ok(Some(self.instances.len() - 1))
    }
}

/// The placeholders in a value.
fn collect(value: &AttrValue, names: &mut BTreeSet<String>) {
    match value {
        AttrValue::Placeholder(name) => {
            names.insert(name.clone());
        }
        AttrValue::Func(func) => func.attrs.values().for_each(|value| collect(value, names)),
        AttrValue::List(list) => list.funcs.iter().flat_map(|func| func.attrs.values()).for_each(|value| collect(value, names)),
        _ => {}
    }
}

/// About how many bytes a copy of a value takes. Tensors are shared.
fn weight(value: &AttrValue, given: &Attrs) -> u64 {
    let func = |func: &FuncRef| {
        let attrs = func.attrs.iter().map(|(name, value)| name.len() as u64 + weight(value, given));
        attrs.fold(func.name.len() as u64 + 48, u64::saturating_add)
    };
    let beside = match value {
        AttrValue::Bytes(bytes) => bytes.len() as u64,
        AttrValue::Opaque(bytes) => bytes.len() as u64,
        AttrValue::Placeholder(name) => given.get(name).map_or(0, |value| weight(value, &Attrs::new())),
        AttrValue::Func(inner) => func(inner),
        AttrValue::List(list) => {
            let AttrList { bytes, ints, floats, bools, types, shapes, tensors, funcs } = &**list;
            let fixed = ints.len() * 8 + (floats.len() + types.len()) * 4 + bools.len() + (shapes.len() + tensors.len()) * 64;
            let texts = bytes.iter().map(|text| text.len() as u64 + 24).sum::<u64>();
            funcs.iter().map(func).fold(fixed as u64 + texts, u64::saturating_add)
        }
        _ => 0,
    };
    beside.saturating_add(64)
}
