//! The ids of what an LIR is made of.

use plimsoll_graph::define_id;

pub(crate) use plimsoll_ops::fusion::{ValueId, WorkId};

define_id!(
    /// A region.
    pub struct RegionId
);
define_id!(
    /// A variable, by its position in [`crate::Plan::variables`].
    pub struct VariableId
);
define_id!(
    /// A constant. [`crate::Plan::constants`] holds those that works read, renumbered.
    pub struct ConstantId
);
define_id!(
    /// A fed tensor, by its position in [`crate::Plan::feeds`].
    pub struct FeedId
);
define_id!(
    /// A fetched tensor, by its position in [`crate::Plan::fetches`].
    pub struct FetchId
);
define_id!(
    /// A call that reads or writes files, by its position in [`crate::Plan::calls`].
    pub struct CallId
);
