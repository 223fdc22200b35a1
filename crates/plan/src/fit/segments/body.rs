//! A new body of a loop: its parameters, works of another body, and works of its own.

use std::collections::HashMap;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{NodeId, Shape};
use plimsoll_request::KernelRequest;
use plimsoll_request::expr::{BinaryOp, Expr, ExprBuilder, Reg, Scalar};
use plimsoll_request::gather::{Gather, ScatterOp};

use crate::Request;
use crate::fit::bodies;
use crate::lir::{Arg, Home, Lir, Region, RegionId, Trips, Value, ValueId, View, WorkId, WorkKind};
use crate::order::taken;
use crate::plan::DeviceId;
use crate::prepare::{choose_one, prepare};
use crate::transfer::carrier;

/// Makes works of one node in the region at hand. They are where their operands are.
pub(super) struct Making<'a> {
    pub request: &'a Request<'a>,
    pub lir: Lir,
    pub node: NodeId,
    /// The guard of what is made.
    pub guard: Option<ValueId>,
}

/// A region that is being made.
pub(super) struct Body {
    pub region: RegionId,
    /// Its parameters, in order.
    pub params: Vec<ValueId>,
    /// By value of a body that it takes works of: its own.
    pub values: HashMap<ValueId, ValueId>,
    works: HashMap<WorkId, WorkId>,
}

/// A value of one element.
pub(super) fn single(value: ValueId, data_type: DataType) -> View {
    View { value, data_type, shape: Shape::scalar() }
}

