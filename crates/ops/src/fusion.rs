//! Fusions: rewrites of works that are cheaper together than one by one. Each lies beside the operation that it is about.
//!
//! A fusion looks at one work and its neighbours through [`Works`], and answers a [`Patch`]: which works compute something else
//! from now on, and which are gone. The planner applies it, checks the result, and goes on. A work that nothing reads any more is
//! removed by the planner.

use plimsoll_base::DataType;
use plimsoll_graph::id::Id;
use plimsoll_graph::{Shape, define_id};
use plimsoll_request::KernelRequest;
use plimsoll_request::anchor::Anchor;
use plimsoll_request::expr::Expr;

define_id!(
    /// A value of a plan: what one work defines and others read.
    pub struct ValueId
);
define_id!(
    /// A work of a plan: a kernel to be, or what becomes part of one.
    pub struct WorkId
);

/// A value, seen in some type and shape.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct View {
    /// The value.
    pub value: ValueId,
    /// The type of its elements.
    pub data_type: DataType,
    /// Its shape.
    pub shape: Shape,
}

impl View {
    /// How many elements it has.
    pub fn elements(&self) -> u64 {
        self.shape.elements().unwrap_or(0)
    }

    /// The bytes of a value of so many bytes.
    pub fn of_bytes(value: ValueId, bytes: u64) -> View {
        View { value, data_type: DataType::Uint8, shape: Shape::from([bytes]) }
    }
}

/// A rewrite.
#[derive(Clone, Copy, Debug)]
pub struct Fusion {
    /// Its name, for people who look for the one that went wrong.
    pub name: &'static str,
    /// When it is tried.
    pub stage: Stage,
    /// The patch at a work; none where the pattern is not there.
    pub find: fn(&dyn Works, WorkId) -> Option<Patch>,
}

/// When a fusion is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// On works as nodes become them, before anything is copied between devices.
    Lowered,
    /// After expressions have been joined, and have become epilogues.
    Joined,
}

/// What a work computes.
#[derive(Clone, Copy, Debug)]
pub enum Computes<'a> {
    /// An expression for every element of a shape.
    Expr(&'a Expr, &'a Shape),
    /// A product or a convolution, of the first inputs. The further inputs are operands of the epilogue.
    Anchor(&'a Anchor, Option<&'a Expr>),
    /// A request. Its arguments are all inputs, then all outputs.
    Request(&'a KernelRequest),
    /// Something that no fusion changes.
    Other,
}

/// The works of a plan under way.
pub trait Works {
    /// The operation of the node that a work is named after.
    fn op(&self, work: WorkId) -> &str;
    /// What it computes.
    fn computes(&self, work: WorkId) -> Computes<'_>;
    /// What it reads, its guard left out.
    fn inputs(&self, work: WorkId) -> &[View];
    /// What it defines.
    fn outputs(&self, work: WorkId) -> &[ValueId];
    /// The work that defines a value, if one does.
    fn maker(&self, value: ValueId) -> Option<WorkId>;
    /// The works that read a value, each once, guarded works of a guard among them.
    fn readers(&self, value: ValueId) -> &[WorkId];
    /// Whether the value is needed by others than its readers: it is fetched, or a variable's.
    fn is_kept(&self, value: ValueId) -> bool;
    /// Whether the value is a variable's.
    fn is_variable(&self, value: ValueId) -> bool;
    /// Whether two values are one: of a constant or a feed that nodes read there may be several.
    fn is_one(&self, value: ValueId, other: ValueId) -> bool;
    /// Whether a work can take the place of another one, too: they are on one device and run at the same times, and the other one is
    /// there for its results alone.
    fn absorbs(&self, work: WorkId, other: WorkId) -> bool;
    /// Whether no third work has to come behind one work and before another, which reads what the first defines. Then the two can be one.
    fn is_next(&self, first: WorkId, second: WorkId) -> bool;
    /// A work as the request that asks for it, where it is one.
    fn request(&self, work: WorkId) -> Option<KernelRequest>;
    /// Whether the device of a work has a kernel for a request.
    fn answers(&self, work: WorkId, request: &KernelRequest) -> bool;
    /// The predicted seconds of a request on the device of a work; none where that has no kernel for it.
    fn seconds(&self, work: WorkId, request: &KernelRequest) -> Option<f64>;
    /// Whether the device of a work gains by computing `second` at once with `first`: see [`plimsoll_device::Library::takes`].
    fn takes(&self, work: WorkId, first: &KernelRequest, second: &KernelRequest) -> bool;
    /// The id that the next value gets.
    fn next_value(&self) -> ValueId;
}

/// What a work becomes.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "a patch has a few of them")]
pub enum Becomes {
    /// An expression for every element of a shape.
    Expr(Expr, Shape),
    /// A product or a convolution, without epilogue.
    Anchor(Anchor),
    /// A request, whose arguments are all inputs, then all outputs.
    Request(KernelRequest),
}

/// A work of a patch.
#[derive(Clone, Debug)]
pub struct Patched {
    /// The work that is changed, or the one that a new one goes before.
    pub work: WorkId,
    /// Whether it is a new one, with the node, device and guard of `work`.
    pub is_new: bool,
    /// Works whose place it takes, too: they are gone, and their nodes come first.
    pub joins: Vec<WorkId>,
    /// What it computes.
    pub becomes: Becomes,
    /// What it reads.
    pub inputs: Vec<View>,
    /// What it defines.
    pub outputs: Vec<ValueId>,
}

/// Some works that change together.
#[derive(Clone, Debug)]
pub struct Patch {
    first_value: usize,
    /// Bytes of new values. They have the device and the node of the work that defines them.
    pub values: Vec<u64>,
    /// Works that change, and new ones.
    pub works: Vec<Patched>,
    /// Works that are gone.
    pub removed: Vec<WorkId>,
}

impl Patch {
    /// Nothing changes yet.
    pub fn new(works: &dyn Works) -> Patch {
        Patch { first_value: works.next_value().index(), values: Vec::new(), works: Vec::new(), removed: Vec::new() }
    }

    /// A new value of so many bytes. A work of the patch has to define it.
    pub fn value(&mut self, bytes: u64) -> ValueId {
        self.values.push(bytes);
        ValueId::from_index(self.first_value + self.values.len() - 1)
    }

    /// A work computes something else.
    pub fn change(self, work: WorkId, becomes: Becomes, inputs: Vec<View>, outputs: Vec<ValueId>) -> Patch {
        self.push(Patched { work, is_new: false, joins: Vec::new(), becomes, inputs, outputs })
    }

    /// A work takes the place of others, too, which come first in its name.
    pub fn join(self, first: &[WorkId], work: WorkId, becomes: Becomes, inputs: Vec<View>, outputs: Vec<ValueId>) -> Patch {
        self.push(Patched { work, is_new: false, joins: first.to_vec(), becomes, inputs, outputs })
    }

    /// A new work before another one of the same node.
    pub fn add(self, before: WorkId, becomes: Becomes, inputs: Vec<View>, outputs: Vec<ValueId>) -> Patch {
        self.push(Patched { work: before, is_new: true, joins: Vec::new(), becomes, inputs, outputs })
    }

    /// A work is gone; another work of the patch defines what it defined.
    pub fn remove(mut self, work: WorkId) -> Patch {
        self.removed.push(work);
        self
    }

    fn push(mut self, work: Patched) -> Patch {
        self.works.push(work);
        self
    }
}
