//! The links between the pages lead to files and headings that exist.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The pages of the project.
fn pages() -> Vec<PathBuf> {
    let mut pages: Vec<PathBuf> =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "python/README.md", "scripts/stress/README.md"]
            .map(|page| root().join(page))
            .to_vec();
    let docs = std::fs::read_dir(root().join("docs")).expect("there are pages");
    pages.extend(docs.flatten().map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    pages
}

fn text(page: &Path) -> String {
    std::fs::read_to_string(page).unwrap_or_else(|error| panic!("{}: {error}", page.display()))
}

/// The lines of a page outside of blocks of code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let fence = line.starts_with("```");
        is_code ^= fence;
        !is_code && !fence
    })
}

/// The anchors of a page's headings, as GitHub makes them.
fn anchors(text: &str) -> Vec<String> {
    let heading = |line: &str| -> Option<String> {
        let title = line.strip_prefix('#')?.trim_start_matches('#').strip_prefix(' ')?;
        let kept = title.to_lowercase().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_')).collect::<String>();
        Some(kept.replace(' ', "-"))
    };
    prose(text).filter_map(heading).collect()
}

#[test]
fn links_lead_somewhere() {
    let (mut count, mut broken) = (0, Vec::new());
    for page in pages() {
        let text = text(&page);
        let folder = page.parent().expect("a page is in a folder");
        for line in prose(&text) {
            for target in line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target) {
                if target.contains("://") {
                    continue;
                }
                count += 1;
                let (file, anchor) = target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor)));
                let path = if file.is_empty() { page.clone() } else { folder.join(file) };
                let found = match anchor {
                    None => path.exists(),
                    Some(anchor) => path.is_file() && anchors(&self::text(&path)).iter().any(|known| known == anchor),
                };
                if !found {
                    broken.push(format!("{}: {target}", page.display()));
                }
            }
        }
    }
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
    assert!(count > 50, "only {count} links were found");
}
