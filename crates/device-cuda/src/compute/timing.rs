//! Programs that are timed, by the card's own clock: an event before them, and one behind.
//!
//! A program's commands are one graph, where the device has room for it, so that small kernels are not timed as their launches. All runs of it
//! are pushed before the host waits.

use std::sync::Arc;

use plimsoll_base::{Error, Result};
use plimsoll_device::{Bindings, Program, Timed, TunedFor, Tuner, Variant};
use plimsoll_request::KernelRequest;

use super::device::CudaDevice;
use super::loaded::{Action, LaunchArg, LaunchCode, Loaded, NONE};
use super::queue::{Kept, Shared, Side};
use super::stretch::Graphs;
use crate::driver::{Event, Trouble};
use crate::emit;

/// A program on its blocks.
struct TimedProgram {
    /// Before the kernels that they have.
    graphs: Option<Graphs>,
    loaded: Loaded,
    kept: Kept,
    begun: Event,
    done: Event,
    shared: Arc<Shared>,
}

impl Tuner for CudaDevice {
    fn tuned_for(&self) -> TunedFor {
        self.source().tuned_for(self.card().name())
    }

    fn candidates(&self, request: &KernelRequest, engines: usize) -> Result<Vec<Variant>> {
        self.source().candidates(self.specification(), request, engines)
    }

    fn prepare(&self, program: &Arc<Program>, bindings: &Bindings) -> Result<Box<dyn Timed>> {
        self.card().forget_unused();
        let (shared, context) = (self.shared().clone(), self.card().context());
        let named = |error: Error| error.on_device(self.specification().name.to_string());
        let loaded = Loaded::new((self.card(), &shared.graphs), 0, program, self.specification(), self.source()).map_err(named)?;
        let is_call = |action: &Action| matches!(action, Action::Launch(..));
        if loaded.can_fail || !loaded.steps.iter().all(|step| is_call(&step.action) && step.guard == NONE && step.waits.is_empty()) {
            return Err(named(Error::unimplemented("to time a program that may fail, or that waits")));
        }
        let failed = |trouble| named(context.error("its work cannot be timed", trouble));
        let _entered = context.enter().map_err(failed)?;
        let mut kept = Kept::new(&shared).map_err(|fault| named(fault.to_error()))?;
        kept.bind_to(&shared, &loaded, bindings);
        if kept.bound.iter().any(|(_, side)| !matches!(side, Side::Here | Side::Nowhere)) {
            return Err(named(Error::internal("a program that is timed is given memory of the processor")));
        }
        let graphs = Graphs::new(&shared, &loaded, &kept).filter(|graphs| {
            graphs.at(0).is_some_and(|at| graphs.stretch(at).end as usize == loaded.steps.len() && !graphs.stretch(at).hands_on())
        });
        let event = || Event::timed(&context.driver).map_err(failed);
        let (begun, done) = (event()?, event()?);
        Ok(Box::new(TimedProgram { graphs, loaded, kept, begun, done, shared }))
    }
}

impl Timed for TimedProgram {
    fn seconds(&mut self, runs: u32) -> Result<f64> {
        let timed = self.time(runs);
        timed.map_err(|trouble| self.shared.context.error("work that is timed ended", trouble))
    }
}

impl TimedProgram {
    fn time(&mut self, runs: u32) -> std::result::Result<f64, Trouble> {
        let _entered = self.shared.context.enter()?;
        self.begun.record(&self.shared.stream)?;
        for _ in 0..runs {
            match &mut self.graphs {
                Some(graphs) => graphs.launch(0, &self.shared, &self.kept.bound)?,
                None => self.push()?,
            }
        }
        self.done.record(&self.shared.stream)?;
        self.done.synchronize()?;
        self.done.seconds_since(&self.begun)
    }

    /// Pushes the commands one by one.
    fn push(&self) -> std::result::Result<(), Trouble> {
        let address = |index: u32| if index == NONE { 0 } else { self.kept.bound[index as usize].0 };
        for step in &self.loaded.steps {
            let Action::Launch(launches, _) = &step.action else { continue };
            for launch in launches {
                let value = |arg: &LaunchArg| match *arg {
                    LaunchArg::Argument(index) => address(step.args.0 + index),
                    LaunchArg::Scratch(offset) => address(step.scratch) + offset,
                    LaunchArg::Value(value) => value,
                    LaunchArg::Fault => self.kept.word.address(),
                    LaunchArg::Guard | LaunchArg::Stop | LaunchArg::FaultBase => 0,
                };
                let mut arguments: Vec<u64> = launch.args.iter().map(value).collect();
                match &launch.code {
                    LaunchCode::Kernel(function, blocks) => self.shared.stream.launch(*function, *blocks, emit::THREADS, &mut arguments)?,
                    LaunchCode::Convolution(convolution) => convolution.push(&self.shared.stream, &arguments)?,
                }
            }
        }
        Ok(())
    }
}

impl Drop for TimedProgram {
    /// What was pushed has run before its graph and its kernels go, also where a run ended with an error.
    fn drop(&mut self) {
        let _entered = self.shared.context.enter();
        let _ = self.done.record(&self.shared.stream).and_then(|()| self.done.synchronize());
    }
}
