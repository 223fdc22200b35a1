//! Reads the text form of an LIR, for tests. Numbers may have gaps: what is read is numbered anew, in the same order.
//!
//! Nodes are made as they are named. `node NAME OP` says which operation one is; `value v3 arena 4 on CPU:0 of x` names a value
//! that nothing defines.

use std::collections::BTreeMap;

use plimsoll_base::{Bytes, DataType, Panels};
use plimsoll_device::{DeviceSpec, InstructionSet, KernelCall, LaidOut, Library};
use plimsoll_graph::id::Id;
use plimsoll_graph::{Attrs, Graph, HostTensor, Node, NodeId, Output, Shape};
use plimsoll_request::KernelRequest;
use plimsoll_request::expr::{Expr, Scalar};
use serde::de::DeserializeOwned;
use serde_json::{Value as Json, json};

use super::{
    Arg, CallId, ConstantId, FeedId, FetchId, Home, Lir, Region, RegionId, Trips, Value, ValueId, VariableId, View, Work, WorkId, WorkKind,
};
use crate::plan::{
    DeviceId, PlanCall, PlanCheck, PlanConstant, PlanFeed, PlanFetch, PlanRestore, PlanSave, PlanVariable, SavedTensor, VariableKind,
};

/// An LIR with what its ids of nodes and devices mean.
pub(crate) struct Parsed {
    pub lir: Lir,
    pub graph: Graph,
    pub devices: Vec<DeviceSpec>,
}

type Result<T> = std::result::Result<T, String>;

/// Reads an LIR; `libraries` answers what variants a request has.
pub(crate) fn parse(text: &str, library: &dyn Library) -> Result<Parsed> {
    let mut lir = Lir::new();
    lir.regions = plimsoll_graph::IdVec::new();
    let parsed = Parsed { lir, graph: Graph::new(), devices: Vec::new() };
    let mut parser = Parser { parsed, library, values: BTreeMap::new(), works: BTreeMap::new(), here: RegionId::from_index(0) };
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with("//")).collect();
    let mut next = 0;
    while next < lines.len() && parser.header(lines[next]).map_err(|why| format!("{}: {why}", lines[next]))? {
        next += 1;
    }
    parser.region(&lines, &mut next)?;
    for line in &lines[next..] {
        let mut at = Cursor(line.trim());
        // Nodes that were softened and fusions are noted anew.
        if at.eat("fusion ") || at.eat("softened ") {
            continue;
        }
        at.expect("initialized ")?;
        let variable = VariableId::from_index(at.numbered("variable")?);
        at.expect("by ")?;
        let version = parser.value_at(at.numbered("v")?);
        parser.parsed.lir.initialized.push((variable, version));
    }
    Ok(parser.finish())
}

struct Parser<'a> {
    parsed: Parsed,
    library: &'a dyn Library,
    /// By number. Ids are numbers until everything is read.
    values: BTreeMap<usize, Value>,
    works: BTreeMap<usize, Work>,
    /// The region that is being read.
    here: RegionId,
}

/// What is left of a line.
struct Cursor<'a>(&'a str);

