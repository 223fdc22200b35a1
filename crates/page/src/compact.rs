//! A picture as JSON for `page.js`: columns in place of rows, and names by their parts, so that a page of 10,000 nodes stays small.

use std::collections::HashMap;

use serde_json::{Value as Json, json};

use plimsoll_base::Bytes;

use crate::picture::{Buffer, Command, Curve, Device, Kind, Model, Need, Picture, Point, Queue, Sizes, Stage, Work};
use crate::shown;

/// The document.
pub(crate) fn picture(picture: &Picture) -> String {
    // Models share their words: those of one graph have the same.
    let (mut names, mut operations) = (Names::default(), Words::default());
    let models: Vec<Json> = picture.models.iter().map(|one| model(one, &mut names, &mut operations)).collect();
    let notes: Vec<String> = picture.notes.iter().map(|note| shown(note)).collect();
    json!({
        "title": shown(&picture.title),
        "names": {"parent": names.parents, "part": names.parts},
        "ops": operations.words,
        "models": models,
        "notes": notes,
        "sizes": picture.sizes.as_ref().map(sizes),
    })
    .to_string()
}

fn sizes(sizes: &Sizes) -> Json {
    let sampled = sizes.sampled.iter().map(|size| {
        let needs: Vec<Json> =
            size.needs.iter().map(|(name, limit, peak)| json!([shown(name), limit.map(|limit| limit.0), peak.0])).collect();
        json!({"n": size.n, "fits": size.fits, "minimum": size.minimum_limit.0, "needs": needs})
    });
    json!({
        "feeds": column(&sizes.feeds, |(name, shape)| [shown(name), shown(shape)]),
        "sampled": sampled.collect::<Vec<_>>(),
        "largest": sizes.largest,
        "drawn": sizes.drawn,
    })
}

fn model(model: &Model, names: &mut Names, operations: &mut Words) -> Json {
    let nodes: Vec<[usize; 2]> = model.nodes.iter().map(|(name, op)| [names.add(&shown(name)), operations.add(&shown(op))]).collect();
    json!({
        "name": shown(&model.name),
        "fits": model.fits,
        "shortfall": model.shortfall.0,
        "minimum": model.minimum_limit.0,
        "seconds": model.seconds,
        "modelled": model.is_modelled,
        "measured": model.measured,
        "costs": model.costs,
        "needs": model.needs.iter().map(need).collect::<Vec<_>>(),
        "nodes": {"name": column(&nodes, |node| node[0]), "op": column(&nodes, |node| node[1])},
        "stages": model.stages.iter().map(|one| stage(one, names)).collect::<Vec<_>>(),
        "fitting": model.fitting.as_ref().map(|fitting| json!({
            "recomputed": fitting.recomputed.iter().map(|name| shown(name)).collect::<Vec<_>>(),
            "offloaded": fitting.offloaded.0,
            "masked": fitting.masked,
            "parts": fitting.parts,
            "segments": fitting.segments,
            "saved": fitting.saved.0,
        })),
        "curves": model.curves.iter().map(curve).collect::<Vec<_>>(),
    })
}

fn need(need: &Need) -> Json {
    json!({
        "name": shown(&need.name),
        "short": shown(&need.short),
        "limit": need.limit.map(|limit| limit.0),
        "peak": need.peak.0,
        "measured": need.measured.map(|peak| peak.0),
        "certainty": shown(&need.certainty),
        "parts": need.parts.map(|part| part.0),
        "holders": need.holders.iter().map(|(name, bytes)| json!([shown(name), bytes.0])).collect::<Vec<_>>(),
    })
}

fn stage(stage: &Stage, names: &mut Names) -> Json {
    let queues = stage.queues.len().max(1) as u64;
    json!({
        "name": shown(&stage.name),
        "seconds": stage.seconds,
        "devices": stage.devices.iter().map(|one| device(one, queues, names)).collect::<Vec<_>>(),
        "queues": stage.queues.iter().map(queue).collect::<Vec<_>>(),
    })
}

fn device(device: &Device, queues: u64, names: &mut Names) -> Json {
    let bands = device.bands.iter().map(|band| {
        let entries: Vec<Json> = band.entries.iter().map(|(name, bytes)| json!([names.add(&shown(name)), bytes.0])).collect();
        json!({"name": band.name, "bytes": band.bytes.0, "entries": entries})
    });
    let all = &device.buffers;
    // A command in one number: its own times the number of queues, and its queue.
    let at = |(queue, number): (u32, u32)| u64::from(number) * queues + u64::from(queue);
    let values = |buffer: &Buffer| -> Vec<Json> {
        let value = |value: &crate::picture::Value| {
            let readers = value.readers.iter().map(|reader| json!(at(*reader)));
            Json::Array([json!(value.node), json!(at(value.writer))].into_iter().chain(readers).collect())
        };
        buffer.values.iter().map(value).collect()
    };
    json!({
        "need": device.need,
        "queue": device.queue,
        "peak": device.peak.0,
        "bands": bands.collect::<Vec<_>>(),
        "arena": device.arena.0,
        "packed": device.packed.0,
        "live": device.live.0,
        "buffers": {
            "offset": column(all, |buffer| buffer.offset),
            "bytes": column(all, |buffer| buffer.bytes),
            "slot": column(all, |buffer| buffer.slot),
            "first": column(all, |buffer| u64::from(buffer.commands.0)),
            "last": column(all, |buffer| u64::from(buffer.commands.1)),
            "depth": column(all, |buffer| buffer.depth),
            "kind": column(all, |buffer| match buffer.kind {
                Kind::Value => 0,
                Kind::Copy => 1,
                Kind::Scratch => 2,
                Kind::Again => 3,
            }),
            "values": column(all, values),
        },
    })
}

