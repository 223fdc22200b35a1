//! Device names: TensorFlow's grammar, relations and merging.

use std::fmt;

use plimsoll_base::{Error, Result};

/// A device, or a constraint on devices: parts that are not set stand for any.
///
/// In full `/job:localhost/replica:0/task:0/device:GPU:0`. Types compare by letter case, as in TensorFlow: only the legacy
/// spellings `/cpu:`, `/CPU:`, `/gpu:` and `/GPU:` are folded, to `CPU` and `GPU`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct DeviceName {
    /// The job.
    pub job: Option<String>,
    /// The replica.
    pub replica: Option<u32>,
    /// The task.
    pub task: Option<u32>,
    /// The type: `CPU`, `GPU`.
    pub kind: Option<String>,
    /// The number among the devices of its type.
    pub index: Option<u32>,
}

impl DeviceName {
    /// A device of this process: `/job:localhost/replica:0/task:0/device:KIND:INDEX`.
    pub fn local(kind: &str, index: u32) -> DeviceName {
        DeviceName::full("localhost", 0, 0, kind, index)
    }

    /// A name with all five parts.
    pub fn full(job: &str, replica: u32, task: u32, kind: &str, index: u32) -> DeviceName {
        DeviceName { job: Some(job.into()), replica: Some(replica), task: Some(task), kind: Some(kind.into()), index: Some(index) }
    }

    /// Parses the form with slashes, which a graph may hold: parts in any order, repeated or missing. The last one counts and `*`
    /// clears its part. The empty text and `/` constrain nothing.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where some of the text is no part of a name.
    pub fn parse(text: &str) -> Result<DeviceName> {
        parse_full(text).ok_or_else(|| malformed(text, "/job:NAME/replica:N/task:N/device:TYPE:N, any part of that, or /gpu:N"))
    }

    /// Parses the local form `TYPE:N`, as in `CPU:0`. Letter case counts.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for any other text.
    pub fn parse_local(text: &str) -> Result<DeviceName> {
        parse_local(text).ok_or_else(|| malformed(text, "TYPE:N, as CPU:0"))
    }

    /// Parses the form with slashes or the local form.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where it is neither.
    pub fn parse_full_or_local(text: &str) -> Result<DeviceName> {
        let parsed = parse_full(text).or_else(|| parse_local(text));
        parsed.ok_or_else(|| malformed(text, "/job:NAME/replica:N/task:N/device:TYPE:N, any part of that, /gpu:N, or GPU:N"))
    }

