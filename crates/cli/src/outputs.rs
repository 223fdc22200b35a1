//! The files that a command will write, looked at before what takes long.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use plimsoll::model;

use crate::failure::{Result, wrong_use};

/// Checks that each file can be written, and that no two options name one file. Nothing stays of it.
///
/// # Errors
/// Wrong use for one file that two options name; as [`model::check_output`] for a file that cannot be written.
pub fn check<'a>(files: impl IntoIterator<Item = (&'a str, Option<&'a PathBuf>)>) -> Result<()> {
    let mut options: BTreeMap<PathBuf, &str> = BTreeMap::new();
    for (option, file) in files.into_iter().filter_map(|(option, file)| Some((option, file?))) {
        if let Some(other) = options.insert(spelled_out(file), option) {
            return wrong_use(format!("{other} and {option} would be written to one file: {}", file.display()));
        }
        model::check_output(file)?;
    }
    Ok(())
}

/// The path as it is from the root, without the steps that lead nowhere: `./a` and `a` are one file.
pub fn spelled_out(file: &Path) -> PathBuf {
    std::path::absolute(file).unwrap_or_else(|_| file.to_path_buf())
}
