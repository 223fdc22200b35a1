//! Convolutions by cuDNN on mock cards: which engine is taken, what a program that names one is refused for, and how it runs.

use std::sync::Arc;

use plimsoll_base::{Bytes, Code, DataType, Error, Result};
use plimsoll_cards::{CudnnMode, Environment};
use plimsoll_device::{Bindings, BufferRef, Command, Device, DeviceSpec, Executable, KernelCall, Place, Program, Run, Variant, Work};
use plimsoll_device_cuda::{CudaCard, CudaDevice, CudaSource, EngineLimits, EngineName, GraphUse, Planner, any_card};
use plimsoll_memory::Block;
use plimsoll_request::KernelRequest;
use plimsoll_request::anchor::Anchor;
use plimsoll_request::conv::ConvSpec;
use plimsoll_request::gather::Gather;
use plimsoll_request::window::{Axes, Layout, WindowAxis};

use super::driver::Driver;
use super::rig::Cards;

pub const FULL: EngineLimits = EngineLimits { tensor_float_32: false, workspace: EngineLimits::WORKSPACE };
pub const ROUNDED: EngineLimits = EngineLimits { tensor_float_32: true, ..FULL };

/// Mock cards, with cuDNN.
pub struct Rig {
    pub cards: Cards,
    pub planner: Arc<Planner>,
}

impl Rig {
    pub fn new(test: &str) -> Option<Rig> {
        let cards = Cards::new(test, &[256])?;
        cards.machine.add_cudnn();
        let environment = Environment::new().with("PLIMSOLL_CUDA_LIBS", cards.machine.folder().to_str().unwrap());
        Some(Rig { planner: Arc::new(Planner::find(&environment).unwrap()), cards })
    }

    pub fn open(&self) -> Result<Arc<CudaCard>> {
        CudaCard::open(&self.cards.driver, &self.cards.driver.cards()?[0], &self.cards.compiler, Some(&self.planner))
    }

    pub fn device(&self, card: &Arc<CudaCard>, limits: EngineLimits) -> Result<(CudaDevice, Arc<dyn CudaSource>)> {
        self.device_by(card, card.library(limits, CudnnMode::Always, None), self.cards.graphs)
    }

    pub fn device_by(
        &self,
        card: &Arc<CudaCard>,
        library: Arc<dyn CudaSource>,
        graphs: GraphUse,
    ) -> Result<(CudaDevice, Arc<dyn CudaSource>)> {
        Ok((self.cards.device_with(card, 0, (Some(Bytes(64 << 20)), graphs), library.clone())?, library))
    }
}

/// Four images of 6x6 with four channels, and 3x3 taps: 144 elements for each tensor but the filter.
fn spec() -> ConvSpec {
    let same = WindowAxis { size: 6, positions: 6, taps: 3, stride: 1, dilation: 1, pad: 1 };
    let axes = Axes::new(&[same, same]).unwrap();
    ConvSpec { data_type: DataType::Float, batch: 4, in_c: 4, out_c: 4, axes, layout: Layout::ChannelsLast, groups: 1 }
}

pub const IMAGES: u64 = 4 * 4 * 6 * 6 * 4;
pub const FILTER: u64 = 4 * 9 * 4 * 4;
/// What a turned filter takes of the scratch.
pub const TURNED: u64 = FILTER.next_multiple_of(256);

pub fn request() -> KernelRequest {
    KernelRequest::Anchor { anchor: Anchor::Conv(spec()), epilogue: None, pooling: None }
}

fn first(library: &dyn CudaSource) -> Result<Variant> {
    Ok(library.variants(&any_card(), &request())?.remove(0))
}

fn name(library: &dyn CudaSource) -> String {
    first(library).unwrap().name.to_string()
}