impl<'a> Cursor<'a> {
    fn eat(&mut self, text: &str) -> bool {
        match self.0.strip_prefix(text) {
            Some(rest) => {
                self.0 = rest.trim_start();
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, text: &str) -> Result<()> {
        if self.eat(text) { Ok(()) } else { Err(format!("expected '{text}' at '{}'", self.0)) }
    }

    /// The text up to a blank or a sign that ends a word.
    fn word(&mut self) -> &'a str {
        let end = self.0.find([' ', ',', '(', ')', ';', '{', '}']).unwrap_or(self.0.len());
        let (word, rest) = self.0.split_at(end);
        self.0 = rest.trim_start();
        word
    }

    fn number<T: std::str::FromStr>(&mut self) -> Result<T> {
        let word = self.word();
        word.parse().map_err(|_| format!("'{word}' is no number"))
    }

    fn numbered(&mut self, prefix: &str) -> Result<usize> {
        let word = self.word();
        let number = word.strip_prefix(prefix).and_then(|number| number.parse().ok());
        number.ok_or_else(|| format!("'{word}' is no {prefix}NUMBER"))
    }

    fn json<T: DeserializeOwned>(&mut self) -> Result<T> {
        let mut stream = serde_json::Deserializer::from_str(self.0).into_iter::<T>();
        let value = stream.next().ok_or("no JSON")?.map_err(|error| error.to_string())?;
        self.0 = self.0[stream.byte_offset()..].trim_start();
        Ok(value)
    }

    /// `[2,3]`, or nothing for a scalar.
    fn shape(&mut self) -> Result<Shape> {
        if !self.0.starts_with('[') {
            return Ok(Shape::scalar());
        }
        Ok(Shape::new(self.json::<Vec<u64>>()?))
    }

    /// `float[2,3]`.
    fn typed(&mut self) -> Result<(DataType, Shape)> {
        let end = self.0.find([' ', '[', ',', ')', ';']).unwrap_or(self.0.len());
        let (name, rest) = self.0.split_at(end);
        self.0 = rest;
        let shape = self.shape()?;
        self.0 = self.0.trim_start();
        Ok((DataType::from_name(name).ok_or_else(|| format!("'{name}' is no element type"))?, shape))
    }
}

impl Parser<'_> {
    /// Whether the line was one before the first region.
    fn header(&mut self, line: &str) -> Result<bool> {
        let mut at = Cursor(line.trim());
        if at.eat("device ") {
            self.parsed.devices.push(device(at.0)?);
            return Ok(true);
        }
        if at.eat("node ") {
            let node = self.node(at.word());
            self.parsed.graph.node_mut(node).op = at.0.to_string();
            return Ok(true);
        }
        if at.eat("value ") {
            self.define(&mut at, None)?;
            return Ok(true);
        }
        let Some((name, rest)) = line.split_once(" = ").filter(|(name, _)| !name.contains(' ')) else { return Ok(false) };
        at = Cursor(rest);
        match name.trim_end_matches(|sign: char| sign.is_ascii_digit()) {
            "variable" => self.variable(&mut at)?,
            "constant" => {
                let name = at.word().to_string();
                let (data_type, shape) = at.typed()?;
                let device = if at.eat("on ") { Some(self.device(at.word())?) } else { None };
                // The graph has it in panels; `read` says that works read it so.
                let (held, read) = (at.eat("in panels "), at.eat("read in panels "));
                let panels: Option<Panels> = if held || read { Some(at.json()?) } else { None };
                let value = HostTensor::zeros(data_type, shape.clone()).map_err(|error| error.to_string())?;
                let value = panels.map_or(Ok(value.clone()), |panels| value.in_panels(panels)).map_err(|error| error.to_string())?;
                let (tensor, bytes) = (Output { node: self.node(&name), index: 0 }, Bytes(value.byte_len()));
                let panels = panels.filter(|_| read);
                let _: ConstantId = self.parsed.lir.constants.push(PlanConstant { tensor, name, data_type, shape, bytes, device, panels });
                self.parsed.lir.constant_values.push(value);
            }
            "feed" => {
                let (node, index) = at.word().split_once(':').ok_or("a feed is NODE:INDEX")?;
                let tensor = Output { node: self.node(node), index: index.parse().map_err(|_| "a feed is NODE:INDEX")? };
                let (data_type, shape) = at.typed()?;
                let bytes = shape.bytes(data_type).map_err(|error| error.to_string())?;
                let _: FeedId = self.parsed.lir.feeds.push(PlanFeed { tensor, data_type, shape, bytes });
            }
            "fetch" => {
                let name = at.word().to_string();
                let (data_type, shape) = at.typed()?;
                let bytes = shape.bytes(data_type).map_err(|error| error.to_string())?;
                let _: FetchId = self.parsed.lir.fetches.push(PlanFetch { name, data_type, shape, bytes, traits: None });
            }
            "file" => {
                let call = self.call(&mut at)?;
                let _: CallId = self.parsed.lir.calls.push(call);
            }
            _ => return Ok(false),
        }
        if at.0.is_empty() { Ok(true) } else { Err(format!("'{}' is left", at.0)) }
    }

