//! The listing on a terminal, for `--watch`: a line for each card, lease and waiter, as many as there is room for; where there are
//! more, the next ones have their turn at the next look.

use std::time::SystemTime;

use plimsoll::Bytes;
use plimsoll::machine::{Guarantee, History, Process, SeenCard, View, Waiter};

use super::table;
use crate::output::plain;

/// The part that fits into so many columns and rows, at least one line; `turn` counts the looks. Parts that have no room for a head
/// and an entry are left out, cards before leases.
pub fn of(view: &View, (columns, rows): (usize, usize), turn: usize) -> String {
    let mut lines = vec![summary(view)];
    lines.extend(view.warnings.iter().take(rows / 6).map(|warning| plain(&format!("warning: {warning}"))));
    let cards: Vec<String> = view.cards.iter().enumerate().map(|(place, seen)| card(&view.label(place), seen, columns)).collect();
    // Heads and omissions take a line each.
    let room = rows.saturating_sub(lines.len());
    let waiting = view.waiters.len() + 2 * usize::from(!view.waiters.is_empty());
    let or_none = |lines: usize| if lines < 2 { 0 } else { lines };
    // A lease takes three: the head, itself, and which it is.
    let for_cards = or_none((cards.len() + 1).min(room / 2).min(room.saturating_sub(3)));
    let for_waiters = or_none(waiting.min((room - for_cards) / 3));
    let for_leases = room - for_cards - for_waiters;
    part(
        &format!("{:>4} {:<22} {:>9} {:>9} {:>9} {:>9}  {:>4}", "GPU", "Name", "Leased", "Used", "Others", "Free", "Util"),
        cards,
        for_cards,
        turn,
        &mut lines,
    );
    let leases: Vec<String> = view.processes.iter().map(|process| lease(view, process, columns)).collect();
    let head = format!(
        "{:>4} {:>8} {:<11} {:>9} {:>9} {:>9} {:>6}  {:<PLOT$}  {}",
        "GPU", "PID", "Rung", "Leased", "Used", "Peak", "Unused", "Use over time", "Program"
    );
    part(&head, leases, for_leases, turn, &mut lines);
    let waiters: Vec<String> = view.waiters.iter().map(|waiter| wait(view, waiter)).collect();
    if !waiters.is_empty() {
        part(&format!("{:>4} {:>8} {:>8}  Waits", "Turn", "PID", "Priority"), waiters, for_waiters, turn, &mut lines);
    }
    lines.iter().map(|line| cut(line, columns)).collect::<Vec<_>>().join("\n")
}

fn summary(view: &View) -> String {
    let count = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let what = match view.cards.is_empty() {
        true => "no GPUs were found".into(),
        false => format!("{}, {}, {} waiting", count(view.cards.len(), "GPU"), count(view.processes.len(), "program"), view.waiters.len()),
    };
    format!("plimsoll {}: {what}; Ctrl-C ends", env!("CARGO_PKG_VERSION"))
}

/// A head and as many of the entries as there is room for, with a line that says which they are.
fn part(head: &str, entries: Vec<String>, room: usize, turn: usize, lines: &mut Vec<String>) {
    if room < 2 {
        return;
    }
    lines.push(head.to_string());
    let total = entries.len();
    if total < room {
        lines.extend(entries);
        return;
    }
    // The line that says so takes a place too.
    let shown = room - 2;
    if shown == 0 {
        lines.push(format!("     {total} more than there is room for"));
        return;
    }
    let first = turn % total.div_ceil(shown) * shown;
    let last = (first + shown).min(total);
    lines.extend(entries.into_iter().skip(first).take(shown));
    lines.push(format!("     {} to {last} of {total}", first + 1));
}

fn card(label: &str, seen: &SeenCard, columns: usize) -> String {
    let used = seen.used.unwrap_or_default().max(seen.outside.unwrap_or_default());
    let text = format!(
        "{label:>4} {:<22} {:>9} {:>9} {:>9} {:>9}  {:>4}",
        cut(&plain(&seen.device.name), 22),
        size(seen.reserved),
        size(seen.used),
        size(seen.outside),
        size(seen.free),
        seen.utilisation.map_or("-".into(), |percent| format!("{percent}%")),
    );
    let bar = columns.saturating_sub(text.chars().count() + 4).min(40);
    if bar < 8 { text } else { format!("{text}  [{}]", gauge(used, seen.reserved, seen.total, bar)) }
}

