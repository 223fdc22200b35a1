//! A machine as a file describes it: what plans depend on, of its processor and of its cards. So another machine can plan for it.

use std::collections::BTreeSet;

use plimsoll_base::{Bytes, Error, Result};
use plimsoll_device::{Bf16Instructions, Caches, InstructionSet};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::options::MOST;
use crate::physical::{MOST_BYTES, MOST_CARDS, stream_priorities};
use crate::{ComputeCapability, PhysicalDevice, Simulation};

/// The form of files.
const VERSION: u32 = 1;

/// More than this a second, of bytes or operations, is taken for a mistake.
const MOST_A_SECOND: f64 = 1e18;

/// The longest name.
const MOST_CHARACTERS: usize = 256;

/// A machine.
#[derive(Clone, Debug, PartialEq)]
pub struct MachineDescription {
    /// Its processor.
    pub processor: Processor,
    /// Its cards, in the order of their numbers.
    pub cards: Vec<DescribedCard>,
}

/// A processor with its memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Processor {
    /// Its instructions.
    pub instructions: InstructionSet,
    /// Its instructions for bf16, where it has them.
    pub bf16: Option<Bf16Instructions>,
    /// How many threads it runs at once; at least 1.
    pub cores: usize,
    /// Its caches.
    pub caches: Caches,
    /// The machine's memory; none where it is not known.
    pub memory: Option<Bytes>,
}

/// A card, and what is known of it once it was opened.
#[derive(Clone, Debug, PartialEq)]
pub struct DescribedCard {
    /// The card. Its overhead is that of a context. Of a real card, each logical device takes a multiple of the granularity besides.
    pub device: PhysicalDevice,
    /// What a real card hands out is a multiple of so many bytes. None for a simulated card, and for one that was not opened.
    pub granularity: Option<u64>,
    /// cuDNN on that machine. None where it is not there, and for a simulated card.
    pub cudnn: Option<DescribedCudnn>,
}

/// cuDNN on a machine, and what it knows of a card there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedCudnn {
    version: usize,
    properties: String,
    handle: Bytes,
}

impl DescribedCudnn {
    /// The one of that version, as it counts it (92600 is 9.26.0), with the properties that it says of a card: a JSON object.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where the properties are no object of numbers, words, switches and lists of whole numbers.
    pub fn new(version: usize, properties: &str) -> Result<DescribedCudnn> {
        let entry = serde_json::from_str(properties).map(|properties| CudnnEntry { version, properties, handle_bytes: 0 });
        let entry = entry.map_err(|error| Error::invalid_argument(format!("properties of a card: {error}")))?;
        entry.checked().map_err(|(field, why)| Error::invalid_argument(format!("{field}: {why}")))
    }

    /// The same, of which a program that computes with it has a handle on the card, which takes so many bytes there.
    #[must_use]
    pub fn taking(self, handle: Bytes) -> DescribedCudnn {
        DescribedCudnn { handle, ..self }
    }

    /// The bytes of the card that a handle takes, beside the context.
    pub fn handle(&self) -> Bytes {
        self.handle
    }

    /// Its version.
    pub fn version(&self) -> usize {
        self.version
    }

    /// The properties of the card, as JSON.
    pub fn properties(&self) -> &str {
        &self.properties
    }
}

