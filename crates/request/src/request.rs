//! The request.

use plimsoll_base::DataType;
use serde::{Deserialize, Serialize};

use crate::anchor::{Anchor, Epilogue};
use crate::attention::Attention;
use crate::bands::Bands;
use crate::check::Requirement;
use crate::conv::{ConvSpec, FilterForm};
use crate::crop::Crop;
use crate::expr::Expr;
use crate::exprs::Exprs;
use crate::factors::Factors;
use crate::fft::Fft;
use crate::gather::{Gather, ScatterOp};
use crate::linalg::Linalg;
use crate::lrn::LrnSpec;
use crate::movement::Movement;
use crate::nn::Nn;
use crate::norm::BatchNormSpec;
use crate::on_rows::OnRows;
use crate::pool::{Maxima, PoolSpec, Pooling};
use crate::random::{Distribution, Random};
use crate::reduce::Reduction;
use crate::resample::Resample;
use crate::row_wise::RowWise;
use crate::rows::UpdateRows;
use crate::scaled_attention::ScaledAttention;
use crate::warp::Warp;

/// A computation that a kernel answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum KernelRequest {
    /// An expression for every element of `shape`. Arguments: operands of shapes that broadcast to it, then results.
    Expr {
        /// The computation on one element of each operand.
        expr: Expr,
        /// The shape of the results.
        shape: Vec<u64>,
        /// The shapes of the operands.
        operands: Vec<Vec<u64>>,
    },
    /// An expression for every element of several groups of tensors.
    Exprs(Exprs),
    /// A product or a convolution, with an expression on its elements before they are written. With a pooling, that follows, and
    /// its results are the results.
    Anchor {
        /// The product or convolution.
        anchor: Anchor,
        /// The expression for each element, behind the anchor.
        epilogue: Option<Epilogue>,
        /// The pooling, behind the epilogue.
        pooling: Option<Pooling>,
    },
    /// A convolution with channels last, and of each channel of its result the sum and the sum of squares, floats. These are sums of the elements before
    /// or behind their rounding. Arguments: input, filter; result, sums, sums of squares.
    ConvStatistics(ConvSpec),
    /// Scores, their softmax, and its product with values.
    Attention(Attention),
    /// Attention of narrow floats, with or without what its gradient reads.
    ScaledAttention(ScaledAttention),
    /// Its gradients by Q, K and V.
    ScaledAttentionGrad(ScaledAttention),
    /// Convolutions one behind the other.
    Bands(Bands),
    /// Expressions and reductions of rows, one behind the other.
    RowWise(RowWise),
    /// The gradient of a convolution by its filter. Arguments: input, gradient by the result, gradient by the filter.
    /// With `unpooled` the gradient by the result is that of a max pooling by its input; arguments: input, positions, gradient by
    /// the pooling's result, gradient by the filter.
    ConvBackpropFilter {
        /// The convolution.
        spec: ConvSpec,
        /// The pooling of the convolution's results.
        unpooled: Option<PoolSpec>,
    },
    /// Sums that make up the gradient of a convolution by its filter, each over as many images: see [`crate::Sums`]. Arguments: as
    /// [`KernelRequest::ConvBackpropFilter`], and in the place of the gradient so many filters of floats, in their form.
    ConvBackpropFilterSums {
        /// The convolution.
        spec: ConvSpec,
        /// The pooling of the convolution's results.
        unpooled: Option<PoolSpec>,
        /// How many sums.
        sums: u64,
        /// Whether they are added to what is there.
        onto: bool,
        /// What is summed.
        form: FilterForm,
    },
    /// The gradient of a convolution by its filter from sums of [`FilterForm::Points`]. Arguments: sums, gradient by the filter.
    ConvBackpropFilterEnd {
        /// The convolution.
        spec: ConvSpec,
        /// Points along each axis.
        points: u64,
        /// How many sums.
        sums: u64,
    },
    /// The gradient of a depthwise convolution by its input: filter, gradient by the result, gradient by the input.
    DepthwiseConvBackpropInput(ConvSpec),
    /// The gradient of a depthwise convolution by its filter: input, gradient by the result, gradient by the filter.
    DepthwiseConvBackpropFilter(ConvSpec),
    /// Maxima of windows, and the positions that the pooling asks for. Arguments: input, output, positions where they are wanted
    /// (see [`crate::pool::ArgMax`]).
    MaxPool(Pooling),
    /// The gradient of a max pooling by the positions of its first maxima. Arguments: positions, gradient by the output, gradient by the input.
    MaxPoolGrad(PoolSpec),
    /// The gradient of a max pooling. Arguments: input, output, gradient by the output, gradient by the input.
    MaxPoolGradOfInput {
        /// The sizes.
        spec: PoolSpec,
        /// Which elements have the gradient.
        maxima: Maxima,
    },
    /// The gradient of [`KernelRequest::MaxPoolGradOfInput`] by the gradient that it has: of each window the number where the input's
    /// first element is that equals the output's, and 0 where there is none. Arguments: input, output, numbers of the input's shape;
    /// numbers of the output's.
    MaxPoolGradGrad(PoolSpec),
    /// Means of windows. Arguments: input, output.
    AvgPool(PoolSpec),
    /// The gradient of means of windows. Arguments: gradient by the output, gradient by the input.
    AvgPoolGrad(PoolSpec),
    /// `FusedBatchNorm`. Arguments: x, scale, offset, mean, variance; y, and of each channel: the running mean and
    /// variance, the batch's mean and variance (in training; 0 else), and with `reserve_3` one number that is 0. With `summed` the sums and the sums of
    /// squares of x come behind the variance, as [`KernelRequest::ConvStatistics`] makes them. The further operands of an epilogue come behind
    /// those, and its result is there in the place of y.
    BatchNorm {
        /// Sizes and numbers.
        spec: BatchNormSpec,
        /// Whether statistics are those of the batch.
        training: bool,
        /// Whether there is a sixth output.
        reserve_3: bool,
        /// Whether sums of x are given. They are those of the batch: with `training` only.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        summed: bool,
        /// An expression of y and of tensors as large, with one result.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        epilogue: Option<Epilogue>,
    },
    /// `FusedBatchNormGrad`. Arguments: gradient by y, x, scale, mean, variance; gradients by x, scale and offset,
    /// and two without elements. With `relu` the gradient is that by `max(y, 0)`: it is 0 where y, as it is stored, is not above 0. Then the offset comes behind
    /// the variance.
    BatchNormGrad {
        /// Sizes and numbers.
        spec: BatchNormSpec,
        /// Whether statistics were those of the batch.
        training: bool,
        /// Whether the gradient is that by `max(y, 0)`.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        relu: bool,
    },
    /// `LRN`. Arguments: input, output.
    Lrn(LrnSpec),
    /// `LRNGrad`. Arguments: gradient by the output, input, output, gradient by the input.
    LrnGrad(LrnSpec),
    /// Matrices taken apart. Arguments: as [`FactorOp`](crate::factors::FactorOp) says.
    Factors(Factors),
    /// Fourier transforms of rows. Arguments: rows, results.
    Fft(Fft),
    /// An operation on square matrices. Arguments: as [`MatrixOp`](crate::linalg::MatrixOp) says.
    Linalg(Linalg),
    /// Images resized, or the gradient of that. Arguments: input, output.
    Resample(Resample),
    /// Images seen through projective transforms. Arguments: images, transforms (8 floats each), the fill value (a float), output.
    Warp(Warp),
    /// Parts of images, resized, or a gradient of that. Arguments: as [`Makes`](crate::crop::Makes) says.
    Crop(Crop),
    /// Softmax and losses.
    Nn(Nn),
    /// Reductions and their kin.
    Reduction(Reduction),
    /// Elements moved.
    Movement {
        /// Bytes of an element.
        element: usize,
        /// Which go where.
        movement: Movement,
    },
    /// Rows and elements that indices name.
    Gather(Gather),
    /// Rows of variables changed by an expression.
    UpdateRows(UpdateRows),
    /// A request of which some inputs and outputs are rows of larger tensors.
    OnRows(OnRows),
    /// Random numbers.
    Random(Random),
    /// `CheckNumerics`, and `CheckNumericsV2` where the error names `signs`: the output is the input, bit for bit. A fault where an
    /// element is infinite or no number. Arguments: input, output. A float type.
    CheckNumerics {
        /// The element type.
        data_type: DataType,
        /// How many elements.
        elements: u64,
        /// Whether the error says which infinity.
        signs: bool,
    },
    /// Fails where a condition does not hold. Argument: the condition, one bool.
    Require(Requirement),
    /// Does nothing: a command whose waits others wait for. No arguments.
    Nothing,
    /// A kernel that a library knows by name: of a device outside of this project, or of a test.
    Named(String),
}

