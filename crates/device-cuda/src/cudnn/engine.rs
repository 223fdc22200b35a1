//! Engines of cuDNN, and the names by which plans keep them.

use std::fmt;
use std::str::FromStr;

use plimsoll_base::{Bytes, DataType, Error, Result};

use super::convolution::Finish;
use super::graph::GraphPlan;
use super::raw::{NOTE_NONDETERMINISTIC, NOTE_REFERENCE, NOTE_TENSOR_CORE, NOTES_OTHER_SUMS};

/// A way of cuDNN to compute a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Engine {
    /// What finds it again.
    pub name: EngineName,
    /// Whether it gives the same bits each time.
    pub is_deterministic: bool,
    /// Whether it uses tensor cores: floats are rounded to TF32 for these.
    pub uses_tensor_cores: bool,
    /// Whether it computes the sums of the convolution as they are written, without rounding of inputs or sums to fewer bits.
    pub is_exact: bool,
    /// Whether it is the one without any cleverness, which cuDNN has to compare the others with.
    pub is_reference: bool,
    /// Whether cuDNN compiles it for the graph.
    pub is_compiled: bool,
}

impl Engine {
    /// An engine of a graph with these notes of cuDNN.
    pub(super) fn noted(name: EngineName, graph: &GraphPlan, numerics: &[i32], is_compiled: bool) -> Engine {
        let has_other_values = graph.has_other_values(name.index);
        // Without that knob cuDNN notes nothing of it.
        let is_ordered = graph.ordered().is_none_or(|knob| name.knobs.contains(&knob));
        Engine {
            is_deterministic: is_ordered && !numerics.contains(&NOTE_NONDETERMINISTIC),
            uses_tensor_cores: numerics.contains(&NOTE_TENSOR_CORE),
            is_exact: !has_other_values && !numerics.iter().any(|note| NOTES_OTHER_SUMS.contains(note)),
            is_reference: name.index == 0 && numerics.contains(&NOTE_REFERENCE),
            name,
            is_compiled,
        }
    }
}

/// The name of an engine: what plans keep of it. It is one of that version, with the values of its knobs and so much workspace.
///
/// Its text has no spaces: `cudnn-9.26.0/70/2=8,18=0/4096` is engine 70 with two knobs and 4096 bytes of workspace. Without knobs there is
/// a `-`. Channels that are padded, and what it computes behind a convolution, are parts of their own: `cudnn-9.26.0/44/-/0/padded/bias+relu`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EngineName {
    /// cuDNN's version as it counts it: 92600 is 9.26.0.
    pub version: usize,
    /// The engine's number in this version.
    pub index: i64,
    /// Types and values of its knobs.
    pub knobs: Vec<(i32, i64)>,
    /// Bytes of workspace.
    pub workspace: Bytes,
    /// Whether it is one of the convolution whose channels are padded. cuDNN knows nothing of that.
    pub padded: bool,
    /// What it computes behind the convolution.
    pub finish: Finish,
}

impl EngineName {
    /// A version of cuDNN as people write it: `9.26.0`.
    pub fn version_text(version: usize) -> String {
        format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100)
    }
}

impl fmt::Display for EngineName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let EngineName { version, index, knobs, workspace, padded, finish } = self;
        write!(f, "cudnn-{}/{index}/", EngineName::version_text(*version))?;
        for (at, (knob, value)) in knobs.iter().enumerate() {
            write!(f, "{}{knob}={value}", if at == 0 { "" } else { "," })?;
        }
        write!(f, "{}/{}{}", if knobs.is_empty() { "-" } else { "" }, workspace.0, if *padded { "/padded" } else { "" })?;
        if finish.is_some() { write!(f, "/{finish}") } else { Ok(()) }
    }
}

impl FromStr for EngineName {
    type Err = Error;

