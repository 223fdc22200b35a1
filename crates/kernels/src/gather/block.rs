//! Blocks of a tensor that integers name, taken or written.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_device::{Args, Cost, CpuKernel, Fault, Prepared};
use plimsoll_request::block::{Begin, Block, Outside};

use super::rows::Zero;
use super::{Index, by_index, count, not_an_index};
use crate::cut::Cut;
use crate::movement::{by_size, check_slice};

/// The block of a tensor.
///
/// Arguments: the tensor (elements of `size` bytes), the names where there are some, output: the block.
///
/// # Errors
/// INVALID_ARGUMENT where the block cannot be in the tensor. At run time a fault for a name outside, as the block says.
pub fn block(size: usize, block: &Block) -> Result<Prepared> {
    let walk = Walk::new(block, &block.sizes)?;
    let cut = Cut::new(walk.rows, (2 * walk.inner * size) as u64 + 16, 1);
    let cost = Cost { flops: 0.0, bytes: 2.0 * (walk.rows * walk.inner * size) as f64 };
    prepare(size, block, walk, cut, cost, Way::Take)
}

/// A tensor with the block replaced by the elements of a tensor `from`, whose dimensions of 1 are repeated.
///
/// Arguments: the tensor where `onto` (else it is zeros), the names where there are some, the elements of the block, output.
///
/// # Errors
/// As [`block`].
pub fn embed(size: usize, block: &Block, from: &[u64], onto: bool) -> Result<Prepared> {
    let walk = Walk::new(block, from)?;
    let cut = Cut::new(walk.whole.checked_div(walk.pitch).unwrap_or(0), (walk.pitch * size) as u64, 1);
    let moved = walk.rows * walk.inner + if onto { 0 } else { walk.whole / 2 };
    let cost = Cost { flops: 0.0, bytes: 2.0 * (moved * size) as f64 };
    prepare(size, block, walk, cut, cost, if onto { Way::Onto } else { Way::Zeros })
}

fn prepare(size: usize, block: &Block, walk: Walk, cut: Cut, cost: Cost, way: Way) -> Result<Prepared> {
    let in_place = if way == Way::Onto { vec![(0, 0)] } else { Vec::new() };
    let index_type = block.names.map_or(DataType::Int32, |(index_type, _)| index_type);
    by_size!(size, T => by_index!(index_type, I => {
        let kernel: Arc<dyn CpuKernel> = Arc::new(Copy::<T, I> { walk, cut, way, marker: PhantomData });
        Ok(Prepared { chunks: cut.pieces(), scratch: 0, per_worker: 0, cost, in_place, kernel })
    }))
}

/// The rows of a block: runs of elements that lie together, both in the tensor and in the block.
#[derive(Debug)]
struct Walk {
    /// Elements of the tensor, and those of one of its first axis.
    whole: usize,
    pitch: usize,
    /// Elements of the tensor that the block is written from.
    from: usize,
    /// How many rows there are, and elements of each.
    rows: usize,
    inner: usize,
    /// The axes that rows are counted along.
    axes: Vec<Axis>,
    /// The first element of the block but for the named begins.
    start: usize,
    named: Vec<Named>,
    /// How many names there are, where there is an argument of them.
    names: Option<usize>,
}

#[derive(Debug)]
struct Axis {
    count: usize,
    /// Elements from one place to the next in the tensor, and in the block.
    step: isize,
    from: usize,
}

#[derive(Debug)]
struct Named {
    position: usize,
    outside: Outside,
    axis: usize,
    dim: i64,
    size: i64,
    pitch: usize,
}

impl Walk {
    fn new(block: &Block, from: &[u64]) -> Result<Walk> {
        let Block { shape, begins, strides, sizes, names } = block;
        let rank = shape.len();
        let (whole, total, elements) = (count(shape)?, count(sizes)?, count(from)?);
        let names = names.map(|(_, names)| names as usize);
        if [begins.len(), strides.len(), sizes.len(), from.len()].iter().any(|length| *length != rank) {
            return Err(Error::invalid_argument(format!("a block of another rank than that of {shape:?}")));
        }
        let (mut start, mut named, mut axes) = (0isize, Vec::new(), Vec::new());
        // Elements of one place of an axis: of the tensor, and of the block.
        let (mut pitch, mut part, mut inner, mut together) = (1usize, 1usize, 1usize, true);
        for axis in (0..rank).rev() {
            let (dim, size, stride) = (shape[axis], sizes[axis], strides[axis]);
            match begins[axis] {
                Begin::At(begin) => {
                    check_slice(dim, begin, stride, size)?;
                    if total > 0 {
                        start += begin as isize * pitch as isize;
                    }
                }
                Begin::Named { position, outside } => {
                    // An index picks one element, though there be none.
                    let fits = size <= dim || outside == Outside::FromEnd && size == 1;
                    if names.is_none_or(|names| position >= names) || stride != 1 || !fits {
                        return Err(Error::invalid_argument(format!("{size} elements from a name {position} do not fit in {dim}")));
                    }
                    named.push(Named { position, outside, axis, dim: dim as i64, size: size as i64, pitch });
                }
            }
            // The first axis is that by which a tensor is cut into pieces.
            together = together && stride == 1 && from[axis] == size && (axis > 0 || rank == 1);
            if together {
                inner *= size as usize;
                together = size == dim;
            } else {
                let repeats = from[axis] == 1;
                axes.push(Axis {
                    count: size as usize,
                    step: (stride as isize).wrapping_mul(pitch as isize),
                    from: if repeats { 0 } else { part },
                });
            }
            pitch *= dim.max(1) as usize;
            part *= from[axis].max(1) as usize;
        }
        let rows = axes.iter().map(|axis| axis.count).product();
        named.reverse();
        let pitch = if rank < 2 { whole } else { count(&shape[1..])? };
        let (rows, inner) = if total == 0 { (0, 0) } else { (rows, inner) };
        Ok(Walk { whole, pitch, from: elements, rows, inner, axes, start: start as usize, named, names })
    }

