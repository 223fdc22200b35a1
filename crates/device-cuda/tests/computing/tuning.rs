//! Ways to compute that are timed on a mock card, by a clock of the test's, and the table by which a library chooses among them.

use std::ffi::{c_int, c_uint};
use std::ptr::null_mut;
use std::sync::Arc;

use plimsoll_base::{Bytes, Code, DataType};
use plimsoll_cards::CudnnMode;
use plimsoll_device::{Bindings, Device, Library, Program, Tuned, TunedPart, TunedRequest, Variant, Work};
use plimsoll_device_cuda::{CudaLibrary, CudaSource, CudnnLibrary, EngineLimits, GraphUse, any_card};
use plimsoll_request::KernelRequest;
use plimsoll_request::anchor::Anchor;
use plimsoll_request::conv::ConvSpec;
use plimsoll_request::gather::Gather;
use plimsoll_request::movement::Movement;
use plimsoll_request::product::ProductSpec;

use super::convolutions::{ARENA, FULL, ROUNDED, Rig, convolution, request, take};
use super::driver::{Driver, Handle, call};
use super::rig::Cards;

/// A kernel takes half a microsecond, and a unit of cuDNN's work two.
const TIMES: (u64, u64) = (500, 2000);

fn names(variants: &[Variant]) -> Vec<String> {
    variants.iter().map(|variant| variant.name.to_string()).collect()
}

#[test]
fn ways_are_timed_by_the_cards_clock() {
    let Some(rig) = Rig::new("tuning-times") else { return };
    rig.cards.machine.gpus.set_times(0, TIMES.0, TIMES.1).unwrap();
    for graphs in [GraphUse::on(""), GraphUse::on("").with_room(Bytes::ZERO)] {
        let card = rig.open().unwrap();
        let (device, _) = rig.device_by(&card, card.library(ROUNDED, CudnnMode::Always, None), graphs).unwrap();
        let tuner = device.tuner().unwrap();
        let ways = tuner.candidates(&request(), 8).unwrap();
        assert_eq!(
            names(&ways),
            ["cudnn-9.26.99/67/2=8,13=0,18=0/131", "cudnn-9.26.99/67/2=5,13=0,18=0/1048771", "cudnn-9.26.99/70/2=12,18=0/5312", "cuda"]
        );
        assert_eq!(names(&tuner.candidates(&request(), 1).unwrap()), [names(&ways)[0].clone(), "cuda".to_string()]);
        let block = device.allocate(Bytes(ARENA), "what is timed").unwrap();
        let bindings = Bindings { arenas: vec![block.address()], ..Bindings::default() };
        let launches = || Driver::open(&rig.cards.machine).calls(Some("cuGraphLaunch"));
        let before = (launches(), device.usage());
        let kernels = CudaLibrary.emitted(&request()).unwrap().kernels.len() as u64;
        // A kernel turns the filter for an engine.
        let engines = [2, 1, 3].map(|count| count * TIMES.1 + TIMES.0);
        for (way, nanoseconds) in ways.iter().zip(engines.into_iter().chain([kernels * TIMES.0])) {
            let program = Arc::new(Program { commands: vec![convolution(way.clone(), 8192); 3] });
            let mut timed = tuner.prepare(&program, &bindings).unwrap();
            for runs in [1, 4] {
                let seconds = timed.seconds(runs).unwrap();
                let expected = 3.0 * f64::from(runs) * nanoseconds as f64 * 1e-9;
                assert!((seconds - expected).abs() < 1e-4 * expected, "{}: {seconds} {expected}", way.name);
            }
        }
        assert_eq!(
            launches() - before.0,
            if graphs == GraphUse::on("") { 5 * ways.len() as u64 } else { 0 },
            "as graphs, where there is room"
        );
        // Nothing but the block was taken.
        assert_eq!(device.usage(), before.1);
        // What may fail is not timed, and neither is what is no kernel.
        let may_fail = Program { commands: vec![take(&*card.library(ROUNDED, CudnnMode::Always, None))] };
        assert_eq!(tuner.prepare(&Arc::new(may_fail), &bindings).map(drop).unwrap_err().code(), Code::Unimplemented);
        let mut copy = convolution(ways[0].clone(), 8192);
        (copy.work, copy.args) = (Work::Copy, copy.args[..2].to_vec());
        copy.args[1].bytes = copy.args[0].bytes;
        assert_eq!(
            tuner.prepare(&Arc::new(Program { commands: vec![copy] }), &bindings).map(drop).unwrap_err().code(),
            Code::Unimplemented
        );
    }
    // A lost card is said to be.
    let card = rig.open().unwrap();
    let (device, _) = rig.device(&card, ROUNDED).unwrap();
    let block = device.allocate(Bytes(ARENA), "what is timed").unwrap();
    let bindings = Bindings { arenas: vec![block.address()], ..Bindings::default() };
    let way = device.tuner().unwrap().candidates(&request(), 1).unwrap().remove(0);
    let mut timed = device.tuner().unwrap().prepare(&Arc::new(Program { commands: vec![convolution(way, 8192)] }), &bindings).unwrap();
    rig.cards.machine.gpus.lose(0).unwrap();
    assert_eq!(timed.seconds(1).unwrap_err().code(), Code::Unavailable);
}

