//! One file: style, script and data within the page, and a policy that allows these and nothing else.

use sha2::{Digest, Sha256};

use crate::escaped;

/// The parts of a page.
pub(crate) struct Shell<'a> {
    /// The title, as text.
    pub title: &'a str,
    /// The style.
    pub style: &'a str,
    /// The script, where it has one.
    pub script: Option<&'a str>,
    /// JSON for the script.
    pub data: Option<&'a str>,
    /// Markup.
    pub body: &'a str,
}

/// The page. A policy lets the browser run the script and use the style that are meant, by their hashes, and load nothing.
pub(crate) fn page(shell: &Shell<'_>) -> String {
    let Shell { title, style, script, data, body } = shell;
    let allowed = script.map_or_else(|| "'none'".to_string(), |script| format!("'sha256-{}'", hash(script)));
    let policy =
        format!("default-src 'none'; style-src 'sha256-{}'; script-src {allowed}; base-uri 'none'; form-action 'none'", hash(style));
    let data = data.map_or_else(String::new, |data| format!("<script type=\"application/json\" id=\"data\">{}</script>\n", embedded(data)));
    let script = script.map_or_else(String::new, |script| format!("<script>{script}</script>\n"));
    let title = escaped(&crate::shown(title));
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{title}</title>\n<style>{style}</style>\n</head>\n<body>\n{body}\n{data}{script}</body>\n</html>\n"
    )
}

/// JSON that ends no script and no line of one. Outside of strings JSON has none of these characters.
fn embedded(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' => text.push_str("\\u003c"),
            '>' => text.push_str("\\u003e"),
            '&' => text.push_str("\\u0026"),
            '\u{2028}' => text.push_str("\\u2028"),
            '\u{2029}' => text.push_str("\\u2029"),
            c => text.push(c),
        }
    }
    text
}

/// SHA-256 in base 64, as policies have it.
fn hash(text: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut encoded = String::new();
    for three in Sha256::digest(text.as_bytes()).chunks(3) {
        let bits = three.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for digit in 0..4 {
            let value = (bits >> (18 - 6 * digit)) as usize & 63;
            encoded.push(if digit <= three.len() { DIGITS[value] as char } else { '=' });
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_that_of_policies() {
        // The example of Content Security Policy Level 2, section 7.15.2.
        assert_eq!(hash("alert('Hello, world.');"), "qznLcsROx4GACP2dm0UCKCzCG+HiZ1guq6ZZDob/Tng=");
    }

    #[test]
    fn data_ends_no_script() {
        let json = serde_json::json!({"name": "</script><script>alert(1)</script>\u{2028}<!--"}).to_string();
        let page = page(&Shell { title: "<b>", style: "", script: Some("1"), data: Some(&json), body: "" });
        assert_eq!(page.matches("</script>").count(), 2);
        assert!(!page.contains("<!--") && !page.contains('\u{2028}') && page.contains("<title>&lt;b&gt;</title>"));
        let data = page.split("id=\"data\">").nth(1).and_then(|rest| rest.split("</script>").next()).expect("data");
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(data).expect("JSON"),
            serde_json::from_str::<serde_json::Value>(&json).expect("JSON")
        );
    }
}
