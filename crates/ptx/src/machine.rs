//! The interpreter. A block's threads run in step from the lowest instruction on; blocks run one after the other.
//!
//! It is stricter than a card. An access has to lie in one argument, aligned to its size. A byte has to be written before it is read.
//! Two accesses of which one writes are a race unless a barrier lies between them, and so are any two such accesses of different
//! blocks; atomics race with plain accesses alone. All threads of a block have to reach a barrier together.

use crate::module::{Function, Instruction, Module, Operand, Special, Type};
use crate::{Job, Value};

/// Addresses of buffers: each begins far behind the one before.
const FAR: u64 = 1 << 40;
/// Addresses of constant arrays, and of local bytes.
const CONSTANTS: u64 = 1 << 60;
const LOCALS: u64 = 1 << 61;

/// Instructions of all threads of a launch, at most.
const MOST_STEPS: u64 = 4_000_000_000;

/// A thread's access of a byte: its block, its number, and how many barriers it had passed.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Access {
    /// The block's number and 1; 0 is none.
    block: u32,
    thread: u32,
    epoch: u32,
}

const MANY: u32 = u32::MAX;
const ATOMIC: u32 = u32::MAX - 1;

impl Access {
    /// Whether it is not ordered with a plain access by `other`.
    fn races(self, other: Access) -> bool {
        self.block != 0 && (self.block != other.block || self.epoch == other.epoch && self.thread != other.thread)
    }
}

/// Bytes with what is known about each.
struct Bytes {
    bytes: Vec<u8>,
    written: Vec<bool>,
    writes: Vec<Access>,
    reads: Vec<Access>,
}

impl Bytes {
    fn new(bytes: Vec<u8>, written: bool) -> Bytes {
        let len = bytes.len();
        Bytes { bytes, written: vec![written; len], writes: vec![Access::default(); len], reads: vec![Access::default(); len] }
    }

    fn forget_accesses(&mut self) {
        self.writes.fill(Access::default());
        self.reads.fill(Access::default());
    }

    fn read(&mut self, at: usize, size: usize, by: Access) -> Result<u64, String> {
        let mut word = [0; 8];
        for (byte, into) in (at..at + size).zip(&mut word) {
            if !self.written[byte] {
                return Err("reads what was never written".to_string());
            }
            if self.writes[byte].races(by) {
                return Err(format!("race: thread {} of block {} wrote this", self.writes[byte].thread, self.writes[byte].block - 1));
            }
            let seen = &mut self.reads[byte];
            *seen = match *seen {
                Access { block: 0, .. } => by,
                Access { block, .. } if block != by.block => Access { block: MANY, ..by },
                Access { epoch, thread, .. } if epoch == by.epoch && thread != by.thread => Access { thread: MANY, ..by },
                _ => by,
            };
            *into = self.bytes[byte];
        }
        Ok(u64::from_le_bytes(word))
    }

    /// A volatile read: it is ordered with atomics.
    fn peek(&self, at: usize, size: usize, by: Access) -> Result<u64, String> {
        if (at..at + size).any(|byte| !self.written[byte]) {
            return Err("reads what was never written".to_string());
        }
        match self.writes[at..at + size].iter().find(|write| write.thread != ATOMIC && write.races(by)) {
            Some(write) => Err(format!("race: thread {} of block {} wrote this", write.thread, write.block - 1)),
            None => Ok(word(&self.bytes[at..at + size])),
        }
    }

    fn write(&mut self, at: usize, size: usize, value: u64, by: Access) -> Result<(), String> {
        for (byte, from) in (at..at + size).zip(value.to_le_bytes()) {
            if self.writes[byte].races(by) {
                return Err(format!("race: thread {} of block {} wrote this", self.writes[byte].thread, self.writes[byte].block - 1));
            }
            if self.reads[byte].races(by) {
                return Err("race: another thread reads this".to_string());
            }
            self.writes[byte] = by;
            self.written[byte] = true;
            self.bytes[byte] = from;
        }
        Ok(())
    }

