//! Sizes that a run makes itself. A request that cannot be planned for lack of them runs in stages: the first makes the tensors that
//! sizes depend on (the *late* tensors), the rest is planned with their elements. The rest may be late again.
//!
//! A first stage is everything that late tensors come after, by data or control. Tensors of it that the rest reads, or that are
//! fetched, are *carried*: fetched by the first stage, and fed to the rest. What costs nothing is not carried but done again:
//! constants, handles of variables, and Switches of a known predicate, which say what is dead.
//!
//! Between two stages the session itself computes what no plan can: operations whose elements say how large their results are, and
//! loops whose sizes change from one iteration to the next (see [`Between`]). The rest is fed with their results.
//!
//! Late tensors and carried ones are alive in any case. Where one is alive only on one side of a condition, the predicates of that
//! condition come first, the outer ones before the inner ones.

mod repeat;
mod split;
mod value;

use std::sync::Arc;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{HostTensor, NodeId, Shape};

pub use self::repeat::{LoopPart, Repeat};
pub use self::split::late;
pub use self::value::{Form, Value};
use crate::plan::Plan;
use crate::request::{Feed, Signature};

/// What a request lacks that cannot be planned for lack of values.
#[derive(Clone, Debug)]
pub enum Late {
    /// The elements of these feeds, by their positions; and the first node that lacks them.
    Feeds(Vec<usize>, NodeId),
    /// Tensors that a first stage of the run makes.
    Stage(Box<Split>),
}

/// A run in stages.
#[derive(Clone, Debug)]
pub struct Split {
    /// The first stage. It takes all feeds; its fetches are the late tensors, then the carried ones.
    pub first: Signature,
    /// The rest.
    pub later: Later,
}

/// The rest of a run behind its first stage.
#[derive(Clone, Debug)]
pub struct Later {
    /// The first node whose sizes only the run knows.
    pub from: NodeId,
    /// The tensors that they depend on.
    pub tensors: Vec<String>,
    /// Name, type and shape of each tensor that the whole run fetches; that of an empty vector, where only the run knows it.
    pub fetches: Vec<(String, DataType, Shape)>,
    /// The plans of the rest, where they are few and all known beforehand; else none.
    pub plans: Vec<Arc<Plan>>,
    /// The plans of loops that the session drives, where all plans are known beforehand.
    pub within: Vec<Arc<Plan>>,
    /// What is computed between the first stage and the rest, in no order.
    pub between: Vec<Between>,
    /// For each fetch of the whole run, who makes it.
    sources: Vec<Source>,
    /// The rest, without the elements of late tensors, and without the shapes of what is computed in between.
    signature: Signature,
    /// The numbers of tensors: see [`Between`].
    numbers: Numbers,
    /// For each tensor that is computed in between, a shape that is at least as large, if there is one.
    most: Vec<Option<Shape>>,
    /// The lists of the first stage whose lengths it fetches behind everything else, by their positions.
    cut: Vec<usize>,
}

impl Later {
    /// A whole run, of which nothing is known before the elements of these feeds are.
    pub fn behind_feeds(signature: &Signature, feeds: &[usize], from: NodeId) -> Later {
        Later {
            from,
            tensors: feeds.iter().filter_map(|feed| Some(signature.feeds.get(*feed)?.tensor.clone())).collect(),
            fetches: Vec::new(),
            plans: Vec::new(),
            within: Vec::new(),
            between: Vec::new(),
            sources: Vec::new(),
            signature: signature.clone(),
            numbers: Numbers { feeds: signature.feeds.len(), ..Numbers::default() },
            most: Vec::new(),
            cut: Vec::new(),
        }
    }
}

/// How many tensors there are of each kind, one kind behind another.
#[derive(Clone, Copy, Debug, Default)]
struct Numbers {
    /// The feeds of the whole run.
    feeds: usize,
    /// What the first stage makes so that its elements are known.
    late: usize,
    /// What the first stage makes.
    made: usize,
}

/// What the session computes between a first stage and the rest. Tensors have numbers: the feeds of the run, then what the first stage
/// makes, then what is computed in between, one behind another.
#[derive(Clone, Debug)]
pub enum Between {
    /// A node whose operation is of [`plimsoll_ops::Lower::Counted`].
    Counted(Counted),
    /// A loop, an iteration behind another.
    Loop(Box<Repeat>),
}

/// A node whose results have as many elements as those of its inputs say.
#[derive(Clone, Debug)]
pub struct Counted {
    /// The node.
    pub node: NodeId,
    /// Its inputs.
    pub inputs: Vec<Operand>,
    /// Those of its outputs that are wanted.
    pub outputs: Vec<u32>,
}

/// Where a tensor comes from.
#[derive(Clone, Debug)]
pub enum Operand {
    /// The tensor of that number.
    Tensor(usize),
    /// It is known.
    Known(HostTensor),
}

