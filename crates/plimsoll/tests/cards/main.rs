//! Recorded cases on a processor and an NVIDIA card, whose libraries are mocks: values within tolerance of TensorFlow's, and the memory
//! that the card gave out is what was promised, to the byte.

#[path = "../../../device-cuda/tests/computing/machine.rs"]
#[allow(dead_code, reason = "tests of several crates share it")]
mod machine;

#[path = "../../../device-cuda/tests/computing/driver.rs"]
#[allow(dead_code, unused_macros, unused_imports, reason = "tests of several crates share it")]
mod driver;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use plimsoll::recorded::{Case, Verified};
use plimsoll::{Bytes, DeviceSpec, Devices, Options};
use plimsoll_cards::{CudnnMode, Environment};
use plimsoll_device::{CardLink, CardPart, Device, InstructionSet, KernelCall, Library, RealCard, Variant};
use plimsoll_device_cpu::{CpuDevice, CpuPool};
use plimsoll_device_cuda::emit::Emitted;
use plimsoll_device_cuda::{Compiler, CudaCard, CudaDevice, CudaDriver, CudaSource, EngineLimits, GraphUse, Planner, any_card};
use plimsoll_kernels::CpuKernels;
use plimsoll_memory::Ledger;
use plimsoll_request::KernelRequest;

use driver::Driver;
use machine::Machine;
use plimsoll_mock_driver::Idle;

/// A machine with one mock card.
struct Rig {
    machine: Machine,
    card: Arc<CudaCard>,
    graphs: GraphUse,
    /// Whether cuDNN computes what it can, and which of its engines programs have.
    cudnn: CudnnMode,
    engines: Arc<Mutex<Vec<String>>>,
    /// What predictions know of the card.
    real: Option<RealCard>,
}

/// A library that notes the engines of cuDNN that programs have.
#[derive(Debug)]
struct Noted(Arc<dyn CudaSource>, Arc<Mutex<Vec<String>>>);

impl Library for Noted {
    fn variants(&self, spec: &DeviceSpec, request: &KernelRequest) -> plimsoll::Result<Vec<Variant>> {
        self.0.variants(spec, request)
    }

    fn has(&self, spec: &DeviceSpec, request: &KernelRequest, variant: &Variant) -> plimsoll::Result<bool> {
        self.0.has(spec, request, variant)
    }

    fn finishes(&self, spec: &DeviceSpec, request: &KernelRequest) -> bool {
        self.0.finishes(spec, request)
    }
}

impl CudaSource for Noted {
    fn emitted(&self, request: &KernelRequest) -> plimsoll::Result<Emitted> {
        self.0.emitted(request)
    }

    fn code(&self, call: &KernelCall) -> plimsoll::Result<Emitted> {
        self.1.lock().unwrap().extend(Some(call.variant.name.to_string()).filter(|name| name.starts_with("cudnn-")));
        self.0.code(call)
    }
}

impl Rig {
    /// A mock card, whose graphs take no memory. Graphs are made at the first step, or at the second.
    fn new(test: &str, at_once: bool) -> Option<Rig> {
        let machine = Machine::new(test, &[4096])?;
        let driver = CudaDriver::load(&machine.driver()).unwrap();
        let compiler = Arc::new(Compiler::load(&machine.compiler(), None).unwrap());
        let card = CudaCard::open(&driver, &driver.cards().unwrap()[0], &compiler, None).unwrap();
        Some(Rig {
            machine,
            card,
            graphs: GraphUse { at_once, ..GraphUse::on("") },
            cudnn: CudnnMode::Never,
            engines: Arc::default(),
            real: None,
        })
    }

