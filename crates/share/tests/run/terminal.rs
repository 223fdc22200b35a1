//! A shell with job control, on a terminal that `script` makes.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use super::{Home, comes};

#[test]
fn a_terminal_works_as_without_it() {
    let there = |program: &str| Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    if !there("script") || !there("bash") {
        eprintln!("skipped: there is no script or no bash");
        return;
    }
    let home = Home::new("terminal");
    // The program: says when it is ready, reads lines from the terminal, and is not disturbed by signals that it does not get.
    let plain = home.command("", "echo program ready; while read line; do echo \"read <$line>\"; done; echo program done");
    let mut command = Command::new("script");
    command.args(["-qec", "bash --norc --noprofile -i", "/dev/null"]);
    plain.get_envs().for_each(|(name, value)| {
        value.map(|value| command.env(name, value));
    });
    let mut shell = command.env("PS1", "$ ").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let (mut keys, mut screen) = (shell.stdin.take().unwrap(), shell.stdout.take().unwrap());
    let shown = Arc::new(Mutex::new(String::new()));
    let reader = std::thread::spawn({
        let shown = shown.clone();
        move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = screen.read(&mut buffer) {
                shown.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..count]));
            }
        }
    });
    let mut seen = 0;
    // Types, and waits until that is shown after the last output. An empty line is typed again and again.
    let mut types = |text: &str, until: &str| {
        let mut end = seen;
        let begin = std::time::Instant::now();
        for look in 0.. {
            if look == 0 || (text == "\n" && look % 100 == 0) {
                keys.write_all(text.as_bytes()).unwrap();
                keys.flush().unwrap();
            }
            let text = shown.lock().unwrap().clone();
            if let Some(at) = text[seen..].find(until) {
                end = end.max(seen + at + until.len());
                break;
            }
            assert!(begin.elapsed().as_secs() < 30, "'{until}' does not come in: {}", &text[seen..]);
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        seen = end;
    };
    let own = std::env::current_exe().unwrap().display().to_string();
    let start = format!("{own} play --exact --nocapture --test-threads=1 -q\n");
    types(&start, "program ready");
    types("one\n", "read <one>");
    types("\x1a", "Stopped");
    types("jobs | wc -l | sed 's/^/jobs: /'\n", "jobs: 1");
    assert_eq!(home.reserved(), 1 << 30, "it is stopped, and holds what it has");
    types("fg\n", "play --exact");
    types("two\n", "read <two>");
    types("\x03", "SIGINT");
    types("echo status $((100 + $?))\n", "status 230");
    comes("all is back", || home.reserved() == 0);
    // In the background it stops when it reads, as any program does, and goes on in the foreground.
    types(&format!("{} &\n", start.trim_end()), "program ready");
    // The shell says so at its next prompt.
    types("\n", "Stopped");
    types("fg\n", "play --exact");
    types("three\n", "read <three>");
    types("\x04", "program done");
    types("exit\n", "exit");
    drop(keys);
    shell.wait().unwrap();
    reader.join().unwrap();
}
