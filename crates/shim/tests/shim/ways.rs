//! Every way on which a program comes to the driver is held to the line.

use crate::rig::{Rig, said};

#[test]
fn linking_and_looking_up_are_caught() {
    let rig = Rig::new("ways", &[4096]);
    let (Some(linked), Some(client)) = (rig.compile("client", &["-DLINKED"]), rig.compile("client", &[])) else { return };
    let lease = rig.lease(&[512]);
    let full = "8 times, status 2, free 0 of 512 MiB\n";
    assert_eq!(said(rig.under(&lease, &linked).arg("linked")), full);
    for way in ["dlsym", "default", "v1", "v2", "legacy", "perthread", "twice"] {
        assert_eq!(said(rig.under(&lease, &client).arg(way)), full, "{way}");
        let pool = said(rig.under(&lease, &client).args([way, "async"]));
        assert_eq!(pool, full, "{way}, from a pool");
    }
    // By a path, as some programs do.
    assert_eq!(said(rig.under(&lease, &client).args(["dlsym", "plain"]).arg(rig.driver().join("libcuda.so.1"))), full);
    assert_eq!((lease.held(0), rig.gpus.used().unwrap()), (0, vec![0]));
    assert_eq!(lease.inside().most_reserved(0).0, 512 << 20);
    assert_eq!(rig.gpus.peak(0).unwrap(), 512 << 20);
    assert!(lease.inside().refused(0) >= 16, "{}", lease.inside().refused(0));

    // Nothing of it is the driver's doing.
    assert_eq!(said(rig.bare(&client).arg("v2")), "64 times, status 2, free 0 of 4096 MiB\n");
    // Without a lease, the shim lets everything through.
    assert_eq!(said(rig.under(&lease, &client).env_remove("PLIMSOLL_LEASE").arg("v2")), "64 times, status 2, free 0 of 4096 MiB\n");
}

#[test]
fn a_library_that_asks_for_what_comes_behind_it_is_caught() {
    let rig = Rig::new("between", &[4096]);
    let library = |replaces: &'static str| rig.compile("between", &["-shared", "-fPIC", replaces]);
    let (Some(client), Some(linked)) = (rig.compile("client", &[]), rig.compile("client", &["-DLINKED"])) else { return };
    let (Some(asks), Some(replaces)) = (library("-DASKS"), library("-DREPLACES")) else { return };
    let lease = rig.lease(&[512]);
    let with = |program: &std::path::Path, way: &str, libraries: [&std::path::Path; 2]| {
        let preload = libraries.map(|library| library.display().to_string()).join(":");
        said(rig.under(&lease, program).arg(way).env("LD_PRELOAD", preload))
    };
    let full = "8 times, status 2, free 0 of 512 MiB\n";
    let shim = crate::rig::shim();
    for libraries in [[&*shim, &*asks], [&asks, &shim]] {
        assert_eq!(with(&client, "between", libraries), full, "{libraries:?}");
        assert_eq!(with(&linked, "linked", libraries), full, "{libraries:?}");
    }
    // One that replaces a function and then calls the one behind it: before the shim it is called, and the shim after it.
    let counted = |times: u32| format!("{full}replaced {times} times\n");
    assert_eq!(with(&client, "between", [&replaces, &shim]), counted(0));
    assert_eq!(with(&linked, "linked", [&replaces, &shim]), counted(9));
    assert_eq!(with(&client, "replaced", [&replaces, &shim]), counted(9));
    assert_eq!(with(&client, "replaced", [&shim, &replaces]), counted(9));
    assert_eq!((lease.held(0), rig.gpus.peak(0).unwrap()), (0, 512 << 20));
}

#[test]
fn a_program_that_is_started_is_under_the_same_lease() {
    let rig = Rig::new("exec", &[4096]);
    let Some(client) = rig.compile("client", &[]) else { return };
    let lease = rig.lease(&[512]);
    assert_eq!(said(rig.under(&lease, &client).args(["v2", "fork"])), "4 times, status 2, free 0 of 512 MiB\n");
    assert_eq!(rig.gpus.peak(0).unwrap(), 512 << 20);
}

