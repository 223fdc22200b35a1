//! `2x4GiB`: texts that describe simulated cards.

use std::fmt::Write as _;

use plimsoll_base::Bytes;

use super::models::{self, Model};
use super::{ComputeCapability, PhysicalDevice, Simulation};

/// More cards than this are taken for a mistake.
pub(crate) const MOST_CARDS: usize = 64;

/// More memory than this is taken for a mistake.
pub(crate) const MOST_BYTES: Bytes = Bytes(1 << 50);

/// Bytes a second that sixteen lanes of PCI Express 3.0 carry in practice.
const LINK: f64 = 12e9;

/// The specification of a group of cards.
struct Group {
    model: Model,
    count: u32,
    total: Bytes,
    overhead: Bytes,
    bandwidth: f64,
    link: f64,
    link_latency: f64,
    speed: Option<f64>,
    numa_node: Option<u32>,
    peers: bool,
    model_capability: ComputeCapability,
}

/// The cards of a specification.
pub(super) fn cards(spec: &str) -> Result<Vec<PhysicalDevice>, String> {
    if spec.trim().is_empty() {
        return Ok(Vec::new());
    }
    let mut cards: Vec<PhysicalDevice> = Vec::new();
    for text in spec.split(['+', ';']) {
        let group = group(text.trim())?;
        let first = cards.len() as u32;
        if cards.len() + group.count as usize > MOST_CARDS {
            return Err(format!("more than {MOST_CARDS} cards"));
        }
        cards.extend((first..first + group.count).map(|ordinal| card(&group, ordinal, first)));
    }
    let set = describe(&cards);
    for card in &mut cards {
        card.uuid = uuid(&format!("{set}#{}", card.ordinal));
    }
    Ok(cards)
}

fn group(text: &str) -> Result<Group, String> {
    let mut pieces = text.split(',').map(str::trim);
    let head = pieces.next().unwrap_or_default();
    let (model, amount) = match head.split_once(':') {
        Some((key, amount)) => (Some(key.trim()), amount.trim()),
        None if models::find(head).is_some() => (Some(head), ""),
        None => (None, head),
    };
    let model = match model {
        Some(key) => models::find(key).ok_or_else(|| format!("'{key}' is not a known model of a card"))?,
        None => models::PLAIN,
    };
    let (count, size) = match amount.split_once(['x', 'X']) {
        Some((count, size)) => {
            (number(count, 1..=MOST_CARDS as u32).ok_or_else(|| format!("'{count}' is not a number of cards"))?, size.trim())
        }
        None => (1, amount),
    };
    let total = match size {
        "" if model.mebibytes > 0 => Bytes(model.mebibytes << 20),
        "" => return Err(format!("'{text}' does not say how much memory a card has")),
        size => bytes(size).map_err(|error| match (amount == size, number(size, 1..=MOST_CARDS as u32)) {
            (true, Some(count)) => format!("{error}; {count} cards of 4 GiB are {count}x4GiB"),
            _ => error,
        })?,
    };
    let mut group = Group {
        model,
        count,
        total,
        overhead: Bytes::ZERO,
        bandwidth: f64::from(model.gigabytes_per_second) * 1e9,
        link: LINK,
        link_latency: 0.0,
        speed: None,
        numa_node: None,
        peers: false,
        model_capability: model.capability,
    };
    for piece in pieces {
        let (key, value) = piece.split_once('=').ok_or_else(|| format!("'{piece}' is not KEY=VALUE"))?;
        set(&mut group, key.trim(), value.trim())?;
    }
    if group.overhead >= group.total {
        return Err(format!("an overhead of {} leaves nothing of {}", group.overhead, group.total));
    }
    Ok(group)
}

fn set(group: &mut Group, key: &str, value: &str) -> Result<(), String> {
    let wrong = |what: &str| format!("{key}={value}: '{value}' is not {what}");
    match key {
        // None, as where it is not said.
        "overhead" if value == "0" => group.overhead = Bytes::ZERO,
        "overhead" => group.overhead = bytes(value).map_err(|error| format!("{key}={value}: {error}"))?,
        "bandwidth" => group.bandwidth = bytes(value).map_err(|error| format!("{key}={value}: {error}"))?.0 as f64,
        "link" => group.link = bytes(value).map_err(|error| format!("{key}={value}: {error}"))?.0 as f64,
        "latency" => {
            let microseconds = value.parse::<f64>().ok().filter(|microseconds| (0.0..=1e6).contains(microseconds));
            group.link_latency = microseconds.ok_or_else(|| wrong("a number of microseconds"))? / 1e6;
        }
        "cc" => {
            let parts = value.split_once('.').unwrap_or((value, "0"));
            let (Some(major), Some(minor)) = (number(parts.0, 1..=99), number(parts.1, 0..=99)) else {
                return Err(wrong("a compute capability"));
            };
            group.model.capability = ComputeCapability(major, minor);
        }
        "sm" => group.model.multiprocessors = number(value, 1..=65536).ok_or_else(|| wrong("a number of multiprocessors"))?,
        "clock" => group.model.clock_mhz = number(value, 1..=100_000).ok_or_else(|| wrong("a clock in MHz"))?,
        "numa" => group.numa_node = Some(number(value, 0..=1023).ok_or_else(|| wrong("a NUMA node"))?),
        "speed" => {
            let speed = value.parse::<f64>().ok().filter(|speed| (1e-6..=1e6).contains(speed));
            group.speed = Some(speed.ok_or_else(|| wrong("a factor above 0"))?);
        }
        "peers" => {
            group.peers = match value {
                "all" => true,
                "none" => false,
                _ => return Err(wrong("all or none")),
            }
        }
        _ => return Err(format!("'{key}' is nothing that a card has")),
    }
    Ok(())
}

