//! RaggedTensorToTensor: rows filled up to the same length.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{AttrsExt, HostTensor, Node, PartialShape, Shape};

use super::super::{bytes, rule};
use super::{rows, splits};
use crate::OpRules;
use crate::infer::InferCx;

pub(super) const RULE: OpRules = rule("RaggedTensorToTensor", infer, compute);

/// More rows than this are not looked at.
const MOST_ROWS: usize = 1 << 26;

/// How the partition of a dimension is given.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    FirstDimSize,
    ValueRowids,
    RowSplits,
}

fn kinds(node: &Node) -> Result<Vec<Kind>> {
    let kind = |text: &Vec<u8>| match &text[..] {
        b"FIRST_DIM_SIZE" => Ok(Kind::FirstDimSize),
        b"VALUE_ROWIDS" => Ok(Kind::ValueRowids),
        b"ROW_SPLITS" => Ok(Kind::RowSplits),
        other => Err(Error::invalid_argument(format!("unsupported row partition type {}", String::from_utf8_lossy(other)))),
    };
    node.attrs.list("row_partition_types")?.bytes.iter().map(kind).collect()
}

/// How many dimensions are ragged.
fn depth(kinds: &[Kind]) -> usize {
    kinds.iter().filter(|kind| **kind != Kind::FirstDimSize).count()
}

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let depth = depth(&kinds(cx.node)?);
    let Some(values) = cx.dims(1).filter(|dims| !dims.is_empty()).map(<[Option<u64>]>::to_vec) else { return Ok(()) };
    let mut dims = [vec![None; depth + 1], values[1..].to_vec()].concat();
    if let (Some(ints), Some([_])) = (cx.ints(0), cx.dims(0)) {
        for (dim, int) in dims.iter_mut().zip(ints) {
            *dim = u64::try_from(int).ok().or(*dim);
        }
    }
    cx.set(0, PartialShape(Some(dims)));
    Ok(())
}

/// The children of each row: where they begin, and where they end.
fn partition(kind: Kind, tensor: &HostTensor, parents: usize) -> Result<Vec<(usize, usize)>> {
    if kind == Kind::RowSplits {
        let splits = splits(tensor, None)?;
        if splits.len() != parents + 1 {
            return Err(Error::invalid_argument(format!("{} row splits for {parents} rows", splits.len())));
        }
        return Ok(splits.windows(2).map(|pair| (pair[0], pair[1])).collect());
    }
    let mut children = vec![(0, 0); parents];
    let mut last = 0;
    for (child, row) in tensor.to_i64s().unwrap_or_default().into_iter().enumerate() {
        let parent = usize::try_from(row).ok().filter(|row| *row < parents && *row >= last);
        let parent = parent.ok_or_else(|| Error::invalid_argument(format!("row id {row} is out of order, or not in [0, {parents})")))?;
        if children[parent].0 == children[parent].1 {
            children[parent] = (child, child);
        }
        children[parent].1 = child + 1;
        last = parent;
    }
    Ok(children)
}

