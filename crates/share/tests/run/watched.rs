//! Real cards, played by a library of ours: the owners of memory, and the action against too much of it.

use std::process::Command;

use super::mock::Mock;
use super::{Home, comes};

const MIB: u64 = 1 << 20;

fn with_driver(command: &mut Command, mock: &Mock) {
    command.env_remove("PLIMSOLL_SIM_GPUS").env("PLIMSOLL_NVML", mock.path("lived")).env("USES", mock.path("lived") + ".uses");
}

fn said(home: &Home, mock: &Mock, options: &str, script: &str) -> (Option<i32>, String, String) {
    let mut command = home.command(options, script);
    with_driver(&mut command, mock);
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn use_is_watched_and_ended_where_that_is_wanted() {
    let Some(mock) = Mock::new("watched", false, &["lived"]) else { return };
    let home = Home::new("watched");
    // The T4 is the library's card 0. A child of the program uses memory too.
    let (code, out, err) = said(
        &home,
        &mock,
        "memory=1GiB",
        "echo :$CUDA_VISIBLE_DEVICES; echo 0 $$ 300 > $USES; sleep 0.6; sleep 1.2 & echo 0 $! 800 >> $USES; wait",
    );
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains(":GPU-11111111-2222-3333-4444-555555555555"), "by UUID: {out}");
    assert!(err.contains("@1 GiB of GPU 0 (Tesla T4); watched: use beyond it is reported"), "{err}");
    assert!(
        err.contains("@warning: the program uses 1.07 GiB, beyond its 1 GiB of GPU 0 (Tesla T4): --enforce=kill would end it"),
        "{err}"
    );
    assert!(err.contains("peak use 1.07 GiB of 1 GiB on GPU 0; all memory came back"), "{err}");
    let (code, _, err) = said(&home, &mock, "kill memory=1GiB", "echo 0 $$ 2000 > $USES; exec sleep 300");
    assert!(code.is_none() && err.contains("it is ended (--enforce=kill)"), "{code:?} {err}");
}

#[test]
fn memory_of_programs_without_a_lease_is_not_granted() {
    let Some(mock) = Mock::new("outside", false, &["lived"]) else { return };
    let home = Home::new("outside");
    let mut stranger = Command::new("sleep").arg("300").spawn().unwrap();
    std::fs::write(mock.path("lived") + ".uses", format!("0 {} 15000\n1 {0} 5700\n", stranger.id())).unwrap();
    let (code, _, err) = said(&home, &mock, "memory=1GiB", "true");
    assert_eq!(code, Some(125), "{err}");
    assert!(err.contains("used by programs that are not in the ledger"), "{err}");
    let (code, _, err) = said(&home, &mock, "memory=300MiB", "true");
    assert_eq!(code, Some(0), "{err}");
    // A lease's own use is not subtracted twice.
    std::fs::write(mock.path("lived") + ".uses", "").unwrap();
    let mut command = home.command("memory=10GiB", "echo 0 $$ 9000 > $USES; echo :ready; exec sleep 300");
    with_driver(&mut command, &mock);
    let mut first = command.spawn().unwrap();
    let uses = mock.path("lived") + ".uses";
    comes("it uses memory", || std::fs::read_to_string(&uses).is_ok_and(|text| text.contains("9000")));
    let (code, _, err) = said(&home, &mock, "memory=5120MiB", "true");
    assert_eq!(code, Some(0), "{} MiB and 5120 MiB are beside each other on 15360 MiB: {err}", 10240 * MIB / MIB);
    super::signal(first.id(), "TERM");
    let _ = first.wait();
    let _ = stranger.kill();
    let _ = stranger.wait();
}
