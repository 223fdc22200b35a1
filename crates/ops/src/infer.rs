//! Types, shapes and small values of a node's outputs, from those of its inputs.
//!
//! A rule takes the elements of its inputs through the context, which notes those that it asked for and that are not known.
//!
//! The same rules serve the builder, where shapes are partly known, and the planner, where all feeds have their shapes.

use std::cell::RefCell;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{Attrs, HostTensor, Node, OpDef, PartialShape, Shape};

use crate::{Lower, Registry};

/// The facts about a tensor that are known before anything runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Fact {
    /// The element type.
    pub data_type: DataType,
    /// Whether it is a reference to a variable.
    pub is_ref: bool,
    /// The shape, as far as it is known.
    pub shape: PartialShape,
    /// The elements, where they are known (a splat of any size, or a small tensor).
    pub value: Option<HostTensor>,
    /// Of a vector of integers whose elements are not all known: those that are.
    pub partial: Option<Vec<Option<i64>>>,
    /// For a resource handle: type and shape of its variable.
    pub handle: Option<(DataType, PartialShape)>,
    /// For a list of tensors: what is known of it.
    pub list: Option<ListFact>,
    /// Where only the run knows the shape: one that is at least as large, if there is one.
    pub most: Option<Shape>,
}

/// The facts about a list of tensors: a TensorList, or a TensorArray as one of its flows has it.
#[derive(Clone, Debug, PartialEq)]
pub struct ListFact {
    /// The element type of its tensors.
    pub data_type: DataType,
    /// What its operation says of the shape of its tensors.
    pub said: Said,
    /// The shape of its tensors, as far as it is known: one for all.
    pub item: PartialShape,
    /// How many tensors it has room for.
    pub room: Option<u64>,
    /// How many it may have at most, if its operation says so.
    pub limit: Option<u64>,
    /// How many there are. None where only the run knows.
    pub length: Option<u64>,
    /// How many there are at most. None where nothing bounds it.
    pub most: Option<u64>,
    /// How many there are at least.
    pub least: u64,
    /// Whether the room is for all that the loop around puts into it.
    pub is_enough: bool,
    /// What they are.
    pub each: Each,
    /// Whether it becomes longer where it is written behind its end: a TensorArray of dynamic size.
    pub grows: bool,
    /// Whether writes add to its tensors: the gradient of a TensorArray.
    pub is_sum: bool,
    /// Whether each of its tensors has been written: one of a TensorArray may be written once.
    pub is_full: bool,
    /// Whether it is an optional that has a list, which it stands for here; and not a tensor.
    pub has_list: bool,
    /// What its tensors are where they are lists: see [`crate::list::nested`].
    pub inner: Option<Box<ListFact>>,
}

/// The shape that the tensors of a list have to have: TensorFlow refuses others.
#[derive(Clone, Debug, PartialEq)]
pub struct Said {
    /// As the operation that made the list states it. What is known of the tensors may be more.
    pub shape: PartialShape,
    /// Whether they have to be of one shape: a TensorArray with `identical_element_shapes`.
    pub is_one: bool,
}

impl Said {
    /// Of a list whose tensors may have any shape.
    pub const NOTHING: Said = Said { shape: PartialShape(None), is_one: false };

    /// What is said of either list.
    fn or(&self, other: &Said) -> Said {
        Said { shape: crate::control::common_shape([&self.shape, &other.shape]), is_one: self.is_one && other.is_one }
    }
}

/// What is known of all tensors of a list: a loop pushes the shapes of what it computes, which are the same each time.
#[derive(Clone, Debug, PartialEq)]
pub enum Each {
    /// No tensor has been put into it.
    Nothing,
    /// Every one has these elements.
    Known(HostTensor),
    /// Nothing is known.
    Unknown,
}

impl Each {
    /// What is known of the tensors of either list.
    #[must_use]
    pub fn or(&self, other: &Each) -> Each {
        match (self, other) {
            (Each::Nothing, each) | (each, Each::Nothing) => each.clone(),
            (Each::Known(mine), Each::Known(theirs)) if mine == theirs => self.clone(),
            _ => Each::Unknown,
        }
    }
}

impl ListFact {
    /// The shape of so many of its tensors, one behind another.
    pub fn rows(&self, count: Option<u64>) -> PartialShape {
        PartialShape(self.item.0.as_ref().map(|dims| [&[count], &dims[..]].concat()))
    }

