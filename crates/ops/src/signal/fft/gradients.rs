//! Gradients of Fourier transforms, as TensorFlow's `fft_ops.py` has them.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{AttrValue, NodeId, Output};

use crate::GraphBuilder;
use crate::gradient::{Grad, from_one};

type Gradients = Result<Vec<Option<Output>>>;

/// The inverse transform times the number of points.
pub(super) fn forward<const N: usize>(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Gradients {
    from_one(builder, node, gradients, |g, gradient| {
        let back = g.op(["IFFT", "IFFT2D", "IFFT3D"][N - 1], &[gradient])?;
        let points = points(g, gradient, back, N)?;
        Ok(vec![Some(g.mul(back, points)?)])
    })
}

/// The transform divided by the number of points.
pub(super) fn inverse<const N: usize>(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Gradients {
    from_one(builder, node, gradients, |g, gradient| {
        let forth = g.op(["FFT", "FFT2D", "FFT3D"][N - 1], &[gradient])?;
        let points = points(g, gradient, forth, N)?;
        Ok(vec![Some(g.op("RealDiv", &[forth, points])?)])
    })
}

/// Half of the inverse times the number of points, and of what the first and the middle frequency, which have no conjugates, add.
pub(super) fn real_of_rows(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Gradients {
    from_one(builder, node, gradients, |g, gradient| {
        let length = known_lengths(g)?[0];
        let first = frequency(g, gradient, true)?;
        let mut extra = g.part("Real", first)?;
        if length % 2 == 0 {
            let middle = frequency(g, gradient, false)?;
            let middle = g.part("Real", middle)?;
            let signs = alternating(g, middle, g.input(0))?;
            let term = g.mul(middle, signs)?;
            extra = g.op("AddV2", &[extra, term])?;
        }
        half_of_sum(g, gradient, extra, "IRFFT", 1)
    })
}

/// As [`real_of_rows`]. What the first and the middle frequency of rows add is a transform of their conjugates along columns.
pub(super) fn real_of_matrices(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Gradients {
    from_one(builder, node, gradients, |g, gradient| {
        let length = known_lengths(g)?[1];
        let first = frequency(g, gradient, true)?;
        let mut extra = of_columns(g, first)?;
        if length % 2 == 0 {
            let middle = frequency(g, gradient, false)?;
            let middle = of_columns(g, middle)?;
            let signs = alternating(g, middle, g.input(0))?;
            let term = g.mul(middle, signs)?;
            extra = g.op("AddV2", &[extra, term])?;
        }
        half_of_sum(g, gradient, extra, "IRFFT2D", 2)
    })
}

/// The transform divided by the number of points, twice of what stands for a conjugate too.
pub(super) fn inverse_real<const N: usize>(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Gradients {
    from_one(builder, node, gradients, |g, gradient| {
        let length = known_lengths(g)?[N - 1];
        let pair = g.data_type(g.input(0));
        let forth = g.op_with(["RFFT", "RFFT2D"][N - 1], &[gradient, g.input(1)], &[("Tcomplex", AttrValue::data_type(pair))])?;
        let points = points(g, gradient, gradient, N)?;
        let half = length / 2 + 1;
        let mut mask = vec![2.0; half as usize];
        mask[0] = 1.0;
        if length % 2 == 0 {
            mask[half as usize - 1] = 1.0;
        }
        let mask = g.numbers(gradient, &mask)?;
        let scale = g.op("RealDiv", &[mask, points])?;
        let scale = g.op_with("Cast", &[scale], &[("DstT", AttrValue::data_type(pair))])?;
        Ok(vec![Some(g.mul(forth, scale)?), None])
    })
}

/// `(inverse(gradient) * points + extra) / 2`.
fn half_of_sum(g: &mut Grad<'_>, gradient: Output, extra: Output, inverse: &str, dims: usize) -> Gradients {
    let part = g.data_type(g.input(0));
    let back = g.op_with(inverse, &[gradient, g.input(1)], &[("Treal", AttrValue::data_type(part))])?;
    let points = points(g, g.input(0), back, dims)?;
    let scaled = g.mul(back, points)?;
    let sum = g.op("AddV2", &[scaled, extra])?;
    Ok(vec![Some(g.scale(sum, 0.5)?), None])
}

/// The lengths of the transform.
fn known_lengths(g: &Grad<'_>) -> Result<Vec<i64>> {
    let unknown =
        || Error::unimplemented(format!("not yet: the gradient of {} whose fft_length is known only when the graph runs", g.op_name()));
    g.ints_of(g.input(1)).ok_or_else(unknown)
}

/// The product of the last dimensions of a tensor, in the type of another.
fn points(g: &mut Grad<'_>, of: Output, like: Output, dims: usize) -> Result<Output> {
    let known = g.shape_of(of).0.and_then(|shape| {
        let last = shape.len().checked_sub(dims)?;
        shape[last..].iter().copied().product::<Option<u64>>()
    });
    if let Some(points) = known {
        return g.number(like, points as f64);
    }
    let shape = g.shape(of)?;
    let (begin, end, step) = (g.ints(&[-(dims as i64)])?, g.ints(&[0])?, g.ints(&[1])?);
    let last = g.op_with("StridedSlice", &[shape, begin, end, step], &[("end_mask", AttrValue::Int(1))])?;
    let axis = g.ints(&[0])?;
    let product = g.op("Prod", &[last, axis])?;
    let data_type = AttrValue::data_type(g.data_type(like));
    g.op_with("Cast", &[product], &[("DstT", data_type)])
}

/// The first or the last number of each row, as a row.
fn frequency(g: &mut Grad<'_>, tensor: Output, first: bool) -> Result<Output> {
    let (begin, end, step) = (g.ints(&[0, if first { 0 } else { -1 }])?, g.ints(&[0, i64::from(first)])?, g.ints(&[1, 1])?);
    // The first index stands for all other dimensions.
    let masks = [("ellipsis_mask", AttrValue::Int(1)), ("end_mask", AttrValue::Int(if first { 0 } else { 2 }))];
    g.op_with("StridedSlice", &[tensor, begin, end, step], &masks)
}

/// 1, -1, 1, ... along the last dimension of a tensor, in the type of another.
fn alternating(g: &mut Grad<'_>, like: Output, along: Output) -> Result<Output> {
    let data_type = g.data_type(like);
    if let Some(Some(size)) = g.shape_of(along).0.and_then(|shape| shape.last().copied()) {
        let signs: Vec<f64> = (0..size).map(|at| if at % 2 == 0 { 1.0 } else { -1.0 }).collect();
        return g.numbers(like, &signs);
    }
    let shape = g.shape(along)?;
    let (begin, end, step) = (g.ints(&[-1])?, g.ints(&[0])?, g.ints(&[1])?);
    let attrs = [("end_mask", AttrValue::Int(1)), ("shrink_axis_mask", AttrValue::Int(1))];
    let size = g.op_with("StridedSlice", &[shape, begin, end, step], &attrs)?;
    let (zero, one, two) = (g.int(0)?, g.int(1)?, g.int(2)?);
    let numbers = g.op("Range", &[zero, size, one])?;
    let odd = g.op("FloorMod", &[numbers, two])?;
    let double = g.mul(odd, two)?;
    let signs = g.sub(one, double)?;
    g.op_with("Cast", &[signs], &[("DstT", AttrValue::data_type(data_type))])
}

/// The real part of the transform of each column's conjugate, for matrices of one column.
fn of_columns(g: &mut Grad<'_>, columns: Output) -> Result<Output> {
    let conjugate = g.conj(columns)?;
    let axis = g.int(-1)?;
    let row = g.op_with("Squeeze", &[conjugate], &[("squeeze_dims", AttrValue::ints(vec![-1]))])?;
    let made = g.op("FFT", &[row])?;
    let column = g.op("ExpandDims", &[made, axis])?;
    g.part("Real", column)
}
