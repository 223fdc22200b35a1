//! Placements that look at the runs: where a model goes by what its plans take of each device. TensorFlow's placer looks at the graph
//! alone.
//!
//! [`first_fit`] goes by size: whole, or in pieces. [`auto`] goes by predicted time under the lines. In both, what a node asks for
//! and which kernels there are is the placer's to say: both choose among the placements in which one device or another comes first.

mod auto;
mod first_fit;
mod trial;
mod units;
mod wholes;

use std::fmt;
use std::sync::Arc;

use plimsoll_base::{Bytes, Result};
use plimsoll_device::{Costs, DeviceSpec, Library};
use plimsoll_graph::{Graph, NodeId};
use plimsoll_ops::Registry;

pub use self::auto::auto;
pub use self::first_fit::first_fit;
use crate::fit::{Lines, Searches};
use crate::footprint::Footprint;
use crate::place::{PlaceOptions, Placement};
use crate::plan::Plan;
use crate::request::Signature;

/// What is to be small.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Objective {
    /// The time of a step.
    #[default]
    Latency,
    /// The time between steps of a stream, of which several run at once: that of the part of the machine that has most to do.
    Throughput,
}

/// What such a placement looks at.
#[derive(Clone)]
pub struct PlaceRequest<'a> {
    /// The graph, calls inlined.
    pub graph: &'a Graph,
    /// The operations' rules.
    pub registry: &'a Registry,
    /// The devices.
    pub devices: &'a [DeviceSpec],
    /// For each device, the kernels that it has.
    pub libraries: &'a [&'a dyn Library],
    /// What kernels take.
    pub costs: &'a Costs,
    /// How the placer deals with requests.
    pub options: PlaceOptions,
    /// The runs, one after the other. The last of them counts for time, and for the order of nodes.
    pub runs: &'a [Signature],
    /// The bytes of each device that others take at the same time, beside the device's own overhead.
    pub taken: &'a [Bytes],
    /// The graph that a plan of a run is made of: this one, or one with the same nodes ([`crate::Freeze::rewired`]).
    pub graph_for: &'a (dyn Fn(&Signature) -> &'a Graph + Sync),
    /// Nodes that are on the device of another, whatever the placer says of them.
    pub beside: &'a [(NodeId, NodeId)],
    /// Says of a plan that was made with a placement what only its session knows: which values are in files, and what runs before.
    pub complete: &'a (dyn Fn(Plan, &Placement) -> Result<Plan> + Sync),
    /// Whether plans may be made to fit where nothing fits as it is: see [`crate::Lines`]. First fit does not.
    pub fit: bool,
    /// Where what searches of plans find is kept.
    pub searches: Arc<Searches>,
}

impl PlaceRequest<'_> {
    /// The lines of a plan whose devices may hold so much.
    fn lines(&self, most: Vec<Option<Bytes>>) -> Lines {
        Lines { most, searches: Some(Arc::clone(&self.searches)), ..Lines::default() }
    }

    /// The bytes of a device that others leave.
    fn left(&self, device: usize) -> Option<Bytes> {
        let taken = self.taken.get(device).copied().unwrap_or_default();
        self.devices[device].memory_limit.map(|limit| limit - taken)
    }
}

/// A model that was placed.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// Where its nodes are.
    pub placement: Placement,
    /// The bytes that it takes of each device.
    pub footprint: Footprint,
    /// The attempts, in order; the last is the choice.
    pub tried: Vec<Tried>,
    /// What no placement takes less than; none where it is not known.
    pub least: Option<Least>,
    /// What TensorFlow's rules, first fit and predicted time come to: nothing by first fit alone.
    pub compared: Vec<Compared>,
}

/// A rule that says where nodes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// TensorFlow's rules alone.
    TensorFlow,
    /// By size.
    FirstFit,
    /// By predicted time under the lines.
    Auto,
}

impl Rule {
    /// Its name as an option has it: `tensorflow`, `first-fit`, `auto`.
    pub fn name(self) -> &'static str {
        match self {
            Rule::TensorFlow => "tensorflow",
            Rule::FirstFit => "first-fit",
            Rule::Auto => "auto",
        }
    }
}

/// What a rule comes to.
#[derive(Clone, Debug)]
pub struct Compared {
    /// The rule.
    pub rule: Rule,
    /// What its placement takes.
    pub tried: Tried,
    /// The bytes that it takes of each device.
    pub footprint: Footprint,
}

impl fmt::Display for Compared {
    /// `first-fit: fits: 21.9 us a step, 4 B moved between devices, peaks: CPU:0 4 KiB, GPU:0 7.02 MiB`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Compared { rule, tried, footprint } = self;
        let peaks = footprint.needs().iter().filter(|need| need.peak > Bytes::ZERO);
        let peaks: Vec<String> = peaks.map(|need| format!("{} {}", short(&need.name), need.peak)).collect();
        let (seconds, fits) = (seconds_text(tried.seconds), tried.fits_text());
        write!(f, "{}: {fits}: {seconds} a step, {} moved between devices, peaks: {}", rule.name(), tried.moved, peaks.join(", "))
    }
}

fn short(name: &str) -> &str {
    name.rsplit("device:").next().unwrap_or(name)
}

/// What the last run takes at least, whatever its placement. Elementwise works do not count, since they may be fused, nor do copies
/// and lines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Least {
    /// Seconds of the longest path, with each work where it takes the least.
    pub path: f64,
    /// Seconds of all works, divided among the devices.
    pub works: f64,
}