    /// As [`Rig::new`], with cuDNN for all that it can compute.
    fn with_cudnn(test: &str, at_once: bool) -> Option<Rig> {
        let rig = Rig::new(test, at_once)?;
        rig.machine.add_cudnn();
        let environment = Environment::new().with("PLIMSOLL_CUDA_LIBS", rig.machine.folder().to_str().unwrap());
        let planner = Arc::new(Planner::find(&environment).unwrap());
        let driver = CudaDriver::load(&rig.machine.driver()).unwrap();
        let compiler = Arc::new(Compiler::load(&rig.machine.compiler(), None).unwrap());
        let card = CudaCard::open(&driver, &driver.cards().unwrap()[0], &compiler, Some(&planner)).unwrap();
        Some(Rig { card, cudnn: CudnnMode::Always, ..rig })
    }

    /// `CPU:0` and `GPU:0`.
    fn devices(&self) -> Devices {
        self.devices_within(Bytes(2 << 30))
    }

    /// The same, with a line for the card.
    fn devices_within(&self, line: Bytes) -> Devices {
        let cpu = DeviceSpec::cpu(0, None, 2, InstructionSet::detect());
        let cpu = CpuDevice::new(cpu, CpuPool::new(2).unwrap(), Arc::new(CpuKernels));
        let part = CardPart { card: 0, priority: 0, modelled: None, real: self.real.clone() };
        let spec = DeviceSpec { memory_limit: Some(line), card: Some(part), ..any_card() };
        let spec = CudaDevice::spec(self.card.granularity(), spec);
        let ledger = Ledger::new(spec.name.to_string(), spec.memory_limit);
        let library = Noted(self.card.library(EngineLimits::default(), self.cudnn, None), self.engines.clone());
        let gpu = CudaDevice::on(&self.card, spec, ledger, Arc::new(library), self.graphs).unwrap();
        let devices = vec![Arc::new(cpu) as Arc<dyn Device>, Arc::new(gpu)];
        Devices::from(plimsoll_runtime::Devices::with(devices, &Options::new().soft_placement(true)).unwrap())
    }

    /// Replays a case, where kernels are empty without a look at values; whether the card had more than its overhead.
    fn replay(&self, folder: &Path, kernels: Idle) -> Result<bool, String> {
        let text = |error: plimsoll::Error| error.to_string();
        let case = Case::read(folder).map_err(text)?;
        self.machine.gpus.reset_peak(0).unwrap();
        let before = self.machine.used(0);
        let devices = self.devices();
        let mut replay = case.open(devices).map_err(text)?;
        replay.plan().map_err(text)?;
        match kernels {
            Idle::Not => replay.verify(&mut Verified::default())?,
            _ => {
                self.machine.gpus.set_idle(0, kernels).unwrap();
                replay.init().map_err(text)?;
                (0..case.steps()).try_for_each(|step| replay.step(step).map(drop)).map_err(text)?;
            }
        }
        let (peak, overhead) = (&replay.peaks()[1], replay.devices().specs()[1].overhead);
        peak.check().map_err(text)?;
        let given = Bytes(self.machine.gpus.peak(0).unwrap() - before);
        if given != peak.measured {
            return Err(format!("the card gave {given}, and {} was counted", peak.measured));
        }
        if !peak.is_open && peak.promised != given {
            return Err(format!(
                "the card gave {given} ({} bytes), and {} ({} bytes) was promised",
                given.0, peak.promised, peak.promised.0
            ));
        }
        let computed = peak.measured > overhead;
        drop(replay);
        match self.machine.used(0) {
            used if used == before => Ok(computed),
            used => Err(format!("{} stay with the card", Bytes(used - before))),
        }
    }
}

fn cases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/tests/cases");
    let mut cases: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.retain(|case| case.join("case.json").exists());
    cases.sort();
    assert!(cases.len() > 100, "{} cases", cases.len());
    cases
}