    fn exchange(&mut self, at: usize, size: usize, by: Access, with: impl FnOnce(u64) -> u64) -> Result<u64, String> {
        let mut word = [0; 8];
        for (byte, into) in (at..at + size).zip(&mut word) {
            let plain = self.writes[byte].thread != ATOMIC && self.writes[byte].races(by);
            if plain || self.reads[byte].races(by) {
                return Err("race: a plain access of an atomic".to_string());
            }
            if !self.written[byte] {
                return Err("reads what was never written".to_string());
            }
            *into = self.bytes[byte];
        }
        let old = u64::from_le_bytes(word);
        for (byte, from) in (at..at + size).zip(with(old).to_le_bytes()) {
            self.bytes[byte] = from;
            self.writes[byte] = Access { thread: ATOMIC, ..by };
        }
        Ok(old)
    }
}

impl Module {
    /// Runs a job's launches.
    ///
    /// # Errors
    /// The instruction that does what it may not, with the thread and the reason.
    pub fn run(&self, job: &mut Job) -> Result<(), String> {
        let mut buffers: Vec<Bytes> =
            job.buffers.iter().zip(&job.written).map(|(bytes, written)| Bytes::new(bytes.clone(), *written)).collect();
        for launch in &job.launches {
            let function = self.functions.get(&launch.entry).ok_or_else(|| format!("no kernel is called {}", launch.entry))?;
            let mut params = vec![0; function.param_bytes];
            if function.params.len() != launch.args.len() {
                return Err(format!("{} takes {} arguments and not {}", launch.entry, function.params.len(), launch.args.len()));
            }
            for ((at, size), arg) in function.params.iter().zip(&launch.args) {
                let value = match *arg {
                    Value::Buffer(buffer) => FAR * (buffer as u64 + 1),
                    Value::Number(number) => number,
                };
                params[*at..at + size].copy_from_slice(&value.to_le_bytes()[..*size]);
            }
            buffers.iter_mut().for_each(Bytes::forget_accesses);
            let mut steps = 0;
            for block in 0..launch.blocks {
                let shared = Bytes::new(vec![0xFF; function.shared], false);
                let mut machine = Machine {
                    module: self,
                    buffers: &mut buffers,
                    shared,
                    block,
                    blocks: launch.blocks,
                    threads: launch.threads,
                    epoch: 0,
                    steps,
                };
                let mut frame = Frame::new(function, 0, launch.threads as usize, &params);
                machine.execute(function, &mut frame).map_err(|error| format!("{}: {error}", launch.entry))?;
                steps = machine.steps;
            }
        }
        for (into, from) in job.buffers.iter_mut().zip(buffers) {
            *into = from.bytes;
        }
        Ok(())
    }
}

/// The threads that run a function.
struct Frame {
    /// The number of the first.
    first: usize,
    count: usize,
    /// `register * count + thread`.
    registers: Vec<u64>,
    /// `thread * param_bytes`.
    params: Vec<u8>,
    param_bytes: usize,
    local: Vec<u8>,
    local_bytes: usize,
    carry: Vec<bool>,
    next: Vec<usize>,
}

impl Frame {
    fn new(function: &Function, first: usize, count: usize, params: &[u8]) -> Frame {
        Frame {
            first,
            count,
            registers: vec![0; function.registers * count],
            params: params.repeat(count),
            param_bytes: function.param_bytes,
            local: vec![0; function.local * count],
            local_bytes: function.local,
            carry: vec![false; count],
            next: vec![0; count],
        }
    }
}

struct Machine<'a> {
    module: &'a Module,
    buffers: &'a mut Vec<Bytes>,
    shared: Bytes,
    block: u32,
    blocks: u32,
    threads: u32,
    epoch: u32,
    steps: u64,
}

