//! Elements that are moved and not looked at. They are known by their size alone: 1, 2, 4, 8 or 16 bytes.

use serde::{Deserialize, Serialize};

use crate::diagonals::Diagonals;

/// The movement of elements. Indices, sizes and strides count elements.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "shape: of the input; the other fields are said above them")]
pub enum Movement {
    /// `BroadcastTo`: dimensions of 1, and missing ones on the left, are repeated. Arguments: input, output.
    BroadcastTo { from: Vec<u64>, to: Vec<u64> },
    /// `ConcatV2`: inputs of these shapes one after the other along `axis`. Arguments: the inputs, output.
    Concat { shapes: Vec<Vec<u64>>, axis: usize },
    /// `MatrixBandPart`, `MatrixDiag`, `MatrixDiagPart`, `MatrixSetDiag`. Arguments: see [`DiagonalForm`](crate::diagonals::DiagonalForm).
    Diagonals(Diagonals),
    /// `Fill`: `elements` copies of a scalar. Arguments: the scalar, output.
    Fill { elements: u64 },
    /// `Pack`: `count` tensors of `shape` along a new dimension `axis`. Arguments: the inputs, output.
    Pack { shape: Vec<u64>, count: usize, axis: usize },
    /// `Pad`, `PadV2`: `(before, after)` elements round each dimension. They are `value`, the bytes of one; without it, the
    /// second input, a scalar. Arguments: input, the value unless it is given here, output.
    Pad { shape: Vec<u64>, paddings: Vec<(u64, u64)>, value: Option<Vec<u8>> },
    /// Each index of the output along dimension `i` has the input's index that `picks[i]` says. Arguments: input, output.
    Pick { shape: Vec<u64>, picks: Vec<Pick> },
    /// `ReverseV2`: the order along `axes` turned round. Arguments: input, output.
    Reverse { shape: Vec<u64>, axes: Vec<usize> },
    /// `Slice`: the block of `sizes` that starts at `begin`. Arguments: input, output.
    Slice { shape: Vec<u64>, begin: Vec<u64>, sizes: Vec<u64> },
    /// `Split`, `SplitV`: parts of these sizes along `axis`. Arguments: input, the outputs.
    Split { shape: Vec<u64>, axis: usize, sizes: Vec<u64> },
    /// `StridedSlice` with everything resolved: element `i` along a dimension is input element `begin + i * stride`. A stride
    /// may be negative, not 0. `sizes` still has the dimensions that are shrunk away, as 1. Arguments: input, output.
    StridedSlice { shape: Vec<u64>, begin: Vec<u64>, strides: Vec<i64>, sizes: Vec<u64> },
    /// `StridedSliceGrad` with everything resolved: zeros of `shape`, and the block where [`Movement::StridedSlice`] would
    /// have taken it. Arguments: the block, output.
    StridedSliceGrad { shape: Vec<u64>, begin: Vec<u64>, strides: Vec<i64>, sizes: Vec<u64> },
    /// `Tile`: the input repeated `multiples[i]` times along dimension `i`. Arguments: input, output.
    Tile { shape: Vec<u64>, multiples: Vec<u64> },
    /// `Transpose`: output dimension `i` is input dimension `perm[i]`. Arguments: input, output.
    Transpose { shape: Vec<u64>, perm: Vec<usize> },
    /// `Unpack`: the tensors along dimension `axis`. Arguments: input, the outputs.
    Unpack { shape: Vec<u64>, axis: usize },
}

/// The input's index along a dimension for each index of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields are TensorFlow's, or said above them")]
pub enum Pick {
    /// The same index.
    All,
    /// `MirrorPad`: `before` and `after` elements are those of the other side of the border, which is repeated itself where
    /// `edge`.
    Mirror { before: u64, after: u64, edge: bool },
    /// `ResizeNearestNeighbor` to `size` elements.
    Nearest { size: u64, align_corners: bool, half_pixel_centers: bool },
    /// The elements of windows of `taps`, one behind another: from window to window `stride`, from tap to tap `rate`.
    Windows { positions: u64, taps: u64, stride: u64, rate: u64 },
}

impl Pick {
    /// How many elements the output has for `from` of the input; none where that is no pick, or too many.
    pub fn size(self, from: u64) -> Option<u64> {
        match self {
            Pick::All => Some(from),
            Pick::Mirror { before, after, edge } => {
                let most = if edge { from } else { from.saturating_sub(1) };
                let fits = before.max(after) <= most;
                fits.then(|| from.checked_add(before)?.checked_add(after)).flatten()
            }
            Pick::Nearest { size, .. } => (from > 0 || size == 0).then_some(size),
            Pick::Windows { positions, taps, stride, rate } => {
                let size = positions.checked_mul(taps)?;
                if size == 0 {
                    return Some(0);
                }
                let last = (positions - 1).checked_mul(stride)?.checked_add((taps - 1).checked_mul(rate)?)?;
                (last < from).then_some(size)
            }
        }
    }

    /// The input's index for index `at`, which is below [`Pick::size`] of `from`. It is below `from`.
    #[inline(always)]
    pub fn index(self, from: u64, at: u64) -> u64 {
        match self {
            Pick::All => at,
            Pick::Mirror { before, edge, .. } => {
                let skipped = u64::from(!edge);
                if at < before {
                    before - 1 - at + skipped
                } else if at - before < from {
                    at - before
                } else {
                    2 * from - 1 - (at - before) - skipped
                }
            }
            Pick::Nearest { size, align_corners, half_pixel_centers } => {
                let scale = crate::resample::scale(from, size, align_corners);
                let place = if half_pixel_centers { (at as f32 + 0.5) * scale } else { at as f32 * scale };
                let place = if align_corners { libm::roundf(place) } else { libm::floorf(place) };
                (place as u64).min(from - 1)
            }
            Pick::Windows { taps, stride, rate, .. } => at / taps * stride + at % taps * rate,
        }
    }
}
