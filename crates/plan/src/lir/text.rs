//! The text form of an LIR: a line for each thing that it names, then its regions. The pass tests read it back.
//!
//! A value is `v3 arena 64`: its number, home and bytes. `on DEVICE` and `of NODE` follow where they are not those of its work.

use std::fmt::{self, Display, Formatter, Write};

use plimsoll_device::{DeviceSpec, KernelCall};
use plimsoll_graph::Graph;
use plimsoll_graph::id::Id;
use plimsoll_request::expr::{Expr, Instr};
use serde::Serialize;

use super::{Arg, Home, Lir, PartArg, PartCut, PartOf, PartStep, RegionId, Trips, Value, ValueId, View, When, Work, WorkId, WorkKind};
use crate::plan::{DeviceId, PlanCall, SavedTensor, VariableKind};

/// An LIR with what its ids of nodes and devices mean.
pub(crate) struct Text<'a> {
    pub lir: &'a Lir,
    pub graph: &'a Graph,
    pub devices: &'a [DeviceSpec],
}

impl Display for Text<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let lir = self.lir;
        for index in 0..self.devices.len() {
            writeln!(f, "device {}", self.device(DeviceId::from_index(index)))?;
        }
        for (id, variable) in lir.variables.iter() {
            let kind = match variable.kind {
                VariableKind::Reference => "reference",
                VariableKind::Resource => "resource",
                VariableKind::State => "state",
            };
            let device = self.device(variable.device);
            writeln!(f, "variable{} = {} {}{} {kind} on {device}", id.index(), variable.name, variable.data_type, variable.shape)?;
        }
        for (id, constant) in lir.constants.iter() {
            write!(f, "constant{} = {} {}{}", id.index(), constant.name, constant.data_type, constant.shape)?;
            write!(f, "{}", constant.device.map_or_else(String::new, |device| format!(" on {}", self.device(device))))?;
            match (constant.panels, lir.constant_values[id].panels()) {
                (Some(read), _) => writeln!(f, " read in panels {}", json(&read))?,
                (None, Some(held)) => writeln!(f, " in panels {}", json(&held))?,
                (None, None) => writeln!(f)?,
            }
        }
        for (id, feed) in lir.feeds.iter() {
            writeln!(f, "feed{} = {} {}{}", id.index(), self.graph.tensor_name(feed.tensor), feed.data_type, feed.shape)?;
        }
        for (id, fetch) in lir.fetches.iter() {
            writeln!(f, "fetch{} = {} {}{}", id.index(), fetch.name, fetch.data_type, fetch.shape)?;
        }
        for (id, call) in lir.calls.iter() {
            writeln!(f, "file{} = {}", id.index(), self.call(call))?;
        }
        self.region(f, RegionId::from_index(0), "")?;
        for (variable, version) in &lir.initialized {
            writeln!(f, "initialized variable{} by {}", variable.index(), number(*version))?;
        }
        for softened in &lir.softened {
            let (node, device) = (&self.graph.node(softened.node).name, self.device(softened.device));
            writeln!(f, "softened {node} of {device}: {}", softened.why)?;
        }
        for (number, applied) in lir.fusions.iter().enumerate() {
            writeln!(f, "fusion {} {} at {}", number + 1, applied.name, self.graph.node(applied.node).name)?;
        }
        Ok(())
    }
}

