//! Which kernels TensorFlow registers: for every operation and device type, the types that it takes, and the arguments that stay in
//! the host's memory. Placement looks at this table.
//!
//! The table is text (`data/kernels.txt`, written by `scripts/record_kernels.py`). A line is read when its operation is first
//! asked for.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use plimsoll_base::{ArgType, DataType, Error, Result};
use plimsoll_graph::{AttrValue, Attrs};

const BUILT_IN: &str = include_str!("../data/kernels.txt");

/// The pseudo type whose kernels serve every device type that has none of its own.
pub const DEFAULT_DEVICE: &str = "DEFAULT";

/// A kernel that is registered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KernelDef {
    /// The device type: `CPU`, `GPU`, or [`DEFAULT_DEVICE`].
    pub device: String,
    /// Of several that fit, the one with the highest is taken; over all device types, it orders them.
    pub priority: i32,
    /// Only nodes whose attribute `_kernel` says this find the kernel; mostly empty.
    pub label: String,
    /// The values that attributes may have.
    pub constraints: Vec<Constraint>,
    /// The arguments, by name, that are in the host's memory.
    pub host_args: Vec<String>,
}

/// The values that an attribute may have.
#[derive(Clone, Debug, PartialEq)]
pub struct Constraint {
    /// The attribute.
    pub attr: String,
    /// One of these; of a list of types, each.
    pub allowed: Vec<AttrValue>,
}

/// The kernels of an operation.
type Kernels = Arc<[Arc<KernelDef>]>;

/// Kernels by operation. A value, not a global: tests bring their own.
#[derive(Debug, Default)]
pub struct KernelRegistry {
    entries: HashMap<&'static str, Entry>,
    own: HashMap<String, Kernels>,
}

#[derive(Debug)]
struct Entry {
    line: &'static str,
    parsed: OnceLock<Kernels>,
}

/// The result of a search for a kernel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// The kernel, if there is one.
    pub kernel: Option<Arc<KernelDef>>,
    /// Whether there are some for this device type that the node's attributes do not fit.
    pub mismatch: bool,
}

impl KernelRegistry {
    /// The kernels of TensorFlow.
    pub fn tensorflow() -> KernelRegistry {
        let entry = |line: &'static str| Some((line.split_once(" | ")?.0, Entry { line, parsed: OnceLock::new() }));
        KernelRegistry { entries: BUILT_IN.lines().filter_map(entry).collect(), own: HashMap::new() }
    }

    /// No kernels.
    pub fn empty() -> KernelRegistry {
        KernelRegistry::default()
    }

    /// Adds a kernel of an operation.
    pub fn insert(&mut self, op: &str, kernel: KernelDef) {
        let mut kernels = self.of(op).to_vec();
        kernels.push(Arc::new(kernel));
        self.own.insert(op.to_string(), kernels.into());
    }

    /// Adds the kernels of an operation spelled as a line of `data/kernels.txt`.
    ///
    /// # Errors
    /// INVALID_ARGUMENT that names the unreadable part.
    pub fn insert_line(&mut self, line: &str) -> Result<()> {
        let wrong = || Error::invalid_argument(format!("'{line}' is no line of kernels"));
        let (op, _) = line.split_once(" | ").ok_or_else(wrong)?;
        for kernel in parse_line(line).ok_or_else(wrong)? {
            self.insert(op, kernel);
        }
        Ok(())
    }

    /// The kernels of an operation, in no particular order.
    pub fn of(&self, op: &str) -> Arc<[Arc<KernelDef>]> {
        if let Some(own) = self.own.get(op) {
            return own.clone();
        }
        let Some(entry) = self.entries.get(op) else { return Arc::new([]) };
        let parse = || parse_line(entry.line).unwrap_or_default().into_iter().map(Arc::new).collect();
        entry.parsed.get_or_init(parse).clone()
    }

    /// The kernel for a node on devices of a type: one for that type, or else one that serves every type.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where several fit equally well, or an attribute that decides is missing.
    pub fn find(&self, op: &str, device: &str, attrs: &Attrs) -> Result<Found> {
        let kernels = self.of(op);
        let mut found = find_among(&kernels, op, device, attrs)?;
        if found.kernel.is_none() {
            let other = find_among(&kernels, op, DEFAULT_DEVICE, attrs)?;
            found = Found { mismatch: found.mismatch || other.mismatch, ..other };
        }
        Ok(found)
    }

    /// The names of all operations with kernels, in no particular order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().copied().chain(self.own.keys().map(String::as_str))
    }
}

fn find_among(kernels: &[Arc<KernelDef>], op: &str, device: &str, attrs: &Attrs) -> Result<Found> {
    let label = match attrs.get("_kernel") {
        Some(AttrValue::Bytes(label)) => label.as_slice(),
        _ => &[],
    };
    let (mut best, mut mismatch): (Option<&Arc<KernelDef>>, bool) = (None, false);
    for kernel in kernels.iter().filter(|kernel| kernel.device == device && kernel.label.as_bytes() == label) {
        if !kernel.fits(attrs)? {
            mismatch = true;
            continue;
        }
        match best {
            Some(other) if other.priority == kernel.priority => {
                return Err(Error::invalid_argument(format!(
                    "Multiple OpKernel registrations match NodeDef at the same priority '{op}': '{other}' and '{kernel}'"
                )));
            }
            Some(other) if other.priority > kernel.priority => {}
            _ => best = Some(kernel),
        }
    }
    Ok(Found { kernel: best.cloned(), mismatch })
}