#[test]
fn what_a_program_writes_to_standard_files_that_it_closed_goes_nowhere() {
    let rig = Rig::new("daemon", &[4096]);
    let Some(client) = rig.compile("client", &[]) else { return };
    let lease = rig.lease(&[512]);
    let ended = rig.under(&lease, &client).args(["v2", "daemon"]).status().unwrap();
    assert_eq!(ended.code(), Some(107), "2 MiB and 7 times 64");
    assert_eq!((lease.held(0), rig.gpus.used().unwrap()), (0, vec![0]));
    assert_eq!(said(rig.under(&lease, &client).arg("v2")), "8 times, status 2, free 0 of 512 MiB\n");
}

#[test]
fn a_bound_on_files_is_no_end() {
    use std::os::unix::process::CommandExt;
    let rig = Rig::new("files", &[4096]);
    let Some(client) = rig.compile("client", &[]) else { return };
    let lease = rig.lease(&[512]);
    // The next place in the ledger is beyond the bound.
    let first = lease.inside().join(&plimsoll_machine::Identity::this_process("first")).unwrap();
    let mut command = rig.under(&lease, &client);
    // SAFETY: sets a bound of the process that is started.
    unsafe {
        command.pre_exec(|| {
            let bound = libc::rlimit { rlim_cur: 8192, rlim_max: 8192 };
            libc::setrlimit(libc::RLIMIT_FSIZE, &bound);
            Ok(())
        })
    };
    assert_eq!(said(command.arg("v2")), "0 times, status 2, free 512 of 512 MiB\n", "refused, and it goes on");
    drop(first);
}

#[test]
fn threads_may_be_cancelled_and_small() {
    let rig = Rig::new("cancel", &[4096]);
    let Some(cancel) = rig.compile("cancel", &[]) else { return };
    let lease = rig.lease(&[512]);
    let said = said(&mut rig.under(&lease, &cancel));
    assert!(said.starts_with("cancelled 50, free ") && said.ends_with(" of 512 MiB\n"), "{said}");
    assert_eq!((lease.held(0), rig.gpus.used().unwrap()), (0, vec![0]));
}

#[test]
fn a_lease_that_has_ended_gives_nothing() {
    let rig = Rig::new("ended", &[4096]);
    let Some(client) = rig.compile("client", &[]) else { return };
    let lease = rig.lease(&[512]);
    let mut late = rig.under(&lease, &client);
    drop(lease);
    assert_eq!(said(late.arg("v2")), "0 times, status 2, free 0 of 4096 MiB\n");
    assert_eq!(said(late.env("PLIMSOLL_LEASE", "nonsense")), "0 times, status 2, free 0 of 4096 MiB\n");
}

#[test]
fn cards_are_told_apart_by_their_names_whatever_their_order() {
    let rig = Rig::new("order", &[4096, 2048, 1024]);
    let Some(client) = rig.compile("client", &[]) else { return };
    let lease = rig.lease(&[256, 512, 0]);
    let names: Vec<String> = rig.gpus.cards().iter().map(|card| card.name()).collect();
    let visible = |list: &str| said(rig.under(&lease, &client).arg("v2").env("CUDA_VISIBLE_DEVICES", list));
    let (first, second) = ("4 times, status 2, free 0 of 256 MiB\n", "8 times, status 2, free 0 of 512 MiB\n");
    for (list, is) in [("0", first), ("1,0", second), ("1", second), ("0,2", first), (&names[1], second), (&names[0][..12], first)] {
        assert_eq!(visible(list), is, "{list}");
    }
    assert_eq!(visible("2"), "0 times, status 2, free 0 of 1024 MiB\n", "the lease has nothing of that card");
}