fn compute(node: &Node, inputs: &[&HostTensor]) -> Result<Vec<HostTensor>> {
    let kinds = kinds(node)?;
    let (wanted, values, default) = (inputs[0], inputs[1], inputs[2]);
    let tensors = &inputs[3..];
    if tensors.len() != kinds.len() || kinds.is_empty() || values.shape().rank() == 0 {
        return Err(Error::invalid_argument("row_partition_tensors must be as many as row_partition_types"));
    }
    let (first, before) = match kinds[0] {
        Kind::FirstDimSize => {
            let size = super::super::int(tensors[0], "first dimension size")?;
            (usize::try_from(size).map_err(|_| Error::invalid_argument("the first dimension is negative"))?, 1)
        }
        Kind::RowSplits => (rows(tensors[0]).saturating_sub(1), 0),
        Kind::ValueRowids => return Err(Error::invalid_argument("Cannot handle VALUE_ROWIDS in first dimension.")),
    };
    if first > MOST_ROWS {
        return Err(Error::unimplemented(format!("not yet: {first} ragged rows, which are more than {MOST_ROWS}")));
    }
    let mut levels: Vec<Vec<(usize, usize)>> = Vec::new();
    let mut parents = first;
    for (kind, tensor) in kinds.iter().zip(tensors).skip(before) {
        let level = partition(*kind, tensor, parents)?;
        parents = level.last().map_or(0, |row| row.1).max(level.iter().map(|row| row.1).max().unwrap_or(0));
        levels.push(level);
    }
    if parents > rows(values) {
        return Err(Error::invalid_argument(format!("partitions of {parents} values, and there are {}", rows(values))));
    }
    let widest = levels.iter().map(|level| level.iter().map(|row| (row.1 - row.0) as u64).max().unwrap_or(0));
    let mut dims: Vec<u64> = std::iter::once(first as u64).chain(widest).chain(values.shape().iter().skip(1).copied()).collect();
    if wanted.shape().rank() == 1 {
        let ints = wanted.to_i64s().unwrap_or_default();
        if ints.len() != dims.len() {
            return Err(Error::invalid_argument(format!("a shape of {} dimensions for a tensor of {}", ints.len(), dims.len())));
        }
        for (dim, int) in dims.iter_mut().zip(ints) {
            *dim = u64::try_from(int).unwrap_or(*dim);
        }
    }
    if dims[levels.len() + 1..] != values.shape().dims()[1..] {
        return Err(Error::invalid_argument(format!("values of shape {} in a tensor of {}", values.shape(), Shape::from(dims))));
    }
    let shape = Shape::from(dims.clone());
    let mut result = HostTensor::zeros(values.data_type(), shape)?;
    let inner: usize = dims[levels.len() + 1..].iter().product::<u64>() as usize;
    let element = values.data_type().size().unwrap_or(1);
    let row = inner * element;
    let filled = fill(default, &dims[levels.len() + 1..], element)?;
    let out = result.bytes_mut().ok_or_else(|| Error::internal("a tensor of zeros is not dense"))?;
    if row > 0 {
        out.chunks_exact_mut(row).for_each(|chunk| chunk.copy_from_slice(&filled));
    }
    // Where each row of the level at hand goes, if it has room.
    let mut places: Vec<Option<usize>> = (0..first).map(|row| Some(row).filter(|row| (*row as u64) < dims[0])).collect();
    for (level, size) in levels.iter().zip(&dims[1..]) {
        let count = level.iter().map(|row| row.1).max().unwrap_or(0);
        let mut next = vec![None; count];
        for ((begin, end), place) in level.iter().zip(&places) {
            for (position, child) in next[*begin..*end].iter_mut().enumerate() {
                *child = place.filter(|_| (position as u64) < *size).map(|place| place * *size as usize + position);
            }
        }
        places = next;
    }
    let from = bytes(values)?;
    for (child, place) in places.iter().enumerate() {
        if let Some(place) = place {
            out[place * row..][..row].copy_from_slice(&from[child * row..][..row]);
        }
    }
    Ok(vec![result])
}

/// The default value, as often as an inner shape has it.
fn fill(default: &HostTensor, inner: &[u64], element: usize) -> Result<Vec<u8>> {
    let dense = default.dense()?;
    let (value, dims) = (bytes(&dense)?, default.shape().dims());
    let skip = inner.len().checked_sub(dims.len());
    let fits = skip.is_some_and(|skip| dims.iter().zip(&inner[skip..]).all(|(dim, inner)| *dim == 1 || dim == inner));
    let (Some(skip), true) = (skip, fits) else {
        return Err(Error::invalid_argument(format!(
            "default_value of shape {} does not fit {}",
            default.shape(),
            Shape::from(inner.to_vec())
        )));
    };
    let count = inner.iter().product::<u64>() as usize;
    let mut filled = Vec::with_capacity(count * element);
    let mut index = vec![0u64; inner.len()];
    for _ in 0..count {
        let at = dims.iter().zip(&index[skip..]).fold(0, |at, (dim, index)| at * dim + if *dim == 1 { 0 } else { *index });
        filled.extend_from_slice(&value[at as usize * element..][..element]);
        for (axis, at) in index.iter_mut().enumerate().rev() {
            *at += 1;
            if *at < inner[axis] {
                break;
            }
            *at = 0;
        }
    }
    Ok(filled)
}
