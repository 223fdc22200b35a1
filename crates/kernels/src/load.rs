//! The loads of steps: the classes and amounts that tables of costs price.

use plimsoll_base::DataType;
use plimsoll_device::{Class, Cost, Load};
use plimsoll_request::KernelRequest;
use plimsoll_request::anchor::Anchor;
use plimsoll_request::bands::{BandStage, Bands};
use plimsoll_request::product::ProductSpec;
use plimsoll_request::row_wise::{RowStep, Span};

use crate::conv::Sizes;
use crate::simd::Isa;

/// The loads of the steps of a request, whose costs these are.
pub(crate) fn loads(isa: Isa, request: &KernelRequest, costs: &[Cost]) -> Vec<Load> {
    let class = class_of(request);
    let main = (0..costs.len()).max_by(|one, other| costs[*one].flops.total_cmp(&costs[*other].flops));
    let load = |(step, cost): (usize, &Cost)| match request {
        KernelRequest::Anchor { .. } | KernelRequest::ConvBackpropFilter { .. } if Some(step) != main => elements(Class::Expression, cost),
        _ => load_of(isa, class, request, cost),
    };
    costs.iter().enumerate().map(load).collect()
}

fn class_of(request: &KernelRequest) -> Class {
    use KernelRequest::*;
    match request {
        Expr { .. } | Exprs(_) | RowWise(_) => Class::Expression,
        Anchor { anchor: self::Anchor::Product(DataType::Float | DataType::Half | DataType::Bfloat16, _), .. } => Class::Product,
        Anchor { anchor: self::Anchor::Product(..), .. } => Class::GenericProduct,
        Attention(_) | ScaledAttention(_) | ScaledAttentionGrad(_) => Class::Product,
        Bands(_) | ConvStatistics(_) => Class::Convolution,
        Anchor { anchor: self::Anchor::Conv(_) | self::Anchor::ConvBackpropInput(_), .. } => Class::Convolution,
        Anchor { anchor: self::Anchor::DepthwiseConv(_), .. } => Class::Depthwise,
        DepthwiseConvBackpropInput(_) | DepthwiseConvBackpropFilter(_) => Class::Depthwise,
        ConvBackpropFilter { .. } | ConvBackpropFilterSums { .. } => Class::FilterGradient,
        ConvBackpropFilterEnd { .. } => Class::Winograd,
        MaxPool(_)
        | MaxPoolGrad(_)
        | MaxPoolGradOfInput { .. }
        | MaxPoolGradGrad(_)
        | AvgPool(_)
        | AvgPoolGrad(_)
        | Resample(_)
        | Warp(_)
        | Crop(_) => Class::Pooling,
        BatchNorm { .. } | BatchNormGrad { .. } | Lrn(_) | LrnGrad(_) => Class::Normalization,
        Nn(_) => Class::Loss,
        Reduction(_) => Class::Reduction,
        Movement { .. } => Class::Movement,
        Gather(_) | UpdateRows(_) => Class::Gather,
        OnRows(on) => class_of(&on.request),
        Random(_) => Class::Random,
        Factors(_) | Fft(_) | Linalg(_) | CheckNumerics { .. } | Require(_) | Nothing | Named(_) => Class::Other,
    }
}

/// Operations of a convolution that take as long as one of a depthwise convolution, which reads each of its operands for one.
const DEPTHWISE: f64 = 3.0;
/// Steps of an expression that take as long as the softmax of an element.
const SOFTMAX: f64 = 5.0;

