//! What the driver takes of a card's memory besides what programs ask for, measured on the card.

use std::time::{Duration, Instant};

use plimsoll_base::{Bytes, Error, Result};

use super::card::CudaCard;
use crate::driver::{Function, Graph, GraphExec, Mapping, Module, Stream, Trouble};
use crate::emit;
use crate::overhead::Taken;

/// Graphs that are made, and the nodes of each. All stay until the last is there: the driver may keep what goes.
const GRAPHS: [(u64, u64); 4] = [(64, 1), (16, 10), (8, 100), (8, 1000)];
/// Graphs with a loop in each, and the nodes of one: a decision, the loop, and a decision in its body.
const WITH_BODIES: u64 = 16;
const WITH_BODY: u64 = 3;
/// Modules that are loaded, and the kernels of each.
const MODULES: (usize, usize) = (32, 64);
/// A logical device keeps room for so many graphs, with so many nodes in all, and for so many bytes of code.
const KEPT: (u64, u64) = (16, 2000);
const KEPT_CODE: u64 = 4 << 20;

/// Bytes of a card's memory that the driver took, by what was free before and behind. They are a card's alone where no other program
/// has come or gone meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    /// For 16 streams.
    pub streams: Bytes,
    /// For the code of a small module.
    pub module: Bytes,
    /// Bytes of the code of many modules, and what they took.
    pub code: (Bytes, Bytes),
    /// For that many executable graphs of that many nodes.
    pub graphs: Vec<(u64, u64, Bytes)>,
    /// For that many with a body of one node, where the driver has such.
    pub bodies: Option<(u64, Bytes)>,
    /// What follows for a graph and a node, and what a logical device should keep.
    pub taken: Taken,
}

impl CudaCard {
    /// Gives memory back and takes it again so often, in the middle of addresses that stay. Returns the time of a round.
    ///
    /// # Errors
    /// INTERNAL where bytes are other than they have to be: kept at the ends, zeros where memory is new. The driver's.
    pub fn check_commits(&self, rounds: u32) -> Result<Duration> {
        const PIECES: u64 = 8;
        let failed = |trouble| self.context().error("memory cannot be given back and taken again", trouble);
        let piece = self.granularity();
        let mut mapping = Mapping::reserve(self.context(), PIECES * piece).map_err(failed)?;
        mapping.commit(0..PIECES * piece).map_err(failed)?;
        let start = mapping.start();
        let (ends, middle) = ([start, start + PIECES * piece - 8], [start + piece, start + (PIECES - 1) * piece - 8]);
        ends.into_iter().try_for_each(|at| self.context().write(at, &at.to_le_bytes())).map_err(failed)?;
        let begun = Instant::now();
        for round in 0..rounds {
            middle.into_iter().try_for_each(|at| self.context().write(at, &u64::MAX.to_le_bytes())).map_err(failed)?;
            mapping.decommit(piece..(PIECES - 1) * piece);
            mapping.commit(piece..(PIECES - 1) * piece).map_err(failed)?;
            for (at, expected) in ends.into_iter().map(|at| (at, at)).chain(middle.into_iter().map(|at| (at, 0))) {
                let mut bytes = [1; 8];
                self.context().read(at, &mut bytes).map_err(failed)?;
                if u64::from_le_bytes(bytes) != expected {
                    return Err(Error::internal(format!("round {round}: {bytes:?} at {at:#x}, and not {expected:#x}")));
                }
            }
        }
        Ok(begun.elapsed() / rounds.max(1))
    }

