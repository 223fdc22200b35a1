//! The rungs by which a program is held to its lease, on cards that a library of ours plays.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};

use super::Home;
use super::mock::Mock;

/// The end of a run under a driver, the program's output, and our lines about it.
fn said(home: &Home, driver: &str, variables: &[(&str, &str)], options: &str, script: &str) -> (Option<i32>, String, String) {
    let mut command: Command = home.command(options, script);
    command.env_remove("PLIMSOLL_SIM_GPUS").env("PLIMSOLL_NVML", driver).env_remove("LD_PRELOAD");
    command.env("CUDA_MPS_PIPE_DIRECTORY", home.0.join("no-pipes")).envs(variables.iter().copied());
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn the_kernels_driver_limits_a_group() {
    let Some(mock) = Mock::new("kernel", false, &["limited", "lived"]) else { return };
    let home = Home::new("kernel");
    let groups = home.0.join("groups");
    std::fs::create_dir(&groups).unwrap();
    std::fs::write(groups.join("cgroup.controllers"), "cpu\n").unwrap();
    let options = format!("memory=1GiB user=0 groups={} ", groups.display());
    let script = format!("echo :$(cat {}/plimsoll-*/cgroup.procs)", groups.display());
    let (code, out, err) = said(&home, &mock.path("limited"), &[], &options, &script);
    assert_eq!(code, Some(0), "{err}");
    assert!(err.contains("(Tesla T4); kernel: the driver refuses what its processes together ask for beyond"), "{err}");
    assert!(out.contains(":0"), "it was started inside of the group: {out}");
    let limits = std::fs::read_to_string(mock.path("limited") + ".limits").unwrap();
    let lines: Vec<Vec<&str>> = limits.lines().map(|line| line.split(' ').collect()).collect();
    let [set, cleared] = &lines[..] else { panic!("{limits}") };
    assert!(set[1].starts_with(groups.to_str().unwrap()) && set[1] == cleared[1], "{limits}");
    assert_eq!((&set[2..], &cleared[2..]), (&["1073741824", "1073741824"][..], &["0", "-1"][..]), "limits go before the group does");
    assert_eq!(std::fs::read_to_string(groups.join("cgroup.procs")).unwrap(), "0", "the wrapper is where it was");

    // A rung that is asked for and cannot be had is refused before the program starts.
    for (driver, options, why) in [
        ("lived", options.clone(), "--enforce kernel: the driver refuses: memory limits of "),
        ("limited", options.replace("user=0", "user=7"), "--enforce kernel: limits are set by root alone"),
        ("limited", options.replace("/groups", "/nowhere"), "--enforce kernel: cgroup v2 is not mounted"),
    ] {
        let (code, out, err) = said(&home, &mock.path(driver), &[], &format!("{options}enforce=kernel "), "echo :started");
        assert_eq!((code, out.contains("started")), (Some(125), false), "{err}");
        assert!(err.contains(&format!("@FAILED_PRECONDITION: {why}")), "{err}");
    }
    // Otherwise the next rung is taken, and no group is left.
    let (code, _, err) = said(&home, &mock.path("lived"), &[], &options, "true");
    assert!(code == Some(0) && err.contains("; watched: use beyond it is reported"), "{err}");
    let left = std::fs::read_dir(&groups).unwrap().flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with("plimsoll-"));
    assert_eq!(left.count(), 1, "a folder with files in it, which no control group is");
}

