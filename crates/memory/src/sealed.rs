//! Bytes that several processes see and that no process can change any more: a file in memory, sealed, and a mapping of it.

use std::ffi::CStr;
use std::fmt;
use std::fs::File;
use std::io::Write;
use std::ops::Deref;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;

use plimsoll_base::{Bytes, Error, Result, Shortage};

use crate::limits::{check_file_size, no_room};
use crate::physical_memory;

/// No process may write to it, make it shorter or longer, or take a seal off.
const SEALS: libc::c_int = libc::F_SEAL_WRITE | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

const NAME: &CStr = c"plimsoll-sealed";

/// Bytes of a sealed file in memory, mapped read-only. Its descriptor can be sent to other processes, which map the same pages.
///
/// The kernel refuses every write to a sealed file, through any descriptor or mapping, in any process. So it is sound to see shared
/// memory as a slice.
pub struct Sealed {
    file: Option<File>,
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the bytes belong to the value and do not change.
unsafe impl Send for Sealed {}
// SAFETY: as above.
unsafe impl Sync for Sealed {}

impl Sealed {
    /// A copy of `bytes`.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED where the system has no room, or the process no descriptor left.
    pub fn copy_of(bytes: &[u8]) -> Result<Sealed> {
        let mut unsealed = Unsealed::new()?;
        unsealed.append(bytes)?;
        unsealed.seal()
    }

    /// As many bytes, zero at first, as `fill` leaves them.
    ///
    /// # Errors
    /// As [`Sealed::copy_of`].
    pub fn filled(bytes: usize, fill: impl FnOnce(&mut [u8])) -> Result<Sealed> {
        // More than there is on the whole machine is not tried: the kernel would end processes to make room.
        if physical_memory().is_some_and(|all| bytes as u64 > all.0) {
            return Err(refused(bytes as u64, &std::io::Error::from_raw_os_error(libc::ENOMEM)));
        }
        check_size(bytes)?;
        let file = create()?;
        if bytes > 0 {
            // SAFETY: allocates the pages of a file that is ours; touching them cannot fail afterwards.
            if unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, bytes as libc::off_t) } != 0 {
                return Err(refused(bytes as u64, &std::io::Error::last_os_error()));
            }
            let mapping = Mapping::new(&file, bytes, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_POPULATE)?;
            // SAFETY: the mapping has that many bytes, all of them zero. No other code knows the file, and the slice ends before
            // the mapping does.
            fill(unsafe { std::slice::from_raw_parts_mut(mapping.start.as_ptr(), bytes) });
        } else {
            fill(&mut []);
        }
        Sealed::seal(file, bytes)
    }

    fn seal(file: File, bytes: usize) -> Result<Sealed> {
        // SAFETY: changes nothing but the file's seals. Pages that the kernel still uses make it fail.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, SEALS) } != 0 {
            return Err(Error::internal(format!("a file in memory cannot be sealed: {}", std::io::Error::last_os_error())));
        }
        Sealed::map(file, bytes)
    }

    /// The sealed bytes of another process.
    ///
    /// # Errors
    /// FAILED_PRECONDITION for a file that can still be changed; RESOURCE_EXHAUSTED where there is no room to map it.
    pub fn received(file: File) -> Result<Sealed> {
        // SAFETY: asks for the seals; a file that can have none says so.
        let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
        if seals < 0 || seals & SEALS != SEALS {
            return Err(Error::failed_precondition("a file that was received as sealed memory can still be changed"));
        }
        let length = file.metadata().map_err(|error| Error::internal(format!("a file in memory cannot be examined: {error}")))?.len();
        let bytes = usize::try_from(length).map_err(|_| Error::invalid_argument(format!("{length} bytes cannot be mapped")))?;
        Sealed::map(file, bytes)
    }

    fn map(file: File, bytes: usize) -> Result<Sealed> {
        if bytes == 0 {
            return Ok(Sealed { file: Some(file), start: NonNull::dangling(), bytes });
        }
        // Private, since kernels before 6.7 map no sealed file as shared; nothing is written, so the pages are the same.
        let mapping = Mapping::new(&file, bytes, libc::PROT_READ, libc::MAP_PRIVATE)?;
        let start = mapping.start;
        std::mem::forget(mapping);
        Ok(Sealed { file: Some(file), start, bytes })
    }

    /// The same bytes without a descriptor, of which a process has few.
    pub fn without_file(mut self) -> Sealed {
        self.file = None;
        self
    }

    /// The file, to be sent to others.
    pub fn file(&self) -> Option<&File> {
        self.file.as_ref()
    }
}

impl Deref for Sealed {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping has that many bytes and lives as long as the value. The seals let no process change or cut it.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for Sealed {
    fn drop(&mut self) {
        if self.bytes > 0 {
            drop(Mapping { start: self.start, bytes: self.bytes });
        }
    }
}

impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} sealed bytes", self.bytes)
    }
}

/// A file in memory that is being written.
#[derive(Debug)]
pub struct Unsealed {
    file: File,
    bytes: usize,
}

