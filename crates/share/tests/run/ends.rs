//! The ends of programs, and signals.

use std::os::unix::process::ExitStatusExt;

use super::{Home, comes, is_there, signal};

/// Those that end a program that does nothing about them.
const SIGNALS: &[(&str, i32)] = &[
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("ILL", 4),
    ("TRAP", 5),
    ("ABRT", 6),
    ("BUS", 7),
    ("FPE", 8),
    ("KILL", 9),
    ("USR1", 10),
    ("SEGV", 11),
    ("USR2", 12),
    ("PIPE", 13),
    ("ALRM", 14),
    ("TERM", 15),
    ("STKFLT", 16),
    ("XCPU", 24),
    ("XFSZ", 25),
    ("VTALRM", 26),
    ("PROF", 27),
    ("IO", 29),
    ("PWR", 30),
    ("SYS", 31),
    ("34", 34),
    ("50", 50),
    ("64", 64),
];

#[test]
fn exit_status_and_signals_are_the_programs() {
    let home = Home::new("status");
    for code in [0, 1, 2, 77, 255] {
        assert_eq!(home.run("", &format!("exit {code}")).status.code(), Some(code));
    }
    for (name, number) in SIGNALS {
        let said = home.run("", &format!("kill -{number} $$"));
        assert_eq!(said.status.signal(), Some(*number), "{name}: {}", said.err);
        assert!(said.err.contains(&format!("@ended by SIG{name} after ")), "{}", said.err);
    }
    assert_eq!(home.reserved(), 0);
}

#[test]
fn output_is_the_programs_and_what_is_said_beside_it_is_little() {
    let home = Home::new("output");
    let said = home.run("memory=0.5", "echo out; echo err >&2");
    assert!(said.out.lines().any(|line| line == "out"), "{}", said.out);
    let own: Vec<&str> = said.err.lines().filter_map(|line| line.strip_prefix('@')).collect();
    assert_eq!(own.len(), 2, "{}", said.err);
    assert_eq!(
        own[0],
        "512 MiB of GPU 0 (Simulated GPU); not watched: use is not observed; TensorFlow, PyTorch and JAX have settings for a share"
    );
    assert!(own[1].starts_with("done after ") && own[1].ends_with("; use not observed; the lease is free"), "{own:?}");
}

#[test]
fn signals_sent_to_it_reach_the_program() {
    let home = Home::new("signals");
    for name in ["TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "ALRM", "16", "VTALRM", "PROF", "XCPU", "29", "30", "34", "50", "64"] {
        let running = home.start("", &format!("trap 'echo got; exit 7' {name}; echo :ready; while :; do sleep 0.01; done"));
        running.signal(name);
        let said = running.ends();
        assert_eq!((said.status.code(), said.out.as_str()), (Some(7), "got\n"), "{name}: {}", said.err);
    }
    let running = home.start("", "echo :ready; sleep 300 > /dev/null 2>&1 & wait");
    running.signal("TERM");
    assert_eq!(running.ends().status.signal(), Some(15), "as without it");
}

#[test]
fn what_was_ignored_stays_ignored() {
    let home = Home::new("nohup");
    let mut command = std::process::Command::new("sh");
    let plain = home.command("", "kill -HUP $$; echo :still here");
    command.args(["-c", "trap '' HUP; exec \"$@\"", "sh"]).arg(plain.get_program()).args(plain.get_args());
    plain.get_envs().for_each(|(name, value)| {
        value.map(|value| command.env(name, value));
    });
    let output = command.output().unwrap();
    assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains(":still here"), "{output:?}");
}

#[test]
fn when_time_is_over_the_tree_ends() {
    let home = Home::new("timeout");
    let said = home.run("timeout=100", "sleep 300");
    assert_eq!(said.status.code(), Some(124), "{}", said.err);
    // One that does not listen, with a child whose parent is gone.
    let said = home.run("timeout=100", "trap '' TERM; (sleep 300 & echo :$!); sleep 300");
    assert_eq!(said.status.code(), Some(124), "{}", said.err);
    let orphan: u32 = said.out.lines().find_map(|line| line.split_once(':')?.1.parse().ok()).unwrap();
    comes("the tree has ended", || !is_there(orphan));
    assert_eq!(home.reserved(), 0);
    assert_eq!(home.run("timeout=60000", "exit 3").status.code(), Some(3));
}

