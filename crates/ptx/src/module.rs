//! PTX, parsed: functions as lists of instructions over numbered registers.

use std::collections::HashMap;

/// A module of PTX, as the compiler prints it.
#[derive(Debug, Default)]
pub struct Module {
    pub(crate) functions: HashMap<String, Function>,
    /// Arrays of constants, by name.
    pub(crate) globals: Vec<Vec<u8>>,
    global_names: HashMap<String, usize>,
}

/// A kernel, or a function that kernels call.
#[derive(Debug, Default)]
pub(crate) struct Function {
    /// Offsets and sizes of the parameters in the frame's parameter bytes.
    pub params: Vec<(usize, usize)>,
    /// Where the result is there.
    pub result: Option<(usize, usize)>,
    /// How long those bytes are: own parameters, and those of calls.
    pub param_bytes: usize,
    pub registers: usize,
    pub shared: usize,
    pub local: usize,
    pub code: Vec<Instruction>,
}

/// The class of a type and its bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Type {
    pub class: u8,
    pub bits: u32,
}

impl Type {
    fn of(word: &str) -> Option<Type> {
        if word == "pred" {
            return Some(Type { class: b'p', bits: 1 });
        }
        let (class, bits) = word.split_at_checked(1)?;
        let bits = bits.parse().ok()?;
        matches!((class, bits), ("b" | "u" | "s" | "f", 8 | 16 | 32 | 64)).then(|| Type { class: class.as_bytes()[0], bits })
    }

