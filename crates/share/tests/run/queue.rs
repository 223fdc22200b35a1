//! Many programs on one card, killed by chance. PLIMSOLL_TEST_RUNS says how many; 200 is the whole of it.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::{Home, comes, signal};

fn runs(fewer: usize) -> usize {
    std::env::var("PLIMSOLL_TEST_RUNS").ok().and_then(|text| text.parse().ok()).unwrap_or(fewer)
}

/// The programs' records: for each, by number, its process and whether it came to its end.
fn log(home: &Home) -> BTreeMap<usize, Vec<(u32, bool)>> {
    let mut runs: BTreeMap<usize, Vec<(u32, bool)>> = BTreeMap::new();
    for line in std::fs::read_to_string(home.0.join("log")).unwrap_or_default().lines() {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["start", run, pid] => runs.entry(run.parse().unwrap()).or_default().push((pid.parse().unwrap(), false)),
            ["end", run] => runs.get_mut(&run.parse::<usize>().unwrap()).unwrap().last_mut().unwrap().1 = true,
            _ => panic!("the log says '{line}'"),
        }
    }
    runs
}

fn start(home: &Home, options: &str, script: &str) -> Child {
    home.command(options, script).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
fn a_queue_under_fire() {
    if !Command::new("flock").arg("--version").output().is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: there is no flock");
        return;
    }
    let (home, count) = (Home::new("queue"), runs(40));
    // Three fit. Each takes one of three seats besides, which the kernel gives back too: a fourth would find none.
    let script = |run: usize| {
        format!(
            "cd $PLIMSOLL_STATE_DIR; echo start {run} $$ >> log; \
             for seat in 1 2 3; do exec 9> seat$seat; flock -n 9 && break; exec 9>&-; [ $seat = 3 ] && echo none {run} >> log; done; \
             sleep 0.0{}; echo end {run} >> log",
            run % 7
        )
    };
    let mut children: Vec<Child> = (0..count).map(|run| start(&home, "wait memory=300MiB", &script(run))).collect();
    // Which were killed before they could start, and which programs.
    let (mut wrappers, mut programs) = (vec![false; count], vec![false; count]);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let machine = home.machine();
            while !over.load(Relaxed) {
                let card = machine.look().unwrap().cards.remove(0);
                assert!(card.reserved <= card.card.capacity, "{card:?}");
            }
        });
        let mut chance = 88172645463325252u64;
        let mut next = |below: usize| {
            chance ^= chance << 13;
            chance ^= chance >> 7;
            chance ^= chance << 17;
            chance as usize % below
        };
        while children.iter_mut().any(|child| child.try_wait().unwrap().is_none()) {
            let run = next(count);
            match next(8) {
                0 if children[run].try_wait().unwrap().is_none() => {
                    children[run].kill().unwrap();
                    wrappers[run] = true;
                }
                // One that runs, or none where it has just ended: numbers are used again only after all others.
                1 | 2 => {
                    let log = log(&home);
                    let running = log.iter().find(|(_, starts)| !starts[0].1 && super::is_there(starts[0].0));
                    if let Some((&run, starts)) = running {
                        let _ = Command::new("kill").args(["-9", &starts[0].0.to_string()]).stderr(Stdio::null()).status();
                        programs[run] = true;
                    }
                }
                _ => {}
            }
            std::thread::sleep(Duration::from_millis(next(20) as u64));
        }
        over.store(true, Relaxed);
    });
    comes("all is back", || home.reserved() == 0);
    assert_eq!(home.machine().look().unwrap().entries.len(), 0, "nobody is left in the queue");
    let log = log(&home);
    for run in 0..count {
        let starts = log.get(&run).map_or(&[][..], Vec::as_slice);
        match starts {
            [(_, true)] => {}
            [(_, false)] => assert!(programs[run] || wrappers[run], "run {run} was not killed and did not come to its end"),
            [] => assert!(wrappers[run], "run {run} was lost"),
            more => panic!("run {run} was run {} times", more.len()),
        }
    }
    let ended = log.values().filter(|starts| starts[0].1).count();
    let killed = |which: &[bool]| which.iter().filter(|killed| **killed).count();
    eprintln!("{count} runs: {ended} ended, {} programs and {} wrappers were killed", killed(&programs), killed(&wrappers));
}

#[test]
fn the_next_starts_after_a_death() {
    let (home, count) = (Home::new("next"), runs(6).min(50));
    let script = |run: usize| format!("echo start {run} $$ >> $PLIMSOLL_STATE_DIR/log; exec sleep 300 > /dev/null 2>&1");
    let mut children: Vec<Child> = (0..count).map(|run| start(&home, "wait", &script(run))).collect();
    let mut times = Vec::new();
    for killed in 0..count {
        comes("one starts", || log(&home).len() == killed + 1);
        comes("the others wait", || home.machine().look().unwrap().waiters().len() == count - killed - 1);
        let began = Instant::now();
        let pid = log(&home).values().find(|starts| super::is_there(starts[0].0)).unwrap()[0].0;
        signal(pid, "9");
        if killed + 1 < count {
            comes("the next starts", || log(&home).len() > killed + 1);
            times.push(began.elapsed());
        }
    }
    children.iter_mut().for_each(|child| drop(child.wait()));
    assert!(log(&home).values().all(|starts| starts.len() == 1));
    times.sort();
    let mut err = std::io::stderr().lock();
    writeln!(err, "from a death to the next start: median {:?}, most {:?}", times[times.len() / 2], times[times.len() - 1]).unwrap();
}

#[test]
fn the_queue_goes_by_priority_and_then_by_arrival() {
    let home = Home::new("priority");
    let script = |name: u32| format!("echo start {name} $$ >> $PLIMSOLL_STATE_DIR/log");
    let mut holder = start(&home, "", "exec sleep 300 > /dev/null 2>&1");
    comes("it is held", || home.reserved() > 0);
    let mut children = Vec::new();
    for (waiting, (priority, name)) in [(0, 3), (0, 4), (5, 1), (-2, 5), (5, 2)].into_iter().enumerate() {
        children.push(start(&home, &format!("priority={priority}"), &script(name)));
        comes("it waits", || home.machine().look().unwrap().waiters().len() == waiting + 1);
    }
    signal(holder.id(), "TERM");
    holder.wait().unwrap();
    children.iter_mut().for_each(|child| assert!(child.wait().unwrap().success()));
    let text = std::fs::read_to_string(home.0.join("log")).unwrap();
    let order: Vec<&str> = text.lines().map(|line| line.split(' ').nth(1).unwrap()).collect();
    assert_eq!(order, ["1", "2", "3", "4", "5"]);
}

#[test]
fn many_start_side_by_side() {
    let (home, count) = (Home::new("starts"), runs(20).min(300));
    let began = Instant::now();
    let script = |run: usize| format!("echo start {run} $$ >> $PLIMSOLL_STATE_DIR/log; exec sleep 300 > /dev/null 2>&1");
    let mut children: Vec<Child> = (0..count).map(|run| start(&home, "memory=3MiB", &script(run))).collect();
    comes("all start", || std::fs::read_to_string(home.0.join("log")).is_ok_and(|text| text.lines().count() == count));
    let took = began.elapsed();
    assert_eq!(home.reserved(), count as u64 * (3 << 20));
    children.iter().for_each(|child| signal(child.id(), "TERM"));
    children.iter_mut().for_each(|child| drop(child.wait()));
    comes("all is back", || home.reserved() == 0);
    writeln!(std::io::stderr().lock(), "{count} side by side started in {took:?}").unwrap();
}
