//! The memory of a device over a step as text, for terminals.

use std::fmt::Write;

use plimsoll_base::{Bytes, pad_left};

use crate::picture::{Device, Model, Stage};
use crate::shown;

/// So many lines show bytes.
const ROWS: u64 = 8;
/// Stands behind the line.
const LIMIT: &str = " limit";
/// Eighths of a cell, from below.
const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// A line that is no higher than so many tenths of the peak is drawn.
const NEAR: u64 = 17;

/// The devices of a model with commands, each over the step: what stays is shaded, the arena is black, the peak is marked. Lines are at
/// most `columns` wide.
pub fn memory(model: &Model, columns: usize) -> String {
    let mut text = String::new();
    for stage in &model.stages {
        for device in &stage.devices {
            text += &one(model, stage, device, columns).unwrap_or_default();
        }
    }
    text
}

fn one(model: &Model, stage: &Stage, device: &Device, columns: usize) -> Option<String> {
    let queue = stage.queues.get(device.queue?).filter(|queue| !queue.commands.is_empty())?;
    let need = model.needs.get(device.need)?;
    let (resident, live) = (device.resident().0, device.profile(queue.commands.len()));
    let peak_at = live.iter().enumerate().max_by_key(|(at, live)| (**live, std::cmp::Reverse(*at)))?.0;
    let limit = need.limit.map(|limit| limit.0).filter(|limit| u128::from(*limit) * 10 <= u128::from(device.peak.0) * u128::from(NEAR));
    let top = device.peak.0.max(limit.unwrap_or(0)).max(1);
    let labels = [Bytes(top), Bytes(top / 2), Bytes::ZERO].map(|bytes| bytes.to_string());
    let gutter = labels.iter().map(|label| label.len()).max().unwrap_or(0);
    let beside = if limit.is_some() { LIMIT.len() } else { 0 };
    let width = columns.saturating_sub(gutter + 2 + beside).clamp(1, 120);
    let spans: Vec<(f64, f64)> = queue.commands.iter().enumerate().map(|(at, command)| of_command(stage, at, command.predicted)).collect();
    let end = spans.last().map_or(1.0, |span| span.1).max(stage.seconds).max(f64::MIN_POSITIVE);
    // Every column shows the most of its time; one between two commands has what is live in both.
    let mut most = vec![0u64; width];
    let column = |time: f64| ((time / end * width as f64) as usize).min(width - 1);
    for (at, (live, span)) in live.iter().zip(&spans).enumerate() {
        let from = if at == 0 { 0.0 } else { spans[at - 1].1.min(span.0) };
        most[column(from)..=column(span.1).max(column(from))].iter_mut().for_each(|most| *most = (*most).max(*live));
    }
    let mark = column((spans[peak_at].0 + spans[peak_at].1) / 2.0);
    most[mark] = live[peak_at];
    let mut text = String::new();
    let time = if stage.seconds > 0.0 { format!(" of {}", duration(stage.seconds)) } else { String::new() };
    let stage_name = if stage.name.is_empty() { String::new() } else { format!(" ({})", shown(&stage.name)) };
    let _ = writeln!(text, "{} over a step{time}{stage_name}", shown(&need.short));
    let rise = |bytes: u64| (u128::from(bytes) * u128::from(ROWS * 8) / u128::from(top)) as u64;
    for row in (0..ROWS).rev() {
        let label = if row == ROWS - 1 {
            &labels[0]
        } else if row == ROWS / 2 - 1 {
            &labels[1]
        } else {
            ""
        };
        let is_line = limit.is_some_and(|limit| (rise(limit).saturating_sub(1)) / 8 == row);
        let mut line = format!("{} │", pad_left(label, gutter));
        for live in &most {
            let total = rise(resident + live).max(u64::from(resident + live > 0)).saturating_sub(row * 8).min(8);
            line.push(match total {
                0 if is_line => '─',
                8 if (row + 1) * 8 <= rise(resident) => '▒',
                eighths => EIGHTHS[eighths as usize],
            });
        }
        if is_line {
            line += LIMIT;
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    let _ = writeln!(text, "{} └{}▲", pad_left(&labels[2], gutter), "─".repeat(mark));
    let name = queue.commands[peak_at].nodes.first().and_then(|node| model.nodes.get(*node as usize)).map_or("", |(name, _)| name);
    let said = format!("peak {}: command {} of {}, {}", device.peak, peak_at + 1, queue.commands.len(), shown(name));
    let _ = writeln!(text, "{:gutter$}  {said}", "");
    Some(text)
}

/// When a command runs: by the clock or, where there is none, by its number.
fn of_command(stage: &Stage, at: usize, predicted: (f64, f64)) -> (f64, f64) {
    if stage.seconds > 0.0 { predicted } else { (at as f64, at as f64 + 1.0) }
}

/// As the plan's text has it.
pub(crate) fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.1} us", s * 1e6),
        s if s < 1.0 => format!("{:.2} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}