/// Where things lie in the arena: input, filter, a result, another, and scratch.
pub const PLACES: [u64; 5] = [0, 4096, 8192, 16384, 32768];
/// Indices of what may be a fault, and a byte that guards.
const INDICES: u64 = 24576;
const GUARD: u64 = 28672;
pub const ARENA: u64 = 8 << 20;

pub fn here(offset: u64, bytes: u64) -> BufferRef {
    BufferRef { place: Place::Arena(0), offset, bytes }
}

pub fn command(request: KernelRequest, variant: Variant, args: Vec<BufferRef>) -> Command {
    let scratch = Some(variant.steps[0].scratch).filter(|bytes| *bytes > 0).map(|bytes| here(PLACES[4], bytes));
    let call = KernelCall { request: Arc::new(request), variant: Arc::new(variant), step: 0 };
    Command { work: Work::Kernel(call), args, scratch, worker_scratch: None, guard: None, waits: vec![], label: "conv".into() }
}

pub fn convolution(variant: Variant, to: u64) -> Command {
    command(request(), variant, vec![here(PLACES[0], IMAGES), here(PLACES[1], FILTER), here(to, IMAGES)])
}

/// Four bytes of the filter, taken by an index that may be outside.
pub fn take(library: &dyn CudaSource) -> Command {
    let take = Gather::Take { element: 4, params: vec![4], indices: vec![1], axis: 0, batch_dims: 0, index_type: DataType::Int32 };
    let request = KernelRequest::Gather(take);
    let variant = library.variants(&any_card(), &request).unwrap().remove(0);
    command(request, variant, vec![here(PLACES[1], 16), here(INDICES, 4), here(INDICES + 256, 4)])
}

/// A program, its run, and its arena.
pub struct Loaded {
    run: Arc<Run>,
    executable: Box<dyn Executable>,
    pub arena: Block,
    device: CudaDevice,
}

impl Loaded {
    pub fn new(device: CudaDevice, commands: Vec<Command>) -> Result<Loaded> {
        let arena = device.allocate(Bytes(ARENA), "arena")?;
        let executable = device.load(0, Arc::new(Program { commands }))?;
        for (place, bytes, seed) in [(PLACES[0], IMAGES, 7u32), (PLACES[1], FILTER, 3)] {
            let number = |at: u64| ((at as u32).wrapping_mul(2_654_435_761) >> 20) as f32 / seed as f32;
            arena.write(place, &(0..bytes / 4).flat_map(|at| number(at).to_le_bytes()).collect::<Vec<u8>>())?;
        }
        let bindings = Bindings { arenas: vec![arena.address()], ..Bindings::default() };
        Ok(Loaded { run: Arc::new(Run::new(1, bindings)), executable, arena, device })
    }

    pub fn step(&mut self) -> Result<()> {
        Run::alone(&mut self.run).restart();
        self.executable.submit(&self.run);
        self.device.drive(&self.run);
        self.run.failure().map_or(Ok(()), |failure| Err(failure.fault.to_error()))
    }

    fn read(&self, at: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0; IMAGES as usize];
        self.arena.read(at, &mut bytes)?;
        Ok(bytes)
    }

    pub fn result(&self, at: u64) -> Vec<u8> {
        self.read(at).unwrap()
    }
}

