//! Reads and runs cases of placement: see `data/placer.txt`.

use std::sync::Arc;

use plimsoll_base::{DataType, Error};
use plimsoll_device::{DeviceKind, DeviceName, DeviceSpec, InstructionSet};
use plimsoll_graph::id::Id;
use plimsoll_graph::{
    AttrValue, Attrs, FuncRef, FunctionDef, Graph, GraphDef, HostTensor, Library, NodeDef, NodeId, OpTable, PartialShape, Shape,
};
use plimsoll_ops::{KernelRegistry, Registry};
use plimsoll_plan::{DeviceId, PlaceOptions, Placement, place};

/// The cases of a file, and the operations, kernels and functions that they are made of.
pub struct Cases {
    pub cases: Vec<Case>,
    ops: Vec<String>,
    kernels: Vec<String>,
    functions: Vec<Vec<String>>,
}

/// One case, its lines as they are written.
pub struct Case {
    title: String,
    lines: Vec<String>,
}

impl Cases {
    pub fn read(text: &str) -> Cases {
        let mut cases = Cases { cases: Vec::new(), ops: Vec::new(), kernels: Vec::new(), functions: Vec::new() };
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        while let Some(line) = lines.next() {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            match word {
                "op" => cases.ops.push(rest.to_string()),
                "kernels" => cases.kernels.push(rest.to_string()),
                "function" => {
                    let body = lines.by_ref().take_while(|line| *line != "end").map(str::to_string);
                    cases.functions.push(std::iter::once(rest.to_string()).chain(body).collect());
                }
                "case" => cases.cases.push(Case { title: rest.to_string(), lines: Vec::new() }),
                _ => cases.cases.last_mut().expect("a line outside of cases").lines.push(line.to_string()),
            }
        }
        cases
    }

    /// TensorFlow's table and kernels, and those of the file.
    fn registry(&self) -> Registry {
        let (mut table, mut kernels) = (OpTable::tensorflow(), KernelRegistry::tensorflow());
        for op in &self.ops {
            table.insert_line(op).unwrap();
        }
        for line in &self.kernels {
            kernels.insert_line(line).unwrap();
        }
        Registry::with_table(table).with_kernels(kernels)
    }
}

impl Case {
    pub fn id(&self) -> &str {
        self.title.split(' ').next().unwrap_or("")
    }

    /// The differences from the expected.
    pub fn run(&self, cases: &Cases) -> Vec<String> {
        let vary = |line: &&String| line.starts_with("vary ");
        let rows: Vec<Vec<&str>> = self.lines.iter().filter(vary).map(|line| line.split(' ').skip(1).collect()).collect();
        let rows = if rows.is_empty() { vec![Vec::new()] } else { rows };
        let mut failures = Vec::new();
        for row in rows {
            let fill = |line: &String| {
                let mut line = line.clone();
                for (position, value) in row.iter().enumerate() {
                    line = line.replace(&format!("${}", position + 1), value);
                }
                line
            };
            let lines: Vec<String> = self.lines.iter().filter(|line| !vary(line)).map(fill).collect();
            let has = |word: &str| lines.iter().any(|line| line == word);
            let softness: &[bool] = if has("both") { &[true, false] } else { &[!has("hard")] };
            for &soft in softness {
                let failed = Run { cases, lines: &lines, soft }.run();
                failures.extend(
                    failed.into_iter().map(|text| format!("{} {row:?} {}: {text}", self.title, if soft { "soft" } else { "hard" })),
                );
            }
        }
        failures
    }
}

struct Run<'a> {
    cases: &'a Cases,
    lines: &'a [String],
    soft: bool,
}

