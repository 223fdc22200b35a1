//! Slices of tensors: how they are written, whether they make a whole, and where their bytes are in it.

use plimsoll_base::{Error, Result};
use plimsoll_graph::Shape;

use super::{Extent, TensorSliceProto};

/// A part of a tensor, as `shape_and_slices` of SaveV2 and RestoreV2 name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The shape of the whole tensor.
    pub whole: Shape,
    /// Start and length in every dimension.
    pub(super) extents: Vec<(usize, usize)>,
}

impl Slice {
    /// Reads `5 3 0,2:-`: the dimensions of the whole, then start and length in each, `-` where all of it is meant. None where the
    /// text is no such slice or reaches beyond the whole.
    pub fn parse(text: &str) -> Option<Slice> {
        let (dims, parts) = text.rsplit_once(' ').unwrap_or(("", text));
        let whole: Shape = dims.split(' ').filter(|dim| !dim.is_empty()).map(|dim| dim.parse().ok()).collect::<Option<Vec<u64>>>()?.into();
        let parts: Vec<&str> = parts.split(':').filter(|part| !part.is_empty()).collect();
        if parts.len() != whole.rank() {
            return None;
        }
        let extent = |(part, dim): (&&str, &u64)| {
            let (start, length) = match *part {
                "-" => (0, *dim),
                part => part.split_once(',').and_then(|(start, length)| {
                    let start: u64 = start.parse().ok()?;
                    Some((start, if length == "-" { dim.checked_sub(start)? } else { length.parse().ok()? }))
                })?,
            };
            start.checked_add(length).filter(|end| end <= dim)?;
            Some((usize::try_from(start).ok()?, usize::try_from(length).ok()?))
        };
        let extents = parts.iter().zip(whole.iter()).map(extent).collect::<Option<Vec<_>>>()?;
        whole.elements().ok()?;
        Some(Slice { whole, extents })
    }

    /// The shape of the part.
    pub fn shape(&self) -> Shape {
        self.extents.iter().map(|(_, length)| *length as u64).collect()
    }

    /// Whether it is a part of a tensor of that shape.
    ///
    /// # Errors
    /// INVALID_ARGUMENT with both shapes.
    pub(super) fn check(&self, name: &str, shape: &Shape) -> Result<()> {
        match self.whole == *shape {
            true => Ok(()),
            false => Err(Error::invalid_argument(format!(
                "a slice of '{name}' is one of a tensor {}, in the checkpoint it is {shape}",
                self.whole
            ))),
        }
    }
}

/// The parts of a whole that are in a slice, with their places there.
pub(super) struct Window<'a> {
    slice: &'a Slice,
    size: usize,
}

impl Window<'_> {
    pub(super) fn new(slice: &Slice, size: usize) -> Window<'_> {
        Window { slice, size }
    }

    /// Hands out what is in the slice of `bytes`, which begin at byte `at` of the whole, both on element boundaries.
    pub(super) fn each(&self, at: u64, bytes: &[u8], give: &mut dyn FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        let (whole, extents) = (&self.slice.whole, &self.slice.extents);
        let row = whole.iter().last().map_or(1, |dim| *dim as usize);
        let (first, length) = extents.last().copied().unwrap_or((0, 1));
        let (mut element, mut bytes) = (at as usize / self.size, bytes);
        while !bytes.is_empty() {
            let column = element % row;
            let count = (row - column).min(bytes.len() / self.size);
            let (now, later) = bytes.split_at(count * self.size);
            // The row's place in the slice, if the slice has it.
            let (mut rest, mut place, mut stride, mut is_inside) = (element / row, 0, 1, true);
            for axis in (0..extents.len().saturating_sub(1)).rev() {
                let dim = whole[axis] as usize;
                let (start, length) = extents[axis];
                let index = rest % dim;
                is_inside &= (start..start + length).contains(&index);
                place += index.saturating_sub(start) * stride;
                stride *= length;
                rest /= dim;
            }
            let (from, to) = (column.max(first), (column + count).min(first + length));
            if is_inside && from < to {
                let part = &now[(from - column) * self.size..(to - column) * self.size];
                give(((place * length + from - first) * self.size) as u64, part)?;
            }
            element += count;
            bytes = later;
            if count == 0 {
                return Err(Error::internal("a piece that is no whole number of elements"));
            }
        }
        Ok(())
    }
}

/// Start and length of a slice in every dimension.
///
/// # Errors
/// DATA_LOSS where it is no part of the tensor.
pub(super) fn extents_of(slice: &TensorSliceProto, shape: &Shape) -> Result<Vec<(usize, usize)>> {
    if slice.extent.len() != shape.rank() {
        return Err(Error::data_loss("a slice and its tensor differ in rank"));
    }
    let extent = |(extent, dim): (&Extent, &u64)| {
        let (start, length) = (u64::try_from(extent.start).ok()?, extent.length.map_or(Some(*dim), |length| u64::try_from(length).ok())?);
        start.checked_add(length).filter(|end| end <= dim)?;
        Some((start as usize, length as usize))
    };
    let extents = slice.extent.iter().zip(shape.iter()).map(extent).collect::<Option<Vec<_>>>();
    extents.ok_or_else(|| Error::data_loss("a slice reaches beyond its tensor"))
}