    pub fn bytes(self) -> usize {
        self.bits as usize / 8
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Operand {
    Register(usize),
    Immediate(u64),
    /// A special register and its dimension.
    Special(Special, u8),
    /// The address in a register, or a number, and an offset.
    Memory(Box<Operand>, i64),
    Vector(Vec<Operand>),
    /// The address of a constant array.
    Global(usize),
    /// The address of the frame's local bytes, at an offset.
    Local(u64),
    /// An instruction.
    Target(usize),
    /// Nothing is kept.
    Sink,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Special {
    Thread,
    Threads,
    Block,
    Blocks,
}

/// An instruction.
#[derive(Clone, Debug)]
pub(crate) struct Instruction {
    /// The predicate, and what it has to be.
    pub predicate: Option<(usize, bool)>,
    /// The operation's first word.
    pub op: &'static str,
    /// The words between it and the types.
    pub words: Vec<&'static str>,
    /// The last type, and the one before it where there are two.
    pub ty: Type,
    pub before: Option<Type>,
    pub args: Vec<Operand>,
    /// The function that is called.
    pub callee: Option<String>,
    pub text: String,
}

impl Instruction {
    pub fn has(&self, word: &str) -> bool {
        self.words.contains(&word)
    }
}

/// Operations and their words: what is not among these is refused when it is parsed.
const OPERATIONS: &[&str] = &[
    "add", "addc", "sub", "subc", "mul", "mad", "madc", "div", "rem", "min", "max", "abs", "neg", "fma", "and", "or", "xor", "not", "shl",
    "shr", "setp", "selp", "mov", "ld", "st", "cvt", "cvta", "bra", "ret", "exit", "bar", "barrier", "atom", "red", "prmt", "bfi", "bfe",
    "clz", "popc", "brev", "copysign", "rcp", "sqrt", "rsqrt", "ex2", "lg2", "call", "shf", "lop3",
];
const WORDS: &[&str] = &[
    "lo", "hi", "wide", "cc", "rn", "rz", "rm", "rp", "rni", "rzi", "rmi", "rpi", "ftz", "sat", "approx", "full", "eq", "ne", "lt", "le",
    "gt", "ge", "ls", "hs", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan", "NaN", "to", "global", "shared", "local", "param",
    "const", "nc", "volatile", "relaxed", "gpu", "sys", "v2", "v4", "uni", "sync", "aligned", "min", "max", "add", "exch", "cas", "l", "r",
    "wrap", "clamp", "cta",
];

fn known(word: &str, among: &[&'static str]) -> Option<&'static str> {
    among.iter().copied().find(|known| *known == word)
}

impl Module {
    /// Parses a module.
    ///
    /// # Errors
    /// The statement that is not known.
    pub fn parse(text: &str) -> Result<Module, String> {
        let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default().trim());
        let kept: Vec<&str> =
            lines.filter(|line| ![".version", ".target", ".address_size", ".file"].iter().any(|word| line.starts_with(word))).collect();
        let text = kept.join("\n");
        let mut module = Module::default();
        let mut rest = text.trim();
        while !rest.is_empty() {
            let end = rest.find([';', '{']).ok_or_else(|| format!("a statement without an end: {rest}"))?;
            let (head, behind) = (&rest[..end], &rest[end + 1..]);
            if rest.as_bytes()[end] == b';' {
                rest = behind.trim_start();
                continue;
            }
            let close = matching(behind).ok_or("a brace that is not closed")?;
            let body = &behind[..close];
            rest = behind[close + 1..].trim_start().trim_start_matches(';').trim_start();
            if head.contains('=') {
                module.global(head, body)?;
            } else {
                module.function(head, body)?;
            }
        }
        Ok(module)
    }

    /// How many instructions a kernel has.
    pub fn instructions(&self, entry: &str) -> Option<usize> {
        self.functions.get(entry).map(|function| function.code.len())
    }

    /// `.global .align 8 .b8 name[24] = { numbers }`.
    fn global(&mut self, head: &str, body: &str) -> Result<(), String> {
        let words: Vec<&str> = head.split_whitespace().collect();
        let at = words.iter().position(|word| word.contains('[')).ok_or_else(|| format!("not an array: {head}"))?;
        let name = words[at].split('[').next().unwrap_or_default();
        let bytes = Type::of(words[at - 1].trim_start_matches('.')).ok_or_else(|| format!("no type: {head}"))?.bytes();
        let mut array = Vec::new();
        for number in body.split(',').map(str::trim).filter(|number| !number.is_empty()) {
            let value = immediate(number).ok_or_else(|| format!("not a number: {number}"))?;
            array.extend_from_slice(&value.to_le_bytes()[..bytes]);
        }
        self.global_names.insert(name.to_string(), self.globals.len());
        self.globals.push(array);
        Ok(())
    }

    fn function(&mut self, head: &str, body: &str) -> Result<(), String> {
        let mut parser =
            Parser { module: self, function: Function::default(), registers: HashMap::new(), symbols: HashMap::new(), scopes: Vec::new() };
        let (name, params) = match head.split_once(".entry") {
            Some((_, rest)) => rest.split_once('(').ok_or_else(|| format!("no parameters: {head}"))?,
            None => {
                let (_, rest) = head.split_once(".func").ok_or_else(|| format!("neither a kernel nor a function: {head}"))?;
                let rest = match rest.trim_start().strip_prefix('(') {
                    Some(result) => {
                        let (result, rest) = result.split_once(')').ok_or_else(|| format!("no result: {head}"))?;
                        parser.function.result = Some(parser.param(result)?);
                        rest
                    }
                    None => rest,
                };
                rest.split_once('(').ok_or_else(|| format!("no parameters: {head}"))?
            }
        };
        let params = params.split(')').next().unwrap_or_default();
        for param in params.split(',').filter(|param| !param.trim().is_empty()) {
            let made = parser.param(param)?;
            parser.function.params.push(made);
        }
        parser.body(body)?;
        let function = parser.function;
        self.functions.insert(name.trim().to_string(), function);
        Ok(())
    }
}

/// The place of the brace that closes what is open before a text.
fn matching(text: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, letter) in text.bytes().enumerate() {
        match letter {
            b'{' => depth += 1,
            b'}' if depth == 0 => return Some(at),
            b'}' => depth -= 1,
            _ => {}
        }
    }
    None
}

fn immediate(text: &str) -> Option<u64> {
    if let Some(bits) = text.strip_prefix("0f").or_else(|| text.strip_prefix("0F")) {
        return u64::from_str_radix(bits, 16).ok();
    }
    if let Some(bits) = text.strip_prefix("0d").or_else(|| text.strip_prefix("0D")) {
        return u64::from_str_radix(bits, 16).ok();
    }
    if let Some(bits) = text.strip_prefix("0x") {
        return u64::from_str_radix(bits.trim_end_matches('U'), 16).ok();
    }
    text.parse::<i64>().map(|number| number as u64).or_else(|_| text.trim_end_matches('U').parse::<u64>()).ok()
}

struct Parser<'a> {
    module: &'a Module,
    function: Function,
    registers: HashMap<String, usize>,
    symbols: HashMap<String, Operand>,
    /// For each scope that is open, the names that it declares and what they were outside.
    scopes: Vec<Vec<(String, Option<usize>)>>,
}

impl Parser<'_> {
    /// `.param .align 8 .b8 name[16]`, or `.param .b64 name`: a place among the parameter bytes.
    fn param(&mut self, text: &str) -> Result<(usize, usize), String> {
        let (name, bytes, align) = declared(text)?;
        let at = self.function.param_bytes.next_multiple_of(align);
        self.function.param_bytes = at + bytes;
        self.symbols.insert(name, Operand::Immediate(at as u64));
        Ok((at, bytes))
    }

    fn body(&mut self, body: &str) -> Result<(), String> {
        let mut labels: HashMap<String, usize> = HashMap::new();
        let mut branches: Vec<(usize, String)> = Vec::new();
        for statement in body.split(';') {
            let mut statement = statement.trim();
            loop {
                // Braces of scopes, not those of vectors: they begin a statement.
                let before = statement;
                if let Some(rest) = statement.strip_prefix('{') {
                    self.scopes.push(Vec::new());
                    statement = rest.trim_start();
                } else if let Some(rest) = statement.strip_prefix('}') {
                    for (name, outer) in self.scopes.pop().unwrap_or_default().into_iter().rev() {
                        match outer {
                            Some(register) => self.registers.insert(name, register),
                            None => self.registers.remove(&name),
                        };
                    }
                    statement = rest.trim_start();
                }
                if let Some((label, rest)) = statement.split_once(':')
                    && label.starts_with('$')
                    && !label.contains(char::is_whitespace)
                {
                    labels.insert(label.to_string(), self.function.code.len());
                    statement = rest.trim_start();
                }
                if statement == before {
                    break;
                }
            }
            if statement.is_empty() || matches!(statement.split_whitespace().next(), Some(".pragma" | ".loc")) {
                continue;
            }
            if let Some(rest) = statement.strip_prefix(".reg") {
                for name in rest.split_whitespace().skip(1).collect::<Vec<_>>().join("").split(',') {
                    self.register_names(name);
                }
            } else if statement.starts_with(".param") {
                self.param(statement)?;
            } else if statement.starts_with(".shared") {
                let (name, bytes, align) = declared(statement)?;
                let at = self.function.shared.next_multiple_of(align);
                self.function.shared = at + bytes;
                self.symbols.insert(name, Operand::Immediate(at as u64));
            } else if statement.starts_with(".local") {
                let (name, bytes, align) = declared(statement)?;
                let at = self.function.local.next_multiple_of(align);
                self.function.local = at + bytes;
                self.symbols.insert(name, Operand::Local(at as u64));
            } else if statement.starts_with('.') {
                return Err(format!("not known: {statement}"));
            } else {
                self.instruction(statement, &mut branches)?;
            }
        }
        for (at, label) in branches {
            let target = *labels.get(&label).ok_or_else(|| format!("no label {label}"))?;
            self.function.code[at].args = vec![Operand::Target(target)];
        }
        Ok(())
    }

    /// `%r<10>`: the registers from 0 on; else one.
    fn register_names(&mut self, name: &str) {
        match name.split_once('<') {
            Some((prefix, count)) => {
                (0..count.trim_end_matches('>').parse().unwrap_or(0)).for_each(|number: usize| self.register(format!("{prefix}{number}")));
            }
            None => self.register(name.to_string()),
        }
    }

    fn register(&mut self, name: String) {
        let outer = self.registers.insert(name.clone(), self.function.registers);
        self.function.registers += 1;
        if let Some(scope) = self.scopes.last_mut() {
            scope.push((name, outer));
        }
    }

    fn instruction(&mut self, statement: &str, branches: &mut Vec<(usize, String)>) -> Result<(), String> {
        let unknown = || format!("not known: {statement}");
        let (predicate, rest) = match statement.strip_prefix('@') {
            Some(rest) => {
                let (name, rest) = rest.split_once(char::is_whitespace).ok_or_else(unknown)?;
                let register = *self.registers.get(name.trim_start_matches('!')).ok_or_else(unknown)?;
                (Some((register, !name.starts_with('!'))), rest.trim_start())
            }
            None => (None, statement),
        };
        let (name, args) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let mut parts = name.split('.');
        let op = known(parts.next().unwrap_or_default(), OPERATIONS).ok_or_else(unknown)?;
        let (mut words, mut types) = (Vec::new(), Vec::new());
        for word in parts {
            match Type::of(word) {
                Some(ty) => types.push(ty),
                None => words.push(known(word, WORDS).ok_or_else(unknown)?),
            }
        }
        let ty = types.last().copied().unwrap_or(Type { class: b'b', bits: 32 });
        let before = (types.len() > 1).then(|| types[0]);
        let mut instruction = Instruction {
            predicate,
            op,
            words,
            ty,
            before,
            args: Vec::new(),
            callee: None,
            text: statement.split_whitespace().collect::<Vec<_>>().join(" "),
        };
        match op {
            "bra" => branches.push((self.function.code.len(), args.trim().to_string())),
            "call" => {
                // `(result), name, (arguments)`, each part of which may be missing.
                let mut lists: Vec<Vec<Operand>> = Vec::new();
                for part in split(args) {
                    match part.strip_prefix('(') {
                        Some(list) => {
                            let names = list.trim_end_matches(')').split(',').map(str::trim).filter(|name| !name.is_empty());
                            lists.push(names.map(|name| self.operand(name)).collect::<Result<_, _>>()?);
                        }
                        None => {
                            // Without a list before the name there is no result.
                            if lists.is_empty() {
                                lists.push(Vec::new());
                            }
                            instruction.callee = Some(part);
                        }
                    }
                }
                instruction.args = lists.into_iter().map(Operand::Vector).collect();
            }
            _ => {
                instruction.args = split(args)
                    .iter()
                    .map(|arg| self.operand(arg))
                    .collect::<Result<_, _>>()
                    .map_err(|error| format!("{error} in {statement}"))?
            }
        }
        self.function.code.push(instruction);
        Ok(())
    }

    fn operand(&self, text: &str) -> Result<Operand, String> {
        let text = text.trim();
        if let Some(list) = text.strip_prefix('{') {
            return split(list.trim_end_matches('}')).iter().map(|part| self.operand(part)).collect::<Result<_, _>>().map(Operand::Vector);
        }
        if let Some(inner) = text.strip_prefix('[') {
            let inner = inner.trim_end_matches(']').trim();
            let (base, offset) = inner.split_once('+').unwrap_or((inner, "0"));
            let offset = offset.trim().parse().map_err(|_| format!("not an offset: {text}"))?;
            return Ok(Operand::Memory(Box::new(self.operand(base)?), offset));
        }
        if let Some(register) = self.registers.get(text) {
            return Ok(Operand::Register(*register));
        }
        if let Some(symbol) = self.symbols.get(text) {
            return Ok(symbol.clone());
        }
        if let Some(global) = self.module.global_names.get(text) {
            return Ok(Operand::Global(*global));
        }
        if text == "_" {
            return Ok(Operand::Sink);
        }
        if let Some(name) = text.strip_prefix('%') {
            let (name, dimension) = name.split_once('.').unwrap_or((name, "x"));
            let dimension = ["x", "y", "z"].iter().position(|letter| *letter == dimension).unwrap_or(0) as u8;
            let special = match name {
                "tid" => Special::Thread,
                "ntid" => Special::Threads,
                "ctaid" => Special::Block,
                "nctaid" => Special::Blocks,
                _ => return Err(format!("not known: {text}")),
            };
            return Ok(Operand::Special(special, dimension));
        }
        immediate(text).map(Operand::Immediate).ok_or_else(|| format!("not known: {text}"))
    }
}

/// Parts between commas that are in no brackets.
fn split(text: &str) -> Vec<String> {
    let (mut depth, mut parts, mut part) = (0, Vec::new(), String::new());
    for letter in text.chars() {
        match letter {
            '{' | '[' | '(' => depth += 1,
            '}' | ']' | ')' => depth -= 1,
            _ => {}
        }
        if letter == ',' && depth == 0 {
            parts.push(std::mem::take(&mut part).trim().to_string());
        } else {
            part.push(letter);
        }
    }
    if !part.trim().is_empty() {
        parts.push(part.trim().to_string());
    }
    parts
}

/// The name, the bytes and the alignment of a declaration: `.shared .align 4 .b8 name[1024]`.
fn declared(text: &str) -> Result<(String, usize, usize), String> {
    let unknown = || format!("not known: {text}");
    let words: Vec<&str> = text.split_whitespace().collect();
    let name = words.last().ok_or_else(unknown)?;
    let ty = words.iter().filter_map(|word| Type::of(word.trim_start_matches('.'))).next_back().ok_or_else(unknown)?;
    let (name, count) = match name.split_once('[') {
        Some((name, count)) => (name, count.trim_end_matches(']').parse().map_err(|_| unknown())?),
        None => (*name, 1usize),
    };
    let align = words.iter().position(|word| *word == ".align").and_then(|at| words.get(at + 1)?.parse().ok()).unwrap_or(ty.bytes());
    Ok((name.to_string(), count * ty.bytes(), align.max(1)))
}