impl Text<'_> {
    fn region(&self, f: &mut Formatter<'_>, region: RegionId, indent: &str) -> fmt::Result {
        let region = &self.lir.regions[region];
        for &param in &region.params {
            let value = &self.lir.values[param];
            writeln!(f, "{indent}param {} on {} of {}", self.value(param), self.device(value.device), self.graph.node(value.node).name)?;
        }
        for &id in &region.works {
            self.work(f, id, indent)?;
        }
        match &region.results[..] {
            [] => Ok(()),
            results => writeln!(f, "{indent}result {}", results.iter().map(|value| number(*value)).collect::<Vec<_>>().join(", ")),
        }
    }

    fn work(&self, f: &mut Formatter<'_>, id: WorkId, indent: &str) -> fmt::Result {
        let work = &self.lir.works[id];
        let nodes: Vec<&str> = work.nodes.iter().map(|node| self.graph.node(*node).name.as_str()).collect();
        let inputs: Vec<String> = work.inputs.iter().map(view).collect();
        write!(f, "{indent}w{} on {} of {} = {}", id.index(), self.device(work.device), nodes.join("+"), kind(work))?;
        write!(f, " ({})", inputs.join(", "))?;
        let outputs: Vec<String> = work.outputs.iter().map(|output| self.made(*output, work)).collect();
        if !outputs.is_empty() {
            write!(f, " -> {}", outputs.join(", "))?;
        }
        if let Some(guard) = work.guard {
            write!(f, " if {}", number(guard))?;
        }
        for before in &work.after {
            write!(f, " after w{}", before.index())?;
        }
        if work.is_beside {
            write!(f, " beside")?;
        }
        if work.is_root {
            f.write_str(" root")?;
        }
        if work.rank as usize != id.index() {
            write!(f, " rank {}", work.rank)?;
        }
        if let Some(prepared) = &work.prepared {
            if let (Some(call), false) = (&prepared.kernel, matches!(work.kind, WorkKind::Kernel { .. })) {
                write!(f, " by {}", by(call))?;
            }
            if prepared.scratch() > 0 {
                write!(f, " scratch {}+{}", prepared.shared, prepared.slices)?;
            }
        }
        for region in work.regions() {
            self.lir.regions[*region].partners.iter().try_for_each(|partner| write!(f, " with {}", self.device(*partner)))?;
            writeln!(f, " {{")?;
            self.region(f, *region, &format!("{indent}  "))?;
        }
        writeln!(f, "{}", if work.regions().is_empty() { String::new() } else { format!("{indent}}}") })
    }

    fn value(&self, id: ValueId) -> String {
        let value = &self.lir.values[id];
        let home = match value.home {
            Home::Arena => "arena".to_string(),
            Home::Variable(variable) => format!("variable{}", variable.index()),
            Home::Flag(variable) => format!("flag{}", variable.index()),
            Home::Constant(constant) => format!("constant{}", constant.index()),
            Home::Feed(feed) => format!("feed{}", feed.index()),
            Home::Fetch(fetch) => format!("fetch{}", fetch.index()),
            Home::Given { region, param } => format!("given{}.{param}", region.index()),
        };
        let Value { bytes, is_copy, previous, .. } = *value;
        let over = previous.map_or_else(String::new, |previous| format!(" over {}", number(previous)));
        format!("{} {home} {bytes}{}{over}", number(id), if is_copy { " copy" } else { "" })
    }

    /// A value with what its work does not say of it.
    fn made(&self, id: ValueId, work: &Work) -> String {
        let (value, mut text) = (&self.lir.values[id], self.value(id));
        if value.device != work.device {
            text += &format!(" on {}", self.device(value.device));
        }
        if Some(&value.node) != work.nodes.first() {
            text += &format!(" of {}", self.graph.node(value.node).name);
        }
        text
    }

    fn device(&self, device: DeviceId) -> String {
        let name = self.devices.get(device.index()).map(|spec| spec.name.to_string()).unwrap_or_default();
        name.rsplit("device:").next().unwrap_or_default().to_string()
    }

    fn call(&self, call: &PlanCall) -> String {
        let (mut text, node) = match call {
            PlanCall::Check(check) => {
                let tensors = check.tensors.iter().map(|(name, data_type)| format!(" {} {data_type}", json(name)));
                (format!("check {}{}", json(&check.prefix), tensors.collect::<String>()), check.node)
            }
            PlanCall::Restore(restore) => {
                (format!("restore {} {} variable{}", json(&restore.prefix), json(&restore.name), restore.variable), restore.node)
            }
            PlanCall::Save(save) => {
                let tensor = |tensor: &SavedTensor| {
                    let place = tensor.variable.map_or_else(String::new, |variable| format!(" variable{variable}"));
                    format!(" {} {}{}{place}", json(&tensor.name), tensor.data_type, tensor.shape)
                };
                (format!("save {}{}", json(&save.prefix), save.tensors.iter().map(tensor).collect::<String>()), save.node)
            }
        };
        _ = write!(text, " of {}", self.graph.node(node).name);
        text
    }
}

fn number(value: ValueId) -> String {
    format!("v{}", value.index())
}

fn view(view: &View) -> String {
    format!("{} {}{}", number(view.value), view.data_type, view.shape)
}

