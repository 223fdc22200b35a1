//! Writing a kernel: its parameters with the arguments of its launch, and its text.

use std::fmt::Display;

use plimsoll_base::{DataType, Error, Result};

use super::{FAMILIES, Kernel, KernelArg};

/// The type of indices and sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Index {
    U32,
    U64,
}

impl Index {
    /// For tensors of so many elements; that many and the threads of a grid fit the type.
    pub fn of(elements: u64) -> Index {
        if elements < 1 << 31 { Index::U32 } else { Index::U64 }
    }

    pub fn name(self) -> &'static str {
        match self {
            Index::U32 => "u32",
            Index::U64 => "u64",
        }
    }
}

/// A kernel that is being written. In its text `@` stands for its name.
pub(super) struct Writer {
    index: Index,
    params: Vec<String>,
    args: Vec<KernelArg>,
    /// Functions before the kernel.
    pub before: String,
    /// The kernel's statements.
    pub text: String,
}

impl Writer {
    /// With indices of that type. The kernel does nothing where its guard is 0, or a command before it has failed.
    pub fn new(index: Index) -> Writer {
        let params = ["const u8* guard", "const u64* stop", "u64 command"].map(str::to_string).to_vec();
        let args = vec![KernelArg::Guard, KernelArg::Stop, KernelArg::FaultBase];
        let text = "  if (is_passed_over(guard, stop, command)) return;\n".to_string();
        Writer { index, params, args, before: String::new(), text }
    }

    pub fn index(&self) -> &'static str {
        self.index.name()
    }

    /// A parameter that points to elements that are read.
    pub fn input(&mut self, name: impl Display, ctype: &str, arg: KernelArg) {
        self.params.push(format!("const {ctype}* {name}"));
        self.args.push(arg);
    }

    /// A parameter that points to elements that are written.
    pub fn output(&mut self, name: impl Display, ctype: &str, arg: KernelArg) {
        self.params.push(format!("{ctype}* {name}"));
        self.args.push(arg);
    }

    /// A size, or a stride: a negative one wraps.
    pub fn size(&mut self, name: impl Display, value: i64) {
        self.params.push(format!("{} {name}", self.index()));
        self.args.push(match self.index {
            Index::U32 => KernelArg::U32(value as u32),
            Index::U64 => KernelArg::U64(value as u64),
        });
    }

    /// A size that numbers below 2^31, or of 64 bits, are divided by; 1 for 0. See [`Writer::quotient`].
    pub fn divisor(&mut self, name: impl Display, value: u64) {
        self.size(&name, value.max(1) as i64);
        if self.index == Index::U32 {
            let (factor, shift) = reciprocal(value.max(1));
            self.word("u32", format!("{name}_factor"), factor);
            self.word("u32", format!("{name}_shift"), shift);
        }
    }

    /// The quotient of a number and a divisor.
    pub fn quotient(&self, number: &str, divisor: &str) -> String {
        match self.index {
            Index::U32 => format!("quotient({number}, {divisor}_factor, {divisor}_shift)"),
            Index::U64 => format!("{number} / {divisor}"),
        }
    }

    /// Four bytes of a type.
    pub fn word(&mut self, ctype: &str, name: impl Display, bits: u32) {
        self.params.push(format!("{ctype} {name}"));
        self.args.push(KernelArg::U32(bits));
    }

    /// Eight bytes of a type.
    pub fn long(&mut self, ctype: &str, name: impl Display, bits: u64) {
        self.params.push(format!("{ctype} {name}"));
        self.args.push(KernelArg::U64(bits));
    }

    /// The fault word and the command's number: `fail(fault, base, element, number)`.
    pub fn fault(&mut self) {
        self.params.extend(["u64* fault".to_string(), "u64 base".to_string()]);
        self.args.extend([KernelArg::Fault, KernelArg::FaultBase]);
    }

    /// A statement, or several.
    pub fn line(&mut self, text: impl Display) {
        self.text.push_str(&format!("  {text}\n"));
    }

    /// The head of a loop in which the grid's threads take `count` steps `i`. The caller closes it.
    pub fn each(&mut self, i: &str, count: &str) {
        let index = self.index();
        self.line(format!(
            "for ({index} {i} = ({index})blockIdx.x * THREADS + threadIdx.x; {i} < {count}; {i} += ({index})gridDim.x * THREADS) {{"
        ));
    }

    /// The kernel. Its name is `what` and a number that belongs to the text.
    ///
    /// # Errors
    /// UNIMPLEMENTED for more arguments than a launch has; INTERNAL for a family that is not one of [`FAMILIES`].
    pub fn finish(self, what: &str, blocks: u32) -> Result<Kernel> {
        if !FAMILIES.contains(&what) {
            return Err(Error::internal(format!("a kernel for a card of a family without a name in FAMILIES: {what}")));
        }
        if self.args.len() > MOST_ARGS {
            return Err(Error::unimplemented(format!("a kernel for a card with {} arguments", self.args.len())));
        }
        let body = format!("{}KERNEL BOUNDS @({}) {{\n{}}}\n", self.before, self.params.join(", "), self.text);
        let entry = format!("{what}_{:016x}", fnv(body.as_bytes()));
        Ok(Kernel { body: body.replace('@', &entry), entry, blocks, args: self.args })
    }
}

