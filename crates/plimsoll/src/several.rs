//! Several models on the same devices, opened together.

use std::path::Path;

use plimsoll_base::{Bytes, Code, Result};
use plimsoll_graph::Graph;
use plimsoll_plan::{Growth, Objective, Signature, SignatureInN};

use crate::model::{self, SavedGraph, Tags};
use crate::values::Values;
use crate::{Devices, Footprint, Joint, PlacementMode, Session};

/// Models that are to share devices, each with its runs, one after the other: its initializer, at last its steps. Opened together
/// they are placed by [`PlacementMode`]: by TensorFlow's rules each for itself, by first fit, or by predicted time. By first fit a
/// model without room beside those before it goes to the next device, or in pieces to several, or takes its turn.
///
/// ```no_run
/// # use plimsoll::{Devices, Options, PlacementMode, Signature};
/// # fn main() -> plimsoll::Result<()> {
/// # let (run_of_a, run_of_b) = (Signature::default(), Signature::default());
/// let devices = Devices::open(&Options::new().limit("GPU:0", "8GiB").placement(PlacementMode::FirstFit))?;
/// let mut several = devices.several();
/// several.load("a.pb", vec![run_of_a])?.load("b.pb", vec![run_of_b])?;
/// let opened = several.open()?;
/// opened.log.iter().for_each(|line| println!("{line}")); // a.pb: whole on GPU:0: fits: …
/// let [a, b] = &opened.sessions[..] else { unreachable!() };
/// # let _ = (a, b);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Several<'a> {
    devices: &'a Devices,
    models: Vec<OneOfSeveral>,
}

#[derive(Debug)]
struct OneOfSeveral {
    name: String,
    session: Session,
    runs: Vec<Signature>,
}

/// Models that were opened together.
#[derive(Debug)]
pub struct Opened {
    /// Their sessions, in the order of the models. Variables of SavedModels have their values.
    pub sessions: Vec<Session>,
    /// The sum of what they take of each device, and whether they run side by side or in turn.
    pub joint: Joint,
    /// The attempts to place them by first fit or by time, a line each: the last one of a model is where it is.
    pub log: Vec<String>,
}

/// A session that was placed, and its footprint.
#[derive(Debug)]
pub struct Placed {
    /// The session. Nothing has run.
    pub session: Session,
    /// Its footprint on each device.
    pub footprint: Footprint,
    /// What no placement takes less than, if that is known, and the attempts, a line each, the last of them chosen; nothing by TensorFlow's
    /// rules.
    pub log: Vec<String>,
    /// What TensorFlow's rules, first fit and predicted time come to; nothing where it is not placed by time.
    pub compared: Vec<Compared>,
    /// Seconds that a step takes at least, wherever it is placed; between two steps where a stream counts. None where that is not known.
    pub least_seconds: Option<f64>,
    /// Whether it has no room beside the others.
    takes_turn: bool,
}

/// What a rule of placement comes to for a model.
#[derive(Clone, Debug)]
pub struct Compared {
    /// The rule, as `--placement` names it: `tensorflow`, `first-fit`, `auto`.
    pub rule: &'static str,
    /// Whether every device has the room.
    pub fits: bool,
    /// Whether plans were made to fit.
    pub is_fitted: bool,
    /// The predicted seconds of a step.
    pub seconds: f64,
    /// The predicted seconds between two steps of a stream.
    pub interval: f64,
    /// The bytes that a step moves from one device to another.
    pub moved: Bytes,
    /// The bytes that it takes of each device.
    pub footprint: Footprint,
    /// All of it as a line.
    pub text: String,
}

impl From<plimsoll_plan::Compared> for Compared {
    fn from(compared: plimsoll_plan::Compared) -> Compared {
        let text = compared.to_string();
        let plimsoll_plan::Compared { rule, tried, footprint } = compared;
        let (fits, is_fitted, seconds, interval, moved) = (tried.fits(), tried.is_fitted, tried.seconds, tried.interval, tried.moved);
        Compared { rule: rule.name(), fits, is_fitted, seconds, interval, moved, footprint: Footprint(footprint), text }
    }
}

/// A model to be placed beside others: its name, its session, and its runs, one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Beside<'a> {
    /// The name that errors have.
    pub name: &'a str,
    /// The session.
    pub session: &'a Session,
    /// The runs.
    pub runs: &'a [Signature],
}

