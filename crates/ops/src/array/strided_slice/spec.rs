//! The meaning of begin, end, strides and the five masks of a strided slice (TensorFlow's `ValidateStridedSliceOp`).

use plimsoll_base::{Error, Result};
use plimsoll_graph::{Attrs, AttrsExt};

/// A slice as it is spelled: one entry for each index expression.
pub(crate) struct Spec {
    /// First elements; none for those that are known only when the graph runs.
    pub begin: Vec<Option<i64>>,
    /// Ends; none for those that are known only when the graph runs.
    pub end: Vec<Option<i64>>,
    /// Steps.
    pub strides: Vec<i64>,
    /// Bit i: entry i begins at the first element (or the last, for a negative step).
    pub begin_mask: i64,
    /// Bit i: entry i ends past the last element (or the first).
    pub end_mask: i64,
    /// Bit i: entry i stands for as many whole axes as are left over.
    pub ellipsis_mask: i64,
    /// Bit i: entry i is a new axis of length 1.
    pub new_axis_mask: i64,
    /// Bit i: entry i picks one element, and its axis goes away.
    pub shrink_axis_mask: i64,
}

/// A slice with one entry for each axis of the input.
#[derive(Debug, PartialEq)]
pub(crate) struct Slice {
    /// The first element along each axis, where it is known.
    pub begin: Vec<Option<i64>>,
    /// The entry of each axis; none for an axis that has none.
    pub entries: Vec<Option<usize>>,
    /// The step along each axis.
    pub strides: Vec<i64>,
    /// How many elements along each axis.
    pub sizes: Vec<Option<u64>>,
    /// The result's shape: with new axes, without those of single elements.
    pub shape: Vec<Option<u64>>,
    /// The axis that each dimension of the result comes from; none for a new one.
    pub places: Vec<Option<usize>>,
}

#[derive(Clone, Copy, Default)]
struct Entry {
    position: Option<usize>,
    begin: Option<i64>,
    end: Option<i64>,
    stride: i64,
    begin_masked: bool,
    end_masked: bool,
    shrink: bool,
}

impl Spec {
    /// Reads the masks from a node's attributes.
    pub fn new(attrs: &Attrs, begin: Option<Vec<Option<i64>>>, end: Option<Vec<Option<i64>>>, strides: Vec<i64>) -> Result<Spec> {
        let mask = |name: &str| attrs.int(name);
        Ok(Spec {
            begin: begin.unwrap_or_else(|| vec![None; strides.len()]),
            end: end.unwrap_or_else(|| vec![None; strides.len()]),
            strides,
            begin_mask: mask("begin_mask")?,
            end_mask: mask("end_mask")?,
            ellipsis_mask: mask("ellipsis_mask")?,
            new_axis_mask: mask("new_axis_mask")?,
            shrink_axis_mask: mask("shrink_axis_mask")?,
        })
    }

    /// The slice of a tensor with these dimensions.
    ///
    /// # Errors
    /// INVALID_ARGUMENT in TensorFlow's words.
    pub fn resolve(&self, dims: &[Option<u64>]) -> Result<Slice> {
        let count = self.strides.len();
        if self.begin.len() != count || self.end.len() != count || count > 63 {
            return Err(Error::invalid_argument(format!(
                "Expected begin, end, and strides to be 1D equal size tensors, but got shapes [{}], [{}], and [{count}] instead.",
                self.begin.len(),
                self.end.len()
            )));
        }
        let (entries, layout) = self.spread(dims.len())?;
        let rank = entries.len();
        let mut slice = Slice {
            begin: Vec::with_capacity(rank),
            entries: entries.iter().map(|entry| entry.position).collect(),
            strides: entries.iter().map(|entry| entry.stride).collect(),
            sizes: Vec::with_capacity(rank),
            shape: Vec::new(),
            places: layout,
        };
        for (axis, (entry, dim)) in entries.iter().zip(dims).enumerate() {
            let (begin, size) = entry.cut(axis, dim.map(|dim| i64::try_from(dim).unwrap_or(i64::MAX)))?;
            slice.begin.push(begin);
            slice.sizes.push(size);
        }
        slice.shape = slice.places.iter().map(|place| place.map_or(Some(1), |axis| slice.sizes[axis])).collect();
        Ok(slice)
    }

