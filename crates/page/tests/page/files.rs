//! The files themselves.

use plimsoll_page::{svg, text};

use crate::sample::{hostile, picture};

#[test]
fn a_page_is_one_file_with_nothing_of_others_and_no_markup_of_names() {
    let html = picture(&hostile()).html();
    for word in ["<img", "<link", "<iframe", "http://", "https://", " src=\"", "@import", "url("] {
        let own = html.replace("http://www.w3.org/2000/svg", "");
        assert!(!own.contains(word), "the page has {word}");
    }
    // Its data and its script.
    assert_eq!(html.matches("<script").count(), 2);
    assert_eq!(html.matches("</script>").count(), 2);
    assert!(html.len() < 110_000, "{} bytes", html.len());
}

/// The script is read by people and run by nobody's build.
#[test]
fn the_script_keeps_to_what_is_safe() {
    let script = include_str!("../../src/page.js");
    assert!(script.starts_with("\"use strict\";\n"));
    let forbidden = [
        "innerHTML",
        "outerHTML",
        "insertAdjacent",
        "document.write",
        "eval(",
        "Function(",
        "setTimeout(\"",
        "fetch(",
        "import ",
        "XMLHttp",
        "var ",
        " == ",
        " != ",
        "console.",
        "localStorage",
        "cookie",
    ];
    for (number, line) in script.lines().enumerate() {
        let found = forbidden.iter().find(|word| line.contains(**word));
        assert!(found.is_none(), "page.js:{}: {found:?}", number + 1);
        assert!(!line.contains('\t') && line.trim_end() == line && line.chars().count() <= 160, "page.js:{}: {line}", number + 1);
    }
    let style = include_str!("../../src/page.css");
    for (open, close) in [('{', '}'), ('(', ')')] {
        assert_eq!(style.matches(open).count(), style.matches(close).count(), "{open} and {close}");
    }
}

#[test]
fn a_drawing_is_xml_without_effects() {
    let names = hostile();
    for title in &names {
        let drawn = svg::memory(&picture(&names).models[0], title).expect("a device");
        for word in ["<script", "<img", "<svg onload", "\u{0}", "\u{202e}"] {
            assert!(!drawn.contains(word), "the drawing has {word}");
        }
        assert_eq!(drawn.matches("<text").count(), drawn.matches("</text>").count());
        assert!(drawn.starts_with("<svg xmlns=") && drawn.ends_with("</svg>\n"));
        assert!(drawn.contains("limit 8 KiB") && drawn.contains("peak 5 KiB") && drawn.len() < 50_000);
    }
}

#[test]
fn a_terminal_sees_the_same() {
    let names: Vec<String> = ["a/x", "b", "model", "d", "e", "f"].map(String::from).to_vec();
    let drawn = text::memory(&picture(&names).models[0], 40);
    assert!(drawn.starts_with("CPU:0 over a step of 12.0 us\n8 KiB │"), "{drawn}");
    assert!(drawn.contains("peak 5 KiB: command 3 of 12, model"), "{drawn}");
    let widest = drawn.lines().filter(|line| line.contains('│')).map(|line| line.chars().count()).max();
    assert_eq!(widest, Some(40), "{drawn}");
    assert!(drawn.contains("─ limit") && drawn.contains('█') && drawn.contains('▒'), "{drawn}");
    for columns in [0, 1, 5, 1000] {
        assert!(!text::memory(&picture(&hostile()).models[0], columns).contains('\u{202e}'));
    }
}