#[test]
fn the_first_engine_within_the_limits_is_taken_with_the_cards_workspace() {
    let Some(rig) = Rig::new("cudnn-engines") else { return };
    let card = rig.open().unwrap();
    let chosen = |limits| name(&*card.library(limits, CudnnMode::Always, None));
    let exact = 2 * IMAGES + FILTER + 128;
    assert_eq!(chosen(FULL), format!("cudnn-9.26.99/70/2=12,18=0/{exact}"));
    assert_eq!(chosen(ROUNDED), "cudnn-9.26.99/67/2=8,13=0,18=0/131");
    // A smaller workspace is another engine, or none; a larger one another, too.
    assert_eq!(chosen(EngineLimits { workspace: Bytes(exact - 1), ..FULL }), "cuda");
    let large = EngineLimits { workspace: Bytes(1 << 30), ..ROUNDED };
    assert_eq!(chosen(large), format!("cudnn-9.26.99/48/2=2,6=1,14=0/{}", (48 << 20) + exact - 128));
    // Its name is that of its numerics; its workspace and the turned filter are scratch.
    let library = card.library(ROUNDED, CudnnMode::Always, None);
    let variants = library.variants(&any_card(), &request()).unwrap();
    let [by_cudnn, kernels] = &variants[..] else { panic!("{variants:?}") };
    assert_eq!((&by_cudnn.numerics, by_cudnn.steps[0].scratch, &*kernels.name), (&by_cudnn.name, 256 + TURNED, "cuda"));
    // By the prediction, so small a convolution is not worth a call of cuDNN.
    let fast = DeviceSpec { flops: 6e13, bandwidth: 3e12, ..any_card() };
    let predicted = card.library(ROUNDED, CudnnMode::Auto, None);
    assert_eq!(&*predicted.variants(&fast, &request()).unwrap()[0].name, "cuda");
    let larger = KernelRequest::Anchor { anchor: Anchor::Conv(ConvSpec { batch: 20_000, ..spec() }), epilogue: None, pooling: None };
    assert_eq!(&*predicted.variants(&fast, &larger).unwrap()[0].name, "cudnn-9.26.99/67/2=8,13=0,18=0/131");
    assert_eq!(library.variants(&any_card(), &request()).unwrap(), variants);

    // What the card wants where the plan is made is in the plan, if the limits allow it.
    rig.cards.machine.gpus.set_more_workspace(0, 1000).unwrap();
    assert_eq!(chosen(ROUNDED), "cudnn-9.26.99/67/2=8,13=0,18=0/1131");
    rig.cards.machine.gpus.set_more_workspace(0, 32 << 20).unwrap();
    assert_eq!(chosen(ROUNDED), "cuda");
}

