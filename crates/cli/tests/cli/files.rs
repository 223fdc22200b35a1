//! Odd files: a named pipe, a file of holes, a link that leads elsewhere.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{Folder, Said, cases, plimsoll, said, state_dir};

/// Runs a command that must not wait for another process. Its output on both streams is in `err`.
fn at_once(args: &str) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.args(args.split_whitespace()).current_dir(cases()).env_remove("PLIMSOLL_SIM_GPUS").env("PLIMSOLL_NVML", "");
    command.env("PLIMSOLL_STATE_DIR", state_dir()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let begin = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begin.elapsed() > Duration::from_secs(60) {
            child.kill().unwrap();
            panic!("it waits: {args}");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    Said { code: output.status.code().unwrap_or(-1), out: String::new(), err: String::from_utf8(said).unwrap() }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy(&entry.path(), &target),
            false => assert!(std::fs::copy(entry.path(), target).is_ok()),
        }
    }
}

/// Files and commands that use them. `CASE`, `MODEL` and `DIR` are folders of the test's own.
const USES: &[(&str, &str)] = &[
    ("CASE/graph.pb", "verify CASE"),
    ("CASE/config.pbtxt", "verify CASE"),
    ("CASE/case.json", "verify CASE"),
    ("CASE/step0_feed0.npy", "verify CASE"),
    ("CASE/step0_fetch0.npy", "verify CASE"),
    ("MODEL/saved_model.pb", "plan MODEL --signature train"),
    ("MODEL/variables/variables.index", "eval MODEL --signature train --feed x=../saved/x.npy --feed y=../saved/y.npy"),
    ("MODEL/variables/variables.data-00000-of-00001", "eval MODEL --signature train --feed x=../saved/x.npy --feed y=../saved/y.npy"),
    ("DIR/graph.pb", "plan DIR/graph.pb"),
    ("DIR/graph.pbtxt", "place DIR/graph.pbtxt"),
    ("DIR/config", "plan scalars/graph.pb --config DIR/config"),
    ("DIR/shapes", "plan scalars/graph.pb --shapes DIR/shapes"),
    ("DIR/x.npy", "eval scalars/graph.pb --feed a=DIR/x.npy"),
    ("DIR/x.npy", "train MODEL --signature train --data x=DIR/x.npy --data y=DIR/x.npy"),
    ("DIR/checkpoint", "train digits --resume DIR --steps 1 --towers 1"),
    ("DIR/model.index", "train digits --resume DIR/model --steps 1 --towers 1"),
    ("DIR/train-images-idx3-ubyte", "train mnist --data DIR"),
    ("DIR/data_batch_1.bin", "train cifar10 --data DIR"),
];

/// Runs each command with its file made by `make`; its output has one of the words.
fn in_the_place_of_a_file(name: &str, make: fn(&Path), words: &[&str]) {
    for (number, (file, command)) in USES.iter().enumerate() {
        let folder = Folder::new(&format!("{name}-{number}"));
        let of = |name: &str| folder.0.join(name).display().to_string();
        copy(&cases().join("scalars"), &folder.0.join("case"));
        copy(&cases().join("../saved/model"), &folder.0.join("model"));
        std::fs::create_dir_all(folder.0.join("dir")).unwrap();
        let named = |text: &str| text.replace("CASE", &of("case")).replace("MODEL", &of("model")).replace("DIR", &of("dir"));
        let path = PathBuf::from(named(file));
        let _ = std::fs::remove_file(&path);
        make(&path);
        let said = at_once(&named(command));
        assert!(said.code == 1 || said.code == 2, "{command}: {}", said.err);
        assert!(words.iter().any(|word| said.err.contains(word)), "{file}: {command}: {}", said.err);
    }
}

fn make_pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[test]
fn a_named_pipe_in_the_place_of_a_file_is_refused() {
    let words = ["this is a pipe, not a file", "it has no case.json", "Failed to find any matching files", "there is no checkpoint"];
    in_the_place_of_a_file("pipe", make_pipe, &words);
}

#[test]
fn a_file_of_holes_is_not_read_whole() {
    let holes = |path: &Path| std::fs::File::create(path).unwrap().set_len(1 << 40).unwrap();
    in_the_place_of_a_file(
        "holes",
        holes,
        &["are too many", "not a .npy file", "checksum", "the magic number", "ends 2466 bytes into a record"],
    );
    let folder = Folder::new("claims");
    let path = folder.0.join("x.npy");
    let mut header = b"\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776,), }".to_vec();
    header.resize(127, b' ');
    header.push(b'\n');
    std::fs::write(&path, header).unwrap();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(128 + (4 << 40)).unwrap();
    let said = at_once(&format!("eval scalars/graph.pb --feed a={}", path.display()));
    assert!(said.code == 1 && said.err.contains("RESOURCE_EXHAUSTED") && said.err.contains("4 TiB"), "{}", said.err);
}