impl Making<'_> {
    /// A work of the region at hand on a device, prepared.
    ///
    /// # Errors
    /// Those of the device's library.
    fn work(&mut self, device: DeviceId, kind: WorkKind, inputs: Vec<View>, outputs: Vec<ValueId>) -> Result<WorkId> {
        let is_version = outputs.iter().any(|output| self.lir.values[*output].previous.is_some());
        let id = self.lir.work(kind, device, vec![self.node], inputs, outputs);
        (self.lir.works[id].is_root, self.lir.works[id].guard) = (is_version, self.guard);
        self.prepare(id)?;
        Ok(id)
    }

    /// Finds out what a work takes.
    ///
    /// # Errors
    /// Those of the device's library.
    pub fn prepare(&mut self, id: WorkId) -> Result<()> {
        let prepared = prepare(self.request, &self.lir, &self.lir.works[id])?;
        self.lir.works[id].prepared = Some(prepared);
        Ok(())
    }

    fn device(&self, of: ValueId) -> DeviceId {
        self.lir.values[of].device
    }

    /// A new value of the arena of a device.
    fn value(&mut self, device: DeviceId, data_type: DataType, shape: &Shape) -> Result<View> {
        let value = self.lir.value(device, Home::Arena, shape.bytes(data_type)?.0, self.node);
        Ok(View { value, data_type, shape: shape.clone() })
    }

    /// A number from int32 numbers, each of one element; at least one of them.
    ///
    /// # Errors
    /// Those of expressions, and of the device's library.
    pub fn number(&mut self, of: &[ValueId], result: impl FnOnce(&mut ExprBuilder, &[Reg]) -> Result<Reg>) -> Result<View> {
        self.number_on(self.device(of[0]), of, result)
    }

    /// The same on a device, where the operands are.
    ///
    /// # Errors
    /// As [`Making::number`].
    pub fn number_on(
        &mut self,
        device: DeviceId,
        of: &[ValueId],
        result: impl FnOnce(&mut ExprBuilder, &[Reg]) -> Result<Reg>,
    ) -> Result<View> {
        let (expr, inputs, data_type) = expression(of, result)?;
        let view = self.value(device, data_type, &Shape::scalar())?;
        self.work(device, WorkKind::Expr { expr, shape: Shape::scalar() }, inputs, vec![view.value])?;
        Ok(view)
    }

    /// The same, as the next version of what a loop carries.
    ///
    /// # Errors
    /// As [`Making::number`].
    pub fn next(&mut self, old: ValueId, of: &[ValueId], result: impl FnOnce(&mut ExprBuilder, &[Reg]) -> Result<Reg>) -> Result<ValueId> {
        let (expr, inputs, _) = expression(of, result)?;
        let version = self.lir.next_version(old, self.node);
        self.work(self.device(old), WorkKind::Expr { expr, shape: Shape::scalar() }, inputs, vec![version])?;
        Ok(version)
    }

    /// A copy on a device.
    ///
    /// # Errors
    /// Those of preparing it.
    pub fn copy(&mut self, of: &View, to: DeviceId) -> Result<View> {
        let copy = self.value(to, of.data_type, &of.shape)?;
        self.lir.values[copy.value].is_copy = self.device(of.value) != to;
        self.copied(of.value, copy.value)?;
        Ok(copy)
    }

    /// A copy as the next version of what a loop carries.
    ///
    /// # Errors
    /// As [`Making::copy`].
    pub fn copy_over(&mut self, old: ValueId, of: ValueId) -> Result<ValueId> {
        let version = self.lir.next_version(old, self.node);
        self.copied(of, version)?;
        Ok(version)
    }

    fn copied(&mut self, from: ValueId, to: ValueId) -> Result<WorkId> {
        let carrier = carrier(self.request.devices, self.device(from), self.device(to));
        let bytes = self.lir.values[from].bytes;
        self.work(carrier, WorkKind::Copy, vec![View::of_bytes(from, bytes)], vec![to])
    }

    /// Zeros where a value is, of a type and a shape.
    ///
    /// # Errors
    /// UNIMPLEMENTED for types that expressions do not compute with.
    pub fn zeros(&mut self, like: &View) -> Result<View> {
        let mut builder = ExprBuilder::new();
        let zero = builder.number(like.data_type, 0.0)?;
        let device = self.device(like.value);
        let view = self.value(device, like.data_type, &like.shape)?;
        self.work(device, WorkKind::Expr { expr: builder.finish(vec![zero]), shape: like.shape.clone() }, Vec::new(), vec![view.value])?;
        Ok(view)
    }

    /// Row `index` of some, which is like `row`.
    ///
    /// # Errors
    /// Those of the device's library.
    pub fn take(&mut self, rows: View, index: ValueId, row: &View) -> Result<View> {
        let device = self.device(rows.value);
        let element = row.data_type.size().ok_or_else(|| Error::unimplemented(format!("rows of {}", row.data_type)))?;
        let call = choose_one(self.request, device, take(element, &rows.shape))?;
        let view = self.value(device, row.data_type, &row.shape)?;
        let kind = WorkKind::Kernel { call, args: Arg::all(2, 1) };
        self.work(device, kind, vec![rows, single(index, DataType::Int32)], vec![view.value])?;
        Ok(view)
    }

    /// The next version of rows that a loop carries, one of them written.
    ///
    /// # Errors
    /// Those of the device's library.
    pub fn put(&mut self, rows: View, index: ValueId, row: View) -> Result<(WorkId, ValueId)> {
        let device = self.device(rows.value);
        let call = choose_one(self.request, device, put(&rows))?;
        let version = self.lir.next_version(rows.value, self.node);
        let args = vec![Arg::Output(0), Arg::Input(1), Arg::Input(2), Arg::Output(0)];
        let work = self.work(device, WorkKind::Kernel { call, args }, vec![rows, single(index, DataType::Int32), row], vec![version])?;
        Ok((work, version))
    }

    /// A region of which nothing is there yet, with parameters for values of regions around it. It is at hand.
    pub fn body(&mut self, given: &[View]) -> Body {
        let region = self.lir.regions.push(Region::default());
        self.lir.enter(region);
        let param = |(param, view): (u32, &View)| {
            let Value { device, bytes, node, .. } = self.lir.values[view.value];
            self.lir.param(device, Home::Given { region, param }, bytes, node)
        };
        let params = (0..).zip(given).map(param).collect();
        Body { region, params, values: HashMap::new(), works: HashMap::new() }
    }

    /// Ends a body: its results are these, and `around` is at hand.
    pub fn end(&mut self, results: Vec<ValueId>, around: RegionId) {
        self.order_writers();
        self.lir.region_mut().results = results;
        let arena = taken(&self.lir, self.request.devices);
        self.lir.region_mut().arena = arena;
        self.lir.enter(around);
    }

    /// Every work of the region at hand that overwrites a value waits for its readers.
    fn order_writers(&mut self) {
        let (definitions, uses) = (self.lir.definitions(), self.lir.uses());
        for (old, new) in self.lir.versions().collect::<Vec<_>>() {
            let Some(writer) = definitions[new] else { continue };
            let before = uses[old].iter().copied().chain(definitions[old]).filter(|reader| *reader != writer);
            let after = &mut self.lir.works[writer].after;
            after.extend(before);
            after.sort_unstable();
            after.dedup();
        }
    }

    /// A loop of the region at hand around a body that is there, on the device of its first input.
    ///
    /// # Errors
    /// Those of preparing it.
    pub fn repeat(&mut self, body: RegionId, (carried, trips): (usize, Trips), inputs: Vec<View>, outputs: Vec<ValueId>) -> Result<WorkId> {
        let device = self.device(inputs[0].value);
        let id = self.work(device, WorkKind::Loop { body, carried, trips }, inputs, outputs)?;
        self.lir.works[id].is_root = true;
        Ok(id)
    }

    /// New values of arenas, as large as these and where they are.
    pub fn outputs(&mut self, of: &[View]) -> Vec<ValueId> {
        let output = |view: &View| {
            let Value { device, bytes, .. } = self.lir.values[view.value];
            self.lir.value(device, Home::Arena, bytes, self.node)
        };
        of.iter().map(output).collect()
    }

    /// The same work of another body in this one, which is at hand.
    ///
    /// # Errors
    /// INTERNAL where it reads what this one does not have.
    pub fn again(&mut self, body: &mut Body, id: WorkId) -> Result<WorkId> {
        let mut work = self.lir.works[id].clone();
        for view in &mut work.inputs {
            view.value = self.own(body, view.value)?;
        }
        work.guard = work.guard.map(|guard| self.own(body, guard)).transpose()?;
        for output in &mut work.outputs {
            let mut value = self.lir.values[*output].clone();
            value.region = body.region;
            if let Some(previous) = value.previous {
                let previous = self.own(body, previous)?;
                (value.previous, value.home) = (Some(previous), self.lir.values[previous].home);
            }
            let new = self.lir.values.push(value);
            body.values.insert(*output, new);
            *output = new;
        }
        work.after = work.after.iter().filter_map(|before| body.works.get(before).copied()).collect();
        work.after.sort_unstable();
        if let WorkKind::Loop { body, .. } = &mut work.kind {
            *body = bodies::copy(&mut self.lir, *body);
        }
        let new = self.lir.works.push(work);
        self.lir.region_mut().works.push(new);
        body.works.insert(id, new);
        Ok(new)
    }

    /// The value of this body in place of one of another body. Constants are parameters of each body.
    ///
    /// # Errors
    /// INTERNAL where there is none.
    pub fn own(&mut self, body: &mut Body, value: ValueId) -> Result<ValueId> {
        if let Some(known) = body.values.get(&value) {
            return Ok(*known);
        }
        let of = self.lir.values[value].clone();
        let Home::Constant(_) = of.home else { return Err(Error::internal("a body reads what it is not given")) };
        let own = self.lir.param(of.device, of.home, of.bytes, of.node);
        body.values.insert(value, own);
        Ok(own)
    }
}