    /// Parses the form for a scope, as TensorFlow's Python `DeviceSpec` does: with or without the first slash, the index optional
    /// (`/cpu`), `cpu` and `gpu` folded.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for two device types or a part of another name.
    pub fn parse_python(text: &str) -> Result<DeviceName> {
        parse_python(text).ok_or_else(|| malformed(text, "gpu:N, /gpu:N, /device:TYPE:N, /job:NAME/replica:N/task:N, or those together"))
    }

    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        *self == DeviceName::default()
    }

    /// Whether all five parts are set.
    pub fn is_full(&self) -> bool {
        self.job.is_some() && self.replica.is_some() && self.task.is_some() && self.kind.is_some() && self.index.is_some()
    }

    /// Whether every part set in `pattern` is the same here: the device fits the pattern. This is TensorFlow's *complete
    /// specification* when `self` is a full name, and its *specification*, the more specific side being `self`.
    pub fn satisfies(&self, pattern: &DeviceName) -> bool {
        fn part<T: PartialEq>(own: &Option<T>, wanted: &Option<T>) -> bool {
            wanted.is_none() || own == wanted
        }
        part(&self.job, &pattern.job)
            && part(&self.replica, &pattern.replica)
            && part(&self.task, &pattern.task)
            && part(&self.kind, &pattern.kind)
            && part(&self.index, &pattern.index)
    }

    /// Whether no part is set on both sides to different values.
    pub fn is_compatible(&self, other: &DeviceName) -> bool {
        !(conflict(&self.job, &other.job)
            || conflict(&self.replica, &other.replica)
            || conflict(&self.task, &other.task)
            || conflict(&self.kind, &other.kind)
            || conflict(&self.index, &other.index))
    }

    /// Whether job, replica and task are set and the same on both sides.
    pub fn same_address_space(&self, other: &DeviceName) -> bool {
        self.job.is_some()
            && self.replica.is_some()
            && self.task.is_some()
            && (&self.job, self.replica, self.task) == (&other.job, other.replica, other.task)
    }

    /// Adds the constraints of `other`. With `soft`, types that differ leave neither type nor index, and indices that differ
    /// leave no index.
    ///
    /// # Errors
    /// INVALID_ARGUMENT, with `self` as it was, if jobs, replicas or tasks differ, or types or indices without `soft`.
    pub fn merge(&mut self, other: &DeviceName, soft: bool) -> Result<()> {
        self.check_address(other)?;
        let incompatible = |what: &str| Err(self.incompatible(other, what));
        if conflict(&self.kind, &other.kind) {
            if !soft {
                return incompatible("types");
            }
            (self.kind, self.index) = (None, None);
            self.fill_address(other);
            return Ok(());
        }
        if conflict(&self.index, &other.index) {
            if !soft {
                return incompatible("ids");
            }
            self.index = None;
            self.fill_address(other);
            fill(&mut self.kind, &other.kind);
            return Ok(());
        }
        self.merge_unset(other);
        Ok(())
    }

    /// As a soft [`DeviceName::merge`], but where types differ that of `other` is taken, and where indices differ that of `other`.
    /// An index that only this side has stays, also under another type, as in TensorFlow.
    ///
    /// # Errors
    /// INVALID_ARGUMENT, with `self` as it was, if jobs, replicas or tasks differ.
    pub fn merge_override(&mut self, other: &DeviceName) -> Result<()> {
        self.check_address(other)?;
        self.overlay(other);
        Ok(())
    }

    /// Fills the parts that are not set from `other`.
    pub fn merge_unset(&mut self, other: &DeviceName) {
        self.fill_address(other);
        fill(&mut self.kind, &other.kind);
        fill(&mut self.index, &other.index);
    }

    /// Takes every part that is set in `inner`: so an inner device scope changes an outer one, and so TensorFlow makes a name
    /// satisfy a less specific one.
    pub fn overlay(&mut self, inner: &DeviceName) {
        let outer = std::mem::replace(self, inner.clone());
        self.merge_unset(&outer);
    }

    /// The full name of `text`, full or local, with the missing parts from `base`.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if `base` is not full or `text` is no name.
    pub fn canonicalize(text: &str, base: &DeviceName) -> Result<DeviceName> {
        if !base.is_full() {
            return Err(Error::invalid_argument(format!("the base name '{base}' is not a full device name")));
        }
        let mut name = DeviceName::parse_full_or_local(text)?;
        name.merge_unset(base);
        Ok(name)
    }

    /// Task and device of a name where job, replica, task, type and index are set: `/job:foo/replica:1/task:2` and `CPU:1`.
    pub fn split(&self) -> Option<(String, String)> {
        if !self.is_full() {
            return None;
        }
        let task = DeviceName { kind: None, index: None, ..self.clone() };
        Some((task.to_string(), self.short()))
    }

    /// Type and index alone, `/device:CPU:3`.
    pub fn local_part(&self) -> DeviceName {
        DeviceName { kind: self.kind.clone(), index: self.index, ..DeviceName::default() }
    }

    /// The short form for people: `GPU:0`, `GPU:*`, `*:0`, and `*` where neither is set.
    pub fn short(&self) -> String {
        match (&self.kind, self.index) {
            (None, None) => "*".into(),
            (kind, index) => format!("{}:{}", kind.as_deref().unwrap_or("*"), index.map_or("*".into(), |index| index.to_string())),
        }
    }

    /// The names that a device is registered under: its full name and the legacy spelling `…/task:0/gpu:1`. None if a part is
    /// missing.
    pub fn registered(&self) -> Vec<String> {
        let (Some(kind), Some(index), Some((task, _))) = (&self.kind, self.index, self.split()) else {
            return Vec::new();
        };
        vec![self.to_string(), format!("{task}/{}:{index}", kind.to_ascii_lowercase())]
    }

    fn check_address(&self, other: &DeviceName) -> Result<()> {
        let what = if conflict(&self.job, &other.job) {
            "jobs"
        } else if conflict(&self.replica, &other.replica) {
            "replicas"
        } else if conflict(&self.task, &other.task) {
            "tasks"
        } else {
            return Ok(());
        };
        Err(self.incompatible(other, what))
    }

    /// The parts that cannot be merged. This side is shown with the parts before them filled in, as TensorFlow has it then.
    fn incompatible(&self, other: &DeviceName, what: &str) -> Error {
        let mut own = self.clone();
        let parts = ["jobs", "replicas", "tasks", "types", "ids"];
        for part in parts.iter().take_while(|part| **part != what) {
            match *part {
                "jobs" => fill(&mut own.job, &other.job),
                "replicas" => fill(&mut own.replica, &other.replica),
                "tasks" => fill(&mut own.task, &other.task),
                _ => fill(&mut own.kind, &other.kind),
            }
        }
        Error::invalid_argument(format!("Cannot merge devices with incompatible {what}: '{own}' and '{other}'"))
    }

    fn fill_address(&mut self, other: &DeviceName) {
        fill(&mut self.job, &other.job);
        fill(&mut self.replica, &other.replica);
        fill(&mut self.task, &other.task);
    }
}

