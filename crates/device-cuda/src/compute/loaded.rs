//! A program prepared for a card: its kernels loaded, its arguments in one table.

use std::sync::Arc;

use plimsoll_base::{Error, Result};
use plimsoll_device::{Awaited, Bindings, BufferRef, Command, DeviceSpec, Place, Program, Round, Rounds, Run, Work};

use super::bodies::{Body, bodies};
use super::card::CudaCard;
use super::graph_room::GraphRoom;
use crate::cudnn::ReadyConvolution;
use crate::driver::{Function, Module};
use crate::emit::{self, Emitted, FaultText, KernelArg};
use crate::source::{CudaSource, offsets};

/// An argument that a command does not have.
pub(super) const NONE: u32 = u32::MAX;

/// The buffers of a program, by their numbers.
pub(super) type BufferRefs<'a> = &'a [BufferRef];

/// A program on a card.
#[derive(Debug)]
pub(super) struct Loaded {
    /// The queue's index in the plan.
    pub queue: u32,
    pub steps: Vec<Step>,
    /// Every buffer that the steps use.
    pub buffers: Vec<BufferRef>,
    /// Those of them in feeds and fetches: they are elsewhere in every run.
    pub moving: Vec<u32>,
    /// Whether some kernel writes the fault word.
    pub can_fail: bool,
    /// The kernel that copies where a command may be passed over.
    pub copy: Option<Function>,
    /// The parts that can be bodies of graphs.
    pub bodies: Vec<Body>,
    /// The kernel that decides whether they run, and whether cuDNN's work behind a fault does; none where there is nothing to decide, or where the
    /// driver does not have what it needs.
    pub decide: Option<Function>,
    queues: usize,
    /// What has its kernels, and whose they are.
    modules: Vec<Arc<Module>>,
    _card: Arc<CudaCard>,
}

/// A command.
#[derive(Debug)]
pub(super) struct Step {
    pub action: Action,
    /// The first argument in the table, and how many there are.
    pub args: (u32, u32),
    pub scratch: u32,
    pub guard: u32,
    pub waits: Vec<Awaited>,
    /// What it does to the turn of its queue.
    pub round: Round,
}

#[derive(Debug)]
pub(super) enum Action {
    /// Kernels and cuDNN's work, one behind the other, and what faults mean.
    Launch(Vec<Launch>, Vec<FaultText>),
    /// The first argument to the second.
    Copy,
    /// Goes on with another command where the bool that is argument 0 is so.
    Jump { to: u32, when: bool },
}

#[derive(Debug)]
pub(super) struct Launch {
    pub code: LaunchCode,
    pub args: Vec<LaunchArg>,
}

#[derive(Debug)]
pub(super) enum LaunchCode {
    /// A kernel, and how many blocks.
    Kernel(Function, u32),
    /// Its arguments are its tensors and its workspace.
    Convolution(Arc<ReadyConvolution>),
}

impl Step {
    /// Whether a kernel of it may find a fault.
    pub fn can_fail(&self) -> bool {
        matches!(&self.action, Action::Launch(_, faults) if !faults.is_empty())
    }

    /// Whether cuDNN computes a part of it.
    pub fn convolves(&self) -> bool {
        let Action::Launch(launches, _) = &self.action else { return false };
        launches.iter().any(|launch| matches!(launch.code, LaunchCode::Convolution(_)))
    }
}

/// An argument of a launch.
#[derive(Clone, Copy, Debug)]
pub(super) enum LaunchArg {
    /// The address of that argument of the command.
    Argument(u32),
    /// An address in the command's scratch.
    Scratch(u64),
    Value(u64),
    Guard,
    Stop,
    Fault,
    FaultBase,
}

