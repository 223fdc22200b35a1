//! What `bench/gpu/check.sh` asks a card, as tests of their own: they write what they measured into the folder PLIMSOLL_CHECK, and use
//! the libraries that PLIMSOLL_CUDA_LIBS and PLIMSOLL_NVML name, or those of the machine. Without that folder the card is a mock.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use plimsoll_base::{Bytes, DataType, Result};
use plimsoll_cards::{CudnnMode, Environment};
use plimsoll_device::conformance::{CellOperation, Rig, run_all};
use plimsoll_device::{
    Bindings, BufferRef, CardPart, Command as Called, Device, DeviceName, DeviceSpec, KernelCall, Library, Place, Program, Work,
};
use plimsoll_device_cuda::{
    ComputeLibrary, ConvolutionKind, CudaCard, CudaDevice, CudaLibrary, CudaSource, DriverCard, EngineLimits, EngineName, GraphUse, Nvml,
    PlanFor, Planner, RateSample, Taken, Toolkit, any_card, rates_text,
};
use plimsoll_memory::Ledger;
use plimsoll_request::KernelRequest;
use plimsoll_request::anchor::Anchor;
use plimsoll_request::conv::ConvSpec;
use plimsoll_request::product::ProductSpec;
use serde_json::{Value, json};

use super::driver::{Driver, call};
use super::engines::{H100, convolutions, table};
use super::graphs::{Loaded, program};
use super::machine::Machine;
use super::rig::Cells;

/// A card and the libraries for it.
struct Checked {
    toolkit: Toolkit,
    nvml: Nvml,
    first: DriverCard,
    driver: PathBuf,
    /// Where results go; none on a mock of the test's own.
    out: Option<PathBuf>,
    machine: Option<Machine>,
}

impl Checked {
    fn find(test: &str) -> Option<Checked> {
        let out = std::env::var_os("PLIMSOLL_CHECK").map(PathBuf::from);
        let mut environment = Environment::of(std::env::vars());
        let mut machine = None;
        if out.is_none() {
            let mock = Machine::new(&format!("card-{test}"), &[256])?;
            let folder = mock.folder().to_str().expect("a path in UTF-8");
            environment = Environment::new()
                .with("PLIMSOLL_CUDA_LIBS", folder)
                .with("PLIMSOLL_NVML", &format!("{folder}/libnvidia-ml.so.1"))
                .with("XDG_CACHE_HOME", folder);
            machine = Some(mock);
        }
        let toolkit = Toolkit::find(&environment, CudnnMode::Auto).unwrap();
        let first = toolkit.driver.cards().unwrap().remove(0);
        let driver = ComputeLibrary::Driver.find(&environment).found.unwrap().path;
        Some(Checked { toolkit, nvml: Nvml::find(&environment).unwrap(), first, driver, out, machine })
    }

    fn card(&self) -> Arc<CudaCard> {
        CudaCard::open(&self.toolkit.driver, &self.first, &self.toolkit.compiler, None).unwrap()
    }

    fn device(&self, card: &Arc<CudaCard>, index: u32, line: Bytes, graphs: GraphUse, library: Arc<dyn CudaSource>) -> Result<CudaDevice> {
        let part = CardPart { card: 0, priority: 0, modelled: None, real: None };
        let spec = DeviceSpec { name: DeviceName::local("GPU", index), memory_limit: Some(line), card: Some(part), ..any_card() };
        let spec = CudaDevice::spec(card.granularity(), spec);
        CudaDevice::on(card, spec.clone(), Ledger::new(spec.name.to_string(), spec.memory_limit), library, graphs)
    }

    /// Bytes of the card that all processes use.
    fn used(&self) -> Bytes {
        self.nvml.memory_of(&self.first.uuid).unwrap().used
    }

    fn write(&self, name: &str, text: &str) {
        match &self.out {
            Some(folder) => std::fs::write(folder.join(name), text).expect("a file in PLIMSOLL_CHECK"),
            None => println!("{name}: {text}"),
        }
    }

    fn write_json(&self, name: &str, value: &Value) {
        self.write(name, &format!("{value:#}\n"));
    }
}

