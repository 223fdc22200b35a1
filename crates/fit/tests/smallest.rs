//! Small computations, against the best of all schedules.

use std::collections::{BTreeMap, HashSet};

use plimsoll_fit::{Problem, State, Step, Value, Way, Work, descend, fit, lower_bound, replay};

/// The least time for each peak: of all sequences of runs with so many runs beyond the first ones.
fn all(problem: &Problem, extra: usize) -> BTreeMap<u64, f64> {
    let mut best: BTreeMap<u64, f64> = BTreeMap::new();
    let mut sequences = vec![Vec::new()];
    let most = problem.works.len() + extra;
    while let Some(sequence) = sequences.pop() {
        if let Ok((peak, seconds)) = replay(problem, &sequence) {
            let least = best.entry(peak).or_insert(seconds);
            *least = least.min(seconds);
        }
        if sequence.len() < most {
            let seen: HashSet<Step> = sequence.iter().copied().collect();
            for work in (0..=seen.len()).take(problem.works.len()) {
                let mut longer = sequence.clone();
                longer.push(Step::Run(work));
                sequences.push(longer);
            }
        }
    }
    best
}

/// Forward and back through a chain with the times and bytes of its works.
fn chain(forward: &[(u64, u64)]) -> Problem {
    let mut problem = Problem::default();
    let value = |bytes| Value { bytes, is_result: false, view_of: None };
    for (at, (seconds, bytes)) in forward.iter().enumerate() {
        problem.values.push(value(*bytes));
        let reads = at.checked_sub(1).into_iter().collect();
        problem.works.push(Work { seconds: *seconds as f64, reads, writes: vec![at], again: true, ..Work::default() });
    }
    for (at, (seconds, bytes)) in forward.iter().enumerate().rev() {
        let made = problem.values.len();
        problem.values.push(value(*bytes));
        let reads = [Some(at), (at + 1 < forward.len()).then(|| made - 1)].into_iter().flatten().collect();
        problem.works.push(Work { seconds: *seconds as f64, reads, writes: vec![made], again: true, ..Work::default() });
    }
    problem.values.last_mut().unwrap().is_result = true;
    problem
}

#[test]
fn schedules_are_as_fast_as_the_best_of_all() {
    let chains: &[&[(u64, u64)]] = &[
        &[(1, 4), (1, 4), (1, 4)],
        &[(5, 2), (1, 7), (2, 3)],
        &[(1, 1), (9, 8), (1, 8)],
        &[(3, 5), (2, 5), (4, 1)],
        &[(2, 6), (2, 1), (2, 6)],
    ];
    let mut lower = 0;
    for forward in chains {
        let problem = chain(forward);
        let first = problem.works.iter().map(|work| work.seconds).sum::<f64>();
        let best = all(&problem, 2);
        let mut least = f64::MAX;
        for (peak, seconds) in best {
            least = least.min(seconds);
            let State { seconds: found, .. } = fit(&problem, peak, 100_000).expect("a schedule");
            assert!(found <= least, "{forward:?} within {peak}: {found}, not {least}");
            let bound = first + lower_bound(&problem, peak, 1_000_000).expect("a bound");
            assert!(bound <= found + 1e-6, "{forward:?} within {peak}: the bound {bound} is above {found}");
            lower += usize::from(found > first);
        }
    }
    assert!(lower >= 5, "only {lower} schedules compute again");
}

/// A long chain: with two thirds of the bytes it takes at most a few forward works more.
#[test]
fn a_long_chain_fits_into_little() {
    let problem = chain(&[(1, 1); 100]);
    let states = descend(&problem, 3_000_000);
    let (first, last) = (&states[0], &states[states.len() - 1]);
    assert!(first.peak >= 100 && last.peak <= 10, "from {} to {}", first.peak, last.peak);
    let half = states.iter().find(|state| state.peak <= first.peak / 2).expect("a schedule");
    let bound = lower_bound(&problem, half.peak, 10_000_000).expect("a bound");
    assert!(half.seconds <= 260.0 && half.seconds - first.seconds >= bound, "{} for {bound}", half.seconds);
}

