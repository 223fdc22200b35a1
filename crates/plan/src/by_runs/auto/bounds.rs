//! What an assignment takes at least, known before its queues have run to the end.

use plimsoll_placer::Device;

use super::moments::Readers;
use super::problem::Problem;

/// Bounds of works that are not run yet.
pub(super) struct Bounds {
    /// For each work, the least seconds of the longest path of works behind it, without copies.
    pub tails: Vec<f64>,
    /// For each engine, the seconds of all works there in the assignment that was loaded last. Works that may be fused do not count.
    pub loads: Vec<f64>,
    /// For each part, for each kind of device: the seconds of its works.
    of_part: Vec<f64>,
}

impl Bounds {
    pub fn new(problem: &Problem, readers: &Readers, engines: usize) -> Bounds {
        let mut tails = vec![0.0f64; problem.works.len()];
        let mut of_part = vec![0.0; problem.choices.len() * problem.kinds];
        for (index, work) in problem.works.iter().enumerate().rev() {
            let readers = problem.writes[work.writes.clone()].iter().flat_map(|value| readers.of(*value as usize));
            let behind = readers.map(|reader| *reader as usize).filter(|reader| *reader > index);
            tails[index] = behind.map(|reader| problem.least_seconds(reader) + tails[reader]).fold(0.0, f64::max);
            if work.fused_into.is_none() {
                for kind in 0..problem.kinds {
                    of_part[work.part as usize * problem.kinds + kind] += problem.seconds[index * problem.kinds + kind];
                }
            }
        }
        Bounds { tails, loads: vec![0.0; engines], of_part }
    }

    /// Adds up what engines have to do; each device has one for its works, and one for copies.
    pub fn load(&mut self, problem: &Problem, devices: &[Device], engines: &[(usize, usize)]) {
        self.loads.fill(0.0);
        for (part, device) in devices.iter().enumerate() {
            let (device, kinds) = (usize::from(*device), problem.kinds);
            self.loads[engines[device].0] += self.of_part[part * kinds + usize::from(problem.kind_of[device])];
        }
    }
}
