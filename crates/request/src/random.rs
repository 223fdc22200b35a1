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

/// The distribution, and the source of the generator's counter. At run time a fault where `minval >= maxval`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "data_type and elements: of the output; the other fields are said above them")]
pub enum Random {
    /// Fills the output and advances the state: 8 bytes, a little-endian count of blocks set aside so far. `seed` and `seed2`
    /// are the attributes; where both are 0, 0 it is. Arguments: minval, maxval (`UniformInt` only), then the outputs: state
    /// (read and advanced), output.
    Stateful { distribution: Distribution, data_type: DataType, elements: u64, seed: i64, seed2: i64 },
    /// The Philox algorithm from a given counter. Arguments: key (`uint64[1]`), counter (`uint64[2]`), minval, maxval
    /// (`UniformInt` only), output.
    Stateless { distribution: Distribution, data_type: DataType, elements: u64 },
    /// `StatelessRandomGetKeyCounter` for the Philox algorithm. Arguments: seed (two of `seed_type`, int32 or int64), then the
    /// outputs: key (`uint64[1]`), counter (`uint64[2]`).
    KeyCounter { seed_type: DataType },
}
