//! A request to the planner.

use plimsoll_base::DataType;
use plimsoll_device::{Costs, DeviceSpec, Library};
use plimsoll_graph::{Graph, HostTensor, Shape};
use plimsoll_ops::Registry;
use serde::{Deserialize, Serialize};

use crate::Placement;

/// A tensor that will be fed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Feed {
    /// `node` or `node:k`.
    pub tensor: String,
    /// Its element type.
    pub data_type: DataType,
    /// Its shape.
    pub shape: Shape,
    /// Its elements, where shapes depend on them; the plan then holds for these elements only.
    pub value: Option<HostTensor>,
}

/// The feeds, fetches and targets of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Signature {
    /// Tensors that are fed.
    pub feeds: Vec<Feed>,
    /// Tensors that are wanted, as `node` or `node:k`.
    pub fetches: Vec<String>,
    /// Nodes that have to run.
    pub targets: Vec<String>,
    /// Nodes that earlier stages of the run have done: neither data nor control brings them back. The tensors of theirs that are read
    /// are fed. See [`crate::Later`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub done: Vec<String>,
    /// The positions of feeds that stand for lists of tensors: they have the rows. What was never set of a list of unknown tensors has
    /// rows of no elements.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lists: Vec<usize>,
    /// Whether it is a stage of a run: it may have nothing to do.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_stage: bool,
}

impl Signature {
    /// Adds a feed, which may stand for a list.
    pub(crate) fn add(&mut self, feed: Feed, is_list: bool) {
        if is_list {
            self.lists.push(self.feeds.len());
        }
        self.feeds.push(feed);
    }
}

/// Everything that a plan depends on.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The graph, calls inlined.
    pub graph: &'a Graph,
    /// The operations' rules.
    pub registry: &'a Registry,
    /// The devices. The first CPU holds feeds and fetches.
    pub devices: &'a [DeviceSpec],
    /// For each device, the kernels that it has.
    pub libraries: &'a [&'a dyn Library],
    /// What kernels take: variants are chosen and orders are rated by it.
    pub costs: &'a Costs,
    /// The device of every node of the graph.
    pub placement: &'a Placement,
    /// The feeds, fetches and targets.
    pub signature: &'a Signature,
}