#[test]
fn a_program_names_its_engine_and_the_card_has_it_or_refuses() {
    let Some(rig) = Rig::new("cudnn-named") else { return };
    let card = rig.open().unwrap();
    let variant = |limits| first(&*card.library(limits, CudnnMode::Always, None)).unwrap();
    let load = |variant: &Variant, limits| {
        let (device, _) = rig.device(&card, limits).unwrap();
        let loaded = device.load(0, Arc::new(Program { commands: vec![convolution(variant.clone(), PLACES[2])] }));
        loaded.map(drop).map_err(|error: Error| (error.code(), error.message().to_string()))
    };
    let (full, rounded) = (variant(FULL), variant(ROUNDED));
    assert_eq!((load(&full, FULL), load(&rounded, ROUNDED), load(&full, ROUNDED)), (Ok(()), Ok(()), Ok(())));
    // Rounded floats that nobody has asked for here.
    let (code, why) = load(&rounded, FULL).unwrap_err();
    assert!(code == Code::FailedPrecondition && why.contains("its bits are not those that are asked for"), "{why}");
    // An engine with fewer bytes than the card wants, and one with more than are allowed.
    let named = |change: &dyn Fn(&mut EngineName)| {
        let mut name: EngineName = rounded.name.parse().unwrap();
        change(&mut name);
        let scratch = name.workspace.0.next_multiple_of(256) + TURNED;
        let mut variant = Variant { name: name.to_string().as_str().into(), numerics: name.to_string().as_str().into(), ..rounded.clone() };
        variant.steps[0].scratch = scratch;
        variant
    };
    let (code, why) = load(&named(&|name| name.workspace = Bytes(130)), ROUNDED).unwrap_err();
    assert!(code == Code::FailedPrecondition && why.contains("the card wants 131 bytes of workspace"), "{why}");
    assert_eq!(load(&named(&|name| name.workspace = Bytes(5000)), ROUNDED), Ok(()));
    for wrong in [
        named(&|name| name.workspace = Bytes(1 << 30)),
        named(&|name| name.version = 91_900),
        Variant { name: "cudnn-9.26.99/67".into(), ..rounded.clone() },
    ] {
        let (code, why) = load(&wrong, ROUNDED).unwrap_err();
        assert!(code == Code::Internal && why.contains("is another kernel here"), "{why}");
    }
    // What this cuDNN does not have: an engine, knobs.
    for wrong in [named(&|name| name.index = 12), named(&|name| name.knobs = vec![(2, 9)]), named(&|name| name.knobs = vec![(77, 0)])] {
        let (code, why) = load(&wrong, ROUNDED).unwrap_err();
        assert!(code == Code::FailedPrecondition && why.contains("CUDNN_STATUS_NOT_SUPPORTED"), "{why}");
    }
    // Scratch that is not the engine's.
    let mut short = rounded.clone();
    short.steps[0].scratch = 0;
    assert_eq!(load(&short, ROUNDED).unwrap_err().0, Code::Internal);
    // Bits that are never those that are asked for: another order each time, and the plain engine.
    let reference = named(&|name| (name.index, name.knobs, name.workspace) = (0, Vec::new(), Bytes::ZERO));
    assert!(load(&reference, ROUNDED).unwrap_err().1.contains("its bits are not"));

    // The card wants more than the plan has, which was made elsewhere.
    rig.cards.machine.gpus.set_more_workspace(0, 1).unwrap();
    let fresh = rig.open().unwrap();
    let (device, _) = rig.device(&fresh, ROUNDED).unwrap();
    let error = device.load(0, Arc::new(Program { commands: vec![convolution(rounded.clone(), PLACES[2])] })).err().unwrap();
    assert_eq!(error.code(), Code::FailedPrecondition, "{error}");
    assert!(error.message().contains("the card wants 132 bytes of workspace") && error.remedy().unwrap().contains("plan again"), "{error}");
    drop((device, fresh));
    // A card without cuDNN has no such kernel.
    let plain = rig.cards.card(0);
    let device = rig.cards.device(&plain, 0, None, plain.library(ROUNDED, CudnnMode::Always, None)).unwrap();
    let error = device.load(0, Arc::new(Program { commands: vec![convolution(rounded, PLACES[2])] })).err().unwrap();
    assert!(error.message().contains("is another kernel here"), "{error}");
}

#[test]
fn graphs_have_convolutions_in_them_with_the_same_bits() {
    let Some(rig) = Rig::new("cudnn-graphs") else { return };
    let calls = |name: &'static str| Driver::open(&rig.cards.machine).calls(Some(name));
    let card = rig.open().unwrap();
    let mut seen = Vec::new();
    for limits in [FULL, ROUNDED] {
        let (device, library) = rig.device(&card, limits).unwrap();
        let variant = first(&*library).unwrap();
        let mut loaded = Loaded::new(device, vec![convolution(variant.clone(), PLACES[2]), convolution(variant, PLACES[3])]).unwrap();
        let (launches, pushed) = (calls("cuGraphLaunch"), calls("kernels of a library"));
        loaded.step().unwrap();
        let result = loaded.result(PLACES[2]);
        assert_eq!((calls("cuGraphLaunch"), calls("kernels of a library") - pushed), (launches, 2));
        for _ in 0..3 {
            loaded.arena.write(PLACES[2], &[0; 16384 - 8192]).unwrap();
            loaded.step().unwrap();
            assert!(loaded.result(PLACES[2]) == result && loaded.result(PLACES[3]) == result);
        }
        // They were captured once, and launched each time.
        assert_eq!((calls("cuGraphLaunch") - launches, calls("kernels of a library") - pushed), (3, 4));
        assert!(result.chunks(4).any(|bytes| bytes != [0; 4]));
        seen.push(result);
    }
    assert!(seen[0] != seen[1], "floats that are rounded to TF32 give other bits");
}