    /// The first element of the block.
    fn first<I: Index>(&self, names: &[I]) -> Result<usize, Fault> {
        let mut first = self.start;
        for &Named { position, outside, axis, dim, size, pitch } in &self.named {
            let name = names[position].wide();
            let last = dim - size;
            let begin = match outside {
                Outside::Nearest => name.clamp(0, last),
                Outside::Range => (if name < 0 { name.saturating_add(dim) } else { name }).clamp(0, last),
                Outside::FromEnd => {
                    let begin = if name < 0 { name.saturating_add(dim) } else { name };
                    if !(0..=last).contains(&begin) {
                        return Err(Fault::invalid("slice index {0} of dimension {1} out of bounds.", [begin, axis as i64]));
                    }
                    begin
                }
                Outside::Fault if !(0..=dim).contains(&name) => {
                    return Err(Fault::invalid("Expected begin[{0}] in [0, {1}]", [axis as i64, dim]));
                }
                Outside::Fault if name > last => {
                    return Err(Fault::invalid("Expected size[{0}] in [0, {1}]", [axis as i64, dim - name]));
                }
                Outside::Fault => name,
            };
            first += begin as usize * pitch;
        }
        Ok(first)
    }

    /// Where a row begins in the tensor, from the first element, and in the block.
    fn row(&self, row: usize) -> (isize, usize) {
        let (mut rest, mut at, mut from) = (row, 0, 0);
        for axis in &self.axes {
            let place = rest % axis.count;
            rest /= axis.count;
            at += (place as isize).wrapping_mul(axis.step);
            from += place * axis.from;
        }
        (at, from)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// The block is taken. A unit is one of its rows.
    Take,
    /// It is written onto zeros, or onto another tensor. A unit is an element of the tensor's first axis.
    Zeros,
    Onto,
}

#[derive(Debug)]
struct Copy<T, I> {
    walk: Walk,
    cut: Cut,
    way: Way,
    marker: PhantomData<fn(T) -> I>,
}

impl<T: Zero, I: Index> CpuKernel for Copy<T, I> {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        let Walk { whole, pitch, inner, rows, .. } = self.walk;
        let own = self.cut.units(chunks);
        let first_names = usize::from(self.way != Way::Zeros);
        let after_names = first_names + usize::from(self.walk.names.is_some());
        let first = match self.walk.names {
            None => self.walk.start,
            // SAFETY: that argument holds the names.
            Some(names) => self.walk.first(unsafe { args.input::<I>(first_names, names) })?,
        };
        if self.way == Way::Take {
            // SAFETY: argument 0 is the tensor; rows of the output are written by one piece each.
            let (tensor, output) =
                unsafe { (args.input::<T>(0, whole), args.output::<T>(after_names, own.start * inner..own.end * inner)) };
            for (place, row) in own.enumerate() {
                let at = first.wrapping_add_signed(self.walk.row(row).0);
                output[place * inner..][..inner].copy_from_slice(&tensor[at..][..inner]);
            }
            return Ok(());
        }
        let own = own.start * pitch..own.end * pitch;
        // SAFETY: pieces write different elements of the output. One that lies on the tensor is not read through another slice.
        let (block, output) = unsafe { (args.input::<T>(after_names, self.walk.from), args.output::<T>(after_names + 1, own.clone())) };
        if self.way == Way::Zeros {
            output.fill(T::ZERO);
        } else if args.pointers[0] != args.pointers[after_names + 1] {
            // SAFETY: argument 0 holds the tensor, which is not the output here.
            output.copy_from_slice(unsafe { &args.input::<T>(0, whole)[own.clone()] });
        }
        for row in 0..rows {
            let (at, from) = self.walk.row(row);
            let at = first.wrapping_add_signed(at);
            if own.contains(&at) {
                output[at - own.start..][..inner].copy_from_slice(&block[from..][..inner]);
            }
        }
        Ok(())
    }
}
