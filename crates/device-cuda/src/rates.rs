//! How fast products and convolutions are on a card, by each way to compute them: a table by the card's name. Cards that were not measured have a guess.

use std::fmt::Write;

use plimsoll_base::Bytes;
use plimsoll_device::DeviceSpec;

use crate::cudnn::{ConvolutionKind, Engine};

const TABLE: &str = include_str!("../data/rates.txt");

/// What is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    Convolution(ConvolutionKind),
    Product,
}

/// A way to compute it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Kernels that this crate writes.
    Kernels,
    /// cuDNN, with that workspace. Tensor cores take elements of two bytes twice as fast, or floats that may be rounded.
    Cudnn { cores: Cores, workspace: Bytes },
}

/// What an engine multiplies with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cores {
    Plain,
    Tensor,
    TensorOfTwoBytes,
}

impl Way {
    /// That of an engine for elements of so many bytes.
    pub fn of(engine: &Engine, element: usize) -> Way {
        let cores = match (engine.uses_tensor_cores, element) {
            (false, _) => Cores::Plain,
            (true, 2) => Cores::TensorOfTwoBytes,
            (true, _) => Cores::Tensor,
        };
        Way::Cudnn { cores, workspace: engine.name.workspace }
    }

    fn name(self) -> &'static str {
        match self {
            Way::Kernels => "kernels",
            Way::Cudnn { cores: Cores::Plain, .. } => "cudnn",
            Way::Cudnn { cores: Cores::Tensor, .. } => "tensor-cores",
            Way::Cudnn { cores: Cores::TensorOfTwoBytes, .. } => "tensor-cores-16",
        }
    }
}

/// A row of a table: what is computed and how, the part of the card's peak, and the microseconds of a call.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    kind: String,
    way: String,
    part: f64,
    call: f64,
}

/// The table of a card.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rates(Vec<Row>);

fn name(task: Task) -> &'static str {
    match task {
        Task::Convolution(ConvolutionKind::Forward) => "forward",
        Task::Convolution(ConvolutionKind::ByInput) => "by-input",
        Task::Convolution(ConvolutionKind::ByFilter) => "by-filter",
        Task::Product => "product",
    }
}

impl Rates {
    /// On cards of that name.
    pub fn on(card: &str) -> Rates {
        Rates::find(TABLE, card)
    }

    fn find(table: &str, card: &str) -> Rates {
        let own = format!("card {card}");
        let begin = if table.lines().any(|line| line == own) { own.as_str() } else { "card *" };
        let lines = table.lines().skip_while(|line| *line != begin).skip(1).take_while(|line| !line.starts_with("card "));
        let row = |line: &str| {
            let mut words = line.split(' ');
            let [kind, way, part, call] = std::array::from_fn(|_| words.next());
            Some(Row { kind: kind?.to_string(), way: way?.to_string(), part: part?.parse().ok()?, call: call?.parse().ok()? })
        };
        Rates(lines.filter_map(row).collect())
    }

    /// The predicted seconds of so many operations on tensors of so many bytes in all: a call, and what takes longer, arithmetic or memory. What an
    /// engine has in its workspace it writes and reads besides.
    pub fn seconds(&self, spec: &DeviceSpec, task: Task, way: Way, (operations, bytes): (f64, f64)) -> f64 {
        let row = self.0.iter().find(|row| row.kind == name(task) && row.way == way.name());
        let (part, call) = row.map_or((1.0, 0.0), |row| (row.part, row.call));
        let workspace = match way {
            Way::Cudnn { workspace, .. } => workspace.0 as f64,
            Way::Kernels => 0.0,
        };
        predicted(spec, (part, call * 1e-6), (operations, bytes, workspace))
    }
}

fn predicted(spec: &DeviceSpec, (part, call): (f64, f64), (operations, bytes, workspace): (f64, f64, f64)) -> f64 {
    let bandwidth = DeviceSpec::REACHED * spec.bandwidth;
    call + (operations / (part * spec.flops)).max(bytes / bandwidth) + 2.0 * workspace / bandwidth
}

/// The time of a product or a convolution on a card.
#[derive(Clone, Debug, PartialEq)]
pub struct RateSample {
    /// What was computed, as the table calls it: `forward`, `by-input`, `by-filter`, `product`.
    pub kind: &'static str,
    /// How: `kernels`, `cudnn`, `tensor-cores`, `tensor-cores-16`.
    pub way: &'static str,
    /// Arithmetic operations. Kernels of the project multiply by zeros in the gradient by the input of strided convolutions, and engines do not.
    pub operations: f64,
    /// Bytes of the tensors.
    pub bytes: f64,
    /// Bytes of workspace, which are written and read.
    pub workspace: f64,
    /// Seconds.
    pub seconds: f64,
}