/// A file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: u32,
    processor: ProcessorEntry,
    cards: Vec<CardEntry>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProcessorEntry {
    instructions: InstructionSet,
    cores: u32,
    caches: Caches,
    memory_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bf16: Option<Bf16Instructions>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CardEntry {
    ordinal: u32,
    name: String,
    pci_bus_id: String,
    uuid: String,
    compute_capability: [u32; 2],
    multiprocessors: u32,
    clock_mhz: u32,
    bandwidth_bytes_per_second: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pcie: Option<[u32; 2]>,
    total_bytes: u64,
    available_bytes: u64,
    overhead_bytes: u64,
    granularity_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cudnn: Option<CudnnEntry>,
    numa_node: Option<u32>,
    unified_memory: bool,
    peers: Vec<u32>,
    leased: bool,
    unusable: Option<String>,
    simulation: Option<SimulationEntry>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CudnnEntry {
    version: usize,
    #[serde(default)]
    handle_bytes: u64,
    properties: serde_json::Map<String, Value>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SimulationEntry {
    speed: Option<f64>,
    link_bytes_per_second: f64,
    #[serde(default, skip_serializing_if = "is_none")]
    link_latency_seconds: f64,
    model_capability: [u32; 2],
}

/// Whether there is no latency.
fn is_none(seconds: &f64) -> bool {
    *seconds == 0.0
}

impl MachineDescription {
    /// The machine of a file.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where it is no such file, or of another version, and for values that no machine has, with their place.
    pub fn from_json(json: &[u8]) -> Result<MachineDescription> {
        let File { version, processor, cards } =
            serde_json::from_slice(json).map_err(|error| Error::invalid_argument(format!("not a description of a machine: {error}")))?;
        if version != VERSION {
            let message = format!("a description of form {version}, this is form {VERSION}");
            return Err(Error::invalid_argument(message).with_remedy("write it again there, with `plimsoll devices --describe FILE`"));
        }
        let processor = processor.checked().map_err(|(field, why)| refused(format!("processor.{field}"), &why))?;
        if cards.len() > MOST_CARDS {
            return Err(refused("cards", &format!("{} are more than {MOST_CARDS}", cards.len())));
        }
        let mut uuids = BTreeSet::new();
        let mut least = 0;
        let mut described = Vec::with_capacity(cards.len());
        for (at, card) in cards.into_iter().enumerate() {
            let place = |(field, why): (&str, String)| refused(format!("cards[{at}].{field}"), &why);
            let card = card.checked().map_err(place)?;
            if card.device.ordinal < least {
                return Err(place(("ordinal", format!("{} is not in order", card.device.ordinal))));
            }
            least = card.device.ordinal + 1;
            if !uuids.insert(card.device.uuid.clone()) {
                return Err(place(("uuid", "another card has it".to_string())));
            }
            described.push(card);
        }
        Ok(MachineDescription { processor, cards: described })
    }

    /// The file.
    ///
    /// # Errors
    /// INTERNAL where a number cannot be written.
    pub fn to_json(&self) -> Result<String> {
        let Processor { instructions, bf16, cores, caches, memory } = self.processor;
        let processor = ProcessorEntry { instructions, bf16, cores: cores as u32, caches, memory_bytes: memory.map(|memory| memory.0) };
        let file = File { version: VERSION, processor, cards: self.cards.iter().map(CardEntry::of).collect() };
        let json = serde_json::to_string_pretty(&file).map_err(|error| Error::internal(format!("it cannot be written: {error}")))?;
        Ok(json + "\n")
    }
}

fn refused(field: impl std::fmt::Display, why: &str) -> Error {
    Error::invalid_argument(format!("not a description of a machine: {field}: {why}"))
}

/// A flaw: the field, and why it cannot be so.
type Flaw = (&'static str, String);

/// The number, if it is in the range.
fn within<T: PartialOrd + std::fmt::Display + Copy>(field: &'static str, number: T, range: std::ops::RangeInclusive<T>) -> Result<T, Flaw> {
    let (least, most) = (range.start(), range.end());
    if range.contains(&number) { Ok(number) } else { Err((field, format!("{number} is not between {least} and {most}"))) }
}

/// The text, if it can be shown on a line.
fn shown(field: &'static str, text: String) -> Result<String, Flaw> {
    let is_long = text.chars().count() > MOST_CHARACTERS;
    match is_long || text.chars().any(char::is_control) {
        true => Err((field, format!("not a line of at most {MOST_CHARACTERS} characters"))),
        false => Ok(text),
    }
}

impl ProcessorEntry {
    fn checked(self) -> Result<Processor, Flaw> {
        let ProcessorEntry { instructions, bf16, cores, caches, memory_bytes } = self;
        if bf16.is_some() && instructions != InstructionSet::Avx512 {
            return Err(("bf16", format!("not of a processor with {instructions}")));
        }
        let cores = within("cores", cores, 1..=MOST as u32)? as usize;
        let memory = memory_bytes.map(|memory| within("memory_bytes", memory, 1..=MOST_BYTES.0)).transpose()?;
        Ok(Processor { instructions, bf16, cores, caches, memory: memory.map(Bytes) })
    }
}

impl CudnnEntry {
    fn of(cudnn: &DescribedCudnn) -> CudnnEntry {
        // The properties are those of an object.
        let properties = serde_json::from_str(&cudnn.properties).unwrap_or_default();
        CudnnEntry { version: cudnn.version, handle_bytes: cudnn.handle.0, properties }
    }

    /// The properties go to cuDNN as they are: whatever has another form than what it writes is refused here.
    fn checked(self) -> Result<DescribedCudnn, Flaw> {
        let is_number = |value: &Value| value.as_u64().is_some_and(|number| i64::try_from(number).is_ok());
        for (name, value) in &self.properties {
            let is_known = match value {
                Value::String(text) => name == "deviceName" && shown("cudnn", text.clone()).is_ok(),
                Value::Array(list) => list.len() <= MOST_CHARACTERS && list.iter().all(is_number),
                Value::Bool(_) => true,
                _ => name != "deviceName" && is_number(value),
            };
            if !is_known || shown("cudnn", name.clone()).is_err() {
                return Err(("cudnn", format!("properties.{} is not what cuDNN says of a card", name.escape_debug())));
            }
        }
        let version = within("cudnn.version", self.version, 1..=1_000_000_000)?;
        let handle = Bytes(within("cudnn.handle_bytes", self.handle_bytes, 0..=MOST_BYTES.0)?);
        Ok(DescribedCudnn { version, properties: Value::Object(self.properties).to_string(), handle })
    }
}

impl CardEntry {
    fn of(card: &DescribedCard) -> CardEntry {
        let DescribedCard { device, granularity, cudnn } = card;
        let simulation = |simulation: &Simulation| SimulationEntry {
            speed: simulation.speed,
            link_bytes_per_second: simulation.link,
            link_latency_seconds: simulation.link_latency,
            model_capability: [simulation.model_capability.0, simulation.model_capability.1],
        };
        CardEntry {
            ordinal: device.ordinal,
            name: device.name.clone(),
            pci_bus_id: device.pci_bus_id.clone(),
            uuid: device.uuid.clone(),
            compute_capability: [device.compute_capability.0, device.compute_capability.1],
            multiprocessors: device.multiprocessors,
            clock_mhz: device.clock_mhz,
            bandwidth_bytes_per_second: device.bandwidth,
            pcie: device.pcie,
            total_bytes: device.total.0,
            available_bytes: device.available.0,
            overhead_bytes: device.overhead.0,
            granularity_bytes: *granularity,
            cudnn: cudnn.as_ref().map(CudnnEntry::of),
            numa_node: device.numa_node,
            unified_memory: device.unified_memory,
            peers: device.peers.clone(),
            leased: device.leased,
            unusable: device.unusable.clone(),
            simulation: device.simulation.as_ref().map(simulation),
        }
    }

    fn checked(self) -> Result<DescribedCard, Flaw> {
        // Of a simulated card all figures are known.
        let (known, figure) = if self.simulation.is_some() { (1, 1.0) } else { (0, 0.0) };
        let capability =
            |field, [major, minor]: [u32; 2]| Ok(ComputeCapability(within(field, major, 0..=99)?, within(field, minor, 0..=99)?));
        let compute_capability = capability("compute_capability", self.compute_capability)?;
        let total = within("total_bytes", self.total_bytes, u64::from(known)..=MOST_BYTES.0)?;
        let overhead = within("overhead_bytes", self.overhead_bytes, 0..=total.saturating_sub(1))?;
        let granularity = self.granularity_bytes.map(|bytes| within("granularity_bytes", bytes, 1..=1 << 30)).transpose()?;
        match granularity {
            Some(_) if self.simulation.is_some() => return Err(("granularity_bytes", "a simulated card has none".into())),
            Some(bytes) if !bytes.is_power_of_two() => return Err(("granularity_bytes", format!("{bytes} is no power of two"))),
            _ => {}
        }
        if self.cudnn.is_some() && self.simulation.is_some() {
            return Err(("cudnn", "a simulated card has none".into()));
        }
        let cudnn = self.cudnn.map(CudnnEntry::checked).transpose()?;
        let simulation = |entry: SimulationEntry| {
            Ok(Simulation {
                speed: entry.speed.map(|speed| within("simulation.speed", speed, 1e-6..=1e6)).transpose()?,
                link: within("simulation.link_bytes_per_second", entry.link_bytes_per_second, 1.0..=MOST_A_SECOND)?,
                link_latency: within("simulation.link_latency_seconds", entry.link_latency_seconds, 0.0..=1.0)?,
                model_capability: capability("simulation.model_capability", entry.model_capability)?,
            })
        };
        let device = PhysicalDevice {
            ordinal: within("ordinal", self.ordinal, 0..=1023)?,
            name: shown("name", self.name)?,
            pci_bus_id: shown("pci_bus_id", self.pci_bus_id)?,
            uuid: shown("uuid", self.uuid)?,
            compute_capability,
            multiprocessors: within("multiprocessors", self.multiprocessors, known..=65536)?,
            clock_mhz: within("clock_mhz", self.clock_mhz, known..=100_000)?,
            bandwidth: within("bandwidth_bytes_per_second", self.bandwidth_bytes_per_second, figure..=MOST_A_SECOND)?,
            pcie: self
                .pcie
                .map(|[generation, lanes]| Ok([within("pcie", generation, 1..=16)?, within("pcie", lanes, 1..=64)?]))
                .transpose()?,
            total: Bytes(total),
            available: Bytes(within("available_bytes", self.available_bytes, 0..=total)?),
            overhead: Bytes(overhead),
            numa_node: self.numa_node.map(|node| within("numa_node", node, 0..=1023)).transpose()?,
            stream_priorities: stream_priorities(compute_capability),
            unified_memory: self.unified_memory,
            peers: self.peers.into_iter().map(|peer| within("peers", peer, 0..=1023)).collect::<Result<_, _>>()?,
            leased: self.leased,
            unusable: self.unusable.map(|why| shown("unusable", why)).transpose()?,
            simulation: self.simulation.map(simulation).transpose()?,
        };
        Ok(DescribedCard { device, granularity, cudnn })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described() -> MachineDescription {
        let caches = Caches { l1: 32 << 10, l2: 1 << 20, l3: 32 << 20 };
        let processor = Processor { instructions: InstructionSet::Avx2, bf16: None, cores: 8, caches, memory: Some(Bytes(64 << 30)) };
        let simulated = PhysicalDevice::simulated("--sim-gpus", "t4:2x,peers=all,speed=2+1GiB,overhead=6MiB").unwrap();
        let real = PhysicalDevice {
            ordinal: 3,
            uuid: "GPU-3".into(),
            bandwidth: 0.0,
            pcie: Some([4, 16]),
            simulation: None,
            ..simulated[0].clone()
        };
        let mut cards: Vec<DescribedCard> =
            simulated.into_iter().map(|device| DescribedCard { device, granularity: None, cudnn: None }).collect();
        let properties = r#"{"deviceName": "a card", "deviceVer": 900, "isTccDriver": false, "maxGridSize": [9, 8, 7], "cudaDeviceId": 0}"#;
        let cudnn = Some(DescribedCudnn::new(92_600, properties).unwrap().taking(Bytes(10 << 20)));
        cards.push(DescribedCard { device: real, granularity: Some(2 << 20), cudnn });
        MachineDescription { processor, cards }
    }

    #[test]
    fn a_file_says_the_whole_machine() {
        let mut machine = described();
        assert_eq!(MachineDescription::from_json(machine.to_json().unwrap().as_bytes()).unwrap(), machine);
        (machine.processor.instructions, machine.processor.bf16) = (InstructionSet::Avx512, Some(Bf16Instructions::Avx512));
        assert_eq!(MachineDescription::from_json(machine.to_json().unwrap().as_bytes()).unwrap(), machine);
    }

    #[test]
    fn values_that_no_machine_has_are_refused_with_their_place() {
        let text = described().to_json().unwrap();
        let second = |field: &str| text.match_indices(field).nth(1).expect("two cards have it").0;
        let refused = |text: &str| MachineDescription::from_json(text.as_bytes()).unwrap_err();
        for (from, to, place) in [
            ("\"version\": 1", "\"version\": 2", "form 2"),
            ("\"version\": 1", "\"version\": 1, \"x\": 1", "unknown field `x`, expected one of `version`, `processor`, `cards` at line 2"),
            ("\"cores\": 8", "\"cores\": 0", "processor.cores: 0 is not between 1 and 4096"),
            ("\"Avx2\"", "\"Avx3\"", "unknown variant `Avx3`"),
            ("\"cores\": 8", "\"cores\": 8, \"bf16\": \"Avx512\"", "processor.bf16: not of a processor with x86_64 with AVX2"),
            ("\"memory_bytes\": 68719476736", "\"memory_bytes\": 18446744073709551615", "processor.memory_bytes"),
            ("\"ordinal\": 2", "\"ordinal\": 1", "cards[2].ordinal: 1 is not in order"),
            ("\"uuid\": \"GPU-3\"", "\"uuid\": \"GPU-3\\u001b\"", "cards[3].uuid: not a line"),
            ("\"overhead_bytes\": 6291456", "\"overhead_bytes\": 1073741824", "cards[2].overhead_bytes"),
            ("\"granularity_bytes\": 2097152", "\"granularity_bytes\": 3", "cards[3].granularity_bytes: 3 is no power of two"),
            ("\"granularity_bytes\": null", "\"granularity_bytes\": 2", "cards[0].granularity_bytes: a simulated card has none"),
            ("\"speed\": 2.0", "\"speed\": 0.0", "cards[0].simulation.speed"),
            ("\"speed\": 2.0", "\"speed\": 1e999", "number out of range at line"),
            ("\"version\": 92600", "\"version\": 0", "cards[3].cudnn.version"),
            ("\"handle_bytes\": 10485760", "\"handle_bytes\": 18446744073709551615", "cards[3].cudnn.handle_bytes"),
            ("\"deviceVer\": 900", "\"deviceVer\": null", "cards[3].cudnn: properties.deviceVer is not what cuDNN says of a card"),
            ("\"deviceVer\": 900", "\"deviceVer\": {}", "cards[3].cudnn: properties.deviceVer"),
            ("\"deviceVer\": 900", "\"deviceVer\": -1", "cards[3].cudnn: properties.deviceVer"),
            ("\"deviceVer\": 900", "\"deviceVer\": 9.5", "cards[3].cudnn: properties.deviceVer"),
            ("\"deviceName\": \"a card\"", "\"deviceName\": \"a\\n\"", "cards[3].cudnn: properties.deviceName"),
            ("\"deviceName\": \"a card\"", "\"deviceName\": 5", "cards[3].cudnn: properties.deviceName"),
            ("\"clock_mhz\": 1590", "\"clock_mhz\": 0", "cards[0].clock_mhz"),
            ("\"unified_memory\": true", "\"pcie\": [17, 16], \"unified_memory\": true", "cards[0].pcie: 17 is not between 1 and 16"),
            ("\"unified_memory\": true", "\"pcie\": [4, 0], \"unified_memory\": true", "cards[0].pcie: 0 is not between 1 and 64"),
        ] {
            assert!(text.contains(from), "{from}: {text}");
            let error = refused(&text.replacen(from, to, 1));
            assert!(error.message().contains(place), "{to}: {error}");
            assert_eq!(error.code(), plimsoll_base::Code::InvalidArgument, "{to}");
        }
        let at = second("\"total_bytes\": ");
        let error = refused(&format!("{}\"total_bytes\": 1, \"gone\": {}", &text[..at], &text[at + 15..]));
        assert!(error.message().contains("unknown field `gone`"), "{error}");
        let twin = described();
        let cards = vec![
            twin.cards[3].clone(),
            DescribedCard { device: PhysicalDevice { ordinal: 4, ..twin.cards[3].device.clone() }, ..twin.cards[3].clone() },
        ];
        let json = MachineDescription { cards, ..twin }.to_json().unwrap();
        assert!(MachineDescription::from_json(json.as_bytes()).unwrap_err().message().contains("cards[1].uuid: another card has it"));
        for length in 0..text.len() - 2 {
            refused(&text[..length]);
        }
    }
}
