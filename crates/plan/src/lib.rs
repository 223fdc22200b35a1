//! From a graph, devices' specifications and a signature to a [`Plan`]: the device of each work, the order of works, and the bytes
//! of each buffer. Pure: no device, clock, environment or file is touched, and the same request gives the same plan.
//!
//! [`place()`] places the graph as written, once per session; [`place_pruned`] places one signature. The way of a request is then
//! prune → infer → lower → soften → patch → transfer → fuse → select → hazard → order → fit → pack. Each step is a module of that name;
//! [`Pass`] lists those from `lower` on.
#![forbid(unsafe_code)]

mod access;
mod alive;
mod asked;
mod bucket;
mod buffers;
mod by_runs;
mod clock;
mod condition;
mod constants;
mod emit;
mod evaluate;
mod file;
#[cfg(test)]
mod filetests;
mod fit;
mod footprint;
mod frames;
mod freeze;
mod fuse;
mod growth;
mod hazard;
mod infer;
mod inline;
mod joint;
mod late;
mod lir;
mod live;
mod lower;
mod missing;
mod need;
mod on_rows;
mod order;
mod overlap;
mod pack;
mod partners;
mod passes;
mod patch;
mod place;
mod plan;
mod prepare;
mod report;
mod request;
mod select;
mod side_by_side;
mod soften;
mod text;
mod traffic;
mod transfer;
mod trips;
mod updates;
mod verify;
mod whole;
mod widen;

pub use asked::{Asked, FeedRule, Feeds, Unfilled, node_of};
pub use bucket::within;
pub use buffers::{CommandAt, HeldValue, Holds, PlanBuffer};
pub use by_runs::{Compared, Fitted, How, Least, Objective, Piece, PlaceRequest, Rule, Tried, auto, first_fit};
pub use clock::Timeline;
pub use constants::{ConstantValue, reads_from_graph, shares_value};
pub use evaluate::Evaluation;
pub use file::{OpenRequest, PlanFile};
pub use fit::{CurvePoint, Fitting, Lines, Searches, curve};
pub use footprint::{Footprint, loading_buffer};
pub use freeze::{Folded, Freeze, freeze, hold_in_panels, in_panels};
pub use growth::{Growth, Largest, SignatureInN, largest, said_of_gaps, shape_in_n};
pub use inline::{Calls, Inlined, Part, inline};
pub use joint::{Joint, JointNeed, Together};
pub use late::{Between, Counted, Form, Late, Later, LoopPart, Operand, Repeat, Split, Value, late};
pub use live::moves::Moves;
pub use lower::variable_key;
pub use missing::{Missing, Reach, missing};
pub use need::{Need, Needs, check_limits};
pub use passes::{Check, Pass, plan, plan_until, text_after};
pub use place::{Logged, PlaceOptions, Placement, Why, place, place_lowered, place_pruned, seated, stateful};
pub use plan::{
    Certainty, DeviceId, DevicePlan, Holder, PeakParts, Plan, PlanCall, PlanCheck, PlanConstant, PlanFeed, PlanFetch, PlanRestore,
    PlanSave, PlanVariable, Queue, SavedTensor, Softened, VariableKind,
};
pub use request::{Feed, InnerList, ListTraits, Request, Signature};
pub use traffic::Transfer;
