//! Traces in the log format of Dynamic Tensor Rematerialization.
//!
//! `CONSTANT` (with a `MEMORY` line) is there from the start. `CALL` runs an operation, and a `MEMORY` and an `ALIAS` line follow for each
//! result: with an alias of k, not -1, it is a view of argument k. `MUTATE` runs one that changes arguments: here they are new values. `COPY`,
//! `COPY_FROM` and `RELEASE` are references. Lines up to an annotation `START` do not count.

use std::collections::HashMap;

use plimsoll_fit::{Problem, Value, Work};
use serde_json::Value as Json;

/// A value: a constant, or a result of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Id {
    Constant(usize),
    Result(usize),
}

struct Operation {
    nanoseconds: u64,
    arguments: Vec<Id>,
    results: Vec<usize>,
}

struct Made {
    operation: usize,
    result: usize,
    bytes: u64,
    /// The value that it is a view of.
    of: Option<Id>,
}

/// In the order of the log.
enum Event {
    Run(usize),
    /// No name refers to a value any more.
    Dropped(Id),
}

#[derive(Default)]
pub struct Trace {
    constants: Vec<u64>,
    operations: Vec<Operation>,
    values: Vec<Made>,
    events: Vec<Event>,
    references: HashMap<Id, u64>,
    names: HashMap<String, Id>,
}