#[test]
fn output_is_not_written_to_a_pipe_without_a_reader() {
    let folder = Folder::new("output");
    let path = folder.0.join("out");
    make_pipe(&path);
    let feeds = "--feed a=scalars/step0_feed0.npy --feed x=scalars/step0_feed1.npy --feed b=scalars/step0_feed2.npy";
    for how in [format!("--fetch y={}", path.display()), format!("--profile {}", path.display())] {
        let said = at_once(&format!("eval scalars/graph.pb {feeds} {how}"));
        assert!(said.code != 0 && said.err.contains("no process reads this pipe"), "{how}: {}", said.err);
    }
    let said = at_once(&format!("sweep --set n=1 --gpus 0 --results {} -- true {{n}}", path.display()));
    assert!(said.code != 0 && said.err.contains("is not a regular file"), "{}", said.err);
    std::fs::create_dir(folder.0.join("s.logs")).unwrap();
    for log in ["s.logs/1.out", "s.logs/1.err"] {
        make_pipe(&folder.0.join(log));
        let said = at_once(&format!("sweep --set n=1 --gpus 0 --results {} -- true {{n}}", folder.0.join("s").display()));
        assert!(said.code != 0 && said.err.contains("this is a pipe"), "{log}: {}", said.err);
        std::fs::remove_file(folder.0.join(log)).unwrap();
    }
}

#[test]
fn what_a_shell_pipes_is_read() {
    let own = env!("CARGO_BIN_EXE_plimsoll");
    let feeds = "--feed a=/dev/stdin --feed x=scalars/step0_feed1.npy --feed b=scalars/step0_feed2.npy";
    let script = format!("(sleep 0.1; cat scalars/step0_feed0.npy) | {own} eval scalars/graph.pb {feeds}");
    let said = said(Command::new("sh").args(["-c", &script]));
    let of_file = plimsoll(&format!("eval scalars/graph.pb {}", feeds.replace("/dev/stdin", "scalars/step0_feed0.npy")));
    assert_eq!((said.code, said.out, of_file.code), (0, of_file.out, 0), "{}{}", said.err, of_file.err);
}

#[test]
fn a_case_names_only_what_is_inside_of_its_folder() {
    let folder = Folder::new("inside");
    let case = folder.0.join("case");
    copy(&cases().join("scalars"), &case);
    let secret = folder.write("secret.txt", "node { name: 'hunter2' }\n");
    symlink(&secret, case.join("link")).unwrap();
    symlink(case.join("graph.pb"), case.join("within")).unwrap();
    copy(&cases().join("../saved/model"), &case.join("model"));
    std::fs::remove_file(case.join("model/saved_model.pb")).unwrap();
    symlink(&secret, case.join("model/saved_model.pb")).unwrap();
    let text = std::fs::read_to_string(case.join("case.json")).unwrap();
    let verify = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        std::fs::write(case.join("case.json"), text.replacen(from, to, 1)).unwrap();
        at_once(&format!("verify {}", case.display()))
    };
    let absolute = format!("\"{secret}\"");
    for (file, why) in [
        (absolute.as_str(), "absolute or leads up"),
        ("\"../secret.txt\"", "absolute or leads up"),
        ("\"./../case/graph.pb\"", "absolute or leads up"),
        ("\"link\"", "a link that leads out"),
        ("\"model\"", "a link that leads out"),
        ("\"none\"", "NOT_FOUND"),
    ] {
        for from in ["\"graph.pb\"", "\"config.pbtxt\"", "\"step0_feed0.npy\"", "\"step0_fetch0.npy\""] {
            let said = verify(from, file);
            assert!(said.code != 0 && !said.err.contains("hunter2"), "{from} {file}: {}", said.err);
            if file != "\"model\"" || from == "\"graph.pb\"" {
                assert!(said.err.contains(why), "{from} {file}: {}", said.err);
            }
        }
    }
    assert_eq!(verify("\"graph.pb\"", "\"./within\"").code, 0);
}

#[test]
fn a_checkpoint_file_that_names_what_is_not_there_says_so() {
    let folder = Folder::new("latest");
    folder.write("checkpoint", "model_checkpoint_path: \"model.ckpt-7\"\n");
    let resume = || at_once(&format!("train digits --resume {} --steps 1 --towers 1", folder.0.display())).err;
    let said = resume();
    assert!(said.contains("checkpoint names 'model.ckpt-7' as the latest, and there is no model.ckpt-7.index"), "{said}");
    folder.write("checkpoint", "\n");
    let said = resume();
    assert!(said.contains("names no checkpoint"), "{said}");
    std::fs::remove_file(folder.0.join("checkpoint")).unwrap();
    let said = resume();
    assert!(said.contains("has no file 'checkpoint'"), "{said}");
}

#[test]
fn links_that_lead_in_a_circle_are_named_as_that() {
    let folder = Folder::new("circle");
    let link = folder.0.join("circle.pb");
    symlink(&link, &link).unwrap();
    let said = plimsoll(&format!("plan {}", link.display()));
    assert!(said.code == 2 && said.err.contains("circle.pb: Too many levels of symbolic links"), "{} {}", said.code, said.err);
}
