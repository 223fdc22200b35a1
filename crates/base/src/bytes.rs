//! Sizes in bytes: read with or without the `i`, always powers of 1024, printed as KiB/MiB/GiB.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub};
use std::str::FromStr;

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

impl Bytes {
    /// No bytes.
    pub const ZERO: Bytes = Bytes(0);

    /// `self` rounded up to a multiple of `granularity` (which must not be 0); saturates at the largest multiple.
    pub fn round_up(self, granularity: u64) -> Bytes {
        let granularity = granularity.max(1);
        match self.0.checked_next_multiple_of(granularity) {
            Some(bytes) => Bytes(bytes),
            None => Bytes(u64::MAX - u64::MAX % granularity),
        }
    }

    /// The sum, or the largest size there is.
    pub fn saturating_add(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_add(other.0))
    }

    /// The difference, or zero.
    pub fn saturating_sub(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_sub(other.0))
    }
}

impl Add for Bytes {
    type Output = Bytes;
    fn add(self, other: Bytes) -> Bytes {
        self.saturating_add(other)
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Bytes) {
        *self = *self + other;
    }
}

impl Sub for Bytes {
    type Output = Bytes;
    fn sub(self, other: Bytes) -> Bytes {
        self.saturating_sub(other)
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Bytes>>(iter: I) -> Bytes {
        iter.fold(Bytes::ZERO, Bytes::add)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
        for (unit, size) in UNITS {
            if self.0 >= size {
                if self.0.is_multiple_of(size) {
                    return f.pad(&format!("{} {unit}", self.0 / size));
                }
                return f.pad(&format!("{:.2} {unit}", self.0 as f64 / size as f64));
            }
        }
        f.pad(&format!("{} B", self.0))
    }
}

/// Why a text is not a size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseBytesError(String);

impl fmt::Display for ParseBytesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' is not a size: write bytes as 1048576, 512KiB, 64MiB or 2GiB", self.0)
    }
}

impl std::error::Error for ParseBytesError {}

impl FromStr for Bytes {
    type Err = ParseBytesError;

    fn from_str(text: &str) -> Result<Bytes, ParseBytesError> {
        let error = || ParseBytesError(text.to_string());
        let trimmed = text.trim();
        let digits = trimmed.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(digits);
        let scale: u64 = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kb" | "kib" => 1 << 10,
            "m" | "mb" | "mib" => 1 << 20,
            "g" | "gb" | "gib" => 1 << 30,
            "t" | "tb" | "tib" => 1 << 40,
            _ => return Err(error()),
        };
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(scale).map(Bytes).ok_or_else(error);
        }
        let value = number.parse::<f64>().map_err(|_| error())? * scale as f64;
        if !value.is_finite() || value < 0.0 || value >= u64::MAX as f64 {
            return Err(error());
        }
        Ok(Bytes(value as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_with_and_without_the_i() {
        for (text, bytes) in
            [("0", 0), ("7", 7), ("64MiB", 64 << 20), ("64MB", 64 << 20), ("64m", 64 << 20), ("1.5 GiB", 3 << 29), (" 2g ", 2 << 30)]
        {
            assert_eq!(text.parse::<Bytes>(), Ok(Bytes(bytes)), "{text}");
        }
    }

    #[test]
    fn refuses_what_is_no_size() {
        for text in ["", "x", "-1", "1.2.3", "5 parsecs", "99999999999999999999", "20000000TiB", "nan", "."] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }

    #[test]
    fn prints_the_largest_unit_that_fits() {
        for (bytes, text) in [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (64 << 20, "64 MiB"), (1536, "1.50 KiB"), (3 << 40, "3 TiB")] {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
    }

    #[test]
    fn rounding_up_never_overflows() {
        assert_eq!(Bytes(1).round_up(4096), Bytes(4096));
        assert_eq!(Bytes(4096).round_up(4096), Bytes(4096));
        assert_eq!(Bytes(u64::MAX).round_up(4096), Bytes(u64::MAX - 4095));
    }
}
