//! Lists of tensors: each is one block of memory with its tensors as rows, and their number.
//!
//! A list that goes round in a loop is changed in place where it is the newest state of what the loop carries; a reader of an older
//! state gets a copy. Elsewhere a changed list is another value, which may lie where the old one lay.

use std::sync::Arc;

use plimsoll_base::{Code, DataType, Error, Result};
use plimsoll_graph::{AttrsExt, HostTensor, Node, NodeId, Output, Shape};
use plimsoll_ops::list::list_at;
use plimsoll_ops::{ListFact, ListOp, Meta};
use plimsoll_request::KernelRequest;
use plimsoll_request::check::Requirement;
use plimsoll_request::expr::{BinaryOp, ExprBuilder, Scalar};
use plimsoll_request::gather::{Gather, ScatterOp};
use plimsoll_request::movement::Movement;

use super::{Lowering, Meaning};
use crate::lir::{Arg, Home, View, WorkKind};
use crate::request::unset_rows;

/// A list.
#[derive(Clone, Debug)]
pub(super) struct List {
    /// Its tensors, one behind another; none where all are zero.
    pub rows: Option<View>,
    pub length: Length,
}

/// How many tensors a list has.
#[derive(Clone, Debug)]
pub(super) enum Length {
    Known(u64),
    /// An int32.
    Value(View),
    /// Of an optional without a value: less than that of any list.
    Absent,
}

impl List {
    /// The list with these rows; rows without elements are those of tensors that were never set.
    pub fn of_rows(rows: View) -> List {
        let length = Length::Known(rows.shape.first().copied().unwrap_or(0));
        List { rows: (rows.elements() > 0).then_some(rows), length }
    }
}