fn queue(queue: &Queue) -> Json {
    let mut details = Words::default();
    let all = &queue.commands;
    // A command that starts when the one before it ends says so by null.
    let mut before = 0.0;
    let start = |command: &Command| {
        let (start, end) = command.predicted;
        if start == std::mem::replace(&mut before, end) { Json::Null } else { micros(start) }
    };
    let start: Vec<Json> = all.iter().map(start).collect();
    let detail: Vec<usize> = all.iter().map(|command| details.add(&shown(&command.detail))).collect();
    let waits = all
        .iter()
        .enumerate()
        .flat_map(|(number, command)| command.waits.iter().map(move |(queue, count)| [number as u32, *queue, *count]));
    let has_measured = all.iter().any(|command| command.measured.is_some());
    let measured = |part: fn((f64, f64)) -> f64| -> Vec<Json> {
        column(all, |command| command.measured.map_or(Json::Null, |span| micros(part(span))))
    };
    json!({
        "need": queue.need,
        "nodes": column(all, |command| command.nodes.clone()),
        "work": column(all, work),
        "detail": detail,
        "details": details.words,
        "start": start,
        "end": column(all, |command| micros(command.predicted.1)),
        "measured": has_measured.then(|| json!({"start": measured(|span| span.0), "end": measured(|span| span.1)})),
        "waits": waits.collect::<Vec<_>>(),
        "reads": column(all, |command| command.traffic.0),
        "writes": column(all, |command| command.traffic.1),
    })
}

fn work(command: &Command) -> u8 {
    match command.work {
        Work::Kernel => 0,
        Work::Copy => 1,
        Work::File => 2,
        Work::Loop => 3,
        Work::Again => 4,
    }
}

fn curve(curve: &Curve) -> Json {
    json!({
        "need": curve.need,
        "limit": column(&curve.points, |point| point.limit.0),
        "peak": column(&curve.points, |point| point.peak.0),
        "seconds": column(&curve.points, |point| point.seconds),
        "recomputed": column(&curve.points, |point| point.recomputed),
        "offloaded": column(&curve.points, |point| point.offloaded.0),
        "masked": column(&curve.points, |point| point.masked),
        "parts": column(&curve.points, |point| point.parts),
        "segments": column(&curve.points, |point| point.segments),
        "profile": column(&curve.points, profile),
    })
}

/// So many stretches of commands at most show what is live under a line.
const STRETCHES: usize = 240;

/// Stretches of as many commands: when each ends, in thousandths of the step, and the most bytes that are live.
fn profile(point: &Point) -> Json {
    let length = point.profile.len().div_ceil(STRETCHES).max(1);
    let stretches: Vec<&[(f64, Bytes)]> = point.profile.chunks(length).collect();
    let end = |stretch: &&[(f64, Bytes)]| {
        let last = stretch.last().map_or(0.0, |(end, _)| *end);
        if point.seconds > 0.0 { (last / point.seconds * 1000.0).round().min(1000.0) as u64 } else { 0 }
    };
    let most = |stretch: &&[(f64, Bytes)]| stretch.iter().map(|(_, live)| live.0).max().unwrap_or(0);
    json!({"length": length, "count": point.profile.len(), "end": column(&stretches, end), "live": column(&stretches, most)})
}

fn column<T, U>(rows: &[T], of: impl Fn(&T) -> U) -> Vec<U> {
    rows.iter().map(of).collect()
}

/// Seconds as microseconds; picoseconds are the last digit.
fn micros(seconds: f64) -> Json {
    let micros = (seconds * 1e12).round() / 1e6;
    if micros.fract() == 0.0 && micros.abs() < 1e15 { json!(micros as i64) } else { json!(micros) }
}

/// Words, each once.
#[derive(Default)]
struct Words {
    words: Vec<String>,
    known: HashMap<String, usize>,
}

impl Words {
    fn add(&mut self, word: &str) -> usize {
        if let Some(number) = self.known.get(word) {
            return *number;
        }
        self.words.push(word.to_string());
        self.known.insert(word.to_string(), self.words.len() - 1);
        self.words.len() - 1
    }
}

/// Names by their parts between slashes. An entry is a part and the entry that it follows, 0 where it follows none; entries count from 1.
#[derive(Default)]
struct Names {
    parents: Vec<usize>,
    parts: Vec<String>,
    known: HashMap<(usize, String), usize>,
}

impl Names {
    fn add(&mut self, name: &str) -> usize {
        let mut at = 0;
        for part in name.split('/') {
            at = *self.known.entry((at, part.to_string())).or_insert_with(|| {
                self.parents.push(at);
                self.parts.push(part.to_string());
                self.parts.len()
            });
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_share_their_parts() {
        let mut names = Names::default();
        let numbers: Vec<usize> = ["a/b", "a/c", "a/b", "", "/a"].iter().map(|name| names.add(name)).collect();
        assert_eq!(numbers, [2, 3, 2, 4, 5]);
        assert_eq!((names.parents, names.parts), (vec![0, 1, 1, 0, 4], ["a", "b", "c", "", "a"].map(String::from).to_vec()));
    }

    #[test]
    fn times_keep_what_is_seen() {
        assert_eq!([micros(1e-6), micros(0.25), micros(1.5e-9)].map(|json| json.to_string()), ["1", "250000", "0.0015"]);
    }
}
