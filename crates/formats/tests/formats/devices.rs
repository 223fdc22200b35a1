//! From ConfigProto, environment and flags to logical devices: the fact sheet's section 4 and table V, as data.

use plimsoll_base::{Bytes, Code, Result};
use plimsoll_cards::{Division, Environment, LogicalDevice, MemoryLimit, Options, PhysicalDevice, Reserve, resolve, visible_device_list};
use plimsoll_device::DeviceKind;
use plimsoll_formats::{read_config, to_options};

/// The blocks of a table: the head line and the lines below it.
fn blocks(table: &str) -> Vec<(&str, Vec<&str>)> {
    let mut blocks: Vec<(&str, Vec<&str>)> = Vec::new();
    let mut open = false;
    for line in table.lines().filter(|line| !line.starts_with('#')) {
        match (line.trim().is_empty(), open) {
            (true, _) => open = false,
            (false, false) => {
                blocks.push((line, Vec::new()));
                open = true;
            }
            (false, true) => blocks.last_mut().expect("a block is open").1.push(line),
        }
    }
    blocks
}

/// `4GiB-500MiB`, in bytes.
fn size(text: &str) -> u64 {
    text.split('-').map(|size| size.parse::<Bytes>().expect(text).0).reduce(|all, less| all - less).expect("a size")
}

fn yes(yes: bool) -> String {
    if yes { "yes" } else { "no" }.into()
}

/// The answer to a question about a device.
fn answer(key: &str, device: &LogicalDevice, division: &Division) -> String {
    let bytes = |bytes: Option<Bytes>| bytes.map_or("-".into(), |bytes| bytes.0.to_string());
    let card = || device.card.as_ref().expect("a GPU has a card");
    let pinned = || division.pinned_host.expect("GPUs have pinned memory");
    match key {
        "device" => card().ordinal.to_string(),
        "card" => card().device.ordinal.to_string(),
        "limit" => bytes(device.memory_limit),
        "line" => bytes(device.line()),
        "first" => bytes(device.first_region()),
        "overhead" => device.overhead.0.to_string(),
        "pinned" => pinned().limit.0.to_string(),
        "pinned_growth" => yes(pinned().growth),
        "prio" => device.priority.to_string(),
        "numa" => device.numa_node.to_string(),
        "allocator" => device.allocator_name(),
        "kind" => format!("{:?}", device.allocator.kind),
        "retry" => yes(device.allocator.retry),
        "collect" => yes(device.allocator.garbage_collection),
        "fragment" => device.allocator.fragmentation_fraction.to_string(),
        "growth" => yes(device.allocator.growth),
        "touched" => yes(device.preallocate),
        "unified" => yes(device.unified_memory),
        "reserve" => match device.reserve {
            Reserve::Whole => "whole".into(),
            Reserve::Growth => "growth".into(),
            Reserve::Plan => "plan".into(),
        },
        "links" if device.links.is_empty() => "-".into(),
        "links" => {
            let link = |link: &plimsoll_cards::Link| format!("{}:{}:{}", link.device, link.kind(), link.strength());
            device.links.iter().map(link).collect::<Vec<_>>().join(",")
        }
        _ => panic!("nobody can be asked '{key}'"),
    }
}

/// The machine and the options that a block describes.
struct Asked {
    cards: Vec<PhysicalDevice>,
    options: Options,
    environment: Environment,
}

fn ask(asked: &Asked) -> Result<Division> {
    resolve(&asked.cards, &asked.options, &asked.environment)
}

fn flag(mut options: Options, name: &str, value: &str) -> Options {
    match name {
        "visible-devices" => options.visible_devices(value),
        "memory-fraction" => options.memory_fraction(value.parse().expect("a number")),
        "memory-limit" => {
            options.memory_limits.extend(MemoryLimit::parse_list(value).expect("limits"));
            options
        }
        "allow-growth" => options.allow_growth(value == "true"),
        "preallocate" => options.preallocate(value == "true"),
        _ => panic!("no flag '{name}'"),
    }
}