fn kind(work: &Work) -> String {
    match &work.kind {
        WorkKind::Expr { expr, shape } => format!("expr {shape} {}", steps(expr)),
        WorkKind::Anchor { anchor, epilogue } => {
            let epilogue = epilogue.as_ref().map_or_else(String::new, |expr| format!(" then {}", steps(expr)));
            format!("anchor {}{epilogue}", json(anchor))
        }
        WorkKind::Request { request, args } => format!("request {}{}", json(&**request), arguments(work, args)),
        WorkKind::Kernel { call, args } => {
            let laid_out = call.variant.laid_out.map_or_else(String::new, |laid_out| format!(" with {}", json(&laid_out)));
            format!("kernel {}{}{laid_out} by {}", json(&*call.request), arguments(work, args), by(call))
        }
        WorkKind::Copy => "copy".to_string(),
        WorkKind::Outside { call, scratch } => format!("file{} through {scratch}", call.index()),
        WorkKind::Loop { carried, trips, .. } => match trips {
            Trips::Exactly(trips) => format!("loop {carried} trips {trips}"),
            Trips::AtMost(trips) => format!("loop {carried} trips at most {trips}"),
            Trips::InAll { trips, runs } => format!("loop {carried} trips in {runs} {trips}"),
            Trips::Open => format!("loop {carried} trips open"),
        },
        WorkKind::Parts(parts) => {
            let arg = |arg: &PartArg| {
                let slices = match arg.cut {
                    PartCut::Whole | PartCut::Slices(1) => String::new(),
                    PartCut::Slices(slices) => format!("/{slices}"),
                    PartCut::Half(first) => format!("/2 from {first}"),
                    PartCut::First { fewest, larger } => format!(" first {fewest} or {larger}"),
                    PartCut::Fixed(is_second) => format!("/2.{}", u8::from(is_second)),
                    PartCut::Rows => match arg.of {
                        PartOf::Between(_) => String::new(),
                        PartOf::Input(_) | PartOf::Output(_) => format!("/{}", parts.rows.parts),
                    },
                };
                match arg.of {
                    PartOf::Input(index) => format!(" in{index}{slices}"),
                    PartOf::Output(index) => format!(" out{index}{slices}"),
                    PartOf::Between(index) => format!(" between{index}{slices}"),
                }
            };
            let step = |step: &PartStep| {
                let when = match step.when {
                    When::Before => "once ".to_string(),
                    When::Each => String::new(),
                    When::First(every) => format!("first of {every} "),
                    When::Last(every) => format!("last of {every} "),
                    When::Behind => "then ".to_string(),
                };
                let args: String = step.args.iter().map(arg).collect();
                let times = if step.calls > 1 { format!("{} times ", step.calls) } else { String::new() };
                format!("{when}{times}{} by {} args{args}", json(&*step.call.request), by(&step.call))
            };
            let of_rows = if parts.rows.is_even() { String::new() } else { format!(" of {} rows", parts.rows.all) };
            format!("{} parts{of_rows} {{ {} }}", parts.rows.parts, parts.steps.iter().map(step).collect::<Vec<_>>().join("; "))
        }
    }
}

/// The variant of a call, with the number of the step where there are several.
fn by(call: &KernelCall) -> String {
    match call.variant.steps.len() {
        1 => call.variant.name.to_string(),
        _ => format!("{}#{}", call.variant.name, call.step),
    }
}

/// The arguments where they are not all inputs, then all outputs.
fn arguments(work: &Work, args: &[Arg]) -> String {
    if args == Arg::all(work.inputs.len(), work.outputs.len()) {
        return String::new();
    }
    let arg = |arg: &Arg| match arg {
        Arg::Input(input) => format!(" in{input}"),
        Arg::Output(output) => format!(" out{output}"),
    };
    format!(" args{}", args.iter().map(arg).collect::<String>())
}

fn steps(expr: &Expr) -> String {
    let mut text = String::from("{ ");
    for (number, instr) in expr.instrs().iter().enumerate() {
        _ = write!(text, "r{number} = ");
        _ = match instr {
            Instr::Input(input) => write!(text, "in {}; ", expr.inputs()[*input as usize]),
            Instr::Const(value) => write!(text, "{value:?}; "),
            Instr::Unary(op, a) => write!(text, "{op:?} r{}; ", a.0),
            Instr::Binary(op, a, b) => write!(text, "{op:?} r{} r{}; ", a.0, b.0),
            Instr::Select(c, a, b) => write!(text, "Select r{} r{} r{}; ", c.0, a.0, b.0),
            Instr::Cast(data_type, a) => write!(text, "Cast {data_type} r{}; ", a.0),
        };
    }
    let outputs: Vec<String> = expr.outputs().iter().map(|reg| format!("r{}", reg.0)).collect();
    text + &format!("out {} }}", outputs.join(" "))
}

/// Plain data; its text has no failure.
fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