impl Trace {
    /// # Errors
    /// The line and its defect.
    pub fn parse(text: &str) -> Result<Trace, String> {
        let mut lines = Vec::new();
        for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let json: Json = serde_json::from_str(line).map_err(|error| format!("line {}: {error}", index + 1))?;
            lines.push((index + 1, json));
        }
        let is_start = |json: &Json| json["INSTRUCTION"] == "ANNOTATE" && json["ANNOTATION"] == "START";
        let start = lines.iter().position(|(_, json)| is_start(json)).map_or(0, |at| at + 1);
        let mut trace = Trace::default();
        let mut rest = lines[start..].iter();
        while let Some((number, line)) = rest.next() {
            trace.line(line, &mut rest).map_err(|message| format!("line {number}: {message}"))?;
        }
        Ok(trace)
    }

    fn line(&mut self, line: &Json, rest: &mut std::slice::Iter<(usize, Json)>) -> Result<(), String> {
        match text(line, "INSTRUCTION")? {
            "CONSTANT" => {
                let bytes = number(following(rest)?, "MEMORY")?;
                let id = Id::Constant(self.constants.len());
                self.constants.push(bytes);
                self.name(text(line, "NAME")?, id);
            }
            "COPY" => {
                let id = self.id(text(line, "SRC")?)?;
                self.refer(id);
                self.names.insert(text(line, "DST")?.to_string(), id);
            }
            "COPY_FROM" => {
                let (to, new) = (text(line, "DST")?, self.id(text(line, "SRC")?)?);
                let old = self.id(to)?;
                self.refer(new);
                self.names.insert(to.to_string(), new);
                self.release(old);
            }
            "RELEASE" => {
                if let Ok(id) = self.id(text(line, "NAME")?) {
                    self.release(id);
                }
            }
            "CALL" => self.call(line, rest)?,
            "MUTATE" => self.mutate(line)?,
            "ANNOTATE" | "MEMORY" | "ALIAS" => {}
            other => return Err(format!("unknown instruction {other}")),
        }
        Ok(())
    }

    fn call(&mut self, line: &Json, rest: &mut std::slice::Iter<(usize, Json)>) -> Result<(), String> {
        let operation = self.operation(line)?;
        for (index, name) in list(line, "RESULT")?.iter().enumerate() {
            let bytes = number(following(rest)?, "MEMORY")?;
            let alias = following(rest)?;
            let of = match text(alias, "ALIAS")? {
                "-1" => None,
                alias => {
                    let argument = alias.parse::<usize>().ok().and_then(|at| self.operations[operation].arguments.get(at).copied());
                    Some(argument.ok_or_else(|| format!("result {index} is a view of argument {alias}"))?)
                }
            };
            let id = self.make(operation, index, if of.is_some() { 0 } else { bytes }, of);
            self.name(name.as_str().ok_or("a result has no name")?, id);
        }
        Ok(())
    }

    fn mutate(&mut self, line: &Json) -> Result<(), String> {
        let operation = self.operation(line)?;
        let names = list(line, "ARGS")?;
        for (index, at) in list(line, "MUTATE")?.iter().enumerate() {
            let at = at.as_u64().or_else(|| at.as_str()?.parse().ok()).unwrap_or(u64::MAX);
            let name = names.get(at as usize).and_then(Json::as_str).ok_or_else(|| format!("there is no argument {at} to change"))?;
            let old = self.id(name)?;
            let id = self.make(operation, index, self.bytes(old), None);
            self.name(name, id);
            self.release(old);
        }
        Ok(())
    }

    fn operation(&mut self, line: &Json) -> Result<usize, String> {
        let arguments = list(line, "ARGS")?.iter().map(|name| self.id(name.as_str().unwrap_or(""))).collect::<Result<_, _>>()?;
        self.events.push(Event::Run(self.operations.len()));
        self.operations.push(Operation { nanoseconds: number(line, "TIME")?, arguments, results: Vec::new() });
        Ok(self.operations.len() - 1)
    }

    fn make(&mut self, operation: usize, result: usize, bytes: u64, of: Option<Id>) -> Id {
        let value = self.values.len();
        self.values.push(Made { operation, result, bytes, of });
        self.operations[operation].results.push(value);
        Id::Result(value)
    }

    fn id(&self, name: &str) -> Result<Id, String> {
        self.names.get(name).copied().ok_or_else(|| format!("nothing is named '{name}'"))
    }

    fn name(&mut self, name: &str, id: Id) {
        self.refer(id);
        self.names.insert(name.to_string(), id);
    }

    fn refer(&mut self, id: Id) {
        *self.references.entry(id).or_default() += 1;
    }

    fn release(&mut self, id: Id) {
        let count = self.references.entry(id).or_default();
        *count = count.saturating_sub(1);
        if *count == 0 {
            self.events.push(Event::Dropped(id));
        }
    }

    fn root(&self, id: Id) -> Id {
        let mut root = id;
        while let Id::Result(value) = root
            && let Some(of) = self.values[value].of
        {
            root = of;
        }
        root
    }

    fn bytes(&self, id: Id) -> u64 {
        match self.root(id) {
            Id::Constant(constant) => self.constants[constant],
            Id::Result(value) => self.values[value].bytes,
        }
    }

    /// The operation and the number of its result that made a value, if it has memory.
    pub fn storage(&self, value: usize) -> Option<(usize, usize)> {
        let made = self.values.get(value)?;
        made.of.is_none().then_some((made.operation, made.result))
    }

    /// The problem, with values and works as they are numbered here; constants come after all other values.
    pub fn problem(&self) -> Problem {
        let index = |id: Id| match id {
            Id::Constant(constant) => self.values.len() + constant,
            Id::Result(value) => value,
        };
        let value = |(at, made): (usize, &Made)| Value {
            bytes: made.bytes,
            is_result: self.references.get(&Id::Result(at)).is_some_and(|count| *count > 0),
            view_of: made.of.filter(|of| matches!(self.root(*of), Id::Result(_))).map(index),
        };
        let mut values: Vec<Value> = self.values.iter().enumerate().map(value).collect();
        values.resize(values.len() + self.constants.len(), Value::default());
        let work = |operation: &Operation| Work {
            seconds: operation.nanoseconds as f64 * 1e-9,
            reads: operation.arguments.iter().copied().map(index).collect(),
            writes: operation.results.clone(),
            again: true,
            ..Work::default()
        };
        let base = self.constants.iter().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
        Problem { works: self.operations.iter().map(work).collect(), values, base, slow: None }
    }

    /// The peak and the time of the log as it is: memory goes when no name refers to it or to a view of it.
    pub fn baseline(&self) -> (u64, u64) {
        let mut live = self.constants.iter().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
        let (mut peak, mut time) = (live, 0u64);
        let mut referred: HashMap<Id, usize> = HashMap::new();
        for event in &self.events {
            match *event {
                Event::Run(operation) => {
                    time = time.saturating_add(self.operations[operation].nanoseconds);
                    for &value in &self.operations[operation].results {
                        *referred.entry(self.root(Id::Result(value))).or_default() += 1;
                        live = live.saturating_add(self.values[value].bytes);
                    }
                    peak = peak.max(live);
                }
                Event::Dropped(id) => {
                    let root = self.root(id);
                    let count = referred.entry(root).or_default();
                    *count = count.saturating_sub(1);
                    if *count == 0 && matches!(root, Id::Result(_)) {
                        live = live.saturating_sub(self.bytes(root));
                    }
                }
            }
        }
        (peak, time)
    }
}

fn following<'a>(rest: &mut std::slice::Iter<'a, (usize, Json)>) -> Result<&'a Json, String> {
    rest.next().map(|(_, line)| line).ok_or_else(|| "a line about memory is missing".into())
}

fn text<'a>(line: &'a Json, field: &str) -> Result<&'a str, String> {
    line[field].as_str().ok_or_else(|| format!("there is no {field}"))
}

fn list<'a>(line: &'a Json, field: &str) -> Result<&'a Vec<Json>, String> {
    line[field].as_array().ok_or_else(|| format!("there is no list {field}"))
}

fn number(line: &Json, field: &str) -> Result<u64, String> {
    let number = line[field].as_str().and_then(|text| text.parse().ok()).or_else(|| line[field].as_u64());
    number.ok_or_else(|| format!("there is no number {field}"))
}