#[test]
fn the_shim_and_mps_are_told_by_variables() {
    let Some(mock) = Mock::new("rungs", false, &["lived", "other"]) else { return };
    let home = Home::new("rungs");
    let shim = std::env::current_exe().unwrap().with_file_name("libplimsoll_shim.so").display().to_string();
    let driver = mock.path("lived");
    // Not root, wherever this test runs.
    let options = "memory=1GiB user=7 ";
    let script = "echo :[$LD_PRELOAD][$CUDA_MPS_PINNED_DEVICE_MEM_LIMIT]";
    let with_shim = [("PLIMSOLL_SHIM", shim.as_str())];
    let (code, out, err) = said(&home, &driver, &with_shim, options, script);
    assert!(code == Some(0) && out.contains(&format!(":[{shim}][]")), "{out}{err}");
    assert!(err.contains("; shim: a library before the driver refuses"), "{err}");
    let kept = [with_shim[0], ("LD_PRELOAD", &driver)];
    let (_, out, err) = said(&home, &driver, &kept, options, script);
    assert!(out.contains(&format!(":[{shim}:{driver}][]")), "what is there stays: {out}{err}");
    for (rung, word) in [("none", "; watched: "), ("framework", "--enforce framework: the program is not Python")] {
        let (_, out, err) = said(&home, &driver, &with_shim, &format!("{options}enforce={rung} "), script);
        assert!(!out.contains(&shim) && err.contains(word), "{out}{err}");
    }
    let (code, _, err) = said(&home, &driver, &[], &format!("{options}enforce=shim "), script);
    assert!(code == Some(125) && err.contains("--enforce shim: it is switched off"), "{err}");

    let pipes = home.0.join("pipes");
    std::fs::create_dir(&pipes).unwrap();
    let listener = UnixListener::bind(pipes.join("control")).unwrap();
    let mps = [with_shim[0], ("CUDA_MPS_PIPE_DIRECTORY", pipes.to_str().unwrap())];
    let of_user = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(&pipes).unwrap());
    let options = format!("memory=1GiB groups=/nowhere user={of_user} ");
    let (_, out, err) = said(&home, &driver, &mps, &options, script);
    assert!(
        out.contains(&format!(":[{shim}][0=1024M]")) && err.contains("; mps: the driver's server refuses bytes beyond to each process"),
        "{out}{err}"
    );
    assert!(err.contains("and the shim to all of them together"), "{err}");
    let (_, out, err) = said(&home, &driver, &mps[1..], &options, script);
    assert!(out.contains(":[][0=1024M]") && err.contains("several together are not held"), "{out}{err}");
    drop(listener);
    let (_, out, err) = said(&home, &driver, &mps, &options, script);
    assert!(out.contains(&format!(":[{shim}][]")) && err.contains("; shim: "), "a daemon that has ended: {out}{err}");
    // Simulated cards have no driver.
    let refused = home.run("enforce=shim", "true");
    assert!(refused.err.contains("--enforce shim: cards are simulated"), "{}", refused.err);
}

#[test]
fn cards_that_are_not_used() {
    let Some(mock) = Mock::new("idle", false, &["lived"]) else { return };
    let home = Home::new("idle");
    let driver = mock.path("lived");
    let uses = driver.clone() + ".uses";
    let script = format!("echo 0 $$ 100 > {uses}; exec sleep 300");
    let (code, _, err) = said(&home, &driver, &[], "memory=1GiB idle=1500", &script);
    assert_eq!(code, Some(124), "{err}");
    assert!(err.contains("@warning: the program has not used its cards for 1 s: it is ended (--idle-timeout)"), "{err}");
    assert!(err.contains("@ended by --idle-timeout after ") && err.contains("; peak use 100 MiB of 1 GiB on GPU 0"), "{err}");
    let (code, _, err) = said(&home, &driver, &[], "memory=1GiB idle-notify=1000 timeout=6000", &script);
    assert_eq!((code, err.matches("has not used its cards").count()), (Some(124), 1), "{err}");
    assert!(!err.contains("it is ended (--idle"), "{err}");
    let refused = home.run("idle=1500", "echo :started");
    assert_eq!((refused.status.code(), refused.out.contains("started")), (Some(125), false), "{}", refused.err);
    assert!(refused.err.contains("use of these cards cannot be observed"), "{}", refused.err);
}

#[test]
fn a_library_that_is_not_the_shim_is_named() {
    let Some(mock) = Mock::new("another", false, &["lived", "other"]) else { return };
    let home = Home::new("another");
    let (driver, other) = (mock.path("lived"), mock.path("other"));
    let missing = home.0.join("missing.so").display().to_string();
    for (path, why) in
        [(&other, format!("{other} is another library than the shim of this version")), (&missing, format!("there is no {missing}"))]
    {
        let named = [("PLIMSOLL_SHIM", path.as_str())];
        let options = "memory=1GiB user=7 ";
        let (code, out, err) = said(&home, &driver, &named, options, "echo :[$LD_PRELOAD]");
        assert!(code == Some(0) && out.contains(":[]"), "{out}{err}");
        assert!(err.contains(&format!("@warning: PLIMSOLL_SHIM: {why}: the program runs without the shim\n")), "{err}");
        // With a request for it there is no program, and without one no message.
        let (code, out, err) = said(&home, &driver, &named, &format!("{options}enforce=shim "), "echo :started");
        assert_eq!((code, out.contains("started")), (Some(125), false), "{err}");
        assert!(err.contains(&format!("--enforce shim: {why}")) && err.contains("unset PLIMSOLL_SHIM, or let it name"), "{err}");
        let (_, _, err) = said(&home, &driver, &named, &format!("{options}enforce=none "), "true");
        assert!(!err.contains("PLIMSOLL_SHIM"), "{err}");
    }
}