/// Whether the devices are as the lines say; the first difference otherwise.
fn compare(division: &Division, lines: &[&str]) -> Result<(), String> {
    let mut expected = Vec::new();
    for line in lines {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let among = |texts: &[String]| {
            if texts.iter().any(|text| text.contains(rest)) { Ok(()) } else { Err(format!("'{rest}' is not among {texts:?}")) }
        };
        match word {
            "none" => {}
            "note" => among(&division.notes)?,
            "log" => among(&division.start_log())?,
            "error" => return Err(format!("no error {rest}")),
            _ => expected.push((word, rest)),
        }
    }
    let all = expected.iter().any(|(name, _)| name.starts_with("CPU"));
    let devices: Vec<&LogicalDevice> = division.devices.iter().filter(|device| all || device.kind == DeviceKind::Gpu).collect();
    let names: Vec<String> = devices.iter().map(|device| device.name.short()).collect();
    let wanted: Vec<String> = expected.iter().map(|(name, _)| name.to_string()).collect();
    if names != wanted {
        return Err(format!("the devices are {names:?}, not {wanted:?}"));
    }
    for ((name, answers), device) in expected.into_iter().zip(devices) {
        for pair in answers.split_whitespace() {
            let (key, value) = pair.split_once('=').expect("KEY=VALUE");
            let is_size = ["limit", "line", "first", "overhead", "pinned"].contains(&key) && value != "-";
            let (given, value) = (answer(key, device, division), if is_size { size(value).to_string() } else { value.into() });
            if given != value {
                return Err(format!("{name} has {key}={given}, not {value}"));
            }
        }
    }
    Ok(())
}

fn check(lines: &[&str]) -> Result<(), String> {
    let (mut spec, mut available, mut config, mut environment) = ("", None, String::new(), Environment::new());
    let (mut flags, mut outcomes, mut again) = (Vec::new(), Vec::new(), Vec::new());
    for line in lines {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "cards" => spec = rest,
            "available" => available = Some(Bytes(size(rest))),
            "config" => config = rest.into(),
            "env" => {
                let (name, value) = rest.split_once('=').expect("NAME=VALUE");
                assert!(Environment::NAMES.contains(&name), "{name} is not looked at");
                environment = environment.with(name, value);
            }
            "flag" => flags.push(rest.split_once(' ').expect("NAME VALUE")),
            "again" => again.push((rest.to_string(), Vec::new())),
            "" => config += line,
            _ => again.last_mut().map_or(&mut outcomes, |(_, outcomes)| outcomes).push(*line),
        }
    }
    let mut cards = PhysicalDevice::simulated("cards", spec).map_err(|error| error.to_string())?;
    for card in &mut cards {
        card.available = available.unwrap_or(card.available);
    }
    for (config, outcomes) in [(config, outcomes)].into_iter().chain(again) {
        let options = to_options(&read_config(config.as_bytes()).map_err(|error| error.to_string())?);
        let options = flags.iter().fold(options, |options, (name, value)| flag(options, name, value));
        let result = ask(&Asked { cards: cards.clone(), options, environment: environment.clone() });
        match (&result, outcomes.iter().find_map(|line| line.strip_prefix("error "))) {
            (Err(error), Some(expected)) => {
                let (code, message) = expected.split_once(' ').expect("CODE TEXT");
                if error.code().name() != code || !error.message().contains(message) {
                    return Err(format!("{error}, not {expected}"));
                }
            }
            (Err(error), None) => return Err(error.to_string()),
            (Ok(division), _) => compare(division, &outcomes)?,
        }
    }
    Ok(())
}

#[test]
fn the_table_of_devices() {
    let departures = include_str!("../../../../docs/compatibility.md");
    let mut wrong = Vec::new();
    let blocks = blocks(include_str!("../data/devices.txt"));
    for (head, lines) in &blocks {
        if let Err(why) = check(lines) {
            wrong.push(format!("{head}: {why}"));
        }
        let (id, rest) = head.split_once(' ').expect("an id and more");
        let departs = rest.starts_with("departure");
        assert!(!id.starts_with('V') || departs || rest == "as TensorFlow", "{head}");
        assert!(!departs || departures.contains(&format!("| {id} |")), "docs/compatibility.md does not list {id}");
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), blocks.len(), wrong.join("\n"));
    assert!(blocks.len() > 100, "{} blocks", blocks.len());
}