impl Operand {
    /// The tensor, where the first of them are these.
    ///
    /// # Errors
    /// INTERNAL where there are too few.
    pub fn of(&self, values: &[&Value]) -> Result<Value> {
        match self {
            Operand::Known(tensor) => Ok(Value::from(tensor.clone())),
            Operand::Tensor(number) => {
                values.get(*number).map(|value| Value::clone(value)).ok_or_else(|| Error::internal("a stage lacks a tensor"))
            }
        }
    }
}

/// The maker of a fetched tensor, and the position at it.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// The first stage, or what is computed behind it.
    Made(usize),
    Rest(usize),
}

/// More late bools than these have too many values to plan for all.
const MOST_BOOLS: usize = 4;

impl Later {
    /// With the plans of the rest, and those of the loops before it.
    #[must_use]
    pub fn with_plans(self, plans: Vec<Arc<Plan>>, within: Vec<Arc<Plan>>) -> Later {
        Later { plans, within, ..self }
    }

    /// Whether the plans of the rest are for sizes that are at least as large as those of a run.
    pub fn is_bound(&self) -> bool {
        self.between.iter().any(|between| matches!(between, Between::Counted(_)))
    }

    /// The signature of the rest. `made` is what the first stage has fetched, then what was computed in between.
    pub fn signature(&self, made: &[Value]) -> Signature {
        let Numbers { feeds, late, made: between } = self.numbers;
        let mut signature = self.signature.clone();
        for (index, value) in made.iter().enumerate() {
            let Some(feed) = signature.feeds.get_mut(feeds + index) else { break };
            if index < late {
                feed.value = Some(value.tensor.clone());
            } else if index >= between || self.cut.contains(&index) {
                feed.shape = value.tensor.shape().clone();
            }
            if let Some(traits) = &value.traits {
                signature.has_seen(feeds + index, traits);
            }
        }
        signature
    }

    /// The signatures that the rest may have, where late tensors are a few bools and what is computed in between is bounded; else none.
    ///
    /// # Errors
    /// Those of tensors.
    pub fn alternatives(&self) -> Result<Vec<Signature>> {
        let Numbers { feeds, late, made } = self.numbers;
        let is_bool = |feed: &Feed| feed.data_type == DataType::Bool && feed.shape == Shape::scalar();
        if late > MOST_BOOLS || !self.signature.feeds[feeds..][..late].iter().all(is_bool) {
            return Ok(Vec::new());
        }
        if !self.cut.is_empty() {
            return Ok(Vec::new());
        }
        let Some(most) = self.most.iter().cloned().collect::<Option<Vec<Shape>>>() else { return Ok(Vec::new()) };
        let with_bools = |number: usize| {
            let mut signature = self.signature.clone();
            for (bit, feed) in signature.feeds[feeds..][..late].iter_mut().enumerate() {
                feed.value = Some(HostTensor::from_bools(Shape::scalar(), &[number >> bit & 1 == 1])?);
            }
            for (feed, most) in signature.feeds[feeds + made..].iter_mut().zip(&most) {
                feed.shape = most.clone();
            }
            Ok(signature)
        };
        (0..1 << late).map(with_bools).collect()
    }

    /// What the first stage has made, of what it has fetched: lists are cut to the lengths behind them.
    ///
    /// # Errors
    /// INTERNAL where there are too few tensors.
    pub fn made(&self, fetched: Vec<Value>) -> Result<Vec<Value>> {
        cut(fetched, &self.cut)
    }

    /// The fetched tensors of the whole run, of what was made before the rest and of those of the rest.
    ///
    /// # Errors
    /// INTERNAL where there are too few.
    pub fn assemble(&self, made: &[Value], rest: &[Value]) -> Result<Vec<Value>> {
        let fetched = |source: &Source| match *source {
            Source::Made(position) => made.get(position),
            Source::Rest(position) => rest.get(position),
        };
        let fetched = |source| fetched(source).cloned().ok_or_else(|| Error::internal("a stage lacks a fetched tensor"));
        self.sources.iter().map(fetched).collect()
    }
}

/// Tensors without the lengths behind them, to which the lists at these positions are cut.
fn cut(fetched: Vec<Value>, lists: &[usize]) -> Result<Vec<Value>> {
    let lacking = || Error::internal("a stage lacks the length of a list");
    let mut made = fetched;
    let lengths = made.split_off(made.len().checked_sub(lists.len()).ok_or_else(lacking)?);
    for (list, length) in lists.iter().zip(lengths) {
        let length = length.tensor.to_i64s().and_then(|length| u64::try_from(*length.first()?).ok()).ok_or_else(lacking)?;
        let rows = &mut made.get_mut(*list).ok_or_else(lacking)?.tensor;
        let mut dims = rows.shape().to_vec();
        if dims.first().is_some_and(|room| *room > length) {
            dims[0] = length;
            let dense = rows.dense()?;
            let shape = Shape::from(dims);
            let bytes = usize::try_from(shape.bytes(rows.data_type())?.0).map_err(|_| lacking())?;
            *rows = HostTensor::from_bytes(rows.data_type(), shape, dense.bytes().and_then(|all| all.get(..bytes)).ok_or_else(lacking)?)?;
        }
    }
    Ok(made)
}
