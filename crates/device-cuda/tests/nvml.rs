//! NVML, against a library of ours that plays several machines.

mod mock;

use mock::Mock;
use plimsoll_base::{Bytes, Code};
use plimsoll_cards::ComputeCapability;
use plimsoll_device_cuda::{Activity, Driver, Memory, Nvml};

const MIB: u64 = 1 << 20;

#[test]
fn no_driver_is_an_ordinary_machine() {
    let error = Nvml::load(Some("/nowhere/libnvidia-ml.so.1")).unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
    assert!(error.message().starts_with("there is no NVIDIA driver: /nowhere/libnvidia-ml.so.1: "), "{error}");
    assert_eq!(error.message().lines().count(), 1);
    // A file that is no library, and a library that is not NVML.
    let error = Nvml::load(Some("/proc/self/cmdline")).unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition, "a file that is there is no ordinary machine");
    assert!(error.message().starts_with("the NVIDIA driver's library cannot be loaded: /proc/self/cmdline: "), "{error}");
    assert_eq!(Nvml::load(Some("a\0b")).unwrap_err().code(), Code::NotFound);
    for libc in ["libc.so.6", "libSystem.dylib"] {
        if let Err(error) = Nvml::load(Some(libc)) {
            assert!(matches!(error.code(), Code::NotFound | Code::FailedPrecondition), "{error}");
        }
    }
}

#[test]
fn machines() {
    let Some(mock) = Mock::new("machines", false, &["none", "two", "faults", "sparse", "unloaded", "growing"]) else { return };
    let look = |machine: &str| Nvml::load(Some(&mock.path(machine))).unwrap().look();

    let none = look("none");
    assert_eq!((none.cards.len(), none.notes.len()), (0, 0));
    let driver = Driver { driver: Some("535.104.05".into()), nvml: Some("12.535.104.05".into()), cuda: Some((12, 2)) };
    assert_eq!(none.driver, driver);

    let error = Nvml::load(Some(&mock.path("unloaded"))).unwrap_err();
    assert_eq!(error.to_string(), "FAILED_PRECONDITION: the NVIDIA driver's library cannot begin: the driver is not loaded");

    let two = look("two");
    assert_eq!(two.notes, [""; 0]);
    let [k20, t4] = &two.cards[..] else { panic!("{two:?}") };
    assert_eq!((k20.device.ordinal, k20.device.pci_bus_id.as_str()), (0, "fade:3b:00.0"), "sorted by PCI bus id");
    assert_eq!((t4.device.ordinal, t4.device.pci_bus_id.as_str()), (1, "fade:af:00.0"));
    assert_eq!((t4.device.name.as_str(), t4.device.uuid.as_str()), ("Tesla T4", "GPU-11111111-2222-3333-4444-555555555555"));
    assert_eq!((t4.device.compute_capability, t4.device.multiprocessors, t4.device.clock_mhz), (ComputeCapability(7, 5), 40, 1590));
    assert_eq!((k20.device.compute_capability, k20.device.multiprocessors), (ComputeCapability(3, 0), 14));
    assert!((t4.device.bandwidth - 320.064e9).abs() < 1e3, "{}", t4.device.bandwidth);
    assert_eq!((t4.device.pcie, t4.device.link_bandwidth()), (Some([3, 16]), 1.4e10));
    assert_eq!((t4.device.total, t4.device.available), (Bytes(15160 * MIB), Bytes(13310 * MIB)));
    let memory = Memory { total: Bytes(15360 * MIB), used: Bytes(1850 * MIB), free: Bytes(13310 * MIB), reserved: Bytes(200 * MIB) };
    assert_eq!(t4.memory, Some(memory), "what the driver keeps is not used");
    assert_eq!((t4.utilisation, t4.temperature, t4.fan), (Some(37), Some(45), None));
    assert_eq!((t4.power, t4.power_limit, t4.performance_state, t4.clock_mhz), (Some(27), Some(70), Some(0), Some(585)));
    assert_eq!((k20.performance_state, k20.mig), (None, false));
    assert_eq!((&t4.device.peers, &k20.device.peers), (&vec![0], &vec![1]));
    assert_eq!(t4.missing, [""; 0], "no fan and no MIG are nothing to speak of");
    assert!(!t4.device.is_simulated() && t4.device.numa_node.is_none());
    let processes: Vec<_> = t4.processes.iter().map(|process| (process.pid, process.kind.short(), process.bytes)).collect();
    assert_eq!(processes, [(std::process::id(), "C+G", Some(Bytes(1500 * MIB))), (4_100_000_000, "C", None)]);
    assert!(t4.processes[0].program.as_ref().unwrap().contains("nvml"), "{:?}", t4.processes);
    assert_eq!((&t4.processes[1].program, k20.processes.len()), (&None, 0));

    let faults = look("faults");
    assert_eq!(faults.cards.len(), 1);
    assert_eq!(
        faults.notes,
        ["NVIDIA card 1 of 2 cannot be examined: the GPU is lost: it has fallen off the bus, or is otherwise inaccessible"]
    );
    let card = &faults.cards[0];
    assert_eq!((card.memory, card.device.uuid.as_str(), card.device.name.as_str()), (None, "", "Tesla T4"));
    assert_eq!(card.missing, ["memory: no permission", "UUID: no permission", "compute processes: no permission"]);
    assert_eq!(card.utilisation, Some(37));
    assert_eq!((faults.shared().len(), two.shared().len(), two.troubles().len()), (0, 2, 0));
    assert_eq!(faults.troubles().len(), 2, "{:?}", faults.troubles());

    let sparse = &look("sparse").cards[0];
    assert!(sparse.mig && sparse.memory.is_none() && sparse.utilisation.is_none() && sparse.device.clock_mhz == 0);
    assert_eq!((sparse.device.multiprocessors, sparse.device.bandwidth, sparse.device.peak_flops()), (0, 0.0, 0.0));
    assert!(sparse.missing.contains(&"utilisation: not supported".to_string()), "{:?}", sparse.missing);
    assert!(sparse.missing.iter().any(|why| why.starts_with("instances: ")), "{:?}", sparse.missing);
    assert_eq!(sparse.processes.len(), 2);

    let growing = look("growing");
    assert_eq!(growing.cards.iter().map(|card| card.processes.len()).max(), Some(30));
}

