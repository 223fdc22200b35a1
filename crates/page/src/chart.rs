//! Bars and curves as SVG, for documents. They have their colours for light and for dark.

use std::fmt::Write;

use crate::{escaped, shown};

const WIDTH: f64 = 880.0;

const STYLE: &str = "text{font:13px system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;fill:#5a6472}\
.t{font-size:16px;font-weight:600;fill:#1b2430}.i{fill:#1b2430}.back{fill:#fff;stroke:#e3e1da}.g{stroke:#eceae4}.n{fill:none;stroke-width:2}\
.s0{fill:#2d6f9e;stroke:#2d6f9e}.s1{fill:#e6a532;stroke:#e6a532}.s2{fill:#b0528f;stroke:#b0528f}.s3{fill:#62bb9c;stroke:#62bb9c}\
@media(prefers-color-scheme:dark){text{fill:#a0a9b6}.t,.i{fill:#e6e9ee}.back{fill:#181d25;stroke:#2b323d}.g{stroke:#232a34}\
.s0{fill:#4490c6;stroke:#4490c6}.s1{fill:#dd9c33;stroke:#dd9c33}.s2{fill:#cf79b2;stroke:#cf79b2}}.n{fill:none}";

/// Curves differ by their dashes, too.
const DASHES: [&str; 4] = ["", "7 4", "2 3", "9 3 2 3"];

/// A group of bars: what it is about, and for each series its length, 1 being the longest, and what stands beside it.
pub type Group = (String, Vec<(f64, String)>);

/// Bars in groups, a bar for each of the series.
pub fn bars(title: &str, series: &[&str], groups: &[Group]) -> String {
    const TALL: f64 = 14.0;
    let group = 24.0 + TALL * series.len() as f64 + 12.0;
    let height = 84.0 + group * groups.len() as f64;
    let mut svg = begin(title, height, series, false);
    for (at, (name, lengths)) in groups.iter().enumerate() {
        let top = 78.0 + group * at as f64;
        let _ = writeln!(svg, "<text class=\"i\" x=\"20\" y=\"{:.1}\">{}</text>", top + 14.0, said(name));
        for (number, (length, beside)) in lengths.iter().enumerate() {
            let (y, width) = (top + 22.0 + TALL * number as f64, (length.clamp(0.0, 1.0) * (WIDTH - 160.0)).max(1.0));
            let _ = writeln!(svg, "<rect class=\"s{number}\" x=\"20\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{:.1}\"/>", TALL - 3.0);
            let _ = writeln!(svg, "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>", 28.0 + width, y + TALL - 4.0, said(beside));
        }
    }
    svg + "</svg>\n"
}

/// Curves over the same steps, from 0 to `highest`; `names` are of the axes.
pub fn curves(title: &str, series: &[(&str, Vec<f64>)], highest: f64, steps: usize, names: (&str, &str)) -> String {
    const HEIGHT: f64 = 340.0;
    let (left, right, top, bottom) = (60.0, 20.0, 76.0, 46.0);
    let mut svg = begin(title, HEIGHT, &series.iter().map(|(name, _)| *name).collect::<Vec<_>>(), true);
    let y = |value: f64| HEIGHT - bottom - (value / highest).clamp(0.0, 1.0) * (HEIGHT - top - bottom);
    for mark in 0..=4 {
        let value = highest * f64::from(mark) / 4.0;
        let _ = writeln!(svg, "<path class=\"g\" d=\"M{left} {:.1}H{}\"/>", y(value), WIDTH - right);
        let _ = writeln!(svg, "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{value:.1}</text>", left - 8.0, y(value) + 4.0);
        let x = left + f64::from(mark) / 4.0 * (WIDTH - left - right);
        let step = steps * mark as usize / 4;
        let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{step}</text>", HEIGHT - bottom + 18.0);
    }
    let _ = writeln!(svg, "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>", WIDTH / 2.0, HEIGHT - 10.0, said(names.0));
    let _ = writeln!(svg, "<text x=\"20\" y=\"{}\">{}</text>", top - 10.0, said(names.1));
    for (number, (_, values)) in series.iter().enumerate() {
        let x = |at: usize| left + (at as f64 + 0.5) / values.len() as f64 * (WIDTH - left - right);
        let points: Vec<String> = values.iter().enumerate().map(|(at, value)| format!("{:.0},{:.0}", x(at), y(*value))).collect();
        let _ =
            writeln!(svg, "<polyline class=\"s{number} n\" stroke-dasharray=\"{}\" points=\"{}\"/>", DASHES[number % 4], points.join(" "));
    }
    svg + "</svg>\n"
}

fn begin(title: &str, height: f64, series: &[&str], has_dashes: bool) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" role=\"img\">\n\
         <title>{0}</title>\n<style>{STYLE}</style>\n<rect class=\"back\" x=\".5\" y=\".5\" width=\"{1}\" height=\"{2}\" rx=\"10\"/>\n\
         <text class=\"t\" x=\"20\" y=\"28\">{0}</text>\n",
        said(title),
        WIDTH - 1.0,
        height - 1.0
    );
    let mut x = 20.0;
    for (number, name) in series.iter().enumerate() {
        let _ = writeln!(
            svg,
            "<path class=\"s{number}\" style=\"stroke-width:4\" stroke-dasharray=\"{}\" d=\"M{x} 46h26\"/>\n<text x=\"{}\" y=\"50\">{}</text>",
            if has_dashes { DASHES[number % 4] } else { "" },
            x + 34.0,
            said(name)
        );
        x += 58.0 + 7.5 * name.chars().count() as f64;
    }
    svg
}

fn said(text: &str) -> String {
    escaped(&shown(text))
}
