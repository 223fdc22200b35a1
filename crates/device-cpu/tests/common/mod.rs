//! Kernels and programs for tests: the arena is a row of `u64` cells.
#![allow(dead_code, reason = "every test file uses some of it")]

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};

use plimsoll_base::Bytes;
use plimsoll_device::conformance::TestKernels;
use plimsoll_device::*;
use plimsoll_device_cpu::{CpuDevice, CpuPool};
use plimsoll_memory::Block;

/// The operation of a test kernel on its cells; the last argument is the output.
#[derive(Clone, Copy, Debug)]
pub enum Does {
    /// Output = a mixture of the inputs and this number.
    Mix(u64),
    /// Fails with this number.
    Fail(i64),
    /// Panics.
    Panic,
    /// Fails in this piece of many.
    FailPiece(u32),
}

/// A kernel over cells. With many pieces, argument 0 and the output are as many cells.
#[derive(Debug)]
pub struct Cells {
    pub does: Does,
    pub chunks: u32,
    /// Busy work in each piece.
    pub turns: u32,
    /// Whether pieces go through the worker's scratch, of 64 bytes.
    pub scratch: bool,
    pub inside: Arc<Inside>,
}

/// How many threads are in kernels, and the most there ever were.
#[derive(Debug, Default)]
pub struct Inside {
    pub now: AtomicU32,
    pub most: AtomicU32,
}

pub fn mix(a: u64, b: u64) -> u64 {
    (a ^ b.rotate_left(23)).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(31)
}

impl CpuKernel for Cells {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        let inside = self.inside.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.inside.most.fetch_max(inside, Ordering::SeqCst);
        let result = chunks.into_iter().try_for_each(|piece| {
            let mut value = 0;
            let count = args.pointers.len();
            for index in 0..count - 1 {
                // SAFETY: the tests' programs give inputs of one cell, or of one for each piece.
                value = mix(value, unsafe { *args.pointers[index].cast::<u64>().add(piece as usize) });
            }
            for turn in 0..self.turns {
                value = mix(value, u64::from(turn));
            }
            if self.scratch {
                // SAFETY: 64 bytes of this thread alone.
                value = unsafe {
                    let scratch = args.worker.cast::<u64>();
                    scratch.write_volatile(value);
                    std::hint::spin_loop();
                    scratch.read_volatile()
                };
            }
            match self.does {
                Does::Mix(number) => {
                    // SAFETY: a cell for each piece.
                    unsafe { *args.pointers[count - 1].cast::<u64>().add(piece as usize) = mix(value, number) };
                    Ok(())
                }
                Does::FailPiece(bad) if bad != piece => Ok(()),
                Does::FailPiece(bad) => Err(Fault::invalid("piece {0}", [i64::from(bad), 0])),
                Does::Fail(number) => Err(Fault::invalid("failed with {0}", [number, 0])),
                Does::Panic => panic!("a test kernel panics, as it should"),
            }
        });
        self.inside.now.fetch_sub(1, Ordering::SeqCst);
        result
    }
}

/// The kernels of all tests of a program.
pub fn kernels() -> Arc<TestKernels> {
    static KERNELS: LazyLock<Arc<TestKernels>> = LazyLock::new(Arc::default);
    KERNELS.clone()
}

/// A command over cells of the arena: `inputs` and the output, each one cell or as many as there are pieces.
pub fn command(does: Does, chunks: u32, turns: u32, cells: &[u32], waits: &[(u32, u32)], inside: &Arc<Inside>) -> Command {
    let kernel = Arc::new(Cells { does, chunks, turns, scratch: true, inside: inside.clone() });
    let prepared = Prepared { chunks, scratch: 0, per_worker: 64, cost: Cost::default(), in_place: vec![], kernel };
    Command {
        work: Work::Kernel(kernels().call(prepared)),
        args: cells.iter().map(|&cell| arena(cell, u64::from(chunks))).collect(),
        scratch: None,
        worker_scratch: None,
        guard: None,
        waits: waits.iter().map(|&(queue, commands)| Wait { queue, commands }).collect(),
        label: "cells".into(),
    }
}

