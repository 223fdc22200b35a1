//! The typed configuration of devices: the fact sheet's section 4.9 and table C, as data.

use plimsoll_base::{Error, Result};
use plimsoll_cards::config::{
    DeviceConfig, LogicalDeviceConfiguration, MemoryInfo, MemoryStats, PhysicalId, get_memory_info, get_memory_usage, reset_memory_stats,
};
use plimsoll_cards::{Environment, Options, PhysicalDevice, VirtualDevices};
use plimsoll_device::{DeviceKind, DeviceName};
use plimsoll_formats::{print_config, read_config, to_options, write_config};

/// Opened devices that count what they are told; none where a device does not count.
#[derive(Default)]
struct Opened(Vec<(DeviceName, Option<MemoryInfo>)>);

impl MemoryStats for Opened {
    fn names(&self) -> Vec<DeviceName> {
        self.0.iter().map(|(name, _)| name.clone()).collect()
    }

    fn memory_info(&self, position: usize) -> Option<MemoryInfo> {
        self.0[position].1
    }

    fn reset(&self, position: usize) -> bool {
        self.0[position].1.is_some()
    }
}

/// `CPU:0`, `GPU:1`, or a name in full.
fn physical(text: &str) -> Result<PhysicalId> {
    let full = if text.starts_with('/') { text.to_string() } else { format!("/physical_device:{text}") };
    let id: PhysicalId = full.parse()?;
    assert_eq!(id.to_string(), full);
    Ok(id)
}

fn physicals(texts: &[&str]) -> Result<Vec<PhysicalId>> {
    texts.iter().map(|text| physical(text)).collect()
}

fn kind(text: &str) -> Option<DeviceKind> {
    if text == "all" { None } else { Some(DeviceKind::from_name(text).expect("a type")) }
}

fn short(ids: Vec<PhysicalId>) -> String {
    ids.iter().map(|id| format!("{}:{}", id.kind, id.index)).collect::<Vec<_>>().join(" ")
}

/// `10@-1#2`, `-`.
fn part(text: &str) -> LogicalDeviceConfiguration {
    let (text, ordinal) = text.split_once('#').map_or((text, None), |(text, ordinal)| (text, Some(ordinal)));
    let (limit, priority) = text.split_once('@').map_or((text, None), |(limit, priority)| (limit, Some(priority)));
    LogicalDeviceConfiguration {
        memory_limit: (limit != "-").then(|| limit.parse().expect("MiB")),
        priority: priority.map(|text| text.parse().expect("a priority")),
        device_ordinal: ordinal.map(|text| text.parse().expect("an ordinal")),
    }
}

/// `{10@-1#2,20@0#1}`, `{}`.
fn virtual_devices(devices: &VirtualDevices) -> String {
    let one = |(index, limit): (usize, &f32)| {
        let number = |mark: char, numbers: &[i32]| numbers.get(index).map_or(String::new(), |number| format!("{mark}{number}"));
        format!("{limit}{}{}", number('@', &devices.priority), number('#', &devices.device_ordinal))
    };
    format!("{{{}}}", devices.memory_limit_mb.iter().enumerate().map(one).collect::<Vec<_>>().join(","))
}

fn field(options: &Options, name: &str) -> String {
    match name {
        "intra_op" => options.intra_op.to_string(),
        "inter_op" => options.inter_op.to_string(),
        "soft_placement" => options.soft_placement.to_string(),
        "log_placement" => options.log_placement.to_string(),
        "allow_growth" => options.gpu.allow_growth.to_string(),
        "visible_device_list" => options.gpu.visible_device_list.clone(),
        "virtual_devices" => options.gpu.virtual_devices.iter().map(virtual_devices).collect::<Vec<_>>().join(" "),
        "device_count" => options.device_count.iter().map(|(kind, count)| format!("{kind}={count}")).collect::<Vec<_>>().join(" "),
        _ => panic!("no field '{name}'"),
    }
}

