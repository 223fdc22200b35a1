//! Programs on the pool: order, waits, pieces, failures.

mod common;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use common::*;
use plimsoll_base::Code;
use plimsoll_device::*;
use plimsoll_device_cpu::{CpuDevice, CpuPool};
use plimsoll_memory::Address;

#[test]
fn same_bits_on_any_number_of_threads() {
    for queues in [1, 2, 4] {
        let mut expected: Option<Vec<u64>> = None;
        for threads in [1, 2, 3, 8] {
            let device = device(threads);
            let inside = Arc::new(Inside::default());
            let (programs, cells) = woven(queues, 30, 20, &inside);
            let mut loaded = Loaded::new(&device, programs, cells);
            for _ in 0..20 {
                loaded.clear();
                assert_eq!(loaded.step(&device), None);
                let values = loaded.values();
                assert_eq!(*expected.get_or_insert(values.clone()), values, "{queues} queues, {threads} threads");
            }
            assert!(inside.most.load(Ordering::SeqCst) <= threads as u32);
        }
        // Of the eight cells that every command has, the first at least is written.
        assert!(expected.unwrap().chunks(8).all(|cells| cells[0] != 0));
    }
}

#[test]
fn pieces_are_run_once_each_with_the_right_scratch() {
    let inside = Arc::default();
    for threads in [1, 2, 3] {
        let device = device(threads);
        let commands = vec![command(Does::Mix(1), 1000, 50, &[0], &[], &inside), command(Does::Mix(2), 1000, 50, &[0, 1000], &[], &inside)];
        let mut loaded = Loaded::new(&device, vec![program(0, commands)], 2000);
        assert_eq!(loaded.step(&device), None);
        let turned = |start| (0..50).fold(start, mix);
        let first = mix(turned(0), 1);
        let second = mix(turned(mix(0, first)), 2);
        let values = loaded.values();
        assert!(values[..1000].iter().all(|&value| value == first) && values[1000..].iter().all(|&value| value == second));
    }
}

#[test]
fn copies_of_all_lengths() {
    for threads in [1, 2] {
        let device = device(threads);
        for length in [0, 1, 262_143, 262_144, 262_145, 1_000_003] {
            let from: Vec<u8> = (0..length).map(|i| (i * 7 % 251) as u8).collect();
            let mut to = vec![0u8; length + 1];
            let place = |place| BufferRef { place, offset: 0, bytes: length as u64 };
            let args = vec![place(Place::Feed(0)), place(Place::Fetch(0))];
            let copy =
                Command { work: Work::Copy, args, scratch: None, worker_scratch: None, guard: None, waits: vec![], label: "copy".into() };
            let executable = device.load(0, Arc::new(Program { commands: vec![copy] })).unwrap();
            let (feed, fetch) = (Address::new(from.as_ptr().cast_mut()), Address::new(to.as_mut_ptr()));
            let bindings = Bindings { feeds: vec![feed], fetches: vec![fetch], ..Bindings::default() };
            let mut run = Arc::new(Run::new(1, bindings));
            Run::alone(&mut run).restart();
            executable.submit(&run);
            device.drive(&run);
            assert_eq!(run.failure(), None);
            assert!(to[..length] == from && to[length] == 0);
        }
    }
}

#[test]
fn fed_and_fetched_memory_may_be_elsewhere_in_every_run() {
    let device = device(1);
    let place = |place| BufferRef { place, offset: 8, bytes: 8 };
    let copy = |from, to| Command {
        work: Work::Copy,
        args: vec![place(from), place(to)],
        scratch: None,
        worker_scratch: None,
        guard: None,
        waits: vec![],
        label: "copy".into(),
    };
    let commands = vec![copy(Place::Feed(0), Place::Arena(0)), copy(Place::Arena(0), Place::Fetch(0))];
    let executable = device.load(0, Arc::new(Program { commands })).unwrap();
    let mut run = Arc::new(Run::new(1, Bindings::default()));
    for round in 0..4u64 {
        let (feed, mut arena, mut fetch) = ([0, round], [0u64; 2], [0u64; 2]);
        let alone = Run::alone(&mut run);
        alone.bindings.arenas = vec![Address::new(arena.as_mut_ptr().cast())];
        alone.bindings.feeds = vec![Address::new(feed.as_ptr().cast_mut().cast())];
        alone.bindings.fetches = vec![Address::new(fetch.as_mut_ptr().cast())];
        alone.restart();
        executable.submit(&run);
        device.drive(&run);
        assert_eq!((run.failure(), fetch), (None, [0, round]));
    }
}

/// Writes its name and the sum of its inputs, through scratch; the third call fails.
#[derive(Debug)]
struct Adds;

impl Outside for Adds {
    fn perform(&self, call: u32, inputs: &[&[u8]], outputs: &mut [&mut [u8]], scratch: &mut [u8]) -> std::result::Result<(), Fault> {
        if call == 2 {
            return Err(Fault::invalid("the third", [0, 0]));
        }
        scratch[0] = inputs.iter().flat_map(|bytes| bytes.iter()).sum();
        outputs[0].copy_from_slice(&[call as u8, scratch[0]]);
        Ok(())
    }
}