#[test]
fn a_table_decides_which_way_is_taken() {
    let Some(rig) = Rig::new("tuning-table") else { return };
    let card = rig.open().unwrap();
    let of = card.library(ROUNDED, CudnnMode::Auto, None).tuned_for(card.name());
    assert_eq!(of.to_string(), "Mock card with cuDNN 9.26.99, TF32 and 32 MiB of workspace");
    let [first, other, exact, own] =
        ["cudnn-9.26.99/67/2=8,13=0,18=0/131", "cudnn-9.26.99/67/2=5,13=0,18=0/1048771", "cudnn-9.26.99/70/2=12,18=0/5312", "cuda"];
    let table = |request: &KernelRequest, ways: &[(&str, f64)]| {
        let times = ways.iter().map(|(name, seconds)| (name.to_string(), *seconds));
        Tuned::of([(of.clone(), TunedPart::from([(Tuned::key(request).unwrap(), TunedRequest::new("", times))]))])
    };
    let ordered = |limits, mode, table: &Tuned, request: &KernelRequest| {
        names(&card.library(limits, mode, Some(table)).variants(&any_card(), request).unwrap())
    };
    let auto = |ways: &[(&str, f64)]| ordered(ROUNDED, CudnnMode::Auto, &table(&request(), ways), &request());
    assert_eq!(auto(&[(first, 3e-6), (other, 1e-6), (own, 2e-6)]), [other, own]);
    assert_eq!(auto(&[(first, 2e-6), (other, 3e-6), (own, 1e-6)]), [own, first]);
    assert_eq!(auto(&[(own, 1e-6)]), [own, first], "an engine is the second way, whatever is predicted");
    // Engines that are not there, or want more than their names say, are passed over.
    let (absent, short) = ("cudnn-9.26.99/77/-/0", "cudnn-9.26.99/67/2=8,13=0,18=0/130");
    assert_eq!(auto(&[(absent, 1e-6), (short, 1e-6), ("cudnn-9.19.0/67/-/0", 1e-6), ("x", 1e-6), (exact, 2e-6)]), [exact, own]);
    let always = ordered(ROUNDED, CudnnMode::Always, &table(&request(), &[(own, 1e-6), (exact, 2e-6), (first, 3e-6)]), &request());
    assert_eq!(always, [exact, own], "the fastest engine, where cuDNN has to compute");
    // Of other bounds nothing is read.
    let rounded = table(&request(), &[(other, 1e-6), (own, 2e-6)]);
    let without = |limits| names(&card.library(limits, CudnnMode::Auto, None).variants(&any_card(), &request()).unwrap());
    for limits in [FULL, EngineLimits { workspace: Bytes(2 << 20), ..ROUNDED }] {
        assert_eq!(ordered(limits, CudnnMode::Auto, &rounded, &request()), without(limits));
    }
    // A convolution of floats has the way of the bare one, whatever is behind it: its bits stay the same.
    let KernelRequest::Anchor { anchor: Anchor::Conv(spec), .. } = request() else { panic!() };
    let halves =
        KernelRequest::Anchor { anchor: Anchor::Conv(ConvSpec { data_type: DataType::Half, ..spec }), epilogue: None, pooling: None };
    assert_eq!(
        ordered(ROUNDED, CudnnMode::Auto, &rounded, &halves),
        names(&card.library(ROUNDED, CudnnMode::Auto, None).variants(&any_card(), &halves).unwrap())
    );
    // A library for a machine that is elsewhere chooses the same, by the same table.
    let properties = rig.planner.properties(0).unwrap();
    let elsewhere = CudnnLibrary::new(&rig.planner, properties, card.name(), ROUNDED, CudnnMode::Auto).tuned(&rounded, card.name());
    assert_eq!(names(&elsewhere.variants(&any_card(), &request()).unwrap()), [other, own]);
    // What it takes is in the plan, and a program with it runs.
    let (device, library) = rig.device_by(&card, card.library(ROUNDED, CudnnMode::Auto, Some(&rounded)), rig.cards.graphs).unwrap();
    let variant = library.variants(&any_card(), &request()).unwrap().remove(0);
    assert!(device.load(0, Arc::new(Program { commands: vec![convolution(variant, 8192)] })).is_ok());
}

