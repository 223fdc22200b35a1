//! What the real cuDNN says of convolutions, for a card that is not here: it takes all of our graphs, says the same each time, and as the table
//! says for its version. `PLIMSOLL_BLESS=1` writes that. Skipped, visibly, where cuDNN is not installed.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use plimsoll_base::{Bytes, Code, DataType};
use plimsoll_cards::{CudnnMode, Environment};
use plimsoll_device::{DeviceSpec, Library};
use plimsoll_device_cuda::{
    AttentionPlan, ConvolutionKind, ConvolutionPlan, CudnnLibrary, Engine, EngineLimits, Finish, GraphPlan, PlanFor, Planner, any_card,
};
use plimsoll_request::KernelRequest;
use plimsoll_request::anchor::Anchor;
use plimsoll_request::conv::ConvSpec;
use plimsoll_request::product::ProductSpec;
use plimsoll_request::scaled_attention::{KeptShares, Lies, ScaledAttention, ScoreBias};
use plimsoll_request::window::{Axes, Layout, WindowAxis};

use super::machine::Machine;

/// An H100, from public figures: not read off a card.
pub const H100: &str = include_str!("../../data/cudnn/h100.json");

const CHILD: &str = "PLIMSOLL_TEST_ENGINES";

fn axis(size: u64, taps: u64, stride: u64) -> WindowAxis {
    let positions = size.div_ceil(stride);
    let pad = ((positions - 1) * stride + taps).saturating_sub(size) / 2;
    WindowAxis { size, positions, taps, stride, dilation: 1, pad }
}

type Row = (&'static str, u64, u64, u64, u64, [u64; 2], u64);

/// Convolutions of networks, with padding as TensorFlow's `SAME`: name, images, size, taps, stride, channels, groups.
pub fn convolutions() -> Vec<(&'static str, ConvSpec)> {
    let sizes: [Row; 7] = [
        ("ResNet-50, stem", 64, 224, 7, 2, [4, 64], 1),
        ("ResNet-50, 3x3 of 64", 64, 56, 3, 1, [64, 64], 1),
        ("ResNet-50, 1x1 from 64", 64, 56, 1, 1, [64, 256], 1),
        ("ResNet-50, 3x3 by 2", 64, 56, 3, 2, [128, 128], 1),
        ("ResNet-50, 1x1 by 2", 64, 56, 1, 2, [256, 512], 1),
        ("ResNet-50, 3x3 of 512", 64, 7, 3, 1, [512, 512], 1),
        ("CIFAR-10, second", 128, 12, 5, 1, [64, 64], 1),
    ];
    let spec = |(name, batch, size, taps, stride, [in_c, out_c], groups): Row| {
        let axes = Axes::new(&[axis(size, taps, stride); 2]).unwrap();
        (name, ConvSpec { data_type: DataType::Float, batch, in_c, out_c, axes, layout: Layout::ChannelsLast, groups })
    };
    sizes.into_iter().map(spec).collect()
}

/// What cuDNN says of all of them: a line for each graph, with its first engine.
pub fn table(planner: &Planner, of: PlanFor<'_>) -> String {
    let mut text = String::new();
    for (name, spec) in convolutions() {
        for kind in ConvolutionKind::ALL {
            let said = match planner.engines(of, &ConvolutionPlan::of(kind, spec), 1) {
                Ok(engines) => engines.iter().map(line).collect(),
                Err(error) => format!("{}: {}", error.code(), error.message()),
            };
            writeln!(text, "{name}, {kind:?}: {said}").unwrap();
        }
    }
    text
}

fn line(Engine { name, is_deterministic, uses_tensor_cores, is_compiled, .. }: &Engine) -> String {
    let mut line = format!("engine {}, {} bytes", name.index, name.workspace.0);
    for (word, is_so) in [("nondeterministic", !is_deterministic), ("tensor cores", *uses_tensor_cores), ("compiled", *is_compiled)] {
        if is_so {
            line.push_str(", ");
            line.push_str(word);
        }
    }
    line
}

/// Where a table of that name is.
pub fn recorded(planner: &Planner, name: &str) -> PathBuf {
    let card = if name == "_fusions" { "cards" } else { "h100" };
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("data/cudnn/{card}_{}{name}.txt", planner.version()))
}

