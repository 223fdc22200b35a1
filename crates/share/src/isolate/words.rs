//! What a worker says on standard error: passed on as it comes, and the end of it kept.

use std::io::{Read, Write};
use std::process::ChildStderr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes kept.
const KEPT: usize = 4 << 10;

/// How long a process that holds the pipe after its worker has ended is waited for: one that left the worker's group.
const REST: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(super) struct Words(Arc<Shared>);

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
    /// Passes on what comes out of the pipe until it ends.
    pub fn pass_on(mut pipe: ChildStderr) -> Result<Words, String> {
        let shared = Arc::new(Shared::default());
        let kept = Arc::clone(&shared);
        let passes = move || {
            let mut buffer = [0; 8 << 10];
            loop {
                match pipe.read(&mut buffer) {
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                    Ok(0) | Err(_) => break,
                    Ok(count) => {
                        // Kept first: who sees it may ask for it.
                        kept.keep(&buffer[..count]);
                        let _ = std::io::stderr().write_all(&buffer[..count]);
                    }
                }
            }
            kept.said().ended = true;
            kept.ended.notify_all();
        };
        let thread = std::thread::Builder::new().name("plimsoll-words".into()).stack_size(128 << 10).spawn(passes);
        thread.map(|_| Words(shared)).map_err(|error| error.to_string())
    }

    /// Forgets what was said, before a new call.
    pub fn forget(&self) {
        self.0.said().last.clear();
    }

    /// The end of what was said.
    pub fn last(&self) -> String {
        String::from_utf8_lossy(&self.0.said().last).into_owned()
    }

    /// Waits for all that an ended process has said.
    pub fn rest(&self) {
        let said = self.0.said();
        let _ = self.0.ended.wait_timeout_while(said, REST, |said| !said.ended);
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

    fn keep(&self, bytes: &[u8]) {
        let last = &mut self.said().last;
        last.extend_from_slice(bytes);
        let too_many = last.len().saturating_sub(KEPT);
        last.drain(..too_many);
    }
}
