//! From a graph, devices' specifications and a signature to a [`Plan`]: where everything runs, in which order, and at which
//! byte of which device's memory. Pure: no device, clock, environment or file is touched, and the same request gives the
//! same plan.
//!
//! The way of a request: [`place()`] (once per session, the graph as written; or [`place_pruned`]) → prune → infer → lower → transfer → fuse →
//! hazard → order → pack. Each step is a module of that name.
#![forbid(unsafe_code)]

mod clock;
mod condition;
mod evaluate;
mod file;
mod first_fit;
mod footprint;
mod fuse;
mod hazard;
mod infer;
mod inline;
mod joint;
mod lir;
mod lower;
mod need;
mod order;
mod pack;
mod place;
mod plan;
mod prepare;
mod report;
mod request;
mod text;
mod traffic;
mod transfer;
mod verify;

pub use clock::Timeline;
pub use evaluate::Evaluation;
pub use file::{OpenRequest, PlanFile};
pub use first_fit::{FitRequest, Fitted, Piece, Tried, first_fit};
pub use footprint::{Footprint, loading_buffer};
pub use inline::{Calls, Inlined, Part, inline};
pub use joint::{Joint, JointNeed, Together};
pub use lower::variable_key;
pub use need::{Need, Needs, check_limits};
pub use place::{PlaceOptions, Placement, Why, place, place_pruned, stateful};
pub use plan::{
    Certainty, DeviceId, DevicePlan, Holder, PeakParts, Plan, PlanCall, PlanCheck, PlanConstant, PlanFeed, PlanFetch, PlanRestore,
    PlanSave, PlanVariable, Queue, Region, SavedTensor, VariableKind,
};
pub use request::{Feed, Request, Signature};
pub use traffic::Transfer;

use plimsoll_base::{Code, Error, Result};

/// Makes the plan of a request. Limits are not looked at: see [`check_limits`].
///
/// # Errors
/// TensorFlow's errors for feeds, fetches and targets that make no sense and for unfed placeholders. The errors of an operation's
/// rules for its inputs. UNIMPLEMENTED for operations that have no rules or kernels here, and for shapes that are known only when
/// the graph runs. Each names the node.
pub fn plan(request: &Request<'_>) -> Result<Plan> {
    if request.libraries.len() != request.devices.len() {
        let (libraries, devices) = (request.libraries.len(), request.devices.len());
        return Err(Error::invalid_argument(format!("{libraries} libraries for {devices} devices")));
    }
    let pruned = infer::prune_and_infer(request)?;
    let mut lir = lower::lower(request, &pruned)?;
    lir.drop_dead();
    transfer::insert(&mut lir, request.devices);
    fuse::fuse(request, &mut lir)?;
    hazard::order_accesses(request, &mut lir)?;
    transfer::complete(&mut lir, request.devices);
    lower::settle_saves(&mut lir);
    let schedule = order::order(request, &lir)?;
    let plan = pack::pack(request, lir, schedule)?;
    if cfg!(debug_assertions) {
        verified(request, &pruned, &plan)?;
    }
    Ok(plan)
}

/// A plan of ours passes the checks of a plan from a file.
fn verified(request: &Request<'_>, pruned: &infer::Pruned, plan: &Plan) -> Result<()> {
    match verify::verify(request.graph, request.devices, request.libraries, pruned, plan) {
        // The arguments of kernels of other libraries may be unknown.
        Err(error) if error.code() == Code::Unimplemented => Ok(()),
        Err(error) => Err(Error::internal(format!("a plan does not hold: {error}\n{plan}"))),
        Ok(()) => Ok(()),
    }
}