#[test]
fn a_shim_that_the_loader_would_not_find_is_not_counted_on() {
    let Some(mock) = Mock::new("gone", false, &["lived"]) else { return };
    let home = Home::new("gone");
    let (driver, shim) = (mock.path("lived"), std::env::current_exe().unwrap().with_file_name("libplimsoll_shim.so"));
    // The loader puts other words in the place of these.
    let folder = home.0.join("$LIB");
    std::fs::create_dir(&folder).unwrap();
    let copy = folder.join("shim.so");
    std::fs::copy(&shim, &copy).unwrap();
    let (_, out, err) = said(&home, &driver, &[("PLIMSOLL_SHIM", copy.to_str().unwrap())], "memory=1GiB user=7", "echo :[$LD_PRELOAD]");
    assert!(out.contains(":[]") && err.contains("; watched: ") && err.contains("which LD_PRELOAD cannot have"), "{out}{err}");
    // It is taken away while the program waits for its lease.
    let copy = home.0.join("shim.so");
    std::fs::copy(&shim, &copy).unwrap();
    let command = |options: &str, script: &str| {
        let mut command = home.command(options, script);
        command.env_remove("PLIMSOLL_SIM_GPUS").env("PLIMSOLL_NVML", &driver).env_remove("LD_PRELOAD").env("PLIMSOLL_SHIM", &copy);
        command.env("CUDA_MPS_PIPE_DIRECTORY", home.0.join("no-pipes")).env("CUDA_VISIBLE_DEVICES", "0");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let mut first = command("memory=1.0 user=7", "echo :holds; read line; true");
    let mut out = BufReader::new(first.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains(":holds") {
        line.clear();
        assert!(out.read_line(&mut line).unwrap() > 0);
    }
    let mut second = command("memory=1.0 user=7 wait", "echo :[$LD_PRELOAD]");
    let mut err = BufReader::new(second.stderr.take().unwrap());
    let mut heard = String::new();
    while !heard.contains("@waits: ") {
        assert!(err.read_line(&mut heard).unwrap() > 0, "{heard}");
    }
    std::fs::remove_file(&copy).unwrap();
    drop(first.stdin.take());
    assert!(first.wait().unwrap().success());
    let output = second.wait_with_output().unwrap();
    err.read_to_string(&mut heard).unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains(":[]"), "{heard}");
    assert!(heard.contains("; watched: ") && heard.contains("@warning: PLIMSOLL_SHIM: there is no "), "{heard}");
}

#[test]
fn what_a_user_tells_the_loader_and_sanitizers_stays() {
    let Some(mock) = Mock::new("loader", false, &["lived"]) else { return };
    let home = Home::new("loader");
    let (driver, shim) = (mock.path("lived"), std::env::current_exe().unwrap().with_file_name("libplimsoll_shim.so"));
    let named = ("PLIMSOLL_SHIM", shim.to_str().unwrap());
    // The loader that is asked about the shim does not talk.
    let (code, out, err) = said(&home, &driver, &[named, ("LD_DEBUG", "statistics,libs")], "memory=1GiB user=7", "echo :$LD_DEBUG");
    assert!(code == Some(0) && out.contains(":statistics,libs") && err.contains("; shim: "), "{out}{err}");
    let options = [named, ("ASAN_OPTIONS", "detect_leaks=0")];
    let (_, out, err) = said(&home, &driver, &options, "memory=1GiB user=7", "echo :$ASAN_OPTIONS");
    assert!(out.contains(":verify_asan_link_order=0:detect_leaks=0"), "{out}{err}");
    // A program that wants its run-time library first.
    let (source, program) = (home.0.join("program.c"), home.0.join("program"));
    std::fs::write(&source, "#include <stdio.h>\nint main(void) { puts(\":runs\"); return 0; }\n").unwrap();
    let built = Command::new("cc").arg("-fsanitize=address").arg("-o").arg(&program).arg(&source).output();
    if !built.is_ok_and(|built| built.status.success()) {
        return eprintln!("skipped: there is no C compiler with AddressSanitizer");
    }
    let (code, out, err) = said(&home, &driver, &[named], "memory=1GiB user=7", &program.display().to_string());
    assert!(code == Some(0) && out.contains(":runs") && err.contains("; shim: "), "{out}{err}");
}