    /// One entry for each of `rank` axes; and where each dimension of the result comes from (none for a new one).
    fn spread(&self, rank: usize) -> Result<(Vec<Entry>, Vec<Option<usize>>)> {
        let bit = |mask: i64, position: usize| mask >> position & 1 == 1;
        let count = self.strides.len();
        let ellipsis = (0..count).find(|position| bit(self.ellipsis_mask, *position));
        if ellipsis.is_some_and(|first| (first + 1..count).any(|position| bit(self.ellipsis_mask, position))) {
            return Err(Error::invalid_argument("Multiple ellipses in slice spec not allowed"));
        }
        let whole = Entry { stride: 1, begin_masked: true, end_masked: true, ..Entry::default() };
        let (mut entries, mut layout) = (Vec::with_capacity(rank), Vec::new());
        for position in 0..count {
            if Some(position) == ellipsis {
                let later_new = (position + 1..count).filter(|later| bit(self.new_axis_mask, *later)).count();
                let next = (rank + 1 + later_new).saturating_sub(count - position).min(rank);
                while entries.len() < next {
                    layout.push(Some(entries.len()));
                    entries.push(whole);
                }
            } else if bit(self.new_axis_mask, position) {
                layout.push(None);
            } else {
                if entries.len() == rank {
                    return Err(Error::invalid_argument(format!("Index out of range using input dim {rank}; input has only {rank} dims")));
                }
                let shrink = bit(self.shrink_axis_mask, position);
                if !shrink {
                    layout.push(Some(entries.len()));
                }
                entries.push(Entry {
                    position: Some(position),
                    begin: self.begin[position],
                    end: self.end[position],
                    stride: self.strides[position],
                    begin_masked: bit(self.begin_mask, position),
                    end_masked: bit(self.end_mask, position),
                    shrink,
                });
            }
        }
        while entries.len() < rank {
            layout.push(Some(entries.len()));
            entries.push(whole);
        }
        Ok((entries, layout))
    }
}

