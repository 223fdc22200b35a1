//! The result of each point: a line of JSON in a file, from which a sweep goes on after a crash.

use std::fs::{File, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use plimsoll_base::{Code, Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::space::Point;

/// The result of a point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// The values, by name.
    pub set: Map<String, Value>,
    /// The command.
    pub command: Vec<String>,
    /// Whether it ended with exit status 0.
    pub ok: bool,
    /// How it ended, in words.
    pub status: String,
    /// How long it ran.
    pub seconds: f64,
    /// The most memory used of each card, as far as that was seen.
    #[serde(default)]
    pub peak_bytes: Vec<Option<u64>>,
    /// The last line of its output that is a JSON object.
    pub result: Option<Map<String, Value>>,
}

impl Done {
    /// Whether it is that point of that command.
    pub(super) fn is_of(&self, point: &Point, command: &[String]) -> bool {
        self.command == command
            && self.set.len() == point.len()
            && point.iter().all(|(name, value)| self.set.get(name).and_then(Value::as_str) == Some(value))
    }

    /// A number of the result; `a.b` is `b` inside of `a`.
    pub fn number(&self, name: &str) -> Option<f64> {
        let mut found = self.result.as_ref()?.get(name);
        if found.is_none() {
            let mut keys = name.split('.');
            found = self.result.as_ref()?.get(keys.next()?);
            for key in keys {
                found = found?.get(key);
            }
        }
        found?.as_f64()
    }
}

/// The file, while this process alone may write it.
pub(super) struct Results {
    path: PathBuf,
    file: File,
}

impl Results {
    /// Opens the file, and makes it where there is none. Its contents, but for a line that was cut short.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for a path that is no regular file. UNAVAILABLE where another sweep writes it. DATA_LOSS where it has lines
    /// that are no results. Otherwise the system's error.
    pub(super) fn open(path: &Path) -> Result<(Results, Vec<Done>)> {
        let broken = |error: std::io::Error| refused(path, &error);
        let mut file = plimsoll_base::keep_file(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::InvalidInput | std::io::ErrorKind::IsADirectory => {
                Error::invalid_argument(format!("{} is not a regular file", path.display())).with_remedy("write another file (--results)")
            }
            _ => broken(error),
        })?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::new(Code::Unavailable, format!("{} is being written by another sweep", path.display()))
                    .with_remedy("wait until that ends, or write another file (--results)"));
            }
            Err(TryLockError::Error(error)) => return Err(broken(error)),
        }
        let text = plimsoll_base::read_whole(&mut file).map_err(broken)?;
        // Written lines are whole: the rest was cut short by a crash.
        let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        let mut done = Vec::new();
        for (number, line) in text[..whole].split(|&byte| byte == b'\n').enumerate().filter(|(_, line)| !line.trim_ascii().is_empty()) {
            done.push(serde_json::from_slice(line).map_err(|error| {
                Error::data_loss(format!("{}:{}: not a result of a sweep: {error}", path.display(), number + 1))
                    .with_remedy("write another file (--results)")
            })?);
        }
        file.set_len(whole as u64).and_then(|()| file.seek(SeekFrom::End(0))).map_err(broken)?;
        Ok((Results { path: path.into(), file }, done))
    }

    /// Adds a line.
    pub(super) fn add(&mut self, done: &Done) -> Result<()> {
        // Keys are texts: there is nothing that JSON lacks.
        let line = serde_json::to_string(done).unwrap_or_default() + "\n";
        self.file.write_all(line.as_bytes()).and_then(|()| self.file.sync_data()).map_err(|error| refused(&self.path, &error))
    }
}

pub(super) fn refused(path: &Path, error: &std::io::Error) -> Error {
    let code = match error.kind() {
        std::io::ErrorKind::NotFound => Code::NotFound,
        std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => Code::PermissionDenied,
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => Code::ResourceExhausted,
        _ => Code::Unavailable,
    };
    Error::new(code, format!("{}: {error}", path.display()))
}

/// The last line of a program's output that is a JSON object.
pub(super) fn last_object(path: &Path) -> Option<Map<String, Value>> {
    /// More is not looked through.
    const TAIL: u64 = 4 << 20;
    let mut file = plimsoll_base::open_file(path).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL))).ok()?;
    let mut text = Vec::new();
    file.take(TAIL).read_to_end(&mut text).ok()?;
    text.rsplit(|&byte| byte == b'\n')
        .map(<[u8]>::trim_ascii)
        .filter(|line| line.starts_with(b"{"))
        .find_map(|line| serde_json::from_slice(line).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("plimsoll-results-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    fn done(value: &str, loss: f64) -> Done {
        Done {
            set: [("lr".to_string(), Value::from(value))].into_iter().collect(),
            command: vec!["train".into(), value.into()],
            ok: true,
            status: "done".into(),
            seconds: 1.5,
            peak_bytes: vec![Some(3)],
            result: serde_json::json!({"loss": loss, "test": {"accuracy": 0.5}}).as_object().cloned(),
        }
    }

    #[test]
    fn a_device_takes_no_results() {
        for device in ["/dev/full", "/dev/zero"] {
            assert_eq!(Results::open(Path::new(device)).map(drop).unwrap_err().code(), Code::InvalidArgument, "{device}");
        }
    }

    #[test]
    fn a_file_that_was_cut_short_goes_on() {
        let path = folder("cut").join("results.jsonl");
        let (mut results, before) = Results::open(&path).unwrap();
        assert!(before.is_empty());
        assert_eq!(Results::open(&path).map(drop).unwrap_err().code(), Code::Unavailable);
        results.add(&done("0.1", 1.0)).unwrap();
        results.add(&done("0.2", 2.0)).unwrap();
        drop(results);
        let text = std::fs::read(&path).unwrap();
        for length in (0..=text.len()).rev().step_by(9) {
            std::fs::write(&path, &text[..length]).unwrap();
            let (mut results, before) = Results::open(&path).unwrap();
            assert_eq!(before.len(), text[..length].iter().filter(|&&byte| byte == b'\n').count());
            results.add(&done("0.3", 3.0)).unwrap();
            drop(results);
            let after = Results::open(&path).unwrap().1;
            assert_eq!((after.len(), after.last()), (before.len() + 1, Some(&done("0.3", 3.0))));
        }
        std::fs::write(&path, "something else\n").unwrap();
        assert_eq!(Results::open(&path).map(drop).unwrap_err().code(), Code::DataLoss);
        assert_eq!(std::fs::read(&path).unwrap(), b"something else\n", "what is not ours is left alone");
        std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }

    #[test]
    fn numbers_of_a_result() {
        let done = done("0.1", 1.0);
        assert_eq!(
            (done.number("loss"), done.number("test.accuracy"), done.number("test"), done.number("")),
            (Some(1.0), Some(0.5), None, None)
        );
        let point = |value: &str| vec![("lr".to_string(), value.to_string())];
        let command = ["train".to_string(), "0.1".to_string()];
        assert!(done.is_of(&point("0.1"), &command) && !done.is_of(&point("0.2"), &command) && !done.is_of(&point("0.1"), &command[..1]));
    }

    #[test]
    fn the_last_object_of_an_output() {
        let path = folder("object").join("out");
        for (text, loss) in
            [("", None), ("{\"loss\": 1}\n{\"loss\": 2}\nbye\n{broken\n", Some(2)), ("[1]\n", None), ("{\"loss\": 3}", Some(3))]
        {
            std::fs::write(&path, text).unwrap();
            assert_eq!(last_object(&path).map(|object| object["loss"].clone()), loss.map(Value::from), "{text}");
        }
        std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }
}