impl Machine<'_> {
    fn execute(&mut self, function: &Function, frame: &mut Frame) -> Result<(), String> {
        let end = function.code.len();
        let mut lanes: Vec<usize> = Vec::with_capacity(frame.count);
        loop {
            let at = frame.next.iter().copied().min().unwrap_or(end);
            if at >= end {
                return Ok(());
            }
            lanes.clear();
            lanes.extend((0..frame.count).filter(|lane| frame.next[*lane] == at));
            // The threads that wait behind.
            let other = frame.next.iter().copied().filter(|next| *next != at).min().unwrap_or(usize::MAX);
            let mut at = at;
            // In step until they part, or meet others.
            loop {
                let instruction = &function.code[at];
                self.steps += lanes.len() as u64;
                if self.steps > MOST_STEPS {
                    return Err("it does not end".to_string());
                }
                if matches!(instruction.op, "bar" | "barrier") {
                    if lanes.len() != frame.count || instruction.predicate.is_some() || frame.count != self.threads as usize {
                        return Err(format!("divergent barrier: {} of {} threads", lanes.len(), frame.count));
                    }
                    self.epoch += 1;
                }
                let mut parts = false;
                for &lane in &lanes {
                    frame.next[lane] = at + 1;
                    if let Some((register, wanted)) = instruction.predicate
                        && (frame.registers[register * frame.count + lane] & 1 != 0) != wanted
                    {
                        continue;
                    }
                    self.step(instruction, frame, lane, end).map_err(|error| {
                        format!("{error} (thread {} of block {}): {}", frame.first + lane, self.block, instruction.text)
                    })?;
                }
                let next = frame.next[lanes[0]];
                if matches!(instruction.op, "bra" | "ret" | "exit") {
                    parts = lanes.iter().any(|lane| frame.next[*lane] != next);
                }
                if parts || next >= end || next >= other {
                    break;
                }
                at = next;
            }
        }
    }

    fn step(&mut self, instruction: &Instruction, frame: &mut Frame, lane: usize, end: usize) -> Result<(), String> {
        let args = &instruction.args;
        let ty = instruction.ty;
        match instruction.op {
            "bra" => {
                if let Some(Operand::Target(target)) = args.first() {
                    frame.next[lane] = *target;
                }
                return Ok(());
            }
            "ret" | "exit" => {
                frame.next[lane] = end;
                return Ok(());
            }
            "bar" | "barrier" => return Ok(()),
            "ld" => return self.load(instruction, frame, lane),
            "st" => return self.store(instruction, frame, lane),
            "atom" | "red" => return self.atomic(instruction, frame, lane),
            "call" => return self.call(instruction, frame, lane),
            "mov" => {
                match (&args[0], &args[1]) {
                    (Operand::Vector(parts), from) => {
                        let whole = self.value(from, frame, lane);
                        let bits = ty.bits / parts.len() as u32;
                        for (at, part) in parts.iter().enumerate() {
                            set(frame, lane, part, mask(whole >> (bits * at as u32), bits));
                        }
                    }
                    (to, Operand::Vector(parts)) => {
                        let bits = ty.bits / parts.len() as u32;
                        let values =
                            parts.iter().enumerate().map(|(at, part)| mask(self.value(part, frame, lane), bits) << (bits * at as u32));
                        let whole = values.fold(0, |whole, part| whole | part);
                        set(frame, lane, to, whole);
                    }
                    (to, from) => {
                        let value = self.value(from, frame, lane);
                        set(frame, lane, to, value);
                    }
                }
                return Ok(());
            }
            _ => {}
        }
        let mut values = [0u64; 4];
        for (value, arg) in values.iter_mut().zip(&args[1..]) {
            *value = self.value(arg, frame, lane);
        }
        let [a, b, c, d] = values;
        let result = match instruction.op {
            "cvta" => a,
            "setp" => u64::from(compare(instruction, a, b)?),
            "selp" => {
                if c & 1 != 0 {
                    a
                } else {
                    b
                }
            }
            "cvt" => convert(instruction, a)?,
            "addc" | "subc" | "madc" => carried(instruction, a, b, c, &mut frame.carry[lane])?,
            "add" | "sub" | "mad" if instruction.has("cc") => {
                frame.carry[lane] = false;
                carried(instruction, a, b, c, &mut frame.carry[lane])?
            }
            _ if ty.class == b'f' => floats(instruction, ty, [a, b, c])?,
            _ => integers(instruction, ty, [a, b, c, d])?,
        };
        set(frame, lane, &args[0], result);
        Ok(())
    }

    fn value(&self, operand: &Operand, frame: &Frame, lane: usize) -> u64 {
        match *operand {
            Operand::Register(register) => frame.registers[register * frame.count + lane],
            Operand::Immediate(number) => number,
            Operand::Special(special, dimension) => u64::from(match (special, dimension) {
                (Special::Thread, 0) => (frame.first + lane) as u32,
                (Special::Threads, 0) => self.threads,
                (Special::Block, 0) => self.block,
                (Special::Blocks, 0) => self.blocks,
                (Special::Thread | Special::Block, _) => 0,
                (Special::Threads | Special::Blocks, _) => 1,
            }),
            Operand::Global(global) => CONSTANTS + ((global as u64) << 32),
            Operand::Local(at) => LOCALS + at,
            Operand::Memory(..) | Operand::Vector(_) | Operand::Target(_) | Operand::Sink => 0,
        }
    }

    fn by(&self, frame: &Frame, lane: usize) -> Access {
        Access { block: self.block + 1, thread: (frame.first + lane) as u32, epoch: self.epoch }
    }

    fn address(&self, operand: &Operand, frame: &Frame, lane: usize) -> Result<u64, String> {
        match operand {
            Operand::Memory(base, offset) => Ok(self.value(base, frame, lane).wrapping_add(*offset as u64)),
            _ => Err("no address".to_string()),
        }
    }

    /// The buffer and the place in it.
    fn place(&self, address: u64, size: usize) -> Result<(usize, usize), String> {
        let (buffer, at) = ((address / FAR) as usize, (address % FAR) as usize);
        if !at.is_multiple_of(size) {
            return Err(format!("misaligned by {}", at % size));
        }
        // Before an argument is the far end of the one before.
        match self.buffers.get(buffer.wrapping_sub(1)) {
            Some(bytes) if at + size <= bytes.bytes.len() => Ok((buffer - 1, at)),
            Some(bytes) => {
                Err(format!("out of bounds: bytes {at}..{} of buffer {} of {}", at as u64 + size as u64, buffer - 1, bytes.bytes.len()))
            }
            None => Err(format!("out of bounds: address {address:#x}")),
        }
    }

    fn load(&mut self, instruction: &Instruction, frame: &mut Frame, lane: usize) -> Result<(), String> {
        let size = instruction.ty.bytes();
        let address = self.address(&instruction.args[1], frame, lane)?;
        let one = [instruction.args[0].clone()];
        let targets: &[Operand] = if let Operand::Vector(parts) = &instruction.args[0] { parts } else { &one };
        let by = self.by(frame, lane);
        if !instruction.has("param") && !instruction.has("shared") && address & (LOCALS | CONSTANTS) == 0 {
            // All of a vector is one access.
            self.place(address, size * targets.len())?;
        }
        for (at, target) in targets.iter().enumerate() {
            let address = address + (at * size) as u64;
            let value = if instruction.has("param") {
                let at = lane * frame.param_bytes + address as usize;
                word(frame.params.get(at..at + size).ok_or("beyond the parameters")?)
            } else if instruction.has("shared") {
                let at = address as u32 as usize;
                if at + size > self.shared.bytes.len() || !at.is_multiple_of(size) {
                    return Err(format!("out of bounds: byte {at} of {} shared ones", self.shared.bytes.len()));
                }
                self.shared.read(at, size, by)?
            } else if address & LOCALS != 0 {
                let at = lane * frame.local_bytes + (address - LOCALS) as usize;
                word(frame.local.get(at..at + size).ok_or("beyond the local bytes")?)
            } else if address & CONSTANTS != 0 {
                let (global, at) = (((address - CONSTANTS) >> 32) as usize, address as u32 as usize);
                word(self.module.globals.get(global).and_then(|bytes| bytes.get(at..at + size)).ok_or("beyond a constant array")?)
            } else {
                let (buffer, at) = self.place(address, size)?;
                match instruction.has("volatile") {
                    true => self.buffers[buffer].peek(at, size, by)?,
                    false => self.buffers[buffer].read(at, size, by)?,
                }
            };
            let value = if instruction.ty.class == b's' { extend(value, instruction.ty.bits) } else { value };
            set(frame, lane, target, value);
        }
        Ok(())
    }

    fn store(&mut self, instruction: &Instruction, frame: &mut Frame, lane: usize) -> Result<(), String> {
        let size = instruction.ty.bytes();
        let address = self.address(&instruction.args[0], frame, lane)?;
        let one = [instruction.args[1].clone()];
        let sources: &[Operand] = if let Operand::Vector(parts) = &instruction.args[1] { parts } else { &one };
        let by = self.by(frame, lane);
        if !instruction.has("param") && !instruction.has("shared") && address & (LOCALS | CONSTANTS) == 0 {
            self.place(address, size * sources.len())?;
        }
        for (at, source) in sources.iter().enumerate() {
            let value = self.value(source, frame, lane);
            let address = address + (at * size) as u64;
            if instruction.has("param") {
                let at = lane * frame.param_bytes + address as usize;
                frame.params.get_mut(at..at + size).ok_or("beyond the parameters")?.copy_from_slice(&value.to_le_bytes()[..size]);
            } else if instruction.has("shared") {
                let at = address as u32 as usize;
                if at + size > self.shared.bytes.len() || !at.is_multiple_of(size) {
                    return Err(format!("out of bounds: byte {at} of {} shared ones", self.shared.bytes.len()));
                }
                self.shared.write(at, size, value, by)?;
            } else if address & LOCALS != 0 {
                let at = lane * frame.local_bytes + (address - LOCALS) as usize;
                frame.local.get_mut(at..at + size).ok_or("beyond the local bytes")?.copy_from_slice(&value.to_le_bytes()[..size]);
            } else {
                let (buffer, at) = self.place(address, size)?;
                self.buffers[buffer].write(at, size, value, by)?;
            }
        }
        Ok(())
    }

    fn atomic(&mut self, instruction: &Instruction, frame: &mut Frame, lane: usize) -> Result<(), String> {
        let skip = usize::from(instruction.op == "atom");
        let address = self.address(&instruction.args[skip], frame, lane)?;
        let operand = self.value(&instruction.args[skip + 1], frame, lane);
        let size = instruction.ty.bytes();
        let (buffer, at) = self.place(address, size)?;
        let by = self.by(frame, lane);
        let op = ["min", "max"].into_iter().find(|op| instruction.has(op)).ok_or("this atomic is not known")?;
        if instruction.ty.class != b'u' {
            return Err("this atomic is not known".to_string());
        }
        let old = self.buffers[buffer].exchange(at, size, by, |old| if op == "min" { old.min(operand) } else { old.max(operand) })?;
        if skip == 1 {
            set(frame, lane, &instruction.args[0], old);
        }
        Ok(())
    }

    /// One thread runs the function, and goes on behind it.
    fn call(&mut self, instruction: &Instruction, frame: &mut Frame, lane: usize) -> Result<(), String> {
        let name = instruction.callee.as_deref().ok_or("a call of nothing")?;
        let module = self.module;
        let function = module.functions.get(name).ok_or_else(|| format!("no function is called {name}"))?;
        let list = |at: usize| match instruction.args.get(at) {
            Some(Operand::Vector(list)) => &list[..],
            _ => &[],
        };
        let mut inner = Frame::new(function, frame.first + lane, 1, &vec![0; function.param_bytes]);
        let base = lane * frame.param_bytes;
        for ((at, size), arg) in function.params.iter().zip(list(1)) {
            let from = base + self.value(arg, frame, lane) as usize;
            inner.params[*at..at + size].copy_from_slice(&frame.params[from..from + size]);
        }
        self.execute(function, &mut inner)?;
        if let (Some((at, size)), Some(result)) = (function.result, list(0).first()) {
            let to = base + self.value(result, frame, lane) as usize;
            frame.params[to..to + size].copy_from_slice(&inner.params[at..at + size]);
        }
        Ok(())
    }
}

