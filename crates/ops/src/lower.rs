//! Lowering: the form of an operation in a plan ([`Lower`]).
//!
//! A node becomes one of these: nothing, an alias, a constant, a variable, an *expression*, an *anchor*, a request of its own, a
//! change of a variable. An expression is any elementwise operation; a chain of them is one kernel. An anchor is a product or a
//! convolution; expressions that follow it fuse into its end.
//!
//! A rule gets types, shapes and the values that decide shapes ([`KernelCx`]). It returns a [`KernelRequest`]: plain data, without
//! code, device or address.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{Attrs, HostTensor, Node, Shape};
use plimsoll_request::KernelRequest;
use plimsoll_request::anchor::Anchor;
use plimsoll_request::expr::{BinaryOp, Expr, ExprBuilder, UnaryOp};
use plimsoll_request::movement::Movement;

use crate::recipe::Recipe;

/// Type and shape of a tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Meta {
    /// The element type.
    pub data_type: DataType,
    /// The shape.
    pub shape: Shape,
}

impl Meta {
    /// Bytes of all elements.
    ///
    /// # Errors
    /// As [`Shape::bytes`].
    pub fn bytes(&self) -> Result<u64> {
        Ok(self.shape.bytes(self.data_type)?.0)
    }

    /// Bytes of one element.
    ///
    /// # Errors
    /// UNIMPLEMENTED for types whose elements have no fixed size.
    pub fn element(&self) -> Result<u64> {
        let size = self.data_type.size().ok_or_else(|| Error::unimplemented(format!("elements of {}", self.data_type)))?;
        Ok(size as u64)
    }
}

/// The facts that are known when a kernel is prepared: everything but the elements, and the elements that decide shapes.
pub struct KernelCx<'a> {
    /// The node.
    pub node: &'a Node,
    /// Its inputs. For a variable argument: the variable's type and shape.
    pub inputs: &'a [Meta],
    /// Its outputs.
    pub outputs: &'a [Meta],
    /// The elements of inputs, where they are known.
    pub values: &'a [Option<HostTensor>],
}

impl KernelCx<'_> {
    /// The node's attributes.
    pub fn attrs(&self) -> &Attrs {
        &self.node.attrs
    }

    /// The dimensions of input `index`.
    pub fn dims(&self, index: usize) -> &[u64] {
        self.inputs[index].shape.dims()
    }

    /// Bytes of one element of input `index`.
    ///
    /// # Errors
    /// UNIMPLEMENTED for types whose elements have no fixed size.
    pub fn element(&self, index: usize) -> Result<usize> {
        let data_type = self.inputs[index].data_type;
        data_type.size().ok_or_else(|| Error::unimplemented(format!("{} of {data_type}", self.node.op)))
    }

    /// Refuses input `index`, called `name`, where it is not one element: a kernel would read past an empty one.
    ///
    /// # Errors
    /// INVALID_ARGUMENT with its shape.
    pub fn require_one(&self, index: usize, name: &str) -> Result<()> {
        let shape = &self.inputs[index].shape;
        if matches!(shape.dims(), [] | [1]) {
            return Ok(());
        }
        Err(Error::invalid_argument(format!("{name} must be a scalar, got shape {shape}")))
    }

    /// The integers that input `index` holds.
    ///
    /// # Errors
    /// UNIMPLEMENTED where they are known only when the graph runs.
    pub fn ints(&self, index: usize) -> Result<Vec<i64>> {
        self.values[index].as_ref().and_then(HostTensor::to_i64s).ok_or_else(|| {
            Error::needs_values(format!(
                "not yet: input {index} of {} is known only when the graph runs, and a shape depends on it",
                self.node.op
            ))
        })
    }

    /// The one integer that input `index` holds.
    ///
    /// # Errors
    /// As [`KernelCx::ints`]; INVALID_ARGUMENT where there are several.
    pub fn int(&self, index: usize) -> Result<i64> {
        match self.ints(index)?[..] {
            [int] => Ok(int),
            _ => Err(Error::invalid_argument(format!("input {index} of {} must be a scalar", self.node.op))),
        }
    }
}

