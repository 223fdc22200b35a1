//! Checkpoints that are written while a training goes on.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use plimsoll::{Error, Result};

use crate::trainer::{Step, Trainer};

/// How many checkpoints of one training are kept: the latest ones, as TensorFlow's Saver does.
const KEPT: usize = 5;

/// How often a checkpoint is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Every {
    /// At every step whose number is a multiple of this; not 0.
    Steps(u64),
    /// After the first step that ends so long after the checkpoint before.
    Time(Duration),
}

/// Writes the checkpoints of one training into a folder. A checkpoint is complete before it has its name, and has its name before
/// the file `checkpoint` says that it is the latest. Whenever the process ends, the latest one is whole.
#[derive(Debug)]
pub struct Saver {
    folder: PathBuf,
    every: Vec<Every>,
    /// The checkpoints that were written here and are there, with their steps; the oldest first.
    kept: VecDeque<(u64, PathBuf)>,
    saved: Instant,
}

impl Saver {
    /// For checkpoints in `folder`, as often as the first of `every` asks for one.
    pub fn new(folder: impl Into<PathBuf>, every: impl Into<Vec<Every>>) -> Saver {
        Saver { folder: folder.into(), every: every.into(), kept: VecDeque::new(), saved: Instant::now() }
    }

    /// Finds out whether a checkpoint can be written to the folder, which exists from now on.
    ///
    /// # Errors
    /// FAILED_PRECONDITION with the system's reason.
    pub fn check(&self) -> Result<()> {
        let probe = self.folder.join(format!(".probe-{}", std::process::id()));
        let made = std::fs::create_dir_all(&self.folder);
        let attempt = made.and_then(|()| std::fs::write(&probe, [0])).and_then(|()| std::fs::remove_file(&probe));
        attempt.map_err(|error| Error::failed_precondition(error.to_string()))
    }

    /// Writes a checkpoint, unless the latest one is of the same step; its prefix. The oldest one that was written here goes where
    /// more than five would be kept.
    ///
    /// # Errors
    /// As [`crate::checkpoint::save`].
    pub fn save(&mut self, trainer: &Trainer) -> Result<PathBuf> {
        self.saved = Instant::now();
        if let Some((_, prefix)) = self.kept.back().filter(|(step, _)| *step == trainer.steps()) {
            return Ok(prefix.clone());
        }
        let prefix = trainer.save(&self.folder)?;
        // The end of its period begins when it is written.
        self.saved = Instant::now();
        self.kept.push_back((trainer.steps(), prefix.clone()));
        while self.kept.len() > KEPT {
            if let Some((_, oldest)) = self.kept.pop_front() {
                plimsoll::checkpoint::remove(&oldest)?;
            }
        }
        Ok(prefix)
    }

    /// The step after `step` at which one is due, if steps count.
    fn step_after(&self, step: u64) -> Option<u64> {
        let next = |every: &Every| match every {
            Every::Steps(steps) => (step / steps.max(&1) + 1).checked_mul(*steps.max(&1)),
            Every::Time(_) => None,
        };
        self.every.iter().filter_map(next).min()
    }

    /// When the next one is due, if time counts.
    fn due(&self) -> Option<Instant> {
        let due = |every: &Every| match every {
            Every::Steps(_) => None,
            Every::Time(period) => self.saved.checked_add(*period),
        };
        self.every.iter().filter_map(due).min()
    }
}

impl Trainer {
    /// As [`Trainer::run`], and writes checkpoints on the way. `written` is told of each of them, and of one that could not be
    /// written: the training goes on without it.
    ///
    /// # Errors
    /// As [`Trainer::run`].
    pub fn run_and_save(
        &mut self,
        until: u64,
        saver: &mut Saver,
        is_over: &(dyn Fn() -> bool + Sync),
        show: &(dyn Fn(Step) + Sync),
        written: &dyn Fn(Result<&Path>),
    ) -> Result<Option<Step>> {
        saver.saved = Instant::now();
        let mut last = None;
        loop {
            let pause = saver.step_after(self.steps()).map_or(until, |step| step.min(until));
            let (due, has_stepped) = (saver.due(), AtomicBool::new(false));
            // A period that is shorter than a step still lets one step through.
            let is_due = || has_stepped.load(Ordering::Relaxed) && due.is_some_and(|due| Instant::now() >= due);
            let stepped = |step| {
                has_stepped.store(true, Ordering::Relaxed);
                show(step);
            };
            last = self.run(pause, &|| is_over() || is_due(), &stepped)?.or(last);
            if self.steps() >= until || is_over() {
                return Ok(last);
            }
            written(saver.save(self).as_deref().map_err(Clone::clone));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_asks_decides() {
        let saver = |every: &[Every]| Saver::new("folder", every);
        assert_eq!(saver(&[]).step_after(7), None);
        assert_eq!(saver(&[Every::Steps(5)]).step_after(0), Some(5));
        assert_eq!(saver(&[Every::Steps(5), Every::Steps(4)]).step_after(10), Some(12));
        assert_eq!(saver(&[Every::Steps(u64::MAX)]).step_after(u64::MAX), None);
        assert!(saver(&[Every::Steps(5)]).due().is_none() && saver(&[Every::Time(Duration::MAX)]).due().is_none());
        let both = saver(&[Every::Time(Duration::from_secs(9)), Every::Time(Duration::from_secs(5))]);
        assert_eq!(both.due(), Some(both.saved + Duration::from_secs(5)));
    }
}
