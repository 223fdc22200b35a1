//! Where a device is full: the place of works, and what is computed again or waits elsewhere, chosen together.
//!
//! The searches before this one hold the lines as if no plan were made to fit. Here bytes above the lines have a price: what making the
//! plan of the fastest assignment to fit adds to a step, for each byte. What the largest work reads and makes is there in any
//! case, and is held against walls. The plans of what is found are made to fit: what they take corrects the price and the walls, and the
//! search goes on.

use plimsoll_placer::Device;

use super::problem::Problem;
use super::queues::Price;
use super::search::Search;
use super::{NEAR, Trials, assignment, corrected, needed, placement};
use crate::by_runs::trial::attempt;
use crate::by_runs::{Fitted, How, Tried};
use crate::place::Placement;

/// How many placements are made to fit, at most, beside the fastest.
const ROUNDS: usize = 4;

impl Trials<'_, '_, '_, '_> {
    /// Looks for assignments that are the fastest once their plans are made to fit. `free` is the fastest without lines.
    pub(super) fn jointly(&mut self, problem: &Problem, search: &mut Search<'_>, free: &[Device]) {
        if self.nothing_is_gained(problem, free) {
            return;
        }
        let before = search.lines().to_vec();
        self.at_a_price(problem, search, free);
        search.set_price(None);
        search.set_lines(before);
    }

    /// Whether a plan that fits takes no longer than that of the fastest assignment without lines, about.
    fn nothing_is_gained(&self, problem: &Problem, free: &[Device]) -> bool {
        let placement = placement(self.request, self.wholes, problem, free);
        let is_free = |fitted: &&Fitted| fitted.placement.devices == placement.devices;
        let time = |fitted: &Fitted| fitted.tried.last().map_or(f64::INFINITY, |tried| tried.rate(self.objective));
        let least = self.fitted.iter().find(is_free).map_or(0.0, time);
        let fits = |fitted: &&Fitted| fitted.tried.last().is_some_and(Tried::fits);
        self.fitted.iter().chain(&self.made).filter(fits).any(|fitted| time(fitted) <= least * NEAR)
    }

    fn at_a_price(&mut self, problem: &Problem, search: &mut Search<'_>, free: &[Device]) -> Option<()> {
        let (as_it_is, made) = self.both(problem, free)?;
        let (peaks, works) = (search.peaks(free), search.peaks_of_works(free));
        let per_byte = self.price(&as_it_is, &made)?;
        let is_full = |device: usize, tried: &Tried| problem.lines[device].is_some_and(|line| needed(self.request, tried, device) > line);
        let wall = |device: usize| {
            let line = problem.lines[device]?;
            let need = needed(self.request, &made, device);
            Some(if is_full(device, &made) { corrected(problem, need, works[device], device) } else { line.max(works[device]) })
        };
        let devices = 0..problem.lines.len();
        let mut price = Price { per_byte, walls: devices.clone().map(wall).collect() };
        search.set_lines(self.loosened(problem, &as_it_is, &peaks)?);
        search.set_price(Some(price.clone()));
        let mut starts = vec![free.to_vec(), search.repaired(free)];
        starts.extend(self.fitted.iter().map(|fitted| assignment(problem, self.wholes, &fitted.placement)));
        let mut found = search.best(&starts).pop()?;
        for _ in 0..ROUNDS {
            let (as_it_is, made) = self.both(problem, &found)?;
            let (peaks, works) = (search.peaks(&found), search.peaks_of_works(&found));
            for device in devices.clone() {
                let need = needed(self.request, &made, device);
                if problem.lines[device].is_some_and(|line| need > line) {
                    let wall = corrected(problem, need, works[device], device);
                    price.walls[device] = price.walls[device].map(|before| before.min(wall));
                }
            }
            if made.fits() {
                price.per_byte = self.price(&as_it_is, &made).unwrap_or(price.per_byte);
            }
            search.set_lines(self.loosened(problem, &as_it_is, &peaks)?);
            search.set_price(Some(price.clone()));
            let next = search.again(&found);
            if next == found {
                break;
            }
            found = next;
        }
        Some(())
    }

    /// What the plans of an assignment take as they are, and made to fit.
    fn both(&mut self, problem: &Problem, devices: &[Device]) -> Option<(Tried, Tried)> {
        let placement = placement(self.request, self.wholes, problem, devices);
        let is_same = |fitted: &&Fitted| fitted.placement.devices == placement.devices;
        let as_it_is = match self.fitted.iter().find(is_same) {
            Some(fitted) => fitted.tried.last()?.clone(),
            None => attempt(self.request, placement.clone(), self.named(&placement), Vec::new()).ok()?.tried.pop()?,
        };
        let made = self.made_to_fit(placement, as_it_is.how.clone())?.tried.last()?.clone();
        Some((as_it_is, made))
    }

    /// The plans of a placement, made to fit; none where there are none.
    pub(super) fn made_to_fit(&mut self, placement: Placement, how: How) -> Option<&Fitted> {
        let before = self.made.iter().position(|before| before.placement.devices == placement.devices);
        let index = match before {
            Some(index) => index,
            None => {
                let most = (0..self.request.devices.len()).map(|device| self.request.left(device)).collect();
                self.made.push(attempt(self.request, placement, how, most).ok()?);
                self.made.len() - 1
            }
        };
        self.made.get(index)
    }

    /// The seconds that plans take longer, made to fit, for each byte that they need less on the device where that is most; none where they
    /// need no less.
    fn price(&self, as_it_is: &Tried, made: &Tried) -> Option<f64> {
        let devices = 0..self.request.devices.len();
        let less = |device| needed(self.request, as_it_is, device).saturating_sub(needed(self.request, made, device));
        let bytes = devices.map(less).max().filter(|bytes| *bytes > 0)?;
        Some((made.rate(self.objective) - as_it_is.rate(self.objective)).max(0.0) / bytes as f64)
    }
}
