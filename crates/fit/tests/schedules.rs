//! Schedules of made-up computations: all rules hold, and peaks and times are those of a replay.

use plimsoll_fit::{Problem, Slow, State, Step, Value, Way, Work, check, descend, fit, replay};

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((bits ^ (bits >> 31)) % most as u64) as usize
    }
}

/// A step of training: works forward, and works back that read what was computed forward; views, results, scratch, results over
/// operands, works that may not run again, and works with several ways to run.
fn made_up(seed: u64, works: usize) -> Problem {
    let mut random = Random(seed);
    let mut problem = Problem { base: random.below(10) as u64, ..Problem::default() };
    problem.values.push(Value::default());
    for index in 0..works {
        let known = problem.values.len();
        let mut work = Work { seconds: (1 + random.below(20)) as f64, again: random.below(10) > 0, ..Work::default() };
        let near = known - 1 - random.below(known.min(3));
        work.reads = vec![near];
        if index > works / 2 {
            let mirrored = (works - index) * known / works;
            work.reads.push(mirrored.min(known - 1));
        }
        if random.below(3) == 0 {
            work.scratch = random.below(8) as u64;
        }
        if random.below(8) == 0 && index + 1 < works {
            work.until = Some(index + 1 + random.below(works - index - 1));
        }
        if random.below(6) == 0 && known > 1 {
            problem.values.push(Value { bytes: 0, is_result: random.below(10) == 0, view_of: Some(near) });
            work.writes.push(known);
        } else {
            let bytes = 1 + random.below(20) as u64;
            problem.values.push(Value { bytes, is_result: random.below(12) == 0, view_of: None });
            work.writes.push(known);
            if random.below(4) == 0 {
                problem.values.push(Value { bytes: random.below(4) as u64, ..Value::default() });
                work.writes.push(known + 1);
            }
            let is_over = random.below(3) == 0 && near > 0 && problem.values[near].view_of.is_none();
            if is_over {
                problem.values[known].bytes = problem.values[near].bytes;
                work.in_place.push((near, known));
            }
        }
        problem.works.push(work);
    }
    let mut other = Random(!seed);
    for work in problem.works.iter_mut().filter(|work| work.scratch > 0) {
        let (mut scratch, mut seconds) = (work.scratch, work.seconds);
        while scratch > 0 && other.below(3) > 0 {
            (scratch, seconds) = (other.below(scratch as usize) as u64, seconds + other.below(5) as f64);
            work.ways.push(Way { scratch, seconds });
        }
    }
    if random.below(2) == 0 {
        let seconds_per_byte = random.below(10) as f64 / 10.0;
        let (bytes, granularity) = (random.below(60) as u64, 4 * random.below(2) as u64);
        problem.slow = Some(Slow { queue_out: 1, queue_in: 2, latency: 0.5, seconds_per_byte, bytes, granularity });
    }
    problem
}

fn holds(problem: &Problem, state: &State) {
    let replayed = replay(problem, &state.steps).expect("a schedule follows the rules");
    assert_eq!(replayed, (state.peak, state.seconds));
}

#[test]
fn a_descent_goes_down_and_takes_no_less_time() {
    let (mut lower, mut moved, mut narrow) = (0, 0, 0);
    for seed in 0..100 {
        let problem = made_up(seed, 4 + seed as usize % 60);
        check(&problem).expect("a problem");
        let states = descend(&problem, 10_000);
        let as_given: Vec<Step> = (0..problem.works.len()).map(Step::Run).collect();
        assert_eq!(states[0].steps, as_given);
        states.iter().for_each(|state| holds(&problem, state));
        for pair in states.windows(2) {
            assert!(pair[1].peak < pair[0].peak && pair[1].seconds >= pair[0].seconds, "seed {seed}");
            lower += 1;
        }
        narrow += states.iter().flat_map(|state| &state.steps).filter(|step| matches!(step, Step::RunAs(..))).count();
        moved += states.iter().flat_map(|state| &state.steps).filter(|step| matches!(step, Step::Out(_))).count();
    }
    assert!(lower > 100 && moved > 100, "only {lower} states below the first, and {moved} moves");
    assert!(narrow > 100, "only {narrow} runs with less scratch");
}

#[test]
fn a_schedule_that_is_found_is_within_its_peak() {
    let mut found = 0;
    for seed in 0..100 {
        let problem = made_up(seed, 4 + seed as usize % 60);
        let peak = descend(&problem, 0)[0].peak;
        for percent in [100, 90, 70, 50, 30] {
            let most = peak * percent / 100;
            let Some(state) = fit(&problem, most, 10_000) else { continue };
            holds(&problem, &state);
            assert!(state.peak <= most);
            assert_eq!(fit(&problem, most, 10_000), Some(state), "seed {seed}: it is the same each time");
            found += 1;
        }
    }
    assert!(found > 150, "only {found} schedules");
}
