//! Every way not to have a result, and that it is told from the others.

use std::time::Duration;

use plimsoll_base::{Bytes, Code, Error};
use plimsoll_share::isolate::Line;
use plimsoll_share::{Cause, Workers};
use rustix::process::{Pid, Signal, kill_process};

use super::Test;
use super::functions::*;

pub const TESTS: &[Test] = &[
    ("deaths::errors_have_their_trace", errors),
    ("deaths::panics_say_where", panic),
    ("deaths::every_signal_has_its_name", every_signal),
    ("deaths::memory_that_runs_out_is_no_other_death", memory),
    ("deaths::too_long", too_long),
    ("deaths::a_process_that_ends_itself", lost),
    ("deaths::what_cannot_be_said", unserialisable),
    ("deaths::while_the_result_is_written", while_written),
    ("deaths::last_words", last_words),
    ("deaths::a_session_or_group_of_its_own_saves_nothing", apart),
    ("deaths::limits_of_the_process_are_no_room", limits),
    ("deaths::a_supervisor_that_is_signalled", supervisors),
];

fn errors(workers: &Workers) {
    let death = workers.isolate(None, fails, "deep".into()).unwrap_err();
    let trace = vec!["the file is gone".to_string(), "the disk is gone".into()];
    assert_eq!(death.cause, Cause::Error { message: "no data".into(), code: None, trace });
    assert!(death.function.ends_with("functions::fails") && death.report.all_back());
    assert!(death.to_string().ends_with("fails: no data\n  caused by: the file is gone\n  caused by: the disk is gone"));
    let death = workers.isolate(None, fails, "text".into()).unwrap_err();
    assert_eq!(death.cause, Cause::Error { message: "only a text".into(), code: None, trace: vec![] });
    let death = workers.isolate(None, fails, "ours".into()).unwrap_err();
    assert_eq!(Error::from(death).code(), Code::NotFound);
}

fn panic(workers: &Workers) {
    let death = workers.isolate(None, panics, "it".to_string()).unwrap_err();
    let Cause::Panic { message, location, backtrace } = &death.cause else { panic!("{death}") };
    assert_eq!(message, "it went wrong");
    assert!(location.contains("functions.rs:"), "{location}");
    assert!(backtrace.contains("panics"), "{backtrace}");
    assert!(death.last_words.contains("it went wrong"), "it was printed as ever: {}", death.last_words);
}

fn every_signal(workers: &Workers) {
    // Those that do not end a process: ignored (PIPE by Rust's own start), or they stop it.
    let harmless = [13, 17, 18, 23, 28];
    let stops = [19, 20, 21, 22];
    for signal in (1..=31).filter(|signal| !stops.contains(signal)) {
        let result = workers.isolate(None, kills_itself, signal);
        if harmless.contains(&signal) {
            assert!(result.is_ok(), "{signal}: {result:?}");
            continue;
        }
        let death = result.unwrap_err();
        let Cause::Signal { number, name, .. } = &death.cause else { panic!("{signal}: {death}") };
        assert_eq!(*number, signal);
        assert!(name.starts_with("SIG") && name.len() > 4, "{name}");
        assert!(death.report.all_back() && !lives(death.report.pid));
    }
    // One that is stopped does not answer in time.
    let death = workers.clone().timeout(Duration::from_millis(100)).isolate(None, kills_itself, 19).unwrap_err();
    assert!(matches!(death.cause, Cause::Timeout { .. }), "{death}");
}

fn memory(workers: &Workers) {
    let death = workers.isolate(None, asks_for_too_much, ()).unwrap_err();
    let Cause::OutOfMemory { of: Line::Ledger, message } = &death.cause else { panic!("{death}") };
    assert!(message.contains("2 GiB asked") && message.contains("GPU:0"), "{message}");
    // A limit of the system's, from outside.
    let death = workers.clone().address_space(Bytes(256 << 20)).isolate(None, allocates, 1 << 30).unwrap_err();
    let Cause::OutOfMemory { of: Line::Allocator, message } = &death.cause else { panic!("{death}: {}", death.last_words) };
    assert!(message.contains("memory allocation of 8388608 bytes failed"), "{message}");
    assert_eq!(Error::from(death).code(), Code::ResourceExhausted);
    // And a value that fits in it does.
    assert_eq!(workers.clone().address_space(Bytes(256 << 20)).isolate(None, allocates, 64 << 20).unwrap().output, 8);
    // A value without room while it is sent is out of memory too, and the worker lives.
    let death = workers.clone().address_space(Bytes(64 << 20)).isolate(None, fills, 200 << 20).unwrap_err();
    assert!(matches!(death.cause, Cause::OutOfMemory { of: Line::Ledger, .. }), "{death}");
    // To abort is not to be out of memory.
    let death = workers.isolate(None, aborts, ()).unwrap_err();
    assert!(matches!(&death.cause, Cause::Signal { number: 6, name, .. } if name == "SIGABRT"), "{death}");
}

fn too_long(workers: &Workers) {
    let death = workers.clone().timeout(Duration::from_millis(50)).isolate(None, sleeps, 600_000).unwrap_err();
    assert_eq!(death.cause, Cause::Timeout { after: Duration::from_millis(50) });
    assert!(!lives(death.report.pid));
    assert_eq!(workers.clone().timeout(Duration::from_secs(300)).isolate(None, sleeps, 1).unwrap().output, 1);
    // A time that no clock has is no bound.
    assert_eq!(workers.clone().timeout(Duration::MAX).isolate(None, square, 2).unwrap().output, 4);
}

