//! How fast products and convolutions are on a card, by each way to compute them: a table by the card's name. Cards that were not measured have a guess.

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::any_card;

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
