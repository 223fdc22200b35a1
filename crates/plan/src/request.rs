//! A request to the planner.

use plimsoll_base::DataType;
use plimsoll_device::{Costs, DeviceSpec, Library};
use plimsoll_graph::{Graph, HostTensor, PartialShape, Shape};
use plimsoll_ops::{ListFact, Registry};
use serde::{Deserialize, Serialize};

use crate::{Lines, Placement};

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
    /// rows of no elements, of more dimensions than tensors have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lists: Vec<usize>,
    /// What is special about some of them, by their positions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub traits: Vec<(usize, ListTraits)>,
    /// The positions of fetches that are the number of tensors of the list, or stack, that they name. The rows of such a list are
    /// fetched with all its room.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lengths: Vec<usize>,
    /// What is known of flows of TensorArrays that earlier stages have pushed on stacks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<Flow>,
    /// Whether it is a stage of a run: it may have nothing to do.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_stage: bool,
}

/// A tensor that a stage pops from a stack: the flow, or the handle, of a TensorArray. It says how long that is, and no more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// `node` of the StackPopV2.
    pub node: String,
    /// The element type of the TensorArray.
    pub data_type: DataType,
    /// How many tensors it has.
    pub length: u64,
    /// Whether writes add to its tensors.
    pub is_sum: bool,
    /// The list that is fed and has as many, where no plan could know how many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub like: Option<String>,
}

/// What a list is beside its rows: see [`plimsoll_ops::ListFact`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ListTraits {
    /// Whether it becomes longer where it is written behind its end.
    pub grows: bool,
    /// Whether writes add to its tensors.
    pub is_sum: bool,
    /// Whether each of its tensors has been written.
    pub is_full: bool,
    /// Whether it is an optional that has a list.
    pub has_list: bool,
    /// Whether it is a list of lists of which none is known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_of_lists: bool,
    /// What its tensors are where they are lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inner: Option<Box<InnerList>>,
}

/// What is known of all lists that are tensors of a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InnerList {
    /// The element type of their tensors.
    pub data_type: DataType,
    /// The shape of their tensors, where it is known.
    pub item: Option<Shape>,
    /// How many rows they have room for, where it is known.
    pub room: Option<u64>,
    /// How many tensors each of them has, where that is one number.
    pub length: Option<u64>,
    /// The rest.
    pub traits: ListTraits,
}

impl ListTraits {
    pub(crate) fn of(list: &ListFact) -> ListTraits {
        let ListFact { grows, is_sum, is_full, has_list, .. } = *list;
        let inner = list.inner.as_deref().map(|inner| {
            let (item, room, traits) = (inner.item.complete(), inner.block_rows(), ListTraits::of(inner));
            Box::new(InnerList { data_type: inner.data_type, item, room, length: inner.length, traits })
        });
        ListTraits { grows, is_sum, is_full, has_list, is_of_lists: list.data_type == DataType::Variant, inner }
    }

    /// The traits, with the inner lists that an earlier stage has seen.
    fn having_seen(&self, seen: &ListTraits) -> ListTraits {
        if seen.inner.is_none() {
            return self.clone();
        }
        ListTraits { is_of_lists: seen.is_of_lists, inner: seen.inner.clone(), ..self.clone() }
    }

    /// The fact about a list of which the rows are known.
    pub(crate) fn on(&self, list: ListFact) -> ListFact {
        let &ListTraits { grows, is_sum, is_full, has_list, is_of_lists, ref inner } = self;
        let data_type = if is_of_lists { DataType::Variant } else { list.data_type };
        let list = ListFact { grows, is_sum, is_full, has_list, data_type, ..list };
        let Some(inner) = inner else { return list };
        let item = inner.item.as_ref().map_or_else(PartialShape::unknown, PartialShape::from);
        let (room, length) = (inner.room, inner.length);
        let known = ListFact { data_type: inner.data_type, item, room, most: room, length, least: 0, inner: None, ..list.unsized_list() };
        let known = inner.traits.on(known);
        let known = match list.item.0.as_deref() {
            Some([Some(bytes)]) => known.in_block(*bytes),
            _ => known,
        };
        let is_empty = list.length == Some(0);
        let mut list = ListFact { inner: Some(Box::new(known)), ..list };
        if is_empty {
            list.forget_lists();
        }
        list
    }
}

impl Signature {
    /// Adds a feed, which may stand for a list.
    pub(crate) fn add(&mut self, feed: Feed, list: Option<&ListFact>) {
        if let Some(list) = list {
            self.lists.push(self.feeds.len());
            let traits = ListTraits::of(list);
            if traits != ListTraits::default() {
                self.traits.push((self.feeds.len(), traits));
            }
        }
        self.feeds.push(feed);
    }

    /// Adds what an earlier stage has seen of the list at a feed.
    pub(crate) fn has_seen(&mut self, feed: usize, seen: &ListTraits) {
        let known = self.traits.iter().position(|(of, _)| *of >= feed).unwrap_or(self.traits.len());
        match self.traits.get_mut(known) {
            Some((of, traits)) if *of == feed => *traits = traits.having_seen(seen),
            _ if seen.inner.is_some() => self.traits.insert(known, (feed, ListTraits::default().having_seen(seen))),
            _ => {}
        }
    }
}

/// A list of unknown tensors has rows of so many dimensions.
const UNSET_RANK: usize = 10;

/// The rows of so many tensors of unknown shape that were never set.
pub(crate) fn unset_rows(length: u64) -> Shape {
    let mut dims = vec![0; UNSET_RANK];
    dims[0] = length;
    Shape::from(dims)
}

/// Whether these are such rows.
pub(crate) fn is_unset(rows: &Shape) -> bool {
    matches!(rows.dims(), [_, item @ ..] if item.len() + 1 == UNSET_RANK && item.iter().all(|dim| *dim == 0))
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
    /// What the plan is made to fit.
    pub lines: &'a Lines,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_stage_has_seen_of_lists_of_lists_is_known_behind_it() {
        let inner = InnerList {
            data_type: DataType::Float,
            item: Some(Shape::from([3])),
            room: Some(1),
            length: None,
            traits: ListTraits::default(),
        };
        let seen = ListTraits { inner: Some(Box::new(inner)), ..ListTraits::default() };
        let open = ListTraits { is_of_lists: true, is_full: true, ..ListTraits::default() };
        let mut signature = Signature { traits: vec![(1, open.clone()), (4, open.clone())], ..Signature::default() };
        signature.has_seen(1, &ListTraits::default());
        assert_eq!(signature.traits[0].1, open);
        for feed in [0, 4, 7] {
            signature.has_seen(feed, &seen);
        }
        let known = ListTraits { is_full: true, ..seen.clone() };
        assert_eq!(signature.traits, [(0, seen.clone()), (1, open), (4, known), (7, seen)]);
    }
}