/// An expression of int32 numbers, its operands, and the type of its result.
fn expression(of: &[ValueId], result: impl FnOnce(&mut ExprBuilder, &[Reg]) -> Result<Reg>) -> Result<(Expr, Vec<View>, DataType)> {
    let mut builder = ExprBuilder::new();
    let operands = of.iter().map(|_| builder.input(DataType::Int32)).collect::<Result<Vec<_>>>()?;
    let result = result(&mut builder, &operands)?;
    let data_type = builder.type_of(result);
    Ok((builder.finish(vec![result]), of.iter().map(|value| single(*value, DataType::Int32)).collect(), data_type))
}

/// An operation on a number and a known one.
///
/// # Errors
/// Those of expressions.
pub(super) fn with(builder: &mut ExprBuilder, op: BinaryOp, a: Reg, b: i32) -> Result<Reg> {
    let b = builder.constant(Scalar::I32(b));
    builder.binary(op, a, b)
}

/// One row of some.
pub(super) fn take(element: usize, rows: &Shape) -> KernelRequest {
    KernelRequest::Gather(Gather::Take {
        element,
        params: rows.to_vec(),
        indices: Vec::new(),
        axis: 0,
        batch_dims: 0,
        index_type: DataType::Int32,
    })
}

/// One row of some written.
fn put(rows: &View) -> KernelRequest {
    KernelRequest::Gather(Gather::Scatter {
        op: ScatterOp::Update,
        data_type: rows.data_type,
        index_type: DataType::Int32,
        shape: rows.shape.to_vec(),
        indices: 1,
        depth: 1,
        scalar_updates: false,
        ignore: false,
        in_place: true,
    })
}