#[test]
fn what_is_outside_of_memory_is_the_runs_to_do() {
    let device = device(2);
    let place = |place, offset, bytes| BufferRef { place, offset, bytes };
    let outside = |call, inputs, args| Command {
        work: Work::Outside { call, inputs },
        args,
        scratch: Some(place(Place::Arena(0), 8, 1)),
        worker_scratch: None,
        guard: None,
        waits: vec![],
        label: "outside".into(),
    };
    let [fed, made, fetched] = [place(Place::Feed(0), 0, 3), place(Place::Arena(0), 0, 2), place(Place::Fetch(0), 0, 2)];
    for (third, with) in [(false, true), (true, true), (false, false)] {
        let mut commands = vec![outside(0, 1, vec![fed, made]), outside(1, 2, vec![fed, made, fetched])];
        if third {
            commands.insert(1, outside(2, 0, vec![]));
        }
        let executable = device.load(0, Arc::new(Program { commands })).unwrap();
        let (feed, mut arena, mut fetch) = ([1u8, 2, 3], [0u64; 2], [9u8; 2]);
        let bindings = Bindings {
            arenas: vec![Address::new(arena.as_mut_ptr().cast())],
            feeds: vec![Address::new(feed.as_ptr().cast_mut())],
            fetches: vec![Address::new(fetch.as_mut_ptr())],
            ..Bindings::default()
        };
        let mut run = Run::new(1, bindings);
        run.outside = with.then(|| Arc::new(Adds) as Arc<dyn Outside>);
        let mut run = Arc::new(run);
        Run::alone(&mut run).restart();
        executable.submit(&run);
        device.drive(&run);
        let failure = run.failure().map(|failure| (failure.command, failure.fault.code));
        let expected = match (third, with) {
            (_, false) => (Some((0, Code::FailedPrecondition)), [9, 9]),
            (true, _) => (Some((1, Code::InvalidArgument)), [9, 9]),
            (false, _) => (None, [1, 1 + 2 + 3 + 6]),
        };
        assert_eq!((failure, fetch), expected);
    }
    assert!(device.load(0, Arc::new(Program { commands: vec![outside(0, 1, vec![])] })).is_err());
}

#[test]
fn the_first_failure_counts_and_the_pool_goes_on() {
    for threads in [1, 2, 3] {
        let device = device(threads);
        let inside = Arc::default();
        let after = command(Does::Mix(1), 1, 0, &[2], &[(0, 2)], &inside);
        let failing = vec![
            program(0, vec![command(Does::Mix(1), 1, 0, &[0], &[], &inside), command(Does::Fail(7), 1, 0, &[1], &[], &inside)]),
            program(1, vec![after.clone(), after.clone()]),
            program(2, vec![after.clone()]),
        ];
        let mut failing = Loaded::new(&device, failing, 3);
        let (programs, cells) = woven(3, 10, 5, &inside);
        let mut sound = Loaded::new(&device, programs, cells);
        for _ in 0..50 {
            let fault = Fault::invalid("failed with {0}", [7, 0]);
            assert_eq!(failing.step(&device), Some(Failure { queue: 0, command: 1, fault }));
            assert_eq!(failing.values()[2], 0, "nothing runs that waits for what failed");
            assert_eq!(sound.step(&device), None);
        }
    }
}

#[test]
fn a_failing_piece_ends_the_command() {
    for threads in [1, 2, 3] {
        let device = device(threads);
        let inside = Arc::default();
        let commands = vec![command(Does::FailPiece(77), 100, 10, &[0], &[], &inside), command(Does::Mix(1), 1, 0, &[100], &[], &inside)];
        let mut loaded = Loaded::new(&device, vec![program(0, commands)], 101);
        for _ in 0..100 {
            let failure = loaded.step(&device).unwrap();
            assert_eq!((failure.command, failure.fault.to_error().message()), (0, "piece 77"));
            assert_eq!(loaded.values()[100], 0);
        }
    }
}

#[test]
fn a_panic_becomes_an_error() {
    // The panic hook belongs to the process: this is the only test that touches it, and only mutes it.
    std::panic::set_hook(Box::new(|_| ()));
    for threads in [1, 2] {
        let device = device(threads);
        let inside = Arc::default();
        for chunks in [1, 50] {
            let mut loaded = Loaded::new(&device, vec![program(0, vec![command(Does::Panic, chunks, 10, &[0], &[], &inside)])], 50);
            let (programs, cells) = woven(2, 5, 5, &inside);
            let mut sound = Loaded::new(&device, programs, cells);
            for _ in 0..20 {
                let error = loaded.step(&device).unwrap().fault.to_error();
                assert_eq!((error.code(), error.message()), (Code::Internal, "a kernel panicked"));
                assert_eq!(sound.step(&device), None);
            }
        }
    }
    let _ = std::panic::take_hook();
}

