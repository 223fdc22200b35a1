//! The file: made at once with all of its blocks, and without a name, so that it goes with the process however that ends.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use plimsoll_base::{Bytes, Code, Error, Result, Shortage};
use plimsoll_device::{DeviceSpec, Fault};
use plimsoll_memory::pages::total;
use plimsoll_memory::{Faults, check_file_size};
use rustix::fs::{Advice, FallocateFlags, Mode, OFlags};
use rustix::io::Errno;

/// What every access is a multiple of, in bytes.
pub(crate) const BLOCK: u64 = DeviceSpec::SPILL_ALIGNMENT;

/// Whole blocks at the address of one, as direct access asks for.
#[repr(align(4096))]
struct Blocks([u8; 16 * BLOCK as usize]);

/// A file of a fixed size without a name.
#[derive(Debug)]
pub(crate) struct Disk {
    file: File,
    /// Whether accesses pass the system's page cache by.
    is_direct: bool,
    faults: OnceLock<Arc<Faults>>,
}

impl Disk {
    /// A file of `bytes` bytes, a multiple of [`BLOCK`], all 0, in a folder.
    ///
    /// # Errors
    /// NOT_FOUND and PERMISSION_DENIED for the folder; RESOURCE_EXHAUSTED where the disk has not that much, or this process may
    /// not write such a file.
    pub fn create(folder: &Path, bytes: Bytes) -> Result<Disk> {
        check_file_size(format_args!("{bytes} for a file in {}", folder.display()), bytes)?;
        let file = unnamed(folder).map_err(|error| refused(folder, error))?;
        let mut disk = Disk { file, is_direct: false, faults: OnceLock::new() };
        disk.fill(bytes.0).map_err(|error| no_room(folder, bytes, error))?;
        disk.is_direct = disk.can_be_direct();
        Ok(disk)
    }

    /// From now on `faults` decides which accesses fail, as those of a disk that is broken; only the first that is given counts.
    pub fn inject(&self, faults: &Arc<Faults>) {
        let _ = self.faults.set(faults.clone());
    }

    /// Whether the page cache is passed by.
    pub fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// Reads whole blocks into memory at the address of one.
    ///
    /// # Errors
    /// That of the disk.
    pub fn read(&self, bytes: &mut [u8], at: u64) -> Result<(), Fault> {
        let done = self.works().and_then(|()| self.file.read_exact_at(bytes, at));
        self.forget(bytes.len() as u64, at);
        done.map_err(|error| fault("reading {0} bytes of it fails: system error {1}", bytes.len(), &error))
    }

    /// Writes whole blocks from memory at the address of one.
    ///
    /// # Errors
    /// That of the disk.
    pub fn write(&self, bytes: &[u8], at: u64) -> Result<(), Fault> {
        let done = self.works().and_then(|()| self.file.write_all_at(bytes, at));
        let done = if self.is_direct { done } else { done.and_then(|()| self.file.sync_data()) };
        self.forget(bytes.len() as u64, at);
        done.map_err(|error| fault("writing {0} bytes of it fails: system error {1}", bytes.len(), &error))
    }

    /// Makes pieces of whole blocks 0, which may be none. One access, whatever they are.
    ///
    /// # Errors
    /// That of the disk.
    pub fn clear(&self, pieces: &[Range<u64>]) -> Result<(), Fault> {
        let clear = |piece: &Range<u64>| {
            let (at, bytes, flags) = (piece.start, piece.end - piece.start, FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE);
            match rustix::io::retry_on_intr(|| rustix::fs::fallocate(&self.file, flags, at, bytes)) {
                Err(Errno::OPNOTSUPP) => self.zero(at, bytes),
                done => done.map_err(io::Error::from),
            }
        };
        let done = self.works().and_then(|()| pieces.iter().try_for_each(clear));
        done.map_err(|error| fault("clearing {0} bytes of it fails: system error {1}", total(pieces) as usize, &error))
    }

