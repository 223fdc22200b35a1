//! The file in which values of processors wait.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use plimsoll_base::{Bytes, Error, Result};
use plimsoll_device::DeviceSpec;

use super::exact;

/// A file in which values of processors wait while their memory is needed for others. Prints as it is written: `/tmp=1GiB`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spill {
    /// The folder that it is made in. It has no name there.
    pub folder: PathBuf,
    /// The most bytes that it has. They are taken of the disk when devices are opened.
    pub bytes: Bytes,
}

impl Spill {
    /// Whether it is a file at all.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where it has no folder or no block.
    pub(crate) fn check(&self) -> Result<()> {
        if self.folder.as_os_str().is_empty() {
            return Err(wrong(&self.to_string(), "no folder is named"));
        }
        if self.bytes.0 < DeviceSpec::SPILL_ALIGNMENT {
            return Err(wrong(&self.to_string(), "a file has 4 KiB at least"));
        }
        Ok(())
    }
}

fn wrong(text: &str, why: &str) -> Error {
    Error::invalid_argument(format!("--spill {text}: {why}")).with_remedy("write FOLDER=SIZE, as /var/tmp=8GiB")
}

impl FromStr for Spill {
    type Err = Error;

    /// The value of a `--spill`, `FOLDER=SIZE`. The size is behind the last `=`; below 1 KiB it needs a unit.
    fn from_str(text: &str) -> Result<Spill> {
        let (folder, size) = text.rsplit_once('=').ok_or_else(|| wrong(text, "no size is given"))?;
        let bytes = Bytes::of_limit(size).map_err(|error| wrong(text, &error.to_string()))?;
        let spill = Spill { folder: PathBuf::from(folder.trim()), bytes };
        spill.check().map(|()| spill)
    }
}

impl fmt::Display for Spill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.folder.display(), exact(self.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_and_printed() {
        for (text, printed) in [("/tmp=1GiB", "/tmp=1GiB"), (" a=b = 64k", "a=b=64KiB"), ("/tmp=4097", "/tmp=4097B")] {
            assert_eq!(text.parse::<Spill>().unwrap().to_string(), printed);
        }
        for (text, why) in [
            ("/tmp", "no size is given"),
            ("=1GiB", "no folder is named"),
            ("/tmp=", "'' is not a size"),
            ("/tmp=much", "'much' is not a size"),
            ("/tmp=64", "'64' has no unit"),
            ("/tmp=0", "a file has 4 KiB at least"),
            ("/tmp=4095", "a file has 4 KiB at least"),
            ("/tmp=-1", "'-1' is not a size"),
        ] {
            let error = text.parse::<Spill>().unwrap_err();
            assert!(error.message().contains(why), "{text}: {error}");
            assert!(error.message().starts_with("--spill ") && error.to_string().contains("hint: write FOLDER=SIZE"), "{error}");
        }
    }
}
