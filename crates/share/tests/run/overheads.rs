//! The bytes of frameworks beside their allocators, measured with stand-ins for them and for the driver.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use plimsoll_base::Bytes;
use plimsoll_cards::{Environment, Options};
use plimsoll_machine::StateDir;
use plimsoll_share::doctor::{State, measure};
use plimsoll_share::{Amount, Cards, Request};

use super::Home;
use super::mock::Mock;

const T4: &str = "GPU-11111111-2222-3333-4444-555555555555";

/// The frameworks, as far as the program goes: they use 700, 600 and 500 MiB of the first card.
const FAKES: [(&str, &str); 4] = [
    ("uses.py", "import os\ndef write(size):\n    open(os.environ['USES'], 'w').write('0 %d %d' % (os.getpid(), size))\n"),
    (
        "torch.py",
        "import uses\nfrom unittest import mock\ndevice, ones, nn, cuda = mock.Mock(), mock.MagicMock(), mock.Mock(), mock.Mock()\n\
         nn.functional.conv2d = lambda *_: uses.write(700)\ncuda.memory_reserved = lambda card: 200 << 20\n",
    ),
    (
        "tensorflow.py",
        "import os, uses\nfrom unittest import mock\nassert os.environ['TF_FORCE_GPU_ALLOW_GROWTH'] == 'false'\n\
         config, device, nn, ones, reduce_sum = mock.Mock(), mock.MagicMock(), mock.Mock(), mock.MagicMock(), lambda x: 1.0\n\
         config.list_physical_devices = lambda kind: [kind]\nnn.conv2d = lambda *_: uses.write(600)\n",
    ),
    ("jax.py", "raise RuntimeError('no card\\n  at all')\n"),
];

#[test]
fn what_frameworks_take_is_measured_and_subtracted() {
    let Some(mock) = Mock::new("overheads", false, &["lived"]) else { return };
    if Command::new("python3").arg("-c").arg("").status().is_err() {
        eprintln!("skipped: there is no python3");
        return;
    }
    let home = Home::new("overheads");
    for (name, text) in FAKES {
        std::fs::write(home.0.join(name), text).unwrap();
    }
    let python = script(
        &home,
        &format!("USES={}.uses PYTHONDONTWRITEBYTECODE=1 PYTHONPATH={} exec python3 \"$@\"", mock.path("lived"), home.0.display()),
    );
    let cards = cards(&home, &mock.path("lived"));
    std::fs::write(home.0.join("framework-overheads"), "1.2 jax 9\n").unwrap();
    let checks = measure(&cards, python.as_os_str()).unwrap();
    let whats: Vec<(State, &str)> = checks.iter().map(|check| (check.state, check.what.as_str())).collect();
    let driver = whats[0].1.rsplit_once("(driver ").unwrap().1.trim_end_matches(')');
    let takes = |framework, size| format!("{framework} takes {size} MiB of a Tesla T4 beside its allocator (driver {driver})");
    assert_eq!(
        whats,
        [
            (State::Pass, takes("pytorch", 500).as_str()),
            (State::Pass, &takes("tensorflow", 344)),
            (State::NotHere, "jax: RuntimeError: no card at all")
        ]
    );
    let written = std::fs::read_to_string(home.0.join("framework-overheads")).unwrap();
    assert_eq!(written, format!("1.2 jax 9\n{driver} pytorch {}\n{driver} tensorflow {}\n", 500 << 20, 344 << 20));

    let lease = cards.lease(&Request::cards(1).memory(Amount::Bytes(Bytes(2 << 30))), &mut |_| true).unwrap();
    let told = lease.told(|_| None);
    let limits = told.set.iter().find(|(name, _)| name == "PLIMSOLL_FRAMEWORK_LIMITS").unwrap().1.to_str().unwrap();
    let limits: serde_json::Value = serde_json::from_str(limits).unwrap();
    let limit = |framework: &str| limits["cards"][0][framework].as_u64().unwrap() >> 20;
    assert_eq!((limit("pytorch"), limit("tensorflow"), limit("jax")), (2048 - 500, 2048 - 344, 1536));
}

#[test]
fn nothing_is_written_where_nothing_was_observed() {
    let Some(mock) = Mock::new("no-overheads", false, &["lived"]) else { return };
    let home = Home::new("no-overheads");
    let cards = cards(&home, &mock.path("lived"));
    let uses = mock.path("lived") + ".uses";
    for (body, why) in [
        ("echo plimsoll-overhead 5; read x", "the driver does not say what it uses"),
        (&format!("echo 0 $$ 100 > {uses}; echo plimsoll-overhead 104857600; read x"), "its allocator has 100 MiB"),
        ("echo nonsense", "it ended, or took too long"),
        ("echo 'plimsoll-overhead -4'; read x", "-4"),
    ] {
        let checks = measure(&cards, script(&home, body).as_os_str()).unwrap();
        assert!(checks.len() == 3 && checks.iter().all(|check| check.state == State::NotHere), "{checks:?}");
        assert!(checks[0].what.contains(why), "{checks:?}");
    }
    assert!(measure(&cards, OsStr::new("/no/such/python")).unwrap()[0].what.contains("/no/such/python"));
    assert!(!home.0.join("framework-overheads").exists());
    assert_eq!(cards.machine().unwrap().look().unwrap().cards[0].reserved, Bytes::ZERO, "the leases are given back");
    let simulated =
        Cards::find_in(&StateDir::open(&home.0).unwrap(), &Options::new(), &Environment::new().with("PLIMSOLL_SIM_GPUS", "1x1GiB"));
    let checks = measure(&simulated.unwrap(), OsStr::new("python3")).unwrap();
    assert!(checks.len() == 1 && checks[0].what.contains("cannot be measured"), "{checks:?}");
}

fn cards(home: &Home, driver: &str) -> Cards {
    let environment = Environment::new().with("PLIMSOLL_NVML", driver).with("CUDA_VISIBLE_DEVICES", T4);
    Cards::find_in(&StateDir::open(&home.0).unwrap(), &Options::new(), &environment).unwrap()
}

/// An interpreter that is a shell's script.
fn script(home: &Home, body: &str) -> PathBuf {
    let path = home.0.join("python");
    std::fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}
