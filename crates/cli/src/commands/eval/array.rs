//! Fetched values as files.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use plimsoll::{HostTensor, npy};

use crate::failure::Result;

/// Writes an array beside its final name first, so that no half of one is ever there.
pub fn write(path: &Path, tensor: &HostTensor) -> Result<()> {
    let failed = |error: std::io::Error| plimsoll::model::file_error(path, &error);
    let mut temporary = path.as_os_str().to_os_string();
    temporary.push(format!(".tmp{}", std::process::id()));
    let temporary = PathBuf::from(temporary);
    // A device, a pipe or another special file is written to, never replaced.
    let is_special = std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file());
    let target = if is_special { path } else { &temporary };
    let attempt = || -> plimsoll::Result<()> {
        let mut out = BufWriter::new(plimsoll::model::create_output(target)?);
        npy::write(tensor, &mut out)?;
        out.flush().map_err(failed)?;
        if is_special {
            return Ok(());
        }
        std::fs::rename(&temporary, path).map_err(failed)
    };
    let result = attempt();
    if result.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    Ok(result?)
}