impl Run<'_> {
    fn after<'b>(&'b self, word: &'b str) -> impl Iterator<Item = &'b str> {
        self.lines.iter().filter_map(move |line| line.strip_prefix(word)?.strip_prefix(' '))
    }

    fn run(&self) -> Vec<String> {
        let registry = Arc::new(self.cases.registry());
        let is_node = |line: &&String| line.contains(" = ") && !line.starts_with("=>");
        let parsed: Vec<(NodeDef, Option<String>)> =
            self.lines.iter().filter(is_node).map(|line| parse_node(line, registry.table())).collect();
        let nodes = parsed.iter().map(|(node, _)| node.clone()).collect();
        let functions = self.cases.functions.iter().map(|lines| parse_function(lines, registry.table())).collect();
        let library = Library { functions, ..Library::default() };
        let graph = Graph::resolve(GraphDef { nodes, library, ..GraphDef::default() }, registry.table()).unwrap();
        let is_inlined = self.lines.iter().any(|line| line == "inlined");
        let inlined = is_inlined.then(|| plimsoll_plan::inline(&graph, &registry).unwrap());
        let (graph, calls) = inlined.map_or((graph, Default::default()), |inlined| (inlined.graph, inlined.calls));
        let devices = self.devices();
        let mut options = PlaceOptions { log: true, calls: calls.into(), ..PlaceOptions::new(self.soft) };
        for (node, assigned) in parsed {
            if let Some(device) = assigned {
                options.assigned.insert(graph.find(&node.name).unwrap(), device);
            }
        }
        options.default_device = self.after("default").next().map(|name| {
            DeviceId::from_index(devices.iter().position(|device| device.name.to_string() == name).expect("the default device"))
        });
        let placed = place(&graph, &registry, &devices, &options);
        let again = place(&graph, &registry, &devices, &options);
        assert_eq!(format!("{placed:?}"), format!("{again:?}"), "deterministic");
        let expectations = self.after("=>").filter_map(|line| match line.split_once(": ") {
            Some(("soft", rest)) => self.soft.then_some(rest),
            Some(("hard", rest)) => (!self.soft).then_some(rest),
            _ => Some(line),
        });
        let expectations: Vec<&str> = expectations.collect();
        let fails = expectations.iter().any(|line| line.starts_with("error ")) && placed.is_err();
        if let (Err(error), false) = (&placed, fails) {
            return vec![format!("unexpected: {error}")];
        }
        expectations.iter().filter_map(|line| check(line, &graph, &devices, &placed).err()).collect()
    }

    fn devices(&self) -> Vec<DeviceSpec> {
        let mut names = Vec::new();
        let text = self.after("devices").next().unwrap_or("10 CPU 10 GPU 1 XLA_CPU");
        let mut words = text.split(' ');
        while let Some(word) = words.next() {
            if word.starts_with('/') {
                names.push(DeviceName::parse(word).unwrap());
                continue;
            }
            let (count, kind) = (word.parse::<u32>().unwrap(), words.next().unwrap());
            names.extend((0..count).map(|index| DeviceName::full("a", 0, 0, kind, index)));
        }
        let spec = |name: DeviceName| DeviceSpec {
            kind: if name.kind.as_deref() == Some("GPU") { DeviceKind::Gpu } else { DeviceKind::Cpu },
            name,
            ..DeviceSpec::cpu(0, None, 1, InstructionSet::Baseline)
        };
        names.into_iter().map(spec).collect()
    }
}

fn check(line: &str, graph: &Graph, devices: &[DeviceSpec], placed: &Result<Placement, Error>) -> Result<(), String> {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    let whole = match placed {
        Ok(placement) => {
            let notes = placement.notes.join("\n");
            if word == "note" {
                return if notes.contains(rest) { Ok(()) } else { Err(format!("no note '{rest}' in '{notes}'")) };
            }
            placement
        }
        Err(error) => {
            let text = error.to_string();
            let wanted = match word {
                "error" => {
                    let (code, wanted) = rest.split_once(' ').unwrap();
                    if error.code().name() != code {
                        return Err(format!("not {code}: {text}"));
                    }
                    if error.node().is_none() && code != "FAILED_PRECONDITION" {
                        return Err(format!("no node is named: {text}"));
                    }
                    wanted
                }
                "text" => rest,
                _ => return Err(format!("'{line}' beside an error")),
            };
            return if text.contains(wanted) { Ok(()) } else { Err(format!("no '{wanted}' in: {text}")) };
        }
    };
    let device = |ids: &plimsoll_graph::IdVec<NodeId, DeviceId>, name: &str| {
        devices[ids[graph.find(name).unwrap_or_else(|| panic!("no node {name}"))].index()].name.clone()
    };
    let at = |name: &str| device(&whole.devices, name);
    match word {
        "error" | "text" => Err(format!("it can be placed, but should be '{rest}'")),
        "why" => {
            let (node, wanted) = rest.split_once(' ').unwrap();
            let got = whole.why[graph.find(node).unwrap()].describe(graph);
            if got == wanted { Ok(()) } else { Err(format!("{node}: {got}, not {wanted}")) }
        }
        "placed" => {
            let (node, wanted) = rest.split_once(' ').unwrap();
            let id = graph.find(node).unwrap();
            let got = &devices[whole.moved.get(&id).unwrap_or(&whole.devices[id]).index()].name;
            if got.short() == wanted { Ok(()) } else { Err(format!("{node} was placed on {got}, not {wanted}")) }
        }
        _ => {
            for part in line.split("; ") {
                let words: Vec<&str> = part.split(' ').collect();
                let fine = match words[..] {
                    [a, "=", b] => at(a) == at(b),
                    [a, "!=", b] => at(a) != at(b),
                    [a, "~", b] => at(a).kind == at(b).kind,
                    [node, wanted] if wanted.starts_with('/') => at(node).to_string() == wanted,
                    [node, wanted] if wanted.contains(':') => at(node).short() == wanted,
                    [node, wanted] => at(node).kind.as_deref() == Some(wanted),
                    _ => panic!("'{part}'"),
                };
                if !fine {
                    let all: Vec<String> = graph
                        .nodes()
                        .iter()
                        .map(|(id, node)| format!("{} {} ({})", node.name, at(&node.name).short(), whole.why[id].describe(graph)))
                        .collect();
                    return Err(format!("not '{part}': {}", all.join("; ")));
                }
            }
            Ok(())
        }
    }
}

