//! Who holds which card: the machine at a moment, and what a program took while it had a lease. These pages have no script.

use std::fmt::Write;

use plimsoll_base::Bytes;

use crate::shell::{Shell, page};
use crate::{escaped, shown};

/// The cards of a machine with their holders.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listing {
    /// The cards.
    pub cards: Vec<Card>,
    /// The waiters, the next one first.
    pub waiters: Vec<Waiter>,
    /// The logical devices: name, description and limit.
    pub devices: Vec<(String, String, Option<Bytes>)>,
    /// Sentences about all of them.
    pub notes: Vec<String>,
}

/// A card.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Card {
    /// What listings call it: `0`, `s0`.
    pub label: String,
    /// Its model.
    pub name: String,
    /// Further facts in words.
    pub facts: Vec<String>,
    /// All its memory; none where that is not known.
    pub total: Option<Bytes>,
    /// The bytes that may still be taken.
    pub free: Option<Bytes>,
    /// Used by programs without a lease.
    pub outside: Option<Bytes>,
    /// The holders, the largest first.
    pub holders: Vec<Holder>,
}

/// A program on a card.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Holder {
    /// The number of its process.
    pub pid: u32,
    /// The program, or the name that its user gave it.
    pub name: String,
    /// Its user, where that matters.
    pub user: Option<String>,
    /// Set aside for it; none for programs without a lease.
    pub reserved: Option<Bytes>,
    /// What it uses, where that is observed.
    pub used: Option<Bytes>,
    /// The most that it used.
    pub peak: Option<Bytes>,
    /// What holds it to its reservation, in words.
    pub guarantee: Option<String>,
    /// Its use over time.
    pub history: Use,
}

/// Use of reserved bytes over time: for each step the most, 1 being all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Use {
    /// Seconds of a step.
    pub step: f64,
    /// The steps, oldest first.
    pub shares: Vec<f32>,
}

/// A program that waits for memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Waiter {
    /// The number of its process.
    pub pid: u32,
    /// The program, or the name that its user gave it.
    pub name: String,
    /// What it asks for, in words.
    pub asked: String,
    /// Why it waits.
    pub why: String,
}

/// What a program took while it had a lease.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lease {
    /// The program with its arguments.
    pub command: String,
    /// How it ended, in words.
    pub ended: String,
    /// Seconds that it waited for the lease, and then ran.
    pub waited: f64,
    /// Seconds that it ran.
    pub ran: f64,
    /// Facts: what they are called, and what they are.
    pub facts: Vec<(String, String)>,
    /// For each card: its label, its model, the reserved bytes, and the most that was used where that was observed.
    pub cards: Vec<(String, String, Bytes, Option<Bytes>)>,
    /// The use of all cards together over time.
    pub history: Use,
    /// Sentences.
    pub notes: Vec<String>,
}

/// Classes of colours for holders, one behind the other.
const COLOURS: usize = 5;

impl Listing {
    /// The page.
    pub fn html(&self) -> String {
        let mut body = heading("Plimsoll: the machine", "Who holds what");
        if self.cards.is_empty() {
            body.push_str("<p class=\"soft\">There are no cards.</p>\n");
        }
        self.cards.iter().for_each(|card| card_section(&mut body, card));
        if !self.waiters.is_empty() {
            body.push_str("<h2>Who waits</h2>\n<section class=\"card\">");
            let rows = self
                .waiters
                .iter()
                .map(|waiter| vec![waiter.pid.to_string(), waiter.name.clone(), waiter.asked.clone(), waiter.why.clone()]);
            table(&mut body, &["pid", "program", "asks for", "why it waits"], rows, &[1, 2, 3]);
            body.push_str("</section>\n");
        }
        if !self.devices.is_empty() {
            body.push_str("<h2>Logical devices</h2>\n<section class=\"card\">");
            let limit = |limit: &Option<Bytes>| limit.map_or_else(|| "no limit".to_string(), |limit| limit.to_string());
            let rows = self.devices.iter().map(|(name, description, bytes)| vec![name.clone(), description.clone(), limit(bytes)]);
            table(&mut body, &["device", "hardware", "limit"], rows, &[0, 1]);
            body.push_str("</section>\n");
        }
        notes(&mut body, &self.notes);
        finished("Who holds what", &body)
    }
}

