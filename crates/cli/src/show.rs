//! Tensors as text.

use plimsoll::{DataType, HostTensor};
use serde_json::Value;

/// More elements than this are cut to the first and last ones of each dimension.
const ALL: u64 = 256;
const EDGE: usize = 3;

/// The elements with brackets around each dimension, as numpy prints them; large tensors are cut in the middle.
pub fn elements(tensor: &HostTensor) -> String {
    if tensor.elements() == 0 {
        // However many of them there are.
        return "[]".to_string();
    }
    let Some(texts) = texts(tensor) else { return format!("({} elements)", tensor.elements()) };
    let mut out = String::new();
    nest(&mut out, tensor.shape().dims(), &texts, tensor.elements() > ALL);
    out
}

fn nest(out: &mut String, dims: &[u64], texts: &[String], cut: bool) {
    let Some((&length, inner)) = dims.split_first() else {
        out.push_str(texts.first().map_or("", String::as_str));
        return;
    };
    let length = length as usize;
    let stride = texts.len().checked_div(length).unwrap_or(0);
    out.push('[');
    let mut first = true;
    for index in 0..length {
        let hidden = cut && length > 2 * EDGE && (EDGE..length - EDGE).contains(&index);
        if hidden && index > EDGE {
            continue;
        }
        if !std::mem::take(&mut first) {
            out.push(' ');
        }
        match hidden {
            true => out.push_str("..."),
            false => nest(out, inner, &texts[index * stride..(index + 1) * stride], cut),
        }
    }
    out.push(']');
}

fn texts(tensor: &HostTensor) -> Option<Vec<String>> {
    values(tensor).map(|values| {
        let text = |value: &Value| match value {
            Value::Number(number) => number.to_string(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        values.iter().map(text).collect()
    })
}

/// The elements for JSON, row-major: numbers, or texts for those that JSON has no number for; none for types without numbers.
pub fn values(tensor: &HostTensor) -> Option<Vec<Value>> {
    macro_rules! numbers {
        ($($data_type:ident: $rust:ty => $convert:expr),*) => {
            match tensor.data_type() {
                $(DataType::$data_type => Some(tensor.to_vec::<$rust>().ok()?.into_iter().map($convert).collect()),)*
                DataType::Bool => Some(tensor.dense().ok()?.bytes()?.iter().map(|byte| Value::Bool(*byte != 0)).collect()),
                DataType::String => Some(tensor.strings()?.iter().map(|text| Value::String(String::from_utf8_lossy(text).into_owned())).collect()),
                _ => None,
            }
        };
    }
    numbers!(
        Float: f32 => single, Double: f64 => double, Int8: i8 => Value::from, Int16: i16 => Value::from, Int32: i32 => Value::from,
        Int64: i64 => Value::from, Uint8: u8 => Value::from, Uint16: u16 => Value::from, Uint32: u32 => Value::from, Uint64: u64 => Value::from
    )
}

/// A number with four significant digits: `2.303`, `0.09190`, `4.000e-6`.
pub fn significant(value: f32) -> String {
    let magnitude = value.abs();
    match magnitude {
        _ if value == 0.0 || !value.is_finite() => value.to_string(),
        1e-3..1e5 => {
            // Rounding first: 9.9999 is 10.00, not 10.000.
            let rounded = format!("{magnitude:.3e}").parse::<f64>().unwrap_or(f64::from(magnitude));
            format!("{value:.*}", (3 - rounded.log10().floor() as i32).max(0) as usize)
        }
        _ => format!("{value:.3e}"),
    }
}

/// A text in lines of at most 110 characters, as far as its words allow, each after so many blanks. Those after the first are
/// indented by two more.
pub fn wrapped(text: &str, indent: usize) -> String {
    const WIDTH: usize = 110;
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) => lines.push(format!("{:1$}{word}", "", indent + 2)),
            None => lines.push(format!("{:1$}{word}", "", indent)),
        }
    }
    lines.join("\n")
}

/// The shortest digits that are this float32 again.
fn single(value: f32) -> Value {
    value.to_string().parse().map_or_else(|_| Value::String(value.to_string()), double)
}

fn double(value: f64) -> Value {
    serde_json::Number::from_f64(value).map_or_else(|| Value::String(value.to_string()), Value::Number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_follow_the_shape() {
        assert_eq!(elements(&HostTensor::scalar(0.1f32)), "0.1");
        assert_eq!(elements(&HostTensor::from_slice([2, 2], &[1i32, 2, 3, 4]).unwrap()), "[[1 2] [3 4]]");
        assert_eq!(elements(&HostTensor::from_slice([0, 2], &[0u8; 0]).unwrap()), "[]");
        assert_eq!(elements(&HostTensor::from_slice([1 << 40, 0], &[0u8; 0]).unwrap()), "[]");
        assert_eq!(elements(&HostTensor::from_bools([2], &[true, false]).unwrap()), "[true false]");
        assert_eq!(elements(&HostTensor::from_slice([2], &[f32::NAN, f32::NEG_INFINITY]).unwrap()), "[NaN -inf]");
    }

    #[test]
    fn small_numbers_keep_their_digits() {
        let cases = [(0.0, "0"), (4e-6, "4.000e-6"), (0.0919, "0.09190"), (0.5, "0.5000"), (2.71428, "2.714"), (9.9999, "10.00")];
        for (value, text) in cases.into_iter().chain([(-12345.6, "-12346"), (1e9, "1.000e9"), (f32::NAN, "NaN"), (1e-3, "0.001000")]) {
            assert_eq!(significant(value), text);
        }
    }

    #[test]
    fn long_lines_are_wrapped() {
        assert_eq!(wrapped("a  b", 2), "  a b");
        let lines = wrapped(&"word ".repeat(50), 2);
        assert!(lines.lines().all(|line| line.chars().count() <= 110) && lines.lines().count() == 3, "{lines}");
        assert!(lines.lines().skip(1).all(|line| line.starts_with("    word")), "{lines}");
    }

    #[test]
    fn large_tensors_are_cut() {
        let values: Vec<i64> = (0..1000).collect();
        assert_eq!(elements(&HostTensor::from_slice([1000], &values).unwrap()), "[0 1 2 ... 997 998 999]");
        assert_eq!(elements(&HostTensor::from_slice([500, 2], &values).unwrap()), "[[0 1] [2 3] [4 5] ... [994 995] [996 997] [998 999]]");
    }
}