fn number(text: &str, range: std::ops::RangeInclusive<u32>) -> Option<u32> {
    text.trim().parse().ok().filter(|number| range.contains(number))
}

fn bytes(text: &str) -> Result<Bytes, String> {
    let bytes: Bytes = Bytes::of_option(text).map_err(|error| error.to_string())?;
    if bytes == Bytes::ZERO || bytes > MOST_BYTES {
        return Err(format!("'{text}' is not between 1 B and {MOST_BYTES}"));
    }
    Ok(bytes)
}

fn card(group: &Group, ordinal: u32, first: u32) -> PhysicalDevice {
    let Model { name, capability, multiprocessors, clock_mhz, .. } = group.model;
    let (slot, group_end) = (ordinal + 3, first + group.count);
    PhysicalDevice {
        ordinal,
        name: name.into(),
        pci_bus_id: format!("0000:{:02x}:{:02x}.0", slot / 32, slot % 32),
        uuid: String::new(),
        compute_capability: capability,
        multiprocessors,
        clock_mhz,
        bandwidth: group.bandwidth,
        pcie: None,
        total: group.total,
        available: group.total,
        overhead: group.overhead,
        numa_node: group.numa_node,
        stream_priorities: super::stream_priorities(capability),
        unified_memory: true,
        peers: if group.peers { (first..group_end).filter(|&other| other != ordinal).collect() } else { Vec::new() },
        leased: false,
        unusable: None,
        simulation: Some(Simulation {
            speed: group.speed,
            link: group.link,
            link_latency: group.link_latency,
            model_capability: group.model_capability,
        }),
    }
}

/// All that is known of a set of cards, in one form however it was written.
fn describe(cards: &[PhysicalDevice]) -> String {
    let mut text = String::new();
    for card in cards {
        let PhysicalDevice { name, compute_capability, multiprocessors, clock_mhz, bandwidth, total, overhead, .. } = card;
        let (numa, peers, speed) = (card.numa_node, &card.peers, card.simulation.as_ref().and_then(|simulation| simulation.speed));
        let figures = (total.0, overhead.0, multiprocessors, clock_mhz, bandwidth, speed, numa, peers);
        write!(text, "{name} {compute_capability} {figures:?};").expect("a text takes any text");
        if let Some(link) = card.simulation.as_ref().map(|simulation| simulation.link).filter(|link| *link != LINK) {
            write!(text, "link {link:?};").expect("a text takes any text");
        }
        if let Some(latency) = card.simulation.as_ref().map(|simulation| simulation.link_latency).filter(|latency| *latency > 0.0) {
            write!(text, "latency {latency:?};").expect("a text takes any text");
        }
    }
    text
}

