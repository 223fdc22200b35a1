//! Operands, results and arguments fit what a work computes.

use plimsoll_base::{Code, DataType, Result};
use plimsoll_device::StepArg;
use plimsoll_graph::Shape;
use plimsoll_graph::id::Id;
use plimsoll_request::KernelRequest;
use plimsoll_request::anchor::Anchor;
use plimsoll_request::expr::Expr;

use super::{Checker, Makers, name};
use crate::lir::{Arg, Home, PartArg, PartOf, Parts, RegionId, ValueId, VariableId, View, Work, WorkId, WorkKind};
use crate::passes::Pass;
use crate::plan::{DeviceId, PlanCall};
use crate::prepare::request_of;

impl Checker<'_> {
    pub(super) fn work(&self, id: WorkId) -> Result<()> {
        let work = &self.lir.works[id];
        for view in &work.inputs {
            let bytes = view.shape.bytes(view.data_type).map_or(0, |bytes| bytes.0);
            self.require(id, bytes == self.lir.values[view.value].bytes, || format!("it reads {} as {bytes} bytes", name(view.value)))?;
        }
        match &work.kind {
            WorkKind::Expr { expr, shape } => {
                self.operands(id, expr, &work.inputs, shape, None)?;
                self.results(id, expr, &work.outputs, shape)
            }
            WorkKind::Anchor { anchor, epilogue } => {
                self.anchor(id, anchor, epilogue.as_ref())?;
                self.sizes(id, request_of(work).as_ref())
            }
            WorkKind::Request { request, args } => {
                self.arguments(id, args)?;
                let is_plain = *args == Arg::all(work.inputs.len(), work.outputs.len());
                self.sizes(id, Some(&**request).filter(|_| is_plain))
            }
            WorkKind::Kernel { call, args } => {
                let is_step = (call.step as usize) < call.variant.steps.len();
                self.require(id, is_step, || format!("{} has no step {}", call.variant.name, call.step))?;
                let expected = call.step().args.as_ref().map(|args| args.len());
                self.require(id, expected.is_none_or(|expected| expected == args.len()), || "its step has other arguments".to_string())?;
                self.between(id, work)?;
                self.arguments(id, args)
            }
            WorkKind::Copy => {
                let bytes = |values: &[ValueId]| values.iter().map(|value| self.lir.values[*value].bytes).collect::<Vec<_>>();
                let from = bytes(&work.inputs.iter().map(|view| view.value).collect::<Vec<_>>());
                self.require(id, from.len() == 1 && from == bytes(&work.outputs), || "it copies what is not as large".to_string())
            }
            WorkKind::Outside { call, scratch } => self.outside(id, &self.lir.calls[*call], *scratch),
            WorkKind::Loop { body, carried, .. } => self.iterates(id, *body, *carried),
            WorkKind::Parts(parts) => self.parts(id, parts),
        }
    }

    /// Operands are those of the expression and broadcast to the shape. `element` is operand 0 where that is no view.
    fn operands(&self, id: WorkId, expr: &Expr, views: &[View], shape: &Shape, element: Option<DataType>) -> Result<()> {
        let types: Vec<DataType> = element.into_iter().chain(views.iter().map(|view| view.data_type)).collect();
        self.require(id, types == expr.inputs(), || format!("its expression takes {:?} and is given {types:?}", expr.inputs()))?;
        let other = views.iter().find(|view| view.shape.broadcast(shape).as_ref() != Some(shape));
        self.require(id, other.is_none(), || {
            format!("{} of shape {} is no operand for shape {shape}", name(views[0].value), other.map_or(&views[0], |view| view).shape)
        })
    }

    fn results(&self, id: WorkId, expr: &Expr, outputs: &[ValueId], shape: &Shape) -> Result<()> {
        let types = expr.output_types();
        self.require(id, types.len() == outputs.len(), || format!("{} results and {} outputs", types.len(), outputs.len()))?;
        for (data_type, output) in types.into_iter().zip(outputs) {
            let bytes = shape.bytes(data_type).map_or(0, |bytes| bytes.0);
            let is_fit = bytes == self.lir.values[*output].bytes;
            self.require(id, is_fit, || format!("it writes {bytes} bytes to {}", name(*output)))?;
        }
        Ok(())
    }

    fn anchor(&self, id: WorkId, anchor: &Anchor, epilogue: Option<&Expr>) -> Result<()> {
        let work = &self.lir.works[id];
        self.require(id, work.inputs.len() >= Anchor::INPUTS, || format!("it is computed from {} tensors", work.inputs.len()))?;
        let operands = &work.inputs[Anchor::INPUTS..];
        match (epilogue, anchor.shape().map(Shape::from)) {
            (None, _) => self.require(id, operands.is_empty(), || "it has operands and no epilogue".to_string())?,
            (Some(_), None) => return Err(self.broken_at(id, "it can have no epilogue")),
            (Some(expr), Some(shape)) => {
                self.operands(id, expr, operands, &shape, Some(anchor.data_type()))?;
                self.results(id, expr, &work.outputs, &shape)?;
            }
        }
        Ok(())
    }

    /// Arguments are inputs and outputs of the work, and every output is one.
    fn arguments(&self, id: WorkId, args: &[Arg]) -> Result<()> {
        let work = &self.lir.works[id];
        let is_there = |arg: &Arg| match arg {
            Arg::Input(input) => *input < work.inputs.len(),
            Arg::Output(output) => *output < work.outputs.len(),
        };
        self.require(id, args.iter().all(is_there), || "an argument is neither input nor output".to_string())?;
        let unwritten = (0..work.outputs.len()).find(|output| !args.contains(&Arg::Output(*output)));
        self.require(id, unwritten.is_none(), || format!("output {} is no argument", unwritten.unwrap_or_default()))
    }

    /// Inputs and outputs are as large as the request says, where it says that.
    fn sizes(&self, id: WorkId, request: Option<&KernelRequest>) -> Result<()> {
        let Some(request) = request else { return Ok(()) };
        let asked = match request.arguments() {
            // Its library knows.
            Err(error) if error.code() == Code::Unimplemented => return Ok(()),
            asked => asked.map_err(|error| self.broken_at(id, error.message()))?,
        };
        let work = &self.lir.works[id];
        let bytes = |value: ValueId| self.lir.values[value].bytes;
        let inputs = work.inputs.iter().map(|view| bytes(view.value));
        let is_enough = asked.inputs.len() == work.inputs.len() && asked.inputs.iter().zip(inputs).all(|(least, have)| *least <= have);
        self.require(id, is_enough, || format!("its request takes {:?} bytes", asked.inputs))?;
        let is_fit = work.outputs.iter().map(|output| bytes(*output)).eq(asked.outputs.iter().copied());
        self.require(id, is_fit, || format!("its request gives {:?} bytes", asked.outputs))
    }

    /// Buffers between the steps of a variant are as large as it says.
    fn between(&self, id: WorkId, work: &Work) -> Result<()> {
        let WorkKind::Kernel { call, args } = &work.kind else { return Ok(()) };
        for (arg, bound) in call.step().args.iter().flatten().zip(args) {
            let StepArg::Between(index) = arg else { continue };
            let value = match *bound {
                Arg::Input(input) => work.inputs.get(input).map(|view| view.value),
                Arg::Output(output) => work.outputs.get(output).copied(),
            };
            let bytes = call.variant.between.get(*index as usize);
            let is_fit = value.is_some_and(|value| Some(&self.lir.values[value].bytes) == bytes);
            self.require(id, is_fit, || format!("buffer {index} between its steps is not as large as its variant says"))?;
        }
        Ok(())
    }

    fn outside(&self, id: WorkId, call: &PlanCall, scratch: u64) -> Result<()> {
        let work = &self.lir.works[id];
        let (inputs, outputs, needs_scratch) = match call {
            PlanCall::Check(_) => (0, 0, true),
            PlanCall::Restore(_) => (0, 1, true),
            PlanCall::Save(save) => (save.tensors.len(), 0, false),
        };
        self.require(id, (work.inputs.len(), work.outputs.len()) == (inputs, outputs), || "its file holds other tensors".to_string())?;
        self.require(id, !needs_scratch || scratch > 0, || "it reads a file through no scratch".to_string())?;
        if let PlanCall::Restore(restore) = call {
            let home = self.lir.values[work.outputs[0]].home;
            let is_fit = home == Home::Variable(VariableId::from_index(restore.variable as usize));
            self.require(id, is_fit, || format!("it restores another variable than {}", name(work.outputs[0])))?;
        }
        Ok(())
    }

    /// A guard is a bool.
    pub(super) fn guard(&self, id: WorkId, makers: &Makers) -> Result<()> {
        let work = &self.lir.works[id];
        let is_bool = |value: ValueId| {
            self.lir.values[value].bytes == 1 && self.type_of(value, makers).is_none_or(|data_type| data_type == DataType::Bool)
        };
        let guard = work.guard.filter(|guard| !is_bool(*guard));
        self.require(id, guard.is_none(), || format!("its guard {} is not one bool", guard.map_or_else(String::new, name)))
    }

    fn iterates(&self, id: WorkId, body: RegionId, carried: usize) -> Result<()> {
        let (work, region) = (&self.lir.works[id], &self.lir.regions[body]);
        self.condition(id, work.inputs.first())?;
        let passed = work.inputs.len();
        self.require(id, (1..=passed).contains(&carried) && carried <= work.outputs.len(), || {
            "it carries more than it is given".to_string()
        })?;
        // Constants of the body are parameters that are not passed.
        let params: Vec<ValueId> = self.lir.passed(body).collect();
        self.same(id, work.inputs.iter().map(|view| view.value), &params, "parameters of its body")?;
        let numbered = params.iter().zip(0..).all(
            |(param, number)| matches!(self.lir.values[*param].home, Home::Given { region, param } if region == body && param == number),
        );
        self.require(id, numbered, || "the parameters of its body are not in order".to_string())?;
        self.same(id, params[..carried].iter().copied(), &region.results, "results of its body")?;
        self.same(id, params[..carried].iter().copied(), &work.outputs[..carried], "outputs")?;
        let is_version = |output: &ValueId| self.lir.values[*output].previous.is_some();
        self.require(id, work.outputs[carried..].iter().all(is_version), || "an output is neither carried nor a variable".to_string())?;
        let in_place = region.results.iter().zip(0..).all(
            |(result, number)| matches!(self.lir.values[*result].home, Home::Given { region, param } if region == body && param == number),
        );
        self.require(id, in_place, || "its body leaves what it carries in another place".to_string())?;
        if self.after < Pass::Transfer {
            return Ok(());
        }
        let devices: Vec<DeviceId> = self.lir.devices(work).collect();
        let is_here = |inner: &WorkId| self.lir.devices(&self.lir.works[*inner]).all(|device| devices.contains(&device));
        let is_whole = self.after < Pass::Order || region.works.iter().all(is_here);
        self.require(id, is_whole, || "its body is on a device that has no part in it".to_string())?;
        let partners = &region.partners;
        let mut inner = region.works.iter().map(|inner| &self.lir.works[*inner]);
        let of_others = inner.any(|inner| self.lir.is_shared(inner) && self.lir.devices(inner).count() != devices.len());
        self.require(id, !of_others, || "a loop in it is shared by other devices".to_string())?;
        self.require(id, partners.is_empty() || work.guard.is_none(), || "a loop of several devices has a guard".to_string())?;
        let is_tested = |(test, device): (usize, &DeviceId)| {
            let value = &self.lir.values[work.outputs[test]];
            value.device == *device && value.bytes == 1
        };
        let first = carried.checked_sub(partners.len()).filter(|first| *first > 0);
        let is_delivered = first.is_some_and(|first| (first..).zip(partners).all(is_tested));
        self.require(id, is_delivered, || "a device has no condition of its own".to_string())
    }

    /// Arguments are there and as large as its requests say: slices of inputs and outputs that are divided, all of the others.
    fn parts(&self, id: WorkId, parts: &Parts) -> Result<()> {
        let work = &self.lir.works[id];
        let all = |arg: &PartArg| match arg.of {
            PartOf::Input(index) => Some(self.lir.values[work.inputs.get(index)?.value].bytes),
            PartOf::Output(index) => Some(self.lir.values[*work.outputs.get(index)?].bytes),
            PartOf::Between(index) => Some(parts.between.get(index).filter(|(offset, bytes)| offset + bytes <= parts.scratch)?.1),
        };
        for (at, step) in parts.calls() {
            let bytes = |arg: &PartArg| {
                let all = all(arg)?;
                step.slice(parts.rows, *arg, all, at).filter(|(begin, bytes)| begin + bytes <= all).map(|(_, bytes)| bytes)
            };
            let (call, given) = (step.kernel(parts.rows, at).0, step.args.iter().map(bytes).collect::<Vec<_>>());
            self.require(id, given.iter().all(Option::is_some), || "a part is not there".to_string())?;
            let asked = match call.request.arguments() {
                // Its library knows.
                Err(error) if error.code() == Code::Unimplemented => continue,
                asked => asked.map_err(|error| self.broken_at(id, error.message()))?,
            };
            let all: Vec<u64> = asked.inputs.into_iter().chain(asked.outputs).collect();
            let own = call.step().args.clone().unwrap_or_else(|| (0..all.len() as u32).map(StepArg::Argument).collect());
            let wanted = own.iter().map(|arg| match *arg {
                StepArg::Argument(index) => all.get(index as usize).copied(),
                StepArg::Between(index) => call.variant.between.get(index as usize).copied(),
            });
            let is_fit = own.len() == given.len() && wanted.zip(&given).all(|(wanted, given)| wanted <= *given && wanted.is_some());
            self.require(id, is_fit, || format!("parts of {given:?} bytes are not those of {own:?}"))?;
        }
        Ok(())
    }

    fn condition(&self, id: WorkId, view: Option<&View>) -> Result<()> {
        let is_bool = view.is_some_and(|view| view.data_type == DataType::Bool && view.elements() == 1);
        self.require(id, is_bool, || "its condition is not one bool".to_string())
    }

    /// Values go in and out of regions as they are: as large, and once there are copies, on the same device.
    fn same(&self, id: WorkId, outer: impl Iterator<Item = ValueId>, inner: &[ValueId], what: &str) -> Result<()> {
        let device = |value: ValueId| (self.after >= Pass::Transfer).then(|| self.lir.values[value].device);
        let alike = |value: ValueId| (self.lir.values[value].bytes, device(value));
        let is_fit = outer.map(alike).eq(inner.iter().copied().map(alike));
        self.require(id, is_fit, || format!("the {what} are not what it passes"))
    }

    /// A request has a variant by now.
    pub(super) fn selected(&self, id: WorkId) -> Result<()> {
        let is_open = matches!(self.lir.works[id].kind, WorkKind::Request { .. });
        self.require(id, !is_open, || "its request has no variant".to_string())
    }

    /// A scheduled work has its kernel, and the scratch that this asks for.
    pub(super) fn prepared(&self, id: WorkId) -> Result<()> {
        let work = &self.lir.works[id];
        let Some(prepared) = &work.prepared else { return Err(self.broken_at(id, "it is scheduled and not prepared")) };
        let (has_kernel, least) = match &work.kind {
            WorkKind::Copy => (false, 0),
            WorkKind::Outside { scratch, .. } => (false, *scratch),
            WorkKind::Loop { body, .. } => (false, self.lir.regions[*body].takes(work.device)),
            WorkKind::Parts(parts) => (false, parts.scratch),
            _ => (true, prepared.kernel.as_ref().map_or(0, |call| call.step().scratch)),
        };
        self.require(id, prepared.kernel.is_some() == has_kernel, || "it has no kernel, or needs none".to_string())?;
        self.require(id, prepared.shared >= least, || format!("{} bytes of scratch are less than {least}", prepared.shared))
    }
}