fn conflict<T: PartialEq>(a: &Option<T>, b: &Option<T>) -> bool {
    matches!((a, b), (Some(a), Some(b)) if a != b)
}

fn fill<T: Clone>(part: &mut Option<T>, other: &Option<T>) {
    if part.is_none() {
        part.clone_from(other);
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(job) = &self.job {
            write!(f, "/job:{job}")?;
        }
        if let Some(replica) = self.replica {
            write!(f, "/replica:{replica}")?;
        }
        if let Some(task) = self.task {
            write!(f, "/task:{task}")?;
        }
        match (&self.kind, self.index) {
            (None, None) => Ok(()),
            _ => write!(f, "/device:{}", self.short()),
        }
    }
}

impl std::str::FromStr for DeviceName {
    type Err = Error;

    /// The full or the local form.
    fn from_str(text: &str) -> Result<DeviceName> {
        DeviceName::parse_full_or_local(text)
    }
}

fn malformed(text: &str, allowed: &str) -> Error {
    Error::invalid_argument(format!("Malformed device specification '{text}'")).with_remedy(format!("write {allowed}"))
}

/// `Some(None)` is a star.
fn star_or<T>(text: &str, parse: impl Fn(&str) -> Option<T>) -> Option<Option<T>> {
    if text == "*" { Some(None) } else { parse(text).map(Some) }
}

fn number(text: &str) -> Option<u32> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse::<i32>().ok().map(|number| number as u32)
}

/// A job or a type: a letter, then letters, digits and `_`.
fn word(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let fine =
        bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic()) && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    fine.then(|| text.to_string())
}

fn parse_full(text: &str) -> Option<DeviceName> {
    let mut name = DeviceName::default();
    if text.is_empty() || text == "/" {
        return Some(name);
    }
    for part in text.strip_prefix('/')?.split('/') {
        let (key, value) = part.split_once(':')?;
        match key {
            "job" => name.job = star_or(value, word)?,
            "replica" => name.replica = star_or(value, number)?,
            "task" => name.task = star_or(value, number)?,
            "device" => {
                let (kind, index) = value.split_once(':').map_or((value, None), |(kind, index)| (kind, Some(index)));
                name.kind = star_or(kind, word)?;
                name.index = match index {
                    Some(index) => star_or(index, number)?,
                    None => None,
                };
            }
            "cpu" | "CPU" | "gpu" | "GPU" => {
                name.kind = Some(key.to_ascii_uppercase());
                name.index = star_or(value, number)?;
            }
            _ => return None,
        }
    }
    Some(name)
}

fn parse_local(text: &str) -> Option<DeviceName> {
    let (kind, index) = text.split_once(':')?;
    Some(DeviceName { kind: Some(word(kind)?), index: Some(number(index)?), ..DeviceName::default() })
}

fn fold(kind: &str) -> String {
    if matches!(kind, "cpu" | "gpu") { kind.to_ascii_uppercase() } else { kind.to_string() }
}

fn parse_python(text: &str) -> Option<DeviceName> {
    let mut name = DeviceName::default();
    let mut types = 0;
    for part in text.split('/').filter(|part| !part.is_empty()) {
        let mut pieces = part.split(':');
        let (key, first, second, rest) = (pieces.next()?, pieces.next(), pieces.next(), pieces.next());
        match (key, first, second, rest) {
            ("job", Some(job), None, None) => name.job = star_or(job, |job| Some(job.to_string()))?,
            ("replica", Some(replica), None, None) => name.replica = star_or(replica, number)?,
            ("task", Some(task), None, None) => name.task = star_or(task, number)?,
            ("device", Some(kind), Some(index), None) => {
                types += 1;
                name.kind = star_or(kind, |kind| Some(fold(kind)))?;
                name.index = star_or(index, number)?;
            }
            ("cpu" | "CPU" | "gpu" | "GPU", index, None, None) => {
                types += 1;
                name.kind = Some(key.to_ascii_uppercase());
                name.index = star_or(index.unwrap_or("*"), number)?;
            }
            _ => return None,
        }
    }
    (types <= 1).then_some(name)
}