impl<'a> Several<'a> {
    pub(crate) fn new(devices: &'a Devices) -> Several<'a> {
        Several { devices, models: Vec::new() }
    }

    /// Adds a graph, and its runs.
    ///
    /// # Errors
    /// As [`Devices::session`].
    pub fn graph(&mut self, name: &str, graph: Graph, runs: Vec<Signature>) -> Result<&mut Self> {
        let session = self.devices.unlogged(graph, &Values::default(), Vec::new())?;
        self.models.push(OneOfSeveral { name: name.to_string(), session, runs });
        Ok(self)
    }

    /// Adds the model at `path`, and its runs, beside the restoring of a SavedModel.
    ///
    /// # Errors
    /// As [`Devices::load`], but for errors of restoring.
    pub fn load(&mut self, path: impl AsRef<Path>, runs: Vec<Signature>) -> Result<&mut Self> {
        self.load_tagged(path, &Tags::default(), runs)
    }

    /// As [`Several::load`], of the graphs of a SavedModel the one with these tags.
    ///
    /// # Errors
    /// As [`Devices::load_tagged`], but for errors of restoring.
    pub fn load_tagged(&mut self, path: impl AsRef<Path>, tags: &Tags, mut runs: Vec<Signature>) -> Result<&mut Self> {
        let path = path.as_ref();
        let SavedGraph { graph, values, init, signatures, .. } = SavedGraph::of(model::read(path)?.with_tags(tags)?, path)?;
        let session = self.devices.unlogged(self.devices.resolve(graph)?, &values, init)?.with_signatures(signatures);
        let session = session.prepared_for_signatures(self.devices.registry());
        if !session.preparation().is_empty() {
            runs.insert(0, Signature { targets: session.preparation().to_vec(), ..Signature::default() });
        }
        self.models.push(OneOfSeveral { name: path.display().to_string(), session, runs });
        Ok(self)
    }

    /// Places them, and restores SavedModels.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED where one of them fits in no way by itself; the errors of planning and restoring.
    pub fn open(self) -> Result<Opened> {
        let beside = self.models.iter().map(|model| Beside { name: &model.name, session: &model.session, runs: &model.runs });
        let all = self.devices.place_all(&beside.collect::<Vec<_>>())?;
        let mut log = Vec::new();
        let mut placed: Vec<(OneOfSeveral, Footprint)> = Vec::with_capacity(self.models.len());
        for (model, one) in self.models.into_iter().zip(all) {
            log.extend(one.log.iter().map(|line| format!("{}: {line}", model.name)));
            placed.push((OneOfSeveral { session: one.session, ..model }, one.footprint));
        }
        let joint = Joint::new(placed.iter().map(|(model, footprint)| (model.name.clone(), footprint.clone())));
        joint.check()?;
        let mut sessions = Vec::with_capacity(placed.len());
        for (model, _) in placed {
            // By first fit and by time it was written where it was placed.
            if !self.devices.options().placement.looks_at_runs() {
                self.devices.write_log(&model.session);
            }
            model.session.prepare()?;
            sessions.push(model.session);
        }
        Ok(Opened { sessions, joint, log })
    }
}

impl Devices {
    /// Models to be opened together.
    pub fn several(&self) -> Several<'_> {
        Several::new(self)
    }

    /// Places a session's graph by [`PlacementMode`] for these runs, one after the other, beside models that take this at the same
    /// time. By first fit and by time it also leaves room for other programs' present use of the cards. By TensorFlow's rules it is where it
    /// was; otherwise it is a new session, and the old one should go. A model that fits in no way beside the others is placed as
    /// if they were not there: it has to take its turn, as [`Joint`] says.
    ///
    /// # Errors
    /// By first fit and by time RESOURCE_EXHAUSTED where it fits in no way by itself, with all attempts; the errors of planning.
    pub fn place(&self, session: &Session, runs: &[Signature], beside: &[&Footprint]) -> Result<Placed> {
        let placed = self.place_unlogged(session, runs, beside)?;
        if self.options().placement.looks_at_runs() {
            self.write_log(&placed.session);
        }
        Ok(placed)
    }