    /// The same list, which has begun as the other one: the shape of its tensors and its room are those of that one, too, and its
    /// tensors may be. What contradicts that is left out.
    #[must_use]
    pub fn refined_by(self, other: &ListFact) -> ListFact {
        let item = merge_shapes(&self.item, &other.item).unwrap_or_else(|_| self.item.clone());
        let inner = match (self.inner, &other.inner) {
            (Some(mine), Some(theirs)) => Some(Box::new(mine.refined_by(theirs))),
            (mine, _) => mine,
        };
        ListFact { item, inner, room: self.room.or(other.room), each: self.each.or(&other.each), ..self }
    }

    /// A list of which only the type is known.
    #[must_use]
    pub fn unsized_list(&self) -> ListFact {
        let (item, each) = (PartialShape::unknown(), Each::Unknown);
        ListFact {
            said: Said::NOTHING,
            item,
            room: None,
            limit: None,
            length: None,
            most: None,
            least: 0,
            is_enough: false,
            each,
            is_full: false,
            ..self.clone()
        }
    }

    /// An optional that has this list, or has no value as the other one.
    fn or_absent(&self, other: &ListFact) -> Result<ListFact> {
        if other.data_type != DataType::Variant || other.inner.is_some() || !(other.is_unseen() || other.length == Some(0)) {
            return Err(Error::unimplemented("not yet: an optional of a list or of a tensor"));
        }
        Ok(ListFact { length: None, least: 0, ..self.clone() })
    }

    /// What both say; the length where they agree, and the larger room.
    ///
    /// # Errors
    /// UNIMPLEMENTED where their tensors differ in type or shape.
    pub fn and(&self, other: &ListFact) -> Result<ListFact> {
        match (self.has_list, other.has_list) {
            (true, false) => return self.or_absent(other),
            (false, true) => return other.or_absent(self),
            _ => {}
        }
        let is_nothing = |list: &ListFact| list.length == Some(0) || list.is_unseen();
        let data_type = match (self.data_type, other.data_type) {
            // An optional without a value has no type. What lists a list has is known when one is put into it.
            (DataType::Variant, data_type) if is_nothing(self) || other.inner.is_some() => data_type,
            (data_type, DataType::Variant) if is_nothing(other) || self.inner.is_some() => data_type,
            (mine, theirs) if mine == theirs => mine,
            (mine, theirs) => return Err(Error::unimplemented(format!("not yet: a list of {mine} or of {theirs}"))),
        };
        let length = match (self.is_unseen(), other.is_unseen()) {
            (true, _) => other.length,
            (_, true) => self.length,
            _ => self.length.filter(|length| other.length == Some(*length)),
        };
        let (item, inner) = match (&self.inner, &other.inner) {
            (Some(_), Some(theirs)) => {
                let nested = self.of_lists(theirs)?;
                // Blocks that an earlier stage of the run has made have a size, whatever is known of what lies in them.
                let is_known = self.item == other.item && nested.item.complete().is_none();
                (if is_known { self.item.clone() } else { nested.item }, nested.inner)
            }
            (Some(_), None) if other.data_type == DataType::Variant => (self.item.clone(), self.inner.clone()),
            (None, Some(_)) if self.data_type == DataType::Variant => (other.item.clone(), other.inner.clone()),
            (None, None) => {
                let item = merge_shapes(&self.item, &other.item);
                (item.map_err(|_| crate::list::several_shapes(&self.item, &other.item))?, None)
            }
            _ => return Err(Error::unimplemented("not yet: a list of lists or of tensors")),
        };
        Ok(ListFact {
            data_type,
            said: self.said.or(&other.said),
            item,
            inner,
            room: self.room.max(other.room),
            limit: self.limit.or(other.limit),
            length,
            most: self.most.zip(other.most).map(|(mine, theirs)| mine.max(theirs)),
            least: self.least.min(other.least),
            is_enough: self.is_enough || other.is_enough,
            each: self.each.or(&other.each),
            grows: self.grows || other.grows,
            is_sum: self.is_sum || other.is_sum,
            is_full: self.is_full && other.is_full,
            has_list: self.has_list,
        })
    }
}

impl Fact {
    /// A tensor of which only type and shape are known.
    pub fn new(data_type: DataType, shape: PartialShape) -> Fact {
        Fact { data_type, is_ref: false, shape, value: None, partial: None, handle: None, list: None, most: None }
    }

    /// A tensor that is known.
    pub fn known(value: HostTensor) -> Fact {
        Fact { value: Some(value.clone()), ..Fact::new(value.data_type(), value.shape().into()) }
    }
}

