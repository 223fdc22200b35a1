//! Folders that are not safe, and another user on the same machine.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use super::{Home, comes, is_there};

/// A user that is not this one.
const NOBODY: u32 = 65534;

#[test]
fn a_state_folder_that_is_not_safe_is_refused() {
    let home = Home::new("folders");
    let path = |name: &str| home.0.join(name);
    symlink(&home.0, path("link")).unwrap();
    fs::write(path("file"), "").unwrap();
    fs::create_dir(path("open")).unwrap();
    fs::set_permissions(path("open"), fs::Permissions::from_mode(0o777)).unwrap();
    for (name, why) in [
        ("link", "is a link"),
        ("file", "is not a folder"),
        ("open", "may be written by others (mode 0777)"),
        ("none/at/all", "cannot be made"),
        ("/sys/plimsoll", "cannot be made"),
    ] {
        let output = home.command("", "echo :ran").env("PLIMSOLL_STATE_DIR", path(name)).output().unwrap();
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(125), "{name}: {err}");
        assert!(err.contains(why) && !out.contains(":ran"), "{name}: {err}");
    }
}

#[test]
fn a_folder_is_named_from_the_root() {
    let home = Home::new("relative");
    let (around, name) = (home.0.parent().unwrap(), home.0.file_name().unwrap());
    let mut command = home.command("memory=0.5", "cd /; echo :$PLIMSOLL_STATE_DIR,$PLIMSOLL_MACHINE_DIR,$PLIMSOLL_SHIM");
    command.current_dir(around).env("PLIMSOLL_STATE_DIR", name).env("PLIMSOLL_MACHINE_DIR", "lab").env("PLIMSOLL_SHIM", "/s/shim.so");
    let output = command.output().unwrap();
    let out = String::from_utf8_lossy(&output.stdout);
    let expected = format!(":{},{},/s/shim.so", home.0.display(), around.join("lab").display());
    assert!(out.contains(&expected), "{out}{}", String::from_utf8_lossy(&output.stderr));
}

