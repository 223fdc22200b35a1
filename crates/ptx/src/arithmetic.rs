//! What instructions compute from numbers: no thread, no memory.

use crate::module::{Instruction, Type};

pub(crate) fn mask(value: u64, bits: u32) -> u64 {
    if bits >= 64 { value } else { value & ((1 << bits) - 1) }
}

/// With the sign of its highest bit.
pub(crate) fn extend(value: u64, bits: u32) -> u64 {
    if bits >= 64 { value } else { (((value << (64 - bits)) as i64) >> (64 - bits)) as u64 }
}

/// An integer as its type has it.
fn as_typed(value: u64, ty: Type) -> u64 {
    if ty.class == b's' { extend(value, ty.bits) } else { mask(value, ty.bits) }
}

fn f32_of(value: u64) -> f32 {
    f32::from_bits(value as u32)
}

fn flushed(value: f32, instruction: &Instruction) -> f32 {
    if instruction.has("ftz") && value.is_subnormal() { 0f32.copysign(value) } else { value }
}

pub(crate) fn compare(instruction: &Instruction, a: u64, b: u64) -> Result<bool, String> {
    use std::cmp::Ordering;
    let ty = instruction.ty;
    let order = match (ty.class, ty.bits) {
        (b'f', 32) => f32_of(a).partial_cmp(&f32_of(b)),
        (b'f', _) => f64::from_bits(a).partial_cmp(&f64::from_bits(b)),
        (b's', bits) => Some((extend(a, bits) as i64).cmp(&(extend(b, bits) as i64))),
        (_, bits) => Some(mask(a, bits).cmp(&mask(b, bits))),
    };
    let word = instruction.words.first().copied().unwrap_or_default();
    let ordered = |wanted: fn(Ordering) -> bool, unordered: bool| order.map_or(unordered, wanted);
    Ok(match word {
        "eq" => ordered(Ordering::is_eq, false),
        "ne" => ordered(Ordering::is_ne, false),
        "lt" | "lo" => ordered(Ordering::is_lt, false),
        "le" | "ls" => ordered(Ordering::is_le, false),
        "gt" | "hi" => ordered(Ordering::is_gt, false),
        "ge" | "hs" => ordered(Ordering::is_ge, false),
        "equ" => ordered(Ordering::is_eq, true),
        "neu" => ordered(Ordering::is_ne, true),
        "ltu" => ordered(Ordering::is_lt, true),
        "leu" => ordered(Ordering::is_le, true),
        "gtu" => ordered(Ordering::is_gt, true),
        "geu" => ordered(Ordering::is_ge, true),
        "num" => order.is_some(),
        "nan" => order.is_none(),
        other => return Err(format!("the comparison {other} is not known")),
    })
}

/// Rounded to an integer as the instruction says; none where it does not round so.
fn rounded(instruction: &Instruction, value: f64) -> Option<f64> {
    let mode = ["rni", "rzi", "rmi", "rpi"].into_iter().find(|mode| instruction.has(mode))?;
    Some(match mode {
        "rni" => value.round_ties_even(),
        "rzi" => value.trunc(),
        "rmi" => value.floor(),
        _ => value.ceil(),
    })
}

pub(crate) fn convert(instruction: &Instruction, a: u64) -> Result<u64, String> {
    let (from, to) = (instruction.ty, instruction.before.ok_or("a conversion of one type")?);
    let is_float = |ty: Type| ty.class == b'f';
    if instruction.has("sat") || to.bits == 16 && is_float(to) || from.bits == 16 && is_float(from) {
        return Err("this conversion is not known".to_string());
    }
    let float = |value: f64| if to.bits == 32 { u64::from((value as f32).to_bits()) } else { value.to_bits() };
    Ok(match (is_float(from), is_float(to)) {
        (false, false) => mask(as_typed(a, from), to.bits.max(32)),
        // From an integer of 64 bits to a float in one step: by way of a double it would round twice.
        (false, true) if to.bits == 32 => {
            u64::from(if from.class == b's' { extend(a, from.bits) as i64 as f32 } else { mask(a, from.bits) as f32 }.to_bits())
        }
        (false, true) => (if from.class == b's' { extend(a, from.bits) as i64 as f64 } else { mask(a, from.bits) as f64 }).to_bits(),
        (true, true) => {
            let value = if from.bits == 32 { f64::from(flushed(f32_of(a), instruction)) } else { f64::from_bits(a) };
            float(rounded(instruction, value).unwrap_or(value))
        }
        (true, false) => {
            let value = if from.bits == 32 { f64::from(f32_of(a)) } else { f64::from_bits(a) };
            let value = rounded(instruction, value).ok_or("a conversion without rounding")?;
            match (to.class, to.bits) {
                (b's', 64) => value as i64 as u64,
                (b's', 32) => u64::from(value as i32 as u32),
                (b's', 16) => u64::from(value as i16 as u16),
                (b's', _) => u64::from(value as i8 as u8),
                (_, 64) => value as u64,
                (_, 32) => u64::from(value as u32),
                (_, 16) => u64::from(value as u16),
                _ => u64::from(value as u8),
            }
        }
    })
}

