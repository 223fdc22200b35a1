//! The commands of the README and of docs/training.md work as pasted: every `cargo run --release -- …` line, in
//! order, from the root of the project.

use std::path::Path;
use std::process::Command;

#[test]
fn the_readmes_commands_work_as_pasted() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |name: &str| std::fs::read_to_string(root.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    let readme = read("README.md") + &read("docs/training.md");
    let mut in_shell = false;
    let mut count = 0;
    for line in readme.lines() {
        if line.starts_with("```") {
            in_shell = line == "```sh";
        } else if let Some(args) = line.strip_prefix("cargo run --release -- ").filter(|_| in_shell) {
            // What the README writes under target/ goes to a folder of the test's own.
            let folder = env!("CARGO_TARGET_TMPDIR");
            let args: Vec<String> = args.split(' ').map(|arg| arg.replace("target/", &format!("{folder}/readme-"))).collect();
            let output = Command::new(env!("CARGO_BIN_EXE_plimsoll")).args(&args).current_dir(&root).output().expect("it starts");
            assert!(output.status.success(), "{}\n{}", args.join(" "), String::from_utf8_lossy(&output.stderr));
            count += 1;
        }
    }
    assert!(count >= 12, "only {count} commands were found");
}
