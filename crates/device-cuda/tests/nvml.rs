//! NVML, against a library of ours that plays several machines.

mod mock;

use mock::Mock;
use plimsoll_base::{Bytes, Code};
use plimsoll_device::ComputeCapability;
use plimsoll_device_cuda::{Driver, Memory, Nvml};

const MIB: u64 = 1 << 20;

#[test]
fn no_driver_is_an_ordinary_machine() {
    let error = Nvml::load(Some("/nowhere/libnvidia-ml.so.1")).unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
    assert!(error.message().starts_with("there is no NVIDIA driver: /nowhere/libnvidia-ml.so.1: "), "{error}");
    assert_eq!(error.message().lines().count(), 1);
    // A file that is no library, and a library that is not NVML.
    assert_eq!(Nvml::load(Some("/proc/self/cmdline")).unwrap_err().code(), Code::NotFound);
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
    assert_eq!((t4.device.total, t4.device.available), (Bytes(15360 * MIB), Bytes(13310 * MIB)));
    let memory = Memory { total: Bytes(15360 * MIB), used: Bytes(1850 * MIB), free: Bytes(13310 * MIB) };
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