    fn from_str(text: &str) -> Result<EngineName> {
        let parse = || {
            let parts: Vec<&str> = text.strip_prefix("cudnn-")?.split('/').collect();
            let [version, index, knobs, workspace, ref rest @ ..] = parts[..] else { return None };
            let (padded, finish) = match rest {
                [] => (false, Finish::NONE),
                ["padded"] => (true, Finish::NONE),
                ["padded", finish] => (true, finish.parse().ok()?),
                [finish] => (false, finish.parse().ok()?),
                _ => return None,
            };
            let version: Vec<usize> = version.split('.').map(|part| part.parse().ok()).collect::<Option<_>>()?;
            let [major, minor, patch] = version[..] else { return None };
            let version = major.checked_mul(10_000)?.checked_add(minor.checked_mul(100)?)?.checked_add(patch)?;
            let knob = |text: &str| text.split_once('=').and_then(|(knob, value)| Some((knob.parse().ok()?, value.parse().ok()?)));
            let knobs = if knobs == "-" { Some(Vec::new()) } else { knobs.split(',').map(knob).collect() };
            Some(EngineName {
                version,
                index: index.parse().ok()?,
                knobs: knobs?,
                workspace: Bytes(workspace.parse().ok()?),
                padded,
                finish,
            })
        };
        let name = parse().filter(|name| name.to_string() == text);
        name.ok_or_else(|| Error::invalid_argument(format!("{text} is no engine of cuDNN")))
    }
}

/// Which engines may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineLimits {
    /// Whether floats may be rounded to TF32, as TensorFlow does where `enable_tensor_float_32_execution` is on.
    pub tensor_float_32: bool,
    /// The most bytes of workspace.
    pub workspace: Bytes,
}

impl EngineLimits {
    /// The most bytes of workspace where none are named: what NVIDIA advises for products on Hopper.
    pub const WORKSPACE: Bytes = Bytes(32 << 20);

    /// Whether an engine may be taken for elements of that type, whatever its workspace. Only those are that give the same bits each time. Of halves
    /// tensor cores multiply without an error.
    pub fn allow(&self, engine: &Engine, data_type: DataType) -> bool {
        let is_precise = !engine.uses_tensor_cores || self.tensor_float_32 || data_type != DataType::Float;
        engine.is_deterministic && engine.is_exact && is_precise && !engine.is_reference
    }
}

impl Default for EngineLimits {
    fn default() -> EngineLimits {
        EngineLimits { tensor_float_32: false, workspace: EngineLimits::WORKSPACE }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_request::conv::ConvSpec;
    use plimsoll_request::window::{Axes, Layout, WindowAxis};

    use super::super::convolution::{ConvolutionKind, ConvolutionPlan};
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        let plain =
            EngineName { version: 91_900, index: 0, knobs: Vec::new(), workspace: Bytes::ZERO, padded: false, finish: Finish::NONE };
        let turned = EngineName { version: 92_600, index: 70, knobs: vec![(2, 8), (18, 0)], workspace: Bytes(4096), ..plain.clone() };
        let finished = EngineName { finish: Finish { residual: true, bias: true, relu: true, ..Finish::NONE }, ..turned.clone() };
        let masked = EngineName { finish: Finish { residual: true, relu_grad: true, ..Finish::NONE }, ..turned.clone() };
        let biased = EngineName { finish: Finish { bias: true, ..Finish::NONE }, ..plain.clone() };
        let summed = EngineName { finish: Finish::STATISTICS, padded: true, ..turned.clone() };
        let (padded, both) = (EngineName { padded: true, ..plain.clone() }, EngineName { padded: true, ..biased.clone() });
        for (name, text) in [
            (plain, "cudnn-9.19.0/0/-/0"),
            (turned, "cudnn-9.26.0/70/2=8,18=0/4096"),
            (finished, "cudnn-9.26.0/70/2=8,18=0/4096/residual+bias+relu"),
            (biased, "cudnn-9.19.0/0/-/0/bias"),
            (padded, "cudnn-9.19.0/0/-/0/padded"),
            (both, "cudnn-9.19.0/0/-/0/padded/bias"),
            (masked, "cudnn-9.26.0/70/2=8,18=0/4096/residual+relu_grad"),
            (summed, "cudnn-9.26.0/70/2=8,18=0/4096/padded/statistics"),
        ] {
            assert_eq!((name.to_string(), text.parse::<EngineName>().unwrap()), (text.to_string(), name));
        }
        let (versions, knobs) = (
            ["", "cuda", "cudnn-9.19.0", "cudnn-9.19/1/-/0", "cudnn-9.190.0/1/-/0"],
            ["cudnn-9.19.0/1/2/0", "cudnn-9.19.0/1/2=/0", "cudnn-9.19.0/1//0"],
        );
        let others = [
            "cudnn-9.19.0/x/-/0",
            "cudnn-9.19.0/1/-/",
            "cudnn-9.19.0/1/-/-1",
            "cudnn-9.19.0/1/-/0/",
            "cudnn-9.19.0/1/-/0/relu+bias",
            "cudnn-9.19.0/1/-/0/tanh",
            "cudnn-9.19.0/1/-/0/relu_grad+residual",
            "cudnn-9.19.0/1/-/0/statistics+bias",
            "cudnn-9.19.0/1/-/0/bias/padded",
            "cudnn-9.19.0/1/-/0/padded/padded",
            "cudnn-9.19.0/1/-/0/padded/",
        ];
        versions.iter().chain(&knobs).chain(&others).for_each(|text| assert!(text.parse::<EngineName>().is_err(), "{text}"));
        assert!(format!("cudnn-{}.0.0/1/-/0", usize::MAX).parse::<EngineName>().is_err());
    }