#[test]
fn an_old_driver_says_what_it_can() {
    let Some(mock) = Mock::new("old", true, &["two"]) else { return };
    let nvml = Nvml::load(Some(&mock.path("two"))).unwrap();
    let look = nvml.look();
    assert_eq!(look.driver, Driver { driver: Some("535.104.05".into()), nvml: None, cuda: None });
    let t4 = &look.cards[1];
    assert_eq!((t4.device.pci_bus_id.as_str(), t4.device.multiprocessors), ("fade:af:00.1", 0));
    assert_eq!(t4.memory.unwrap().used, Bytes(2050 * MIB));
    assert_eq!((t4.power, t4.fan, t4.mig, t4.device.peers.len()), (None, None, false, 0));
    assert_eq!(t4.missing, ["peers: this driver cannot say"]);
    assert_eq!(
        t4.processes.iter().map(|process| (process.pid, process.bytes)).collect::<Vec<_>>(),
        [(std::process::id(), Some(Bytes(77 * MIB)))]
    );
    // Several at once, as several threads may have theirs.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(nvml.look().cards.len(), 2));
        }
    });
    assert_eq!(Nvml::load(Some(&mock.path("two"))).unwrap().look().cards.len(), 2);
}

const T4: &str = "GPU-11111111-2222-3333-4444-555555555555";
const K20: &str = "GPU-99999999-8888-7777-6666-555555555555";

#[test]
fn what_ran_since_the_look_before() {
    let Some(mock) = Mock::new("activity", false, &["lived", "two"]) else { return };
    let nvml = Nvml::load(Some(&mock.path("lived"))).unwrap();
    let ran = |text: &str| std::fs::write(mock.path("lived") + ".ran", text).unwrap();
    ran("0 7 100 50\n0 8 100 0\n");
    let on = |activities: &[Activity], uuid: &str| activities.iter().find(|activity| activity.uuid == uuid).unwrap().clone();
    let first = nvml.activity(&[]);
    let activity = on(&first, T4);
    assert_eq!((&activity.processes, activity.at), (&Some(vec![]), 100), "of the time before nothing is said");
    assert_eq!((on(&first, K20).processes, on(&first, K20).at), (Some(vec![]), 0), "nothing ran");
    ran("0 7 100 50\n0 8 200 0\n0 9 200 1\n0 9 300 2\n0 5 250 9\n1 6 1 1\n");
    let second = nvml.activity(&first);
    assert_eq!((on(&second, T4).processes, on(&second, T4).at), (Some(vec![5, 9]), 300));
    assert_eq!(on(&second, K20).processes, Some(vec![6]));
    let third = nvml.activity(&second);
    assert_eq!((on(&third, T4).processes, on(&third, T4).at), (Some(vec![]), 300));
    // A card that does not say which process.
    let two = Nvml::load(Some(&mock.path("two"))).unwrap().activity(&[]);
    assert_eq!((on(&two, T4).processes, on(&two, T4).utilisation), (None, Some(37)));
}

#[test]
fn limits_of_a_control_group() {
    let Some(mock) = Mock::new("limits", false, &["limited", "two"]) else { return };
    let nvml = Nvml::load(Some(&mock.path("limited"))).unwrap();
    let group = std::env::temp_dir();
    assert!(nvml.has_memory_limits());
    nvml.limit_group(T4, &group, Some(Bytes(5 * MIB))).unwrap();
    nvml.limit_group(K20, &group, None).unwrap();
    let limits = std::fs::read_to_string(mock.path("limited") + ".limits").unwrap();
    let group_text = group.display();
    assert_eq!(limits, format!("0 {group_text} {0} {0}\n1 {group_text} 0 -1\n", 5 * MIB));
    std::fs::write(mock.path("limited") + ".uses", format!("0 {} 3\n", std::process::id())).unwrap();
    assert_eq!(nvml.used_by_group(T4, &group).unwrap(), Bytes(3 * MIB));
    let said = |result: plimsoll_base::Result<()>| result.unwrap_err().to_string();
    assert!(said(nvml.limit_group("GPU-0", &group, None)).ends_with("there is no card GPU-0"));
    assert!(said(nvml.limit_group(T4, std::path::Path::new("/nowhere"), None)).ends_with("memory limits of /nowhere: not found"));
    let two = Nvml::load(Some(&mock.path("two"))).unwrap();
    assert!(said(two.limit_group(T4, &group, None)).ends_with("not supported"));
    let Some(old) = Mock::new("limits-old", true, &["two"]) else { return };
    let old = Nvml::load(Some(&old.path("two"))).unwrap();
    assert!(!old.has_memory_limits());
    assert!(said(old.limit_group(T4, &group, None)).ends_with("this driver has none (r615 and later have)"));
    assert!(old.activity(&[]).iter().all(|activity| activity.processes.is_none()));
}
