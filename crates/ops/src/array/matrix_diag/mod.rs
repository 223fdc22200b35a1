//! MatrixDiag, MatrixDiagPart and MatrixSetDiag, of one diagonal or several: put into matrices, taken out, replaced.

mod gradients;

use plimsoll_base::{Error, Result};
use plimsoll_graph::{AttrValue, Attrs, AttrsExt};
use plimsoll_request::diagonals::{DiagonalForm, Diagonals};
use plimsoll_request::movement::Movement;

use crate::infer::count;
use crate::registry::{Gradient, GradientFn};
use crate::{Call, InferCx, KernelCx, Lower, OpRules};

type Infer = fn(&mut InferCx<'_>) -> Result<()>;
type Prepare = fn(&KernelCx<'_>) -> Result<Call>;

const fn rule(name: &'static str, infer: Infer, prepare: Prepare, gradient: GradientFn) -> OpRules {
    OpRules { name, infer, lower: Lower::Kernel(prepare), gradient: Gradient::Rule(gradient) }
}

/// The rules of MatrixDiag, MatrixDiagPart, MatrixSetDiag, and of their second and third versions.
pub const RULES: &[OpRules] = &[
    rule("MatrixDiag", infer_diag, diag, gradients::diag),
    rule("MatrixDiagV2", infer_diag, diag, gradients::diag),
    rule("MatrixDiagV3", infer_diag, diag, gradients::diag),
    rule("MatrixDiagPart", infer_part, part, gradients::part),
    rule("MatrixDiagPartV2", infer_part, part, gradients::part),
    rule("MatrixDiagPartV3", infer_part, part, gradients::part),
    rule("MatrixSetDiag", infer_set, set, gradients::set),
    rule("MatrixSetDiagV2", infer_set, set, gradients::set),
    rule("MatrixSetDiagV3", infer_set, set, gradients::set),
];

/// The lowest and the highest diagonal that `k` names.
fn band(k: &[i64]) -> Result<(i64, i64)> {
    let (lower, upper) = match *k {
        [one] => (one, one),
        [lower, upper] => (lower, upper),
        _ => {
            return Err(Error::invalid_argument(format!("diag_index must have only one or two elements, received {} elements.", k.len())));
        }
    };
    if lower > upper {
        return Err(Error::invalid_argument(format!("lower_diag_index must not be larger than upper_diag_index: {lower} > {upper}")));
    }
    Ok((lower, upper))
}

/// How many diagonals these are.
fn count_of((lower, upper): (i64, i64)) -> u64 {
    upper.abs_diff(lower).saturating_add(1)
}

/// Whether diagonals above the main one, and below it, are stored from the left.
fn from_left(attrs: &Attrs) -> Result<[bool; 2]> {
    if !matches!(attrs.get("align"), Some(AttrValue::Bytes(_))) {
        return Ok([true; 2]);
    }
    Ok(match attrs.text("align")? {
        "LEFT_LEFT" => [true, true],
        "LEFT_RIGHT" => [true, false],
        "RIGHT_LEFT" => [false, true],
        "RIGHT_RIGHT" => [false, false],
        other => return Err(Error::invalid_argument(format!("align must be one of LEFT_RIGHT, RIGHT_LEFT, ..., got {other}"))),
    })
}

/// Whether matrices of that shape have the diagonals; as TensorFlow words it.
fn check_band((lower, upper): (i64, i64), rows: u64, columns: u64) -> Result<()> {
    let (rows, columns) = (i64::try_from(rows).unwrap_or(i64::MAX), i64::try_from(columns).unwrap_or(i64::MAX));
    for (name, index) in [("lower", lower), ("upper", upper)] {
        if !(index > -rows && index < columns || index == 0) {
            return Err(Error::invalid_argument(format!(
                "{name}_diag_index is out of bound: {index}. It must be between {} and {}",
                -rows, columns
            )));
        }
    }
    Ok(())
}

/// The elements of the longest diagonal.
fn longest((lower, upper): (i64, i64), rows: u64, columns: u64) -> u64 {
    let [rows, columns] = [rows, columns].map(|size| i64::try_from(size).unwrap_or(i64::MAX));
    rows.saturating_add(upper.min(0)).min(columns.saturating_sub(lower.max(0))).max(0) as u64
}

/// Rows and columns of the matrices that MatrixDiag makes of diagonals of that length.
fn made((lower, upper): (i64, i64), length: u64, rows: Option<i64>, columns: Option<i64>) -> Result<(u64, u64)> {
    let length = i64::try_from(length).map_err(|_| Error::invalid_argument("a diagonal that no memory holds"))?;
    let least = (length.saturating_sub(upper.min(0)), length.saturating_add(lower.max(0)));
    let given = |size: Option<i64>| size.filter(|size| *size != -1);
    let (rows, columns) = match (given(rows), given(columns)) {
        (None, None) => (least.0.max(least.1), least.0.max(least.1)),
        (rows, columns) => (rows.unwrap_or(least.0), columns.unwrap_or(least.1)),
    };
    if rows < least.0 {
        return Err(Error::invalid_argument("The number of rows is too small."));
    }
    if columns < least.1 {
        return Err(Error::invalid_argument("The number of columns is too small."));
    }
    if rows != least.0 && columns != least.1 {
        return Err(Error::invalid_argument(
            "The number of rows or columns is not consistent with the specified d_lower, d_upper, and diagonal.",
        ));
    }
    Ok((rows as u64, columns as u64))
}

fn infer_diag(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dims) = cx.with_rank_at_least(0, 1)? else { return Ok(()) };
    let known = if cx.node.op == "MatrixDiag" { Some(vec![0]) } else { cx.ints(1) };
    let Some(known) = known else { return Ok(()) };
    let band = band(&known)?;
    let is_one = band.0 == band.1;
    let (batch, length) = match dims {
        [batch @ .., length] if is_one => (batch, *length),
        [batch @ .., count, length] => {
            let expected = count_of(band);
            if count.is_some_and(|count| count != expected) {
                return Err(Error::invalid_argument(
                    "The number of diagonals provided in the input does not match the lower_diag_index and upper_diag_index range.",
                ));
            }
            (batch, *length)
        }
        _ => {
            return Err(Error::invalid_argument(format!(
                "Shape must be at least rank 2 but is rank 1 for input 0 of shape {}",
                cx.shape(0)
            )));
        }
    };
    let sizes = if cx.node.op == "MatrixDiag" { Some((None, None)) } else { cx.int(2).zip(cx.int(3)).map(|(r, c)| (Some(r), Some(c))) };
    let matrix = match (length, sizes) {
        (Some(length), Some((rows, columns))) => {
            let (rows, columns) = made(band, length, rows, columns)?;
            [Some(rows), Some(columns)]
        }
        _ => [None, None],
    };
    cx.set_dims(0, [batch, &matrix].concat());
    Ok(())
}

fn diagonals(cx: &KernelCx<'_>, form: DiagonalForm, matrices: &[u64], k: Option<usize>) -> Result<Movement> {
    let (lower, upper) = match k {
        Some(input) => band(&cx.ints(input)?)?,
        None => (0, 0),
    };
    let [batch @ .., rows, columns] = matrices else { return Err(Error::internal("matrices of fewer than two dimensions")) };
    check_band((lower, upper), *rows, *columns)?;
    let matrices = count(batch);
    Ok(Movement::Diagonals(Diagonals { form, matrices, rows: *rows, columns: *columns, lower, upper, from_left: from_left(cx.attrs())? }))
}

/// From one element of the main diagonal to the next.
fn step(columns: u64) -> i64 {
    i64::try_from(columns).map_or(i64::MAX, |columns| columns.saturating_add(1))
}

/// The first version of each has the main diagonal alone, and zeros elsewhere.
fn diag(cx: &KernelCx<'_>) -> Result<Call> {
    if cx.inputs.len() == 1 {
        let dims = cx.outputs[0].shape.dims();
        // Diagonals are taken from the left: a vector is a row of a matrix that is set.
        let [batch @ .., size, _] = dims else { return Err(Error::internal("matrices of fewer than two dimensions")) };
        let movement = Movement::StridedSliceGrad {
            shape: vec![count(batch), size.saturating_mul(*size)],
            begin: vec![0, 0],
            strides: vec![1, step(*size)],
            sizes: vec![count(batch), *size],
        };
        return Ok(Call::moving(cx.element(0)?, movement, [0]));
    }
    cx.require_one(4, "padding_value")?;
    Ok(Call::moving(cx.element(0)?, diagonals(cx, DiagonalForm::Matrix, cx.outputs[0].shape.dims(), Some(1))?, [0, 4]))
}

fn infer_part(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dims) = cx.with_rank_at_least(0, 2)? else { return Ok(()) };
    let known = if cx.node.op == "MatrixDiagPart" { Some(vec![0]) } else { cx.ints(1) };
    let Some(known) = known else { return Ok(()) };
    let band = band(&known)?;
    let [batch @ .., rows, columns] = dims else { return Err(Error::internal("matrices of fewer than two dimensions")) };
    let length = match (rows, columns) {
        (Some(rows), Some(columns)) => {
            check_band(band, *rows, *columns)?;
            Some(longest(band, *rows, *columns))
        }
        _ => None,
    };
    let count = if band.0 == band.1 { vec![] } else { vec![Some(count_of(band))] };
    cx.set_dims(0, [batch, &count, &[length]].concat());
    Ok(())
}

