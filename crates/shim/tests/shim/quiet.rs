//! Programs that use no CUDA are as they were.

use std::os::unix::fs::MetadataExt;

use crate::rig::{Rig, said};

#[test]
fn a_program_without_cuda_is_let_alone() {
    let rig = Rig::new("quiet", &[4096]);
    let Some(quiet) = rig.compile("quiet", &["-fno-builtin"]) else { return };
    let lease = rig.lease(&[512]);
    let state = rig.folder().join("state");
    let times = || {
        let mut files: Vec<_> = std::fs::read_dir(&state).unwrap().flatten().map(|file| file.path()).collect();
        files.sort();
        files
            .iter()
            .map(|path| (path.clone(), path.metadata().unwrap().atime_nsec(), path.metadata().unwrap().ctime_nsec()))
            .collect::<Vec<_>>()
    };
    let before = times();
    let bare = said(&mut rig.bare(&quiet));
    assert!(bare.starts_with("early 1, next 7, versioned 1, cos 1, none 1, said 1\nno driver 1 1\nfork 0\nfiles "), "{bare}");
    assert_eq!(said(&mut rig.under(&lease, &quiet)), bare);
    // Programs of all sorts, with the libraries that they load.
    for program in ["true", "ls", "sh"] {
        said(rig.under(&lease, program).args((program == "sh").then_some(["-c", "ls / | cat > /dev/null"]).into_iter().flatten()));
    }
    assert_eq!(times(), before, "the ledger was not looked at");
}

#[test]
fn a_driver_that_is_not_there_is_not_missed() {
    let rig = Rig::new("nodriver", &[4096]);
    let Some(client) = rig.compile("client", &[]) else { return };
    let lease = rig.lease(&[512]);
    let output = rig.under(&lease, &client).arg("dlsym").env_remove("LD_LIBRARY_PATH").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // Unless this machine has one.
    assert!(text.contains("libcuda.so.1") || std::path::Path::new("/proc/driver/nvidia").exists(), "{text}");
}

#[test]
fn loading_the_shim_opens_no_file() {
    let rig = Rig::new("maps", &[4096]);
    let lease = rig.lease(&[512]);
    // This program, which is Rust: its list of tests.
    let list = |command: &mut std::process::Command| said(command.args(["--list"]));
    let program = std::env::current_exe().unwrap();
    assert_eq!(list(&mut rig.bare(&program)), list(&mut rig.under(&lease, &program)));
    let files =
        |command: &mut std::process::Command| said(command.args(["-c", "cd /proc/self/fd && echo *; grep -c libcuda ../maps || true"]));
    assert_eq!(files(&mut rig.bare("sh")), files(&mut rig.under(&lease, "sh")));
}