fn load_of(isa: Isa, class: Class, request: &KernelRequest, cost: &Cost) -> Load {
    // In floats: a request from a file may have any sizes.
    let padding = |columns: u64| (columns as f64 / lanes(isa)).ceil() * lanes(isa) / columns.max(1) as f64;
    match request {
        KernelRequest::Expr { expr, .. } => {
            // Vectors hold fewer elements of wider types.
            let width = expr.inputs().iter().map(|data_type| data_type.size().unwrap_or(4)).max().unwrap_or(4);
            Load { class, issued: 0.0, elementwise: cost.flops * width.max(4) as f64 / 4.0 }
        }
        KernelRequest::Anchor { anchor, epilogue, .. } => {
            let total = anchor.shape().map_or(0.0, |shape| shape.iter().map(|size| *size as f64).product());
            let elementwise = epilogue.as_ref().map_or(0.0, |epilogue| epilogue.expr.flops() * total);
            let padding = match anchor {
                // A single column is computed as a row.
                Anchor::Product(_, ProductSpec { m, n: 1, .. }) => padding(*m),
                Anchor::Product(_, spec) => padding(spec.n),
                Anchor::Conv(spec) | Anchor::DepthwiseConv(spec) => padding(spec.out_c),
                Anchor::ConvBackpropInput(spec) => padding(spec.in_c),
            };
            Load { class, issued: (cost.flops - elementwise).max(0.0) * padding, elementwise }
        }
        KernelRequest::Attention(request) => {
            let product = |spec: &ProductSpec| 2.0 * [spec.batch, spec.m, spec.n, spec.k].map(|size| size as f64).iter().product::<f64>();
            let issued = [&request.scores, &request.values].map(|spec| product(spec) * padding(spec.n)).iter().sum();
            let scores: f64 = request.shape.iter().map(|size| *size as f64).product();
            let between = request.between.as_ref().map_or(0.0, |between| between.expr.flops());
            Load { class, issued, elementwise: (between + SOFTMAX) * scores }
        }
        KernelRequest::Bands(Bands { stages }) => {
            let (mut issued, mut elementwise) = (0.0, 0.0);
            for BandStage { anchor, epilogue } in stages {
                let total = anchor.shape().map_or(0.0, |shape| shape.iter().map(|size| *size as f64).product());
                elementwise += epilogue.as_ref().map_or(0.0, |epilogue| epilogue.expr.flops() * total);
                issued += match anchor {
                    Anchor::Conv(spec) => spec.flops() * padding(spec.out_c),
                    Anchor::DepthwiseConv(spec) => DEPTHWISE * spec.flops() / spec.in_c.max(1) as f64 * padding(spec.out_c),
                    Anchor::Product(..) | Anchor::ConvBackpropInput(_) => 0.0,
                };
            }
            Load { class, issued, elementwise }
        }
        KernelRequest::ConvBackpropFilter { spec, .. } | KernelRequest::ConvBackpropFilterSums { spec, .. } => {
            Load { class, issued: cost.flops * padding(spec.out_c), elementwise: 0.0 }
        }
        KernelRequest::RowWise(request) => {
            let steps = request.steps.iter().map(|step| match step {
                RowStep::Expr { expr, span: Span::Rows, .. } => expr.flops(),
                RowStep::Expr { .. } => 0.0,
                RowStep::Reduce { .. } => 1.0,
                RowStep::Softmax { .. } => SOFTMAX,
            });
            Load { class, issued: 0.0, elementwise: steps.sum::<f64>() * request.rows as f64 * request.row as f64 }
        }
        KernelRequest::ConvBackpropFilterEnd { .. } => elements(class, cost),
        _ => Load { class, issued: cost.flops, elementwise: 0.0 },
    }
}

/// A step that only computes on elements.
fn elements(class: Class, cost: &Cost) -> Load {
    Load { class, issued: 0.0, elementwise: cost.flops }
}

/// Floats of a vector.
fn lanes(isa: Isa) -> f64 {
    match isa {
        Isa::Portable => 4.0,
        Isa::Avx2 => 8.0,
        Isa::Avx512 => 16.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lanes_of_the_last_vector_count() {
        let load = |isa, n| {
            let spec = ProductSpec { m: 4, n, k: 2, transpose_a: false, transpose_b: false, batch: 1, places: None };
            let request = KernelRequest::Anchor { anchor: Anchor::Product(DataType::Float, spec), epilogue: None, pooling: None };
            loads(isa, &request, &[Cost { flops: 16.0 * n as f64, bytes: 0.0 }])[0]
        };
        assert_eq!(load(Isa::Avx512, 10), Load { class: Class::Product, issued: 256.0, elementwise: 0.0 });
        assert_eq!(load(Isa::Avx2, 32).issued, 512.0);
        // A single column is a row of 4.
        assert_eq!(load(Isa::Portable, 1).issued, 16.0);
        assert!(load(Isa::Avx512, u64::MAX).issued.is_finite() && load(Isa::Avx512, 0).issued == 0.0);
    }
}