fn set(frame: &mut Frame, lane: usize, target: &Operand, value: u64) {
    if let Operand::Register(register) = target {
        frame.registers[register * frame.count + lane] = value;
    }
}

fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

fn mask(value: u64, bits: u32) -> u64 {
    if bits >= 64 { value } else { value & ((1 << bits) - 1) }
}

/// With the sign of its highest bit.
fn extend(value: u64, bits: u32) -> u64 {
    if bits >= 64 { value } else { (((value << (64 - bits)) as i64) >> (64 - bits)) as u64 }
}

/// An integer as its type has it.
fn as_typed(value: u64, ty: Type) -> u64 {
    if ty.class == b's' { extend(value, ty.bits) } else { mask(value, ty.bits) }
}

fn f32_of(value: u64) -> f32 {
    f32::from_bits(value as u32)
}

fn flushed(value: f32, instruction: &Instruction) -> f32 {
    if instruction.has("ftz") && value.is_subnormal() { 0f32.copysign(value) } else { value }
}

fn compare(instruction: &Instruction, a: u64, b: u64) -> Result<bool, String> {
    use std::cmp::Ordering;
    let ty = instruction.ty;
    let order = match (ty.class, ty.bits) {
        (b'f', 32) => f32_of(a).partial_cmp(&f32_of(b)),
        (b'f', _) => f64::from_bits(a).partial_cmp(&f64::from_bits(b)),
        (b's', bits) => Some((extend(a, bits) as i64).cmp(&(extend(b, bits) as i64))),
        (_, bits) => Some(mask(a, bits).cmp(&mask(b, bits))),
    };
    let word = instruction.words.first().copied().unwrap_or_default();
    let ordered = |wanted: fn(Ordering) -> bool, unordered: bool| order.map_or(unordered, wanted);
    Ok(match word {
        "eq" => ordered(Ordering::is_eq, false),
        "ne" => ordered(Ordering::is_ne, false),
        "lt" | "lo" => ordered(Ordering::is_lt, false),
        "le" | "ls" => ordered(Ordering::is_le, false),
        "gt" | "hi" => ordered(Ordering::is_gt, false),
        "ge" | "hs" => ordered(Ordering::is_ge, false),
        "equ" => ordered(Ordering::is_eq, true),
        "neu" => ordered(Ordering::is_ne, true),
        "ltu" => ordered(Ordering::is_lt, true),
        "leu" => ordered(Ordering::is_le, true),
        "gtu" => ordered(Ordering::is_gt, true),
        "geu" => ordered(Ordering::is_ge, true),
        "num" => order.is_some(),
        "nan" => order.is_none(),
        other => return Err(format!("the comparison {other} is not known")),
    })
}

