//! Gradients against TensorFlow's and against finite differences.

use std::sync::Arc;

use crate::common::interpret::{Interpreter, build};
use crate::common::record::{Case, Kind, cases, tensor, tensors};
use crate::common::{agree, floats, is_smooth};
use plimsoll_base::{Code, DataType, Result};
use plimsoll_graph::{AttrValue, HostTensor, NodeId, Output, PartialShape, Shape};
use plimsoll_kernels::CpuKernels;
use plimsoll_ops::{GraphBuilder, Registry};

/// Operations, by how their names begin, whose gradients need sizes that are known.
const NEEDS_SHAPES: &[&str] = &["ExtractImagePatches", "Gather", "Qr", "Svd"];

type View = fn(&Shape) -> PartialShape;

fn known(shape: &Shape) -> PartialShape {
    shape.into()
}

fn batch_open(shape: &Shape) -> PartialShape {
    let mut dims: Vec<Option<u64>> = shape.iter().copied().map(Some).collect();
    dims.first_mut().into_iter().for_each(|dim| *dim = None);
    PartialShape(Some(dims))
}

fn rank_only(shape: &Shape) -> PartialShape {
    PartialShape(Some(vec![None; shape.rank()]))
}

fn nothing(_: &Shape) -> PartialShape {
    PartialShape::unknown()
}

/// The outputs that gradients begin at.
fn ys(builder: &GraphBuilder, node: NodeId, count: usize) -> Vec<Output> {
    let outputs = (0..builder.output_count(node) as u32).map(|index| Output { node, index });
    outputs.filter(|output| is_smooth(builder.data_type(*output))).take(count).collect()
}

fn floats_fed(case: &Case) -> impl Iterator<Item = usize> {
    case.inputs.iter().enumerate().filter(|(_, (_, value))| is_smooth(value.data_type())).map(|(position, _)| position)
}

/// The gradients with respect to every float operand of `case`, from the gradients `dys` of its float outputs.
fn gradients(registry: &Arc<Registry>, case: &Case, dys: &[HostTensor], view: View) -> Result<Vec<Option<HostTensor>>> {
    let mut builder = GraphBuilder::new(registry.clone());
    let (node, inputs) = build(&mut builder, case, view)?;
    let ys = ys(&builder, node, dys.len());
    let xs: Vec<Output> = floats_fed(case).map(|position| inputs[position]).collect();
    let dys = dys.iter().map(|dy| builder.constant(dy.clone()).build().map(Some)).collect::<Result<Vec<_>>>()?;
    let gradients = builder.gradients_from(&ys, &dys, &xs)?;
    let feeds =
        inputs.iter().zip(&case.inputs).filter(|(_, (kind, _))| *kind == Kind::Fed).map(|(input, (_, value))| (*input, value.clone()));
    let mut interpreter = Interpreter::new(&builder, feeds.collect::<Vec<_>>());
    gradients.into_iter().map(|gradient| gradient.map(|gradient| interpreter.value(gradient)).transpose()).collect()
}

/// `None` for no gradient.
fn expected(case: &Case) -> Vec<Option<HostTensor>> {
    case.rest[1].split(';').map(|text| if text == "-" { None } else { Some(tensor(text).expect("a gradient can be read")) }).collect()
}