fn call(config: &mut DeviceConfig, opened: &mut Opened, words: &[&str]) -> Result<String> {
    let (name, arguments) = (words[0], &words[1..]);
    let done = |result: Result<()>| result.map(|()| "ok".to_string());
    let on = |text: &str| text == "true";
    match name {
        "list_physical_devices" => Ok(short(config.list_physical_devices(kind(arguments[0])))),
        "get_visible_devices" => Ok(short(config.get_visible_devices(kind(arguments[0])))),
        "set_visible_devices" => done(config.set_visible_devices(&physicals(&arguments[1..])?, kind(arguments[0]))),
        "get_memory_growth" => Ok(config.get_memory_growth(physical(arguments[0])?)?.map_or("none".into(), |on| on.to_string())),
        "set_memory_growth" => done(config.set_memory_growth(physical(arguments[0])?, on(arguments[1]))),
        "set_logical" => {
            let (device, parts) = (physical(arguments[0])?, arguments[1..].iter().map(|text| part(text)).collect::<Vec<_>>());
            config.set_logical_device_configuration(device, parts.clone())?;
            assert_eq!(config.get_logical_device_configuration(device)?, Some(parts.as_slice()));
            Ok("ok".into())
        }
        "set_intra_op_parallelism_threads" => done(config.set_intra_op_parallelism_threads(arguments[0].parse().expect("a number"))),
        "set_inter_op_parallelism_threads" => done(config.set_inter_op_parallelism_threads(arguments[0].parse().expect("a number"))),
        "set_soft_device_placement" => {
            config.set_soft_device_placement(on(arguments[0]));
            assert_eq!(config.get_soft_device_placement(), on(arguments[0]));
            Ok("ok".into())
        }
        "set_log_device_placement" => {
            config.set_log_device_placement(on(arguments[0]));
            Ok("ok".into())
        }
        "config" => config.options().map(|options| field(&options, arguments[0])),
        "initialized" => Ok(if config.is_initialized() { "yes" } else { "no" }.into()),
        "initialize" => {
            let names = config.initialize()?.devices.iter().map(|device| device.name.clone());
            *opened = Opened(names.map(|name| (name, Some(MemoryInfo::default()))).collect());
            Ok("ok".into())
        }
        "list_logical_devices" => {
            let devices = config.list_logical_devices(kind(arguments[0]))?;
            Ok(devices.iter().map(|device| device.name.short()).collect::<Vec<_>>().join(" "))
        }
        "get_device_details" => Ok(config
            .get_device_details(physical(arguments[0])?)?
            .map_or("nothing".into(), |details| format!("{} {}", details.device_name, details.compute_capability))),
        "use" => {
            let device = opened.0.iter_mut().find(|(name, _)| name.short() == arguments[0]).expect("a device");
            let info = device.1.as_mut().expect("it counts");
            info.current = info.current.checked_add_signed(arguments[1].parse().expect("bytes")).expect("no more is given back than used");
            info.peak = info.peak.max(info.current);
            Ok("ok".into())
        }
        "uncounted" => {
            opened.0.iter_mut().filter(|(name, _)| name.short() == arguments[0]).for_each(|(_, info)| *info = None);
            Ok("ok".into())
        }
        "get_memory_info" => get_memory_info(opened, arguments[0]).map(|info| format!("current={} peak={}", info.current, info.peak)),
        "get_memory_usage" => get_memory_usage(opened, arguments[0]).map(|bytes| bytes.to_string()),
        "reset_memory_stats" => {
            reset_memory_stats(opened, arguments[0])?;
            let device = opened.0.iter_mut().find(|(name, _)| name.short() == arguments[0]).expect("a device");
            device.1.iter_mut().for_each(|info| info.peak = info.current);
            Ok("ok".into())
        }
        _ => panic!("no call '{name}'"),
    }
}

/// Whether the answer is the one expected.
fn matches(answer: &Result<String>, expected: &str) -> bool {
    match (answer, expected.split_once(' ')) {
        (Ok(answer), _) => answer == expected,
        (Err(error), Some((code, text))) => error.code().name() == code && error.message().contains(text),
        (Err(_), None) => false,
    }
}

fn check(lines: &[&str]) -> Result<(), String> {
    let mut asked = lines.iter().filter(|line| !line.contains("=>"));
    let spec = asked.find_map(|line| line.strip_prefix("cards ")).unwrap_or("");
    let proto = lines.iter().filter(|line| !line.contains("=>")).find_map(|line| line.strip_prefix("config "));
    let text = |error: Error| error.to_string();
    let cards = PhysicalDevice::simulated("cards", spec).map_err(text)?;
    let base = match proto {
        Some(proto) => to_options(&read_config(proto.as_bytes()).map_err(text)?),
        None => Options::new(),
    };
    let import = DeviceConfig::import(cards, Environment::new(), base);
    let (mut opened, mut config) = (Opened::default(), import.as_ref().ok().cloned());
    for line in lines.iter().filter(|line| line.contains("=>")) {
        let (asked, expected) = line.split_once("=>").expect("an answer");
        let words: Vec<&str> = asked.split_whitespace().collect();
        let answer = match (words[0], &mut config) {
            ("import", _) => import.as_ref().map(|_| "ok".to_string()).map_err(Error::clone),
            (_, Some(config)) => call(config, &mut opened, &words),
            (_, None) => return Err(format!("not imported: {:?}", import.as_ref().err())),
        };
        if !matches(&answer, expected.trim()) {
            return Err(format!("{} gives {answer:?}, not {}", asked.trim(), expected.trim()));
        }
    }
    Ok(())
}

#[test]
fn the_table_of_configurations() {
    let departures = include_str!("../../../../docs/compatibility.md");
    let (mut cases, mut wrong) = (0, Vec::new());
    let table: Vec<&str> = include_str!("../data/config.txt").lines().filter(|line| !line.starts_with('#')).collect();
    for block in table.split(|line| line.trim().is_empty()).filter(|block| !block.is_empty()) {
        let (head, lines) = (block[0], &block[1..]);
        assert!(!lines.is_empty(), "{head}");
        cases += 1;
        if let Err(why) = check(lines) {
            wrong.push(format!("{head}: {why}"));
        }
        let (id, rest) = head.split_once(' ').expect("an id and more");
        let departs = rest.starts_with("departure");
        assert!(!id.starts_with('C') || departs || rest == "as TensorFlow", "{head}");
        assert!(!departs || departures.contains(&format!("| {id} |")), "docs/compatibility.md does not list {id}");
    }
    assert!(wrong.is_empty(), "{} of {cases}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(cases > 40, "{cases} cases");
}

/// Fields that have no name here, with a tag, a number and a length that are longer than they need be.
#[test]
fn carried_fields_are_the_same_bytes_in_both_forms() {
    for (long, short) in [
        (&[0xd8, 0xaa, 0x00, 0x3e][..], &[0xd8, 0x2a, 0x3e][..]),
        (&[0xd8, 0x2a, 0xbe, 0x00], &[0xd8, 0x2a, 0x3e]),
        (&[0xda, 0x2a, 0x81, 0x80, 0x00, 0xff], &[0xda, 0x2a, 0x01, 0xff]),
    ] {
        let config = read_config(long).unwrap();
        assert_eq!(write_config(&config), short);
        assert_eq!(write_config(&read_config(print_config(&config).as_bytes()).unwrap()), short);
    }
}