    /// Gives the file its size and its blocks.
    fn fill(&self, bytes: u64) -> io::Result<()> {
        match rustix::io::retry_on_intr(|| rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, bytes)) {
            // A file system that cannot promise blocks has them once they are written.
            Err(Errno::OPNOTSUPP) => self.zero(0, bytes).and_then(|()| self.file.sync_all()),
            done => done.map_err(io::Error::from),
        }
    }

    fn zero(&self, at: u64, bytes: u64) -> io::Result<()> {
        let zeros = Blocks([0; _]);
        let (end, step) = (at + bytes, zeros.0.len());
        (at..end).step_by(step).try_for_each(|at| self.file.write_all_at(&zeros.0[..step.min((end - at) as usize)], at))
    }

    /// Asks for direct access, and tries it: some file systems know it only by name.
    fn can_be_direct(&self) -> bool {
        let Ok(flags) = rustix::fs::fcntl_getfl(&self.file) else { return false };
        if rustix::fs::fcntl_setfl(&self.file, flags | OFlags::DIRECT).is_err() {
            return false;
        }
        let mut blocks = Blocks([0; _]);
        let block = &mut blocks.0[..BLOCK as usize];
        let works = self.file.read_exact_at(block, 0).is_ok() && self.file.write_all_at(block, 0).is_ok();
        works || rustix::fs::fcntl_setfl(&self.file, flags).is_err()
    }

    /// Has the system keep no copy in its page cache.
    fn forget(&self, bytes: u64, at: u64) {
        if !self.is_direct {
            // Where it is not heard, memory of the system is used that it can have back at any time.
            let _ = rustix::fs::fadvise(&self.file, at, std::num::NonZero::new(bytes), Advice::DontNeed);
        }
    }

    fn works(&self) -> io::Result<()> {
        match self.faults.get() {
            Some(faults) if faults.refuses_this() => Err(Errno::IO.into()),
            _ => Ok(()),
        }
    }
}

/// A file that no folder names.
fn unnamed(folder: &Path) -> io::Result<File> {
    let mode = Mode::RUSR | Mode::WUSR;
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::open(folder, flags | OFlags::TMPFILE | OFlags::EXCL, mode) {
        Ok(file) => return Ok(file.into()),
        // What systems and file systems say that know no such files.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {}
        Err(error) => return Err(error.into()),
    }
    let mut number = 0u64;
    loop {
        let path = folder.join(format!(".plimsoll-spill-{}-{number}", std::process::id()));
        match rustix::fs::open(&path, flags | OFlags::CREATE | OFlags::EXCL, mode) {
            // Of another thread, or of a process before this one that ended between two lines.
            Err(Errno::EXIST) => number += 1,
            Err(error) => return Err(error.into()),
            Ok(file) => {
                std::fs::remove_file(&path)?;
                return Ok(file.into());
            }
        }
    }
}

fn refused(folder: &Path, error: io::Error) -> Error {
    let code = match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Code::NotFound,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Code::PermissionDenied,
        _ => Code::Unavailable,
    };
    Error::new(code, format!("no file can be made in {}: {error}", folder.display()))
        .with_remedy("name a folder that is there and can be written to, on a fast disk")
}

fn no_room(folder: &Path, bytes: Bytes, error: io::Error) -> Error {
    let free = rustix::fs::statvfs(folder).map(|disk| Bytes(disk.f_bavail.saturating_mul(disk.f_frsize))).ok();
    let there = free.map_or_else(String::new, |free| format!("; {free} are free there"));
    let shortage = Shortage { requested: bytes, limit: free, ..Shortage::default() };
    Error::no_room(format!("{} has no {bytes} ({} bytes) for a file: {error}{there}", folder.display(), bytes.0), shortage)
        .with_remedy("ask for less, or name a folder on a larger disk")
}

fn fault(message: &'static str, bytes: usize, error: &io::Error) -> Fault {
    let code = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Code::ResourceExhausted,
        _ => Code::Unavailable,
    };
    Fault { code, message, numbers: [bytes as i64, i64::from(error.raw_os_error().unwrap_or_default())] }
}