/// `NAME = OP(INPUTS) …`, and the device that the node has already.
fn parse_node(line: &str, ops: &OpTable) -> (NodeDef, Option<String>) {
    let (name, rest) = line.split_once(" = ").unwrap();
    let end = rest.find([' ', '(']).unwrap_or(rest.len());
    let (op, rest) = rest.split_at(end);
    let (inputs, rest) = match rest.strip_prefix('(') {
        Some(rest) => rest.split_once(')').unwrap(),
        None => ("", rest),
    };
    let mut node = NodeDef {
        name: name.to_string(),
        op: op.to_string(),
        inputs: inputs.split(", ").filter(|input| !input.is_empty()).map(str::to_string).collect(),
        ..NodeDef::default()
    };
    let (mut classes, mut assigned) = (Vec::new(), None);
    for word in rest.split_whitespace() {
        if let Some(device) = word.strip_prefix('@') {
            node.device = if device == "/" { String::new() } else { device.to_string() };
        } else if let Some(device) = word.strip_prefix('!') {
            assigned = Some(device.to_string());
        } else if word.starts_with("loc:@") {
            classes.push(word.to_string());
        } else {
            let (attr, value) = word.split_once('=').unwrap_or_else(|| panic!("'{word}' in '{line}'"));
            let kind = ops.get(op).and_then(|def| Some(def.attrs.iter().find(|def| def.name == attr)?.kind.clone()));
            node.attrs.insert(attr.to_string(), parse_attr(kind.as_deref().unwrap_or("string"), value, &node.attrs));
        }
    }
    if !classes.is_empty() {
        node.attrs.insert("_class".to_string(), AttrValue::texts(&classes));
    }
    (node, assigned)
}

fn parse_attr(kind: &str, value: &str, attrs: &Attrs) -> AttrValue {
    let data_type = |name: &str| DataType::from_name(name).unwrap_or_else(|| panic!("type {name}"));
    let items = || value.trim_matches(['[', ']']).split(',').filter(|item| !item.is_empty());
    match kind {
        "type" => AttrValue::data_type(data_type(value)),
        "list(type)" => AttrValue::data_types(&items().map(data_type).collect::<Vec<_>>()),
        "list(shape)" => AttrValue::List(Box::default()),
        "shape" => AttrValue::Shape(PartialShape::from(&Shape::from([]))),
        "int" => AttrValue::Int(value.parse().unwrap()),
        "bool" => AttrValue::Bool(value == "true"),
        "func" => AttrValue::Func(FuncRef { name: value.trim_start_matches('@').to_string(), attrs: Attrs::new() }),
        "tensor" => {
            let Some(AttrValue::Type(number)) = attrs.get("dtype") else { panic!("dtype comes before value") };
            AttrValue::Tensor(HostTensor::zeros(DataType::from_number(*number).unwrap(), Shape::from([])).unwrap())
        }
        "string" => AttrValue::text(value.trim_matches('"')),
        other => panic!("attributes of kind {other}"),
    }
}

/// `NAME(args) -> (results)`, nodes, and `return RESULT = TENSOR`.
fn parse_function(lines: &[String], ops: &OpTable) -> FunctionDef {
    let mut table = OpTable::empty();
    table.insert_line(&format!("{} | |", lines[0])).unwrap();
    let signature = (*table.get(lines[0].split('(').next().unwrap()).unwrap()).clone();
    let mut function = FunctionDef { signature, ..FunctionDef::default() };
    for line in &lines[1..] {
        match line.strip_prefix("return ") {
            Some(rest) => {
                let (result, tensor) = rest.split_once(" = ").unwrap();
                function.ret.insert(result.to_string(), tensor.to_string());
            }
            None => function.nodes.push(parse_node(line, ops).0),
        }
    }
    function
}