    fn variable(&mut self, at: &mut Cursor<'_>) -> Result<()> {
        let name = at.word().to_string();
        let (data_type, shape) = at.typed()?;
        let kind = match at.word() {
            "reference" => VariableKind::Reference,
            "resource" => VariableKind::Resource,
            "state" => VariableKind::State,
            other => return Err(format!("'{other}' is no kind of variable")),
        };
        at.expect("on ")?;
        let device = self.device(at.word())?;
        let bytes = shape.bytes(data_type).map_err(|error| error.to_string())?;
        let key = format!(";{name}");
        let (read_first_by, assigned_by, written, stored, initial) = (None, None, false, None, None);
        let variable =
            PlanVariable { key, name, kind, data_type, shape, bytes, device, initial, read_first_by, assigned_by, written, stored };
        self.parsed.lir.variables.push(variable);
        Ok(())
    }

    fn call(&mut self, at: &mut Cursor<'_>) -> Result<PlanCall> {
        let kind = at.word();
        let prefix: String = at.json()?;
        let (mut check, mut save, mut restore) = (Vec::new(), Vec::new(), None);
        while !at.eat("of ") {
            let name: String = at.json()?;
            if kind == "restore" {
                restore = Some((name, at.numbered("variable")? as u32));
                continue;
            }
            let (data_type, shape) = at.typed()?;
            let variable = if at.0.starts_with("variable") { Some(at.numbered("variable")? as u32) } else { None };
            check.push((name.clone(), data_type));
            save.push(SavedTensor { name, data_type, shape, variable });
        }
        let node = self.node(at.word());
        Ok(match (kind, restore) {
            ("check", _) => PlanCall::Check(PlanCheck { prefix, tensors: check, node }),
            ("save", _) => PlanCall::Save(PlanSave { prefix, tensors: save, node }),
            ("restore", Some((name, variable))) => PlanCall::Restore(PlanRestore { prefix, name, variable, node }),
            _ => return Err(format!("'{kind}' is nothing that is done with files")),
        })
    }

    fn region(&mut self, lines: &[&str], next: &mut usize) -> Result<RegionId> {
        let id = self.parsed.lir.regions.push(Region::default());
        let around = std::mem::replace(&mut self.here, id);
        while let Some(line) = lines.get(*next) {
            let mut at = Cursor(line.trim());
            let read = if at.eat("param ") {
                self.define(&mut at, None).map(|value| self.parsed.lir.regions[id].params.push(value))
            } else if at.eat("result ") {
                self.results(&mut at, id)
            } else if at.0.starts_with('w') {
                *next += 1;
                let work = self.work(&mut at, lines, next).map_err(|why| format!("{line}: {why}"))?;
                self.parsed.lir.regions[id].works.push(work);
                continue;
            } else {
                break;
            };
            read.map_err(|why| format!("{line}: {why}"))?;
            *next += 1;
        }
        self.here = around;
        Ok(id)
    }

    fn results(&mut self, at: &mut Cursor<'_>, id: RegionId) -> Result<()> {
        loop {
            let value = self.value_at(at.numbered("v")?);
            self.parsed.lir.regions[id].results.push(value);
            if !at.eat(",") {
                return Ok(());
            }
        }
    }

    fn work(&mut self, at: &mut Cursor<'_>, lines: &[&str], next: &mut usize) -> Result<WorkId> {
        let number = at.numbered("w")?;
        at.expect("on ")?;
        let device = self.device(at.word())?;
        at.expect("of ")?;
        let nodes: Vec<NodeId> = at.word().split('+').map(|name| self.node(name)).collect();
        at.expect("= ")?;
        let (guard, after, prepared) = (None, Vec::new(), None);
        let (inputs, outputs, rank) = (Vec::new(), Vec::new(), number as u32);
        let mut work =
            Work { kind: WorkKind::Copy, device, nodes, inputs, outputs, guard, after, is_root: false, is_beside: false, rank, prepared };
        self.kind(at, &mut work)?;
        at.expect("(")?;
        while !at.eat(")") {
            let value = self.value_at(at.numbered("v")?);
            let (data_type, shape) = at.typed()?;
            work.inputs.push(View { value, data_type, shape });
            at.eat(",");
        }
        if at.eat("->") {
            loop {
                let value = self.define(at, Some(&work))?;
                work.outputs.push(value);
                if !at.eat(",") {
                    break;
                }
            }
        }
        if let WorkKind::Request { args, .. } | WorkKind::Kernel { args, .. } = &mut work.kind
            && args.is_empty()
        {
            *args = Arg::all(work.inputs.len(), work.outputs.len());
        }
        let mut partners: Vec<DeviceId> = Vec::new();
        while !at.0.is_empty() {
            match at.word() {
                "if" => work.guard = Some(self.value_at(at.numbered("v")?)),
                "after" => work.after.push(WorkId::from_index(at.numbered("w")?)),
                "root" => work.is_root = true,
                "beside" => work.is_beside = true,
                "rank" => work.rank = at.number()?,
                // What a pass finds out again.
                "by" | "scratch" => _ = at.word(),
                "with" => partners.push(self.device(at.word())?),
                "" if at.eat("{") => self.inner(&mut work, std::mem::take(&mut partners), lines, next)?,
                other => return Err(format!("'{other}' says nothing of a work")),
            }
        }
        self.works.insert(number, work);
        Ok(WorkId::from_index(number))
    }

