//! Random numbers, the same that TensorFlow's kernels for processors give for the same seeds.

use plimsoll_base::DataType;
use serde::{Deserialize, Serialize};

/// The distribution of the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Distribution {
    /// `RandomUniform`, `StatelessRandomUniformV2`: in [0, 1). A float type.
    Uniform,
    /// `RandomStandardNormal`, `StatelessRandomNormalV2`: mean 0, deviation 1. A float type.
    Normal,
    /// `TruncatedNormal`, `StatelessTruncatedNormalV2`: as normal, redrawn until within two of the mean. A float type.
    TruncatedNormal,
    /// `RandomUniformInt`, `StatelessRandomUniformIntV2`: in [minval, maxval), two scalar inputs. Int32 or int64.
    UniformInt,
}

/// Where the generator of a request begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SeedSource {
    /// A state of 8 bytes, as for [`Random::Stateful`], and these attributes.
    State {
        /// The attribute `seed`.
        seed: i64,
        /// The attribute `seed2`.
        seed2: i64,
    },
    /// A seed: an argument of two numbers.
    Given {
        /// Int32 or int64.
        seed_type: DataType,
    },
}

/// `Multinomial`, `StatelessMultinomial`: classes, as likely as the exponentials of logits. A logit that is not finite counts for
/// nothing; a row of such gives `classes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Categorical {
    /// The type of the logits: a float type.
    pub data_type: DataType,
    /// The type of the numbers of classes: int32 or int64.
    pub output_type: DataType,
    /// Rows of logits.
    pub rows: u64,
    /// Logits of a row.
    pub classes: u64,
    /// Classes that are drawn for each row.
    pub samples: u64,
    /// Where the generator begins.
    pub source: SeedSource,
}

/// How a candidate sampler draws; `range`: how many classes there are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "range is said above")]
pub enum Sampler {
    /// Each class once.
    All { range: u64 },
    /// Each is as likely as the others.
    Uniform { range: u64 },
    /// The probability falls as the inverse of the class' number.
    LogUniform { range: u64 },
    /// As likely as its weight.
    Unigram {
        /// Of each class; not negative.
        weights: Vec<f32>,
    },
    /// As likely as it was a true class, and once more.
    Learned { range: u64 },
}

impl Sampler {
    /// How many classes there are.
    pub fn range(&self) -> u64 {
        match self {
            Sampler::All { range } | Sampler::Uniform { range } | Sampler::LogUniform { range } | Sampler::Learned { range } => *range,
            Sampler::Unigram { weights } => weights.len() as u64,
        }
    }

    /// The bytes of its state: the count of blocks, and of a sampler that learns 4 for each class.
    pub fn state_bytes(&self) -> Option<u64> {
        match self {
            Sampler::Learned { range } => range.checked_mul(4)?.checked_add(8),
            _ => Some(8),
        }
    }
}

/// `UniformCandidateSampler` and its kin. Arguments: true classes (int64), then the outputs: state (read and advanced; it begins as
/// zeros), candidates (int64), how often each true class, and each candidate, is to be expected (floats).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Candidates {
    /// How they are drawn.
    pub sampler: Sampler,
    /// Whether each is drawn once at most.
    pub unique: bool,
    /// How many candidates.
    pub sampled: u64,
    /// How many true classes.
    pub truths: u64,
    /// The attribute `seed`.
    pub seed: i64,
    /// The attribute `seed2`.
    pub seed2: i64,
}

/// Blocks that [`Random::Stateful`] sets aside for each element.
pub const BLOCKS_PER_ELEMENT: u64 = 256;

/// The distribution, and the source of the generator's counter. At run time a fault where `minval >= maxval`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "data_type and elements: of the output; the other fields are said above them")]
pub enum Random {
    /// Fills the output and advances the state: 8 bytes, a little-endian count of blocks set aside so far. `seed` and `seed2`
    /// are the attributes; where both are 0, 0 it is. Arguments: minval, maxval (`UniformInt` only), then the outputs: state
    /// (read and advanced), output.
    Stateful { distribution: Distribution, data_type: DataType, elements: u64, seed: i64, seed2: i64 },
    /// Sets blocks aside. Arguments: the outputs: state (read and advanced by so many), its bytes before.
    Reserve { blocks: u64 },
    /// Fills the output as [`Random::Stateful`] does, from blocks that were set aside: the same arguments give the same numbers again.
    /// Arguments: minval, maxval (`UniformInt` only), the state before they were set aside, output.
    Reserved { distribution: Distribution, data_type: DataType, elements: u64, seed: i64, seed2: i64 },
    /// The Philox algorithm from a given counter. Arguments: key (`uint64[1]`), counter (`uint64[2]`), minval, maxval
    /// (`UniformInt` only), output.
    Stateless { distribution: Distribution, data_type: DataType, elements: u64 },
    /// `StatelessRandomGetKeyCounter` for the Philox algorithm. Arguments: seed (two of `seed_type`, int32 or int64), then the
    /// outputs: key (`uint64[1]`), counter (`uint64[2]`).
    KeyCounter { seed_type: DataType },
    /// Classes. Arguments: logits, the seed where it is given, then the outputs: state (read and advanced) where there is one,
    /// classes (`[rows, samples]`).
    Categorical(Categorical),
    /// Candidates for a sampled loss.
    Candidates(Candidates),
}