/// A request, and which of the node's inputs are its arguments (the others were used up when it was made).
pub struct Call {
    /// The request. Its arguments are `inputs`, then all outputs of the node.
    pub request: KernelRequest,
    /// Positions of inputs.
    pub inputs: Vec<usize>,
}

impl Call {
    /// A request that takes these inputs.
    pub fn new(request: KernelRequest, inputs: impl Into<Vec<usize>>) -> Call {
        Call { request, inputs: inputs.into() }
    }

    /// Elements of so many bytes that are moved.
    pub fn moving(element: usize, movement: Movement, inputs: impl Into<Vec<usize>>) -> Call {
        Call::new(KernelRequest::Movement { element, movement }, inputs)
    }
}

/// An anchor, and which of the node's inputs it is computed from.
pub struct AnchorCall {
    /// The product or convolution.
    pub anchor: Anchor,
    /// Positions of inputs.
    pub inputs: [usize; Anchor::INPUTS],
}

/// A kernel with state of its own, which lives as long as the session (a random generator's counter).
pub struct StatefulCall {
    /// A request that advances the state before: its arguments are the state (read and written), then what the state was.
    pub before: Option<KernelRequest>,
    /// The request. Its arguments are `inputs`, then the state (read and written; where there is a request before, what it was, which is
    /// read), then all outputs of the node.
    pub request: KernelRequest,
    /// Positions of inputs.
    pub inputs: Vec<usize>,
    /// The state before the first run.
    pub state: Vec<u8>,
}

/// A change of variables, element by element.
pub struct Update {
    /// Its operands are all inputs of the node, in order; a variable argument stands for the variable's value.
    pub expr: Expr,
    /// For each result of the expression, the input that is the variable it becomes.
    pub writes: Vec<usize>,
}

/// The results of a node, from its inputs.
pub type CountedFn = fn(&Node, &[&HostTensor]) -> Result<Vec<HostTensor>>;