impl KernelRequest {
    /// The convolution of floats in a request that computes more: its numerics are chosen by it alone, so that they are the same whatever is
    /// fused into it. None where there is nothing more, and for other requests.
    pub fn bare_convolution(&self) -> Option<KernelRequest> {
        match self {
            KernelRequest::Anchor { anchor: anchor @ (Anchor::Conv(spec) | Anchor::ConvBackpropInput(spec)), epilogue, pooling }
                if spec.data_type == DataType::Float =>
            {
                let bare = KernelRequest::Anchor { anchor: *anchor, epilogue: None, pooling: None };
                (epilogue.is_some() || pooling.is_some()).then_some(bare)
            }
            KernelRequest::ConvBackpropFilter { spec, unpooled: Some(_) } => {
                Some(KernelRequest::ConvBackpropFilter { spec: *spec, unpooled: None })
            }
            _ => None,
        }
    }

    /// The request that computes the same without sums that a convolution and a normalization share; none for others.
    pub fn without_sums(&self) -> Option<KernelRequest> {
        match self {
            KernelRequest::ConvStatistics(spec) => {
                Some(KernelRequest::Anchor { anchor: Anchor::Conv(*spec), epilogue: None, pooling: None })
            }
            KernelRequest::BatchNorm { spec, training, reserve_3, summed: true, epilogue } => {
                let (spec, training, reserve_3, epilogue) = (*spec, *training, *reserve_3, epilogue.clone());
                Some(KernelRequest::BatchNorm { spec, training, reserve_3, summed: false, epilogue })
            }
            _ => None,
        }
    }

