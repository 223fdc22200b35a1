//! Runs TensorFlow graphs inside the memory you give them, and says before the first step whether they fit.
//!
//! ```no_run
//! use plimsoll::{HostTensor, Options};
//!
//! # fn main() -> plimsoll::Result<()> {
//! # let batches: Vec<(HostTensor, HostTensor)> = Vec::new();
//! # let feeds: [(&str, HostTensor); 0] = [];
//! let devices = plimsoll::Devices::open(&Options::new().limit("CPU:0", "64MiB"))?;
//! let model = devices.load("model.pb")?; // Session
//! println!("{}", model.plan(&feeds, &["loss:0"], &["train"])?); // fits? peak per device
//! model.run(&[], &[], &["init"])?; // first values; or model.restore("checkpoint")
//! for (x, y) in batches {
//!     let loss = model.run(&[("x", x), ("y", y)], &["loss:0"], &["train"])?;
//! }
//! model.save("checkpoint")?; // and drop(model) gives every byte back
//! # Ok(())
//! # }
//! ```
//!
//! This crate is the only stable interface; the crates below it may change.
#![forbid(unsafe_code)]

mod bound;
mod callable;
pub mod checkpoint;
pub mod config;
mod devices;
pub mod fit;
mod footprint;
pub mod machine;
pub mod model;
mod objects;
pub mod operations;
pub mod peaks;
mod picture;
mod plan;
mod preparation;
pub mod recorded;
mod session;
mod several;
mod values;
mod vocabulary;

pub use callable::Callable;
pub use devices::{Devices, LogPlacement, PlacementLog};
pub use footprint::{Footprint, Joint};
pub use plan::{OpenedPlan, Plan, Stages};
pub use session::{Fed, Session};
pub use several::{Opened, Placed, Several};
pub use values::Values;

pub use plimsoll_base::{Bytes, Code, DataType, Error, Kind, Result, Shortage, Unfed};
pub use plimsoll_cards::{Environment, MemoryLimit, Options, PlacementMode};
pub use plimsoll_device::{DeviceKind, DeviceName, DeviceSpec};
pub use plimsoll_graph::{Element, Graph, GraphDef, HostTensor, Node, NodeId, Output, PartialShape, Shape};
pub use plimsoll_ops::Registry;
pub use plimsoll_plan::{
    Certainty, DevicePlan, Feed, Holder, JointNeed, Need, Needs, Pass, PeakParts, Signature, Together, Transfer, VariableKind, Why,
};
pub use plimsoll_runtime::{
    Cancellation, CommandProfile, DeviceReport, DeviceStepStats, Lane, NodeExecStats, OperationProfile, Profile, RunMetadata, Times,
    VariableInfo,
};

/// Models that are placed side by side, and what the rules of placement come to.
pub mod placing {
    pub use crate::several::{Beside, Compared};
}

/// Building graphs: the builder, scopes, variables, initializers, gradients, optimizers.
pub mod builder {
    pub use plimsoll_ops::GraphBuilder;
    pub use plimsoll_ops::builder::*;

    /// An empty graph, to be built of TensorFlow's operations; no device is opened. [`crate::Devices::builder`] builds of those of
    /// devices.
    pub fn standard() -> GraphBuilder {
        GraphBuilder::new(std::sync::Arc::new(plimsoll_runtime::standard_registry()))
    }
}

/// The parts of graphs: attributes, definitions of nodes, types of arguments, elements of two bytes, memory that a tensor is over,
/// ids as numbers.
pub mod graph {
    pub use plimsoll_base::{ArgType, Bf16, F16};
    pub use plimsoll_graph::id::Id;
    pub use plimsoll_graph::{AttrValue, Attrs, AttrsExt, NodeDef, Owner};
}

/// From a request to a signature: the tensors that a graph ends in, the feeds that a request needs, and what a feed may be. A plan
/// from a file, bound to a request.
pub mod signature {
    pub use crate::bound::{BoundPlan, Mismatch};
    pub use plimsoll_plan::{Asked, FeedRule, Feeds, Growth, Largest, SignatureInN, Unfilled, largest, node_of, said_of_gaps, shape_in_n};
}

/// What kernels take: tables that plans read for decisions and predictions.
pub mod costs {
    pub use plimsoll_device::{Class, CostTable, Costs, Load, MeasuredKernel, MeasuredKernels, Rates};
    pub use plimsoll_runtime::calibrate;
}

/// Times of products and convolutions on cards: a table that plans for these cards choose by, and what measures it.
pub mod tuned {
    pub use crate::devices::tune;
    pub use plimsoll_device::{Tuned, TunedCudnn, TunedFor, TunedPart, TunedRequest};
    pub use plimsoll_runtime::{HowToTune, TunedDevice, Tuning};
}

/// Plans, machines and leases as pages, as SVG and as text.
pub mod page {
    pub use crate::picture::measured;
    pub use plimsoll_page::*;
}

/// Text in columns, by the width that a terminal shows.
pub mod text {
    pub use plimsoll_base::{column_width, pad_left, pad_right};
}

/// The machine's cards between programs: leases, programs under a lease, functions in processes of their own, pools of them.
pub mod share {
    pub use plimsoll_machine::{Full, Locked, Obstacle, Wait};
    pub use plimsoll_share::*;
}

/// numpy's `.npy` files.
pub mod npy {
    pub use plimsoll_formats::npy::{Layout, read, read_file, read_plain_file, write};
}

/// Files of TensorFlow: graphs, options, saved models, tensor bundles.
pub mod formats {
    pub use plimsoll_formats::*;
}