/// The rule of an operation: sets the shapes (and values) of the outputs.
pub type InferFn = fn(&mut InferCx<'_>) -> Result<()>;

/// The facts that a rule sees and fills in.
pub struct InferCx<'a> {
    /// The node.
    pub node: &'a Node,
    /// The facts about its inputs.
    pub inputs: &'a [Fact],
    /// The facts about its outputs: the types are filled in already, the shapes are unknown.
    pub outputs: Vec<Fact>,
    unanswered: RefCell<Vec<usize>>,
}

impl<'a> InferCx<'a> {
    /// Of a node with these facts.
    pub fn new(node: &'a Node, inputs: &'a [Fact], outputs: Vec<Fact>) -> InferCx<'a> {
        InferCx { node, inputs, outputs, unanswered: RefCell::default() }
    }

    /// What is known of the list that input `index` is.
    pub fn list(&self, index: usize) -> Option<&'a ListFact> {
        self.inputs[index].list.as_ref()
    }

    /// The node's attributes.
    pub fn attrs(&self) -> &'a Attrs {
        &self.node.attrs
    }

    /// The shape of input `index`.
    pub fn shape(&self, index: usize) -> &'a PartialShape {
        &self.inputs[index].shape
    }

    /// The dimensions of input `index`, where its rank is known.
    pub fn dims(&self, index: usize) -> Option<&'a [Option<u64>]> {
        self.inputs[index].shape.0.as_deref()
    }

    /// The elements of input `index`, where they are known.
    pub fn value(&self, index: usize) -> Option<&'a HostTensor> {
        let value = self.inputs[index].value.as_ref();
        if value.is_none() && !self.unanswered.borrow().contains(&index) {
            self.unanswered.borrow_mut().push(index);
        }
        value
    }

    /// The integers that input `index` holds, where they are known.
    pub fn ints(&self, index: usize) -> Option<Vec<i64>> {
        self.value(index)?.to_i64s()
    }

    /// The integers of the vector at input `index`, as far as they are known; none where not even their number is.
    pub fn some_ints(&self, index: usize) -> Option<Vec<Option<i64>>> {
        let known = self.ints(index).map(|ints| ints.into_iter().map(Some).collect());
        known.or_else(|| self.inputs[index].partial.clone()).or_else(|| self.vector_len(index).map(|length| vec![None; length]))
    }

    /// Output 0 is a vector of integers, of which these are known.
    pub fn set_partial(&mut self, ints: Vec<Option<i64>>) {
        if self.outputs[0].data_type.is_integer() && ints.iter().any(Option::is_some) {
            self.outputs[0].partial = Some(ints);
        }
    }

    /// The one integer that input `index` holds, where it is known.
    pub fn int(&self, index: usize) -> Option<i64> {
        match self.ints(index)?[..] {
            [int] => Some(int),
            _ => None,
        }
    }

    /// The length of the vector at input `index`, where it is known and could be a rank: how many dimensions a shape has.
    pub fn vector_len(&self, index: usize) -> Option<usize> {
        match self.dims(index)? {
            [Some(len)] => rank_of(*len),
            _ => None,
        }
    }

    /// The dimensions of input `index`, which must have at least `rank` of them; none where the rank is unknown.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where there are known to be fewer.
    pub fn with_rank_at_least(&self, index: usize, rank: usize) -> Result<Option<&'a [Option<u64>]>> {
        match self.dims(index) {
            Some(dims) if dims.len() < rank => Err(Error::invalid_argument(format!(
                "Shape must be at least rank {rank} but is rank {} for input {index} of shape {}",
                dims.len(),
                self.inputs[index].shape
            ))),
            dims => Ok(dims),
        }
    }

    /// The dimensions of input `index`, which must have `rank` of them; none where the rank is unknown.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where the rank is known to differ.
    pub fn with_rank(&self, index: usize, rank: usize) -> Result<Option<&'a [Option<u64>]>> {
        match self.dims(index) {
            Some(dims) if dims.len() != rank => Err(Error::invalid_argument(format!(
                "Shape must be rank {rank} but is rank {} for input {index} of shape {}",
                dims.len(),
                self.inputs[index].shape
            ))),
            dims => Ok(dims),
        }
    }

    /// Sets the shape of output `index`.
    pub fn set(&mut self, index: usize, shape: PartialShape) {
        self.outputs[index].shape = shape;
    }

    /// Sets the dimensions of output `index`.
    pub fn set_dims(&mut self, index: usize, dims: Vec<Option<u64>>) {
        self.set(index, PartialShape(Some(dims)));
    }

    /// Sets shape and elements of output `index`.
    pub fn set_value(&mut self, index: usize, value: HostTensor) {
        self.outputs[index].shape = value.shape().into();
        self.outputs[index].value = Some(value);
    }
}

