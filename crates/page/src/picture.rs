//! What a plan looks like. All bytes and seconds are those of the plan: nothing is computed here.

use plimsoll_base::Bytes;

use crate::compact;
use crate::shell::{Shell, page};

/// Plans of one or several models, as one picture.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Picture {
    /// What is planned.
    pub title: String,
    /// The models, in the order in which they were named.
    pub models: Vec<Model>,
    /// Sentences about all of them.
    pub notes: Vec<String>,
    /// Of one model for several sizes of its feeds: the sizes. Its models are plans for some of them.
    pub sizes: Option<Sizes>,
}

/// The peaks of a model whose feeds have dimensions that are N.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sizes {
    /// These feeds, name and shape: `x`, `[N,224,224,3]`.
    pub feeds: Vec<(String, String)>,
    /// In ascending order.
    pub sampled: Vec<Size>,
    /// The largest N that fits, where it is known.
    pub largest: Option<u64>,
    /// The same as text.
    pub text: String,
    /// The N of each model of the picture, in their order.
    pub drawn: Vec<u64>,
}

/// One N.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Size {
    /// N.
    pub n: u64,
    /// Whether every device's peak stays under its line.
    pub fits: bool,
    /// A limit that is enough.
    pub minimum_limit: Bytes,
    /// The short name of each device, its line and its peak.
    pub needs: Vec<(String, Option<Bytes>, Bytes)>,
}

/// The plan of a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Model {
    /// Its name.
    pub name: String,
    /// Whether every device's peak stays under its line.
    pub fits: bool,
    /// Bytes that are missing.
    pub shortfall: Bytes,
    /// The smallest limit with which it runs.
    pub minimum_limit: Bytes,
    /// Predicted seconds of a step, where they are known.
    pub seconds: Option<f64>,
    /// Whether these are of the virtual clock.
    pub is_modelled: bool,
    /// Seconds of a step that was measured: the median, a tenth below, a tenth above.
    pub measured: Option<[f64; 3]>,
    /// The name of the table of costs.
    pub costs: String,
    /// The plan as text.
    pub text: String,
    /// What each device has to give over all runs of the model, the loading of variables among them.
    pub needs: Vec<Need>,
    /// The nodes of the plan: name and operation. Commands and buffers name them by position.
    pub nodes: Vec<(String, String)>,
    /// The parts of a run, one behind the other; one where it has no stages.
    pub stages: Vec<Stage>,
    /// What was done so that it fits.
    pub fitting: Option<Fitting>,
    /// What less memory costs.
    pub curves: Vec<Curve>,
}

/// What a device has to give.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Need {
    /// The full name of the device.
    pub name: String,
    /// The short one.
    pub short: String,
    /// The line, where there is one.
    pub limit: Option<Bytes>,
    /// The peak.
    pub peak: Bytes,
    /// The peak that was measured, in a measured run.
    pub measured: Option<Bytes>,
    /// How sure it is: `exact`, `at most`, `open from NODE`.
    pub certainty: String,
    /// Its parts, in the order variables, constants, activations, workspace, transfer, overhead.
    pub parts: [Bytes; 6],
    /// The largest holders at the peak.
    pub holders: Vec<(String, Bytes)>,
}

/// A plan without stages.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stage {
    /// What it is, where there are several.
    pub name: String,
    /// What it takes of the devices that it uses.
    pub devices: Vec<Device>,
    /// The queues, in the plan's order.
    pub queues: Vec<Queue>,
    /// When the last command ends, in predicted seconds.
    pub seconds: f64,
}

/// The memory of a device over a step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Device {
    /// Its position among the needs.
    pub need: usize,
    /// The queue of the device, by position.
    pub queue: Option<usize>,
    /// The peak of this plan alone, without the loading of variables.
    pub peak: Bytes,
    /// What stays for the whole step, below the arena: a band for each part.
    pub bands: Vec<Band>,
    /// The bytes of the arena.
    pub arena: Bytes,
    /// The bytes of it that buffers take as they are packed.
    pub packed: Bytes,
    /// The most of them that are live at once.
    pub live: Bytes,
    /// The buffers in the arena.
    pub buffers: Vec<Buffer>,
}