#[test]
fn queues_that_wait_for_each_other_in_a_circle_fail() {
    for threads in [1, 2, 3] {
        let device = device(threads);
        let inside = Arc::default();
        let programs = (0..2).map(|queue| {
            let first = command(Does::Mix(1), 1, 100, &[queue], &[], &inside);
            program(queue, vec![first, command(Does::Mix(1), 1, 0, &[queue], &[(1 - queue, 2)], &inside)])
        });
        let mut loaded = Loaded::new(&device, programs.collect(), 2);
        for _ in 0..20 {
            let failure = loaded.step(&device).unwrap();
            assert_eq!((failure.fault.code, failure.command), (Code::Internal, 1));
        }
    }
}

#[test]
fn one_queue_at_a_time_if_so_asked() {
    let spec = DeviceSpec::cpu(0, None, 3, InstructionSet::Baseline);
    let device = CpuDevice::new(spec, CpuPool::with_inter_op(3, 1).unwrap(), kernels());
    let inside = Arc::new(Inside::default());
    let single = |queue: u32, round: u32| command(Does::Mix(round.into()), 1, 200, &[queue], &[], &inside);
    let programs = (0..3).map(|queue| program(queue, (0..20).map(|round| single(queue, round)).collect())).collect();
    let mut loaded = Loaded::new(&device, programs, 3);
    for _ in 0..50 {
        assert_eq!(loaded.step(&device), None);
    }
    assert_eq!(inside.most.load(Ordering::SeqCst), 1);
}

#[test]
fn runs_that_do_not_fit_their_program_fail() {
    let device = device(2);
    let inside = Arc::default();
    let of = |queue| device.load(queue, Arc::new(program(queue, vec![command(Does::Mix(1), 1, 0, &[0], &[], &inside)]))).unwrap();
    let (first, second) = (of(0), of(0));
    let mut run = Arc::new(Run::new(1, Bindings::default()));
    Run::alone(&mut run).restart();
    first.submit(&run);
    assert!(run.is_over());
    assert_eq!(run.failure().unwrap().fault.code, Code::Internal);
    let loaded = Loaded::new(&device, vec![program(0, vec![])], 1);
    let mut run = loaded.run.clone();
    drop(loaded.run);
    for (executable, fits) in [(&first, true), (&second, false), (&first, true)] {
        Run::alone(&mut run).restart();
        executable.submit(&run);
        device.drive(&run);
        assert_eq!(run.failure().is_none(), fits);
    }
}

/// A queue of another device, that a thread of the test plays.
#[test]
fn waits_for_queues_of_other_devices() {
    for threads in [1, 2] {
        let device = device(threads);
        let inside = Arc::default();
        let commands = (0..5).map(|round| command(Does::Mix(round), 1, 10, &[0], &[(1, round as u32 + 1)], &inside)).collect();
        let mut loaded = Loaded::new(&device, vec![program(0, commands)], 1);
        let mut run = Arc::new(Run::new(2, loaded.run.bindings.clone()));
        for _ in 0..20 {
            Run::alone(&mut run).restart();
            loaded.executables[0].submit(&run);
            let other = run.clone();
            let card = std::thread::spawn(move || {
                for finished in 1..=5 {
                    while other.queues[0].finished() + 1 < finished {
                        std::thread::yield_now();
                    }
                    std::thread::sleep(std::time::Duration::from_micros(100));
                    other.advance(1, finished);
                }
                other.queue_ended();
            });
            device.drive(&run);
            assert!(run.is_over() && run.failure().is_none());
            card.join().unwrap();
        }
        loaded.clear();
    }
}

/// The other device goes on at every moment of the driver's way to sleep: between two looks at its queue, too.
#[test]
fn a_queue_that_becomes_runnable_while_its_driver_goes_to_sleep_is_run() {
    const COMMANDS: u32 = 100_000;
    // More threads than cores: the driver goes to sleep at once.
    let device = device(std::thread::available_parallelism().map_or(1, usize::from) + 1);
    let inside = Arc::default();
    let commands = (0..COMMANDS).map(|round| command(Does::Mix(u64::from(round)), 1, 0, &[0], &[(1, round + 1)], &inside)).collect();
    let loaded = Loaded::new(&device, vec![program(0, commands)], 1);
    let mut run = Arc::new(Run::new(2, loaded.run.bindings.clone()));
    Run::alone(&mut run).restart();
    loaded.executables[0].submit(&run);
    let asleep = std::thread::scope(|scope| {
        let card = scope.spawn(|| {
            let mut asleep = None;
            for round in 0..COMMANDS {
                let since = Instant::now();
                while run.queues[0].finished() < round && asleep.is_none() {
                    if since.elapsed() > Duration::from_secs(10) {
                        asleep = Some(round);
                        run.give_up();
                    }
                    std::hint::spin_loop();
                }
                (0..round * 7 % 2003).for_each(|turn| _ = std::hint::black_box(turn));
                run.advance(1, round + 1);
            }
            run.queue_ended();
            asleep
        });
        device.drive(&run);
        card.join().unwrap()
    });
    assert_eq!((asleep, run.failure()), (None, None));
}