impl Lease {
    /// The page.
    pub fn html(&self) -> String {
        let mut body = heading("Plimsoll: a program under a lease", &self.command);
        let _ = write!(body, "<p class=\"verdict\">{}</p>\n<dl class=\"facts\">", text(&self.ended));
        let times = [("waited".to_string(), seconds(self.waited)), ("ran".to_string(), seconds(self.ran))];
        for (name, value) in times.iter().chain(&self.facts) {
            let _ = write!(body, "<div><dt>{}</dt><dd>{}</dd></div>", text(name), text(value));
        }
        body.push_str("</dl>\n<h2>Cards</h2>\n<section class=\"card\">");
        if self.cards.is_empty() {
            body.push_str("<p class=\"soft\">It had no cards.</p>");
        }
        for (label, name, reserved, peak) in &self.cards {
            let said = peak.map_or_else(|| "use not observed".to_string(), |peak| format!("at most {peak} used"));
            let _ =
                write!(body, "<h3>GPU {} <span class=\"soft\">{}</span></h3><p>{reserved} reserved, {said}</p>", text(label), text(name));
            if let Some(peak) = peak {
                let share = 100.0 * peak.0 as f64 / reserved.0.max(1) as f64;
                let _ = write!(
                    body,
                    "{}",
                    bar(&[(share, "of-activations".to_string(), String::new())], &format!("{share:.0} % of its reservation"))
                );
            }
        }
        if !self.history.shares.is_empty() {
            body.push_str("<h3>Use over time</h3>");
            body.push_str(&over_time(&self.history, self.ran, self.cards.iter().map(|(_, _, reserved, _)| *reserved).sum()));
        }
        body.push_str("</section>\n");
        notes(&mut body, &self.notes);
        finished(&self.command, &body)
    }
}

fn finished(title: &str, body: &str) -> String {
    let body = format!("<main>\n{body}<footer>Written by Plimsoll.</footer></main>");
    page(&Shell { title, style: include_str!("page.css"), script: None, data: None, body: &body })
}

fn heading(what: &str, title: &str) -> String {
    format!(
        "<header><svg viewBox=\"0 0 44 44\" aria-hidden=\"true\"><circle class=\"mark\" cx=\"22\" cy=\"22\" r=\"13\"/><path class=\"mark\" d=\"M2 22h40\"/></svg>\
         <div><div class=\"what\">{what}</div><h1>{}</h1></div></header>\n",
        text(title)
    )
}

fn notes(body: &mut String, notes: &[String]) {
    if !notes.is_empty() {
        body.push_str("<h2>Notes</h2>\n");
        notes.iter().for_each(|note| {
            let _ = writeln!(body, "<p>{}</p>", text(note));
        });
    }
}

fn card_section(body: &mut String, card: &Card) {
    let total = card.total.map_or_else(|| "size not known".to_string(), |total| total.to_string());
    let free = card.free.map_or_else(String::new, |free| format!(", {free} free"));
    let _ = write!(
        body,
        "<section class=\"card\" aria-label=\"GPU {}\"><div class=\"head\"><h3>GPU {} <span class=\"soft\">{}</span></h3><div>{total}{free}</div></div>",
        plain(&card.label),
        text(&card.label),
        text(&card.name)
    );
    if let Some(total) = card.total {
        let share = |bytes: Bytes| 100.0 * bytes.0 as f64 / total.0.max(1) as f64;
        let mut parts: Vec<(f64, String, String)> = Vec::new();
        for (at, holder) in card.holders.iter().enumerate() {
            if let Some(bytes) = holder.reserved.or(holder.used) {
                parts.push((share(bytes), format!("holder{}", at % COLOURS), format!("{}: {bytes}", shown(&holder.name))));
            }
        }
        let spoken: Vec<String> = parts.iter().map(|(_, _, said)| said.clone()).collect();
        body.push_str(&bar(&parts, &spoken.join(", ")));
    }
    if !card.facts.is_empty() {
        let _ = write!(body, "<p class=\"soft\">{}</p>", text(&card.facts.join(", ")));
    }
    if card.holders.is_empty() {
        body.push_str("<p class=\"soft\">No program is known to hold anything of it.</p>");
    } else {
        let mut rows = String::new();
        // Where all are this user's, none is named.
        let has_users = card.holders.iter().any(|holder| holder.user.is_some());
        for (at, holder) in card.holders.iter().enumerate() {
            let user = || format!("<td class=\"text\">{}</td>", text(holder.user.as_deref().unwrap_or("")));
            let bytes = |bytes: Option<Bytes>| bytes.map_or_else(|| "not observed".to_string(), |bytes| bytes.to_string());
            let reserved = holder.reserved.map_or_else(|| "nothing".to_string(), |bytes| bytes.to_string());
            let _ = write!(
                rows,
                "<tr><td class=\"text\"><i class=\"dot holder{}\"></i> {}</td><td>{}</td>{}<td>{reserved}</td><td>{}</td><td>{}</td>\
                 <td class=\"text\">{}</td><td>{}</td></tr>",
                at % COLOURS,
                text(&holder.name),
                holder.pid,
                if has_users { user() } else { String::new() },
                bytes(holder.used),
                bytes(holder.peak),
                text(holder.guarantee.as_deref().unwrap_or("")),
                spark(&holder.history)
            );
        }
        let heads = match has_users {
            true => head(&["program", "pid", "user", "reserved", "used", "peak", "held to it by", "use over time"], &[0, 2, 6]),
            false => head(&["program", "pid", "reserved", "used", "peak", "held to it by", "use over time"], &[0, 5]),
        };
        let _ =
            write!(body, "<div class=\"rows\" tabindex=\"0\"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>");
    }
    body.push_str("</section>\n");
}