#[test]
fn behind_a_fault_no_convolution_is_pushed() {
    let Some(rig) = Rig::new("cudnn-faults") else { return };
    let card = rig.open().unwrap();
    let (device, library) = rig.device(&card, ROUNDED).unwrap();
    let mut guarded = convolution(first(&*library).unwrap(), PLACES[3]);
    guarded.guard = Some(here(GUARD, 1));
    let commands = vec![take(&*library), convolution(first(&*library).unwrap(), PLACES[2]), guarded];
    let mut loaded = Loaded::new(device, commands).unwrap();
    let clear = |loaded: &Loaded| loaded.arena.write(PLACES[2], &[0xEE; 16384]).unwrap();
    // With and without graphs.
    for (index, guard) in [(9i32, 1u8), (9, 1), (9, 1), (1, 0), (1, 0), (1, 1), (9, 1), (1, 1), (1, 0)] {
        clear(&loaded);
        loaded.arena.write(INDICES, &index.to_le_bytes()).unwrap();
        loaded.arena.write(GUARD, &[guard]).unwrap();
        let said = loaded.step().map_err(|error| error.code());
        let [first, second] = [PLACES[2], PLACES[3]].map(|at| loaded.result(at).iter().any(|byte| *byte != 0xEE));
        assert_eq!((said.is_ok(), first, second), (index == 1, index == 1, index == 1 && guard == 1), "{index} {guard}");
    }
}

/// What comes behind a fault is one body of the graph, whoever computes it; behind another fault, another one.
#[test]
fn a_step_whose_faults_cudnn_works_behind_is_one_launch() {
    let Some(rig) = Rig::new("cudnn-one-launch") else { return };
    let calls = |name: &'static str| Driver::open(&rig.cards.machine).calls(Some(name));
    let card = rig.open().unwrap();
    let (device, library) = rig.device(&card, ROUNDED).unwrap();
    let engine = |to| convolution(first(&*library).unwrap(), to);
    // The second looks at the result of the first, whose bytes are no index where the images are none.
    let mut second = take(&*library);
    second.args[1] = here(INDICES + 256, 4);
    let places = [PLACES[2], PLACES[2] + 4096, PLACES[3]];
    let mut copy = convolution(first(&*library).unwrap(), places[1]);
    (copy.work, copy.scratch, copy.args) = (Work::Copy, None, vec![here(places[0], IMAGES), here(places[1], IMAGES)]);
    let commands = vec![take(&*library), engine(places[0]), copy, second, engine(places[2]), engine(places[2])];
    let mut loaded = Loaded::new(device, commands).unwrap();
    let image = loaded.read(PLACES[1]).unwrap();
    for round in 0..12 {
        // The index of the first, and what it finds: the index of the second.
        let (index, found) = [(0i32, 1i32), (7, 1), (0, 9)][round % 3];
        loaded.arena.write(PLACES[1], &image).unwrap();
        loaded.arena.write(PLACES[1], &found.to_le_bytes()).unwrap();
        loaded.arena.write(INDICES, &index.to_le_bytes()).unwrap();
        loaded.arena.write(PLACES[2], &[0xEE; 16384]).unwrap();
        let (launches, bodies) = (calls("cuGraphLaunch"), calls("cuGraphAddNode"));
        let said = loaded.step().map_err(|error| error.code());
        let changed = places.map(|at| loaded.result(at).iter().any(|byte| *byte != 0xEE));
        let is_fine = index == 0;
        assert_eq!((said.is_ok(), changed), (is_fine && found == 1, [is_fine, is_fine, is_fine && found == 1]), "{round}");
        match round {
            0 => assert_eq!((calls("cuGraphLaunch") - launches, calls("cuGraphAddNode") - bodies), (0, 0)),
            1 => assert_eq!((calls("cuGraphLaunch") - launches, calls("cuGraphAddNode") - bodies), (1, 2)),
            _ => assert_eq!((calls("cuGraphLaunch") - launches, calls("cuGraphAddNode") - bodies), (1, 0)),
        }
    }
}

