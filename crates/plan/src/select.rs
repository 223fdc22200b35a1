//! The variant of each request, and a work for each of its steps.

use std::sync::Arc;

use plimsoll_base::{Error, Result};
use plimsoll_device::{KernelCall, LaidOut, Step, StepArg, Variant};
use plimsoll_request::KernelRequest;

use crate::Request;
use crate::lir::{Arg, ConstantId, Home, Lir, ValueId, View, Work, WorkId, WorkKind};
use crate::passes::Check;
use crate::plan::DeviceId;
use crate::prepare::{choose, choose_laid_out, request_of};

/// Replaces requests by the steps of their variants.
///
/// # Errors
/// The error of the library for a request, at its node; INTERNAL where a variant has other arguments than the request. The error of `go_on`.
pub(crate) fn select(request: &Request<'_>, lir: &mut Lir, go_on: &Check<'_>) -> Result<()> {
    for id in lir.ids() {
        go_on()?;
        let work = &lir.works[id];
        let all = || Arg::all(work.inputs.len(), work.outputs.len());
        let (asked, args) = match &work.kind {
            WorkKind::Request { request: asked, args } => (Arc::clone(asked), args.clone()),
            WorkKind::Anchor { .. } => match request_of(work) {
                Some(asked) => (Arc::new(asked), all()),
                None => continue,
            },
            _ => continue,
        };
        let (is_anchor, node) = (matches!(work.kind, WorkKind::Anchor { .. }), work.nodes[0]);
        let held = held_in_panels(lir, &args, work);
        let may_be: Vec<LaidOut> = held.iter().map(|held| held.laid_out).collect();
        let answered = answer_laid_out(request, work.device, &asked, &args, work, &may_be);
        let replaced = answered.and_then(|variant| match variant.steps.len() {
            // An anchor that is one kernel stays what it is.
            1 if is_anchor && variant.laid_out.is_none() => Ok(()),
            _ => {
                let mut read = held.iter().filter(|held| variant.laid_out == Some(held.laid_out));
                read.try_for_each(|held| held.read(lir, id))?;
                Steps { asked, args, variant }.replace(lir, id)
            }
        });
        replaced.map_err(|error| error.at_node(&request.graph.node(node).name))?;
    }
    Ok(())
}

/// The variant of a request that gets its arguments as a work has them.
///
/// # Errors
/// As [`choose`]; UNIMPLEMENTED where a variable has to change in place and does not. INTERNAL where one kernel has to compute the
/// request and several do.
pub(crate) fn answer(request: &Request<'_>, device: DeviceId, asked: &KernelRequest, args: &[Arg], work: &Work) -> Result<Arc<Variant>> {
    answer_laid_out(request, device, asked, args, work, &[])
}

/// As [`answer`], where these arguments may be read in panels.
fn answer_laid_out(
    request: &Request<'_>,
    device: DeviceId,
    asked: &KernelRequest,
    args: &[Arg],
    work: &Work,
    may_be: &[LaidOut],
) -> Result<Arc<Variant>> {
    let variant = if may_be.is_empty() { choose(request, device, asked)? } else { choose_laid_out(request, device, asked, may_be)? };
    if *args == Arg::all(work.inputs.len(), work.outputs.len()) {
        return Ok(variant);
    }
    let (name, steps) = (&variant.name, &variant.steps);
    let [step] = &steps[..] else {
        return Err(Error::internal(format!("{name} computes in {} steps a request that has to be one", steps.len())));
    };
    // A variable that is changed in place is the first argument, and once more the last.
    let is_update = matches!(args, [Arg::Output(0), .., Arg::Output(0)]);
    if is_update && !step.in_place.contains(&(0, 0)) {
        return Err(Error::unimplemented(format!("{name} of its device does not update in place")));
    }
    Ok(variant)
}

/// An input of a work that is a constant which the graph holds in panels.
struct Held {
    laid_out: LaidOut,
    input: usize,
    constant: ConstantId,
}

fn held_in_panels(lir: &Lir, args: &[Arg], work: &Work) -> Vec<Held> {
    let held = |(argument, arg): (u32, &Arg)| {
        let Arg::Input(input) = *arg else { return None };
        let Home::Constant(constant) = lir.values[work.inputs[input].value].home else { return None };
        let panels = lir.constant_values[constant].panels()?;
        Some(Held { laid_out: LaidOut { argument, panels }, input, constant })
    };
    (0..).zip(args).filter_map(held).collect()
}