/// A bar of parts in percent, each with its class and what it says.
fn bar(parts: &[(f64, String, String)], spoken: &str) -> String {
    let mut svg =
        format!("<svg class=\"share\" viewBox=\"0 0 100 4\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}\">", plain(spoken));
    svg.push_str("<rect class=\"rest\" width=\"100\" height=\"4\"/>");
    let mut x = 0.0;
    for (share, class, said) in parts {
        let width = share.clamp(0.0, 100.0 - x);
        let _ = write!(
            svg,
            "<rect class=\"{class}\" x=\"{x:.3}\" width=\"{:.3}\" height=\"4\"><title>{}</title></rect>",
            (width - 0.15).max(0.05),
            plain(said)
        );
        x += width;
    }
    svg + "</svg>"
}

/// A small curve of use.
fn spark(history: &Use) -> String {
    if history.shares.is_empty() {
        return String::new();
    }
    let most = history.shares.iter().copied().fold(0.0, f32::max);
    format!(
        "<svg class=\"spark\" viewBox=\"0 0 120 24\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"at most {:.0} % of its reservation, over {}\">\
         <path class=\"use\" d=\"{}\"/></svg>",
        100.0 * most,
        seconds(history.step * history.shares.len() as f64),
        area(&history.shares, 120.0, 24.0)
    )
}

/// A large one, with axes.
fn over_time(history: &Use, ran: f64, reserved: Bytes) -> String {
    let most = history.shares.iter().copied().fold(0.0, f32::max);
    format!(
        "<svg class=\"curve\" viewBox=\"0 0 800 220\" role=\"img\" aria-label=\"use over time: at most {:.0} % of {reserved}\">\
         <g transform=\"translate(90 16)\"><path class=\"use\" d=\"{}\"/><path class=\"limit\" d=\"M0 0H700\"/></g>\
         <text x=\"82\" y=\"21\" text-anchor=\"end\">{reserved}</text><text x=\"82\" y=\"190\" text-anchor=\"end\">0 B</text>\
         <text x=\"90\" y=\"210\">0 s</text><text x=\"790\" y=\"210\" text-anchor=\"end\">{}</text></svg>",
        100.0 * most,
        area(&history.shares, 700.0, 170.0),
        seconds(ran.max(history.step * history.shares.len() as f64))
    )
}

/// Steps from below, closed.
fn area(shares: &[f32], width: f64, height: f64) -> String {
    let mut path = format!("M0 {height}");
    let each = width / shares.len().max(1) as f64;
    for (at, share) in shares.iter().enumerate() {
        let y = height * (1.0 - f64::from(share.clamp(0.0, 1.0)));
        let _ = write!(path, "V{y:.1}H{:.1}", each * (at + 1) as f64);
    }
    path + &format!("V{height}Z")
}

fn table(body: &mut String, heads: &[&str], rows: impl Iterator<Item = Vec<String>>, texts: &[usize]) {
    let _ = write!(body, "<div class=\"rows\" tabindex=\"0\"><table><thead><tr>{}</tr></thead><tbody>", head(heads, texts));
    for row in rows {
        body.push_str("<tr>");
        for (at, cell) in row.iter().enumerate() {
            let class = if texts.contains(&at) { " class=\"text\"" } else { "" };
            let _ = write!(body, "<td{class}>{}</td>", text(cell));
        }
        body.push_str("</tr>");
    }
    body.push_str("</tbody></table></div>");
}

/// The heads of columns; those of text stand on the left.
fn head(heads: &[&str], texts: &[usize]) -> String {
    let one = |(at, head): (usize, &&str)| {
        let class = if texts.contains(&at) { " class=\"text\"" } else { "" };
        format!("<th scope=\"col\"{class}>{head}</th>")
    };
    heads.iter().enumerate().map(one).collect()
}

/// Text of others, between tags.
fn text(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("<span class=\"name\" dir=\"auto\">{}</span>", plain(text)) }
}

/// Text of others, in an attribute.
fn plain(text: &str) -> String {
    escaped(&shown(text))
}

fn seconds(seconds: f64) -> String {
    match seconds {
        s if s < 60.0 => format!("{s:.1} s"),
        s if s < 3600.0 => format!("{:.1} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}