/// Microseconds of a call that are tried: no more, since a call of more is one of a way that is slow for its size.
const CALLS: std::ops::RangeInclusive<u32> = 1..=12;

/// The table of a card with that peak and that bandwidth, as the project keeps it. Of a kind and a way it has the part of the peak and the time of a
/// call whose predictions are the nearest to the samples: the sum of the logarithms of their quotients is the least. Where nothing was measured, the
/// guess stays.
pub fn rates_text(card: &str, spec: &DeviceSpec, samples: &[RateSample]) -> String {
    let mut text = format!("card {card}\n");
    for Row { kind, way, part, call } in Rates::on("*").0 {
        let own: Vec<&RateSample> = samples.iter().filter(|sample| sample.kind == kind && sample.way == way).collect();
        let (part, call) = fitted(spec, &own).unwrap_or((part, call * 1e-6));
        // Writing to a text does not fail.
        let _ = writeln!(text, "{kind} {way} {part:.4} {:.2}", call * 1e6);
    }
    text
}

/// The part and the seconds of a call. Of parts those are tried that are exact for one of the samples.
fn fitted(spec: &DeviceSpec, own: &[&RateSample]) -> Option<(f64, f64)> {
    let mut best: Option<(f64, (f64, f64))> = None;
    let calls = CALLS.map(|half| f64::from(half) * 0.5e-6);
    for (call, exact) in calls.flat_map(|call| own.iter().map(move |sample| (call, sample))) {
        let left = exact.seconds - predicted(spec, (1.0, call), (0.0, 0.0, exact.workspace));
        let part = exact.operations / (left.max(exact.seconds / 10.0) * spec.flops);
        let error = |sample: &&RateSample| {
            (predicted(spec, (part, call), (sample.operations, sample.bytes, sample.workspace)) / sample.seconds).ln().abs()
        };
        let error: f64 = own.iter().map(error).sum();
        if part >= 1e-4 && best.is_none_or(|(least, _)| error < least) {
            best = Some((error, (part, call)));
        }
    }
    best.map(|(_, found)| found)
}