/// Every `of`-th case from one on, on one card.
fn replay(part: usize, of: usize) {
    let Some(rig) = Rig::new(&format!("cases-{part}"), part == 0) else { return };
    let only = std::env::var("PLIMSOLL_CASE").ok();
    let driver = Driver::open(&rig.machine);
    let bodies = || driver.calls(Some("cuGraphAddNode"));
    let before = bodies();
    let mut computed = 0;
    let mut failed = Vec::new();
    for folder in cases().into_iter().skip(part).step_by(of) {
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        if only.as_ref().is_some_and(|only| *only != name) {
            continue;
        }
        match rig.replay(&folder, Idle::Not) {
            Ok(on_the_card) => computed += usize::from(on_the_card),
            Err(why) => failed.push(format!("{name}: {why}")),
        }
    }
    assert!(failed.is_empty(), "{} cases failed:\n{}", failed.len(), failed.join("\n"));
    assert!(computed * 4 >= cases().len() / of * 3 || only.is_some(), "{computed} cases used the card");
    let bodies = bodies() - before;
    assert!(bodies >= 12 || only.is_some(), "the card decides about {bodies} loops and branches");
}

#[test]
fn cases_run_on_a_card() {
    replay(0, 2);
}

#[test]
fn other_cases_run_on_a_card() {
    replay(1, 2);
}

/// Convolutions and products by cuDNN, which keeps its workspaces in what is promised.
#[test]
fn cases_run_by_cudnn() {
    let name = |folder: &Path| folder.file_name().unwrap().to_string_lossy().into_owned();
    let is_for_it = |folder: &PathBuf| {
        let graph = std::fs::read(folder.join("graph.pb")).unwrap_or_default();
        graph.windows(6).any(|word| word == b"Conv2D" || word == b"Conv3D" || word == b"MatMul")
    };
    let (mut failed, mut by_cudnn) = (Vec::new(), 0);
    let (Some(one), Some(other)) = (Rig::with_cudnn("cases-cudnn", true), Rig::with_cudnn("more-cases-cudnn", false)) else { return };
    for (folder, rig) in cases().into_iter().filter(is_for_it).zip([&one, &other].into_iter().cycle()) {
        rig.engines.lock().unwrap().clear();
        match rig.replay(&folder, Idle::Not) {
            Ok(_) => by_cudnn += usize::from(!rig.engines.lock().unwrap().is_empty()),
            Err(why) => failed.push(format!("{}: {why}", name(&folder))),
        }
    }
    assert!(failed.is_empty() && by_cudnn >= 20, "{by_cudnn} by cuDNN, {} failed:\n{}", failed.len(), failed.join("\n"));
}

/// The engines of a case's programs. The smallest line changes neither engines nor bits, and one byte less is refused.
fn engines_under_any_line(rig: &Rig, name: &str) -> Vec<String> {
    let case = Case::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/tests/cases").join(name)).unwrap();
    let run = |line: Bytes| {
        let mut replay = case.open(rig.devices_within(line)).unwrap();
        replay.plan().unwrap();
        let least = replay.minimum_limit().unwrap();
        replay.init().unwrap();
        let values: Vec<_> =
            (0..case.steps()).flat_map(|step| replay.step(step).unwrap()).map(|value| value.bytes().unwrap().to_vec()).collect();
        let peak = &replay.peaks()[1];
        assert!(peak.check().is_ok() && peak.promised == peak.measured && peak.promised <= line, "{line}: {peak:?}");
        let mut engines = std::mem::take(&mut *rig.engines.lock().unwrap());
        engines.sort();
        (values, engines, least)
    };
    let (values, engines, least) = run(Bytes(2 << 30));
    // Under the smallest line works may run again: the same engines, some more often.
    let (same, mut again, _) = run(least);
    let mut once = engines.clone();
    [&mut once, &mut again].into_iter().for_each(Vec::dedup);
    assert!(same == values && again == once, "{again:?} and {once:?}");
    let less = Bytes(least.0 - 1);
    let refused = case.open(rig.devices_within(less)).and_then(|mut replay| replay.plan().map(drop)).unwrap_err();
    assert_eq!(refused.code(), plimsoll::Code::ResourceExhausted, "{refused}");
    engines
}