/// Compares what cuDNN says with what that version said before: a table of that name.
pub fn is_recorded(planner: &Planner, name: &str, said: &str) {
    let place = recorded(planner, name);
    if std::env::var_os("PLIMSOLL_BLESS").is_some() {
        std::fs::write(&place, said).unwrap();
    }
    match std::fs::read_to_string(&place) {
        Ok(recorded) => assert_eq!(said, recorded, "{} says otherwise", place.display()),
        Err(_) => eprintln!("skipped: there is no table of cuDNN {} (PLIMSOLL_BLESS=1 writes it)", planner.version()),
    }
}

/// The planner, where cuDNN is installed.
fn planner() -> Option<Planner> {
    match Planner::find(&Environment::of(std::env::vars())) {
        Ok(planner) => Some(planner),
        Err(why) if why.code() == Code::NotFound => {
            eprintln!("skipped: no cuDNN plans convolutions here: {why}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// What a test prints in a process of its own, whose loader finds the driver in that folder.
fn in_a_child(test: &str, driver: &Path) -> String {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args([test, "--exact", "--nocapture"]).env(CHILD, "1").env("LD_LIBRARY_PATH", driver);
    let output = child.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text.split_once("BEGIN\n").and_then(|(_, rest)| rest.split_once("END\n")).expect("a table").0.to_string()
}

#[test]
fn convolutions_have_engines_without_a_card() {
    const TEST: &str = "engines::convolutions_have_engines_without_a_card";
    if std::env::var_os(CHILD).is_some() {
        print!("BEGIN\n{}END\n", table(&planner().unwrap(), PlanFor::Properties(H100)));
        return;
    }
    let Some(planner) = planner() else { return };
    // Engines that are compiled ask the loader for the driver by its name.
    let Some(machine) = Machine::new("engines", &[64]) else { return };
    let say = || in_a_child(TEST, machine.folder());
    let (first, second) = (say(), say());
    assert_eq!(first, second, "two processes are told different things");
    // The small edition has no engines for filters in TensorFlow's layout, but for the gradient by the input.
    let is_fine = |line: &&str| line.contains(": engine ") || planner.compiles_all() && line.contains("UNIMPLEMENTED: cuDNN has no engine");
    let refused: Vec<&str> = first.lines().filter(|line| !is_fine(line)).collect();
    assert!(refused.is_empty(), "cuDNN {} refuses graphs:\n{}", planner.version(), refused.join("\n"));
    let edition = if planner.compiles_all() { "_jit" } else { "" };
    is_recorded(&planner, edition, &first);
}

/// Engines that the limits allow are found again by their names, with the same workspace.
#[test]
fn engines_are_rebuilt_by_their_names() {
    let Some(planner) = planner() else { return };
    if planner.compiles_all() {
        eprintln!("skipped: the small edition compiles its engines, for the driver");
        return;
    }
    let of = PlanFor::Properties(H100);
    let (mut rebuilt, mut without) = (0, 0);
    for tensor_float_32 in [false, true] {
        let limits = EngineLimits { tensor_float_32, ..EngineLimits::default() };
        for (name, spec) in convolutions() {
            for graph in ConvolutionKind::ALL.map(|kind| ConvolutionPlan::of(kind, spec)) {
                let Some(engine) = planner.choose(of, &graph, limits).unwrap() else {
                    without += 1;
                    continue;
                };
                assert!(engine.is_deterministic && engine.name.workspace <= limits.workspace, "{name}: {engine:?}");
                assert!(tensor_float_32 || !engine.uses_tensor_cores, "{name}: {engine:?}");
                let text = engine.name.to_string();
                assert_eq!(planner.rebuilt(of, &graph, &text.parse().unwrap()).unwrap(), engine, "{name}");
                rebuilt += 1;
            }
        }
    }
    println!("{rebuilt} engines of cuDNN {}; {without} convolutions have none within the limits", planner.version());
    assert!(rebuilt >= 21, "{rebuilt}");
}

/// Products of networks: name, rows, columns, terms.
const PRODUCTS: [(&str, u64, u64, u64); 5] = [
    ("MLP, first", 512, 300, 784),
    ("MLP, last", 512, 10, 100),
    ("ResNet-50, last", 64, 1000, 2048),
    ("Transformer, feed forward", 4096, 3072, 768),
    ("one row", 1, 1000, 2048),
];

/// What engines products are given, by TF32 where that is a word, and otherwise not.
fn products(planner: &Arc<Planner>) -> String {
    let mut text = String::new();
    let types = [(DataType::Float, false, "float"), (DataType::Float, true, "TF32"), (DataType::Bfloat16, false, "bfloat16")];
    for (data_type, tensor_float_32, word) in types {
        let limits = EngineLimits { tensor_float_32, ..EngineLimits::default() };
        let library = CudnnLibrary::new(planner, H100.to_string(), "", limits, CudnnMode::Always);
        for (name, m, n, k) in PRODUCTS {
            for (transpose_a, transpose_b) in [(false, false), (false, true), (true, false)] {
                let spec = ProductSpec { m, n, k, transpose_a, transpose_b, batch: 1, places: None };
                let request = KernelRequest::Anchor { anchor: Anchor::Product(data_type, spec), epilogue: None, pooling: None };
                let variant = library.variants(&any_card(), &request).unwrap().remove(0);
                assert!(library.has(&any_card(), &request, &variant).unwrap());
                let letters = [transpose_a, transpose_b].map(|is_transposed| if is_transposed { 'T' } else { 'N' });
                writeln!(text, "{name}, {}{}, {word}: {}", letters[0], letters[1], variant.name).unwrap();
            }
        }
    }
    text
}

/// What engines several products at once are given, and products of two transposed matrices.
fn other_products(planner: &Arc<Planner>) -> String {
    let mut text = String::new();
    let types = [
        (DataType::Float, false, "float"),
        (DataType::Float, true, "TF32"),
        (DataType::Bfloat16, false, "bfloat16"),
        (DataType::Half, false, "half"),
    ];
    for (data_type, tensor_float_32, word) in types {
        let limits = EngineLimits { tensor_float_32, ..EngineLimits::default() };
        let library = CudnnLibrary::new(planner, H100.to_string(), "", limits, CudnnMode::Always);
        let heads = [
            ("attention, scores", 96, 128, 128, 64),
            ("attention, values", 96, 128, 64, 128),
            ("16 of 512x64", 16, 512, 512, 64),
            ("3 small", 3, 20, 30, 40),
        ];
        let several = heads.into_iter().flat_map(|row| [(false, false), (false, true), (true, false)].map(|letters| (row, letters)));
        let turned = PRODUCTS.map(|(name, m, n, k)| ((name, 1, m, n, k), (true, true)));
        for ((name, batch, m, n, k), (transpose_a, transpose_b)) in several.chain(turned) {
            let spec = ProductSpec { m, n, k, transpose_a, transpose_b, batch, places: None };
            let request = KernelRequest::Anchor { anchor: Anchor::Product(data_type, spec), epilogue: None, pooling: None };
            let variant = library.variants(&any_card(), &request).unwrap().remove(0);
            assert!(library.has(&any_card(), &request, &variant).unwrap());
            let letters = [transpose_a, transpose_b].map(|is_transposed| if is_transposed { 'T' } else { 'N' });
            writeln!(text, "{name}, {}{}, {word}: {}", letters[0], letters[1], variant.name).unwrap();
        }
    }
    text
}

#[test]
fn several_products_and_turned_ones_have_engines_without_a_card() {
    let Some(planner) = planner().map(Arc::new) else { return };
    if planner.compiles_all() {
        return eprintln!("skipped: the small edition of cuDNN has no such convolutions");
    }
    let said = other_products(&planner);
    let by_kernels = said.lines().filter(|line| line.ends_with(": cuda")).count();
    assert!(by_kernels < said.lines().count() / 2, "cuDNN {} has few engines for\n{said}", planner.version());
    is_recorded(&planner, "_batched", &said);
}

#[test]
fn products_have_engines_without_a_card() {
    let Some(planner) = planner().map(Arc::new) else { return };
    if planner.compiles_all() {
        return eprintln!("skipped: the small edition of cuDNN has no convolutions with filters in TensorFlow's layout");
    }
    let said = products(&planner);
    let by_kernels: Vec<&str> = said.lines().filter(|line| line.ends_with(": cuda")).collect();
    assert!(by_kernels.is_empty(), "cuDNN {} has no engines for\n{}", planner.version(), by_kernels.join("\n"));
    is_recorded(&planner, "_products", &said);
}

/// What engines are given whose channels are no whole words of tensor cores: for images of three colours, and for a head of 50257 words.
fn padded(planner: &Arc<Planner>) -> String {
    let mut text = String::new();
    let types = [(DataType::Float, true, "TF32"), (DataType::Bfloat16, false, "bfloat16"), (DataType::Half, false, "half")];
    // A H200's figures, by which padding is predicted to be worth it or not.
    let spec = DeviceSpec { flops: 6.7e13, bandwidth: 4.8e12, ..any_card() };
    for (data_type, tensor_float_32, word) in types {
        let limits = EngineLimits { tensor_float_32, ..EngineLimits::default() };
        let library = CudnnLibrary::new(planner, H100.to_string(), "NVIDIA H200", limits, CudnnMode::Auto);
        let (_, stem) = convolutions().remove(0);
        let stem = ConvSpec { data_type, batch: 256, in_c: 3, ..stem };
        let anchor = |anchor| KernelRequest::Anchor { anchor, epilogue: None, pooling: None };
        let head = |(m, n, k), transpose_a, transpose_b| {
            anchor(Anchor::Product(data_type, ProductSpec { m, n, k, transpose_a, transpose_b, batch: 1, places: None }))
        };
        let (words, width, rows) = (50257, 768, 16384);
        for (name, request) in [
            ("stem", anchor(Anchor::Conv(stem))),
            ("stem by filter", KernelRequest::ConvBackpropFilter { spec: stem, unpooled: None }),
            ("words", head((rows, words, width), false, true)),
            ("words by input", head((rows, width, words), false, false)),
            ("words by table", head((words, width, rows), true, false)),
        ] {
            let variant = library.variants(&spec, &request).unwrap().remove(0);
            assert!(library.has(&spec, &request, &variant).unwrap());
            writeln!(text, "{name}, {word}: {}, {} bytes of scratch", variant.name, variant.steps[0].scratch).unwrap();
        }
    }
    text
}

#[test]
fn padded_channels_have_engines_without_a_card() {
    let Some(planner) = planner().map(Arc::new) else { return };
    if planner.compiles_all() {
        return eprintln!("skipped: the small edition of cuDNN has no convolutions with filters in TensorFlow's layout");
    }
    let said = padded(&planner);
    let is_wrong = |line: &&str| !line.contains("TF32") && !line.contains("/padded, ");
    let wrong: Vec<&str> = said.lines().filter(is_wrong).collect();
    assert!(wrong.is_empty(), "cuDNN {} has no engines for\n{}", planner.version(), wrong.join("\n"));
    is_recorded(&planner, "_padded", &said);
}

/// The first engine for an H100, or why there is none. With `rebuilds` it is built again by its name.
fn first(planner: &Planner, plan: &ConvolutionPlan, limits: EngineLimits, rebuilds: bool) -> String {
    first_of(planner, &GraphPlan::from(plan), limits, rebuilds)
}

fn first_of(planner: &Planner, plan: &GraphPlan, limits: EngineLimits, rebuilds: bool) -> String {
    let of = PlanFor::Properties(H100);
    match planner.choose(of, plan, limits) {
        Ok(Some(engine)) => {
            if rebuilds {
                assert_eq!(planner.rebuilt(of, plan, &engine.name).unwrap(), engine, "{plan:?}");
            }
            line(&engine)
        }
        Ok(None) => "none that is exact".to_string(),
        Err(error) => format!("{}: {}", error.code(), error.message()),
    }
}

/// The first engines for convolutions with something behind them: with whole floats, by TF32, and of the types of two bytes.
fn finished(planner: &Planner) -> String {
    let mut text = String::new();
    let types = [
        (DataType::Float, false, "float"),
        (DataType::Float, true, "TF32"),
        (DataType::Bfloat16, true, "bfloat16"),
        (DataType::Half, true, "half"),
    ];
    for (data_type, tensor_float_32, word) in types {
        let limits = EngineLimits { tensor_float_32, workspace: Bytes(2 << 30) };
        for (name, spec) in convolutions() {
            for finish in ["bias", "bias+relu", "residual+bias+relu", "relu"] {
                let plan = ConvolutionPlan {
                    finish: finish.parse().unwrap(),
                    ..ConvolutionPlan::of(ConvolutionKind::Forward, ConvSpec { data_type, ..spec })
                };
                let said = first(planner, &plan, limits, true);
                writeln!(text, "{name}, {word}, {finish}: {said}").unwrap();
            }
        }
    }
    text
}

#[test]
fn what_follows_a_convolution_has_engines_without_a_card() {
    let Some(planner) = planner() else { return };
    if planner.compiles_all() {
        return eprintln!("skipped: the small edition of cuDNN has no convolutions with filters in TensorFlow's layout");
    }
    let said = finished(&planner);
    let is_fine = |line: &&str| line.contains(": engine ") != line.contains(", relu: ");
    let wrong: Vec<&str> = said.lines().filter(|line| !is_fine(line)).collect();
    assert!(wrong.is_empty(), "cuDNN {}:\n{}", planner.version(), wrong.join("\n"));
    is_recorded(&planner, "_finished", &said);
}

/// What is said of engines that cuDNN compiles, in a process without a driver and in one with the mock's.
struct Asked {
    planner: Planner,
    without: String,
    said: String,
}

impl Asked {
    /// By a test, which runs in these processes, too: there it only prints. None there, and where the test is skipped.
    fn of(test: &str, machine: &str, say: impl Fn(&Planner) -> String) -> Option<Asked> {
        if std::env::var_os(CHILD).is_some() {
            print!("BEGIN\n{}END\n", say(&planner()?));
            return None;
        }
        let planner = planner()?;
        if planner.compiles_all() {
            eprintln!("skipped: the small edition of cuDNN has no convolutions with filters in TensorFlow's layout, and compiles all");
            return None;
        }
        let machine = Machine::new(machine, &[64])?;
        let (without, said) = (in_a_child(test, Path::new("")), in_a_child(test, machine.folder()));
        Some(Asked { planner, without, said })
    }
}

/// The first engines with a ReLU's gradient behind them: of gradients by the input, several of `bfloat16` and one of each other type, and of a product,
/// which is a convolution forward. To compile each takes a second or more.
fn gradients(planner: &Planner) -> String {
    let mut text = String::new();
    let convolutions = convolutions();
    let rows = [
        (DataType::Float, false, "float", 1, "residual+relu_grad"),
        (DataType::Float, true, "TF32", 1, "residual+relu_grad"),
        (DataType::Half, true, "half", 1, "residual+relu_grad"),
        (DataType::Bfloat16, true, "bfloat16", 1, "relu_grad"),
        (DataType::Bfloat16, true, "bfloat16", 2, "residual+relu_grad"),
        (DataType::Bfloat16, true, "bfloat16", 3, "residual+relu_grad"),
        (DataType::Bfloat16, true, "bfloat16", 4, "residual+relu_grad"),
    ];
    let by_input = rows.map(|(data_type, tensor_float_32, word, number, finish)| {
        let (name, spec) = convolutions[number];
        (name, ConvolutionPlan::of(ConvolutionKind::ByInput, ConvSpec { data_type, ..spec }), tensor_float_32, word, finish)
    });
    let one = Axes::new(&[WindowAxis::ONE]).unwrap();
    let spec =
        ConvSpec { data_type: DataType::Bfloat16, batch: 512, in_c: 304, out_c: 784, axes: one, layout: Layout::ChannelsLast, groups: 1 };
    let product = ("MLP, first", ConvolutionPlan::of(ConvolutionKind::Forward, spec), true, "bfloat16", "relu_grad");
    for (name, plan, tensor_float_32, word, finish) in by_input.into_iter().chain([product]) {
        let limits = EngineLimits { tensor_float_32, ..EngineLimits::default() };
        let plan = ConvolutionPlan { finish: finish.parse().unwrap(), ..plan };
        let said = first(planner, &plan, limits, finish == "relu_grad");
        writeln!(text, "{name}, {word}, {finish}: {said}").unwrap();
    }
    text
}

/// cuDNN compiles them, and asks the loader for the driver. Without one they are kernels.
#[test]
fn gradients_of_relu_have_engines_where_there_is_a_driver() {
    let test = "engines::gradients_of_relu_have_engines_where_there_is_a_driver";
    let Some(Asked { planner, without, said }) = Asked::of(test, "engines-gradients", gradients) else { return };
    let is_none = |line: &str| line.ends_with(": UNIMPLEMENTED: cuDNN has no engine for a convolution");
    assert!(without.lines().count() == 8 && without.lines().all(is_none), "{without}");
    let is_fine = |line: &&str| line.contains(", float, ") == line.ends_with(": none that is exact");
    let wrong: Vec<&str> = said.lines().filter(|line| !is_fine(line)).collect();
    assert!(wrong.is_empty(), "cuDNN {}:\n{}", planner.version(), wrong.join("\n"));
    is_recorded(&planner, "_gradients", &said);
}

/// The first engines for attention with what its gradient reads, and for the gradient, which adds in order. To compile each takes seconds.
fn attention(planner: &Planner) -> String {
    let mut text = String::new();
    let bias = |data_type, sizes| Some(ScoreBias { data_type, sizes });
    let causal = bias(DataType::Float, [1, 1, 1024, 1024]);
    let (by_heads, by_rows) = ([Lies::ByHeads; 4], [Lies::ByRows; 4]);
    let mixed = [Lies::ByRows, Lies::ByHeads, Lies::ByRows, Lies::ByHeads];
    let padded = bias(DataType::Float, [64, 1, 1, 128]);
    for (name, data_type, sizes, bias, lies) in [
        ("GPT-2", DataType::Bfloat16, [16, 12, 1024, 1024, 64, 64], causal, by_heads),
        ("BERT", DataType::Half, [64, 12, 128, 128, 64, 64], None, by_heads),
        ("uneven", DataType::Bfloat16, [2, 3, 7, 13, 24, 40], bias(DataType::Bfloat16, [2, 1, 1, 13]), by_heads),
        ("wide", DataType::Half, [1, 1, 33, 100, 256, 256], None, by_heads),
        ("columns by four", DataType::Bfloat16, [2, 3, 16, 16, 12, 12], None, by_heads),
        ("floats", DataType::Float, [2, 3, 16, 16, 8, 8], None, by_heads),
        ("GPT-2 by rows", DataType::Bfloat16, [16, 12, 1024, 1024, 64, 64], causal, by_rows),
        ("BERT by rows", DataType::Half, [64, 12, 128, 128, 64, 64], padded, by_rows),
        ("uneven by rows", DataType::Bfloat16, [2, 3, 7, 13, 24, 40], bias(DataType::Float, [2, 1, 7, 13]), by_rows),
        ("some by rows", DataType::Half, [2, 3, 7, 13, 24, 40], bias(DataType::Float, [2, 3, 1, 13]), mixed),
        ("columns by four by rows", DataType::Bfloat16, [2, 3, 16, 16, 12, 12], None, by_rows),
    ] {
        let [batch, heads, rows, keys, width, value_width] = sizes;
        let of =
            ScaledAttention { data_type, batch, heads, rows, keys, width, value_width, scale: 0.125, bias, kept: None, sums: true, lies };
        for (word, is_gradient) in [("attention", false), ("gradient", true)] {
            let plan = GraphPlan::Attention(AttentionPlan { of, is_gradient });
            let said = first_of(planner, &plan, EngineLimits::default(), name.starts_with("uneven"));
            writeln!(text, "{name}, {word}: {said}").unwrap();
        }
    }
    text
}

/// As [`attention`], where shares drop out.
fn dropping(planner: &Planner) -> String {
    let mut text = String::new();
    let causal = Some(ScoreBias { data_type: DataType::Float, sizes: [1, 1, 1024, 1024] });
    let padded = |batch, keys| Some(ScoreBias { data_type: DataType::Float, sizes: [batch, 1, 1, keys] });
    let (by_heads, keras) = ([Lies::ByHeads; 4], [Lies::ByRows, Lies::ByHeads, Lies::ByHeads, Lies::ByHeads]);
    let (bfloat16, half, float) = (DataType::Bfloat16, DataType::Half, DataType::Float);
    for (name, data_type, sizes, bias, (kept, of_kept), lies) in [
        ("GPT-2", bfloat16, [16, 12, 1024, 1024, 64, 64], causal, (bfloat16, [16, 12, 1024, 1024]), by_heads),
        ("BERT", half, [64, 12, 128, 128, 64, 64], padded(64, 128), (half, [64, 12, 128, 128]), by_heads),
        ("Keras", bfloat16, [64, 12, 128, 128, 64, 64], padded(64, 128), (bfloat16, [64, 12, 128, 128]), keras),
        ("floats that are kept", bfloat16, [2, 3, 16, 24, 64, 64], None, (float, [2, 3, 16, 24]), by_heads),
        ("uneven", bfloat16, [2, 3, 7, 13, 24, 40], padded(2, 13), (bfloat16, [2, 3, 7, 13]), [Lies::ByRows; 4]),
        ("the same for all heads", bfloat16, [2, 3, 16, 24, 64, 64], None, (bfloat16, [2, 1, 16, 24]), by_heads),
        ("the same for all rows", half, [2, 3, 16, 24, 64, 64], None, (half, [1, 1, 1, 24]), by_heads),
        ("wide", half, [1, 1, 33, 100, 256, 256], None, (half, [1, 1, 33, 100]), by_heads),
        ("columns by four", bfloat16, [2, 3, 16, 16, 12, 12], None, (bfloat16, [2, 3, 16, 16]), by_heads),
    ] {
        let [batch, heads, rows, keys, width, value_width] = sizes;
        let kept = Some(KeptShares { data_type: kept, sizes: of_kept, factor: 1.25 });
        let of = ScaledAttention { data_type, batch, heads, rows, keys, width, value_width, scale: 0.125, bias, kept, sums: true, lies };
        for (word, is_gradient) in [("attention", false), ("gradient", true)] {
            let plan = GraphPlan::Attention(AttentionPlan { of, is_gradient });
            let said = first_of(planner, &plan, EngineLimits::default(), name == "uneven");
            writeln!(text, "{name}, {word}: {said}").unwrap();
        }
    }
    text
}

/// The first engines of convolutions that sum the channels of their results.
fn statistics(planner: &Planner) -> String {
    let mut text = String::new();
    let convolutions = convolutions();
    for (data_type, tensor_float_32, word, number) in [
        (DataType::Float, false, "float", 1),
        (DataType::Float, true, "TF32", 1),
        (DataType::Half, true, "half", 1),
        (DataType::Half, true, "half", 4),
        (DataType::Bfloat16, true, "bfloat16", 0),
        (DataType::Bfloat16, true, "bfloat16", 1),
        (DataType::Bfloat16, true, "bfloat16", 2),
        (DataType::Bfloat16, true, "bfloat16", 3),
        (DataType::Bfloat16, true, "bfloat16", 4),
    ] {
        let (name, spec) = convolutions[number];
        // Channels are whole words of tensor cores: those of images are padded.
        let spec = ConvSpec { data_type, in_c: spec.in_c.next_multiple_of(8), ..spec };
        let plan = ConvolutionPlan { finish: Finish::STATISTICS, ..ConvolutionPlan::of(ConvolutionKind::Forward, spec) };
        let limits = EngineLimits { tensor_float_32, ..EngineLimits::default() };
        writeln!(text, "{name}, {word}: {}", first(planner, &plan, limits, word == "half")).unwrap();
    }
    text
}

/// As [`gradients_of_relu_have_engines_where_there_is_a_driver`].
#[test]
fn attention_has_engines_where_there_is_a_driver() {
    let test = "engines::attention_has_engines_where_there_is_a_driver";
    let Some(Asked { planner, without, said }) = Asked::of(test, "engines-attention", attention) else { return };
    assert!(without.lines().count() == 22 && !without.contains(": engine "), "{without}");
    is_recorded(&planner, "_attention", &said);
}

/// As [`gradients_of_relu_have_engines_where_there_is_a_driver`].
#[test]
fn attention_whose_shares_drop_out_has_engines_where_there_is_a_driver() {
    let test = "engines::attention_whose_shares_drop_out_has_engines_where_there_is_a_driver";
    let Some(Asked { planner, without, said }) = Asked::of(test, "engines-dropping", dropping) else { return };
    assert!(without.lines().count() == 18 && !without.contains(": engine "), "{without}");
    is_recorded(&planner, "_dropping", &said);
}

/// Those of halves are ready for some cards. cuDNN compiles the others, and asks the loader for the driver.
#[test]
fn statistics_have_engines_where_there_is_a_driver() {
    let test = "engines::statistics_have_engines_where_there_is_a_driver";
    let Some(Asked { planner, without, said }) = Asked::of(test, "engines-statistics", statistics) else { return };
    let is_none = |line: &str| line.contains(", half: ") || !line.contains(": engine ");
    assert!(without.lines().count() == 9 && without.lines().all(is_none), "{without}");
    let is_fine = |line: &&str| line.contains(", float: ") != line.contains(": engine ");
    let wrong: Vec<&str> = said.lines().filter(|line| !is_fine(line)).collect();
    assert!(wrong.is_empty(), "cuDNN {}:\n{}", planner.version(), wrong.join("\n"));
    is_recorded(&planner, "_statistics", &said);
}

#[test]
fn what_cudnn_has_no_words_for_is_refused() {
    let Some(planner) = planner() else { return };
    let (_, spec) = convolutions().remove(1);
    let refused = |spec: ConvSpec| {
        let graph = ConvolutionPlan::of(ConvolutionKind::Forward, spec);
        planner.engines(PlanFor::Properties(H100), &graph, 0).unwrap_err().code()
    };
    assert_eq!(refused(ConvSpec { data_type: DataType::Double, ..spec }), Code::Unimplemented);
    assert_eq!(refused(ConvSpec { batch: 0, ..spec }), Code::Unimplemented);
    for (kind, finish) in [
        (ConvolutionKind::Forward, "bias+relu_grad"),
        (ConvolutionKind::ByInput, "bias"),
        (ConvolutionKind::ByInput, "residual"),
        (ConvolutionKind::ByInput, "relu+relu_grad"),
        (ConvolutionKind::ByFilter, "relu_grad"),
        (ConvolutionKind::Forward, "bias+statistics"),
        (ConvolutionKind::Forward, "relu_grad+statistics"),
        (ConvolutionKind::ByInput, "statistics"),
        (ConvolutionKind::ByFilter, "statistics"),
    ] {
        let graph = ConvolutionPlan { finish: finish.parse().unwrap(), ..ConvolutionPlan::of(kind, spec) };
        let refused = planner.engines(PlanFor::Properties(H100), &graph, 0).unwrap_err();
        assert!(refused.code() == Code::Unimplemented && refused.message().contains(finish), "{kind:?}: {refused}");
    }
    let mut short = spec;
    short.axes[0].positions = 3;
    assert_eq!(refused(short), Code::Unimplemented);
    let graph = ConvolutionPlan::of(ConvolutionKind::Forward, spec);
    for wrong in ["", "{", "{\"deviceVer\": 900}"] {
        assert_eq!(planner.engines(PlanFor::Properties(wrong), &graph, 0).unwrap_err().code(), Code::FailedPrecondition, "{wrong}");
    }
}