impl Loaded {
    /// # Errors
    /// INTERNAL where the program contradicts itself; UNIMPLEMENTED for what no card does; the errors of library, compiler and driver.
    pub fn new(
        (card, room): (&Arc<CudaCard>, &Arc<GraphRoom>),
        queue: u32,
        program: &Program,
        spec: &DeviceSpec,
        library: &dyn CudaSource,
    ) -> Result<Loaded> {
        let commands = &program.commands;
        if commands.len() > emit::MOST_COMMANDS as usize {
            return Err(Error::unimplemented(format!("{} commands in one queue of a card", commands.len())));
        }
        let emitted: Vec<Option<Emitted>> = commands.iter().map(|command| emitted(command, spec, library)).collect::<Result<_>>()?;
        let copy = emit::copy()?;
        let copies = commands.iter().any(|command| matches!(command.work, Work::Copy)).then_some(&copy);
        let kernels: Vec<&emit::Kernel> = emitted.iter().flatten().flat_map(|emitted| &emitted.kernels).chain(copies).collect();
        let modules = card.load(&kernels, Some(room))?;
        let mut loaded = Loaded {
            queue,
            steps: Vec::with_capacity(commands.len()),
            buffers: Vec::new(),
            moving: Vec::new(),
            can_fail: emitted.iter().flatten().any(|emitted| !emitted.faults.is_empty()),
            copy: copies.and_then(|copy| card.function(&copy.entry)),
            bodies: Vec::new(),
            decide: None,
            queues: queue as usize + 1,
            modules,
            _card: card.clone(),
        };
        let mut rounds = Rounds::default();
        for (command, emitted) in commands.iter().zip(emitted) {
            loaded.command(card, command, (emitted, &mut rounds)).map_err(|error| error.at_node(&*command.label))?;
        }
        loaded.bodies = bodies(&loaded.steps, &loaded.buffers);
        let passes_over = loaded.can_fail && loaded.steps.iter().any(Step::convolves);
        if passes_over || !loaded.bodies.is_empty() {
            // In a module of its own: all else works on a driver that cannot load it.
            let decide = emit::decide()?;
            if let Ok(modules) = card.load(&[&decide], Some(room)) {
                loaded.modules.extend(modules);
                loaded.decide = card.function(&decide.entry);
            }
        }
        // A run can be given up in a loop.
        loaded.can_fail |= loaded.decide.is_some() && loaded.bodies.iter().any(|body| body.repeats);
        Ok(loaded)
    }

    fn command(&mut self, card: &CudaCard, command: &Command, (emitted, rounds): (Option<Emitted>, &mut Rounds)) -> Result<()> {
        let at = self.steps.len() as u32;
        let args = (self.buffers.len() as u32, command.args.len() as u32);
        command.args.iter().try_for_each(|buffer| self.buffer(*buffer).map(drop))?;
        let scratch = command.scratch.map_or(Ok(NONE), |buffer| self.buffer(buffer))?;
        let guard = match command.guard {
            Some(buffer) if buffer.bytes == 1 => self.buffer(buffer)?,
            Some(buffer) => return Err(Error::internal(format!("a guard of {} bytes", buffer.bytes))),
            None => NONE,
        };
        let is_condition = matches!(command.args[..], [BufferRef { bytes: 1, .. }]);
        let action = match (&command.work, emitted) {
            (Work::Kernel(call), Some(emitted)) => {
                let needed = call.step().scratch;
                if needed > command.scratch.map_or(0, |buffer| buffer.bytes) {
                    return Err(Error::internal(format!("no place for {needed} bytes of scratch")));
                }
                let launches = launches(card, &emitted, args.1)?;
                Action::Launch(launches, emitted.faults)
            }
            (Work::Copy, _) => match command.args[..] {
                [from, to] if from.bytes == to.bytes => Action::Copy,
                _ => return Err(Error::internal(format!("a copy with {} arguments, or of other lengths", command.args.len()))),
            },
            (Work::Loop { .. } | Work::Again { .. }, _) if !is_condition => {
                return Err(Error::internal("a loop whose condition is not one bool"));
            }
            (Work::Loop { body, .. }, _) => {
                let behind = at.checked_add(2).and_then(|at| at.checked_add(*body));
                Action::Jump { to: behind.ok_or_else(|| Error::internal("a loop of that many commands"))?, when: false }
            }
            (Work::Again { body }, _) => {
                let first = at.checked_sub(*body).filter(|_| command.guard.is_none());
                Action::Jump { to: first.ok_or_else(|| Error::internal("the end of a loop without its beginning"))?, when: true }
            }
            (Work::Outside { .. } | Work::Kernel(_), _) => return Err(Error::unimplemented("it reaches outside of the memory of a card")),
        };
        self.queues = command.waits.iter().fold(self.queues, |queues, wait| queues.max(wait.queue as usize + 1));
        let (round, waits) = rounds.next(command)?;
        self.steps.push(Step { action, args, scratch, guard, waits, round });
        Ok(())
    }