/// Rounded to an integer as the instruction says; none where it does not round so.
fn rounded(instruction: &Instruction, value: f64) -> Option<f64> {
    let mode = ["rni", "rzi", "rmi", "rpi"].into_iter().find(|mode| instruction.has(mode))?;
    Some(match mode {
        "rni" => value.round_ties_even(),
        "rzi" => value.trunc(),
        "rmi" => value.floor(),
        _ => value.ceil(),
    })
}

fn convert(instruction: &Instruction, a: u64) -> Result<u64, String> {
    let (from, to) = (instruction.ty, instruction.before.ok_or("a conversion of one type")?);
    let is_float = |ty: Type| ty.class == b'f';
    if instruction.has("sat") || to.bits == 16 && is_float(to) || from.bits == 16 && is_float(from) {
        return Err("this conversion is not known".to_string());
    }
    let float = |value: f64| if to.bits == 32 { u64::from((value as f32).to_bits()) } else { value.to_bits() };
    Ok(match (is_float(from), is_float(to)) {
        (false, false) => mask(as_typed(a, from), to.bits.max(32)),
        // From an integer of 64 bits to a float in one step: by way of a double it would round twice.
        (false, true) if to.bits == 32 => {
            u64::from(if from.class == b's' { extend(a, from.bits) as i64 as f32 } else { mask(a, from.bits) as f32 }.to_bits())
        }
        (false, true) => (if from.class == b's' { extend(a, from.bits) as i64 as f64 } else { mask(a, from.bits) as f64 }).to_bits(),
        (true, true) => {
            let value = if from.bits == 32 { f64::from(flushed(f32_of(a), instruction)) } else { f64::from_bits(a) };
            float(rounded(instruction, value).unwrap_or(value))
        }
        (true, false) => {
            let value = if from.bits == 32 { f64::from(f32_of(a)) } else { f64::from_bits(a) };
            let value = rounded(instruction, value).ok_or("a conversion without rounding")?;
            match (to.class, to.bits) {
                (b's', 64) => value as i64 as u64,
                (b's', 32) => u64::from(value as i32 as u32),
                (b's', 16) => u64::from(value as i16 as u16),
                (b's', _) => u64::from(value as i8 as u8),
                (_, 64) => value as u64,
                (_, 32) => u64::from(value as u32),
                (_, 16) => u64::from(value as u16),
                _ => u64::from(value as u8),
            }
        }
    })
}