    #[test]
    fn engines_are_allowed_by_their_notes() {
        let spec = |pad| {
            let axis = WindowAxis { size: 8, positions: 4, taps: 3, stride: 2, dilation: 1, pad };
            let axes = Axes::new(&[axis]).unwrap();
            ConvSpec { data_type: DataType::Float, batch: 1, in_c: 1, out_c: 1, axes, layout: Layout::ChannelsLast, groups: 1 }
        };
        let engine_of = |kind, pad, index, notes: &[i32]| {
            let name =
                EngineName { version: 92_600, index, knobs: Vec::new(), workspace: Bytes::ZERO, padded: false, finish: Finish::NONE };
            Engine::noted(name, &GraphPlan::from(&ConvolutionPlan::of(kind, spec(pad))), notes, false)
        };
        let engine = |index, notes: &[i32]| engine_of(ConvolutionKind::Forward, 0, index, notes);
        let (full, rounded) = (EngineLimits::default(), EngineLimits { tensor_float_32: true, ..EngineLimits::default() });
        let allowed = |engine: &Engine| {
            [(full, DataType::Float), (rounded, DataType::Float), (full, DataType::Bfloat16)].map(|(limits, of)| limits.allow(engine, of))
        };
        assert_eq!(allowed(&engine(28, &[])), [true; 3]);
        assert_eq!(allowed(&engine(67, &[NOTE_TENSOR_CORE])), [false, true, true]);
        assert_eq!(allowed(&engine(20, &[NOTE_NONDETERMINISTIC])), [false; 3]);
        assert_eq!((allowed(&engine(0, &[NOTE_REFERENCE])), allowed(&engine(5, &[NOTE_REFERENCE]))), ([false; 3], [true; 3]));
        // Of the gradient by the filter two have other values. With no padding before the elements there is one behind them.
        let by_filter = |pad, index| allowed(&engine_of(ConvolutionKind::ByFilter, pad, index, &[]));
        assert_eq!((allowed(&engine(17, &[])), by_filter(0, 17), by_filter(1, 17)), ([true; 3], [false; 3], [false; 3]));
        assert_eq!((allowed(&engine(1, &[])), by_filter(0, 1), by_filter(0, 2)), ([true; 3], [false; 3], [true; 3]));
        let even = ConvolutionPlan::of(ConvolutionKind::ByFilter, ConvSpec { axes: Axes::new(&[WindowAxis::ONE]).unwrap(), ..spec(0) });
        assert!(!even.pads_unevenly() && ConvolutionPlan::of(ConvolutionKind::ByFilter, spec(0)).pads_unevenly());
        NOTES_OTHER_SUMS.iter().for_each(|note| assert_eq!(allowed(&engine(3, &[*note])), [false; 3], "{note}"));
    }
}