    fn buffer(&mut self, buffer: BufferRef) -> Result<u32> {
        let position = u32::try_from(self.buffers.len()).ok().filter(|&position| position != NONE);
        let position = position.ok_or_else(|| Error::internal("more arguments than fit a program"))?;
        if matches!(buffer.place, Place::Feed(_) | Place::Fetch(_)) {
            self.moving.push(position);
        }
        self.buffers.push(buffer);
        Ok(position)
    }

    /// Whether the run has every queue, and the bindings every block, that the program names.
    pub fn fits(&self, run: &Run, bindings: &Bindings) -> bool {
        self.queues <= run.queues.len() && self.buffers.iter().all(|buffer| bindings.get(buffer.place).is_some())
    }
}

/// The kernels of a command that has some, where the program's variant is the library's.
fn emitted(command: &Command, spec: &DeviceSpec, library: &dyn CudaSource) -> Result<Option<Emitted>> {
    let Work::Kernel(call) = &command.work else { return Ok(None) };
    let named = |error: Error| error.at_node(&*command.label);
    if call.step != 0 || !library.has(spec, &call.request, &call.variant).map_err(named)? {
        return Err(named(Error::internal(format!("{} is another kernel here", call.variant.name))));
    }
    library.code(call).map(Some).map_err(named)
}

fn launches(card: &CudaCard, emitted: &Emitted, args: u32) -> Result<Vec<Launch>> {
    let scratch: Vec<u64> = offsets(emitted).collect();
    let arg = |arg: &KernelArg| {
        let wrong = || Error::internal(format!("a kernel without its argument {arg:?}"));
        Ok(match *arg {
            KernelArg::Argument(index) if index < args => LaunchArg::Argument(index),
            KernelArg::Argument(_) => return Err(wrong()),
            KernelArg::Between(index) => LaunchArg::Scratch(*scratch.get(index as usize).ok_or_else(wrong)?),
            KernelArg::U32(number) => LaunchArg::Value(number.into()),
            KernelArg::U64(number) => LaunchArg::Value(number),
            KernelArg::Guard => LaunchArg::Guard,
            KernelArg::Stop => LaunchArg::Stop,
            KernelArg::Fault => LaunchArg::Fault,
            KernelArg::FaultBase => LaunchArg::FaultBase,
        })
    };
    let kernels = emitted.kernels.iter().map(|kernel| {
        let function = card.function(&kernel.entry).ok_or_else(|| Error::internal(format!("{} was not loaded", kernel.entry)))?;
        Ok(Launch { code: LaunchCode::Kernel(function, kernel.blocks), args: kernel.args.iter().map(arg).collect::<Result<_>>()? })
    });
    let mut launches: Vec<Launch> = kernels.collect::<Result<_>>()?;
    if let Some(convolution) = &emitted.convolution {
        let args = convolution.tensors.iter().chain([&convolution.workspace]).map(arg).collect::<Result<_>>()?;
        launches.insert(emitted.before, Launch { code: LaunchCode::Convolution(card.convolution(convolution)?), args });
    }
    Ok(launches)
}