/// Sums with a carry.
pub(crate) fn carried(instruction: &Instruction, a: u64, b: u64, c: u64, carry: &mut bool) -> Result<u64, String> {
    let bits = instruction.ty.bits;
    let (a, b, c) = (u128::from(mask(a, bits)), u128::from(mask(b, bits)), u128::from(mask(c, bits)));
    let with = u128::from(*carry && matches!(instruction.op, "addc" | "subc" | "madc"));
    let sum = match instruction.op {
        "add" | "addc" => a + b + with,
        "sub" | "subc" => {
            let taken = b + with;
            let result = a.wrapping_sub(taken);
            if instruction.has("cc") {
                *carry = a < taken;
            }
            return Ok(mask(result as u64, bits));
        }
        "mad" | "madc" => {
            let product = a * b;
            let part = if instruction.has("hi") { product >> bits } else { product & ((1 << bits) - 1) };
            part + c + with
        }
        other => return Err(format!("{other} with a carry is not known")),
    };
    if instruction.has("cc") {
        *carry = sum >> bits != 0;
    }
    Ok(mask(sum as u64, bits))
}

pub(crate) fn floats(instruction: &Instruction, ty: Type, [a, b, c]: [u64; 3]) -> Result<u64, String> {
    let op = instruction.op;
    if ty.bits == 64 {
        let [x, y, z] = [a, b, c].map(f64::from_bits);
        return Ok(match op {
            "add" => x + y,
            "sub" => x - y,
            "mul" => x * y,
            "div" => x / y,
            "fma" => x.mul_add(y, z),
            "neg" => -x,
            "abs" => x.abs(),
            "min" => x.min(y),
            "max" => x.max(y),
            "sqrt" => x.sqrt(),
            "copysign" => y.copysign(x),
            "rcp" if instruction.has("approx") => coarse(1.0 / x),
            "rsqrt" => coarse(1.0 / x.sqrt()),
            "rcp" => 1.0 / x,
            _ => return Err(format!("{op} of doubles is not known")),
        }
        .to_bits());
    }
    let [x, y, z] = [a, b, c].map(|value| flushed(f32_of(value), instruction));
    let result = match op {
        "fma" if instruction.has("rz") => toward_zero(x, y, z),
        _ if instruction.has("rz") || instruction.has("rm") || instruction.has("rp") => {
            return Err(format!("{op} is not known to round so"));
        }
        "add" => x + y,
        "sub" => x - y,
        "mul" => x * y,
        "div" => x / y,
        "fma" => x.mul_add(y, z),
        "neg" => -x,
        "abs" => x.abs(),
        "min" if instruction.has("NaN") && (x.is_nan() || y.is_nan()) => f32::NAN,
        "max" if instruction.has("NaN") && (x.is_nan() || y.is_nan()) => f32::NAN,
        "min" => x.min(y),
        "max" => x.max(y),
        "sqrt" => x.sqrt(),
        "rsqrt" => 1.0 / x.sqrt(),
        "rcp" => 1.0 / x,
        "ex2" => x.exp2(),
        "lg2" => x.log2(),
        "copysign" => y.copysign(x),
        _ => return Err(format!("{op} of floats is not known")),
    };
    Ok(u64::from(flushed(result, instruction).to_bits()))
}

/// The upper half, as the approximations of doubles give it.
fn coarse(value: f64) -> f64 {
    if value.is_finite() { f64::from_bits(value.to_bits() & !0xFFFF_FFFF) } else { value }
}