#[test]
fn card_overhead() {
    let Some(checked) = Checked::find("overhead") else { return };
    if let Some(machine) = &checked.machine {
        machine.gpus.set_context(0, 40 << 20).unwrap();
        machine.gpus.set_graph_node(0, 4096).unwrap();
        machine.gpus.set_takes_code(0, true).unwrap();
    }
    let before = checked.used();
    let card = checked.card();
    let context = checked.used() - before;
    let measured = card.measure().unwrap();
    let version = checked.toolkit.driver.version();
    let taken = measured.taken;
    if checked.machine.is_some() {
        let device = Bytes(16 * 4096 + 2000 * 4096 + (4 << 20)).round_up(1 << 20);
        assert_eq!((context, taken), (Bytes(40 << 20), Taken { graph: Bytes(4096), node: Bytes(4096), device, is_measured: true }));
    }
    let graphs: Vec<Value> =
        measured.graphs.iter().map(|(graphs, nodes, bytes)| json!({"graphs": graphs, "nodes": nodes, "bytes": bytes.0})).collect();
    let bodies = measured.bodies.map(|(graphs, bytes)| json!({"graphs": graphs, "bytes": bytes.0}));
    assert!(bodies.is_some() || checked.machine.is_none());
    let (code, code_takes) = measured.code;
    // Code is charged with what it has, and the driver takes memory by pieces.
    let most = code.round_up(card.granularity()) + Bytes(card.granularity());
    assert!(code.0 > 0 && code_takes <= most, "{code} of code take {code_takes}");
    assert!(code_takes.0 > 0 || checked.machine.is_none());
    checked.write_json(
        "overhead.json",
        &json!({
            "card": card.name(), "driver": format!("{}.{}", version.0, version.1), "context_bytes": context.0, "granularity_bytes": card.granularity(),
            "streams": 16, "streams_bytes": measured.streams.0, "module_bytes": measured.module.0, "code_bytes": code.0,
            "code_takes_bytes": code_takes.0, "graphs": graphs, "with_bodies": bodies,
        }),
    );
    checked.write("overhead.txt", &taken.text(card.name()));
    // The guess is no less than what the card takes, or it has to be replaced.
    let charged = Taken::on(card.name());
    println!("charged: {charged:?}");
}

#[test]
fn card_commits() {
    let Some(checked) = Checked::find("commits") else { return };
    let rounds = if checked.out.is_some() { 1000 } else { 50 };
    let time = checked.card().check_commits(rounds).unwrap();
    checked.write_json("commits.json", &json!({"rounds": rounds, "microseconds": time.as_secs_f64() * 1e6}));
}

/// The suite of all devices on parts of one card.
struct OnCard<'a> {
    checked: &'a Checked,
    graphs: GraphUse,
}

impl Rig for OnCard<'_> {
    fn devices(&self, count: usize, line: Bytes) -> Vec<Arc<dyn Device>> {
        let card = self.checked.card();
        let device = |index: usize| {
            Arc::new(self.checked.device(&card, index as u32, line, self.graphs, Arc::new(Cells)).unwrap()) as Arc<dyn Device>
        };
        (0..count).map(device).collect()
    }

    fn call(&self, operation: CellOperation, pieces: u32, arguments: usize) -> KernelCall {
        let (name, number) = match &operation {
            CellOperation::Mix(number) => ("mix", *number),
            CellOperation::Fail(number) => ("fail", *number as u64),
            // A card sees memory that is pinned, not the suite's.
            CellOperation::When(now) => {
                let (byte, now) = (self.pinned(), now.clone());
                std::thread::spawn(move || {
                    while !now.load(Ordering::Acquire) && Arc::strong_count(&now) > 1 {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    // SAFETY: pinned memory that is never given back; kernels read it.
                    unsafe { std::sync::atomic::AtomicU8::from_ptr(byte as *mut u8) }.store(1, Ordering::Release);
                });
                ("when", byte)
            }
            CellOperation::Panic => panic!("no kernel of a card panics"),
        };
        let request = KernelRequest::Named(format!("{name} {number} {pieces} {arguments}"));
        let variant = Cells.variants(&any_card(), &request).unwrap().remove(0);
        KernelCall { request: Arc::new(request), variant: Arc::new(variant), step: 0 }
    }

    fn unit(&self) -> u64 {
        2 << 20
    }

    fn can_panic(&self) -> bool {
        false
    }
}