    /// The regions of a work.
    fn inner(&mut self, work: &mut Work, partners: Vec<DeviceId>, lines: &[&str], next: &mut usize) -> Result<()> {
        let region = self.region(lines, next)?;
        self.parsed.lir.regions[region].partners = partners;
        let end = lines.get(*next).map_or("", |line| line.trim());
        *next += 1;
        match &mut work.kind {
            WorkKind::Loop { body, .. } if end == "}" => *body = region,
            _ if end != "}" => return Err(format!("expected }} at '{end}'")),
            _ => return Err("the work holds no region".to_string()),
        }
        Ok(())
    }

    fn kind(&mut self, at: &mut Cursor<'_>, work: &mut Work) -> Result<()> {
        let word = at.word();
        work.kind = match word.trim_end_matches(|sign: char| sign.is_ascii_digit()) {
            "expr" => {
                let shape = at.shape()?;
                at.0 = at.0.trim_start();
                WorkKind::Expr { expr: steps(at)?, shape }
            }
            "anchor" => {
                let anchor = at.json()?;
                let epilogue = if at.eat("then ") { Some(steps(at)?) } else { None };
                WorkKind::Anchor { anchor, epilogue }
            }
            "request" => {
                let request: KernelRequest = at.json()?;
                WorkKind::Request { request: request.into(), args: arguments(at)? }
            }
            "kernel" => {
                let request: KernelRequest = at.json()?;
                let args = arguments(at)?;
                let laid_out: Option<LaidOut> = if at.eat("with ") { Some(at.json()?) } else { None };
                at.expect("by ")?;
                let word = at.word();
                let (name, step) = word.split_once('#').unwrap_or((word, "0"));
                let spec = &self.parsed.devices[work.device.index()];
                let variants = match laid_out {
                    None => self.library.variants(spec, &request),
                    Some(laid_out) => self.library.laid_out(spec, &request, laid_out),
                };
                let variants = variants.map_err(|error| error.to_string())?;
                let variant = variants.into_iter().find(|variant| *variant.name == *name).ok_or("no such variant")?;
                let step = step.parse().map_err(|_| "a step is a number")?;
                WorkKind::Kernel { call: KernelCall { request: request.into(), variant: variant.into(), step }, args }
            }
            "copy" => WorkKind::Copy,
            "file" => {
                let call = word[4..].parse().map(CallId::from_index).map_err(|_| "a call of files has a number")?;
                at.expect("through ")?;
                WorkKind::Outside { call, scratch: at.number()? }
            }
            "loop" => {
                let carried = at.number()?;
                at.expect("trips ")?;
                let trips = match at.word() {
                    "open" => Trips::Open,
                    "at" => {
                        at.expect("most ")?;
                        Trips::AtMost(at.number()?)
                    }
                    "in" => {
                        let runs = at.number()?;
                        Trips::InAll { runs, trips: at.number()? }
                    }
                    count => Trips::Exactly(count.parse().map_err(|_| "trips are counted")?),
                };
                WorkKind::Loop { body: RegionId::from_index(0), carried, trips }
            }
            other => return Err(format!("'{other}' is no kind of work")),
        };
        Ok(())
    }