    /// Measures what streams, modules and graphs take. Nothing of it stays. The card has nothing loaded before.
    ///
    /// # Errors
    /// The compiler's or the driver's, also where there is no memory for it.
    pub fn measure(&self) -> Result<Measured> {
        let failed = |trouble| self.context().error("the card cannot be measured", trouble);
        let context = self.context().clone();
        let _entered = context.enter().map_err(failed)?;
        let mut free = self.free_bytes()?;
        let mut since = || {
            let now = self.free_bytes()?;
            Ok::<Bytes, Error>(Bytes(std::mem::replace(&mut free, now).saturating_sub(now)))
        };
        let streams: Vec<Stream> =
            (0..16).map(|_| Stream::new(&context.driver, 0)).collect::<std::result::Result<_, _>>().map_err(failed)?;
        let streams_take = since()?;
        let copy = emit::copy()?;
        self.load(&[&copy], None)?;
        let module = since()?;
        let many: Vec<emit::Kernel> = (0..MODULES.1)
            .map(|number| {
                let entry = format!("{}_{number}", copy.entry);
                emit::Kernel { body: copy.body.replace(&copy.entry, &entry), entry, ..copy.clone() }
            })
            .collect();
        let cubin = self.compiled(&emit::program(&many))?;
        since()?;
        let modules: std::result::Result<Vec<Module>, Trouble> = (0..MODULES.0)
            .map(|_| Module::load(&context.driver, &cubin).and_then(|module| module.function(&many[0].entry).map(|_| module)))
            .collect();
        let modules = modules.map_err(failed)?;
        let code = (Bytes((cubin.len() * MODULES.0) as u64), since()?);
        drop(modules);
        since()?;
        let function = self.function(&copy.entry).ok_or_else(|| Error::internal("a kernel that was not loaded"))?;
        let make = |nodes: u64| {
            let mut graph = Graph::new(&context)?;
            for _ in 0..nodes {
                // Never launched: no address is used.
                graph.kernel(function, 1, emit::THREADS, &mut [0; 6])?;
            }
            graph.instantiate(&streams[0])
        };
        let (mut kept, mut graphs) = (Vec::new(), Vec::new());
        for (count, nodes) in GRAPHS {
            let made: std::result::Result<Vec<GraphExec>, Trouble> = (0..count).map(|_| make(nodes)).collect();
            kept.push(made.map_err(failed)?);
            graphs.push((count, nodes, since()?));
        }
        let of = |(count, nodes): (u64, u64)| graphs.iter().find(|graph| (graph.0, graph.1) == (count, nodes)).map_or(0, |graph| graph.2.0);
        // Nothing is smaller than a byte: also a driver that takes memory in large pieces is not taken to need none.
        let node = Bytes(of(GRAPHS[3]).div_ceil(GRAPHS[3].0 * GRAPHS[3].1).max(1));
        let decide = emit::decide()?;
        let decide = self.load(&[&decide], None).ok().and_then(|_| self.function(&decide.entry));
        since()?;
        let looping = |decide: Function| {
            let mut graph = Graph::new(&context)?;
            let condition = graph.condition()?;
            graph.kernel(decide, 1, 1, &mut [0; 8])?;
            graph.body(condition, true, |body| body.kernel(decide, 1, 1, &mut [0; 8]))?;
            graph.instantiate(&streams[0])
        };
        let made = decide.map(|decide| (0..WITH_BODIES).map(|_| looping(decide)).collect());
        let made: Option<Vec<GraphExec>> = made.and_then(std::result::Result::<_, Trouble>::ok);
        let bodies = match &made {
            Some(_) => Some((WITH_BODIES, since()?)),
            None => None,
        };
        // A body is charged as a graph of its own.
        let with_body = bodies.map_or(0, |(count, bytes)| (bytes.0.div_ceil(count).saturating_sub(WITH_BODY * node.0)).div_ceil(2));
        let graph = Bytes(of(GRAPHS[0]).div_ceil(GRAPHS[0].0).max(with_body).max(1));
        let device = Bytes(graph.0 * KEPT.0 + node.0 * KEPT.1 + KEPT_CODE).round_up(1 << 20);
        Ok(Measured { streams: streams_take, module, code, graphs, bodies, taken: Taken { graph, node, device, is_measured: true } })
    }
}
