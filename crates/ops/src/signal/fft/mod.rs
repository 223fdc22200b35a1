//! FFT, IFFT, RFFT, IRFFT of one to three dimensions: Fourier transforms along the last dimensions, one after the other.

mod gradients;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_request::KernelRequest;
use plimsoll_request::fft::{Fft, FftForm};

use crate::infer::count;
use crate::recipe::Ingredient;
use crate::registry::{Gradient, GradientFn};
use crate::{InferCx, KernelCx, Lower, Meta, OpRules, Recipe};

type InferFn = fn(&mut InferCx<'_>) -> Result<()>;
type Make = fn(&KernelCx<'_>) -> Result<Recipe>;

const fn rule(name: &'static str, infer: InferFn, make: Make, gradient: GradientFn) -> OpRules {
    OpRules { name, infer, lower: Lower::Recipe(make), gradient: Gradient::Rule(gradient) }
}

/// A transform that TensorFlow has no gradient for.
const fn without_gradient(name: &'static str, infer: InferFn, make: Make) -> OpRules {
    OpRules { name, infer, lower: Lower::Recipe(make), gradient: Gradient::Unknown }
}

/// The rules of Fourier transforms.
pub const RULES: &[OpRules] = &[
    rule("FFT", complex::<1>, forward::<1>, gradients::forward::<1>),
    rule("FFT2D", complex::<2>, forward::<2>, gradients::forward::<2>),
    rule("FFT3D", complex::<3>, forward::<3>, gradients::forward::<3>),
    rule("IFFT", complex::<1>, inverse::<1>, gradients::inverse::<1>),
    rule("IFFT2D", complex::<2>, inverse::<2>, gradients::inverse::<2>),
    rule("IFFT3D", complex::<3>, inverse::<3>, gradients::inverse::<3>),
    rule("RFFT", real::<1>, of_real::<1>, gradients::real_of_rows),
    rule("RFFT2D", real::<2>, of_real::<2>, gradients::real_of_matrices),
    without_gradient("RFFT3D", real::<3>, of_real::<3>),
    rule("IRFFT", inverse_real::<1>, to_real::<1>, gradients::inverse_real::<1>),
    rule("IRFFT2D", inverse_real::<2>, to_real::<2>, gradients::inverse_real::<2>),
    without_gradient("IRFFT3D", inverse_real::<3>, to_real::<3>),
];

fn complex<const N: usize>(cx: &mut InferCx<'_>) -> Result<()> {
    if let Some(dims) = cx.with_rank_at_least(0, N)? {
        cx.set_dims(0, dims.to_vec());
    }
    Ok(())
}

fn real<const N: usize>(cx: &mut InferCx<'_>) -> Result<()> {
    lengths::<N>(cx, FftForm::Real)
}

fn inverse_real<const N: usize>(cx: &mut InferCx<'_>) -> Result<()> {
    lengths::<N>(cx, FftForm::InverseReal)
}

/// The last dimensions are as input 1 says. The input has at least as many elements along each as its transform takes.
fn lengths<const N: usize>(cx: &mut InferCx<'_>, form: FftForm) -> Result<()> {
    let (input, output) = (cx.inputs[0].data_type, cx.outputs[0].data_type);
    if input.pair().or(input.part()) != Some(output) {
        return Err(Error::invalid_argument(format!("{} makes no {output} of {input}", cx.node.op)));
    }
    let dims = cx.with_rank_at_least(0, N)?;
    if cx.with_rank(1, 1)?.is_some_and(|dims| dims[0].is_some_and(|count| count != N as u64)) {
        return Err(Error::invalid_argument(format!("fft_length must have shape [{N}]")));
    }
    let Some(dims) = dims else { return Ok(()) };
    let outer = dims.len() - N;
    let mut made = dims[..outer].to_vec();
    match cx.ints(1) {
        None => made.extend([None; N]),
        Some(lengths) => {
            for (axis, length) in lengths.iter().enumerate() {
                let points = u64::try_from(*length)
                    .map_err(|_| Error::invalid_argument(format!("fft_length[{axis}] must >= 0, but got: {length}")))?;
                // The last dimension alone has half as many complex numbers.
                let form = if axis + 1 == N { form } else { FftForm::Forward };
                let request = Fft { form, part: DataType::Float, rows: 1, row: 0, length: points };
                made.push(Some(request.given()));
                let place = outer + axis;
                if let Some(size) = dims[place]
                    && size < request.taken()
                    && !dims.contains(&Some(0))
                {
                    let taken = request.taken();
                    return Err(Error::invalid_argument(format!(
                        "Input dimension {place} must have length of at least {taken} but got: {size}"
                    )));
                }
            }
        }
    }
    cx.set_dims(0, made);
    Ok(())
}

fn forward<const N: usize>(cx: &KernelCx<'_>) -> Result<Recipe> {
    of_complex::<N>(cx, FftForm::Forward)
}

fn inverse<const N: usize>(cx: &KernelCx<'_>) -> Result<Recipe> {
    of_complex::<N>(cx, FftForm::Inverse)
}

fn of_complex<const N: usize>(cx: &KernelCx<'_>, form: FftForm) -> Result<Recipe> {
    let mut recipe = Recipe::new();
    let mut tensor = recipe.input(cx, 0);
    for axis in (0..N).map(|axis| tensor.dims().len() - 1 - axis).collect::<Vec<usize>>() {
        let length = tensor.dims()[axis];
        tensor = along(&mut recipe, &tensor, axis, form, length)?;
    }
    Ok(recipe.finish([tensor]))
}

/// The rows first: then there are half as many numbers.
fn of_real<const N: usize>(cx: &KernelCx<'_>) -> Result<Recipe> {
    let lengths = lengths_of::<N>(cx)?;
    let mut recipe = Recipe::new();
    let mut tensor = recipe.input(cx, 0);
    let rank = tensor.dims().len();
    for (at, length) in lengths.into_iter().enumerate().rev() {
        let form = if at + 1 == N { FftForm::Real } else { FftForm::Forward };
        tensor = along(&mut recipe, &tensor, rank - N + at, form, length)?;
    }
    Ok(recipe.finish([tensor]))
}

/// The rows last: until then there are half as many numbers.
fn to_real<const N: usize>(cx: &KernelCx<'_>) -> Result<Recipe> {
    let lengths = lengths_of::<N>(cx)?;
    let mut recipe = Recipe::new();
    let mut tensor = recipe.input(cx, 0);
    let rank = tensor.dims().len();
    for (at, length) in lengths.into_iter().enumerate() {
        let form = if at + 1 == N { FftForm::InverseReal } else { FftForm::Inverse };
        tensor = along(&mut recipe, &tensor, rank - N + at, form, length)?;
    }
    Ok(recipe.finish([tensor]))
}

fn lengths_of<const N: usize>(cx: &KernelCx<'_>) -> Result<[u64; N]> {
    let lengths: Option<Vec<u64>> = cx.ints(1)?.into_iter().map(|length| u64::try_from(length).ok()).collect();
    let lengths = lengths.and_then(|lengths| <[u64; N]>::try_from(lengths).ok());
    lengths.ok_or_else(|| Error::invalid_argument(format!("fft_length must have shape [{N}]")))
}

/// A transform along one dimension, which goes last meanwhile.
fn along(recipe: &mut Recipe, tensor: &Ingredient, axis: usize, form: FftForm, length: u64) -> Result<Ingredient> {
    let last = tensor.dims().len() - 1;
    let mut perm: Vec<usize> = (0..=last).collect();
    perm.swap(axis, last);
    let turned = recipe.transposed(tensor, &perm)?;
    let part = tensor.data_type().part().unwrap_or(tensor.data_type());
    let (outer, row) = (&turned.dims()[..last], turned.dims()[last]);
    let request = Fft { form, part, rows: count(outer), row, length };
    let [_, data_type] = request.types().ok_or_else(|| Error::unimplemented(format!("a Fourier transform of {}", tensor.data_type())))?;
    let output = Meta { data_type, shape: [outer, &[request.given()]].concat().into() };
    let made = recipe.one(KernelRequest::Fft(request), [turned], output);
    recipe.transposed(&made, &perm)
}