    /// A value that is said in full, or only named.
    fn define(&mut self, at: &mut Cursor<'_>, work: Option<&Work>) -> Result<ValueId> {
        let number = at.numbered("v")?;
        if at.0.is_empty() || at.0.starts_with([',', '{']) {
            return Ok(ValueId::from_index(number));
        }
        let home = at.word();
        let index = |prefix: &str| home.strip_prefix(prefix).and_then(|number| number.parse::<usize>().ok());
        let home = match home {
            "arena" => Home::Arena,
            _ => None
                .or_else(|| index("variable").map(|index| Home::Variable(VariableId::from_index(index))))
                .or_else(|| index("flag").map(|index| Home::Flag(VariableId::from_index(index))))
                .or_else(|| index("constant").map(|index| Home::Constant(ConstantId::from_index(index))))
                .or_else(|| index("feed").map(|index| Home::Feed(FeedId::from_index(index))))
                .or_else(|| index("fetch").map(|index| Home::Fetch(FetchId::from_index(index))))
                .or_else(|| {
                    let (region, param) = home.strip_prefix("given")?.split_once('.')?;
                    Some(Home::Given { region: RegionId::from_index(region.parse().ok()?), param: param.parse().ok()? })
                })
                .ok_or_else(|| format!("'{home}' is no home"))?,
        };
        let bytes = at.number()?;
        let is_copy = at.eat("copy");
        let previous = if at.eat("over ") { Some(self.value_at(at.numbered("v")?)) } else { None };
        let device = if at.eat("on ") { self.device(at.word())? } else { work.map_or(DeviceId::from_index(0), |work| work.device) };
        let node = if at.eat("of ") {
            self.node(at.word())
        } else {
            match work {
                Some(work) => work.nodes[0],
                None => self.node("value"),
            }
        };
        self.values.insert(number, Value { device, region: self.here, home, bytes, node, is_copy, previous });
        Ok(ValueId::from_index(number))
    }

    fn value_at(&self, number: usize) -> ValueId {
        ValueId::from_index(number)
    }

    fn node(&mut self, name: &str) -> NodeId {
        let graph = &mut self.parsed.graph;
        graph.find(name).unwrap_or_else(|| {
            let (op, inputs, controls) = ("NoOp".to_string(), Vec::new(), Vec::new());
            let node =
                Node { name: name.into(), op, inputs, controls, device: String::new(), attrs: Attrs::default(), carried: Vec::new() };
            graph.add(node).expect("a name of a node")
        })
    }

    fn device(&self, name: &str) -> Result<DeviceId> {
        let at = self.parsed.devices.iter().position(|spec| spec.name.to_string().ends_with(&format!("device:{name}")));
        at.map(DeviceId::from_index).ok_or_else(|| format!("there is no device {name}"))
    }

    /// Numbers values and works anew, without gaps.
    fn finish(self) -> Parsed {
        let Parser { mut parsed, values, works, .. } = self;
        let dense = |numbers: Vec<usize>| numbers.into_iter().enumerate().map(|(at, number)| (number, at)).collect::<BTreeMap<_, _>>();
        let (value_at, work_at) = (dense(values.keys().copied().collect()), dense(works.keys().copied().collect()));
        // What is not there stays so: a number beyond all.
        let value = |id: &mut ValueId| *id = ValueId::from_index(value_at.get(&id.index()).copied().unwrap_or(values.len() + id.index()));
        let work_of = |id: &mut WorkId| *id = WorkId::from_index(work_at.get(&id.index()).copied().unwrap_or(works.len() + id.index()));
        for mut known in values.values().cloned() {
            known.previous.iter_mut().for_each(value);
            parsed.lir.values.push(known);
        }
        for mut work in works.values().cloned() {
            work.inputs.iter_mut().map(|view| &mut view.value).chain(&mut work.outputs).chain(&mut work.guard).for_each(value);
            work.after.iter_mut().for_each(work_of);
            parsed.lir.works.push(work);
        }
        for region in parsed.lir.regions.values_mut() {
            region.params.iter_mut().chain(&mut region.results).for_each(value);
            region.works.iter_mut().for_each(work_of);
        }
        parsed.lir.initialized.iter_mut().for_each(|(_, version)| value(version));
        let written: Vec<VariableId> = parsed
            .lir
            .values
            .values()
            .filter(|value| value.previous.is_some())
            .filter_map(|value| match value.home {
                Home::Variable(variable) => Some(variable),
                _ => None,
            })
            .collect();
        written
            .into_iter()
            .filter(|variable| parsed.lir.variables.get(*variable).is_some())
            .collect::<Vec<_>>()
            .into_iter()
            .for_each(|variable| parsed.lir.variables[variable].written = true);
        parsed
    }
}

