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
    /// cuDNN, with that workspace.
    Cudnn { tensor_cores: bool, workspace: Bytes },
}

impl Way {
    pub fn of(engine: &Engine) -> Way {
        Way::Cudnn { tensor_cores: engine.uses_tensor_cores, workspace: engine.name.workspace }
    }

    fn name(self) -> &'static str {
        match self {
            Way::Kernels => "kernels",
            Way::Cudnn { tensor_cores: false, .. } => "cudnn",
            Way::Cudnn { tensor_cores: true, .. } => "tensor-cores",
        }
    }
}

/// The table of a card.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rates(Vec<(String, f64, f64)>);

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
            let (rest, call) = line.rsplit_once(' ')?;
            let (of, part) = rest.rsplit_once(' ')?;
            Some((of.to_string(), part.parse().ok()?, call.parse().ok()?))
        };
        Rates(lines.filter_map(row).collect())
    }

    /// The predicted seconds of so many operations. What an engine has in its workspace it writes and reads.
    pub fn seconds(&self, spec: &DeviceSpec, task: Task, way: Way, operations: f64) -> f64 {
        let of = format!("{} {}", name(task), way.name());
        let (part, call) = self.0.iter().find(|row| row.0 == of).map_or((1.0, 0.0), |row| (row.1, row.2));
        let moved = match way {
            Way::Cudnn { workspace, .. } => 2.0 * workspace.0 as f64,
            Way::Kernels => 0.0,
        };
        call * 1e-6 + operations / (part * spec.flops) + moved / spec.bandwidth
    }
}

/// The time of a product or a convolution on a card.
#[derive(Clone, Debug, PartialEq)]
pub struct RateSample {
    /// What was computed, as the table calls it: `forward`, `by-input`, `by-filter`, `product`.
    pub kind: &'static str,
    /// How: `kernels`, `cudnn`, `tensor-cores`.
    pub way: &'static str,
    /// Arithmetic operations.
    pub operations: f64,
    /// Bytes of workspace, which are written and read.
    pub workspace: f64,
    /// Seconds.
    pub seconds: f64,
}

/// The table of a card with that peak and that bandwidth, as the project keeps it. The part of the peak is the median of the larger half of the samples
/// of a kind and a way, and the time of a call is what that leaves of the shortest. Where nothing was measured, the guess stays.
pub fn rates_text(card: &str, spec: &DeviceSpec, samples: &[RateSample]) -> String {
    let mut text = format!("card {card}\n");
    for (of, part, call) in Rates::on("*").0 {
        let mut own: Vec<&RateSample> = samples.iter().filter(|sample| format!("{} {}", sample.kind, sample.way) == of).collect();
        own.sort_by(|one, other| one.operations.total_cmp(&other.operations));
        let moved = |sample: &RateSample| 2.0 * sample.workspace / spec.bandwidth;
        let mut parts: Vec<f64> = own[own.len() / 2..]
            .iter()
            .map(|sample| sample.operations / ((sample.seconds - moved(sample)).max(sample.seconds / 10.0) * spec.flops))
            .collect();
        parts.sort_by(f64::total_cmp);
        let part = parts.get(parts.len() / 2).map_or(part, |part| part.max(1e-4));
        let left = |sample: &&RateSample| sample.seconds - moved(sample) - sample.operations / (part * spec.flops);
        let call = own
            .iter()
            .min_by(|one, other| one.seconds.total_cmp(&other.seconds))
            .map_or(call, |sample| left(sample).clamp(0.0, 1e-3) * 1e6);
        // Writing to a text does not fail.
        let _ = writeln!(text, "{of} {part:.4} {call:.2}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::any_card;

    /// Samples of a card are found again in its table.
    #[test]
    fn a_table_is_fitted_to_samples() {
        let spec = DeviceSpec { flops: 1e12, bandwidth: 1e12, ..any_card() };
        let of = |operations: f64, workspace: f64| RateSample {
            kind: "product",
            way: "cudnn",
            operations,
            workspace,
            seconds: 5e-6 + operations / (0.25 * 1e12) + 2.0 * workspace / 1e12,
        };
        let samples = [of(1e6, 0.0), of(1e9, 1e6), of(1e12, 0.0), of(2e12, 1e9), of(4e12, 0.0)];
        let text = rates_text("Some card", &spec, &samples);
        assert!(text.starts_with("card Some card\n") && text.contains("\nproduct cudnn 0.2500 5.00\n"), "{text}");
        let (own, guess) = (Rates::find(&text, "Some card"), Rates::on("*"));
        assert_eq!(own.0.len(), guess.0.len());
        let others = |rates: &Rates| rates.0.iter().filter(|row| row.0 != "product cudnn").cloned().collect::<Vec<_>>();
        assert_eq!(others(&own), others(&guess), "what was not measured is the guess");
    }

    const FORWARD: Task = Task::Convolution(ConvolutionKind::Forward);
    const WAYS: [Way; 3] = [
        Way::Kernels,
        Way::Cudnn { tensor_cores: false, workspace: Bytes::ZERO },
        Way::Cudnn { tensor_cores: true, workspace: Bytes::ZERO },
    ];

    /// Every table of the file is whole.
    #[test]
    fn tables_have_all_ways() {
        for card in TABLE.lines().filter_map(|line| line.strip_prefix("card ")) {
            let rates = Rates::on(card);
            assert_eq!(rates.0.len(), 12, "{card}");
            let tasks = ConvolutionKind::ALL.map(Task::Convolution).into_iter().chain([Task::Product]);
            for (task, way) in tasks.flat_map(|task| WAYS.map(|way| (task, way))) {
                let of = format!("{} {}", name(task), way.name());
                assert!(rates.0.iter().any(|(row, part, call)| *row == of && *part > 0.0 && *call >= 0.0), "{card}: {of}");
            }
        }
    }

    #[test]
    fn a_card_has_its_own_table_or_the_guess() {
        let table = "card *\nforward kernels 0.5 1\ncard A B\nforward kernels 0.25 2\n";
        let spec = DeviceSpec { flops: 1e12, bandwidth: 1e12, ..any_card() };
        let seconds = |card: &str| Rates::find(table, card).seconds(&spec, FORWARD, Way::Kernels, 1e6);
        assert_eq!((seconds("A B"), seconds("A"), seconds("*")), (6e-6, 3e-6, 3e-6));
        // A workspace is written and read.
        let full = Way::Cudnn { tensor_cores: false, workspace: Bytes(1_000_000) };
        assert_eq!(Rates::find("card *\nforward cudnn 1 0\n", "").seconds(&spec, FORWARD, full, 0.0), 2e-6);
    }
}
