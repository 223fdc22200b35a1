//! Files of the user, opened in one way: no open waits for another process, and no file is read beyond what this machine holds.
//!
//! A file that belongs to a folder (a model's, a checkpoint's, a data set's) is plain: anything else in its place is refused. A file
//! that the command line names may also be an anonymous pipe, as a shell's `<(…)` makes it.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;

use crate::{Bytes, Code, Error, memory};

/// The most bytes of a file that is read whole: a message of protobuf is never longer.
const MOST: u64 = 2 << 30;

/// Opens a plain file for reading.
///
/// # Errors
/// The system's error; [`ErrorKind::IsADirectory`]; [`ErrorKind::InvalidInput`] for a pipe, a device or a socket.
pub fn open_file(path: &Path) -> io::Result<File> {
    let (file, facts) = open(path, OpenOptions::new().read(true))?;
    plain(&facts)?;
    Ok(file)
}

/// A file that the command line names, for reading.
#[derive(Debug)]
pub enum Input {
    /// A plain file and its length.
    Plain(File, u64),
    /// An anonymous pipe. Reading waits for its writer.
    Pipe(File),
}

/// Opens a plain file or an anonymous pipe for reading.
///
/// # Errors
/// As [`open_file`]; [`ErrorKind::InvalidInput`] for a named pipe, which may never get a writer.
pub fn open_input(path: &Path) -> io::Result<Input> {
    let (file, facts) = open(path, OpenOptions::new().read(true))?;
    if is_anonymous_pipe(&file, path, &facts) {
        set_waiting(&file)?;
        return Ok(Input::Pipe(file));
    }
    plain(&facts)?;
    Ok(Input::Plain(file, facts.len()))
}

/// All bytes of a plain file of at most 2 GiB.
///
/// # Errors
/// As [`open_file`]; [`ErrorKind::FileTooLarge`]; [`ErrorKind::OutOfMemory`] where this machine has less memory available.
pub fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    read_whole(&mut open_file(path)?)
}

/// All bytes of a plain file or an anonymous pipe, at most 2 GiB.
///
/// # Errors
/// As [`read_file`] and [`open_input`].
pub fn read_input(path: &Path) -> io::Result<Vec<u8>> {
    match open_input(path)? {
        Input::Plain(mut file, _) => read_whole(&mut file),
        Input::Pipe(pipe) => read_pipe(pipe, MOST),
    }
}

/// The rest of an open plain file, of at most 2 GiB.
///
/// # Errors
/// As [`read_file`].
pub fn read_whole(file: &mut File) -> io::Result<Vec<u8>> {
    let length = file.metadata()?.len();
    if length > MOST {
        return Err(io::Error::new(ErrorKind::FileTooLarge, format!("{} are too many: at most {} are read", Bytes(length), Bytes(MOST))));
    }
    let mut bytes = reserve(length)?;
    file.take(MOST).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// All bytes that come out of a pipe.
///
/// # Errors
/// [`ErrorKind::FileTooLarge`] where there are more than `most`; the system's error.
pub fn read_pipe(pipe: File, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    pipe.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::new(ErrorKind::FileTooLarge, format!("a pipe with more than {} is not read", Bytes(most))));
    }
    Ok(bytes)
}

/// Whether this machine has so much memory available: asked before a buffer of a size from a file is made.
///
/// # Errors
/// [`ErrorKind::OutOfMemory`] with both numbers.
pub fn check_memory(length: u64) -> io::Result<()> {
    // A small buffer is not worth the question.
    if length < 16 << 20 {
        return Ok(());
    }
    match memory::available() {
        Some(available) if length > available.0 => Err(io::Error::new(
            ErrorKind::OutOfMemory,
            format!("{} ({length} bytes) are needed and {available} of memory are available", Bytes(length)),
        )),
        _ => Ok(()),
    }
}

/// Creates a plain file, or empties the one that is there.
///
/// # Errors
/// As [`open_file`].
pub fn create_file(path: &Path) -> io::Result<File> {
    let opened = open(path, OpenOptions::new().write(true).create(true).truncate(true));
    let (file, facts) = opened.map_err(|error| std::fs::metadata(path).ok().and_then(|facts| plain(&facts).err()).unwrap_or(error))?;
    plain(&facts)?;
    Ok(file)
}