/// A processor with AVX-512 and one thread, a simulated card that runs its kernels on one, or a file.
pub(crate) fn device(name: &str) -> Result<DeviceSpec> {
    let index = |number: &str| number.parse::<u32>().map_err(|_| format!("there is no device {name}"));
    let cpu = |index| DeviceSpec::cpu(index, None, 1, InstructionSet::Avx512);
    match name.split_once(':') {
        Some(("CPU", number)) => Ok(cpu(index(number)?)),
        Some(("GPU", number)) => {
            let card = DeviceSpec { kind: plimsoll_device::DeviceKind::Gpu, ..cpu(index(number)?) };
            Ok(DeviceSpec { name: plimsoll_device::DeviceName::local("GPU", index(number)?), ..card })
        }
        Some(("SPILL", number)) => Ok(DeviceSpec::spill(index(number)?, plimsoll_base::Bytes(1 << 30), "/tmp")),
        _ => Err(format!("there is no device {name}")),
    }
}

/// ` args in0 out0`; empty where nothing is said.
fn arguments(at: &mut Cursor<'_>) -> Result<Vec<Arg>> {
    let mut args = Vec::new();
    if at.eat("args ") {
        while at.0.starts_with("in") || at.0.starts_with("out") {
            args.push(if at.0.starts_with("in") { Arg::Input(at.numbered("in")?) } else { Arg::Output(at.numbered("out")?) });
        }
    }
    Ok(args)
}

/// `{ r0 = in float; r1 = Neg r0; out r1 }`. What nobody could build is refused.
fn steps(at: &mut Cursor<'_>) -> Result<Expr> {
    at.expect("{ ")?;
    let (body, rest) = at.0.split_once('}').ok_or("an expression without end")?;
    at.0 = rest.trim_start();
    let (mut inputs, mut written, mut results): (Vec<DataType>, Vec<Json>, Vec<Json>) = Default::default();
    for step in body.split(';').map(str::trim) {
        if let Some(outputs) = step.strip_prefix("out") {
            for output in outputs.split_whitespace() {
                results.push(register(output)?);
            }
            continue;
        }
        let (_, step) = step.split_once(" = ").ok_or_else(|| format!("'{step}' is no step"))?;
        let words: Vec<&str> = step.split_whitespace().collect();
        written.push(match words[..] {
            ["in", data_type] => {
                inputs.push(DataType::from_name(data_type).ok_or_else(|| format!("'{data_type}' is no element type"))?);
                json!({ "Input": inputs.len() - 1 })
            }
            ["Cast", data_type, a] => json!({ "Cast": [data_type, register(a)?] }),
            ["Select", c, a, b] => json!({ "Select": [register(c)?, register(a)?, register(b)?] }),
            [op, a, b] => json!({ "Binary": [op, register(a)?, register(b)?] }),
            [op, a] => json!({ "Unary": [op, register(a)?] }),
            [constant] => json!({ "Const": scalar(constant)? }),
            _ => return Err(format!("'{step}' is no step")),
        });
    }
    serde_json::from_value(json!({ "inputs": inputs, "steps": written, "results": results })).map_err(|error| error.to_string())
}

fn register(name: &str) -> Result<Json> {
    let number = name.strip_prefix('r').and_then(|number| number.parse::<u32>().ok());
    Ok(json!(number.ok_or_else(|| format!("'{name}' is no register"))?))
}

/// `F32(0.5)`.
fn scalar(text: &str) -> Result<Scalar> {
    let parsed = text.split_once('(').and_then(|(kind, rest)| {
        let number = rest.strip_suffix(')')?;
        Some(match kind {
            "F32" => Scalar::F32(number.parse().ok()?),
            "F64" => Scalar::F64(number.parse().ok()?),
            "I32" => Scalar::I32(number.parse().ok()?),
            "I64" => Scalar::I64(number.parse().ok()?),
            "I8" => Scalar::I8(number.parse().ok()?),
            "I16" => Scalar::I16(number.parse().ok()?),
            "U8" => Scalar::U8(number.parse().ok()?),
            "U16" => Scalar::U16(number.parse().ok()?),
            "U32" => Scalar::U32(number.parse().ok()?),
            "U64" => Scalar::U64(number.parse().ok()?),
            "Bool" => Scalar::Bool(number.parse().ok()?),
            _ => return None,
        })
    });
    parsed.ok_or_else(|| format!("'{text}' is no number"))
}