/// Gradients of ReLUs are parts of the engines of the gradients before them, with and without another gradient that is added.
#[test]
fn gradients_of_relu_are_cudnns_under_any_line() {
    let Some(rig) = Rig::with_cudnn("residuals-cudnn", true) else { return };
    let engines = engines_under_any_line(&rig, "residuals_bf16");
    let with = |end: &str| engines.iter().filter(|name| name.ends_with(end)).count();
    let (alone, added) = (with("/0/relu_grad"), with("/0/residual+relu_grad"));
    assert!(alone >= 3 && added >= 2, "{engines:?}");
}

/// Convolutions sum the channels of their results for the normalizations behind them, also where the input's channels are padded. One of twelve channels
/// does not: no engine takes them.
#[test]
fn sums_of_channels_are_cudnns_under_any_line() {
    let Some(rig) = Rig::with_cudnn("normalized-cudnn", true) else { return };
    let engines = engines_under_any_line(&rig, "normalized_bf16");
    let with = |end: &str| engines.iter().filter(|name| name.ends_with(end)).count();
    assert_eq!((with("/statistics"), with("/padded/statistics")), (9, 1), "{engines:?}");
}

/// Attention and its gradient are cuDNN's, and their scores are nowhere.
#[test]
fn attention_is_cudnns_under_any_line() {
    let Some(rig) = Rig::with_cudnn("attention-cudnn", true) else { return };
    let engines = engines_under_any_line(&rig, "attention_bf16");
    let with = |begin: &str| engines.iter().filter(|name| name.starts_with(begin)).count();
    // Four with their gradients in a step of training; in one without, one more, whose mask is learned.
    let (attention, gradients) = (with("cudnn-9.26.99/9/"), with("cudnn-9.26.99/6/"));
    assert_eq!((attention, gradients), (4 + 5, 4), "{engines:?}");
}

/// So is Keras' attention: its tensors lie by rows, masks are added, and with dropout that is not active matrices are transposed.
#[test]
fn attention_of_keras_is_cudnns_under_any_line() {
    let Some(rig) = Rig::with_cudnn("keras-attention-cudnn", true) else { return };
    let engines = engines_under_any_line(&rig, "keras_attention_bf16");
    let with = |begin: &str| engines.iter().filter(|name| name.starts_with(begin)).count();
    // Five with their gradients in a step of training; in one without, two more, of the layer with dropout.
    let (attention, gradients) = (with("cudnn-9.26.99/9/"), with("cudnn-9.26.99/6/"));
    assert_eq!((attention, gradients), (5 + 7, 5), "{engines:?}");
}

/// So is attention of which shares drop out in training: there it is the graph of its parts.
#[test]
fn attention_whose_shares_drop_out_is_cudnns_under_any_line() {
    let Some(rig) = Rig::with_cudnn("dropout-cudnn", true) else { return };
    let engines = engines_under_any_line(&rig, "keras_dropout_bf16");
    let with = |begin: &str| engines.iter().filter(|name| name.starts_with(begin)).count();
    let (parts, whole, gradients) = (with("cudnn-9.26.99/2/"), with("cudnn-9.26.99/9/"), with("cudnn-9.26.99/6/"));
    assert_eq!((parts, whole, gradients), (4, 3, 4), "{engines:?}");
}

/// A training step whose feeds are small is one launch on a card as predictions know it, also where labels may be faults and cuDNN computes what is
/// behind them.
#[test]
fn a_training_step_is_one_launch() {
    let link = CardLink { bandwidth: 2.5e10, peers: Vec::new() };
    let real = Some(RealCard { model: "Mock card".to_string(), multiprocessors: 132, link });
    for (test, with_cudnn) in [("one-launch", false), ("one-launch-cudnn", true)] {
        let Some(rig) = (if with_cudnn { Rig::with_cudnn(test, true) } else { Rig::new(test, true) }) else { return };
        let rig = Rig { real: real.clone(), ..rig };
        let driver = Driver::open(&rig.machine);
        for name in ["mlp_sgd_ref", "mlp_adam_resource"] {
            let case = Case::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/tests/cases").join(name)).unwrap();
            let mut replay = case.open(rig.devices()).unwrap();
            replay.init().unwrap();
            replay.step(0).unwrap();
            let functions = ["cuGraphLaunch", "cuLaunchKernel", "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuGraphInstantiateWithFlags"];
            let calls = |driver: &Driver| functions.map(|name| driver.calls(Some(name)));
            let before = calls(&driver);
            replay.step(1).unwrap();
            let behind = calls(&driver);
            let count: Vec<u64> = before.iter().zip(behind).map(|(before, behind)| behind - before).collect();
            assert_eq!(count, [1, 0, 0, 0, 0], "{name}: {functions:?}");
        }
    }
}