    /// Whether some elements make it fail. A plan keeps effects that follow behind it.
    pub fn can_fail(&self) -> bool {
        match self {
            KernelRequest::Expr { expr, .. } | KernelRequest::Exprs(Exprs { expr, .. }) => expr.can_fail(),
            KernelRequest::Anchor { epilogue, .. } | KernelRequest::BatchNorm { epilogue, .. } => {
                epilogue.as_ref().is_some_and(|epilogue| epilogue.expr.can_fail())
            }
            KernelRequest::Gather(Gather::OneHot { .. } | Gather::Bound { .. } | Gather::TakeNd { ignore: true, .. }) => false,
            KernelRequest::Gather(Gather::Scatter { op, data_type, ignore: true, .. }) => *op == ScatterOp::Div && data_type.is_integer(),
            KernelRequest::Gather(Gather::Block { block, .. } | Gather::Embed { block, .. }) => block.can_fail(),
            KernelRequest::Gather(_) | KernelRequest::CheckNumerics { .. } | KernelRequest::Require(_) | KernelRequest::Named(_) => true,
            KernelRequest::UpdateRows(_) | KernelRequest::OnRows(_) => true,
            KernelRequest::Factors(request) => request.can_fail(),
            KernelRequest::Crop(_) => true,
            KernelRequest::Linalg(request) => request.can_fail(),
            KernelRequest::Nn(Nn::CrossEntropy { label_type, .. }) => label_type.is_some(),
            KernelRequest::Random(
                Random::Stateful { distribution, .. } | Random::Reserved { distribution, .. } | Random::Stateless { distribution, .. },
            ) => *distribution == Distribution::UniformInt,
            KernelRequest::Random(Random::Candidates(_)) => true,
            _ => false,
        }
    }
}
