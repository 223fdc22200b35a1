//! Runs that TensorFlow refused: `tests/refused` has the graphs, and a table of feeds, fetches, and messages.

use std::collections::BTreeMap;
use std::path::Path;

use plimsoll::{Code, DeviceKind, Devices, HostTensor, Options, Result};
use serde::Deserialize;
use serde_json::Value;

/// Of these the plan says UNIMPLEMENTED.
const NOT_YET: &[&str] = &[];

#[derive(Deserialize)]
struct Refusal {
    name: String,
    /// The status code, as `INVALID_ARGUMENT`.
    code: String,
    /// A part of the message.
    message: String,
    feeds: BTreeMap<String, Value>,
    fetches: Vec<String>,
    targets: Vec<String>,
    init: Vec<String>,
}

/// A bool, or a vector of bools or numbers.
fn tensor(value: &Value) -> Result<HostTensor> {
    let values = match value {
        Value::Array(values) => values.as_slice(),
        value => std::slice::from_ref(value),
    };
    let shape: Vec<u64> = value.is_array().then_some(values.len() as u64).into_iter().collect();
    match values.iter().map(Value::as_bool).collect::<Option<Vec<bool>>>() {
        Some(bools) => HostTensor::from_bools(shape, &bools),
        None => HostTensor::from_slice(shape, &values.iter().map(|value| value.as_f64().unwrap_or(f64::NAN) as f32).collect::<Vec<f32>>()),
    }
}

fn run(folder: &Path, refusal: &Refusal, devices: u32) -> Result<Vec<HostTensor>> {
    fn names(names: &[String]) -> Vec<&str> {
        names.iter().map(String::as_str).collect()
    }
    let devices = Devices::open(&Options::new().device_count(DeviceKind::Cpu, devices))?;
    let session = devices.load(folder.join(format!("{}.pbtxt", refusal.name)))?;
    if !refusal.init.is_empty() {
        session.run(&[], &[], &names(&refusal.init))?;
    }
    let feeds = refusal.feeds.iter().map(|(name, value)| Ok((name.as_str(), tensor(value)?))).collect::<Result<Vec<_>>>()?;
    session.run(&feeds, &names(&refusal.fetches), &names(&refusal.targets))
}

#[test]
fn what_tensorflow_refuses_is_refused_with_its_code_and_in_its_words() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/refused");
    let text = std::fs::read(folder.join("refused.json")).expect("there is a table");
    let table: Vec<Refusal> = serde_json::from_slice(&text).expect("it is a table");
    let mut failures = Vec::new();
    for refusal in &table {
        let not_yet = NOT_YET.contains(&refusal.name.as_str());
        for devices in [1, 2] {
            match run(&folder, refusal, devices) {
                Ok(_) => failures.push(format!("{} on {devices} devices: accepted", refusal.name)),
                Err(error) if not_yet && error.code() == Code::Unimplemented => {}
                Err(error) if not_yet => failures.push(format!("{} on {devices} devices is built: {error}", refusal.name)),
                Err(error) if error.code().to_string() == refusal.code && error.message().contains(&refusal.message) => {}
                Err(error) => failures
                    .push(format!("{} on {devices} devices: {error}\n    instead of {}: {}", refusal.name, refusal.code, refusal.message)),
            }
        }
    }
    assert!(table.len() > 5, "only {} refusals were found", table.len());
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}