    /// Places models side by side, each as [`Devices::place`] does it beside those that were placed before it. They are placed in their
    /// order, or where one of them has no room then, in another one that gives more of them room: the largest first, or the last first.
    /// The models as they were placed, in their own order.
    ///
    /// # Errors
    /// As [`Devices::place`]; where there is no room, with the model's name.
    pub fn place_all(&self, models: &[Beside<'_>]) -> Result<Vec<Placed>> {
        let written: Vec<usize> = (0..models.len()).collect();
        let mut best = self.place_in_order(models, &written)?;
        let turns = |all: &[Placed]| all.iter().filter(|placed| placed.takes_turn).count();
        if turns(&best) > 0 {
            let size = |placed: &Placed| placed.footprint.needs().iter().map(|need| need.peak.0).sum::<u64>();
            let sizes: Vec<u64> = best.iter().map(size).collect();
            let mut largest = written.clone();
            largest.sort_by_key(|model| std::cmp::Reverse(sizes[*model]));
            let last: Vec<usize> = written.iter().rev().copied().collect();
            let mut orders = vec![(largest, "the largest model first"), (last, "the last model first")];
            orders.dedup_by(|one, other| one.0 == other.0);
            for (order, said) in orders.into_iter().filter(|(order, _)| *order != written) {
                let Ok(mut other) = self.place_in_order(models, &order) else { continue };
                if turns(&other) < turns(&best) {
                    let line = format!("placed {said}: in the order as written, not all have room side by side");
                    other.iter_mut().for_each(|placed| placed.log.insert(0, line.clone()));
                    best = other;
                }
            }
        }
        if self.options().placement.looks_at_runs() {
            best.iter().for_each(|placed| self.write_log(&placed.session));
        }
        Ok(best)
    }

    /// Places models in an order; as they were placed, in their own.
    fn place_in_order(&self, models: &[Beside<'_>], order: &[usize]) -> Result<Vec<Placed>> {
        let mut all: Vec<(usize, Placed)> = Vec::with_capacity(models.len());
        for &model in order {
            let beside: Vec<&Footprint> = all.iter().map(|(_, placed)| &placed.footprint).collect();
            let Beside { name, session, runs } = models[model];
            let placed = self.place_unlogged(session, runs, &beside).map_err(|error| match error.is_no_room() {
                true => error.context(name),
                false => error,
            })?;
            all.push((model, placed));
        }
        all.sort_by_key(|(model, _)| *model);
        Ok(all.into_iter().map(|(_, placed)| placed).collect())
    }

    /// As [`Devices::place`]; nothing is written of it.
    fn place_unlogged(&self, session: &Session, runs: &[Signature], beside: &[&Footprint]) -> Result<Placed> {
        let mode = self.options().placement;
        if !mode.looks_at_runs() {
            return self.where_it_is(session, runs);
        }
        // Memory of the cards that other programs have is not there for this one.
        let elsewhere = self.memory_out_of_reach()?;
        let mut taken = elsewhere.clone();
        for footprint in beside {
            let others = footprint.needs().iter().zip(self.specs());
            taken.iter_mut().zip(others).for_each(|(taken, (need, spec))| *taken += need.peak - spec.overhead);
        }
        let objective = match mode {
            PlacementMode::Auto => Some(Objective::Latency),
            PlacementMode::AutoThroughput => Some(Objective::Throughput),
            _ => None,
        };
        let place = |taken: &[Bytes]| match objective {
            Some(objective) => session.inner().auto(runs, taken, objective),
            None => session.inner().first_fit(runs, taken),
        };
        let (fitted, turn) = match place(&taken) {
            Err(error) if error.is_no_room() && !beside.is_empty() => {
                (place(&elsewhere)?, Some("fits nowhere beside the models before it, whole or in pieces: takes its turn"))
            }
            // Runs in stages are planned by the session alone.
            Err(error) if objective.is_some() && error.code() == Code::Unimplemented => {
                let placed = self.where_it_is(session, runs)?;
                return Ok(Placed { log: vec![format!("by TensorFlow's rules alone: {}", error.message())], ..placed });
            }
            fitted => (fitted?, None),
        };
        let tried = fitted.tried.iter().map(|tried| objective.map_or_else(|| tried.to_string(), |objective| tried.timed(objective)));
        let bound = objective.zip(fitted.least);
        let least_seconds = bound.map(|(objective, least)| least.seconds(objective));
        let least = bound.map(|(objective, least)| least.text(objective));
        let log = turn.map(str::to_string).into_iter().chain(least).chain(tried).collect();
        let placed = session.placed(session.inner().with_placement(fitted.placement)?);
        let (footprint, compared) = (Footprint(fitted.footprint), fitted.compared.into_iter().map(Compared::from).collect());
        Ok(Placed { session: placed, footprint, log, compared, least_seconds, takes_turn: turn.is_some() })
    }

    /// A session as it is placed, with its footprint.
    fn where_it_is(&self, session: &Session, runs: &[Signature]) -> Result<Placed> {
        let mut footprint = Footprint::new(self.specs());
        for run in runs {
            let plan = session.plan_signature(run)?;
            footprint.add(&plan);
        }
        Ok(Placed { session: session.clone(), footprint, log: Vec::new(), compared: Vec::new(), least_seconds: None, takes_turn: false })
    }

    /// The peaks of a session for a signature with dimensions that are N, placed as [`Devices::place`] does it for each N: 1, 2, 4 and
    /// so on until a line is met, then the largest N that fits. `init` is a run before.
    ///
    /// # Errors
    /// The errors of planning, where the graph takes no small N.
    pub fn growth(&self, session: &Session, init: Option<&Signature>, signature: &SignatureInN) -> Result<Growth> {
        Growth::search(|n| {
            let runs: Vec<Signature> = init.cloned().into_iter().chain([signature.at(n)?]).collect();
            Ok(self.place(session, &runs, &[])?.footprint.0)
        })
    }
}