/// What predictions for a card of that name go by, beside the card's own figures: a text that is another one wherever they are.
pub fn priced_by(card: &str) -> String {
    format!("{:?} {:?}", Rates::on(card), (DeviceSpec::LAUNCH, DeviceSpec::REACHED))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::any_card;

    /// Samples of a card are found again in its table.
    #[test]
    fn a_table_is_fitted_to_samples() {
        let spec = DeviceSpec { flops: 1e12, bandwidth: 1e12, ..any_card() };
        let of = |operations: f64, bytes: f64, workspace: f64| RateSample {
            kind: "product",
            way: "cudnn",
            operations,
            bytes,
            workspace,
            seconds: 5e-6 + f64::max(operations / (0.25 * 1e12), bytes / 0.8e12) + 2.0 * workspace / 0.8e12,
        };
        // The last one waits for memory.
        let samples =
            [of(1e6, 0.0, 0.0), of(1e9, 1e3, 1e6), of(1e12, 0.0, 0.0), of(2e12, 0.0, 1e9), of(4e12, 0.0, 0.0), of(1e9, 1e12, 0.0)];
        let text = rates_text("Some card", &spec, &samples);
        assert!(text.starts_with("card Some card\n") && text.contains("\nproduct cudnn 0.2500 5.00\n"), "{text}");
        let (own, guess) = (Rates::find(&text, "Some card"), Rates::on("*"));
        assert_eq!(own.0.len(), guess.0.len());
        let is_other = |row: &&Row| (&*row.kind, &*row.way) != ("product", "cudnn");
        let others = |rates: &Rates| rates.0.iter().filter(is_other).cloned().collect::<Vec<_>>();
        assert_eq!(others(&own), others(&guess), "what was not measured is the guess");
    }

    const FORWARD: Task = Task::Convolution(ConvolutionKind::Forward);
    const WAYS: [Way; 4] = [
        Way::Kernels,
        Way::Cudnn { cores: Cores::Plain, workspace: Bytes::ZERO },
        Way::Cudnn { cores: Cores::Tensor, workspace: Bytes::ZERO },
        Way::Cudnn { cores: Cores::TensorOfTwoBytes, workspace: Bytes::ZERO },
    ];

    /// Every table of the file is whole.
    #[test]
    fn tables_have_all_ways() {
        for card in TABLE.lines().filter_map(|line| line.strip_prefix("card ")) {
            let rates = Rates::on(card);
            assert_eq!(rates.0.len(), 16, "{card}");
            let tasks = ConvolutionKind::ALL.map(Task::Convolution).into_iter().chain([Task::Product]);
            for (task, way) in tasks.flat_map(|task| WAYS.map(|way| (task, way))) {
                let is_whole = |row: &Row| row.kind == name(task) && row.way == way.name() && row.part > 0.0 && row.call >= 0.0;
                assert!(rates.0.iter().any(is_whole), "{card}: {task:?} {way:?}");
            }
        }
    }

    #[test]
    fn a_card_has_its_own_table_or_the_guess() {
        let table = "card *\nforward kernels 0.5 1\ncard A B\nforward kernels 0.25 2\n";
        let spec = DeviceSpec { flops: 1e12, bandwidth: 1e12, ..any_card() };
        let seconds = |card: &str| Rates::find(table, card).seconds(&spec, FORWARD, Way::Kernels, (1e6, 1.0));
        assert_eq!((seconds("A B"), seconds("A"), seconds("*")), (6e-6, 3e-6, 3e-6));
        // A workspace is written and read; tensors are, while there is arithmetic.
        let full = Way::Cudnn { cores: Cores::Plain, workspace: Bytes(800_000) };
        let rates = Rates::find("card *\nforward cudnn 1 0\n", "");
        assert_eq!([0.0, 8e5].map(|bytes| rates.seconds(&spec, FORWARD, full, (1e5, bytes))), [2.1e-6, 3e-6]);
    }

    /// What an H200 took for the requests of a ResNet-50 in `bfloat16`.
    const MEASURED: &str = include_str!("../data/card/NVIDIA_H200/tuned.txt");

    /// Sizes as tables of times write them: `256x14x14x1024`.
    fn sizes(text: &str) -> Vec<f64> {
        text.split('x').map(|size| size.parse().unwrap()).collect()
    }

    fn product(sizes: &[f64]) -> f64 {
        sizes.iter().product()
    }

    /// Of a convolution as such tables write it: what is computed, operations of engines and of kernels, bytes.
    fn convolution(text: &str) -> Option<(Task, [f64; 2], f64)> {
        let kinds = [
            ("convolution bfloat16 ", ConvolutionKind::Forward),
            ("gradient by the input bfloat16 ", ConvolutionKind::ByInput),
            ("gradient by the filter bfloat16 ", ConvolutionKind::ByFilter),
        ];
        let (rest, kind) = kinds.iter().find_map(|(begin, kind)| Some((text.strip_prefix(begin)?, *kind)))?;
        let words: Vec<&str> = rest.split(' ').collect();
        let [input, "by", filter, "to", result] = words[..] else { panic!("{text}") };
        let [input, filter, result] = [input, filter, result].map(sizes);
        let (out_c, in_c) = (filter[filter.len() - 1], filter[filter.len() - 2]);
        let operations = 2.0 * product(&result) * product(&filter) / out_c;
        let by_kernels = match kind {
            ConvolutionKind::ByInput => 2.0 * product(&input) * product(&filter) / in_c,
            _ => operations,
        };
        Some((Task::Convolution(kind), [operations, by_kernels], 2.0 * (product(&input) + product(&filter) + product(&result))))
    }

    /// Predictions for an H200 are near what it took: for the fastest engines, and for the kernels of the project, which are slower for these types.
    #[test]
    fn an_h200_takes_what_is_predicted() {
        let spec = DeviceSpec { flops: 2.0 * 132.0 * 128.0 * 1.98e9, bandwidth: 4.814304e12, ..any_card() };
        let rates = Rates::on("NVIDIA H200");
        let (mut engines, mut kernels) = (Vec::new(), Vec::new());
        let (mut of, mut is_first) = (None, false);
        for line in MEASURED.lines() {
            if let Some(request) = line.strip_prefix("request ") {
                (of, is_first) = (convolution(request.split_once(' ').unwrap().1), true);
                continue;
            }
            let (Some((task, operations, bytes)), Some((seconds, way))) = (of, line.split_once(' ')) else { continue };
            let Ok(seconds) = seconds.parse::<f64>() else { continue };
            if way == "cuda" {
                kernels.push(rates.seconds(&spec, task, Way::Kernels, (operations[1], bytes)) / seconds);
            } else if is_first {
                let workspace = Bytes(way.rsplit('/').next().unwrap().parse().unwrap());
                let way = Way::Cudnn { cores: Cores::TensorOfTwoBytes, workspace };
                engines.push(rates.seconds(&spec, task, way, (operations[0], bytes)) / seconds);
            }
            is_first = false;
        }
        for (ratios, most) in [(&mut engines, 1.7), (&mut kernels, 2.5)] {
            ratios.sort_by(f64::total_cmp);
            let middle = ratios[ratios.len() / 2];
            assert!(ratios.len() >= 60 && (0.8..1.25).contains(&middle), "{middle} of {}", ratios.len());
            // The first layer has no engine for tensor cores.
            let outside = ratios.iter().filter(|ratio| !(1.0 / most..most).contains(*ratio)).count();
            assert!(outside <= 2, "{ratios:?}");
        }
    }
}
