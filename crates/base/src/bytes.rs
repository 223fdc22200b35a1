//! Sizes in bytes: read with or without the `i`, always powers of 1024, printed as KiB/MiB/GiB.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub};
use std::str::FromStr;

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
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

    /// Reads a size that an option gives: as [`FromStr`], but a number without a unit below 1 MiB is refused. It is taken for a
    /// forgotten unit; `512B` says that bytes are meant, and `0` needs no unit.
    ///
    /// # Errors
    /// The text is not a size, or its unit is missing.
    pub fn of_option(text: &str) -> Result<Bytes, ParseBytesError> {
        Bytes::with_unit_below(Bytes(1 << 20), text)
    }

    /// As [`Bytes::of_option`], for limits: plans print the smallest that fits in bytes, so that a number without a unit is
    /// refused below 1 KiB only.
    ///
    /// # Errors
    /// As [`Bytes::of_option`].
    pub fn of_limit(text: &str) -> Result<Bytes, ParseBytesError> {
        Bytes::with_unit_below(Bytes(1 << 10), text)
    }

    fn with_unit_below(least: Bytes, text: &str) -> Result<Bytes, ParseBytesError> {
        let bytes: Bytes = text.parse()?;
        let has_unit = text.trim().ends_with(|c: char| c.is_ascii_alphabetic());
        let is_zero = text.trim() == "0";
        if bytes < least && !has_unit && !is_zero {
            return Err(ParseBytesError { text: text.trim().to_string(), is_without_unit: true });
        }
        Ok(bytes)
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
pub struct ParseBytesError {
    text: String,
    is_without_unit: bool,
}

impl ParseBytesError {
    /// Whether the text is a small number whose unit is missing.
    pub fn is_without_unit(&self) -> bool {
        self.is_without_unit
    }
}

impl fmt::Display for ParseBytesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.text {
            text if self.is_without_unit => write!(f, "'{text}' has no unit: write {text}GiB or {text}MiB, or {text}B for bytes"),
            text => write!(f, "'{text}' is not a size: write bytes as 1048576, 512KiB, 64MiB or 2GiB"),
        }
    }
}

impl std::error::Error for ParseBytesError {}

impl FromStr for Bytes {
    type Err = ParseBytesError;

    fn from_str(text: &str) -> Result<Bytes, ParseBytesError> {
        let error = || ParseBytesError { text: text.to_string(), is_without_unit: false };
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
    fn an_option_needs_a_unit_below_a_mebibyte() {
        for (text, bytes) in [("0", 0), ("2B", 2), ("2GiB", 2 << 30), ("0.5k", 512), ("1048576", 1 << 20), (" 99999999 ", 99_999_999)] {
            assert_eq!(Bytes::of_option(text), Ok(Bytes(bytes)), "{text}");
        }
        for text in ["2", " 64", "1048575", "1.5", "0.5"] {
            let error = Bytes::of_option(text).unwrap_err();
            let text = text.trim();
            assert!(error.is_without_unit(), "{text}");
            assert_eq!(error.to_string(), format!("'{text}' has no unit: write {text}GiB or {text}MiB, or {text}B for bytes"));
        }
        assert!(!Bytes::of_option("much").unwrap_err().is_without_unit());
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