/// A card as a bar: `#` used, `=` leased and not used, `.` free.
fn gauge(used: Bytes, reserved: Option<Bytes>, total: Option<Bytes>, width: usize) -> String {
    let total = total.unwrap_or_default().0.max(1) as f64;
    let end = |bytes: u64| ((bytes as f64 / total * width as f64).ceil() as usize).min(width);
    let (used, taken) = (end(used.0), end(reserved.unwrap_or_default().0.max(used.0)));
    format!("{}{}{}", "#".repeat(used), "=".repeat(taken - used), ".".repeat(width - taken))
}

/// Characters of a history.
const PLOT: usize = 16;

fn lease(view: &View, process: &Process, columns: usize) -> String {
    let rung = process.guarantee.map_or("-", Guarantee::word);
    let name = table::named(process.user, &process.name);
    let name = if name.is_empty() { name } else { format!("[{name}] ") };
    let text = format!(
        "{:>4} {:>8} {rung:<11} {:>9} {:>9} {:>9} {:>6}  {:<PLOT$}  {name}{}",
        view.label(process.card),
        process.pid,
        size(process.reserved),
        size(process.used),
        size(process.peak),
        ago(process.last_use.card),
        plot(&process.history, PLOT),
        process.program.as_deref().unwrap_or("?"),
    );
    cut(&plain(&text), columns)
}