#[test]
fn what_breaks_a_rule_is_refused() {
    let wrong = |change: fn(&mut Problem)| {
        let mut problem = chain(&[(1, 1), (1, 1)]);
        change(&mut problem);
        assert!(descend(&problem, 100).is_empty() && fit(&problem, 100, 100).is_none() && lower_bound(&problem, 100, 100).is_none());
        plimsoll_fit::check(&problem).expect_err("a rule is broken").to_string()
    };
    assert_eq!(wrong(|problem| problem.works[1].reads = vec![9]), "work 1 reads value 9, which is not there");
    assert_eq!(wrong(|problem| problem.works[1].writes = vec![0]), "work 1 writes value 0, as does work 0");
    assert_eq!(wrong(|problem| problem.works[0].reads = vec![1]), "work 1 writes value 1, which is read before");
    assert_eq!(wrong(|problem| problem.works[0].seconds = f64::NAN), "a work takes NaN seconds");
    assert_eq!(wrong(|problem| problem.works[1].after = vec![2]), "work 1 runs after work 2, which is not before it");
    assert_eq!(wrong(|problem| problem.works[1].in_place = vec![(0, 3)]), "work 1 cannot write value 3 over value 0");
    let way = |scratch, seconds| vec![Way { scratch, seconds }];
    let message = "work 0 has a way with no less scratch, or of less time, than the one before";
    for ways in [way(0, 1.0), way(0, f64::NAN)] {
        let mut problem = chain(&[(1, 1)]);
        problem.works[0].ways = ways;
        assert_eq!(plimsoll_fit::check(&problem).expect_err("a rule is broken").to_string(), message);
    }
    assert_eq!(wrong(|problem| problem.base = u64::MAX), "the problem has more bytes than can be counted");
    assert_eq!(wrong(|problem| problem.values[0].view_of = Some(1)), "value 0 is a view of 1 with 1 bytes of its own");
}

/// A work with much scratch: a value that is live beside it is lost only where that takes less time than the way with less scratch.
#[test]
fn the_cheaper_of_two_means_is_taken() {
    let faster = |seconds: f64| {
        let mut problem = chain(&[(3, 4), (1, 1), (1, 1)]);
        (problem.works[2].scratch, problem.works[2].ways) = (6, vec![Way { scratch: 1, seconds }]);
        fit(&problem, 9, 100_000).expect("a schedule")
    };
    let (narrow, again) = (faster(2.0), faster(9.0));
    assert!(narrow.steps.contains(&Step::RunAs(2, 0)) && narrow.seconds == 11.0, "{narrow:?}");
    assert!(again.steps.iter().filter(|step| **step == Step::Run(0)).count() == 2 && again.seconds == 13.0, "{again:?}");
}

#[test]
fn a_replay_names_the_step_that_breaks_a_rule() {
    let mut problem = chain(&[(1, 1), (1, 1)]);
    problem.works[0].until = Some(1);
    problem.works[1].again = false;
    let wrong = |steps: &[Step]| replay(&problem, steps).expect_err("a rule is broken").to_string();
    let run = Step::Run;
    assert_eq!(wrong(&[run(1)]), "step 0: work 1 runs before work 0");
    assert_eq!(wrong(&[run(0), run(1), run(0)]), "step 2: work 0 may not run again once work 1 has run");
    assert_eq!(wrong(&[run(0), run(1), run(1)]), "step 2: work 1 may not run again");
    assert_eq!(wrong(&[run(0), run(1)]), "work 2 never runs");
    assert_eq!(wrong(&[Step::RunAs(0, 0)]), "step 0: work 0 has no such way to run");
    assert_eq!(wrong(&[run(0), Step::Out(0)]), "step 1: there is no slow memory");
    assert_eq!(replay(&problem, &[run(0), run(1), run(2), run(3)]), Ok((3, 4.0)));
}