fn file(name: &str) -> std::path::PathBuf {
    std::env::temp_dir().join(format!("plimsoll-test-{name}-{}", std::process::id()))
}

fn apart(workers: &Workers) {
    if std::process::Command::new("setsid").arg("true").output().is_err() {
        eprintln!("skipped: there is no setsid");
        return;
    }
    // By a result, by a death, and by time.
    let left = workers.isolate(None, leaves_one_apart, ()).unwrap().output;
    assert!(!lives(left), "a process that a function left in a session of its own lives");
    let path = file("apart");
    let death = workers.clone().timeout(Duration::from_secs(3)).isolate(None, goes_apart_and_sleeps, path.clone()).unwrap_err();
    assert!(matches!(death.cause, Cause::Timeout { .. }), "{death}");
    let said = std::fs::read_to_string(&path).unwrap();
    assert!(said.split(' ').all(|pid| !lives(pid.parse().unwrap())), "{said}");
    // A pool's worker keeps memory that its function left until it ends.
    let pool = workers.pool(1).unwrap();
    let left = pool.submit(leaves_one_apart, ()).wait().unwrap().output;
    assert!(lives(left));
    assert!(pool.submit(kills_itself, 9).wait().is_err());
    assert!(!lives(left));
    std::fs::remove_file(path).unwrap();
}

fn limits(workers: &Workers) {
    for (file_size, name) in [(Some(64 << 10), "RLIMIT_FSIZE"), (None, "RLIMIT_NOFILE")] {
        let death = workers.isolate(None, returns_under_limits, (1 << 20, file_size)).unwrap_err();
        let Cause::OutOfMemory { of: Line::Ledger, message } = &death.cause else { panic!("{name}: {death}") };
        assert!(message.contains("no room") && message.contains(name), "{message}");
        assert_eq!(workers.isolate(None, returns_under_limits, (100, file_size)).unwrap().output.len(), 100);
        let said = workers.isolate(None, sends_under_limits, (1 << 20, file_size)).unwrap().output;
        let said: Vec<&str> = said.split('|').collect();
        assert!(said[0].starts_with("OutOfMemory") && said[0].contains("no room") && said[0].contains(name), "{said:?}");
        assert_eq!(said[1], "1", "the worker can go on");
        let is_named = said[2].starts_with("OutOfMemory") && said[2].contains("RLIMIT_NOFILE");
        assert!(is_named || file_size.is_some(), "{said:?}");
    }
    // An argument for which the worker has no descriptor.
    let pool = workers.pool(1).unwrap();
    pool.submit(limits_descriptors, ()).wait().unwrap();
    let death = pool.submit(count_text, "x".repeat(1 << 20)).wait().unwrap_err();
    assert!(matches!(&death.cause, Cause::OutOfMemory { message, .. } if message.contains("RLIMIT_NOFILE")), "{death}");
    assert_eq!(pool.submit(count_text, "x".into()).wait().unwrap().output, 1);
}

fn supervisors(workers: &Workers) {
    let path = file("supervised");
    // Killed, its worker ends with it. Stopped or asked to end, it does its work.
    for signal in [9, 15, 19] {
        let death =
            workers.clone().timeout(Duration::from_secs(2)).isolate(None, signals_its_supervisor, (signal, path.clone())).unwrap_err();
        assert!(matches!(death.cause, Cause::Timeout { .. } | Cause::Signal { .. }), "{signal}: {death}");
        assert!(!lives(death.report.pid), "{signal}");
        let apart: u32 = std::fs::read_to_string(&path).unwrap().parse().unwrap();
        match signal {
            // Nothing is left that knew of it.
            9 => kill_process(Pid::from_raw(apart as i32).unwrap(), Signal::KILL).unwrap(),
            _ => assert!(!lives(apart), "{signal}"),
        }
    }
    std::fs::remove_file(path).unwrap();
}

fn lost(workers: &Workers) {
    for status in [0, 3] {
        let death = workers.isolate(None, exits, status).unwrap_err();
        assert_eq!(death.cause, Cause::Lost { status: Some(status) });
    }
}

fn unserialisable(workers: &Workers) {
    let death = workers.isolate(None, is_not_written, ()).unwrap_err();
    assert_eq!(death.cause, Cause::Output { message: "this value is not for others".into() });
    let death = workers.isolate(None, lies_of_its_length, Unreadable).unwrap_err();
    let Cause::Input { message } = &death.cause else { panic!("{death}") };
    assert!(message.contains("ends too early"), "{message}");
}

fn while_written(workers: &Workers) {
    let death = workers.isolate(None, dies_while_written, ()).unwrap_err();
    assert!(matches!(&death.cause, Cause::Signal { number: 9, name, .. } if name == "SIGKILL"), "{death}");
    let death = workers.isolate(None, panics_while_written, ()).unwrap_err();
    assert!(matches!(&death.cause, Cause::Panic { message, .. } if message == "in the middle of it"), "{death}");
}

fn last_words(workers: &Workers) {
    let death = workers.isolate(None, whispers, "the end is near".to_string()).unwrap_err();
    assert_eq!(death.last_words, "the end is near\n");
    // Words about memory and an abort are taken literally.
    let death = workers.isolate(None, whispers, "terminate called after throwing 'std::bad_alloc'".to_string()).unwrap_err();
    assert!(matches!(death.cause, Cause::OutOfMemory { of: Line::Allocator, .. }));
}