impl OnCard<'_> {
    /// A byte of 0 that kernels see, and that stays as long as the process.
    fn pinned(&self) -> u64 {
        let card = self.checked.card();
        let driver = Driver::at(&self.checked.driver);
        driver.enter(0);
        let mut place: *mut std::ffi::c_void = std::ptr::null_mut();
        assert_eq!(call!(driver, "cuMemHostAlloc"(*mut *mut std::ffi::c_void, usize, std::ffi::c_uint), &mut place, 64, 3), 0);
        // SAFETY: 64 bytes that nobody else knows.
        unsafe { place.cast::<u8>().write_bytes(0, 64) };
        std::mem::forget(card);
        place as u64
    }
}

#[test]
fn card_conformance() {
    let Some(checked) = Checked::find("conformance") else { return };
    for at_once in [false, true] {
        run_all(&OnCard { checked: &checked, graphs: GraphUse { at_once, ..GraphUse::on("") } });
    }
    checked.write_json("conformance.json", &json!({"passed": true}));
}

/// Seconds that a thread has computed.
fn computed() -> f64 {
    // SAFETY: numbers, for which zero is a value.
    let mut time: libc::timespec = unsafe { std::mem::zeroed() };
    // SAFETY: the clock exists, and the place is ours.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 + 1e-9 * time.tv_nsec as f64
}

#[test]
fn card_launches() {
    let Some(checked) = Checked::find("launches") else { return };
    let steps = if checked.out.is_some() { 300 } else { 3 };
    let mut rows = Vec::new();
    for kernels in [10, 100, 1000] {
        for (way, room) in [("stream", Bytes::ZERO), ("graph", Bytes(1 << 30))] {
            let graphs = GraphUse { at_once: true, ..GraphUse::on("") }.with_room(room);
            let device = checked.device(&checked.card(), 0, Bytes(64 << 20), graphs, Arc::new(CudaLibrary)).unwrap();
            let mut loaded = Loaded::on(device, program(kernels));
            assert_eq!(loaded.step(7), [7; 4]);
            let mut times = Vec::new();
            let before = computed();
            loaded.steps(steps, |step| {
                let begun = Instant::now();
                step();
                times.push(begun.elapsed().as_secs_f64() * 1e6);
            });
            let caller = (computed() - before) * 1e6 / f64::from(steps);
            times.sort_by(f64::total_cmp);
            rows.push(json!({
                "kernels": kernels, "way": way, "steps": steps, "median_us": times[times.len() / 2], "p90_us": times[times.len() * 9 / 10], "caller_us": caller,
            }));
        }
    }
    checked.write_json("launches.json", &json!(rows));
}

/// Products and convolutions whose rates are measured: on a mock small ones.
fn measured_requests(data_type: DataType, is_mock: bool) -> Vec<(&'static str, Option<ConvolutionKind>, KernelRequest)> {
    let anchor = |anchor| KernelRequest::Anchor { anchor, epilogue: None, pooling: None };
    let mut requests = Vec::new();
    let specs: Vec<ConvSpec> = match is_mock {
        true => vec![ConvSpec { batch: 1, in_c: 4, out_c: 4, ..convolutions().remove(5).1 }],
        false => convolutions().into_iter().map(|(_, spec)| spec).collect(),
    };
    for spec in specs.into_iter().map(|spec| ConvSpec { data_type, ..spec }) {
        requests.push(("forward", Some(ConvolutionKind::Forward), anchor(Anchor::Conv(spec))));
        requests.push(("by-input", Some(ConvolutionKind::ByInput), anchor(Anchor::ConvBackpropInput(spec))));
        requests.push(("by-filter", Some(ConvolutionKind::ByFilter), KernelRequest::ConvBackpropFilter { spec, unpooled: None }));
    }
    let products: &[(u64, u64, u64)] = match is_mock {
        true => &[(8, 8, 8)],
        false => &[(64, 64, 64), (512, 304, 784), (1024, 1024, 1024), (4096, 3072, 768)],
    };
    for &(m, n, k) in products {
        let spec = ProductSpec { m, n, k, transpose_a: false, transpose_b: false, batch: 1, places: None };
        requests.push(("product", None, anchor(Anchor::Product(data_type, spec))));
    }
    requests
}