/// Training steps of networks that `scripts/write_memory_cases.py` has written, with empty kernels: what a card gives is what was promised.
#[test]
#[ignore = "needs cases that Python writes: scripts/long"]
fn networks_are_given_what_was_promised() {
    let Some(folder) = std::env::var_os("PLIMSOLL_MEMORY_CASES").map(PathBuf::from) else {
        eprintln!("skipped: PLIMSOLL_MEMORY_CASES names no folder of cases");
        return;
    };
    let mut cases: Vec<PathBuf> = std::fs::read_dir(&folder).expect("a folder").map(|entry| entry.unwrap().path()).collect();
    cases.retain(|case| case.join("case.json").exists());
    cases.sort();
    assert!(!cases.is_empty(), "no cases in {}", folder.display());
    for (number, case) in cases.iter().enumerate() {
        let Some(rig) = Rig::new(&format!("networks-{number}"), true) else { return };
        match rig.replay(case, Idle::Kernels) {
            Ok(on_the_card) => assert!(on_the_card, "{}: not on the card", case.display()),
            Err(why) => panic!("{}: {why}", case.display()),
        }
        println!("{}: {} at most", case.display(), Bytes(rig.machine.gpus.peak(0).unwrap()));
    }
}

/// Two devices of one process share a context, and whichever remains holds a charge for it.
#[test]
fn devices_of_one_process_are_charged_each_for_the_context() {
    const FOLDER: &str = "PLIMSOLL_TEST_TWO_DEVICES";
    const MIB: u64 = 1 << 20;
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else {
        let Some(machine) = Machine::new("two-devices", &[1024]) else { return };
        machine.gpus.set_context(0, 40 * MIB).unwrap();
        // The ledger's folder is the environment's.
        let mut own = std::process::Command::new(std::env::current_exe().unwrap());
        own.args(["devices_of_one_process_are_charged_each_for_the_context", "--exact", "--nocapture"]).env_remove("CUDA_VISIBLE_DEVICES");
        own.env(FOLDER, machine.folder()).env("PLIMSOLL_STATE_DIR", machine.folder().join("state"));
        let output = own.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        return;
    };
    let text = |path: PathBuf| path.to_str().unwrap().to_string();
    let library = text(folder.join("libnvidia-ml.so.1"));
    let environment = plimsoll_cards::Environment::new().with("PLIMSOLL_NVML", &library).with("PLIMSOLL_CUDA_LIBS", &text(folder.clone()));
    let gpus = plimsoll_mock_driver::Machine::open(&folder).unwrap();
    let open = || plimsoll_runtime::Devices::open_in(&Options::new(), &environment).unwrap();
    let held = |devices: &plimsoll_runtime::Devices| devices.memory_reserved("GPU:0").unwrap().0;
    let used = || gpus.used().unwrap()[0];
    // Of what is held, 8 MiB are kept for graphs, of which none was made.
    let first = open();
    assert_eq!((held(&first), used()), (50 * MIB, 42 * MIB));
    let second = open();
    // The context, and what the first has besides.
    assert_eq!((held(&second), used()), (52 * MIB, 44 * MIB));
    drop(first);
    assert_eq!((held(&second), used()), (52 * MIB, 42 * MIB));
    drop(second);
    assert_eq!(used(), 0);
}