impl Lowering<'_> {
    /// All rows of a list that is fetched: see [`crate::Signature::lists`].
    pub(super) fn whole_list(&mut self, output: Output) -> Result<View> {
        let list = self.list(output)?;
        let length = match list.length {
            Length::Known(length) => length,
            Length::Absent => 0,
            Length::Value(_) => {
                return Err(Error::unimplemented("not yet: a list leaves a stage of the run, and only the run knows its length"));
            }
        };
        let fact = self.list_fact(output)?;
        let shape = fact.rows(Some(length)).complete();
        if let (Some(rows), Some(shape)) = (&list.rows, &shape) {
            return self.first_rows(output.node, rows.clone(), shape.first().copied().unwrap_or(0));
        }
        let zeros = zeros(fact.stored_type(), shape.unwrap_or_else(|| unset_rows(length)))?;
        let name = self.request.graph.node(output.node).name.clone();
        let value = self.lir.constant(&zeros, self.host, output, &name)?;
        Ok(View { value, data_type: zeros.data_type(), shape: zeros.shape().clone() })
    }

    pub(super) fn list_op(&mut self, id: NodeId, node: &Node, op: ListOp) -> Result<()> {
        let op = self.of_gradient(node, op);
        match op {
            ListOp::New { to } => {
                let length = self.list_fact(Output { node: id, index: to })?.length;
                let length = Length::Known(
                    length.ok_or_else(|| Error::needs_values("not yet: a list whose size is known only when the graph runs"))?,
                );
                // A handle of a TensorArray stands for nothing: its flows are the list.
                (0..=to as usize).for_each(|output| self.define(id, output, Meaning::List(List { rows: None, length: length.clone() })));
                self.new_marks(id)
            }
            ListOp::FromTensor { tensor } => {
                let rows = self.read_input(id, node, tensor)?;
                let length = Length::Known(rows.shape.first().copied().unwrap_or(0));
                self.define(id, 0, Meaning::List(List { rows: Some(rows), length }));
                Ok(())
            }
            ListOp::Stack { list } => self.stack(id, node, list),
            ListOp::GetItem { list, index } => {
                let index = self.read_input(id, node, index)?;
                self.get(id, (node, list), index, 0)
            }
            ListOp::Gather { list, indices } => {
                let indices = self.read_input(id, node, indices)?;
                self.get(id, (node, list), indices, 0)
            }
            ListOp::SetItem { list, index, item: tensor } | ListOp::Scatter { list, indices: index, tensor } => {
                let is_known = self.pruned.facts[node.inputs[index].node][node.inputs[index].index as usize].value.is_some();
                if !is_known && self.inside.is_empty() && self.grows(id, node) {
                    return Err(Error::needs_values("not yet: a list grows to an index that is known only when the graph runs"));
                }
                let (index, tensor) = (self.read_input(id, node, index)?, self.item(id, node, tensor)?);
                if self.is_placed(id, node, op)? {
                    return self.place(id, index, tensor);
                }
                let length = match self.list_fact(Output { node: id, index: 0 })?.length {
                    Some(length) => Length::Known(length),
                    None => {
                        let length = self.list(node.inputs[list])?.length;
                        if self.grows(id, node) { self.up_to(id, &length, &index)? } else { length }
                    }
                };
                let rows = self.set(id, (node, list), index, tensor)?;
                self.define(id, 0, Meaning::List(List { rows: Some(rows), length }));
                Ok(())
            }
            ListOp::PushBack { list, item } => {
                if let Some(longer) = self.push_same(id, node.inputs[list], node.inputs[item])? {
                    self.define(id, 0, longer);
                    return Ok(());
                }
                let item = self.item(id, node, item)?;
                let length = self.length(node.inputs[list])?;
                let index = self.number(id, &length)?;
                let rows = self.set(id, (node, list), index, item)?;
                let length = self.longer(id, &length, 1)?;
                self.define(id, 0, Meaning::List(List { rows: Some(rows), length }));
                Ok(())
            }
            ListOp::PopBack { list } => {
                if self.pop_same(id, node.inputs[list])? {
                    return Ok(());
                }
                let List { rows, length } = self.list(node.inputs[list])?;
                if matches!(length, Length::Known(0)) && (!self.inside.is_empty() || self.branches.guard.is_some()) {
                    return self.pop_nothing(id);
                }
                let length = self.longer(id, &length, -1)?;
                let index = self.number(id, &length)?;
                self.define(id, 0, Meaning::List(List { rows, length }));
                if self.meanings.contains_key(&Output { node: id, index: 1 }) { Ok(()) } else { self.get(id, (node, list), index, 1) }
            }
            ListOp::Length { list } => {
                let meaning = match self.length(node.inputs[list])? {
                    Length::Known(length) => Meaning::Known(HostTensor::scalar(small(length)?)),
                    Length::Value(view) => Meaning::Value(view),
                    Length::Absent => return Err(Error::invalid_argument("an optional is no list")),
                };
                self.define(id, 0, meaning);
                Ok(())
            }
            ListOp::Zeros { list } => {
                self.refuse_unknown_lengths(node.inputs[list])?;
                let length = self.length(node.inputs[list])?;
                self.define(id, 0, Meaning::List(List { rows: None, length }));
                Ok(())
            }
            ListOp::AddN => self.sum(id, node),
            ListOp::Scattered { indices, tensor } => self.scattered(id, node, op, (indices, tensor)),
            ListOp::Join { first, second } => self.join(id, [node.inputs[first], node.inputs[second]]),
            ListOp::Resize { list } => self.resize(id, node.inputs[list]),
            ListOp::Split { tensor } => self.split_list(id, node, tensor),
            ListOp::Concat { list } => self.concat(id, node.inputs[list]),
            ListOp::Present { item } => {
                let item = self.read_input(id, node, item)?;
                let shape = Shape::from([&[1], item.shape.dims()].concat());
                let rows = View { shape, ..item };
                self.define(id, 0, Meaning::List(List { rows: Some(rows), length: Length::Known(1) }));
                Ok(())
            }
            ListOp::Value { list } => {
                let length = self.list(node.inputs[list])?.length;
                if let Length::Known(0) | Length::Absent = length {
                    return self.no_value(id);
                }
                let last = self.longer(id, &length, -1)?;
                let index = self.number(id, &last)?;
                self.get(id, (node, list), index, 0)
            }
            ListOp::Absent => {
                self.define(id, 0, Meaning::List(List { rows: None, length: Length::Absent }));
                Ok(())
            }
            ListOp::NewStack => self.new_stack(id),
            ListOp::PushOn { stack, item } => self.push_on(id, node, (stack, item)),
            ListOp::PopOff { stack } => self.pop_off(id, node, stack),
            ListOp::Gradient { list } => {
                let of = node.inputs[list];
                let List { rows, length } = self.list(of)?;
                // The list at the input may be a gradient itself: further sums go into it.
                let rows = rows.filter(|_| self.list_fact(of).is_ok_and(|list| list.is_sum));
                (0..2).for_each(|output| self.define(id, output, Meaning::List(List { rows: rows.clone(), length: length.clone() })));
                Ok(())
            }
        }
    }

    /// The operation, where its list may be at its handle.
    fn of_gradient(&self, node: &Node, op: ListOp) -> ListOp {
        let fact = |input: &Output| self.pruned.facts[input.node].get(input.index as usize).cloned();
        let Some(facts) = node.inputs.iter().map(fact).collect::<Option<Vec<_>>>() else { return op };
        let at = |list: usize| list_at(&facts, list);
        match op {
            ListOp::Stack { list } => ListOp::Stack { list: at(list) },
            ListOp::GetItem { list, index } => ListOp::GetItem { list: at(list), index },
            ListOp::Gather { list, indices } => ListOp::Gather { list: at(list), indices },
            ListOp::SetItem { list, index, item } => ListOp::SetItem { list: at(list), index, item },
            ListOp::Scatter { list, indices, tensor } => ListOp::Scatter { list: at(list), indices, tensor },
            ListOp::Length { list } => ListOp::Length { list: at(list) },
            ListOp::Concat { list } => ListOp::Concat { list: at(list) },
            other => other,
        }
    }

    /// The list that a tensor is; zeros where it is the number in the place of a flow, which `of` is the list of.
    pub(super) fn list_like(&mut self, output: Output, of: Output) -> Result<List> {
        match (self.meaning(output)?, self.list_fact(of)) {
            (Meaning::Known(number), Ok(ListFact { length: Some(length), .. }))
                if number.splat().or_else(|| number.bytes()).is_some_and(is_zero) =>
            {
                Ok(List { rows: None, length: Length::Known(length) })
            }
            _ => self.list(output),
        }
    }

    /// The list that a tensor is, with its tensors as rows.
    pub(super) fn list(&mut self, output: Output) -> Result<List> {
        match self.meaning(output)?.clone() {
            Meaning::List(list) => Ok(list),
            Meaning::Same(same) => self.rows_of_same(output, same),
            Meaning::Placed(placed) => self.rows_of_placed(output, placed),
            _ => Err(Error::invalid_argument(format!("{} is no list", self.request.graph.tensor_name(output)))),
        }
    }

    /// What is known of the list that a tensor is.
    pub(super) fn list_fact(&self, output: Output) -> Result<ListFact> {
        let fact = self.pruned.facts[output.node].get(output.index as usize).and_then(|fact| fact.list.clone());
        fact.ok_or_else(|| Error::invalid_argument(format!("{} is no list", self.request.graph.tensor_name(output))))
    }

    /// The shape of all rows of a list, those included that it has room for.
    pub(super) fn rows_shape(&self, output: Output) -> Result<(DataType, Shape)> {
        let list = self.list_fact(output)?;
        let data_type = list.stored_type();
        // A stage before may know how often a loop runs.
        let room = list.block_rows().ok_or_else(|| Error::needs_values("not yet: a list whose size nothing bounds"))?;
        let shape = list.rows(Some(room));
        let whole = shape.complete().ok_or_else(|| {
            Error::needs_values(format!("not yet: the shape {} of a list's tensors is known only when the graph runs", list.item))
        })?;
        data_type.size().ok_or_else(|| super::not_yet(data_type))?;
        whole.bytes(data_type)?;
        Ok((data_type, whole))
    }

    /// The rows of a list, in memory; `of` is the tensor that says their shape.
    pub(super) fn rows(&mut self, id: NodeId, list: &List, of: Output) -> Result<View> {
        let (data_type, shape) = self.rows_shape(of)?;
        match &list.rows {
            Some(view) if view.shape == shape && view.data_type == data_type => Ok(view.clone()),
            Some(view) if view.data_type == data_type && view.shape.dims().get(1..) == shape.dims().get(1..) => {
                let (few, many) = (view.shape.first().copied().unwrap_or(0), shape.first().copied().unwrap_or(0));
                if few > many { self.first_rows(id, view.clone(), many) } else { self.padded(id, view.clone(), many) }
            }
            Some(view) if self.list_fact(of)?.inner.is_some() => self.larger_blocks(id, view.clone(), shape),
            Some(view) => Err(Error::invalid_argument(format!("a list of tensors of {} where there are {shape}", view.shape))),
            None => {
                let zero = Scalar::from_le_bytes(data_type, &vec![0; data_type.size().unwrap_or(0)]);
                let zero = zero.ok_or_else(|| Error::unimplemented(format!("not yet: a list of {data_type}")))?;
                let mut builder = ExprBuilder::new();
                let zero = builder.constant(zero);
                self.made(id, WorkKind::Expr { expr: builder.finish(vec![zero]), shape: shape.clone() }, Vec::new(), data_type, shape)
            }
        }
    }

    /// A work of one new value.
    pub(super) fn made(&mut self, id: NodeId, kind: WorkKind, inputs: Vec<View>, data_type: DataType, shape: Shape) -> Result<View> {
        let value = self.lir.value(self.device(id), Home::Arena, shape.bytes(data_type)?.0, id);
        self.work(id, kind, inputs, vec![value], false);
        Ok(View { value, data_type, shape })
    }

    /// The first rows of some.
    pub(super) fn first_rows(&mut self, id: NodeId, rows: View, count: u64) -> Result<View> {
        let mut sizes = rows.shape.to_vec();
        match sizes.first_mut() {
            Some(first) if *first > count => *first = count,
            _ => return Ok(rows),
        }
        let element = rows.data_type.size().ok_or_else(|| super::not_yet(rows.data_type))?;
        let (data_type, shape, begin) = (rows.data_type, Shape::from(sizes.clone()), vec![0; sizes.len()]);
        let movement = Movement::Slice { shape: rows.shape.to_vec(), begin, sizes };
        self.made(id, WorkKind::request(KernelRequest::Movement { element, movement }, 1, 1), vec![rows], data_type, shape)
    }

    /// Rows, and zeros behind them.
    pub(super) fn padded(&mut self, id: NodeId, rows: View, count: u64) -> Result<View> {
        let mut sizes = rows.shape.to_vec();
        let mut paddings = vec![(0, 0); sizes.len()];
        match (sizes.first_mut(), paddings.first_mut()) {
            (Some(first), Some(padding)) if *first < count => {
                padding.1 = count - *first;
                *first = count;
            }
            _ => return Ok(rows),
        }
        let element = rows.data_type.size().ok_or_else(|| super::not_yet(rows.data_type))?;
        let (data_type, shape) = (rows.data_type, Shape::from(sizes));
        let movement = Movement::Pad { shape: rows.shape.to_vec(), paddings, value: Some(vec![0; element]) };
        self.made(id, WorkKind::request(KernelRequest::Movement { element, movement }, 1, 1), vec![rows], data_type, shape)
    }

    fn stack(&mut self, id: NodeId, node: &Node, list: usize) -> Result<()> {
        let of = node.inputs[list];
        let list = self.list(of)?;
        let Length::Known(length) = list.length else {
            return Err(Error::needs_values("not yet: as many tensors of a list as are known only when the graph runs"));
        };
        // What the operation says of its tensors counts, too.
        let meta = self.output_metas(id)?.swap_remove(0);
        let meaning = match list.rows {
            Some(view) if view.shape == meta.shape => Meaning::Value(view),
            Some(view) if view.elements() == meta.shape.elements()? => Meaning::Value(View { shape: meta.shape, ..view }),
            Some(view) => Meaning::Value(View { shape: meta.shape, ..self.first_rows(id, view, length)? }),
            None => Meaning::Known(zeros(meta.data_type, meta.shape)?),
        };
        self.define(id, 0, meaning);
        Ok(())
    }

    /// Output `output` is what a list has at indices.
    fn get(&mut self, id: NodeId, (node, list): (&Node, usize), indices: View, output: usize) -> Result<()> {
        if self.list_fact(node.inputs[list])?.is_nested() {
            return self.get_list(id, node.inputs[list], indices, output);
        }
        let fact = &self.pruned.facts[id][output];
        let unknown = || match self.marks.is_never_written(id) && self.inside.is_empty() && self.branches.guard.is_none() {
            true => Error::invalid_argument(
                "Could not read from a TensorArray, of which no element is written. Furthermore, the element shape is not fully defined.",
            ),
            false => Error::needs_values(format!("not yet: the shape {} of output {output} is known only when the graph runs", fact.shape)),
        };
        let meta = Meta { data_type: fact.data_type, shape: fact.shape.complete().ok_or_else(unknown)? };
        let of = node.inputs[list];
        let list = self.list(of)?;
        let (data_type, mut shape) = self.rows_shape(of).or_else(|error| match list.rows {
            // The rows say more than is known of the list.
            Some(ref view) if error.code() == Code::Unimplemented => Ok((view.data_type, view.shape.clone())),
            _ => Err(error),
        })?;
        let rows = match &list.rows {
            Some(view) => {
                shape = view.shape.clone();
                view.clone()
            }
            None => self.rows(id, &list, of)?,
        };
        let element = data_type.size().ok_or_else(|| super::not_yet(data_type))?;
        let (params, index_type) = (shape.to_vec(), indices.data_type);
        let request = Gather::Take { element, params, indices: indices.shape.to_vec(), axis: 0, batch_dims: 0, index_type };
        let value = self.lir.value(self.device(id), Home::Arena, meta.bytes()?, id);
        let kind = WorkKind::request(KernelRequest::Gather(request), 2, 1);
        self.work(id, kind, vec![rows, indices], vec![value], false);
        self.define(id, output, Meaning::Value(View { value, data_type: meta.data_type, shape: meta.shape }));
        Ok(())
    }

    /// The rows of a list with others at indices.
    fn set(&mut self, id: NodeId, (node, list): (&Node, usize), indices: View, tensor: View) -> Result<View> {
        let of = node.inputs[list];
        let list = self.list(of)?;
        let index = self.pruned.facts[id].iter().position(|fact| fact.list.is_some()).unwrap_or(0);
        let rows = self.rows(id, &list, Output { node: id, index: index as u32 })?;
        require_rows(&rows, &indices, &tensor)?;
        let is_sum = self.pruned.facts[id].get(index).and_then(|fact| fact.list.as_ref()).is_some_and(|list| list.is_sum);
        self.scatter(id, if is_sum { ScatterOp::Add } else { ScatterOp::Update }, rows, indices, tensor)
    }

    /// Rows, some of them replaced.
    pub(super) fn scatter(&mut self, id: NodeId, op: ScatterOp, rows: View, indices: View, tensor: View) -> Result<View> {
        let (data_type, shape) = (rows.data_type, rows.shape.clone());
        let in_place = self.may_change(id, rows.value);
        let request = KernelRequest::Gather(Gather::Scatter {
            op,
            data_type,
            index_type: indices.data_type,
            shape: shape.to_vec(),
            indices: indices.shape.elements()?,
            depth: 1,
            scalar_updates: false,
            ignore: false,
            in_place,
        });
        let inputs = vec![rows.clone(), indices, tensor];
        if in_place {
            let value = self.lir.next_version(rows.value, id);
            self.note_newest(value);
            let args = vec![Arg::Output(0), Arg::Input(1), Arg::Input(2), Arg::Output(0)];
            self.work(id, WorkKind::Request { request: Arc::new(request), args }, inputs, vec![value], true);
            return Ok(View { value, ..rows });
        }
        self.made(id, WorkKind::request(request, 3, 1), inputs, data_type, shape)
    }

    /// A length as an int32 in memory.
    pub(super) fn number(&mut self, id: NodeId, length: &Length) -> Result<View> {
        match length {
            Length::Value(view) => Ok(view.clone()),
            Length::Known(_) | Length::Absent => {
                let tensor = HostTensor::scalar(if let Length::Known(length) = length { small(*length)? } else { -1 });
                let name = self.request.graph.node(id).name.clone();
                let value = self.lir.constant(&tensor, self.device(id), Output { node: id, index: 0 }, &name)?;
                Ok(View { value, data_type: DataType::Int32, shape: Shape::scalar() })
            }
        }
    }

    /// Whether a list becomes longer where a node writes behind its end.
    pub(super) fn grows(&self, id: NodeId, node: &Node) -> bool {
        node.attrs.bool("resize_if_index_out_of_bounds").unwrap_or(false)
            || self.list_fact(Output { node: id, index: 0 }).is_ok_and(|list| list.grows)
    }

    /// A length, or that which an index needs.
    fn up_to(&mut self, id: NodeId, length: &Length, index: &View) -> Result<Length> {
        let length = self.number(id, length)?;
        let mut builder = ExprBuilder::new();
        let (old, index_in, one) = (builder.input(DataType::Int32)?, builder.input(DataType::Int32)?, builder.constant(Scalar::I32(1)));
        let end = builder.binary(BinaryOp::Add, index_in, one)?;
        let longer = builder.binary(BinaryOp::Maximum, old, end)?;
        let kind = WorkKind::Expr { expr: builder.finish(vec![longer]), shape: Shape::scalar() };
        let index = View { shape: Shape::scalar(), ..index.clone() };
        self.made(id, kind, vec![length, index], DataType::Int32, Shape::scalar()).map(Length::Value)
    }

    /// A length with so many more.
    pub(super) fn longer(&mut self, id: NodeId, length: &Length, by: i32) -> Result<Length> {
        match length {
            Length::Known(length) => {
                let longer = length.checked_add_signed(i64::from(by));
                longer.map(Length::Known).ok_or_else(|| Error::invalid_argument("Trying to pop from an empty list."))
            }
            Length::Value(view) => {
                let mut builder = ExprBuilder::new();
                let (length, by) = (builder.input(DataType::Int32)?, builder.constant(Scalar::I32(by)));
                let sum = builder.binary(BinaryOp::Add, length, by)?;
                let kind = WorkKind::Expr { expr: builder.finish(vec![sum]), shape: Shape::scalar() };
                self.made(id, kind, vec![view.clone()], DataType::Int32, Shape::scalar()).map(Length::Value)
            }
            Length::Absent => Err(Error::internal("an optional without a value is no list")),
        }
    }

    /// Fails where the run says that a length is negative.
    pub(super) fn require_length(&mut self, id: NodeId, length: View, requirement: Requirement) -> Result<()> {
        let mut builder = ExprBuilder::new();
        let (length_in, zero) = (builder.input(DataType::Int32)?, builder.constant(Scalar::I32(0)));
        let holds = builder.binary(BinaryOp::GreaterEqual, length_in, zero)?;
        let kind = WorkKind::Expr { expr: builder.finish(vec![holds]), shape: Shape::scalar() };
        let holds = self.made(id, kind, vec![length], DataType::Bool, Shape::scalar())?;
        let check = KernelRequest::Require(requirement);
        self.work(id, WorkKind::Request { request: Arc::new(check), args: vec![Arg::Input(0)] }, vec![holds], Vec::new(), true);
        Ok(())
    }
}

/// Whether a tensor is rows at indices of some.
pub(super) fn require_rows(rows: &View, indices: &View, tensor: &View) -> Result<()> {
    let count = indices.shape.elements()?;
    let given = tensor.shape.elements()?;
    if tensor.data_type != rows.data_type || given != count * rows.shape.iter().skip(1).product::<u64>() {
        let message = format!("{}{} is set in a list of {}{}", tensor.data_type, tensor.shape, rows.data_type, rows.shape);
        return Err(Error::invalid_argument(message));
    }
    Ok(())
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// A tensor of zeros.
pub(super) fn zeros(data_type: DataType, shape: Shape) -> Result<HostTensor> {
    let element = data_type.size().ok_or_else(|| super::not_yet(data_type))?;
    HostTensor::from_leading(data_type, shape, &vec![0; element])
}

/// A length as TensorFlow counts it.
fn small(length: u64) -> Result<i32> {
    i32::try_from(length).map_err(|_| Error::invalid_argument(format!("a list of {length} tensors")))
}