/// The operations of a gradient by the input, without those of elements that lie between strides.
fn issued_without_zeros(spec: &ConvSpec) -> f64 {
    let sizes = [spec.output(), vec![spec.taps(), spec.in_c / spec.groups.max(1)]].concat();
    2.0 * sizes.into_iter().map(|size| size as f64).product::<f64>()
}

/// How fast the ways to compute products and convolutions are: the card's table of rates.
#[test]
fn card_rates() {
    let Some(checked) = Checked::find("rates") else { return };
    let is_mock = checked.machine.is_some() || std::env::var_os("PLIMSOLL_CHECK_MOCK").is_some();
    let line = Bytes(if is_mock { 64 << 20 } else { 6 << 30 });
    let card = CudaCard::open(&checked.toolkit.driver, &checked.first, &checked.toolkit.compiler, checked.toolkit.planner()).unwrap();
    let seen = checked.nvml.look().cards.into_iter().find(|card| card.device.uuid == checked.first.uuid).expect("the card");
    let known = |value: f64| if value > 0.0 { value } else { 1e12 };
    let spec = DeviceSpec { flops: known(seen.device.peak_flops()), bandwidth: known(seen.device.bandwidth), ..any_card() };
    let (mut samples, mut rows) = (Vec::new(), Vec::new());
    let (engines, rounds) = if is_mock { (1, 1) } else { (3, 5) };
    for (round, (data_type, tensor_float_32)) in (0..).zip([(DataType::Float, false), (DataType::Float, true), (DataType::Bfloat16, false)])
    {
        let limits = EngineLimits { tensor_float_32, workspace: Bytes(1 << 30) };
        let library = card.library(limits, CudnnMode::Always, None);
        let device = checked.device(&card, round, line, GraphUse::on(card.name()), library).unwrap();
        let tuner = device.tuner().expect("a card has one");
        let exact = card.library(EngineLimits { tensor_float_32: false, ..limits }, CudnnMode::Always, None);
        for (kind, convolution, request) in measured_requests(data_type, is_mock) {
            // What is allowed without rounding was measured in the first round.
            let known = if tensor_float_32 { exact.candidates(&any_card(), &request, 64).unwrap() } else { Vec::new() };
            let mut taken = BTreeSet::new();
            for variant in tuner.candidates(&request, engines).unwrap().into_iter().filter(|variant| !known.contains(variant)) {
                let named = variant.name.parse::<EngineName>().ok();
                let way = match (&named, tensor_float_32) {
                    _ if data_type != DataType::Float => "tensor-cores-16",
                    (None, _) => "kernels",
                    (Some(_), false) => "cudnn",
                    (Some(_), true) => "tensor-cores",
                };
                // The table has kernels of the project by those of floats.
                if named.is_none() && data_type != DataType::Float {
                    continue;
                }
                let arguments = request.arguments().unwrap();
                let (mut args, mut next) = (Vec::new(), 0);
                for bytes in arguments.inputs.iter().chain(&arguments.outputs) {
                    args.push(BufferRef { place: Place::Arena(0), offset: next, bytes: *bytes });
                    next += bytes.next_multiple_of(256);
                }
                let bytes = variant.steps[0].scratch;
                let scratch = (bytes > 0).then_some(BufferRef { place: Place::Arena(0), offset: next, bytes });
                let block = device.allocate(Bytes(next + bytes), "what is timed").unwrap();
                let call = KernelCall { request: Arc::new(request.clone()), variant: Arc::new(variant.clone()), step: 0 };
                let command = Called {
                    work: Work::Kernel(call),
                    args,
                    scratch,
                    worker_scratch: None,
                    guard: None,
                    waits: vec![],
                    label: kind.into(),
                };
                let bindings = Bindings { arenas: vec![block.address()], ..Bindings::default() };
                let mut timed = tuner.prepare(&Arc::new(Program { commands: vec![command; 4] }), &bindings).unwrap();
                timed.seconds(1).unwrap();
                let mut seconds: Vec<f64> = (0..rounds).map(|_| timed.seconds(4).unwrap() / 16.0).collect();
                seconds.sort_by(f64::total_cmp);
                let seconds = seconds[seconds.len() / 2];
                let operations = match (&named, &request) {
                    (Some(_), KernelRequest::Anchor { anchor: Anchor::ConvBackpropInput(spec), .. }) => issued_without_zeros(spec),
                    _ => variant.steps[0].load.issued,
                };
                let bytes = arguments.inputs.iter().chain(&arguments.outputs).map(|bytes| *bytes as f64).sum();
                let workspace = named.as_ref().map_or(0.0, |name| name.workspace.0 as f64);
                // A plan takes the first.
                if taken.insert(way) {
                    samples.push(RateSample { kind, way, operations, bytes, workspace, seconds });
                }
                rows.push(json!({
                    "request": request.summary(), "kind": format!("{convolution:?}"), "way": way, "variant": &*variant.name,
                    "operations": operations, "workspace_bytes": workspace, "microseconds": seconds * 1e6,
                }));
            }
        }
    }
    assert!(samples.iter().all(|sample| sample.seconds > 0.0 && sample.operations > 0.0), "{rows:?}");
    assert!(["forward", "by-input", "by-filter", "product"].iter().all(|kind| samples.iter().any(|sample| sample.kind == *kind)));
    checked.write("rates.txt", &rates_text(card.name(), &spec, &samples));
    checked.write_json("rates.json", &json!(rows));
}