/// Applies the rules to a node. Nodes of operations without rules have outputs of unknown shape.
///
/// # Errors
/// The rule's error for inputs that cannot be, with the node's name.
pub fn infer_node(registry: &Registry, def: &OpDef, node: &Node, inputs: &[Fact]) -> Result<Vec<Fact>> {
    infer_asking(registry, def, node, inputs).map(|(outputs, _)| outputs)
}

/// As [`infer_node`], with the inputs whose elements the rule asked for in vain.
///
/// # Errors
/// As [`infer_node`].
pub fn infer_asking(registry: &Registry, def: &OpDef, node: &Node, inputs: &[Fact]) -> Result<(Vec<Fact>, Vec<usize>)> {
    let types = def.output_types(&node.attrs).map_err(|error| error.at_node(&node.name))?;
    let outputs = types.iter().map(|arg| Fact { is_ref: arg.is_ref, ..Fact::new(arg.base, PartialShape::unknown()) }).collect();
    let Some(rules) = registry.get(&node.op) else { return Ok((outputs, Vec::new())) };
    let mut cx = InferCx::new(node, inputs, outputs);
    (rules.infer)(&mut cx).map_err(|error| error.at_node(&node.name))?;
    let (mut outputs, unanswered) = (cx.outputs, cx.unanswered.into_inner());
    if let (Lower::Alias | Lower::Switch, [first, ..]) = (rules.lower, inputs) {
        for (index, output) in outputs.iter_mut().enumerate() {
            let source = if matches!(rules.lower, Lower::Switch) { Some(first) } else { inputs.get(index) };
            output.list = output.list.take().or_else(|| source.and_then(|source| source.list.clone()));
        }
    }
    if let (Some(_), [output]) = (crate::list::of_lists(&node.op), &mut outputs[..])
        && matches!(output.data_type, DataType::Variant | DataType::Float)
        && inputs.iter().any(|input| input.list.is_some())
    {
        (output.shape, output.list) = ((&Shape::scalar()).into(), crate::list::together(inputs)?);
    }
    if outputs.iter().any(|fact| fact.value.is_none())
        && let Some(by) = registry.folding()
        && let Some(values) = crate::evaluate(by, rules, node, inputs, &outputs).map_err(|error| error.at_node(&node.name))?
    {
        for (fact, value) in outputs.iter_mut().zip(values) {
            if fact.shape.complete().is_none() {
                fact.shape = value.shape().into();
            }
            fact.value = Some(value);
        }
    }
    Ok((outputs, unanswered))
}

/// How many elements dimensions have; more than can be counted are the largest number.
pub(crate) fn count(dims: &[u64]) -> u64 {
    dims.iter().fold(1, |count, dim| count.saturating_mul(*dim))
}

/// Output 0 has the shape of input 0.
pub fn same(cx: &mut InferCx<'_>) -> Result<()> {
    cx.set(0, cx.shape(0).clone());
    Ok(())
}

/// Output 0 is a scalar.
pub fn scalar(cx: &mut InferCx<'_>) -> Result<()> {
    cx.set(0, (&Shape::scalar()).into());
    Ok(())
}

/// Nothing is known but the types.
pub fn unknown(_cx: &mut InferCx<'_>) -> Result<()> {
    Ok(())
}

/// Output 0 has the shape that all inputs have together by broadcasting.
pub fn broadcast(cx: &mut InferCx<'_>) -> Result<()> {
    let mut shape = PartialShape::from(&Shape::scalar());
    for input in cx.inputs {
        shape = broadcast_shapes(&shape, &input.shape)?;
    }
    cx.set(0, shape);
    Ok(())
}

