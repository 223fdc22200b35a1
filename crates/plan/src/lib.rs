//! From a graph, devices' specifications and a signature to a [`Plan`]: where everything runs, in which order, and at which
//! byte of which device's memory. Pure: no device, clock, environment or file is touched, and the same request gives the
//! same plan.
//!
//! The way of a request: [`place()`] (once per session, the graph as written; or [`place_pruned`]) → prune → infer → lower → patch → transfer → fuse →
//! select → hazard → order → pack. Each step is a module of that name; [`Pass`] lists those from `lower` on.
#![forbid(unsafe_code)]

mod clock;
mod condition;
mod evaluate;
mod file;
#[cfg(test)]
mod filetests;
mod first_fit;
mod footprint;
mod fuse;
mod hazard;
mod infer;
mod inline;
mod joint;
mod lir;
mod live;
mod lower;
mod need;
mod order;
mod pack;
mod passes;
mod patch;
mod place;
mod plan;
mod prepare;
mod report;
mod request;
mod select;
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
pub use live::moves::Moves;
pub use lower::variable_key;
pub use need::{Need, Needs, check_limits};
pub use passes::{Pass, plan, text_after};
pub use place::{PlaceOptions, Placement, Why, place, place_pruned, stateful};
pub use plan::{
    Certainty, DeviceId, DevicePlan, Holder, PeakParts, Plan, PlanCall, PlanCheck, PlanConstant, PlanFeed, PlanFetch, PlanRestore,
    PlanSave, PlanVariable, Queue, Region, SavedTensor, VariableKind,
};
pub use request::{Feed, Request, Signature};
pub use traffic::Transfer;