fn part(cx: &KernelCx<'_>) -> Result<Call> {
    if cx.inputs.len() == 1 {
        let [batch @ .., rows, columns] = cx.dims(0) else { return Err(Error::internal("matrices of fewer than two dimensions")) };
        let movement = Movement::StridedSlice {
            shape: vec![count(batch), rows.saturating_mul(*columns)],
            begin: vec![0, 0],
            strides: vec![1, step(*columns)],
            sizes: vec![count(batch), *rows.min(columns)],
        };
        return Ok(Call::moving(cx.element(0)?, movement, [0]));
    }
    cx.require_one(2, "padding_value")?;
    Ok(Call::moving(cx.element(0)?, diagonals(cx, DiagonalForm::Part, cx.dims(0), Some(1))?, [0, 2]))
}

fn infer_set(cx: &mut InferCx<'_>) -> Result<()> {
    let (Some(dims), Some(diagonal)) = (cx.with_rank_at_least(0, 2)?, cx.with_rank_at_least(1, 1)?) else {
        cx.set(0, cx.shape(0).clone());
        return Ok(());
    };
    let known = if cx.node.op == "MatrixSetDiag" { Some(vec![0]) } else { cx.ints(2) };
    if let ([batch @ .., Some(rows), Some(columns)], Some(known)) = (dims, known) {
        let band = band(&known)?;
        check_band(band, *rows, *columns)?;
        let count = if band.0 == band.1 { vec![] } else { vec![Some(count_of(band))] };
        let expected = [batch, &count, &[Some(longest(band, *rows, *columns))]].concat();
        let fits = |(expected, got): (&Option<u64>, &Option<u64>)| expected.is_none() || got.is_none() || expected == got;
        if expected.len() != diagonal.len() || !expected.iter().zip(diagonal).all(fits) {
            let expected = plimsoll_graph::PartialShape(Some(expected));
            return Err(Error::invalid_argument(format!(
                "Either first dimensions of diagonal don't match input.shape[:-2], or diagonal.shape[:-1] is not equal to the longests \
                 diagonal in range [lower_diag_index:upper_diag_index].\nInput shape: {}\nDiagonal shape: {}\nExpected diagonal shape: {expected}",
                cx.shape(0),
                cx.shape(1)
            )));
        }
    }
    cx.set(0, cx.shape(0).clone());
    Ok(())
}

fn set(cx: &KernelCx<'_>) -> Result<Call> {
    let k = (cx.inputs.len() > 2).then_some(2);
    Ok(Call::moving(cx.element(0)?, diagonals(cx, DiagonalForm::Set, cx.dims(0), k)?, [0, 1]))
}