/// A script that starts one in a session and group of its own, whose parent is gone, and says its number.
const APART: &str = "f=$PLIMSOLL_STATE_DIR/apart; setsid sh -c 'sh -c \"echo \\$\\$ > $0.new; mv $0.new $0; trap : TERM HUP; \
    while :; do sleep 0.05; done\" > /dev/null 2>&1 &' $f; while [ ! -e $f ]; do sleep 0.01; done; echo :$(cat $f)";

#[test]
fn a_session_of_its_own_does_not_save_it() {
    if std::process::Command::new("setsid").arg("true").output().is_err() {
        eprintln!("skipped: there is no setsid");
        return;
    }
    let number = |said: &super::Said| -> u32 { said.out.lines().find_map(|line| line.split_once(':')?.1.parse().ok()).unwrap() };
    // The end of a program that has left itself is seen.
    let home = Home::new("apart-itself");
    assert_eq!(home.run("", "exec setsid sh -c 'exit 7'").status.code(), Some(7));
    assert_eq!(home.run("timeout=500", "exec setsid sleep 300").status.code(), Some(124));
    // When time is over.
    let home = Home::new("apart-timeout");
    let said = home.run("timeout=2000", &format!("{APART}; sleep 300"));
    assert_eq!(said.status.code(), Some(124), "{}", said.err);
    assert!(!is_there(number(&said)) && home.reserved() == 0 && said.err.contains("the lease is free"), "{}", said.err);
    // When the program ends, where that is asked for.
    let home = Home::new("apart-tree");
    let said = home.run("tree", APART);
    assert!(said.status.success() && said.err.contains("the lease is free"), "{}", said.err);
    assert!(!is_there(number(&said)) && home.reserved() == 0);
}

#[test]
fn what_cannot_be_started() {
    let home = Home::new("start");
    assert_eq!(home.run("", "exec /no/such/program").status.code(), Some(127));
    let said = home.run("memory=2GiB", "echo :never");
    assert_eq!(said.status.code(), Some(125));
    assert!(!said.out.contains("never") && said.err.contains("@RESOURCE_EXHAUSTED: 2 GiB"), "{}", said.err);
}

#[test]
fn a_stopped_program_goes_on() {
    let home = Home::new("stop");
    // Not on a terminal: this process stays, so that a process that wakes the program need not know of it.
    let running = home.start("", "echo :$$; kill -STOP $$; exit 6");
    let program: u32 = running.first.parse().unwrap();
    comes("the program has stopped", || std::fs::read_to_string(format!("/proc/{program}/stat")).is_ok_and(|state| state.contains(") T ")));
    signal(program, "CONT");
    assert_eq!(running.ends().status.code(), Some(6));
}

#[test]
fn the_lease_ends_with_the_last_process_in_any_order_of_kills() {
    let home = Home::new("killed");
    let running = home.start("", "echo :ready; sleep 300 & echo $! > \"$PLIMSOLL_STATE_DIR/pid\"; wait");
    let file = home.0.join("pid");
    comes("its child is there", || std::fs::read_to_string(&file).is_ok_and(|pid| !pid.trim().is_empty()));
    let sleeps: u32 = std::fs::read_to_string(&file).unwrap().trim().parse().unwrap();
    running.signal("KILL");
    drop(running);
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert_eq!(home.reserved(), 1 << 30, "the program lives, and holds what it may use");
    // The shell is the parent of the one that sleeps.
    let status = std::fs::read_to_string(format!("/proc/{sleeps}/stat")).unwrap();
    let shell: u32 = status.rsplit_once(") ").unwrap().1.split_whitespace().nth(1).unwrap().parse().unwrap();
    signal(shell, "KILL");
    signal(sleeps, "KILL");
    comes("all is back", || home.reserved() == 0);
}

#[test]
fn what_a_program_leaves_behind_is_named() {
    let home = Home::new("left");
    let said = home.run("", "sleep 300 > /dev/null 2>&1 & echo :$!");
    let pid: u32 = said.out.lines().find_map(|line| line.split_once(':')?.1.parse().ok()).unwrap();
    assert!(said.status.success() && said.err.contains(&format!("still held by pid {pid} (sleep 300)")), "{}", said.err);
    assert_eq!(home.reserved(), 1 << 30);
    signal(pid, "KILL");
    comes("all is back", || home.reserved() == 0);
}
