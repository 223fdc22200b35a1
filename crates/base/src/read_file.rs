//! Files that are read whole.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The most that is read from what is no plain file (a pipe), whose length nobody knows beforehand: a message of protobuf is
/// never longer.
const MOST: u64 = 2 << 30;

/// All bytes of a file or a pipe. Devices and folders are refused: some of them never end.
///
/// # Errors
/// What the system says; [`io::ErrorKind::InvalidInput`] for a device, or a pipe that gives more than 2 GiB.
pub fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    read_at_most(path, MOST)
}

fn read_at_most(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let bad = |what: String| io::Error::new(io::ErrorKind::InvalidInput, what);
    let mut file = File::open(path)?;
    let facts = file.metadata()?;
    let mut bytes = Vec::new();
    if facts.is_file() || facts.is_dir() {
        // The length is a hint, and what a folder is is said by the system.
        bytes.try_reserve(usize::try_from(facts.len()).unwrap_or(usize::MAX))?;
        file.read_to_end(&mut bytes)?;
        return Ok(bytes);
    }
    if is_device(&facts) {
        return Err(bad("a device is not read".into()));
    }
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(bad(format!("more than {most} bytes are not read from a pipe")));
    }
    Ok(bytes)
}

#[cfg(unix)]
fn is_device(facts: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt;
    facts.file_type().is_char_device() || facts.file_type().is_block_device()
}

#[cfg(not(unix))]
fn is_device(_: &std::fs::Metadata) -> bool {
    true
}

#[cfg(all(test, unix))]
mod tests {
    use std::io::Write;
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn devices_are_not_read() {
        for device in ["/dev/zero", "/dev/full"] {
            assert_eq!(read_file(Path::new(device)).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{device}");
        }
        assert_eq!(read_file(&std::env::temp_dir()).unwrap_err().kind(), io::ErrorKind::IsADirectory);
        assert_eq!(read_file(Path::new("/no/such/file")).unwrap_err().kind(), io::ErrorKind::NotFound);
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        assert_eq!(read_file(&path).unwrap(), std::fs::read(&path).unwrap());
    }

    #[test]
    fn a_pipe_is_read_up_to_a_bound() {
        for (most, ok) in [(5, true), (4, false)] {
            let (reader, mut writer) = io::pipe().unwrap();
            writer.write_all(b"bytes").unwrap();
            drop(writer);
            let read = read_at_most(Path::new(&format!("/dev/fd/{}", reader.as_raw_fd())), most);
            assert_eq!(read.is_ok_and(|bytes| bytes == b"bytes"), ok, "{most}");
        }
    }
}
