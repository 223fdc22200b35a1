//! A worker's output on standard error: passed on as it comes, and the end of it kept.

use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::ChildStderr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

/// Bytes kept.
const KEPT: usize = 4 << 10;

/// How long a process that holds the pipe after its worker has ended is waited for: one that left the worker's group.
const REST: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(super) struct Words {
    shared: Arc<Shared>,
    /// The end that is read, to see whether something is in it.
    pipe: OwnedFd,
}

#[derive(Debug, Default)]
struct Shared {
    said: Mutex<Said>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Said {
    last: Vec<u8>,
    ended: bool,
}

impl Words {
    /// Passes on the output of the pipe until it ends.
    pub fn pass_on(mut pipe: ChildStderr) -> std::io::Result<Words> {
        let shared = Arc::new(Shared::default());
        let seen = pipe.as_fd().try_clone_to_owned()?;
        let kept = Arc::clone(&shared);
        let passes = move || {
            let mut buffer = [0; 8 << 10];
            loop {
                let _ = poll(&mut [PollFd::new(&pipe, PollFlags::IN)], None);
                // Bytes taken out of the pipe are kept before another thread can see that the pipe is empty.
                let mut said = kept.said();
                match pipe.read(&mut buffer) {
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                    Ok(0) | Err(_) => break said.ended = true,
                    Ok(count) => {
                        said.keep(&buffer[..count]);
                        drop(said);
                        let _ = std::io::stderr().write_all(&buffer[..count]);
                    }
                }
            }
            kept.ended.notify_all();
        };
        let thread = std::thread::Builder::new().name("plimsoll-words".into()).stack_size(128 << 10).spawn(passes);
        thread.map(|_| Words { shared, pipe: seen })
    }

    /// Forgets the output, before a new call.
    pub fn forget(&self) {
        self.shared.said().last.clear();
    }

    /// The end of the output, all that was written by now included.
    pub fn last(&self) -> String {
        let begin = Instant::now();
        loop {
            let said = self.shared.said();
            let is_read = said.ended || rustix::io::ioctl_fionread(&self.pipe).map_or(true, |bytes| bytes == 0);
            if is_read || begin.elapsed() > REST {
                return String::from_utf8_lossy(&said.last).into_owned();
            }
            drop(said);
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// Waits for all that an ended process has said.
    pub fn rest(&self) {
        let said = self.shared.said();
        let _ = self.shared.ended.wait_timeout_while(said, REST, |said| !said.ended);
    }

    /// The line in which the allocator said that it has no more, before it aborted.
    pub fn about_memory(&self) -> Option<String> {
        let said = self.last();
        // Rust's allocation error; C++'s; Python's in the same process.
        let marks = ["memory allocation of ", "std::bad_alloc", "MemoryError", "Cannot allocate memory"];
        said.lines().rev().find(|line| marks.iter().any(|mark| line.contains(mark))).map(|line| line.trim().to_string())
    }
}

impl Shared {
    fn said(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Said {
    fn keep(&mut self, bytes: &[u8]) {
        self.last.extend_from_slice(bytes);
        let too_many = self.last.len().saturating_sub(KEPT);
        self.last.drain(..too_many);
    }
}