/// Opens a plain file for writing and keeps its contents; creates it where there is none.
///
/// # Errors
/// As [`open_file`].
pub fn keep_file(path: &Path) -> io::Result<File> {
    let (file, facts) = open(path, OpenOptions::new().read(true).write(true).create(true).truncate(false))?;
    plain(&facts)?;
    Ok(file)
}

/// Opens a path of the command line for writing: a plain file, which is created or emptied, a device, or a pipe that has a reader.
///
/// # Errors
/// The system's error; [`ErrorKind::InvalidInput`] for a named pipe that no process reads.
pub fn create_output(path: &Path) -> io::Result<File> {
    let opened = open(path, OpenOptions::new().write(true).create(true).truncate(true));
    let (file, facts) = opened.map_err(|error| match std::fs::metadata(path) {
        Ok(facts) if is_pipe(&facts) => bad("no process reads this pipe"),
        _ => error,
    })?;
    if !facts.is_file() {
        set_waiting(&file)?;
    }
    Ok(file)
}

/// Creates a plain file with these bytes, or replaces those of the one that is there.
///
/// # Errors
/// As [`create_file`].
pub fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    create_file(path)?.write_all(bytes)
}

/// The system's error about a file, with its status code and the path.
pub fn file_error(path: &Path, error: &io::Error) -> Error {
    let code = match error.kind() {
        ErrorKind::NotFound => Code::NotFound,
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Code::PermissionDenied,
        ErrorKind::IsADirectory | ErrorKind::InvalidInput | ErrorKind::FileTooLarge => Code::InvalidArgument,
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::OutOfMemory => Code::ResourceExhausted,
        ErrorKind::UnexpectedEof => Code::DataLoss,
        _ => Code::Unknown,
    };
    Error::new(code, format!("{}: {error}", path.display()))
}

fn reserve(length: u64) -> io::Result<Vec<u8>> {
    check_memory(length)?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(usize::try_from(length).unwrap_or(usize::MAX))?;
    Ok(bytes)
}

fn bad(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, what)
}

/// Whether this is a plain file.
fn plain(facts: &Metadata) -> io::Result<()> {
    match facts {
        _ if facts.is_file() => Ok(()),
        _ if facts.is_dir() => Err(io::Error::new(ErrorKind::IsADirectory, "this is a folder, not a file")),
        _ if is_pipe(facts) => Err(bad("this is a pipe, not a file")),
        _ => Err(bad("this is a device or a socket, not a file")),
    }
}

/// Opens without waiting: an open of a named pipe waits for its other end, and that of some devices for a signal.
#[cfg(unix)]
fn open(path: &Path, options: &mut OpenOptions) -> io::Result<(File, Metadata)> {
    use rustix::fs::OFlags;
    use std::os::unix::fs::OpenOptionsExt;
    let file = options.custom_flags((OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32).open(path)?;
    let facts = file.metadata()?;
    if facts.is_file() {
        // A program that inherits the file finds it as usual.
        set_waiting(&file)?;
    }
    Ok((file, facts))
}

#[cfg(not(unix))]
fn open(path: &Path, options: &mut OpenOptions) -> io::Result<(File, Metadata)> {
    let file = options.open(path)?;
    let facts = file.metadata()?;
    Ok((file, facts))
}

/// From here on reads and writes wait for the other end.
#[cfg(unix)]
fn set_waiting(file: &File) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(file)?;
    Ok(rustix::fs::fcntl_setfl(file, flags - rustix::fs::OFlags::NONBLOCK)?)
}

#[cfg(not(unix))]
fn set_waiting(_: &File) -> io::Result<()> {
    Ok(())
}

#[cfg(unix)]
fn is_pipe(facts: &Metadata) -> bool {
    std::os::unix::fs::FileTypeExt::is_fifo(&facts.file_type())
}

#[cfg(not(unix))]
fn is_pipe(_: &Metadata) -> bool {
    false
}

/// Whether this is a pipe that was made with both its ends: it lives in no folder.
#[cfg(target_os = "linux")]
fn is_anonymous_pipe(file: &File, _: &Path, facts: &Metadata) -> bool {
    /// `PIPEFS_MAGIC` of Linux.
    const PIPES: u64 = 0x5049_5045;
    is_pipe(facts) && rustix::fs::fstatfs(file).is_ok_and(|system| system.f_type as u64 == PIPES)
}