/// `x * y + z`, rounded towards zero.
fn toward_zero(x: f32, y: f32, z: f32) -> f32 {
    let (product, z) = (f64::from(x) * f64::from(y), f64::from(z));
    let sum = product + z;
    // What the sum in doubles rounded away.
    let back = sum - product;
    let lost = (product - (sum - back)) + (z - back);
    let near = sum as f32;
    let beyond = f64::from(near).abs() > sum.abs() || f64::from(near) == sum && lost != 0.0 && (lost < 0.0) != (sum < 0.0);
    if near.is_finite() && beyond { f32::from_bits(near.to_bits() - 1) } else { near }
}

pub(crate) fn integers(instruction: &Instruction, ty: Type, [a, b, c, d]: [u64; 4]) -> Result<u64, String> {
    let op = instruction.op;
    let bits = ty.bits;
    let signed = ty.class == b's';
    let (x, y, z) = (as_typed(a, ty), as_typed(b, ty), as_typed(c, ty));
    let product = || if signed { i128::from(x as i64) * i128::from(y as i64) } else { i128::from(x) * i128::from(y) };
    let result = match op {
        "add" => x.wrapping_add(y),
        "sub" => x.wrapping_sub(y),
        "mul" | "mad" => {
            let part = match (instruction.has("wide"), instruction.has("hi")) {
                (true, _) => product() as u64,
                (_, true) => (product() >> bits) as u64,
                _ => product() as u64,
            };
            let sum = if op == "mad" { part.wrapping_add(if instruction.has("wide") { c } else { z }) } else { part };
            return Ok(if instruction.has("wide") { mask(sum, bits * 2) } else { mask(sum, bits) });
        }
        // The result for a divisor of 0 is whatever the card has: nobody may use it.
        "div" | "rem" if y == 0 => u64::MAX,
        "div" if signed => (x as i64).wrapping_div(y as i64) as u64,
        "rem" if signed => (x as i64).wrapping_rem(y as i64) as u64,
        "div" => x / y,
        "rem" => x % y,
        "min" if signed => (x as i64).min(y as i64) as u64,
        "max" if signed => (x as i64).max(y as i64) as u64,
        "min" => x.min(y),
        "max" => x.max(y),
        "abs" => (x as i64).wrapping_abs() as u64,
        "neg" => x.wrapping_neg(),
        "and" => x & y,
        "or" => x | y,
        "xor" => x ^ y,
        "not" => !x,
        "shl" => {
            if b as u32 >= bits {
                0
            } else {
                x << (b as u32)
            }
        }
        "shr" => {
            let by = b as u32;
            match signed {
                true => ((x as i64) >> by.min(63)) as u64,
                false if by >= bits => 0,
                false => x >> by,
            }
        }
        "clz" => u64::from(mask(a, bits).leading_zeros() + bits - 64),
        "popc" => u64::from(mask(a, bits).count_ones()),
        "brev" => mask(a, bits).reverse_bits() >> (64 - bits),
        "bfi" => {
            let (start, length) = (c as u32 & 255, d as u32 & 255);
            let field = if start >= bits { 0 } else { mask(mask(u64::MAX, length) << start, bits) };
            mask(b, bits) & !field | (mask(a, bits) << (start & 63)) & field
        }
        "bfe" => {
            let (start, length) = ((b as u32 & 255).min(63), c as u32 & 255);
            let field = mask(mask(a, bits) >> start, length);
            if signed && length > 0 { extend(field, length) } else { field }
        }
        "prmt" => {
            let bytes = mask(b, 32) << 32 | mask(a, 32);
            (0..4).fold(0, |word, at| {
                let selector = c >> (4 * at) & 15;
                let byte = bytes >> (8 * (selector & 7)) & 255;
                let byte = if selector & 8 != 0 { if byte & 128 != 0 { 255 } else { 0 } } else { byte };
                word | byte << (8 * at)
            })
        }
        "shf" => {
            let by = if instruction.has("wrap") { c as u32 & 31 } else { (c as u32).min(32) };
            let whole = mask(b, 32) << 32 | mask(a, 32);
            if instruction.has("l") { (whole << by) >> 32 } else { whole >> by }
        }
        "lop3" => (0..32).fold(0, |word, at| {
            let index = (a >> at & 1) << 2 | (b >> at & 1) << 1 | (c >> at & 1);
            word | (d >> index & 1) << at
        }),
        _ => return Err(format!("{op} of integers is not known")),
    };
    Ok(mask(result, if ty.class == b'p' { 1 } else { bits }))
}
