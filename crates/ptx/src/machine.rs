//! The interpreter. A block's threads run in step from the lowest instruction on; blocks run one after the other.
//!
//! It is stricter than a card. An access has to lie in one argument, aligned to its size. A byte has to be written before it is read.
//! Two accesses of which one writes are a race unless a barrier lies between them, and so are any two such accesses of different
//! blocks; atomics race with plain accesses alone. All threads of a block have to reach a barrier together.

use crate::arithmetic::{carried, compare, convert, extend, floats, integers, mask};
use crate::bytes::{Access, Bytes, word};
use crate::module::{Function, Instruction, Module, Operand, Special};
use crate::{Job, Value};

/// Addresses of buffers: each begins far behind the one before.
const FAR: u64 = 1 << 40;
/// Addresses of constant arrays, and of local bytes.
const CONSTANTS: u64 = 1 << 60;
const LOCALS: u64 = 1 << 61;

/// The function of the driver's that sets a graph's condition.
const SET_CONDITION: &str = "cudaGraphSetConditional";

/// Instructions of all threads of a launch, at most.
const MOST_STEPS: u64 = 4_000_000_000;

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
            *into = from.into_bytes();
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
            Some(bytes) if at + size <= bytes.len() => Ok((buffer - 1, at)),
            Some(bytes) => {
                Err(format!("out of bounds: bytes {at}..{} of buffer {} of {}", at as u64 + size as u64, buffer - 1, bytes.len()))
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
                if at + size > self.shared.len() || !at.is_multiple_of(size) {
                    return Err(format!("out of bounds: byte {at} of {} shared ones", self.shared.len()));
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
                if at + size > self.shared.len() || !at.is_multiple_of(size) {
                    return Err(format!("out of bounds: byte {at} of {} shared ones", self.shared.len()));
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
        if name == SET_CONDITION {
            return self.set_condition(instruction, frame, lane);
        }
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

impl Machine<'_> {
    /// The driver's function for the condition of a graph: its handle is the address of the value here.
    fn set_condition(&mut self, instruction: &Instruction, frame: &Frame, lane: usize) -> Result<(), String> {
        let Some(Operand::Vector(list)) = instruction.args.get(1) else { return Err(format!("{SET_CONDITION} without arguments")) };
        let [handle, value] = &list[..] else { return Err(format!("{SET_CONDITION} with {} arguments", list.len())) };
        let base = lane * frame.param_bytes;
        let bytes = |arg: &Operand, size: usize| {
            let from = base + self.value(arg, frame, lane) as usize;
            word(&frame.params[from..from + size])
        };
        let (handle, value) = (bytes(handle, 8), bytes(value, 4));
        let by = self.by(frame, lane);
        let (buffer, at) = self.place(handle, 4)?;
        self.buffers[buffer].write(at, 4, value, by)
    }
}

fn set(frame: &mut Frame, lane: usize, target: &Operand, value: u64) {
    if let Operand::Register(register) = target {
        frame.registers[register * frame.count + lane] = value;
    }
}
