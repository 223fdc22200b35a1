//! The texts of the options.

use std::str::FromStr;

use plimsoll_base::{Bytes, Error, ParseBytesError, Result, closest};
use plimsoll_device::{DeviceKind, DeviceName};

use super::{MemoryLimit, PlacementMode};

impl MemoryLimit {
    /// Parses the value of a `--memory-limit`: limits between commas. A number below 1 KiB needs a unit: `512B`.
    ///
    /// # Errors
    /// INVALID_ARGUMENT naming the option, its value, and the values that it may have.
    pub fn parse_list(text: &str) -> Result<Vec<MemoryLimit>> {
        text.split(',').map(|limit| MemoryLimit::parse_with(limit, Bytes::of_limit)).collect()
    }

    /// Parses one limit: `2GiB`, `GPU:0=2GiB`, `GPU:0=1GiB+1GiB`.
    ///
    /// # Errors
    /// INVALID_ARGUMENT naming the option, its value, and the values that it may have.
    pub fn parse(text: &str) -> Result<MemoryLimit> {
        MemoryLimit::parse_with(text, str::parse)
    }

    fn parse_with(text: &str, size: fn(&str) -> Result<Bytes, ParseBytesError>) -> Result<MemoryLimit> {
        let wrong = |why: String| {
            Error::invalid_argument(format!("--memory-limit {}: {why}", text.trim()))
                .with_remedy("write SIZE for every GPU, or DEVICE=SIZE as in GPU:0=2GiB,CPU:0=64MiB; SIZE+SIZE makes two logical devices")
        };
        let (device, sizes) = match text.split_once('=') {
            Some((device, sizes)) => (limited_device(device.trim()).map_err(wrong)?, sizes),
            None => (None, text),
        };
        let size = |part: &str| size(part).map_err(|error| wrong(error.to_string()));
        Ok(MemoryLimit { device, parts: sizes.split('+').map(size).collect::<Result<_>>()? })
    }
}

impl FromStr for MemoryLimit {
    type Err = Error;

    fn from_str(text: &str) -> Result<MemoryLimit> {
        MemoryLimit::parse(text)
    }
}

/// The device that a limit is for: one of this process, or every GPU.
fn limited_device(text: &str) -> Result<Option<(DeviceKind, u32)>, String> {
    let not_one = || {
        let kind = text.trim_start_matches('/').split(':').next().unwrap_or_default();
        let meant = closest(kind, ["CPU", "GPU"]).filter(|meant| *meant != kind).map(|meant| text.replacen(kind, meant, 1));
        let question = meant.map_or_else(String::new, |meant| format!("; did you mean '{meant}'?"));
        format!("'{text}' is not a device of this process: CPU:N, GPU:N, or GPU for every GPU{question}")
    };
    let name = DeviceName::parse_python(text).map_err(|_| not_one())?;
    let here = DeviceName { kind: None, index: None, ..DeviceName::local("", 0) };
    let kind = name.kind.as_deref().and_then(DeviceKind::from_name).filter(|_| name.is_compatible(&here));
    match (kind, name.index) {
        (Some(kind), Some(index)) => Ok(Some((kind, index))),
        (Some(DeviceKind::Gpu), None) => Ok(None),
        _ => Err(not_one()),
    }
}

/// Parses `CPU=2,GPU=0`.
pub(super) fn device_counts(text: &str) -> Result<Vec<(String, i32)>> {
    let count = |item: &str| {
        let (kind, number) = item.split_once('=')?;
        let kind = DeviceKind::from_name(&kind.trim().to_ascii_uppercase())?;
        let number = number.trim().parse::<i32>().ok().filter(|&number| number >= 0)?;
        Some((kind.name().to_string(), number))
    };
    let counts: Option<Vec<_>> = text.split(',').map(count).collect();
    counts.ok_or_else(|| {
        let error = Error::invalid_argument(format!("--device-count {text}: not a list of counts"));
        error.with_remedy("write TYPE=N between commas, TYPE being CPU or GPU: CPU=2,GPU=0")
    })
}

impl FromStr for PlacementMode {
    type Err = Error;

    /// `tensorflow`, `auto` or `auto:throughput`.
    fn from_str(text: &str) -> Result<PlacementMode> {
        match text {
            "tensorflow" => Ok(PlacementMode::TensorFlow),
            "auto" => Ok(PlacementMode::Auto),
            "auto:throughput" => Ok(PlacementMode::AutoThroughput),
            _ => Err(Error::invalid_argument(format!("--placement {text}: not a way to place nodes"))
                .with_remedy("write tensorflow, auto or auto:throughput")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_and_printed() {
        for (text, printed) in [
            ("2GiB", "2GiB"),
            ("GPU=2G", "2GiB"),
            ("GPU:0=1GiB+1GiB,CPU:0=64MiB", "GPU:0=1GiB+1GiB,CPU:0=64MiB"),
            (" /gpu:1 = 5B , cpu:0=1.5KiB", "GPU:1=5B,CPU:0=1.50KiB"),
            ("/job:localhost/replica:0/task:0/device:CPU:3=1000001B", "CPU:3=1000001B"),
            ("CPU:0=12287", "CPU:0=12287B"),
        ] {
            let limits = MemoryLimit::parse_list(text).unwrap();
            let texts: Vec<String> = limits.iter().map(ToString::to_string).collect();
            assert_eq!(texts.join(","), printed);
            assert_eq!(MemoryLimit::parse_list(printed).unwrap(), limits);
        }
    }

    #[test]
    fn what_is_no_limit_says_so() {
        for (text, why) in [
            ("CPU:0=64 parsecs", "'64 parsecs' is not a size"),
            ("CPU:0=", "'' is not a size"),
            ("", "'' is not a size"),
            ("CPU:0=1GiB+", "'' is not a size"),
            ("CPU:0=64", "'64' has no unit: write 64GiB or 64MiB, or 64B for bytes"),
            ("GPU:0=1GiB+4", "'4' has no unit"),
            ("2", "'2' has no unit"),
            ("CPU=1GiB", "'CPU' is not a device"),
            ("TPU:0=1GiB", "'TPU:0' is not a device"),
            ("/job:worker/cpu:0=1GiB", "'/job:worker/cpu:0' is not a device"),
            ("=1GiB", "'' is not a device"),
            ("CUP:0=1GiB", "'CUP:0' is not a device of this process: CPU:N, GPU:N, or GPU for every GPU; did you mean 'CPU:0'?"),
            ("GPU:-1=1GiB", "'GPU:-1' is not a device"),
        ] {
            let error = MemoryLimit::parse_list(text).unwrap_err();
            assert!(error.message().starts_with(&format!("--memory-limit {text}: {why}")), "{error}");
            assert!(error.to_string().contains("hint: write SIZE"), "{error}");
        }
    }

    #[test]
    fn a_program_may_leave_the_unit_out() {
        assert_eq!(MemoryLimit::parse("CPU:0=5").unwrap().parts, [Bytes(5)]);
    }

    #[test]
    fn counts_are_read() {
        assert_eq!(device_counts("CPU=2, gpu=0").unwrap(), [("CPU".to_string(), 2), ("GPU".to_string(), 0)]);
        for text in ["", "CPU", "CPU=-1", "CPU=x", "TPU=1", "CPU=2,"] {
            assert!(device_counts(text).is_err(), "{text}");
        }
        assert_eq!("auto".parse::<PlacementMode>(), Ok(PlacementMode::Auto));
        assert!("Auto".parse::<PlacementMode>().is_err());
    }
}
