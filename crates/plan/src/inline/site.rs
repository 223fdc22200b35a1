//! The place of a body, and the meaning of its nodes' requests there.

use plimsoll_device::DeviceName;
use plimsoll_graph::NodeId;

use super::Tag;
use super::body::Body;

/// How a body stands in its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// A call that may use several devices: nodes keep their own requests, and the device of the call comes first among their
    /// candidates.
    Own,
    /// A function that is called by its name, and a condition that TensorFlow does not lower: all on the device of the call.
    Bound,
    /// A branch of a condition: the condition fills in requests that its nodes leave open.
    Branch,
}

impl Manner {
    /// The request of a node that asks for `own` in the body, when its call or condition asks for `caller`.
    pub fn device(self, own: &str, caller: &str) -> String {
        match self {
            Manner::Own => own.to_string(),
            Manner::Bound => String::new(),
            Manner::Branch if own.is_empty() => caller.to_string(),
            Manner::Branch => match (DeviceName::parse(own), DeviceName::parse(caller)) {
                (Ok(mut name), Ok(caller)) if !caller.is_empty() => {
                    name.merge_unset(&caller);
                    name.to_string()
                }
                _ => own.to_string(),
            },
        }
    }
}

/// The number of a body that was made.
pub(super) type ScopeId = usize;

/// A body that was made.
pub(super) struct Scope<'a> {
    pub body: Body<'a>,
    pub manner: Manner,
    /// The beginning of its nodes' names.
    pub prefix: String,
    /// The body that its call or condition is in.
    pub parent: Option<ScopeId>,
}

/// Where a body is put.
pub(super) struct Site {
    /// The beginning of its nodes' names.
    pub prefix: String,
    pub manner: Manner,
    /// The request of the call or condition.
    pub device: String,
    /// Where its nodes belong.
    pub tag: Tag,
    pub parent: Option<ScopeId>,
    /// A node that its nodes wait for that wait for nothing else.
    pub start: Option<NodeId>,
    /// Whether nodes that read arguments wait for it, too.
    pub all_wait: bool,
    /// Whether its nodes with effects run although nothing reads them.
    pub has_effects: bool,
}
