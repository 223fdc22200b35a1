//! Names as they are shown: short, and without characters that act.

use std::fmt::Write;

/// So many characters of a name are shown.
const MOST: usize = 160;
/// So many of them come from its end, which tells the most.
const TAIL: usize = 60;

/// A name for a picture. Of a long one the middle is left out; control characters, and those that turn the direction of the text around
/// them, are written as `\u{202e}`.
pub fn shown(name: &str) -> String {
    let mut text = String::with_capacity(name.len().min(4 * MOST));
    let count = name.chars().take(MOST + 1).count();
    if count <= MOST {
        name.chars().for_each(|c| push(&mut text, c));
        return text;
    }
    name.chars().take(MOST - TAIL).for_each(|c| push(&mut text, c));
    let _ = write!(text, "…({} bytes)…", name.len());
    let tail: Vec<char> = name.chars().rev().take(TAIL).collect();
    tail.into_iter().rev().for_each(|c| push(&mut text, c));
    text
}

/// Lines of a report, as [`shown`] has names; long lines are cut at their end.
pub fn shown_lines(lines: &str) -> String {
    const WIDEST: usize = 1000;
    let mut text = String::with_capacity(lines.len().min(1 << 16));
    for line in lines.lines() {
        line.chars().take(WIDEST).for_each(|c| push(&mut text, c));
        text.push_str(if line.chars().nth(WIDEST).is_some() { "…\n" } else { "\n" });
    }
    text
}

fn push(text: &mut String, c: char) {
    // Characters that order text (bidirectional marks), lines and paragraphs, and those that nobody sees.
    let acts = matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{61c}');
    if acts || c.is_control() {
        let _ = write!(text, "\\u{{{:x}}}", c as u32);
    } else {
        text.push(c);
    }
}

/// A text as a part of HTML or SVG, between tags or in a quoted attribute.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // No XML has these.
            c if c.is_control() && !matches!(c, '\n' | '\t') => escaped.push('\u{fffd}'),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shown_short_and_without_effect() {
        assert_eq!(shown("conv1/Conv2D"), "conv1/Conv2D");
        assert_eq!(shown("a\u{202e}b\nc\u{7}"), "a\\u{202e}b\\u{a}c\\u{7}");
        assert_eq!(shown("שלום"), "שלום");
        let long = format!("{}end", "é".repeat(65_536));
        let short = shown(&long);
        assert!(short.chars().count() < 200 && short.ends_with("end") && short.contains("(131075 bytes)"), "{short}");
        assert_eq!(shown(&"x".repeat(160)), "x".repeat(160));
        assert_eq!(shown_lines("a\u{202e}\nb"), "a\\u{202e}\nb\n");
        assert_eq!(shown_lines(&long).chars().count(), 1002);
    }

    #[test]
    fn markup_is_text() {
        assert_eq!(
            escaped("</script><img src=x onerror='a'>&\"\u{0}"),
            "&lt;/script&gt;&lt;img src=x onerror=&#39;a&#39;&gt;&amp;&quot;\u{fffd}"
        );
    }
}