pub fn arena(cell: u32, count: u64) -> BufferRef {
    BufferRef { place: Place::Arena(0), offset: SCRATCH + u64::from(cell) * 8, bytes: count * 8 }
}

/// Slices for the threads lie at the beginning of the arena, 16 for each of 4 queues.
pub const SCRATCH: u64 = 4 * 16 * 64;

pub fn program(queue: u32, mut commands: Vec<Command>) -> Program {
    let scratch = BufferRef { place: Place::Arena(0), offset: u64::from(queue) * 16 * 64, bytes: 16 * 64 };
    for command in &mut commands {
        command.worker_scratch = matches!(command.work, Work::Kernel(_)).then_some(scratch);
    }
    Program { commands }
}

pub fn device(threads: usize) -> CpuDevice {
    let spec = DeviceSpec::cpu(0, None, threads as u32, InstructionSet::Baseline);
    CpuDevice::new(spec, CpuPool::new(threads).unwrap(), kernels())
}

/// Programs loaded on one device, with one run and its arena.
pub struct Loaded {
    pub executables: Arc<Vec<Box<dyn Executable>>>,
    pub run: Arc<Run>,
    pub block: Block,
    pub cells: usize,
}

impl Loaded {
    pub fn new(device: &CpuDevice, programs: Vec<Program>, cells: usize) -> Loaded {
        let executables: Vec<_> =
            programs.into_iter().enumerate().map(|(queue, program)| device.load(queue as u32, Arc::new(program)).unwrap()).collect();
        Loaded::with(device, Arc::new(executables), cells)
    }

    /// Another run of the same programs.
    pub fn with(device: &CpuDevice, executables: Arc<Vec<Box<dyn Executable>>>, cells: usize) -> Loaded {
        let block = device.allocate(Bytes(SCRATCH + cells as u64 * 8), "arena").unwrap();
        let bindings = Bindings { arenas: vec![block.address()], ..Bindings::default() };
        Loaded { run: Arc::new(Run::new(executables.len(), bindings)), executables, block, cells }
    }

    /// One run, without allocating.
    pub fn step(&mut self, device: &CpuDevice) -> Option<Failure> {
        Run::alone(&mut self.run).restart();
        for executable in self.executables.iter() {
            executable.submit(&self.run);
        }
        device.drive(&self.run);
        assert!(self.run.is_over());
        self.run.failure()
    }

    pub fn values(&self) -> Vec<u64> {
        let mut bytes = vec![0; self.cells * 8];
        self.block.read(SCRATCH, &mut bytes).unwrap();
        bytes.chunks(8).map(|cell| u64::from_ne_bytes(cell.try_into().unwrap())).collect()
    }

    pub fn clear(&mut self) {
        self.block.write(SCRATCH, &vec![0; self.cells * 8]).unwrap();
    }
}

/// Queues that wait for each other in both directions. Queue `q` in round `r` reads the last cells of all queues and writes its own
/// for the next round. Every third command has many pieces.
pub fn woven(queues: u32, rounds: u32, turns: u32, inside: &Arc<Inside>) -> (Vec<Program>, usize) {
    const PIECES: u32 = 8;
    let cell = |queue: u32, round: u32| (round * queues + queue) * PIECES;
    let programs = (0..queues).map(|queue| {
        let commands = (0..rounds).map(|round| {
            let chunks = if (queue + round) % 3 == 0 { PIECES } else { 1 };
            let mut cells: Vec<u32> = if round == 0 { vec![] } else { (0..queues).map(|other| cell(other, round - 1)).collect() };
            cells.push(cell(queue, round));
            let others = (0..queues).filter(|&other| other != queue && round > 0);
            let waits: Vec<_> = others.map(|other| (other, round)).collect();
            command(Does::Mix(u64::from(queue)), chunks, turns, &cells, &waits, inside)
        });
        program(queue, commands.collect())
    });
    (programs.collect(), (rounds * queues * PIECES) as usize)
}