/// A factor and a shift by which numbers below 2^31 are divided: `x / divisor` is `x * factor >> shift`, for divisors from 1 to 2^31.
/// With `shift = 31 + l` and `2^l >= divisor`, the factor is at most `2^l / divisor` too large. No quotient shows that: Granlund and
/// Montgomery, "Division by Invariant Integers using Multiplication", 1994.
fn reciprocal(divisor: u64) -> (u32, u32) {
    let shift = 31 + divisor.next_power_of_two().trailing_zeros();
    ((1u128 << shift).div_ceil(u128::from(divisor)) as u32, shift)
}

/// Arguments of a launch are 4096 bytes at most.
const MOST_ARGS: usize = 500;

/// The hash FNV-1a: names of kernels are the same everywhere.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3))
}

/// The C type that elements are stored as.
///
/// # Errors
/// UNIMPLEMENTED for types that kernels do not compute with.
pub(super) fn stored(data_type: DataType) -> Result<&'static str> {
    Ok(match data_type {
        DataType::Float => "f32",
        DataType::Double => "f64",
        DataType::Half | DataType::Bfloat16 | DataType::Uint16 => "u16",
        DataType::Int8 => "i8",
        DataType::Int16 => "i16",
        DataType::Int32 => "i32",
        DataType::Int64 => "i64",
        DataType::Uint8 | DataType::Bool => "u8",
        DataType::Uint32 => "u32",
        DataType::Uint64 => "u64",
        _ => return Err(Error::unimplemented(format!("a kernel for a card on {data_type}"))),
    })
}

/// The C type that elements are computed with.
///
/// # Errors
/// As [`stored`].
pub(super) fn computed(data_type: DataType) -> Result<&'static str> {
    stored(data_type.compute_type())
}

/// A stored element as it is computed with.
pub(super) fn widen(data_type: DataType, value: impl Display) -> String {
    match data_type {
        DataType::Half => format!("from_f16({value})"),
        DataType::Bfloat16 => format!("from_bf16({value})"),
        _ => value.to_string(),
    }
}

/// A computed element as it is stored.
pub(super) fn narrow(data_type: DataType, value: impl Display) -> String {
    match data_type {
        DataType::Half => format!("to_f16({value})"),
        DataType::Bfloat16 => format!("to_bf16({value})"),
        _ => value.to_string(),
    }
}

/// The word that an element of so many bytes is moved as.
///
/// # Errors
/// UNIMPLEMENTED for other sizes.
pub(super) fn word(bytes: u64) -> Result<&'static str> {
    Ok(match bytes {
        1 => "u8",
        2 => "u16",
        4 => "u32",
        8 => "u64",
        16 => "w16",
        _ => return Err(Error::unimplemented(format!("elements of {bytes} bytes"))),
    })
}

/// Floats.
pub(super) fn is_float(data_type: DataType) -> bool {
    matches!(data_type, DataType::Float | DataType::Double | DataType::Half | DataType::Bfloat16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_divided_by_a_multiplication() {
        let edges = |at: u64| [at.saturating_sub(1), at, at + 1];
        let divisors = (0..31).flat_map(|bit| edges(1 << bit)).chain([3, 7, 10, 224, 1000, 12_345_678, (1 << 31) - 1]);
        for divisor in divisors.filter(|divisor| *divisor > 0) {
            let (factor, shift) = reciprocal(divisor);
            let last = (1u64 << 31) - 1;
            let numbers = edges(divisor).into_iter().chain(edges(last / divisor * divisor)).chain([0, 1, 99, last]);
            for number in numbers.filter(|number| *number <= last) {
                assert_eq!((number * u64::from(factor)) >> shift, number / divisor, "{number} / {divisor}");
            }
        }
    }
}