const CHILD: &str = "PLIMSOLL_CHECK_CHILD";

/// A program that is killed leaves nothing on the card.
#[test]
fn card_killed() {
    if std::env::var_os(CHILD).is_some() {
        let checked = Checked::find("child").expect("libraries");
        let card = checked.card();
        let half = Bytes(card.free_bytes().unwrap() / 2).round_up(card.granularity());
        let device = checked.device(&card, 0, Bytes(u64::MAX), GraphUse::on(""), Arc::new(CudaLibrary)).unwrap();
        let _block = device.allocate(half, "block").unwrap();
        println!("holds {}", half.0);
        std::thread::sleep(Duration::from_secs(60));
        return;
    }
    let Some(checked) = Checked::find("killed") else { return };
    let before = checked.used();
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["card::card_killed", "--exact", "--nocapture"]).env(CHILD, "1").stdout(Stdio::piped());
    if let Some(machine) = &checked.machine {
        child.env("PLIMSOLL_CHECK", machine.folder()).env("PLIMSOLL_CUDA_LIBS", machine.folder());
        child.env("PLIMSOLL_NVML", machine.folder().join("libnvidia-ml.so.1"));
    }
    let mut child = child.spawn().unwrap();
    let mut said = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    let held = loop {
        line.clear();
        assert!(std::io::BufRead::read_line(&mut said, &mut line).unwrap() > 0, "the child ended");
        if let Some((_, held)) = line.split_once("holds ") {
            break Bytes(held.trim().parse().unwrap());
        }
    };
    let during = checked.used();
    child.kill().unwrap();
    child.wait().unwrap();
    let killed = Instant::now();
    while checked.used() > before && killed.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let after = checked.used();
    checked.write_json(
        "killed.json",
        &json!({"before_bytes": before.0, "during_bytes": during.0, "after_bytes": after.0, "seconds": killed.elapsed().as_secs_f64()}),
    );
    assert!(during - before >= held && after <= before, "{before} before, {during} with {held}, {after} behind");
}