/// Sums with a carry.
fn carried(instruction: &Instruction, a: u64, b: u64, c: u64, carry: &mut bool) -> Result<u64, String> {
    let bits = instruction.ty.bits;
    let (a, b, c) = (u128::from(mask(a, bits)), u128::from(mask(b, bits)), u128::from(mask(c, bits)));
    let with = u128::from(*carry && matches!(instruction.op, "addc" | "subc" | "madc"));
    let sum = match instruction.op {
        "add" | "addc" => a + b + with,
        "sub" | "subc" => {
            let taken = b + with;
            let result = a.wrapping_sub(taken);
            if instruction.has("cc") {
                *carry = a < taken;
            }
            return Ok(mask(result as u64, bits));
        }
        "mad" | "madc" => {
            let product = a * b;
            let part = if instruction.has("hi") { product >> bits } else { product & ((1 << bits) - 1) };
            part + c + with
        }
        other => return Err(format!("{other} with a carry is not known")),
    };
    if instruction.has("cc") {
        *carry = sum >> bits != 0;
    }
    Ok(mask(sum as u64, bits))
}

fn floats(instruction: &Instruction, ty: Type, [a, b, c]: [u64; 3]) -> Result<u64, String> {
    let op = instruction.op;
    if ty.bits == 64 {
        let [x, y, z] = [a, b, c].map(f64::from_bits);
        return Ok(match op {
            "add" => x + y,
            "sub" => x - y,
            "mul" => x * y,
            "div" => x / y,
            "fma" => x.mul_add(y, z),
            "neg" => -x,
            "abs" => x.abs(),
            "min" => x.min(y),
            "max" => x.max(y),
            "sqrt" => x.sqrt(),
            "copysign" => y.copysign(x),
            "rcp" if instruction.has("approx") => coarse(1.0 / x),
            "rsqrt" => coarse(1.0 / x.sqrt()),
            "rcp" => 1.0 / x,
            _ => return Err(format!("{op} of doubles is not known")),
        }
        .to_bits());
    }
    let [x, y, z] = [a, b, c].map(|value| flushed(f32_of(value), instruction));
    let result = match op {
        "fma" if instruction.has("rz") => toward_zero(x, y, z),
        _ if instruction.has("rz") || instruction.has("rm") || instruction.has("rp") => {
            return Err(format!("{op} is not known to round so"));
        }
        "add" => x + y,
        "sub" => x - y,
        "mul" => x * y,
        "div" => x / y,
        "fma" => x.mul_add(y, z),
        "neg" => -x,
        "abs" => x.abs(),
        "min" if instruction.has("NaN") && (x.is_nan() || y.is_nan()) => f32::NAN,
        "max" if instruction.has("NaN") && (x.is_nan() || y.is_nan()) => f32::NAN,
        "min" => x.min(y),
        "max" => x.max(y),
        "sqrt" => x.sqrt(),
        "rsqrt" => 1.0 / x.sqrt(),
        "rcp" => 1.0 / x,
        "ex2" => x.exp2(),
        "lg2" => x.log2(),
        "copysign" => y.copysign(x),
        _ => return Err(format!("{op} of floats is not known")),
    };
    Ok(u64::from(flushed(result, instruction).to_bits()))
}