/// The shape of two tensors together, as far as it is known.
///
/// # Errors
/// INVALID_ARGUMENT where they cannot be broadcast.
pub fn broadcast_shapes(a: &PartialShape, b: &PartialShape) -> Result<PartialShape> {
    let (Some(x), Some(y)) = (&a.0, &b.0) else { return Ok(PartialShape::unknown()) };
    let rank = x.len().max(y.len());
    let dim = |dims: &[Option<u64>], axis: usize| (axis + dims.len()).checked_sub(rank).map_or(Some(1), |axis| dims[axis]);
    let mut dims = Vec::with_capacity(rank);
    for axis in 0..rank {
        dims.push(match (dim(x, axis), dim(y, axis)) {
            (Some(1), other) | (other, Some(1)) => other,
            (Some(p), Some(q)) if p == q => Some(p),
            (Some(_), Some(_)) => return Err(Error::invalid_argument(format!("Incompatible shapes: {a} vs. {b}"))),
            (known, None) | (None, known) => known,
        });
    }
    Ok(PartialShape(Some(dims)))
}

/// The union of two descriptions of one shape.
///
/// # Errors
/// INVALID_ARGUMENT where they contradict each other.
pub fn merge_shapes(a: &PartialShape, b: &PartialShape) -> Result<PartialShape> {
    let (Some(x), Some(y)) = (&a.0, &b.0) else {
        return Ok(if a.0.is_some() { a.clone() } else { b.clone() });
    };
    let clash = || Error::invalid_argument(format!("shapes {a} and {b} are not the same"));
    if x.len() != y.len() {
        return Err(clash());
    }
    let merge = |(p, q): (&Option<u64>, &Option<u64>)| match (p, q) {
        (Some(p), Some(q)) if p != q => Err(clash()),
        _ => Ok(p.or(*q)),
    };
    x.iter().zip(y).map(merge).collect::<Result<Vec<_>>>().map(|dims| PartialShape(Some(dims)))
}

/// Axis `axis` of a tensor of that rank, where negative axes count from the end.
///
/// # Errors
/// INVALID_ARGUMENT where it is outside.
pub fn axis_of(axis: i64, rank: usize) -> Result<usize> {
    let shifted = if axis < 0 { axis + rank as i64 } else { axis };
    usize::try_from(shifted)
        .ok()
        .filter(|axis| *axis < rank)
        .ok_or_else(|| Error::invalid_argument(format!("axis {axis} is outside a tensor of rank {rank}")))
}

/// A dimension that an integer operand states, where −1 stands for unknown.
///
/// # Errors
/// INVALID_ARGUMENT for other negative numbers.
pub fn dim_of(size: i64) -> Result<Option<u64>> {
    match size {
        -1 => Ok(None),
        size => u64::try_from(size).map(Some).map_err(|_| Error::invalid_argument(format!("a dimension cannot be {size}"))),
    }
}

/// A vector of integers, as int32 or int64.
///
/// # Errors
/// INVALID_ARGUMENT where one does not fit int32.
pub fn int_vector(values: &[i64], data_type: DataType) -> Result<HostTensor> {
    int_tensor(values, Shape::from([values.len() as u64]), data_type)
}

/// Integers as a tensor of int32 or int64.
///
/// # Errors
/// INVALID_ARGUMENT where one does not fit int32, or their number is not the shape's; UNIMPLEMENTED for other types.
pub fn int_tensor(values: &[i64], shape: Shape, data_type: DataType) -> Result<HostTensor> {
    match data_type {
        DataType::Int64 => HostTensor::from_slice(shape, values),
        DataType::Int32 => {
            let narrow = |value: &i64| i32::try_from(*value).map_err(|_| Error::invalid_argument(format!("{value} does not fit int32")));
            HostTensor::from_slice(shape, &values.iter().map(narrow).collect::<Result<Vec<i32>>>()?)
        }
        other => Err(Error::unimplemented(format!("sizes as {other}"))),
    }
}

/// The sum of dimensions, where all are known.
pub fn sum_dims(dims: impl IntoIterator<Item = Option<u64>>) -> Option<u64> {
    dims.into_iter().try_fold(0u64, |sum, dim| sum.checked_add(dim?))
}

/// The shape that integers state, where −1 stands for an unknown dimension (a shape operand in a graph).
///
/// # Errors
/// INVALID_ARGUMENT for other negative numbers.
pub fn shape_of_ints(ints: &[i64]) -> Result<PartialShape> {
    ints.iter().map(|size| dim_of(*size)).collect::<Result<Vec<_>>>().map(|dims| PartialShape(Some(dims)))
}

/// A length as a rank; none above TensorFlow's highest.
pub fn rank_of(length: u64) -> Option<usize> {
    usize::try_from(length).ok().filter(|rank| *rank <= 254)
}

/// A shape of which at most the rank is known.
pub fn of_rank(rank: Option<usize>) -> PartialShape {
    PartialShape(rank.map(|rank| vec![None; rank]))
}