/// Opens a card with cuDNN and runs a convolution four times. Returns whether it was launched as a graph.
fn scenario(rig: &Rig) -> Result<bool> {
    let launches = || Driver::open(&rig.cards.machine).calls(Some("cuGraphLaunch"));
    let before = launches();
    let card = rig.open()?;
    let (device, library) = rig.device(&card, ROUNDED)?;
    let variant = first(&*library)?;
    assert!(&*variant.name != "cuda", "the card says what it wants, or why not");
    let mut loaded = Loaded::new(device, vec![convolution(variant.clone(), PLACES[2]), convolution(variant, PLACES[3])])?;
    (0..4).try_for_each(|_| loaded.step())?;
    assert_eq!(loaded.read(PLACES[2])?, loaded.read(PLACES[3])?);
    Ok(launches() > before)
}

#[test]
fn every_call_of_cudnn_may_find_no_memory() {
    let Some(rig) = Rig::new("cudnn-short") else { return };
    let gpus = &rig.cards.machine.gpus;
    gpus.set_handle(0, 10 << 20).unwrap();
    gpus.refuse(0, u64::MAX).unwrap();
    assert!(scenario(&rig).unwrap());
    let calls = u64::MAX - gpus.left(0).unwrap();
    assert!((20..500).contains(&calls), "{calls} calls");
    for call in 1..=calls {
        gpus.refuse(0, call).unwrap();
        match scenario(&rig) {
            Err(error) => assert_eq!(error.code(), Code::ResourceExhausted, "call {call} of {calls}: {error}"),
            Ok(is_a_graph) => assert!(!is_a_graph, "call {call} of {calls} found no memory"),
        }
        assert_eq!((gpus.left(0).unwrap(), rig.cards.machine.used(0)), (0, 0), "call {call} of {calls}");
    }
}

#[test]
fn a_card_that_is_lost_is_said_to_be() {
    let Some(rig) = Rig::new("cudnn-lost") else { return };
    let card = rig.open().unwrap();
    let (device, library) = rig.device(&card, ROUNDED).unwrap();
    let variant = first(&*library).unwrap();
    let mut loaded = Loaded::new(device, vec![convolution(variant.clone(), PLACES[2]), convolution(variant, PLACES[3])]).unwrap();
    loaded.step().unwrap();
    rig.cards.machine.gpus.lose(0).unwrap();
    assert_eq!(loaded.step().unwrap_err().code(), Code::Unavailable);
    // Where a plan is made, too: it is no property of the engines.
    let other = card.library(FULL, CudnnMode::Always, None);
    assert_eq!(other.variants(&any_card(), &request()).unwrap_err().code(), Code::Unavailable);
}

#[test]
fn a_cudnn_that_cannot_be_used_is_a_sentence() {
    let Some(cards) = Cards::new("cudnn-none", &[64]) else { return };
    let folder = cards.machine.folder().to_str().unwrap().to_string();
    let environment = Environment::new().with("PLIMSOLL_CUDA_LIBS", &folder);
    // No library.
    std::fs::write(cards.machine.folder().join("libcudnn.so.9"), "no library").unwrap();
    let error = Planner::find(&environment).err().unwrap();
    assert!(error.code() == Code::NotFound && error.remedy() == Some("pip install nvidia-cudnn-cu13"), "{error}");
    // Without what it needs itself, which it would end the process for.
    cards.machine.add_cudnn();
    std::fs::write(cards.machine.folder().join("libcublasLt.so.13"), "no library").unwrap();
    std::fs::write(cards.machine.folder().join("libcudnn_engines_precompiled.so.9"), "").unwrap();
    let error = Planner::find(&environment).err().unwrap();
    assert!(error.code() == Code::NotFound && error.remedy() == Some("pip install nvidia-cublas"), "{error}");
}