/// Runs the program of PLIMSOLL_CHECK_PROGRAM, its words behind each other, and samples the card's memory meanwhile.
#[test]
fn card_memory() {
    let Some(checked) = Checked::find("memory") else { return };
    let program = std::env::var("PLIMSOLL_CHECK_PROGRAM").ok().filter(|_| checked.out.is_some());
    let Some(program) = program else {
        eprintln!("skipped: PLIMSOLL_CHECK_PROGRAM names no program");
        return;
    };
    let before = checked.used();
    let words: Vec<&str> = program.split_whitespace().collect();
    let child = Command::new(words[0]).args(&words[1..]).stdout(Stdio::piped()).spawn().expect("the program");
    let ended = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let waits = std::thread::spawn({
        let ended = ended.clone();
        move || {
            let output = child.wait_with_output();
            ended.store(true, Ordering::Release);
            output
        }
    });
    let (mut most, mut samples, mut longest) = (before, 0u64, Duration::ZERO);
    while !ended.load(Ordering::Acquire) {
        let begun = Instant::now();
        most = most.max(checked.used());
        samples += 1;
        std::thread::sleep(Duration::from_millis(1).saturating_sub(begun.elapsed()));
        longest = longest.max(begun.elapsed());
    }
    let output = waits.join().unwrap().unwrap();
    let said: Value = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    let case = said.get(0).unwrap_or(&said);
    let card = case["devices"]
        .as_array()
        .and_then(|devices| devices.iter().find(|device| device["name"].as_str().is_some_and(|name| name.contains("GPU:0"))));
    let promised = card.and_then(|card| card["planned_peak_bytes"].as_u64());
    checked.write_json(
        "memory.json",
        &json!({
            "program": program, "samples": samples, "longest_ms": longest.as_secs_f64() * 1e3, "before_bytes": before.0, "most_bytes": most.0,
            "taken_bytes": (most - before).0, "promised_bytes": promised,
        }),
    );
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    // Overhead is in the promise.
    let promised = Bytes(promised.expect("GPU:0 took part"));
    assert!(most - before <= promised, "{} were taken, and {promised} promised", most - before);
}

/// What cuDNN says of convolutions on a card of these properties, in a process that has it and in one that sees none. Where that differs,
/// the difference is the result: then engines are chosen where plans are made, and named in them.
#[test]
fn card_engines() {
    const FILE: &str = "PLIMSOLL_CHECK_ENGINES";
    let out = std::env::var_os("PLIMSOLL_CHECK").filter(|_| std::env::var_os("PLIMSOLL_CHECK_MOCK").is_none());
    let Some(out) = out.map(PathBuf::from) else {
        eprintln!("skipped: a mock card has no properties that cuDNN would read");
        return;
    };
    let planner = Planner::find(&Environment::of(std::env::vars())).unwrap();
    if let Some(file) = std::env::var_os(FILE) {
        let properties = std::fs::read_to_string(&file).unwrap();
        std::fs::write(file, table(&planner, PlanFor::Properties(&properties))).unwrap();
        return;
    }
    let properties = planner.properties(0).unwrap();
    let here = table(&planner, PlanFor::Properties(&properties));
    let by_number = table(&planner, PlanFor::Here(0));
    let away = |properties: &str| {
        let file = out.join("engines.tmp");
        std::fs::write(&file, properties).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["card::card_engines", "--exact"]).env(FILE, &file).env("CUDA_VISIBLE_DEVICES", "");
        assert!(child.status().unwrap().success());
        let said = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(file).unwrap();
        said
    };
    let (by_properties, by_figures) = (away(&properties), away(H100));
    let equal = json!({
        "cudnn": planner.version(), "equal_by_properties": here == by_properties, "equal_by_public_figures": here == by_figures,
        "equal_by_number": here == by_number,
    });
    for (name, text) in [
        ("properties.json", properties),
        ("engines.txt", here.clone()),
        ("engines_elsewhere.txt", by_properties.clone()),
        ("engines_by_number.txt", by_number),
        ("engines.json", format!("{equal:#}\n")),
    ] {
        std::fs::write(out.join(name), text).unwrap();
    }
    // Each graph has an engine at both places.
    assert!([&here, &by_properties].iter().all(|table| table.lines().all(|line| line.contains(": engine "))), "{here}\n{by_properties}");
}
