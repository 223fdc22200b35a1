//! The rules of an LIR. They are checked between passes in debug builds and in tests; an error names the pass and the work.
//!
//! [`names`]: every id names something. [`flow`]: every value is defined once and before it is used. [`state`]: homes, versions
//! of variables, fetches. [`works`]: operands fit what is computed. [`devices`]: works read and write what their device holds.

mod devices;
mod flow;
mod names;
mod state;
mod works;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_device::DeviceSpec;
use plimsoll_graph::id::Id;
use plimsoll_graph::{Graph, IdVec};

use super::{Home, Lir, RegionId, ValueId, WorkId, WorkKind};
use crate::passes::Pass;
use crate::plan::DeviceId;
use crate::request::Request;

/// Checks the rules that hold after a pass.
///
/// # Errors
/// INTERNAL: the pass, the work and its node, and the rule.
pub(crate) fn verify(request: &Request<'_>, lir: &Lir, after: Pass) -> Result<()> {
    let (graph, devices, host) = (request.graph, request.devices, request.placement.host);
    let checker = Checker { request, lir, graph, devices, host, after };
    checker.names()?;
    let makers = checker.flow()?;
    checker.state(&makers)?;
    for region in lir.regions.values() {
        for &work in &region.works {
            checker.work(work)?;
            checker.guard(work, &makers)?;
            if after >= Pass::Transfer {
                checker.devices(work)?;
            }
            if after >= Pass::Select {
                checker.selected(work)?;
            }
        }
        if after >= Pass::Order {
            region.works.iter().try_for_each(|work| checker.prepared(*work))?;
        }
    }
    Ok(())
}

/// What defines a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Maker {
    Param(RegionId),
    Work(RegionId, WorkId),
}

impl Maker {
    fn region(self) -> RegionId {
        match self {
            Maker::Param(region) | Maker::Work(region, _) => region,
        }
    }
}

/// By value: what defines it.
type Makers = IdVec<ValueId, Option<Maker>>;

struct Checker<'a> {
    request: &'a Request<'a>,
    lir: &'a Lir,
    graph: &'a Graph,
    devices: &'a [DeviceSpec],
    host: DeviceId,
    after: Pass,
}

impl Checker<'_> {
    /// A broken rule that no work is to blame for.
    fn broken(&self, rule: impl AsRef<str>) -> Error {
        Error::internal(format!("after {}: {}", self.after, rule.as_ref()))
    }

    /// A rule that a work breaks.
    fn broken_at(&self, work: WorkId, rule: impl AsRef<str>) -> Error {
        let error = Error::internal(format!("after {}: w{}: {}", self.after, work.index(), rule.as_ref()));
        match self.lir.works[work].nodes.first().filter(|node| self.graph.nodes().get(**node).is_some()) {
            Some(node) => error.at_node(&self.graph.node(*node).name),
            None => error,
        }
    }

    fn require(&self, work: WorkId, holds: bool, rule: impl FnOnce() -> String) -> Result<()> {
        if holds { Ok(()) } else { Err(self.broken_at(work, rule())) }
    }

    /// The element type of a value, where its home or the expression that defines it says one.
    fn type_of(&self, value: ValueId, makers: &Makers) -> Option<DataType> {
        match self.lir.values[value].home {
            Home::Variable(variable) => Some(self.lir.variables[variable].data_type),
            Home::Flag(_) => Some(DataType::Bool),
            Home::Constant(constant) => Some(self.lir.constants[constant].data_type),
            Home::Feed(feed) => Some(self.lir.feeds[feed].data_type),
            Home::Arena | Home::Fetch(_) | Home::Given { .. } => match makers[value]? {
                Maker::Param(_) => None,
                Maker::Work(_, work) => {
                    let work = &self.lir.works[work];
                    let position = work.outputs.iter().position(|output| *output == value)?;
                    match &work.kind {
                        WorkKind::Expr { expr, .. } => Some(expr.type_of(*expr.outputs().get(position)?)),
                        _ => None,
                    }
                }
            },
        }
    }
}

/// How a value is written in messages.
fn name(value: ValueId) -> String {
    format!("v{}", value.index())
}