impl Held {
    /// Has a work read the constant in panels.
    fn read(&self, lir: &mut Lir, id: WorkId) -> Result<()> {
        let (value, known) = (lir.constant_values[self.constant].clone(), lir.constants[self.constant].clone());
        let device = lir.works[id].device;
        let laid_out = lir.constant_in(Some(self.laid_out.panels), &value, device, known.tensor, &known.name)?;
        lir.works[id].inputs[self.input].value = laid_out;
        Ok(())
    }
}

/// A request and the variant that computes it.
struct Steps {
    asked: Arc<KernelRequest>,
    args: Vec<Arg>,
    variant: Arc<Variant>,
}

/// What a step does with an argument.
enum Bound {
    Read(View),
    Write(ValueId),
}

impl Steps {
    /// Puts the steps in the place of the work. The last step keeps its id: works that wait for it wait for all steps.
    fn replace(self, lir: &mut Lir, id: WorkId) -> Result<()> {
        let Steps { asked, args, variant } = self;
        // The steps of one work are told from those of others by their variant.
        let variant = if variant.steps.len() > 1 { Arc::new(Variant::clone(&variant)) } else { variant };
        let whole = lir.works[id].clone();
        let call = |number: usize| KernelCall { request: Arc::clone(&asked), variant: Arc::clone(&variant), step: number as u32 };
        let is_plain = args == Arg::all(whole.inputs.len(), whole.outputs.len());
        if let ([Step { args: None, .. }], _) | ([_], false) = (&variant.steps[..], is_plain) {
            lir.works[id].kind = WorkKind::Kernel { call: call(0), args };
            return Ok(());
        }
        let mut between: Vec<Option<View>> = vec![None; variant.between.len()];
        let mut written: Vec<ValueId> = Vec::new();
        let mut earlier: Vec<WorkId> = Vec::new();
        for (number, step) in variant.steps.iter().enumerate() {
            let (mut inputs, mut outputs, mut args) = (Vec::new(), Vec::new(), Vec::new());
            for bound in bind(lir, &whole, &variant, step, &mut between)? {
                match bound {
                    Bound::Read(view) => {
                        args.push(Arg::Input(inputs.len()));
                        inputs.push(view);
                    }
                    Bound::Write(value) => {
                        args.push(Arg::Output(outputs.len()));
                        outputs.push(value);
                    }
                }
            }
            written.extend(&outputs);
            let kind = WorkKind::Kernel { call: call(number), args };
            let is_last = number + 1 == variant.steps.len();
            let (step, is_root) = if is_last {
                (id, whole.is_root)
            } else {
                (lir.work(kind.clone(), whole.device, whole.nodes.clone(), Vec::new(), Vec::new()), false)
            };
            let after = whole.after.iter().copied().chain(if is_last { std::mem::take(&mut earlier) } else { Vec::new() }).collect();
            lir.works[step] = Work { kind, inputs, outputs, is_root, after, ..whole.clone() };
            earlier.push(step);
        }
        match whole.outputs.iter().position(|output| !written.contains(output)) {
            Some(result) => Err(Error::internal(format!("no step of {} writes result {result}", variant.name))),
            None => Ok(()),
        }
    }
}

/// The arguments of a step. The first step that names a buffer between steps makes its value.
fn bind(lir: &mut Lir, whole: &Work, variant: &Variant, step: &Step, between: &mut [Option<View>]) -> Result<Vec<Bound>> {
    let count = whole.inputs.len() + whole.outputs.len();
    let all = || (0..count as u32).map(StepArg::Argument).collect();
    let mut bounds = Vec::new();
    for arg in step.args.clone().unwrap_or_else(all) {
        let outside = || Error::internal(format!("{}: a step without its argument {arg:?}", variant.name));
        bounds.push(match arg {
            StepArg::Argument(index) => match (index as usize).checked_sub(whole.inputs.len()) {
                None => Bound::Read(whole.inputs[index as usize].clone()),
                Some(result) => Bound::Write(*whole.outputs.get(result).ok_or_else(outside)?),
            },
            StepArg::Between(index) => match between.get_mut(index as usize).ok_or_else(outside)? {
                Some(view) => Bound::Read(view.clone()),
                place @ None => {
                    let bytes = variant.between[index as usize];
                    let value = lir.value(whole.device, Home::Arena, bytes, whole.nodes[0]);
                    *place = Some(View::of_bytes(value, bytes));
                    Bound::Write(value)
                }
            },
        });
    }
    Ok(bounds)
}