/// Memory that stays for the whole step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Band {
    /// `variables`, `constants`, `fed and fetched`, `overhead`.
    pub name: String,
    /// Its bytes, rounded as the device takes them.
    pub bytes: Bytes,
    /// Its entries, the largest first.
    pub entries: Vec<(String, Bytes)>,
}

/// A buffer in an arena.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Buffer {
    /// Where it begins.
    pub offset: u64,
    /// Its bytes.
    pub bytes: u64,
    /// The same with the gap behind it.
    pub slot: u64,
    /// The first and the last command of the device's queue during which it is taken.
    pub commands: (u32, u32),
    /// In the scratch of so many loops, one within another.
    pub depth: u32,
    /// What it holds.
    pub kind: Kind,
    /// Its contents, one behind the other: of scratch, the command's node alone.
    pub values: Vec<Value>,
}

/// The contents of a buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Values of nodes.
    #[default]
    Value,
    /// Copies of another device's values.
    Copy,
    /// Scratch of a kernel.
    Scratch,
    /// Values that are computed again.
    Again,
}

/// A value in a buffer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Value {
    /// Its node, by position.
    pub node: u32,
    /// The queue and the number of the command that writes it.
    pub writer: (u32, u32),
    /// The same of those that read it.
    pub readers: Vec<(u32, u32)>,
}

/// The commands of a device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Queue {
    /// The device, by position among the needs.
    pub need: usize,
    /// In order.
    pub commands: Vec<Command>,
}

/// A command.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Command {
    /// The nodes that it does, the one that it is named after first, by position.
    pub nodes: Vec<u32>,
    /// What it is.
    pub work: Work,
    /// The name of the kernel; where a copy goes.
    pub detail: String,
    /// When it starts and ends, in predicted seconds.
    pub predicted: (f64, f64),
    /// When it started and ended in a measured run.
    pub measured: Option<(f64, f64)>,
    /// For each wait, the queue and how many of its commands are finished then.
    pub waits: Vec<(u32, u32)>,
    /// Bytes that it reads and writes.
    pub traffic: (u64, u64),
}

/// The work of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Work {
    /// A kernel.
    #[default]
    Kernel,
    /// A copy.
    Copy,
    /// A read or write of a file.
    File,
    /// The beginning or the end of a loop.
    Loop,
    /// A kernel that runs again so that the plan fits.
    Again,
}

/// What was done so that a plan fits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fitting {
    /// The names of what runs again.
    pub recomputed: Vec<String>,
    /// Bytes that wait in slower memory meanwhile.
    pub offloaded: Bytes,
    /// Of how many values a mask is kept in their place.
    pub masked: usize,
    /// How many chains of operations are done part by part.
    pub parts: usize,
    /// How many loops keep their state at every k-th iteration in the place of lists.
    pub segments: usize,
    /// The bytes of arenas that this saves.
    pub saved: Bytes,
}

/// What less memory of a device costs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curve {
    /// The device, by position among the needs.
    pub need: usize,
    /// From the lowest line to the highest.
    pub points: Vec<Point>,
}

/// A line, and the plan that fits it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Point {
    /// The line.
    pub limit: Bytes,
    /// The peak under it.
    pub peak: Bytes,
    /// Predicted seconds of a step.
    pub seconds: f64,
    /// How many commands run again.
    pub recomputed: usize,
    /// Bytes that wait in slower memory.
    pub offloaded: Bytes,
    /// Of how many values a mask is kept in their place.
    pub masked: usize,
    /// How many chains of operations are done part by part.
    pub parts: usize,
    /// How many loops keep their state at every k-th iteration in the place of lists.
    pub segments: usize,
    /// For each command of the device, in order: when it ends, in predicted seconds, and the bytes that are live during it.
    pub profile: Vec<(f64, Bytes)>,
}

/// The most bytes of a page that has plans for several N, where fewer plans can make it so.
const LARGEST_IN_N: usize = 1_000_000;
/// Said where plans are left out.
const LEFT_OUT: &str = "Plans for other N are left out, as the page would be larger than 1 MB: name one N, and its plan is drawn";