/// How long ago that was: `-` where it was not observed.
pub fn ago(time: Option<SystemTime>) -> String {
    let Some(time) = time else { return "-".into() };
    // A clock that was set back makes it no time.
    match time.elapsed().map_or(0, |since| since.as_secs()) {
        seconds @ 0..120 => format!("{seconds}s"),
        seconds @ 120..7200 => format!("{}min", seconds / 60),
        seconds @ 7200..172_800 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

/// Use over time in so many characters, the present at the right.
pub fn plot(history: &History, width: usize) -> String {
    const LEVELS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let shares: Vec<f32> = history.shares().collect();
    if shares.is_empty() {
        return String::new();
    }
    let step = shares.len().div_ceil(width);
    let most = shares.chunks(step).map(|steps| steps.iter().copied().fold(0.0, f32::max));
    most.map(|share| if share > 1.0 { '!' } else { LEVELS[((share * 8.0).ceil() as usize).min(8)] }).collect()
}

fn wait(view: &View, waiter: &Waiter) -> String {
    let name = table::named(waiter.user, &waiter.name);
    let name = if name.is_empty() { name } else { format!("[{name}] ") };
    let asked: Vec<String> = waiter.asked.iter().map(|(card, bytes)| format!("{bytes} of {}", view.label(*card))).collect();
    let some = if waiter.some > 0 { format!("{} of: ", waiter.some) } else { String::new() };
    let (turn, Waiter { pid, priority, why, program, .. }) = (waiter.ahead + 1, waiter);
    plain(&format!("{turn:>4} {pid:>8} {priority:>8}  {why}; asks {some}{}; {name}{program}", asked.join(", ")))
}

fn size(bytes: Option<Bytes>) -> String {
    let Some(Bytes(bytes)) = bytes else { return "-".into() };
    let mebibytes = bytes.div_ceil(1 << 20);
    if mebibytes < 10240 { format!("{mebibytes}MiB") } else { format!("{:.1}GiB", bytes as f64 / f64::from(1 << 30)) }
}

fn cut(text: &str, width: usize) -> String {
    match text.chars().count() <= width {
        true => text.trim_end().to_string(),
        false => text.chars().take(width.saturating_sub(1)).chain(['~']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use plimsoll::machine::PhysicalDevice;
    use plimsoll::machine::ProcessKind;

    use super::*;

    const GIB: u64 = 1 << 30;

    /// Eight cards, forty programs, five that wait.
    fn busy() -> View {
        let cards = PhysicalDevice::simulated("--sim-gpus", "8x80GiB").unwrap();
        let seen = |device: PhysicalDevice| SeenCard {
            total: Some(device.total),
            reserved: Some(Bytes(60 * GIB)),
            used: Some(Bytes(20 * GIB)),
            free: Some(Bytes(20 * GIB)),
            ..SeenCard::new(device)
        };
        let process = |number: usize| Process {
            card: number % 8,
            pid: 1000 + number as u32,
            user: None,
            kind: ProcessKind::Compute,
            program: Some(format!("python train.py --number {number} \u{1b}[2J")),
            name: "a rather long name".into(),
            reserved: Some(Bytes(12 * GIB)),
            used: Some(Bytes(4 * GIB)),
            peak: Some(Bytes(5 * GIB)),
            guarantee: Some(Guarantee::Framework),
            history: History::default(),
            last_use: Default::default(),
        };
        let waiter = |ahead: usize| Waiter {
            user: None,
            pid: 77,
            program: "python wait.py".into(),
            name: String::new(),
            priority: 0,
            ahead,
            some: 2,
            asked: (0..8).map(|card| (card, Bytes(GIB))).collect(),
            why: "waits for 30 GiB of Simulated GPU, of which 20 GiB are free".into(),
        };
        View {
            cards: cards.into_iter().map(seen).collect(),
            processes: (0..40).map(process).collect(),
            waiters: (0..5).map(waiter).collect(),
            ..View::default()
        }
    }

    #[test]
    fn it_fits_and_in_the_end_everybody_was_shown() {
        let view = busy();
        for size @ (columns, rows) in [(80, 24), (120, 40), (200, 60), (60, 12), (300, 100)] {
            let mut seen = std::collections::BTreeSet::new();
            for turn in 0..60 {
                let text = of(&view, size, turn);
                assert!(text.lines().count() <= rows, "{size:?}:\n{text}");
                assert!(text.lines().all(|line| line.chars().count() <= columns && !line.contains('\u{1b}')), "{size:?}:\n{text}");
                seen.extend((0..40).filter(|number| text.contains(&format!(" {} framework", 1000 + number))));
            }
            assert_eq!(seen.len(), 40, "{size:?}:\n{}", of(&view, size, 0));
        }
        let text = of(&view, (120, 70), 0);
        assert!(text.starts_with("plimsoll ") && text.contains("8 GPUs, 40 programs, 5 waiting"), "{text}");
        assert!(!text.contains(" of 40"), "there is room for all: {text}");
        assert!(of(&View::default(), (80, 1), 0).contains("no GPUs were found"));
    }

    #[test]
    fn it_fits_into_the_smallest_terminals() {
        let view = busy();
        for (columns, rows) in (1..60).flat_map(|columns| (1..14).map(move |rows| (columns, rows))) {
            for turn in 0..3 {
                let text = of(&view, (columns, rows), turn);
                assert!((1..=rows).contains(&text.lines().count()), "{columns}x{rows}:\n{text}");
                assert!(text.lines().all(|line| line.chars().count() <= columns), "{columns}x{rows}:\n{text}");
            }
        }
        let seen = |rows: usize| (0..40).any(|number| of(&view, (80, rows), 0).contains(&format!(" {} framework", 1000 + number)));
        assert!((4..14).all(seen), "a program is shown where there is room for one");
    }

    #[test]
    fn how_long_ago() {
        use std::time::Duration;
        let since = |seconds: u64| ago(SystemTime::now().checked_sub(Duration::from_secs(seconds)));
        assert_eq!((ago(None), since(200), since(7300), since(200_000)), ("-".into(), "3min".into(), "2h".into(), "2d".into()));
        assert_eq!(ago(SystemTime::now().checked_add(Duration::from_secs(900))), "0s", "the clock was set back");
        assert_eq!(ago(Some(std::time::UNIX_EPOCH)).chars().last(), Some('d'));
    }

    #[test]
    fn a_card_is_a_bar() {
        assert_eq!(gauge(Bytes(1), Some(Bytes(4)), Some(Bytes(8)), 8), "#===....");
        assert_eq!(gauge(Bytes(0), None, None, 4), "....");
        assert_eq!(gauge(Bytes(9), Some(Bytes(4)), Some(Bytes(8)), 8), "########");
    }
}
