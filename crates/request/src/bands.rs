//! Convolutions one behind the other.

use plimsoll_base::{DataType, Error, Result};
use serde::{Deserialize, Serialize};

use crate::anchor::{Anchor, Epilogue};
use crate::conv::ConvSpec;

/// Convolutions of floats along rows and columns, each of what the one before computes. They are computed by bands of rows: what lies
/// between them is in no argument.
///
/// Arguments: the first one's input; of each its filter and the further operands of its epilogue; the last one's result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bands {
    /// At least two.
    pub stages: Vec<BandStage>,
}

/// A convolution, and what is computed behind it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BandStage {
    /// [`Anchor::Conv`] or [`Anchor::DepthwiseConv`].
    pub anchor: Anchor,
    /// An expression with one result, of floats. It cannot fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epilogue: Option<Epilogue>,
}

impl BandStage {
    /// The sizes; none of another anchor.
    pub fn spec(&self) -> Option<&ConvSpec> {
        match &self.anchor {
            Anchor::Conv(spec) | Anchor::DepthwiseConv(spec) => Some(spec),
            Anchor::Product(..) | Anchor::ConvBackpropInput(_) => None,
        }
    }

    /// How many arguments are its own: the filter, and the further operands.
    pub fn operands(&self) -> usize {
        1 + self.epilogue.as_ref().map_or(0, |epilogue| epilogue.operands.len())
    }
}

impl Bands {
    /// The sizes of the stages.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where the stages do not fit each other.
    pub fn check(&self) -> Result<Vec<&ConvSpec>> {
        let wrong = || Error::invalid_argument("convolutions by bands that do not fit each other");
        let specs = self.stages.iter().map(BandStage::spec).collect::<Option<Vec<_>>>().ok_or_else(wrong)?;
        let follow = specs.windows(2).all(|pair| pair[0].output() == pair[1].input());
        let is_plain = |spec: &&ConvSpec| spec.data_type == DataType::Float && spec.axes.len() == 2;
        let is_finished = |stage: &BandStage| {
            stage.epilogue.as_ref().is_none_or(|Epilogue { expr, .. }| {
                expr.inputs().first() == Some(&DataType::Float) && expr.output_types() == [DataType::Float] && !expr.can_fail()
            })
        };
        if specs.len() < 2 || !follow || !specs.iter().all(is_plain) || !self.stages.iter().all(is_finished) {
            return Err(wrong());
        }
        Ok(specs)
    }

    /// As a request that ends with one stage more.
    pub fn then(&self, stage: BandStage) -> Bands {
        Bands { stages: self.stages.iter().cloned().chain([stage]).collect() }
    }
}