impl Picture {
    /// The page. It works in any browser, without a network. Of plans for several N some are left out where it would be larger than
    /// 1 MB; the last one stays.
    pub fn html(&self) -> String {
        let page = self.page();
        match self.with_fewer_sizes() {
            Some(fewer) if page.len() > LARGEST_IN_N => fewer.html(),
            _ => page,
        }
    }

    /// Without the plan before the last, where the plans are those of several N.
    fn with_fewer_sizes(&self) -> Option<Picture> {
        let before = self.models.len().checked_sub(2)?;
        let mut fewer = self.clone();
        let drawn = &mut fewer.sizes.as_mut()?.drawn;
        if drawn.len() != fewer.models.len() {
            return None;
        }
        drawn.remove(before);
        fewer.models.remove(before);
        if !fewer.notes.iter().any(|note| note == LEFT_OUT) {
            fewer.notes.push(LEFT_OUT.to_string());
        }
        Some(fewer)
    }

    fn page(&self) -> String {
        let mut text = self.sizes.as_ref().map_or_else(String::new, |sizes| format!("{}\n", crate::shown_lines(&sizes.text)));
        for model in &self.models {
            text += &format!("{}\n{}\n\n", crate::shown(&model.name), crate::shown_lines(&model.text));
        }
        page(&Shell {
            title: &self.title,
            style: include_str!("page.css"),
            script: Some(include_str!("page.js")),
            data: Some(&compact::picture(self)),
            body: &format!("<main id=\"page\"></main>\n<noscript><pre>{}</pre></noscript>", crate::escaped(&text)),
        })
    }
}

impl Picture {
    /// The page in a frame of its own, as a part of another page: a notebook's. Its script reaches nothing of that.
    pub fn frame(&self) -> String {
        let page = crate::escaped(&self.html());
        format!(
            "<iframe sandbox=\"allow-scripts\" width=\"100%\" height=\"900\" frameborder=\"0\" title=\"a plan\" srcdoc=\"{page}\"></iframe>"
        )
    }
}

impl Buffer {
    /// Whether it is the scratch of a loop, in which the buffers of its body lie. That of a kernel is taken during one command.
    pub fn is_loop(&self) -> bool {
        self.kind == Kind::Scratch && self.commands.0 < self.commands.1
    }
}

impl Device {
    /// For each command of its queue, the bytes of the arena that are live during it, each buffer with the gap behind it. During a loop,
    /// all its scratch is.
    pub fn profile(&self, commands: usize) -> Vec<u64> {
        let mut changes = vec![0i128; commands.max(1) + 1];
        let last = changes.len() - 2;
        for buffer in self.buffers.iter().filter(|buffer| buffer.depth == 0) {
            let (from, to) = (buffer.commands.0 as usize, buffer.commands.1 as usize);
            changes[from.min(last)] += i128::from(buffer.slot);
            changes[to.max(from).min(last) + 1] -= i128::from(buffer.slot);
        }
        changes.pop();
        let mut live = 0i128;
        let mut add = |change: i128| {
            live += change;
            u64::try_from(live).unwrap_or(0)
        };
        changes.into_iter().map(&mut add).collect()
    }

    /// What stays for the whole step.
    pub fn resident(&self) -> Bytes {
        self.bands.iter().map(|band| band.bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_large_plans_has_fewer_of_them() {
        let of = |bytes: usize| {
            let model = |n: &u64| Model { name: format!("N = {n}"), text: "words\n".repeat(bytes / 6), ..Model::default() };
            let drawn = vec![1, 8, 40];
            let models = drawn.iter().map(model).collect();
            let page = Picture { models, sizes: Some(Sizes { drawn, ..Sizes::default() }), ..Picture::default() }.html();
            let names = [1, 8, 40].map(|n| page.contains(&format!("\"name\":\"N = {n}\"")));
            (names, page.contains(LEFT_OUT))
        };
        assert_eq!(of(1000), ([true, true, true], false));
        assert_eq!(of(350_000), ([true, false, true], true));
        // The last one stays, however large it is.
        for bytes in [600_000, 3_000_000] {
            assert_eq!(of(bytes), ([false, false, true], true));
        }
    }
}
