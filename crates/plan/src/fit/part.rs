//! The part of a problem that has to do with the memory of one device. Where other devices compute beside it, most works touch none of its
//! bytes: the search need not know them. Their time counts again where schedules are compared.

use plimsoll_fit::{Problem, State, Step};

use crate::Request;

/// Works that touch bytes or that are the device's own, in their order, with the values that they use.
struct Part {
    problem: Problem,
    /// For each work and each value of the part, its number in the whole.
    works: Vec<usize>,
    values: Vec<usize>,
}

/// The descent of a problem, of which some works are the device's own.
pub(super) fn descend(request: &Request<'_>, whole: &Problem, is_own: &[bool], effort: u64) -> Vec<State> {
    let part = Part::of(whole, is_own);
    if part.works.len() == whole.works.len() {
        return request.lines.descend(whole, effort).to_vec();
    }
    let states = request.lines.descend(&part.problem, effort);
    plimsoll_fit::row(whole, states.iter().map(|state| part.in_whole(whole, &state.steps)).collect())
}

impl Part {
    fn of(whole: &Problem, is_own: &[bool]) -> Part {
        let has_bytes = |values: &[usize]| values.iter().any(|value| whole.values[*value].bytes > 0);
        let is_kept = |at: usize| {
            let work = &whole.works[at];
            is_own[at] || work.scratch > 0 || has_bytes(&work.reads) || has_bytes(&work.writes)
        };
        let works: Vec<usize> = (0..whole.works.len()).filter(|at| is_kept(*at)).collect();
        let mut numbers = vec![usize::MAX; whole.values.len()];
        let mut values = Vec::new();
        let mut number = |value: usize| {
            if numbers[value] == usize::MAX {
                numbers[value] = values.len();
                values.push(value);
            }
            numbers[value]
        };
        // The first work of the part that is not before one of the whole.
        let from = |at: usize| works.partition_point(|kept| *kept < at);
        let of_part = |at: &usize| {
            let mut work = whole.works[*at].clone();
            work.reads.iter_mut().chain(&mut work.writes).for_each(|value| *value = number(*value));
            work.in_place.iter_mut().for_each(|(read, written)| (*read, *written) = (number(*read), number(*written)));
            // What a work left out overwrites is overwritten just before the next one.
            work.until = work.until.map(from).filter(|until| *until < works.len());
            work.after = work.after.iter().filter_map(|before| works.binary_search(before).ok()).collect();
            work
        };
        let problem =
            Problem { works: works.iter().map(of_part).collect(), base: whole.base, slow: whole.slow.clone(), ..Problem::default() };
        let problem = Problem { values: values.iter().map(|value| whole.values[*value].clone()).collect(), ..problem };
        Part { problem, works, values }
    }

    /// The steps of a schedule with the works that were left out, each just before the first run of the next work of the part.
    fn in_whole(&self, whole: &Problem, steps: &[Step]) -> Vec<Step> {
        let mut all = Vec::with_capacity(steps.len() + whole.works.len() - self.works.len());
        let mut next = 0;
        for step in steps {
            let step = match *step {
                Step::Run(work) => Step::Run(self.works[work]),
                Step::RunAs(work, way) => Step::RunAs(self.works[work], way),
                Step::Out(value) => Step::Out(self.values[value]),
                Step::In(value) => Step::In(self.values[value]),
            };
            if let Step::Run(work) | Step::RunAs(work, _) = step
                && work >= next
            {
                all.extend((next..work).map(Step::Run));
                next = work + 1;
            }
            all.push(step);
        }
        all.extend((next..whole.works.len()).map(Step::Run));
        all
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_fit::{Value, Work};

    use super::*;

    /// Two chains of works that are lost and made again, in turns; the second has no bytes here and writes what the first reads.
    fn problem() -> Problem {
        let work = |queue: usize, reads: Vec<usize>, writes: Vec<usize>| Work {
            seconds: 1.0,
            again: true,
            queue,
            reads,
            writes,
            ..Work::default()
        };
        let mut works = Vec::new();
        for layer in 0..6 {
            works.push(work(0, if layer == 0 { vec![] } else { vec![layer - 1] }, vec![layer]));
            works.push(work(1, if layer == 0 { vec![] } else { vec![5 + layer] }, vec![6 + layer]));
        }
        for layer in (0..6).rev() {
            works.push(work(0, vec![layer, if layer == 5 { 11 } else { 13 + layer }], vec![12 + layer]));
            works.push(work(1, vec![6 + layer], vec![18 + layer]));
        }
        // The last works of the other queue overwrite what the first ones read.
        works[0].until = Some(21);
        let value = |index: usize| Value { bytes: if index < 6 { 64 } else { 0 }, ..Value::default() };
        Problem { works, values: (0..24).map(value).collect(), ..Problem::default() }
    }

    #[test]
    fn works_that_touch_nothing_are_left_out_and_come_back() {
        let whole = problem();
        let is_own: Vec<bool> = whole.works.iter().map(|work| work.queue == 0).collect();
        let part = Part::of(&whole, &is_own);
        assert_eq!(part.works, (0..24).step_by(2).collect::<Vec<_>>());
        assert_eq!(part.problem.works[0].until, Some(11));
        let states = plimsoll_fit::descend(&part.problem, 100_000);
        let row = plimsoll_fit::row(&whole, states.iter().map(|state| part.in_whole(&whole, &state.steps)).collect());
        assert_eq!(row.len(), states.len());
        assert!(row.len() > 2 && row.last().unwrap().peak < row[0].peak);
        for (state, of_part) in row.iter().zip(&states) {
            assert_eq!(plimsoll_fit::replay(&whole, &state.steps), Ok((state.peak, state.seconds)));
            assert_eq!(state.peak, of_part.peak);
        }
    }
}
