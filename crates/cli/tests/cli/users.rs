//! `plimsoll setup`, and users that share a ledger. Acting as other users needs root.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use plimsoll::Environment;
use serde_json::{Value, json};

use super::{Folder, Said, outcome};

const GROUP: u32 = 59000;
const ALICE: u32 = 59001;
const BOB: u32 = 59002;

/// A machine's folder, or one that is to be made.
struct Lab(Folder);

impl Lab {
    /// None where this process cannot act as other users, which is said.
    fn new(name: &str) -> Option<Lab> {
        let program = Path::new(env!("CARGO_BIN_EXE_plimsoll"));
        let reachable = program.ancestors().all(|path| fs::metadata(path).is_ok_and(|facts| facts.permissions().mode() & 0o005 == 0o005));
        let root = fs::metadata("/proc/self").is_ok_and(|facts| std::os::unix::fs::MetadataExt::uid(&facts) == 0);
        if !root || !reachable {
            eprintln!("skipped: only root can act as two users, and they must be able to start {}", program.display());
            return None;
        }
        let folder = Folder::new(name);
        fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o755)).unwrap();
        Some(Lab(folder))
    }

    fn path(&self) -> String {
        self.0.0.join("lab").display().to_string()
    }

    fn command(&self, args: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        for name in Environment::NAMES {
            command.env_remove(name);
        }
        command.args(args.split_whitespace()).env("PLIMSOLL_NVML", "").env("PLIMSOLL_SIM_GPUS", "1x4GiB").current_dir("/");
        command.env_remove("PLIMSOLL_STATE_DIR").env_remove("XDG_RUNTIME_DIR").env("PLIMSOLL_MACHINE_DIR", self.path());
        command
    }

    fn as_user(&self, user: u32, group: u32, args: &str) -> Said {
        outcome(self.command(args).uid(user).gid(group))
    }

    fn setup(&self, more: &str) -> Said {
        outcome(&mut self.command(&format!("setup --group {GROUP} --folder {} {more}", self.path())))
    }

    fn devices(&self, user: u32) -> Value {
        let said = self.as_user(user, GROUP, "devices --json");
        serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("{error}: {}{}", said.out, said.err))
    }
}

/// A program that is ended with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn setup_makes_changes_and_takes_away() {
    let Some(lab) = Lab::new("setup") else { return };
    let refused = lab.as_user(ALICE, GROUP, &format!("setup --group {GROUP} --folder {}", lab.path()));
    assert_eq!((refused.code, refused.out.as_str()), (1, ""));
    assert!(
        refused.err.contains("setup is for root") && refused.err.contains("sudo") && !Path::new(&lab.path()).exists(),
        "{}",
        refused.err
    );
    let missing = lab.as_user(ALICE, GROUP, "run -- true");
    assert!(missing.code == 125 && missing.err.contains("NOT_FOUND") && missing.err.contains("lab"), "{}", missing.err);
    let made: Value = serde_json::from_str(&lab.setup("--priorities -3..3 --priorities root=0..20 --json").out).unwrap();
    let expected = json!({
        "folder": lab.path(), "group": "59000", "gid": 59000, "new": true, "removed": false, "priorities": [-3, 3],
        "user_priorities": [["root", [0, 20]]], "users": ["root"], "warnings": []
    });
    assert_eq!(made, expected);
    let again = lab.setup("");
    assert!(
        again.code == 0 && again.out.contains("is as asked") && again.out.contains("priorities of root: 0..20"),
        "{}{}",
        again.out,
        again.err
    );
    for (args, code, words) in [
        ("--priorities 3..1", 2, "no range of priorities"),
        ("--priorities nobody-here=1..3", 1, "there is no user 'nobody-here'"),
        ("--group none-such --folder /proc", 2, "cannot be used multiple times"),
    ] {
        let wrong = lab.setup(args);
        assert!(wrong.code == code && wrong.err.contains(words), "{args}: {} {}", wrong.code, wrong.err);
    }
    let removed = outcome(&mut lab.command(&format!("setup --remove --folder {}", lab.path())));
    assert!(removed.code == 0 && !Path::new(&lab.path()).exists(), "{}", removed.err);
    let none = outcome(&mut lab.command("setup"));
    assert!(none.code == 2 && none.err.contains("--group"), "{}", none.err);
}

#[test]
fn users_share_the_cards_and_are_shown() {
    let Some(lab) = Lab::new("share-users") else { return };
    assert_eq!(lab.setup("").code, 0);
    let mut sleep = lab.command("run -q --memory 3GiB --name first -- sleep 300");
    let mut alice = Running(sleep.uid(ALICE).gid(GROUP).stdout(Stdio::null()).spawn().unwrap());
    let begin = Instant::now();
    while lab.devices(BOB)["processes"][0]["reserved_bytes"] != json!(3u64 << 30) {
        assert!(begin.elapsed() < Duration::from_secs(60), "{}", lab.devices(BOB));
    }
    let seen = lab.devices(BOB);
    assert_eq!(
        (&seen["ledger"], &seen["processes"][0]["user"], &seen["processes"][0]["name"]),
        (&json!("machine"), &json!("59001"), &json!("first"))
    );
    let shared = json!({"folder": lab.path(), "group": "59000", "user": "59002", "priority_min": -10, "priority_max": 10});
    assert_eq!(seen["shared"], shared);
    let table = lab.as_user(BOB, GROUP, "devices").out;
    assert!(table.contains("[59001: first] sleep 300") && table.contains("Ledger: the machine's, shared by the group 59000"), "{table}");
    let full = lab.as_user(BOB, GROUP, "run --memory 2GiB -- true");
    assert!(full.code == 125 && full.err.contains(" of 59001 (sleep 300) \"first\": 3 GiB"), "{}", full.err);
    assert_eq!(lab.as_user(BOB, GROUP, "run --memory 1GiB -- true").code, 0);
    let outside = lab.as_user(BOB, GROUP, "run --memory 2GiB --wait=1s --priority 11 -- true");
    assert!(outside.code == 125 && outside.err.contains("outside of -10..10"), "{}", outside.err);
    // A user outside of the group has a ledger alone, and is told.
    let own = format!("/tmp/plimsoll-{ALICE}");
    let had = Path::new(&own).exists();
    let stranger = lab.as_user(ALICE, ALICE, "run --memory 2GiB -- true");
    assert!(
        stranger.code == 0 && stranger.err.contains("warning: the ledger of this machine") && stranger.err.contains("not in it"),
        "{}",
        stranger.err
    );
    let table = lab.as_user(ALICE, ALICE, "devices").out;
    assert!(table.contains("Ledger: this user's own; the ledger of this machine"), "{table}");
    if !had {
        fs::remove_dir_all(own).unwrap();
    }
    let held = outcome(&mut lab.command(&format!("setup --remove --folder {}", lab.path())));
    assert!(held.code == 1 && held.err.contains("leases are held") && held.err.contains("59001"), "{}", held.err);
    // The wrapper passes it on: killed, it would leave the program behind.
    assert!(Command::new("kill").arg(alice.0.id().to_string()).status().unwrap().success());
    assert!(alice.0.wait().is_ok());
}