fn report(failures: &[String]) {
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn gradients_are_tensorflows() {
    let registry = Arc::new(Registry::standard(Arc::new(CpuKernels)));
    let mut failures = Vec::new();
    for case in cases("grad") {
        let dys = tensors(case.rest[0], tensor).expect("gradients can be read");
        // Vectors whose sign is open have the gradient of their sign, and eigenvalues in any order that of their place.
        if matches!(case.op, "SelfAdjointEigV2" | "Svd") && dys.len() > 1 || case.op == "Eig" {
            continue;
        }
        for (name, view) in [("known", known as View), ("batch open", batch_open), ("ranks", rank_only), ("nothing", nothing)] {
            let got = match gradients(&registry, &case, &dys, view) {
                Ok(got) => got,
                // A rule that needs a rank may say so where there is none.
                Err(error) if name == "nothing" && error.code() == Code::Unimplemented => continue,
                Err(error)
                    if name != "known" && error.code() == Code::Unimplemented && NEEDS_SHAPES.iter().any(|op| case.op.starts_with(op)) =>
                {
                    continue;
                }
                Err(error) => {
                    failures.push(format!("{} : {name}: {error}", case.text));
                    continue;
                }
            };
            // Elements that are almost 0 are differences of products of whole matrices.
            let absolute = if matches!(case.op, "Qr" | "SelfAdjointEigV2" | "Svd") { 8e-6 } else { 2e-6 };
            for (position, (got, expected)) in got.iter().zip(expected(&case)).enumerate() {
                let difference = match (got, expected) {
                    (None, None) => Ok(()),
                    (Some(got), Some(expected)) => agree(got, &expected, 4e-6, absolute),
                    (got, expected) => Err(format!("{got:?} instead of {expected:?}")),
                };
                if let Err(difference) = difference {
                    failures.push(format!("{} : {name}: operand {position}: {difference}", case.text));
                }
            }
        }
    }
    report(&failures);
}

/// The same case with doubles in the place of floats.
fn doubled(case: &Case) -> Case {
    let mut case = case.clone();
    case.inputs.iter_mut().for_each(|(_, value)| *value = double(value));
    for (_, attr) in case.attrs.iter_mut().filter(|(name, _)| *name == "Tout" || *name == "Treal" || *name == "Tcomplex") {
        let is_complex = [DataType::Complex64, DataType::Complex128].map(AttrValue::data_type).contains(attr);
        *attr = AttrValue::data_type(if is_complex { DataType::Complex128 } else { DataType::Double });
    }
    case
}

fn double(value: &HostTensor) -> HostTensor {
    match value.data_type() {
        data_type if is_smooth(data_type) => with_numbers(value, &floats(value)),
        _ => value.clone(),
    }
}

/// A tensor of doubles, or of complex numbers with these parts, in the shape of another.
fn with_numbers(like: &HostTensor, numbers: &[f64]) -> HostTensor {
    let data_type = if like.data_type().is_complex() { DataType::Complex128 } else { DataType::Double };
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    HostTensor::from_bytes(data_type, like.shape().clone(), &bytes).unwrap()
}

/// The sum of all outputs, weighted by `dys`.
fn weighted_sum(registry: &Arc<Registry>, case: &Case, dys: &[HostTensor]) -> Result<f64> {
    let mut builder = GraphBuilder::new(registry.clone());
    let (node, inputs) = build(&mut builder, case, known)?;
    let ys = ys(&builder, node, dys.len());
    let feeds =
        inputs.iter().zip(&case.inputs).filter(|(_, (kind, _))| *kind == Kind::Fed).map(|(input, (_, value))| (*input, value.clone()));
    let mut interpreter = Interpreter::new(&builder, feeds.collect::<Vec<_>>());
    let mut sum = 0.0;
    for (y, dy) in ys.into_iter().zip(dys) {
        sum += floats(&interpreter.value(y)?).iter().zip(floats(dy)).map(|(y, dy)| y * dy).sum::<f64>();
    }
    Ok(sum)
}

/// Operations whose gradient is not the derivative, by intent, or that have none where the cases lie. That of Cholesky is made
/// symmetric, as the matrices are.
const NO_DERIVATIVE: &[&str] = &[
    "Cholesky",
    "CropAndResize",
    "StopGradient",
    "Cast",
    "FakeQuantWithMinMaxArgs",
    "FakeQuantWithMinMaxVars",
    "FakeQuantWithMinMaxVarsPerChannel",
    "QuantizeAndDequantizeV2",
    "QuantizeAndDequantizeV3",
    "QuantizeAndDequantizeV4",
    "ReluGrad",
    "Relu6Grad",
    "LeakyReluGrad",
    "MulNoNan",
    "DivNoNan",
    "Floor",
    "Ceil",
    "Rint",
    "Round",
    "Sign",
];

/// Operations whose kernels take floats only.
const OF_FLOATS: &[&str] = &[
    "AvgPool",
    "AvgPool3D",
    "AvgPool3DGrad",
    "AvgPoolGrad",
    "Conv2D",
    "Conv2DBackpropFilter",
    "Conv2DBackpropInput",
    "Conv3D",
    "Conv3DBackpropFilterV2",
    "Conv3DBackpropInputV2",
    "DepthwiseConv2dNative",
    "DepthwiseConv2dNativeBackpropFilter",
    "DepthwiseConv2dNativeBackpropInput",
    "FusedBatchNorm",
    "FusedBatchNormV2",
    "FusedBatchNormV3",
    "LRN",
    "MaxPool",
    "MaxPool3D",
    "MaxPool3DGrad",
    "MaxPool3DGradGrad",
    "MaxPoolGrad",
    "MaxPoolGradGrad",
    "ResizeBicubic",
    "ResizeBilinear",
    "ScaleAndTranslate",
];

/// All of these are linear in each operand between two steps, but LRN and FusedBatchNorm, which are smooth.
#[test]
fn gradients_of_float_kernels_are_derivatives() {
    const STEP: f64 = 1.0 / 512.0;
    let registry = Arc::new(Registry::standard(Arc::new(CpuKernels)));
    let (mut failures, mut checked) = (Vec::new(), 0);
    for case in cases("grad") {
        if !OF_FLOATS.contains(&case.op) {
            continue;
        }
        let dys = tensors(case.rest[0], tensor).expect("gradients can be read");
        let got = gradients(&registry, &case, &dys, known).unwrap();
        for (position, got) in floats_fed(&case).zip(got) {
            // Statistics that are given count as constants.
            if case.op.starts_with("FusedBatchNorm") && position >= 3 {
                assert!(got.is_none(), "{}", case.text);
                continue;
            }
            // Numbers that a plan has to know count as constants.
            if case.inputs[position].0 == Kind::Known {
                assert!(got.is_none(), "{}", case.text);
                continue;
            }
            let got = floats(&got.expect("each operand has a gradient"));
            // Input and output choose elements, and count as constants.
            if case.op.starts_with("MaxPool") && case.op.ends_with("Grad") && position < 2 {
                assert!(got.iter().all(|slope| *slope == 0.0), "{}", case.text);
                continue;
            }
            let values = floats(&case.inputs[position].1);
            // Of large operands, some elements.
            for element in (0..values.len()).step_by(values.len().div_ceil(24)) {
                let moved = |by: f64| {
                    let mut values = values.clone();
                    values[element] += by;
                    let mut case = case.clone();
                    let operand = &mut case.inputs[position].1;
                    let shape = operand.shape().clone();
                    *operand = match operand.data_type() {
                        DataType::Double => HostTensor::from_slice(shape, &values),
                        _ => HostTensor::from_slice(shape, &values.iter().map(|value| *value as f32).collect::<Vec<f32>>()),
                    }
                    .unwrap();
                    weighted_sum(&registry, &case, &dys).unwrap()
                };
                let slope = (moved(STEP) - moved(-STEP)) / (2.0 * STEP);
                if (got[element] - slope).abs() > 2e-3 + 2e-3 * slope.abs() {
                    failures.push(format!("{} : operand {position}, element {element}: {} instead of {slope}", case.text, got[element]));
                }
                checked += 1;
            }
        }
    }
    report(&failures);
    assert!(checked > 500, "{checked}");
}

#[test]
fn gradients_are_derivatives() {
    const STEP: f64 = 1e-5;
    let registry = Arc::new(Registry::standard(Arc::new(CpuKernels)));
    let (mut failures, mut checked) = (Vec::new(), 0);
    for case in cases("grad") {
        let tie = case.text.contains("=1.0,2.0,3.0;") || case.text.contains("=1.0,3.0,3.0,");
        if NO_DERIVATIVE.contains(&case.op)
            || OF_FLOATS.contains(&case.op)
            || tie
            || case.inputs.iter().any(|(_, value)| is_smooth(value.data_type()) && value.elements() > 24)
        {
            continue;
        }
        let case = doubled(&case);
        let dys: Vec<HostTensor> = tensors(case.rest[0], tensor).expect("gradients can be read").iter().map(double).collect();
        let got = match gradients(&registry, &case, &dys, known) {
            Ok(got) => got,
            Err(error) if error.code() == Code::Unimplemented => continue,
            Err(error) => {
                failures.push(format!("{} : {error}", case.text));
                continue;
            }
        };
        for (position, got) in floats_fed(&case).zip(got) {
            let Some(got) = got else { continue };
            // `softmax - labels` is the derivative for labels that add up to one, and the recorded ones do not.
            if case.op == "SoftmaxCrossEntropyWithLogits" && position == 0 {
                continue;
            }
            let values = floats(&case.inputs[position].1);
            for element in 0..values.len() {
                let moved = |by: f64| {
                    let mut values = values.clone();
                    values[element] += by;
                    let mut case = case.clone();
                    case.inputs[position].1 = with_numbers(&case.inputs[position].1, &values);
                    weighted_sum(&registry, &case, &dys).unwrap()
                };
                let slope = (moved(STEP) - moved(-STEP)) / (2.0 * STEP);
                let got = floats(&got)[element];
                if (got - slope).abs() > 1e-6 + 1e-6 * slope.abs() {
                    failures.push(format!("{} : operand {position}, element {element}: {got} instead of {slope}", case.text));
                }
                checked += 1;
            }
        }
    }
    report(&failures);
    assert!(checked > 1000, "{checked}");
}
