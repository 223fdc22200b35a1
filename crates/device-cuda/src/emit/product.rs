//! Products of matrices, by tiles.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_request::anchor::Epilogue;
use plimsoll_request::product::{Place, Places, ProductSpec};

use super::tile::{Side, Sizes, Tiled};
use super::view::join;
use super::write::{Writer, stored};
use super::{Emitted, KernelArg};

/// The product, with an expression for each element.
///
/// # Errors
/// UNIMPLEMENTED for types without a kernel, rows that are all one row, and an epilogue on several products; INVALID_ARGUMENT for
/// sizes that contradict each other.
pub(super) fn emit(data_type: DataType, spec: &ProductSpec, epilogue: Option<&Epilogue>) -> Result<Emitted> {
    let shape = [spec.m, spec.n];
    let epilogue = epilogue.map(|epilogue| (epilogue, &shape[..]));
    emit_on(data_type, spec, epilogue, [0, 1])
}

/// The product of the arguments with these numbers, with an expression on a shape of as many elements.
///
/// # Errors
/// As [`emit`].
pub(super) fn emit_on(
    data_type: DataType,
    spec: &ProductSpec,
    epilogue: Option<(&Epilogue, &[u64])>,
    arguments: [u32; 2],
) -> Result<Emitted> {
    let places = spec.places();
    let [a_extent, b_extent, total] = spec.extents()?;
    if epilogue.is_some() && (spec.batch != 1 || spec.places.is_some()) {
        return Err(Error::unimplemented("a kernel for a card: an epilogue on several products"));
    }
    let sizes =
        Sizes { data_type, batch: spec.batch, rows: spec.m, columns: spec.n, terms: spec.k, total, largest: a_extent.max(b_extent) };
    let mut tiled = Tiled::new(sizes)?;
    if total == 0 {
        return Ok(Emitted::default());
    }
    // A sum over one row again and again may be longer than any memory.
    let is_one_row = |place: &Place, is_of_terms: bool| is_of_terms && place.row == 0 && spec.k > 1;
    if is_one_row(&places.a, spec.transpose_a) || is_one_row(&places.b, !spec.transpose_b) {
        return Err(Error::unimplemented("a kernel for a card: a product of rows that are all one row"));
    }
    let writer = &mut tiled.writer;
    for (name, argument) in ["a", "b"].into_iter().zip(arguments) {
        writer.input(name, stored(data_type)?, KernelArg::Argument(argument));
    }
    for (name, place) in [("a", places.a), ("b", places.b), ("c", places.c)] {
        writer.size(format!("{name}_row"), place.row as i64);
    }
    let matrix = matrix(writer, spec.batch, &places);
    let index = writer.index();
    let side = |name: &'static str, along_terms: bool| {
        let (base, value) = match along_terms {
            true => (format!("at_{name} + line * {name}_row"), format!("{name}[base + term]")),
            false => (format!("at_{name} + line"), format!("{name}[base + term * {name}_row]")),
        };
        Side { along_terms, line: (String::new(), vec![(index, "base", base)]), term: String::new(), inside: None, value }
    };
    let (a, b) = (side("a", !spec.transpose_a), side("b", spec.transpose_b));
    tiled.finish("product", &matrix, &a, &b, "at_c + i * c_row + j", epilogue)
}

/// Statements that say where the matrices of a product begin.
fn matrix(writer: &mut Writer, batch: u64, places: &Places) -> String {
    let index = writer.index();
    if batch == 1 {
        return format!("const {index} at_a = 0, at_b = 0, at_c = 0;");
    }
    let strides = [places.a, places.b, places.c].map(|place| place.matrix.to_vec());
    let joined = join(&places.sizes, &strides);
    let mut text = format!("{index} at_a = 0, at_b = 0, at_c = 0; {{ {index} rest = matrix;");
    for axis in (0..joined.sizes.len()).rev() {
        let at = if axis == 0 {
            "rest".to_string()
        } else {
            writer.size(format!("g{axis}"), joined.sizes[axis] as i64);
            text.push_str(&format!(" {index} h{axis} = rest % g{axis}; rest /= g{axis};"));
            format!("h{axis}")
        };
        for (of, name) in ["a", "b", "c"].into_iter().enumerate() {
            writer.size(format!("{name}_{axis}"), joined.strides[of][axis] as i64);
            text.push_str(&format!(" at_{name} += {at} * {name}_{axis};"));
        }
    }
    text + " }"
}