/// The upper half, as the approximations of doubles give it.
fn coarse(value: f64) -> f64 {
    if value.is_finite() { f64::from_bits(value.to_bits() & !0xFFFF_FFFF) } else { value }
}

/// `x * y + z`, rounded towards zero.
fn toward_zero(x: f32, y: f32, z: f32) -> f32 {
    let (product, z) = (f64::from(x) * f64::from(y), f64::from(z));
    let sum = product + z;
    // What the sum in doubles rounded away.
    let back = sum - product;
    let lost = (product - (sum - back)) + (z - back);
    let near = sum as f32;
    let beyond = f64::from(near).abs() > sum.abs() || f64::from(near) == sum && lost != 0.0 && (lost < 0.0) != (sum < 0.0);
    if near.is_finite() && beyond { f32::from_bits(near.to_bits() - 1) } else { near }
}

fn integers(instruction: &Instruction, ty: Type, [a, b, c, d]: [u64; 4]) -> Result<u64, String> {
    let op = instruction.op;
    let bits = ty.bits;
    let signed = ty.class == b's';
    let (x, y, z) = (as_typed(a, ty), as_typed(b, ty), as_typed(c, ty));
    let product = || if signed { i128::from(x as i64) * i128::from(y as i64) } else { i128::from(x) * i128::from(y) };
    let result = match op {
        "add" => x.wrapping_add(y),
        "sub" => x.wrapping_sub(y),
        "mul" | "mad" => {
            let part = match (instruction.has("wide"), instruction.has("hi")) {
                (true, _) => product() as u64,
                (_, true) => (product() >> bits) as u64,
                _ => product() as u64,
            };
            let sum = if op == "mad" { part.wrapping_add(if instruction.has("wide") { c } else { z }) } else { part };
            return Ok(if instruction.has("wide") { mask(sum, bits * 2) } else { mask(sum, bits) });
        }
        // The result for a divisor of 0 is whatever the card has: nobody may use it.
        "div" | "rem" if y == 0 => u64::MAX,
        "div" if signed => (x as i64).wrapping_div(y as i64) as u64,
        "rem" if signed => (x as i64).wrapping_rem(y as i64) as u64,
        "div" => x / y,
        "rem" => x % y,
        "min" if signed => (x as i64).min(y as i64) as u64,
        "max" if signed => (x as i64).max(y as i64) as u64,
        "min" => x.min(y),
        "max" => x.max(y),
        "abs" => (x as i64).wrapping_abs() as u64,
        "neg" => x.wrapping_neg(),
        "and" => x & y,
        "or" => x | y,
        "xor" => x ^ y,
        "not" => !x,
        "shl" => {
            if b as u32 >= bits {
                0
            } else {
                x << (b as u32)
            }
        }
        "shr" => {
            let by = b as u32;
            match signed {
                true => ((x as i64) >> by.min(63)) as u64,
                false if by >= bits => 0,
                false => x >> by,
            }
        }
        "clz" => u64::from(mask(a, bits).leading_zeros() + bits - 64),
        "popc" => u64::from(mask(a, bits).count_ones()),
        "brev" => mask(a, bits).reverse_bits() >> (64 - bits),
        "bfi" => {
            let (start, length) = (c as u32 & 255, d as u32 & 255);
            let field = if start >= bits { 0 } else { mask(mask(u64::MAX, length) << start, bits) };
            mask(b, bits) & !field | (mask(a, bits) << (start & 63)) & field
        }
        "bfe" => {
            let (start, length) = ((b as u32 & 255).min(63), c as u32 & 255);
            let field = mask(mask(a, bits) >> start, length);
            if signed && length > 0 { extend(field, length) } else { field }
        }
        "prmt" => {
            let bytes = mask(b, 32) << 32 | mask(a, 32);
            (0..4).fold(0, |word, at| {
                let selector = c >> (4 * at) & 15;
                let byte = bytes >> (8 * (selector & 7)) & 255;
                let byte = if selector & 8 != 0 { if byte & 128 != 0 { 255 } else { 0 } } else { byte };
                word | byte << (8 * at)
            })
        }
        "shf" => {
            let by = if instruction.has("wrap") { c as u32 & 31 } else { (c as u32).min(32) };
            let whole = mask(b, 32) << 32 | mask(a, 32);
            if instruction.has("l") { (whole << by) >> 32 } else { whole >> by }
        }
        "lop3" => (0..32).fold(0, |word, at| {
            let index = (a >> at & 1) << 2 | (b >> at & 1) << 1 | (c >> at & 1);
            word | (d >> index & 1) << at
        }),
        _ => return Err(format!("{op} of integers is not known")),
    };
    Ok(mask(result, if ty.class == b'p' { 1 } else { bits }))
}
