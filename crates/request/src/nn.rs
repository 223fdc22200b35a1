//! Softmax and losses. Float or double.

use plimsoll_base::DataType;
use serde::{Deserialize, Serialize};

/// The computation on each row of `classes` numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "data_type: of the numbers; the other fields are said above them")]
pub enum Nn {
    /// `Softmax`, or `LogSoftmax` where `log`. Arguments: input, output.
    Softmax { log: bool, data_type: DataType, rows: u64, classes: u64 },
    /// `SoftmaxCrossEntropyWithLogits`, or the sparse one where labels are classes of `label_type` (int32 or int64). Arguments:
    /// features `[batch, classes]`, labels (the same shape, or `[batch]`), loss `[batch]`, backprop `[batch, classes]`. At run
    /// time a fault for a label that is no class.
    CrossEntropy { data_type: DataType, label_type: Option<DataType>, batch: u64, classes: u64 },
}
