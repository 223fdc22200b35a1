//! A file that is read by position, a record at a time.

use std::fs::File;
use std::io::{ErrorKind, Result as IoResult};
use std::path::{Path, PathBuf};

use plimsoll::{Code, Error, Result};

/// An open file of data. It is read where it is asked for, so that none of it stays in this process's memory.
#[derive(Debug)]
pub struct RecordFile {
    path: PathBuf,
    file: Positioned,
    length: u64,
}

impl RecordFile {
    /// Opens a file.
    ///
    /// # Errors
    /// NOT_FOUND, PERMISSION_DENIED or another error of the system, with the path; INVALID_ARGUMENT for a path that is no regular
    /// file.
    pub fn open(path: &Path) -> Result<RecordFile> {
        let failed = |error: std::io::Error| plimsoll::model::file_error(path, &error);
        let file = plimsoll::model::open_file(path)?;
        let length = file.metadata().map_err(failed)?.len();
        Ok(RecordFile { path: path.to_path_buf(), file: Positioned::new(file), length })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its length in bytes when it was opened.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Fills `buffer` with the bytes from `offset` on.
    ///
    /// # Errors
    /// DATA_LOSS where the file ends before; the system's error.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.file.read_exact_at(buffer, offset).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => self.flaw(offset, format_args!("the file ends within the {} bytes from here", buffer.len())),
            _ => Error::new(Code::Unknown, format!("{}, byte {offset}: {error}", self.path.display())),
        })
    }

    /// The error for wrong bytes: DATA_LOSS, with the file and the offset of the first of them.
    pub fn flaw(&self, offset: u64, what: impl std::fmt::Display) -> Error {
        Error::data_loss(format!("{}, byte {offset}: {what}", self.path.display()))
    }
}

#[cfg(unix)]
#[derive(Debug)]
struct Positioned(File);

#[cfg(unix)]
impl Positioned {
    fn new(file: File) -> Positioned {
        Positioned(file)
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> IoResult<()> {
        std::os::unix::fs::FileExt::read_exact_at(&self.0, buffer, offset)
    }
}

/// One reader at a time, since reading moves the file's position.
#[cfg(not(unix))]
#[derive(Debug)]
struct Positioned(std::sync::Mutex<File>);

#[cfg(not(unix))]
impl Positioned {
    fn new(file: File) -> Positioned {
        Positioned(std::sync::Mutex::new(file))
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> IoResult<()> {
        use std::io::{Read, Seek, SeekFrom};
        let mut file = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        file.seek(SeekFrom::Start(offset))?;
        file.read_exact(buffer)
    }
}
