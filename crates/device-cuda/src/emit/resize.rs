//! Images resized between neighbours: a thread for each element of the result, or for as many channels as 16 bytes hold. Weights are the
//! processor's, and so is the order of sums: rows first.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_request::resample::{Method, Resample, scale};

use super::write::{Index, Writer, stored};
use super::{Emitted, KernelArg, blocks, count};

/// `ResizeBilinear`.
///
/// # Errors
/// UNIMPLEMENTED for other methods, gradients, types and very long sides; INVALID_ARGUMENT for something out of nothing.
pub(super) fn emit(spec: &Resample) -> Result<Emitted> {
    let Method::Bilinear { align_corners, half_pixel_centers } = spec.method else {
        return Err(Error::unimplemented("a kernel for a card: images resized by more than their neighbours"));
    };
    let sides = [spec.size, spec.resized].concat();
    if spec.transposed || !matches!(spec.data_type, DataType::Float | DataType::Double) || sides.iter().any(|side| *side >= 1 << 24) {
        return Err(Error::unimplemented(format!("a kernel for a card: the resizing of images of {}", spec.data_type)));
    }
    let (from, to) = (count(&spec.images()), count(&spec.resized_images()));
    if to == 0 {
        return Ok(Emitted::default());
    }
    if spec.size.contains(&0) {
        return Err(Error::invalid_argument("input image must be of non-zero size"));
    }
    let ctype = stored(spec.data_type)?;
    let widest = 16 / spec.data_type.size().unwrap_or(16) as u64;
    let vector = if spec.channels.is_multiple_of(widest) { widest } else { 1 };
    let mut writer = Writer::new(Index::of(from.max(to)));
    let index = writer.index();
    writer.input("p", ctype, KernelArg::Argument(0));
    writer.output("q", ctype, KernelArg::Argument(1));
    writer.size("n", (to / vector) as i64);
    writer.size("words", (spec.channels / vector) as i64);
    for (at, (size, resized)) in spec.size.into_iter().zip(spec.resized).enumerate() {
        writer.size(format!("size{at}"), size as i64);
        writer.size(format!("resized{at}"), resized as i64);
        writer.word("f32", format!("scale{at}"), scale(size, resized, align_corners).to_bits());
    }
    writer.each("i", "n");
    writer.line(format!("{index} c = i % words, rest = i / words, o1 = rest % resized1, o0; rest /= resized1;"));
    writer.line("o0 = rest % resized0; rest /= resized0;");
    for at in 0..2 {
        let place = if half_pixel_centers { format!("((f32)o{at} + 0.5f) * scale{at} - 0.5f") } else { format!("(f32)o{at} * scale{at}") };
        writer.line(format!(
            "f32 place{at} = {place}, floor{at} = floorf(place{at}), high{at} = place{at} - floor{at}, low{at} = 1.0f - high{at};"
        ));
        writer.line(format!("i64 far{at} = (i64)ceilf(place{at}), near{at} = (i64)floor{at};"));
        writer.line(format!("{index} upper{at} = ({index})(far{at} < (i64)size{at} - 1 ? far{at} : (i64)size{at} - 1);"));
        writer.line(format!(
            "{index} lower{at} = near{at} < 0 ? 0 : ({index})near{at}; lower{at} = lower{at} < upper{at} ? lower{at} : upper{at};"
        ));
    }
    let word = if vector == 1 { ctype.to_string() } else { format!("{ctype}x{vector}") };
    let element = |name: &str| if vector == 1 { name.to_string() } else { format!("{name}.v[k]") };
    writer.line(format!("const {word}* image = (const {word}*)p + rest * size0 * size1 * words;"));
    for (row, y) in [("a", "lower0"), ("b", "upper0")] {
        for (column, x) in [("0", "lower1"), ("1", "upper1")] {
            writer.line(format!("{word} {row}{column} = image[({y} * size1 + {x}) * words + c];"));
        }
    }
    writer.line(format!("{word} made; _Pragma(\"unroll\") for (u32 k = 0; k < {vector}; ++k) {{"));
    for column in ["0", "1"] {
        let [a, b] = ["a", "b"].map(|row| element(&format!("{row}{column}")));
        writer.line(format!("{ctype} s{column} = {a} * ({ctype})low0; s{column} = s{column} + {b} * ({ctype})high0;"));
    }
    // Sums of few channels begin with 0 on the processor: -0 becomes 0.
    let begin = if [1, 3, 4].contains(&spec.channels) { "0 + " } else { "" };
    writer.line(format!("{ctype} y = {begin}s0 * ({ctype})low1; {} = y + s1 * ({ctype})high1;\n  }}", element("made")));
    writer.line(format!("(({word}*)q)[i] = made;\n  }}"));
    Ok(Emitted { kernels: vec![writer.finish("resize", blocks(to / vector))?], ..Emitted::default() })
}