#[cfg(not(target_os = "linux"))]
fn is_anonymous_pipe(_: &File, path: &Path, facts: &Metadata) -> bool {
    is_pipe(facts) && path.starts_with("/dev")
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::fd::AsRawFd;
    use std::path::PathBuf;
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("plimsoll-file-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Folder(path)
        }

        fn pipe(&self) -> PathBuf {
            let path = self.0.join("pipe");
            rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU).unwrap();
            path
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// The result of a call that must not wait.
    fn at_once<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
        let (send, receive) = mpsc::channel();
        std::thread::spawn(move || send.send(call()));
        receive.recv_timeout(Duration::from_secs(60)).expect("it does not wait")
    }

    #[test]
    fn only_plain_files_are_read() {
        for device in ["/dev/zero", "/dev/full"] {
            for read in [read_file, read_input] {
                assert_eq!(read(Path::new(device)).unwrap_err().kind(), ErrorKind::InvalidInput, "{device}");
            }
        }
        assert_eq!(read_file(&std::env::temp_dir()).unwrap_err().kind(), ErrorKind::IsADirectory);
        assert_eq!(read_file(Path::new("/no/such/file")).unwrap_err().kind(), ErrorKind::NotFound);
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        assert_eq!(read_file(&path).unwrap(), std::fs::read(&path).unwrap());
        assert_eq!(read_input(&path).unwrap(), std::fs::read(&path).unwrap());
    }

    #[test]
    fn a_named_pipe_is_not_waited_for() {
        let folder = Folder::new("named");
        let path = folder.pipe();
        let error = at_once({
            let path = path.clone();
            move || read_file(&path).unwrap_err()
        });
        assert_eq!(error.to_string(), "this is a pipe, not a file");
        let calls: [fn(&Path) -> io::Error; 4] = [
            |path| open_file(path).unwrap_err(),
            |path| read_input(path).unwrap_err(),
            |path| create_file(path).unwrap_err(),
            |path| create_output(path).unwrap_err(),
        ];
        for call in calls {
            let path = path.clone();
            at_once(move || call(&path));
        }
        // One that is read is written to.
        let reader = std::thread::spawn({
            let path = path.clone();
            move || std::fs::read(path).unwrap()
        });
        let mut output = loop {
            match create_output(&path) {
                Ok(output) => break output,
                Err(_) => std::thread::yield_now(),
            }
        };
        let bytes = vec![7; 1 << 20];
        output.write_all(&bytes).unwrap();
        drop(output);
        assert_eq!(reader.join().unwrap(), bytes);
    }

    #[test]
    fn an_anonymous_pipe_is_read_up_to_a_bound() {
        for (most, ok) in [(5, true), (4, false)] {
            let (reader, mut writer) = io::pipe().unwrap();
            writer.write_all(b"bytes").unwrap();
            drop(writer);
            let path = PathBuf::from(format!("/dev/fd/{}", reader.as_raw_fd()));
            assert_eq!(read_file(&path).unwrap_err().kind(), ErrorKind::InvalidInput);
            let Input::Pipe(pipe) = open_input(&path).unwrap() else { panic!("a pipe") };
            assert_eq!(read_pipe(pipe, most).is_ok_and(|bytes| bytes == b"bytes"), ok, "{most}");
        }
        let (reader, mut writer) = io::pipe().unwrap();
        let path = PathBuf::from(format!("/dev/fd/{}", reader.as_raw_fd()));
        let slow = std::thread::spawn(move || read_input(&path).unwrap());
        std::thread::sleep(Duration::from_millis(20));
        writer.write_all(b"late").unwrap();
        drop(writer);
        assert_eq!(slow.join().unwrap(), b"late");
    }

    #[test]
    fn a_file_of_holes_is_refused_before_memory_is_taken() {
        let folder = Folder::new("holes");
        let path = folder.0.join("holes");
        let file = create_file(&path).unwrap();
        file.set_len(1 << 40).unwrap();
        assert_eq!(read_file(&path).unwrap_err().kind(), ErrorKind::FileTooLarge);
        if memory::available().is_some() {
            let error = check_memory(1 << 60).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::OutOfMemory);
            assert_eq!(file_error(&path, &error).code(), Code::ResourceExhausted);
        }
        assert!(check_memory(1).is_ok());
    }
}