impl Entry {
    /// The first element and how many there are, as far as they are known.
    fn cut(&self, axis: usize, dim: Option<i64>) -> Result<(Option<i64>, Option<u64>)> {
        if self.stride == 0 {
            return Err(Error::invalid_argument(format!("strides[{axis}] must be non-zero")));
        }
        if self.shrink && self.stride < 0 {
            return Err(Error::invalid_argument("only stride 1 allowed on non-range indexing."));
        }
        if self.shrink {
            let begin = self.begin.zip(dim).map(|(begin, dim)| {
                let place = if begin < 0 { begin.saturating_add(dim) } else { begin };
                let inside = (0..dim).contains(&place).then_some(place);
                inside.ok_or_else(|| Error::invalid_argument(format!("slice index {place} of dimension {axis} out of bounds.")))
            });
            return Ok((begin.transpose()?, Some(1)));
        }
        let Some(dim) = dim else {
            // Without the length, the ends count only where both are counted from the same side.
            let counted = !self.begin_masked && !self.end_masked && self.stride > 0;
            let empty = counted && self.end == Some(0) && self.begin.is_some_and(|begin| begin >= 0);
            return Ok((None, empty.then_some(0)));
        };
        let (low, high) = if self.stride > 0 { (0, dim) } else { (-1, dim - 1) };
        let clamp = |value: i64| (if value < 0 { value.saturating_add(dim) } else { value }).clamp(low, high.max(low));
        let (first, last) = if self.stride > 0 { (low, high) } else { (high, low) };
        let begin = if self.begin_masked { Some(first) } else { self.begin.map(clamp) };
        let end = if self.end_masked { Some(last) } else { self.end.map(clamp) };
        let size = begin.zip(end).map(|(begin, end)| match end - begin {
            interval if interval == 0 || (interval < 0) != (self.stride < 0) => 0,
            interval => interval.unsigned_abs().div_ceil(self.stride.unsigned_abs()),
        });
        Ok((begin, size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(begin: &[i64], end: &[i64], strides: &[i64]) -> Spec {
        Spec {
            begin: begin.iter().copied().map(Some).collect(),
            end: end.iter().copied().map(Some).collect(),
            strides: strides.to_vec(),
            begin_mask: 0,
            end_mask: 0,
            ellipsis_mask: 0,
            new_axis_mask: 0,
            shrink_axis_mask: 0,
        }
    }

    #[test]
    fn x_0_to_2_ellipsis_new_reversed() {
        // x[1, ..., newaxis, ::-1] of a tensor [3, 4, 5, 6].
        let spec = Spec {
            shrink_axis_mask: 1,
            ellipsis_mask: 2,
            new_axis_mask: 4,
            begin_mask: 8,
            end_mask: 8,
            ..spec(&[1, 0, 0, 0], &[2, 0, 0, 0], &[1, 1, 1, -1])
        };
        let slice = spec.resolve(&[Some(3), Some(4), Some(5), Some(6)]).unwrap();
        assert_eq!(slice.begin, [1, 0, 0, 5].map(Some));
        assert_eq!(slice.entries, [Some(0), None, None, Some(3)]);
        assert_eq!(slice.places, [Some(1), Some(2), None, Some(3)]);
        assert_eq!(slice.strides, [1, 1, 1, -1]);
        assert_eq!(slice.shape, [Some(4), Some(5), Some(1), Some(6)]);
    }

    #[test]
    fn ends_are_clamped_and_unknown_lengths_stay_unknown() {
        assert_eq!(spec(&[-100], &[100], &[2]).resolve(&[Some(5)]).unwrap().sizes, [Some(3)]);
        assert_eq!(spec(&[4], &[0], &[-2]).resolve(&[Some(5)]).unwrap().sizes, [Some(2)]);
        assert_eq!(spec(&[3], &[1], &[1]).resolve(&[Some(5)]).unwrap().sizes, [Some(0)]);
        assert_eq!(spec(&[0], &[2], &[1]).resolve(&[None]).unwrap().sizes, [None]);
        assert_eq!(spec(&[i64::MIN], &[i64::MAX], &[i64::MIN]).resolve(&[Some(0)]).unwrap().sizes, [Some(0)]);
    }

    #[test]
    fn an_index_that_only_the_run_knows_picks_one_element() {
        // x[i, 1:j, 2:] of a tensor [3, 4, 5].
        let mut spec = Spec { shrink_axis_mask: 1, end_mask: 4, ..spec(&[0, 1, 2], &[0; 3], &[1; 3]) };
        (spec.begin[0], spec.end[0], spec.end[1]) = (None, None, None);
        let slice = spec.resolve(&[Some(3), Some(4), Some(5)]).unwrap();
        assert_eq!((slice.begin, slice.sizes), (vec![None, Some(1), Some(2)], vec![Some(1), None, Some(3)]));
    }

    #[test]
    fn what_cannot_be_is_said_in_tensorflows_words() {
        let message =
            |spec: Spec, dims: &[u64]| spec.resolve(&dims.iter().copied().map(Some).collect::<Vec<_>>()).unwrap_err().message().to_string();
        assert_eq!(message(spec(&[0; 3], &[1; 3], &[1; 3]), &[3, 2]), "Index out of range using input dim 2; input has only 2 dims");
        assert_eq!(message(spec(&[0], &[1], &[0]), &[3, 2]), "strides[0] must be non-zero");
        assert_eq!(message(Spec { shrink_axis_mask: 1, ..spec(&[5], &[6], &[1]) }, &[3]), "slice index 5 of dimension 0 out of bounds.");
        assert_eq!(message(Spec { shrink_axis_mask: 1, ..spec(&[1], &[6], &[-1]) }, &[3]), "only stride 1 allowed on non-range indexing.");
        assert_eq!(
            message(Spec { ellipsis_mask: 3, ..spec(&[1; 2], &[6; 2], &[1; 2]) }, &[3]),
            "Multiple ellipses in slice spec not allowed"
        );
    }
}