/// The output of a command that another user starts, and whether it was done.
fn as_nobody(mut command: Command) -> (bool, String) {
    let output = command.uid(NOBODY).gid(NOBODY).current_dir("/").output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

#[test]
fn another_user_can_neither_use_nor_fake_nor_end_a_lease() {
    let home = Home::new("users");
    let program = std::env::current_exe().unwrap();
    let reachable = program.ancestors().all(|path| fs::metadata(path).is_ok_and(|facts| facts.permissions().mode() & 0o005 == 0o005));
    if fs::metadata(&home.0).unwrap().uid() != 0 || !reachable {
        eprintln!("skipped: only root can act as two users, and the other must be able to start {}", program.display());
        return;
    }
    let mut running = home.start("", "echo :$PLIMSOLL_LEASE; echo :$$; exec sleep 300 > /dev/null 2>&1");
    let (token, pid) = (running.first.clone(), running.hears().parse::<u32>().unwrap());
    // A folder of the other user's own, and one with a link to the ledger.
    let own = |name: &str| {
        let path = std::env::temp_dir().join(format!("{}-{name}", home.0.file_name().unwrap().to_str().unwrap()));
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
        path
    };
    let (plain, linked) = (own("plain"), own("linked"));
    let ledger =
        fs::read_dir(&home.0).unwrap().flatten().find(|entry| entry.path().extension().is_some_and(|end| end == "ledger")).unwrap();
    symlink(ledger.path(), linked.join(ledger.file_name())).unwrap();
    let tries = |folder: &Path, with_token: bool| {
        let mut command = home.command("memory=1MiB", "echo :ran");
        command.env("PLIMSOLL_STATE_DIR", folder);
        if with_token {
            command.env("PLIMSOLL_LEASE", &token);
        }
        let (done, said) = as_nobody(command);
        assert!(!done && !said.contains(":ran"), "{}: {said}", folder.display());
        said
    };
    assert!(tries(&home.0, true).contains("belongs to user 0, and this is user 65534"));
    assert!(tries(&home.0, false).contains("belongs to user 0, and this is user 65534"));
    assert!(tries(&linked, false).contains("cannot be opened"));
    let said = tries(&plain, true);
    assert!(said.contains("the lease under which this program was started has ended"), "{said}");
    // The system's own refusals.
    let shell = |script: String| {
        let mut command = Command::new("sh");
        command.args(["-c", &script]);
        as_nobody(command)
    };
    let (file, handles) = (ledger.path().display().to_string(), format!("/proc/{pid}/fd"));
    for script in [
        format!("kill -9 {pid}"),
        format!("kill -9 {}", running.child.id()),
        format!("echo x >> {file}"),
        format!("rm -f {file}"),
        format!("mv {0} {0}.aside", home.0.display()),
        format!("ls {handles}"),
        format!("cat {file}"),
    ] {
        assert!(!shell(script.clone()).0, "{script}");
    }
    assert!(is_there(pid) && home.reserved() == 1 << 30, "nothing has changed");
    running.signal("TERM");
    comes("all is back", || home.reserved() == 0);
    running.ends();
    for folder in [plain, linked] {
        fs::remove_dir_all(folder).unwrap();
    }
}

/// When time is over, this user's processes are ended, and none that acts for another.
#[test]
fn what_acts_for_another_user_is_not_signalled() {
    let home = Home::new("foreign");
    let has = |program: &str| {
        Command::new("sh").args(["-c", &format!("command -v {program}")]).output().is_ok_and(|output| output.status.success())
    };
    if fs::metadata(&home.0).unwrap().uid() != 0 || !has("setpriv") {
        eprintln!("skipped: only root can act as two users, with setpriv");
        return;
    }
    let script = "setpriv --reuid 65534 --regid 65534 --clear-groups sleep 300 > /dev/null 2>&1 & echo :$!; wait";
    let said = home.run("timeout=300", script);
    let pid: u32 = said.out.lines().find_map(|line| line.split_once(':')?.1.parse().ok()).unwrap();
    assert_eq!(said.status.code(), Some(124), "{}", said.err);
    assert!(is_there(pid), "it acts for another user");
    assert!(said.err.contains(&format!("still held by pid {pid}")), "{}", said.err);
    super::signal(pid, "KILL");
    comes("all is back", || home.reserved() == 0);
}

/// A program that root runs as another user inherits the lease, and no handle of a ledger.
#[test]
fn a_program_of_another_user_keeps_its_lease_and_changes_none() {
    let home = Home::new("setpriv");
    let has = |program: &str| {
        Command::new("sh").args(["-c", &format!("command -v {program}")]).output().is_ok_and(|output| output.status.success())
    };
    if fs::metadata(&home.0).unwrap().uid() != 0 || !has("setpriv") {
        eprintln!("skipped: only root can act as two users, with setpriv");
        return;
    }
    let tries = "for handle in /proc/self/fd/*; do case $(readlink $handle) in *ledger*) echo :has; (: >> $handle) && echo :writes; \
                 truncate -s 0 $handle && echo :cuts;; esac; done 2> /dev/null";
    let script = format!("exec setpriv --reuid 65534 --regid 65534 --clear-groups sh -c '{tries}; echo :end; exec sleep 300'");
    let mut running = home.start("", &script);
    assert_eq!([running.first.clone(), running.hears()], ["has", "end"]);
    assert_eq!(home.reserved(), 1 << 30);
    let said = home.run("memory=1MiB", "echo :ran");
    assert_eq!(said.status.code(), Some(125), "{}", said.err);
    running.signal("TERM");
    comes("all is back", || home.reserved() == 0);
}

/// The ledger is removed under a program: newcomers get no lease beside it, and the waiter for the program says so.
#[test]
fn a_ledger_that_is_removed_is_noticed_by_both_sides() {
    let home = Home::new("removed");
    let mut running = home.start("", "echo :$$; exec sleep 300 > /dev/null");
    let pid: u32 = running.first.parse().unwrap();
    let ledgers = || fs::read_dir(&home.0).unwrap().flatten().filter(|entry| entry.path().extension().is_some_and(|end| end == "ledger"));
    ledgers().for_each(|ledger| fs::remove_file(ledger.path()).unwrap());
    for options in ["memory=1MiB", "memory=1MiB wait"] {
        let said = home.run(options, "echo :ran");
        assert_eq!(said.status.code(), Some(125), "{}", said.err);
        assert!(said.err.contains("@DATA_LOSS") && said.err.contains(&format!("pid {pid} (")), "{}", said.err);
    }
    let mut err = BufReader::new(running.child.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("@warning: the ledger") {
        assert!(err.read_line(&mut said).unwrap() > 0, "{said}");
    }
    running.signal("KILL");
    running.child.wait().unwrap();
    assert_eq!(home.run("memory=1MiB", "echo :ran").status.code(), Some(125), "the program lives");
    super::signal(pid, "KILL");
    comes("a new ledger is made", || home.run("memory=1MiB", "true").status.success());
}

/// After `su` and `sudo -E` the environment names a folder of another user: nothing is made there.
#[test]
fn no_state_folder_is_made_in_a_folder_of_another_user() {
    let home = Home::new("theirs");
    if fs::metadata(&home.0).unwrap().uid() != 0 {
        eprintln!("skipped: only root can make folders of another user");
        return;
    }
    let theirs = home.0.join("theirs");
    fs::create_dir(&theirs).unwrap();
    chown(&theirs, Some(NOBODY), Some(NOBODY)).unwrap();
    let mut command = home.command("", "echo :ran");
    let output = command.env("PLIMSOLL_STATE_DIR", theirs.join("state")).output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(125) && err.contains("would be made in a folder of user 65534"), "{err}");
    assert_eq!(fs::read_dir(&theirs).unwrap().count(), 0);
}
