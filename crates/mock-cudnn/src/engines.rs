//! The engines of a convolution.

use std::ffi::c_int;

use crate::attributes::kind;
use crate::behind::Behind;
use crate::convolution::Convolution;
use crate::descriptor::{Computed, Graph};

/// A way to compute.
#[derive(Clone, Debug, PartialEq)]
pub struct Engine {
    pub index: i64,
    pub knobs: Vec<(c_int, i64)>,
    /// `cudnnBackendNumericalNote_t`.
    pub numerics: Vec<c_int>,
    /// `cudnnBackendBehaviorNote_t`.
    pub behaviour: Vec<c_int>,
    pub workspace: u64,
    /// What it takes on a card whose clock is a test's. The first that is predicted is not the fastest.
    pub units: u64,
}

/// `CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION`
pub const COMPILES: c_int = 0;
/// `CUDNN_DATA_HALF`
const HALF: c_int = 2;
pub const TENSOR_CORE: c_int = 0;
const NONDETERMINISTIC: c_int = 4;
const STRICT_NAN: c_int = 9;

/// The workspace of the engine that wants much: more than what programs allow without being asked.
const MUCH: u64 = 48 << 20;

impl Engine {
    pub fn uses_tensor_cores(&self) -> bool {
        self.numerics.contains(&TENSOR_CORE)
    }

    /// The engine for a graph with that number, with these knobs; with none, as it comes.
    pub fn of(graph: &Graph, index: i64, knobs: &[(c_int, i64)]) -> Option<Engine> {
        let further = |engine: &Engine| match &graph.of {
            Computed::Attention(attention) => attention.ordered(engine),
            Computed::Convolution(..) => None,
        };
        let mut engines = Engine::all(graph).into_iter().flat_map(|engine| [further(&engine), Some(engine)]).flatten();
        engines.find(|engine| engine.index == index && (knobs.is_empty() || engine.knobs == knobs))
    }

    /// All of them, best first.
    pub fn all(graph: &Graph) -> Vec<Engine> {
        match &graph.of {
            Computed::Convolution(convolution, behind) => Engine::of_convolution(convolution, behind),
            Computed::Attention(attention) => attention.engines(),
        }
    }

    fn of_convolution(convolution: &Convolution, behind: &Behind) -> Vec<Engine> {
        // Each bare engine forward has one of another number that finishes, if what is behind is such as these compute.
        let is_bare = behind.is_empty();
        let finish = behind.finish(convolution);
        if !is_bare && finish.is_none() {
            return Vec::new();
        }
        let numbers = |index: i64| match index {
            _ if is_bare => index,
            67 => 51,
            48 => 33,
            70 => 44,
            other => other,
        };
        let engine = |index, knobs: &[(c_int, i64)], numerics: &[c_int], workspace| {
            let (knobs, numerics) = (knobs.to_vec(), numerics.to_vec());
            let units = match (index, knobs.first()) {
                (_, Some((2, 5))) => 1,
                (48, _) => 4,
                (0, _) => 10,
                (20 | 70, _) => 3,
                _ => 2,
            };
            Engine { index: numbers(index), knobs, numerics, behaviour: Vec::new(), workspace, units }
        };
        let Convolution { kind: of, input, filter, .. } = convolution;
        let bytes = convolution.tensors().iter().map(|tensor| tensor.elements() * tensor.element().unwrap_or(0) as u64).sum::<u64>();
        // Elements of 16 bytes at once. A filter is in memory before every convolution with something behind it.
        let at_once = 16 / filter.element().unwrap_or(16) as i64;
        let is_wide = [input.sizes[1], filter.sizes[0]].iter().all(|channels| channels % at_once == 0) && convolution.groups() == 1;
        // These are for tensor cores alone, and compiled for the graph.
        let compiled = |index, knob| Engine { behaviour: vec![COMPILES], ..engine(index, &[(2, knob), (13, 1)], &[TENSOR_CORE], 0) };
        match finish {
            Some(finish) if finish.statistics.is_some() => {
                let ready = || engine(2, &[], &[], finish.result.elements() / 32 + 144);
                return match filter.data_type {
                    _ if !is_wide => Vec::new(),
                    HALF => vec![ready()],
                    _ => vec![compiled(3, 0), compiled(3, 5)],
                };
            }
            Some(finish) if finish.features.is_some() => {
                return if is_wide { vec![compiled(4, 0), compiled(4, 5)] } else { Vec::new() };
            }
            _ => {}
        }
        let mut engines = Vec::new();
        if *of != kind::FORWARD {
            engines.push(engine(20, &[(2, 6), (3, 0)], &[NONDETERMINISTIC], 0));
        }
        let cores = match *of {
            kind::FORWARD => 67,
            kind::BY_INPUT => 71,
            _ => 68,
        };
        if is_wide {
            engines.push(engine(48, &[(2, 2), (6, 1), (14, 0)], &[TENSOR_CORE], MUCH + bytes));
            engines.push(engine(cores, &[(2, 8), (13, 0), (18, 0)], &[TENSOR_CORE], 131));
            engines.push(engine(cores, &[(2, 5), (13, 0), (18, 0)], &[TENSOR_CORE], 1_048_771));
        }
        if filter.data_type == 0 {
            engines.push(engine(70, &[(2, 12), (18, 0)], &[], bytes + 128));
        }
        engines.push(engine(0, &[], &[STRICT_NAN], 0));
        engines
    }
}