impl Unsealed {
    /// An empty one.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED where the process has no descriptor left.
    pub fn new() -> Result<Unsealed> {
        Ok(Unsealed { file: create()?, bytes: 0 })
    }

    /// Its bytes so far.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Writes bytes after all others.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED where the system has no room.
    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        check_size(self.bytes + bytes.len())?;
        // Writing is faster than copying into a mapping: pages that are written whole are not cleared before.
        self.file.write_all(bytes).map_err(|error| refused((self.bytes + bytes.len()) as u64, &error))?;
        self.bytes += bytes.len();
        Ok(())
    }

    /// Writes bytes anew.
    ///
    /// # Errors
    /// As [`Unsealed::append`].
    pub fn write_at(&mut self, at: usize, bytes: &[u8]) -> Result<()> {
        check_size(at + bytes.len())?;
        self.file.write_all_at(bytes, at as u64).map_err(|error| refused(bytes.len() as u64, &error))?;
        self.bytes = self.bytes.max(at + bytes.len());
        Ok(())
    }

    /// From here on it cannot be changed.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED where there is no room to map it.
    pub fn seal(self) -> Result<Sealed> {
        Sealed::seal(self.file, self.bytes)
    }
}

/// A mapping of a file from its start.
struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

impl Mapping {
    fn new(file: &File, bytes: usize, protection: libc::c_int, flags: libc::c_int) -> Result<Mapping> {
        // SAFETY: a new mapping where the system wants it changes none that there is.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, file.as_raw_fd(), 0) };
        match NonNull::new(start.cast::<u8>()).filter(|_| start != libc::MAP_FAILED) {
            Some(start) => Ok(Mapping { start, bytes }),
            None => Err(refused(bytes as u64, &std::io::Error::last_os_error())),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` and belongs to this value.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

fn create() -> Result<File> {
    // SAFETY: makes a new file without a place in any folder.
    let descriptor = unsafe { libc::memfd_create(NAME.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    if descriptor < 0 {
        return Err(no_room("a file in memory", &std::io::Error::last_os_error()));
    }
    // SAFETY: the descriptor was just made and has no other owner.
    Ok(unsafe { File::from_raw_fd(descriptor) })
}

/// # Errors
/// RESOURCE_EXHAUSTED where this process may not write so much to a file.
fn check_size(bytes: usize) -> Result<()> {
    let bytes = Bytes(bytes as u64);
    check_file_size(format_args!("{bytes} of shared memory"), bytes)
}

fn refused(bytes: u64, cause: &std::io::Error) -> Error {
    let shortage = Shortage { requested: Bytes(bytes), ..Shortage::default() };
    Error::no_room(format!("the system has no {} of shared memory: {cause}", Bytes(bytes)), shortage)
}

#[cfg(test)]
mod tests {
    use std::io::Seek;

    use super::*;

    #[test]
    fn is_what_was_put_in_and_stays_so() {
        let sealed = Sealed::copy_of(b"abc").unwrap();
        assert_eq!(&*sealed, b"abc");
        let mut file = sealed.file().unwrap().try_clone().unwrap();
        file.rewind().unwrap();
        assert!(file.write_all(b"x").is_err() && file.set_len(1).is_err() && file.set_len(10).is_err());
        assert_eq!(&*sealed, b"abc");
        let again = Sealed::received(file).unwrap().without_file();
        assert_eq!(&*again, b"abc");
        assert!(again.file().is_none());
    }

    #[test]
    fn is_written_in_parts() {
        let mut unsealed = Unsealed::new().unwrap();
        unsealed.append(b"....defg").unwrap();
        unsealed.append(b"hi").unwrap();
        unsealed.write_at(0, b"0abc").unwrap();
        unsealed.append(b"j").unwrap();
        assert_eq!(unsealed.bytes(), 11);
        assert_eq!(&*unsealed.seal().unwrap(), b"0abcdefghij");
    }

    #[test]
    fn is_filled_in_place() {
        let sealed = Sealed::filled(100_000, |bytes| {
            assert!(bytes.iter().all(|&byte| byte == 0));
            bytes[99_999] = 7;
        })
        .unwrap();
        assert_eq!((sealed.len(), sealed[99_999]), (100_000, 7));
        assert_eq!(Sealed::filled(0, |bytes| assert!(bytes.is_empty())).unwrap().len(), 0);
        assert_eq!(Sealed::copy_of(&[]).unwrap().len(), 0);
    }

    #[test]
    fn what_can_be_changed_is_not_received() {
        let mut file = create().unwrap();
        file.write_all(b"abc").unwrap();
        assert!(Sealed::received(file).unwrap_err().message().contains("can still be changed"));
        let file = File::open("/proc/self/exe").unwrap();
        assert!(Sealed::received(file).is_err());
        assert_eq!(Sealed::filled(usize::MAX / 2, |_| ()).unwrap_err().code(), plimsoll_base::Code::ResourceExhausted);
    }
}