impl KernelDef {
    /// Whether a node with these attributes can run with this kernel.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where an attribute that decides is missing.
    pub fn fits(&self, attrs: &Attrs) -> Result<bool> {
        for constraint in &self.constraints {
            let value = attrs.get(&constraint.attr).ok_or_else(|| {
                Error::invalid_argument(format!("OpKernel '{self}' has constraint on attr '{}' not in NodeDef", constraint.attr))
            })?;
            if !constraint.allows(value) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Constraint {
    fn allows(&self, value: &AttrValue) -> bool {
        match value {
            AttrValue::List(list) if !list.types.is_empty() => {
                list.types.iter().all(|number| self.allowed.contains(&AttrValue::Type(*number)))
            }
            AttrValue::List(_) => true,
            value => self.allowed.contains(value),
        }
    }
}

/// As TensorFlow lists registered kernels: `device='CPU'; T in [DT_FLOAT]`.
impl fmt::Display for KernelDef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "device='{}'", self.device)?;
        if !self.label.is_empty() {
            write!(f, "; label='{}'", self.label)?;
        }
        for constraint in &self.constraints {
            let spelled = constraint.allowed.iter().map(|value| match value {
                AttrValue::Type(number) => ArgType::from_number(*number).map_or_else(|| number.to_string(), |arg| arg.base.enumerator()),
                other => other.to_string(),
            });
            write!(f, "; {} in [{}]", constraint.attr, spelled.collect::<Vec<_>>().join(", "))?;
        }
        Ok(())
    }
}

fn parse_line(line: &str) -> Option<Vec<KernelDef>> {
    line.split(" | ").skip(1).map(parse_kernel).collect()
}

fn parse_kernel(text: &str) -> Option<KernelDef> {
    let mut words = text.split_whitespace();
    let mut kernel = KernelDef { device: words.next()?.to_string(), ..KernelDef::default() };
    for word in words {
        match word.split_once('=') {
            None => kernel.priority = word.parse().ok()?,
            Some(("label", label)) => kernel.label = label.to_string(),
            Some(("host", args)) => kernel.host_args = args.split(',').map(str::to_string).collect(),
            Some((attr, values)) => {
                let allowed = values.split(',').map(parse_value).collect::<Option<_>>()?;
                kernel.constraints.push(Constraint { attr: attr.to_string(), allowed });
            }
        }
    }
    Some(kernel)
}

fn parse_value(text: &str) -> Option<AttrValue> {
    if let Some(text) = text.strip_prefix('"') {
        return Some(AttrValue::text(text.strip_suffix('"')?));
    }
    match text {
        "true" | "false" => Some(AttrValue::Bool(text == "true")),
        _ => match text.parse() {
            Ok(number) => Some(AttrValue::Int(number)),
            Err(_) => DataType::from_name(text).map(AttrValue::data_type),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(attr: &str, data_type: DataType) -> Attrs {
        Attrs::from([(attr.to_string(), AttrValue::data_type(data_type))])
    }

    #[test]
    fn every_line_of_the_table_is_read() {
        for line in BUILT_IN.lines() {
            let kernels = parse_line(line).unwrap_or_else(|| panic!("{line}"));
            assert!(!kernels.is_empty(), "{line}");
            for (kernel, text) in kernels.iter().zip(line.split(" | ").skip(1)) {
                assert!(text.starts_with(kernel.device.as_str()), "{line}");
            }
        }
    }

    #[test]
    fn types_and_the_default_device_decide() {
        let kernels = KernelRegistry::tensorflow();
        let find = |op: &str, device: &str, attrs: &Attrs| kernels.find(op, device, attrs).unwrap();
        let float = find("AddV2", "GPU", &typed("T", DataType::Float)).kernel.unwrap();
        assert_eq!((float.device.as_str(), float.host_args.len()), ("GPU", 0));
        let int32 = find("AddV2", "GPU", &typed("T", DataType::Int32)).kernel.unwrap();
        assert_eq!(int32.host_args, ["x", "y", "z"]);
        let variable = find("VarHandleOp", "GPU", &typed("dtype", DataType::Float)).kernel.unwrap();
        assert_eq!((variable.device.as_str(), variable.host_args.join(",")), (DEFAULT_DEVICE, "resource".to_string()));
        let none = find("VarHandleOp", "GPU", &typed("dtype", DataType::Int32));
        assert!(none.kernel.is_none() && none.mismatch);
        let none = find("SaveV2", "GPU", &Attrs::new());
        assert!(none.kernel.is_none() && !none.mismatch);
        assert!(kernels.find("AddV2", "CPU", &Attrs::new()).is_err(), "T is missing");
    }

    #[test]
    fn equal_priorities_are_refused_and_higher_ones_win() {
        let mut kernels = KernelRegistry::empty();
        kernels.insert_line("Op | CPU 2 | CPU 1 host=a | GPU | GPU").unwrap();
        assert_eq!(kernels.find("Op", "CPU", &Attrs::new()).unwrap().kernel.unwrap().priority, 2);
        let error = kernels.find("Op", "GPU", &Attrs::new()).unwrap_err();
        assert!(error.message().contains("same priority"), "{error}");
        assert!(kernels.insert_line("Op").is_err());
        assert!(kernels.insert_line("Op | CPU T=nothing").is_err());
    }

    #[test]
    fn a_kernel_prints_as_tensorflow_lists_it() {
        let mut kernels = KernelRegistry::empty();
        kernels.insert_line(r#"Op | CPU 2 label=slow T=float,int32 f="NHWC""#).unwrap();
        assert_eq!(kernels.of("Op")[0].to_string(), "device='CPU'; label='slow'; T in [DT_FLOAT, DT_INT32]; f in [\"NHWC\"]");
    }
}