/// Start and length as the keys of slices have them.
pub(super) fn raw_extents(slice: &TensorSliceProto) -> Vec<(i64, i64)> {
    slice.extent.iter().map(|extent| (extent.start, extent.length.unwrap_or(-1))).collect()
}

/// Whether slices make a whole of so many elements, each of them once.
///
/// # Errors
/// DATA_LOSS where two overlap; INVALID_ARGUMENT where there are gaps; UNIMPLEMENTED for more slices than are compared.
pub(super) fn check_cover(name: &str, parts: &[&[(usize, usize)]], elements: u64) -> Result<()> {
    // Every two of them are compared.
    const MOST: usize = 4096;
    if parts.len() > MOST {
        return Err(Error::unimplemented(format!("not yet: a tensor in {} slices", parts.len())));
    }
    let apart = |(a, b): (&(usize, usize), &(usize, usize))| a.0 + a.1 <= b.0 || b.0 + b.1 <= a.0;
    let is_apart = |a: &[(usize, usize)], b: &[(usize, usize)]| {
        [a, b].iter().any(|part| part.iter().any(|(_, length)| *length == 0)) || a.iter().zip(b).any(apart)
    };
    let mut covered = 0u64;
    for (index, extents) in parts.iter().enumerate() {
        if !parts[..index].iter().all(|other| is_apart(extents, other)) {
            return Err(Error::data_loss("slices overlap"));
        }
        covered = covered.saturating_add(extents.iter().map(|(_, length)| *length as u64).fold(1, u64::saturating_mul));
    }
    // Slices that do not overlap and have as many elements as the tensor cover it.
    if covered == elements { Ok(()) } else { Err(insufficient(name)) }
}

pub(super) fn insufficient(name: &str) -> Error {
    Error::invalid_argument(format!("Does not have sufficient slices for {name}"))
}

/// Where the bytes of a slice go in its tensor: in runs that are dense in both.
pub(super) struct Rows {
    /// Bytes of a run.
    run: usize,
    /// Length and stride in bytes of every dimension outside of a run, the last first.
    outer: Vec<(usize, usize)>,
    /// Where the first run begins in the tensor.
    first: usize,
}

impl Rows {
    pub(super) fn new(extents: &[(usize, usize)], shape: &Shape, size: usize) -> Rows {
        let (mut run, mut stride, mut first, mut outer, mut dense) = (size, size, 0, Vec::new(), true);
        for (&(start, length), dim) in extents.iter().zip(shape.iter()).rev() {
            first += start * stride;
            if dense {
                run *= length;
                dense = length as u64 == *dim;
            } else {
                outer.push((length, stride));
            }
            stride *= *dim as usize;
        }
        Rows { run, outer, first }
    }

    /// Hands out `bytes`, which begin at byte `at` of the slice, run by run.
    pub(super) fn each(&self, at: u64, bytes: &[u8], piece: &mut dyn FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        let (mut at, mut bytes) = (at as usize, bytes);
        while !bytes.is_empty() {
            let (number, inside) = (at / self.run, at % self.run);
            let (mut rest, mut place) = (number, self.first + inside);
            for (length, stride) in &self.outer {
                place += rest % length * stride;
                rest /= length;
            }
            let (now, later) = bytes.split_at(bytes.len().min(self.run - inside));
            piece(place as u64, now)?;
            (at, bytes) = (at + now.len(), later);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_parsed() {
        let slice = Slice::parse("5 3 3,2:-").unwrap();
        assert_eq!((slice.whole.dims(), &slice.extents[..]), (&[5, 3][..], &[(3, 2), (0, 3)][..]));
        assert_eq!(slice.shape().dims(), [2, 3]);
        assert_eq!(Slice::parse("4 1,-").unwrap().extents, [(1, 3)]);
        for text in ["5 3 3,3:-", "5 3 -", "5 -1:-", "5 x", "5 3", "18446744073709551615 2 -:-"] {
            assert_eq!(Slice::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_window_gives_each_byte_of_the_slice_once() {
        let whole: Vec<u8> = (0..60).flat_map(|element: u8| [element, 100 + element]).collect();
        for text in ["3 4 5 1,2:0,3:2,3", "3 4 5 -:-:-", "3 4 5 2,1:3,1:4,1", "3 4 5 -:1,0:-", "60 7,20"] {
            let slice = Slice::parse(text).unwrap();
            let (window, mut got) = (Window::new(&slice, 2), vec![0u8; slice.shape().elements().unwrap() as usize * 2]);
            for piece in [14, 120, 2] {
                let mut given = 0;
                for (index, bytes) in whole.chunks(piece).enumerate() {
                    window
                        .each((index * piece) as u64, bytes, &mut |at, bytes| {
                            got[at as usize..][..bytes.len()].copy_from_slice(bytes);
                            given += bytes.len();
                            Ok(())
                        })
                        .unwrap();
                }
                assert_eq!(given, got.len(), "{text}");
            }
            // The same by coordinates.
            let expected: Vec<u8> = (0..60usize)
                .filter(|element| {
                    let place = if slice.whole.rank() == 1 { vec![*element] } else { vec![element / 20, element / 5 % 4, element % 5] };
                    place.iter().zip(&slice.extents).all(|(at, (start, length))| (*start..start + length).contains(at))
                })
                .flat_map(|element| [element as u8, 100 + element as u8])
                .collect();
            assert_eq!(got, expected, "{text}");
        }
    }
}