impl Least {
    /// Seconds that are to be small.
    pub fn seconds(&self, objective: Objective) -> f64 {
        match objective {
            Objective::Latency => self.path.max(self.works),
            Objective::Throughput => self.works,
        }
    }

    /// As it prints.
    pub fn text(&self, objective: Objective) -> String {
        let [path, works] = [self.path, self.works].map(seconds_text);
        match objective {
            Objective::Latency => format!("no placement is below {path} on a path and {works} of work for each device"),
            Objective::Throughput => format!("no placement is below {works} of work for each device"),
        }
    }
}

/// A way to place a model, and what it takes.
#[derive(Clone, Debug, PartialEq)]
pub struct Tried {
    /// How its nodes came to their devices.
    pub how: How,
    /// For each device that would hold something: its name, the bytes needed, and the bytes left for it if it has a line. Both are
    /// without the device's own overhead.
    pub needs: Vec<(String, Bytes, Option<Bytes>)>,
    /// The predicted seconds of the last run.
    pub seconds: f64,
    /// The predicted seconds between the ends of two of them, where several run at once ([`Plan::interval`]).
    pub interval: f64,
    /// The bytes that the last run moves from one device to another.
    pub moved: Bytes,
    /// Whether its plans were made to fit.
    pub is_fitted: bool,
}

/// How nodes come to devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum How {
    /// In their order, as these pieces; one piece is the whole.
    Pieces(Vec<Piece>),
    /// By TensorFlow's rules alone.
    TensorFlow,
    /// By predicted time under the lines: the attempt of that number, from 1, with the nodes that run on each device.
    Auto {
        /// The number.
        number: usize,
        /// For each device that has some, its short name and how many.
        nodes: Vec<(String, usize)>,
    },
}

/// A part of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The device's short name.
    pub device: String,
    /// How many nodes that run are in it.
    pub nodes: usize,
    /// The first of them.
    pub first: String,
}

impl Tried {
    /// Whether every device has the room.
    pub fn fits(&self) -> bool {
        self.needs.iter().all(|(_, needed, left)| left.is_none_or(|left| *needed <= left))
    }

    /// `fits`, `is made to fit` or `does not fit`.
    pub fn fits_text(&self) -> &'static str {
        match (self.fits(), self.is_fitted) {
            (true, true) => "is made to fit",
            (true, false) => "fits",
            _ => "does not fit",
        }
    }

    /// As it prints, with the predicted time of the last run and the bytes that this moves between devices.
    pub fn timed(&self, objective: Objective) -> String {
        let stream = match objective {
            Objective::Latency => String::new(),
            Objective::Throughput => format!("one every {} in a stream, ", seconds_text(self.interval)),
        };
        format!("{self}; {} a step, {stream}{} moved between devices", seconds_text(self.seconds), self.moved)
    }

    /// What is to be small.
    fn rate(&self, objective: Objective) -> f64 {
        match objective {
            Objective::Latency => self.seconds,
            Objective::Throughput => self.interval,
        }
    }

    /// The pieces, in order; none where it was not cut.
    pub fn pieces(&self) -> &[Piece] {
        match &self.how {
            How::Pieces(pieces) => pieces,
            _ => &[],
        }
    }
}

/// `4.2 us`.
fn seconds_text(seconds: f64) -> String {
    // A sum of nothing is -0.
    let seconds = seconds + 0.0;
    match seconds {
        _ if seconds >= 1.0 => format!("{seconds:.2} s"),
        _ if seconds >= 1e-3 => format!("{:.2} ms", seconds * 1e3),
        _ => format!("{:.1} us", seconds * 1e6),
    }
}

/// `whole on GPU:0`; `in pieces, 12 nodes from x on GPU:0, 30 nodes from w3 on CPU:0`; `by TensorFlow's rules`; `auto 2, 12 nodes
/// on GPU:0 and 1 node on CPU:0`.
impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            How::Pieces(pieces) => match &pieces[..] {
                [piece] => write!(f, "whole on {}", piece.device),
                pieces => {
                    let piece = |piece: &Piece| format!("{} nodes from {} on {}", piece.nodes, piece.first, piece.device);
                    write!(f, "in pieces, {}", pieces.iter().map(piece).collect::<Vec<_>>().join(", "))
                }
            },
            How::TensorFlow => f.write_str("by TensorFlow's rules"),
            How::Auto { number, nodes } => {
                let on = |(device, nodes): &(String, usize)| format!("{nodes} {} on {device}", if *nodes == 1 { "node" } else { "nodes" });
                write!(f, "auto {number}, {}", nodes.iter().map(on).collect::<Vec<_>>().join(" and "))
            }
        }
    }
}

/// `whole on GPU:0: fits: 5 MiB of 8 MiB left on GPU:0`.
impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.how)?;
        write!(f, ": {}: ", self.fits_text())?;
        let need = |(device, needed, left): &(String, Bytes, Option<Bytes>)| match left {
            Some(left) if needed > left => format!("{device} needs {needed} and has {left} left, {} bytes short", (*needed - *left).0),
            Some(left) => format!("{device} needs {needed} of {left} left"),
            None => format!("{device} needs {needed}, without a limit"),
        };
        f.write_str(&self.needs.iter().map(need).collect::<Vec<_>>().join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_takes_no_time() {
        assert_eq!(seconds_text(std::iter::empty::<f64>().sum()), "0.0 us");
        let least = Least { path: -0.0, works: -0.0 };
        assert!(!least.text(Objective::Latency).contains('-'), "{}", least.text(Objective::Latency));
    }
}