#[test]
fn products_and_convolutions_have_ways_and_other_requests_none() {
    let Some(cards) = Cards::new("tuning-own", &[64]) else { return };
    let card = cards.card(0);
    let device = cards.device(&card, 0, Some(Bytes(32 << 20)), card.library(FULL, CudnnMode::Auto, None)).unwrap();
    let tuner = device.tuner().unwrap();
    // Without cuDNN the kernels of the project alone.
    assert_eq!((tuner.tuned_for().cudnn, names(&tuner.candidates(&request(), 8).unwrap())), (None, vec!["cuda".to_string()]));
    let spec = ProductSpec { m: 20, n: 30, k: 40, transpose_a: true, transpose_b: true, batch: 3, places: None };
    let product = |data_type| KernelRequest::Anchor { anchor: Anchor::Product(data_type, spec), epilogue: None, pooling: None };
    assert_eq!(names(&tuner.candidates(&product(DataType::Float), 8).unwrap()), ["cuda"]);
    let indices = Gather::Take { element: 4, params: vec![4], indices: vec![1], axis: 0, batch_dims: 0, index_type: DataType::Int32 };
    let fill = KernelRequest::Movement { element: 4, movement: Movement::Fill { elements: 100 } };
    for other in [KernelRequest::Gather(indices), fill, product(DataType::Complex64)] {
        assert_eq!(tuner.candidates(&other, 8).unwrap(), []);
    }
    // By the machine's own clock where none is set.
    let block = device.allocate(Bytes(1 << 20), "what is timed").unwrap();
    let bindings = Bindings { arenas: vec![block.address()], ..Bindings::default() };
    let way = tuner.candidates(&request(), 8).unwrap().remove(0);
    let seconds = tuner.prepare(&Arc::new(Program { commands: vec![convolution(way, 8192)] }), &bindings).unwrap().seconds(3).unwrap();
    assert!(seconds > 1e-7 && seconds < 60.0, "{seconds}");
}

#[test]
fn the_mock_tells_times_as_the_driver_does() {
    let Some(cards) = Cards::new("tuning-events", &[64; 2]) else { return };
    let driver = Driver::open(&cards.machine);
    let event = |card: usize, flags: c_uint| {
        let mut event: Handle = null_mut();
        driver.enter(card);
        assert_eq!(call!(driver, "cuEventCreate"(*mut Handle, c_uint), &mut event, flags), 0);
        event
    };
    let elsewhere = event(1, 1);
    let [begun, done, untimed] = [1, 1, 3].map(|flags| event(0, flags));
    let mut stream: Handle = null_mut();
    assert_eq!(call!(driver, "cuStreamCreateWithPriority"(*mut Handle, c_uint, c_int), &mut stream, 1, 0), 0);
    let elapsed = |from: Handle, to: Handle| {
        let mut milliseconds = -1f32;
        (call!(driver, "cuEventElapsedTime_v2"(*mut f32, Handle, Handle), &mut milliseconds, from, to), milliseconds)
    };
    const INVALID_HANDLE: c_uint = 400;
    assert_eq!(elapsed(begun, done).0, INVALID_HANDLE, "nothing was recorded");
    for event in [begun, untimed, done] {
        assert_eq!(call!(driver, "cuEventRecord"(Handle, Handle), event, stream), 0);
    }
    assert_eq!(call!(driver, "cuEventSynchronize"(Handle), done), 0);
    let (status, milliseconds) = elapsed(begun, done);
    assert!(status == 0 && (0.0..10_000.0).contains(&milliseconds), "{status} {milliseconds}");
    for (from, to) in [(begun, untimed), (untimed, done), (begun, elsewhere), (null_mut(), done)] {
        assert_eq!(elapsed(from, to).0, INVALID_HANDLE);
    }
    for event in [begun, done, untimed, elsewhere] {
        assert_eq!(call!(driver, "cuEventDestroy_v2"(Handle), event), 0);
    }
    assert_eq!(call!(driver, "cuStreamDestroy_v2"(Handle), stream), 0);
    for card in [0, 0, 0, 1] {
        assert_eq!(call!(driver, "cuDevicePrimaryCtxRelease_v2"(c_int), card), 0);
    }
}