/// V9, and other contents of a list for one type of device.
#[test]
fn lists_for_a_type() {
    for (id, list, count, kind, expected) in [
        ("V9", "A:1,B:0,A:0", 2, Some("A"), Some(vec![1, 0])),
        ("V9", "A:1,B:0,A:0", 2, Some("B"), Some(vec![0])),
        ("V9", "A:1,B:9,A:0", 2, Some("A"), Some(vec![1, 0])),
        ("4.3", "A:1,0", 2, Some("A"), Some(vec![1, 0])),
        ("4.3", "A:1,A:1", 2, Some("A"), None),
        ("V5", "2,1", 3, None, Some(vec![2, 1])),
        ("V6", "", 2, None, Some(vec![0, 1])),
    ] {
        let result = visible_device_list(list, count, kind);
        assert_eq!(result.as_ref().ok(), expected.as_ref(), "{id}: {result:?}");
        assert!(result.is_ok() || result.is_err_and(|error| error.code() == Code::InvalidArgument));
    }
}

/// 4.7: the option, else the variable, else every core; junk in the variable is none.
#[test]
fn threads() {
    let options = |text: &str| to_options(&read_config(text.as_bytes()).unwrap());
    let environment =
        |intra: &str, inter: &str| Environment::new().with("TF_NUM_INTRAOP_THREADS", intra).with("TF_NUM_INTEROP_THREADS", inter);
    for (config, environment, intra, inter) in [
        ("", Environment::new(), 8, 0),
        ("", environment("3", "5"), 3, 5),
        ("", environment("junk", "-1"), 8, 0),
        ("intra_op_parallelism_threads: 2 inter_op_parallelism_threads: 4", environment("3", "5"), 2, 4),
        ("inter_op_parallelism_threads: -1", environment("3", "5"), 3, 1),
    ] {
        let options = options(config);
        assert_eq!((options.threads_in(&environment, 8).unwrap(), options.queues_in(&environment)), (intra, inter), "{config}");
    }
}

/// No ConfigProto or environment panics, and the result is a list of devices with distinct names.
#[test]
fn any_values_give_devices_or_an_error() {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = |most: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % most
    };
    let numbers = ["0", "1", "-1", "2", "1.5", "-0.0", "1e30", "nan", "inf", "2147483647", "-2147483648"];
    let texts = ["", "0", "1,0", "-1", "a", "2147483648", "GPU:0", ",", "true", "false", "999999999999999999999"];
    for _ in 0..2000 {
        let mut options = to_options(&read_config(b"").unwrap());
        let mut number = || numbers[random(numbers.len() as u64) as usize].parse::<f64>().unwrap();
        let gpu = &mut options.gpu;
        gpu.per_process_gpu_memory_fraction = number();
        gpu.num_virtual_devices_per_gpu = number() as i32 % 5000;
        gpu.gpu_system_memory_size_in_mb = number() as i32;
        gpu.gpu_host_mem_limit_in_mb = number() as f32;
        let limits = vec![number() as f32, number() as f32];
        let (priority, device_ordinal) = (vec![number() as i32, number() as i32], vec![number() as i32, number() as i32]);
        options.device_count.insert("GPU".into(), number() as i32);
        if random(2) == 0 {
            options.gpu.per_process_gpu_memory_fraction = 0.0;
            let mut devices =
                vec![plimsoll_cards::VirtualDevices { memory_limit_mb: limits, priority, device_ordinal }; random(3) as usize];
            if random(2) == 0 {
                devices.iter_mut().for_each(|devices| devices.priority.clear());
            }
            options.gpu.virtual_devices = devices;
        }
        let mut text = || texts[random(texts.len() as u64) as usize];
        options.gpu.visible_device_list = text().into();
        let mut environment = Environment::new();
        for name in Environment::NAMES {
            if text().is_empty() {
                environment = environment.with(name, text());
            }
        }
        let cards = PhysicalDevice::simulated("cards", "2x4GiB,overhead=1MiB,peers=all").unwrap();
        if let Ok(division) = resolve(&cards, &options, &environment) {
            let names: std::collections::BTreeSet<_> = division.devices.iter().map(|device| device.name.clone()).collect();
            assert_eq!(names.len(), division.devices.len());
            let _ = division.start_log();
        }
    }
}