/// The form of an operation in a plan.
#[derive(Clone, Copy, Debug)]
pub enum Lower {
    /// It computes nothing and has no outputs (NoOp).
    Nothing,
    /// Computes nothing, and runs whatever became of the nodes before it.
    ControlTrigger,
    /// A constant: attribute `value`.
    Const,
    /// A value that has to be fed.
    Placeholder,
    /// The value of input 0, unless it is fed.
    PlaceholderWithDefault,
    /// A variable: VariableV2 (a reference) or VarHandleOp (a handle).
    Variable,
    /// Output i is input i, bit for bit, maybe in another shape. Further inputs only say that shape.
    Alias,
    /// One value in, one out, for each element.
    Unary(UnaryOp),
    /// Two values in, one out, for each element, broadcasting.
    Binary(BinaryOp),
    /// All inputs in, one value or more out, for each element, broadcasting.
    Elementwise(fn(&KernelCx<'_>) -> Result<Expr>),
    /// A product of matrices or a convolution. Other operations can be fused into its end.
    Anchor(fn(&KernelCx<'_>) -> Result<AnchorCall>),
    /// A kernel of its own.
    Kernel(fn(&KernelCx<'_>) -> Result<Call>),
    /// A kernel of its own that only moves elements of input 0 (or repeats them): a splat stays that splat.
    Move(fn(&KernelCx<'_>) -> Result<Call>),
    /// Several works, one behind another.
    Recipe(fn(&KernelCx<'_>) -> Result<Recipe>),
    /// A kernel with state of its own. Never folded.
    Stateful(fn(&KernelCx<'_>) -> Result<StatefulCall>),
    /// The value of the variable that input 0 stands for.
    ReadVariable,
    /// Whether the variable that input 0 stands for was initialised.
    IsInitialized,
    /// Outputs 0 and 1 are input 0; output 0 is dead where input 1, a bool, is true, and output 1 where it is false.
    Switch,
    /// Output 0 is the first input that is not dead, output 1 its number; both are dead where all inputs are.
    Merge,
    /// Tensors of the checkpoint at input 0: output i is called as input 1 says, and input 2 says which part of it.
    Restore,
    /// Inputs 3 and further go to the checkpoint at input 0; inputs 1 and 2 as for [`Lower::Restore`].
    Save,
    /// The variable that input 0 stands for becomes input 1. It need not have been initialised.
    Assign,
    /// Variables change element by element.
    Update(fn(&KernelCx<'_>) -> Result<Update>),
    /// Variables are changed in place by a kernel (scatter updates). The kernel's arguments are the call's inputs, the variables
    /// first, and then the variables once more: its outputs, which lie where the inputs lie.
    UpdateInPlace(fn(&KernelCx<'_>) -> Result<Call>),
    /// Results with as many elements as those of the inputs say. The host computes them, between two stages of a run.
    Counted(CountedFn),
    /// Makes, reads or changes a list of tensors. What it takes is at these inputs, and the list at this output.
    List(ListOp),
}

/// What is done with a list of tensors. Numbers are positions of inputs; the list comes out at output `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are positions of the inputs that they are called after")]
pub enum ListOp {
    /// A list of tensors that are zero, or of none.
    New { to: u32 },
    /// The rows of a tensor.
    FromTensor { tensor: usize },
    /// All tensors as one.
    Stack { list: usize },
    /// The tensor at an index.
    GetItem { list: usize, index: usize },
    /// The tensors at indices, as one.
    Gather { list: usize, indices: usize },
    /// The list with another tensor at an index.
    SetItem { list: usize, index: usize, item: usize },
    /// The list with the rows of a tensor at indices.
    Scatter { list: usize, indices: usize, tensor: usize },
    /// The list with one more tensor.
    PushBack { list: usize, item: usize },
    /// The list without its last tensor, and that as output 1.
    PopBack { list: usize },
    /// How many tensors there are.
    Length { list: usize },
    /// A list of zeros with the rows of a tensor at indices.
    Scattered { indices: usize, tensor: usize },
    /// The tensors of one list, then those of another.
    Join { first: usize, second: usize },
    /// So many tensors as the facts say: the first ones of a list, then zeros.
    Resize { list: usize },
    /// Parts of a tensor along its first dimension.
    Split { tensor: usize },
    /// All tensors joined along their first dimension, and as output 1 the size of each of them there.
    Concat { list: usize },
    /// Zeros for the tensors of the list at an input; the list itself, if it has been made so. Sums are written into it.
    Gradient { list: usize },
    /// An optional that has a value: a list of one tensor, or the list that it has.
    Present { item: usize },
    /// An optional without a value: a list without tensors, whose length says so.
    Absent,
    /// The value of an optional; a fault where it has none.
    Value { list: usize },
    /// A stack: a list with a state, which its handle stands for.
    NewStack,
    /// A tensor is put on a stack, and given on.
    PushOn { stack: usize, item: usize },
    /// The last tensor of a stack is taken from it.
    PopOff { stack: usize },
    /// As many zeros.
    Zeros { list: usize },
    /// The sums of the tensors of lists, all inputs.
    AddN,
}

impl Lower {
    /// The expression of an elementwise operation.
    ///
    /// # Errors
    /// UNIMPLEMENTED where it does not work on the types at hand.
    pub fn expression(self, cx: &KernelCx<'_>) -> Result<Option<Expr>> {
        let mut builder = ExprBuilder::new();
        let result = match self {
            Lower::Unary(op) => {
                let x = builder.input(cx.inputs[0].data_type)?;
                builder.unary(op, x)?
            }
            Lower::Binary(op) => {
                let x = builder.input(cx.inputs[0].data_type)?;
                let y = builder.input(cx.inputs[1].data_type)?;
                builder.binary(op, x, y)?
            }
            Lower::Elementwise(make) => return make(cx).map(Some),
            _ => return Ok(None),
        };
        Ok(Some(builder.finish(vec![result])))
    }
}
