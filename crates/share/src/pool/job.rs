//! A call that waits for a worker.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::de::DeserializeOwned;

use super::Answer;
use crate::isolate::{Cause, Death, Key, Outcome, Report, output};
use crate::wire::Message;

type Done = dyn FnOnce(Result<(Message, Report), Death>) + Send;

/// The call, and the receiver of its answer. It is answered once, since answering takes it.
pub(super) struct Job {
    pub key: Key,
    pub input: Message,
    /// How many workers it was given to that never began it.
    pub tries: u32,
    done: Box<Done>,
}

impl Job {
    pub fn new<O: DeserializeOwned>(key: Key, input: Message, done: impl FnOnce(Answer<O>) + Send + 'static) -> Job {
        let function = key.name.clone();
        let done = move |answer: Result<(Message, Report), Death>| {
            done(answer.and_then(|(message, report)| {
                let read = catch_unwind(AssertUnwindSafe(|| output(&message)));
                match read.unwrap_or_else(|_| Err(Cause::Output { message: "reading it panicked".into() })) {
                    Ok(output) => Ok(Outcome { output, report }),
                    Err(cause) => Err(Death::new(cause, function, String::new(), report)),
                }
            }));
        };
        Job { key, input, tries: 0, done: Box::new(done) }
    }

    pub fn finish(self, message: Message, report: Report) {
        (self.done)(Ok((message, report)));
    }

    pub fn fail(self, cause: Cause, last_words: String, report: Report) {
        (self.done)(Err(Death::new(cause, self.key.name, last_words, report)));
    }
}