/// A UUID that only depends on the text: two FNV-1a sums, so that it is the same on every machine and in every build.
fn uuid(text: &str) -> String {
    let sum = |seed: u64| {
        let hash = text.bytes().fold(seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    };
    let (high, low) = (sum(0xcbf2_9ce4_8422_2325), sum(0x6c62_272e_07bb_0142));
    let digits = format!("{high:016x}{low:016x}");
    format!("GPU-{}-{}-{}-{}-{}", &digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_base::Code;

    fn parse(spec: &str) -> Vec<PhysicalDevice> {
        PhysicalDevice::simulated("--sim-gpus", spec).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn plain_cards_and_models() {
        let cards = parse("2x4GiB");
        assert_eq!((cards.len(), cards[1].total, cards[1].available, cards[1].ordinal), (2, Bytes(4 << 30), Bytes(4 << 30), 1));
        assert_eq!((cards[0].pci_bus_id.as_str(), cards[1].pci_bus_id.as_str()), ("0000:00:03.0", "0000:00:04.0"));
        let cards = parse("k520:4x4095MiB");
        assert_eq!((cards.len(), cards[3].name.as_str(), cards[3].total), (4, "GRID K520", Bytes(4095 << 20)));
        assert_eq!((cards[0].compute_capability, cards[0].minimum_capability()), (ComputeCapability(3, 0), ComputeCapability(3, 0)));
        assert_eq!((parse("t4").len(), parse("A100: 8x").len(), parse("1GiB").len(), parse(" ").len()), (1, 8, 1, 0));
        assert_eq!(parse("k520")[0].total, Bytes(4095 << 20));
        assert_eq!(parse("64x1MiB")[63].pci_bus_id, "0000:02:02.0");
    }

    #[test]
    fn groups_and_keys() {
        for separator in ["+", " ; "] {
            let cards = parse(&format!("4x4GiB,overhead=193MiB{separator}1x2GiB, cc=3.0 ,sm=7,clock=900,speed=2.5,numa=1,bandwidth=10GiB"));
            assert_eq!((cards.len(), cards[0].overhead, cards[4].overhead), (5, Bytes(193 << 20), Bytes::ZERO));
            let odd = &cards[4];
            assert_eq!((odd.compute_capability, odd.multiprocessors, odd.clock_mhz), (ComputeCapability(3, 0), 7, 900));
            assert_eq!((odd.simulation.as_ref().unwrap().speed, odd.numa_node, odd.bandwidth), (Some(2.5), Some(1), (10u64 << 30) as f64));
            assert_eq!(odd.minimum_capability(), PhysicalDevice::MINIMUM_CAPABILITY);
            assert_eq!(odd.ordinal, 4);
        }
        assert_eq!(parse("1GiB+3x1GiB,peers=all")[2].peers, [1, 3]);
        assert_eq!(parse("1GiB,cc=7")[0].compute_capability, ComputeCapability(7, 0));
        assert_eq!(parse("1GiB,latency=2.5")[0].simulation.as_ref().unwrap().link_latency, 2.5e-6);
    }

    #[test]
    fn uuids_are_those_of_the_set() {
        let uuids = |spec: &str| parse(spec).into_iter().map(|card| card.uuid).collect::<Vec<_>>();
        assert_eq!(uuids("2x4GiB"), uuids("4096MiB+1x4GB"));
        assert_ne!(uuids("2x4GiB")[0], uuids("3x4GiB")[0]);
        assert_ne!(uuids("2x4GiB")[0], uuids("2x4GiB,overhead=1MiB")[0]);
        assert_eq!(uuids("2x4GiB"), uuids("2x4GiB,overhead=0"));
        assert_ne!(uuids("2x4GiB")[0], uuids("2x4GiB,link=1GiB")[0]);
        assert_ne!(uuids("2x4GiB")[0], uuids("2x4GiB,latency=5")[0]);
        assert_eq!(uuids("2x4GiB"), uuids("2x4GiB,latency=0"));
        let all = uuids("64x1GiB");
        assert!(all.iter().collect::<std::collections::HashSet<_>>().len() == 64 && all.iter().all(|uuid| uuid.len() == 40));
        assert_eq!(uuids("1x1GiB")[0], "GPU-977fa565-70c3-df81-9cf2-4cfb8288f242");
    }

    #[test]
    fn wrong_texts_say_what_is_wrong() {
        for (spec, why) in [
            ("much", "'much' is not a size"),
            ("2x", "'2x' does not say how much memory"),
            ("0x4GiB", "'0' is not a number of cards"),
            ("65x1GiB", "'65' is not a number of cards"),
            ("40x1GiB+40x1GiB", "more than 64 cards"),
            ("2x0", "not between"),
            ("4", "'4' has no unit: write 4GiB or 4MiB, or 4B for bytes; 4 cards of 4 GiB are 4x4GiB"),
            ("2x4", "'4' has no unit: write 4GiB or 4MiB, or 4B for bytes"),
            ("2x4GiB,overhead=193", "overhead=193: '193' has no unit"),
            ("9999999TiB", "not between"),
            ("zx81:2x4GiB", "'zx81' is not a known model"),
            ("2x4GiB,overhead=5GiB", "an overhead of 5 GiB leaves nothing of 4 GiB"),
            ("2x4GiB,overhead=x", "overhead=x: 'x' is not a size"),
            ("2x4GiB,latency=-1", "latency=-1: '-1' is not a number of microseconds"),
            ("2x4GiB,link=none", "link=none: 'none' is not a size"),
            ("2x4GiB,cc=banana", "'banana' is not a compute capability"),
            ("2x4GiB,sm=0", "'0' is not a number of multiprocessors"),
            ("2x4GiB,speed=-1", "'-1' is not a factor"),
            ("2x4GiB,speed=nan", "'nan' is not a factor"),
            ("2x4GiB,peers=some", "'some' is not all or none"),
            ("2x4GiB,colour=red", "'colour' is nothing that a card has"),
            ("2x4GiB,", "'' is not KEY=VALUE"),
            ("2x4GiB+", "does not say how much memory"),
        ] {
            let error = PhysicalDevice::simulated("PLIMSOLL_SIM_GPUS", spec).unwrap_err();
            assert_eq!(error.code(), Code::InvalidArgument, "{spec}");
            assert!(error.message().starts_with(&format!("PLIMSOLL_SIM_GPUS {spec}: ")), "{error}");
            assert!(error.message().contains(why) && error.remedy().unwrap().contains("k520, k80"), "{spec}: {error}");
        }
    }

    proptest::proptest! {
        /// Nothing that is written panics.
        #[test]
        fn any_text_is_cards_or_an_error(text in "([0-9]{0,5}x?[0-9.]{0,6}[kMGTiB]{0,3}[+;,:=a-z0-9.]{0,12}){0,3}|\\PC{0,12}") {
            let _ = PhysicalDevice::simulated("--sim-gpus", &text);
        }
    }
}
