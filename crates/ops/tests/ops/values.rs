//! Every operation against the values of TensorFlow's kernels, and shape rules against themselves.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::common::interpret::{Interpreter, build};
use crate::common::record::{Case, Kind, cases, tensor, tensors};
use crate::common::vectors::canonical;
use crate::common::{agree, floats, is_smooth, unit};
use plimsoll_base::{Code, Error, Result};
use plimsoll_graph::{HostTensor, Output, PartialShape, Shape};
use plimsoll_kernels::CpuKernels;
use plimsoll_ops::{GraphBuilder, Lower, Registry};

/// How far results may be from TensorFlow's, relative and absolute. Its vector functions and ours round differently.
const TOLERANCE: (f64, f64) = (2e-6, 1e-6);

fn outputs_of(case: &Case, registry: &Arc<Registry>, shape: impl Fn(&Shape) -> PartialShape) -> Result<Vec<HostTensor>> {
    let mut builder = GraphBuilder::new(registry.clone());
    let (node, inputs) = build(&mut builder, case, shape)?;
    let feeds =
        inputs.iter().zip(&case.inputs).filter(|(_, (kind, _))| *kind != Kind::Known).map(|(input, (_, value))| (*input, value.clone()));
    let mut interpreter = Interpreter::new(&builder, feeds.collect::<Vec<_>>());
    let concrete = interpreter.facts(node)?;
    let mut values = Vec::new();
    for (index, fact) in concrete.iter().enumerate() {
        let output = Output { node, index: index as u32 };
        let value = interpreter.value(output)?;
        let is_counted = matches!(registry.require(case.op)?.lower, Lower::Counted(_));
        match fact.shape.complete() {
            None if is_counted => {
                let fits = |most: &Shape| {
                    most.rank() == value.shape().rank() && most.iter().zip(value.shape().iter()).all(|(most, dim)| most >= dim)
                };
                let is_in = fact.shape.admits(value.shape()) && fact.most.as_ref().is_none_or(fits);
                assert!(is_in, "{}: {} and {:?}: inferred shape", case.text, fact.shape, fact.most);
            }
            shape => assert_eq!(shape.as_ref(), Some(value.shape()), "{}: inferred shape", case.text),
        }
        assert!(
            builder.fact(output).shape.admits(value.shape()),
            "{}: {} does not admit {}",
            case.text,
            builder.fact(output).shape,
            value.shape()
        );
        assert_eq!(builder.fact(output).data_type, value.data_type(), "{}: inferred type", case.text);
        values.push(value);
    }
    Ok(values)
}

/// Operations that TensorFlow computes in several steps as floats of two bytes, rounding after each; here they are computed as floats.
const SUMMED_IN_THE_TYPE: &[&str] = &[
    "AvgPool",
    "BiasAddGrad",
    "Conv2DBackpropFilter",
    "Conv2DBackpropInput",
    "Conv3D",
    "DepthwiseConv2dNative",
    "Einsum",
    "LRN",
    "LRNGrad",
    "Mean",
    "Softmax",
    "SoftmaxCrossEntropyWithLogits",
    "SparseSoftmaxCrossEntropyWithLogits",
    "Sum",
];

/// Operations whose results are as exact as the largest of them.
const OF_MATRICES: &[&str] = &["Eig", "Lu", "Qr", "SelfAdjointEigV2", "Svd"];

/// The largest absolute value of a tensor of floats.
fn largest(tensor: &HostTensor) -> f64 {
    floats(tensor).into_iter().map(f64::abs).filter(|value| value.is_finite()).fold(0.0, f64::max)
}

fn compare(case: &Case, values: &[HostTensor], failures: &mut Vec<String>) {
    let expected = tensors(case.rest[0], tensor).expect("values can be read");
    assert_eq!(values.len(), expected.len(), "{}: number of outputs", case.text);
    let (values, expected) = (&canonical(case.op, values), canonical(case.op, &expected));
    let (relative, absolute) = TOLERANCE;
    for (index, (got, expected)) in values.iter().zip(&expected).enumerate() {
        let is_coarse = unit(got.data_type()) > 0.0 && SUMMED_IN_THE_TYPE.contains(&case.op);
        let absolute = absolute + if is_coarse { 8.0 * unit(got.data_type()) * largest(expected) } else { 0.0 };
        // Each result is a sum of all numbers of a row, or of a matrix.
        let is_spread = is_smooth(got.data_type()) && (case.op.contains("FFT") || OF_MATRICES.contains(&case.op));
        let absolute = absolute + if is_spread { 4e-7 * largest(expected) } else { 0.0 };
        if let Err(difference) = agree(got, expected, relative, absolute) {
            failures.push(format!("{} : output {index}: {difference}", case.text));
        }
    }
}

fn report(failures: &[String]) {
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn each_operation_gives_what_tensorflow_gives() {
    let registry = Arc::new(Registry::standard(Arc::new(CpuKernels)));
    let mut failures = Vec::new();
    for case in cases("op") {
        match outputs_of(&case, &registry, |shape| shape.into()) {
            Ok(values) => compare(&case, &values, &mut failures),
            Err(error) => failures.push(format!("{} : {error}", case.text)),
        }
    }
    report(&failures);
}

#[test]
fn less_knowledge_of_shapes_changes_nothing_but_knowledge() {
    let registry = Arc::new(Registry::standard(Arc::new(CpuKernels)));
    let mut failures = Vec::new();
    let first_open = |shape: &Shape| {
        let mut dims: Vec<Option<u64>> = shape.iter().copied().map(Some).collect();
        dims.first_mut().into_iter().for_each(|dim| *dim = None);
        PartialShape(Some(dims))
    };
    for case in cases("op") {
        let rank_only = |shape: &Shape| PartialShape(Some(vec![None; shape.rank()]));
        let views: [&dyn Fn(&Shape) -> PartialShape; 3] = [&first_open, &rank_only, &|_| PartialShape::unknown()];
        for view in views {
            match outputs_of(&case, &registry, view) {
                Ok(values) => compare(&case, &values, &mut failures),
                Err(error) => failures.push(format!("{} : {error}", case.text)),
            }
        }
    }
    report(&failures);
}

#[test]
fn what_is_known_beforehand_is_folded_to_the_same_values() {
    let registry = Arc::new(Registry::standard(Arc::new(CpuKernels)));
    let mut failures = Vec::new();
    let mut folded = BTreeSet::new();
    for mut case in cases("op") {
        case.inputs.iter_mut().for_each(|(kind, _)| *kind = Kind::Known);
        let mut builder = GraphBuilder::new(registry.clone());
        let Ok((node, _)) = build(&mut builder, &case, |shape| shape.into()) else { continue };
        let facts = (0..builder.output_count(node) as u32).map(|index| builder.fact(Output { node, index }).value.clone());
        if let Some(values) = facts.collect::<Option<Vec<HostTensor>>>() {
            folded.insert(case.op);
            compare(&case, &values, &mut failures);
        }
    }
    report(&failures);
    for op in ["Reshape", "Shape", "Range", "ConcatV2", "StridedSlice", "Prod", "Mul", "GatherV2", "Pack", "Cast", "Tile"] {
        assert!(folded.contains(op), "{op} is not folded");
    }
}

#[test]
fn a_few_known_numbers_that_ask_for_many_are_left_to_the_run() {
    let mut builder = GraphBuilder::new(Arc::new(Registry::standard(Arc::new(CpuKernels))));
    let [start, limit, delta] = [0i32, 1 << 27, 1].map(|value| builder.constant(HostTensor::scalar(value)).build().unwrap());
    let range = builder.op("RaggedRange").input(start).input(limit).input(delta).build().unwrap();
    assert!(builder.fact(range).value.is_none() && builder.fact(Output { index: 1, ..range }).value.is_none());
}

#[test]
fn updates_give_what_tensorflow_gives() {
    let registry = Arc::new(Registry::standard(Arc::new(CpuKernels)));
    let mut failures = Vec::new();
    for resource in cases("apply") {
        let reference = reference_form(resource.op).map(|op| Case { op, ..resource.clone() });
        for case in std::iter::once(resource).chain(reference) {
            let expected = tensors(case.rest[0], tensor).expect("values can be read");
            let mut builder = GraphBuilder::new(registry.clone());
            let result = build(&mut builder, &case, |shape| shape.into()).and_then(|(node, inputs)| {
                let feeds = inputs.iter().zip(&case.inputs).map(|(input, (_, value))| (*input, value.clone()));
                Interpreter::new(&builder, feeds.collect::<Vec<_>>()).update(node)
            });
            let mut variables: Vec<HostTensor> =
                case.inputs.iter().filter(|(kind, _)| *kind == Kind::Variable).map(|(_, value)| value.clone()).collect();
            match result {
                Ok(written) => written.into_iter().for_each(|(input, value)| variables[input] = value),
                Err(error) => failures.push(format!("{} : {error}", case.text)),
            }
            for (index, (got, expected)) in variables.iter().zip(&expected).enumerate() {
                if let Err(difference) = agree(got, expected, 1e-6, 1e-7) {
                    failures.push(format!("{} ({}): variable {index}: {difference}", case.text, case.op));
                }
            }
        }
    }
    report(&failures);
}

/// The name of the same update of references.
fn reference_form(op: &str) -> Option<&'static str> {
    Some(match op {
        "ResourceApplyGradientDescent" => "ApplyGradientDescent",
        "ResourceApplyMomentum" => "ApplyMomentum",
        "ResourceApplyAdam" => "ApplyAdam",
        "ResourceApplyAdagrad" => "ApplyAdagrad",
        "ResourceApplyAdagradV2" => "ApplyAdagradV2",
        "ResourceApplyRMSProp" => "ApplyRMSProp",
        "ResourceApplyCenteredRMSProp" => "ApplyCenteredRMSProp",
        "AssignAddVariableOp" => "AssignAdd",
        "AssignSubVariableOp" => "AssignSub",
        "ResourceApplyAdadelta" => "ApplyAdadelta",
        "ResourceApplyAdaMax" => "ApplyAdaMax",
        "ResourceApplyAdagradDA" => "ApplyAdagradDA",
        "ResourceApplyAddSign" => "ApplyAddSign",
        "ResourceApplyFtrl" => "ApplyFtrl",
        "ResourceApplyFtrlV2" => "ApplyFtrlV2",
        "ResourceApplyPowerSign" => "ApplyPowerSign",
        "ResourceApplyProximalAdagrad" => "ApplyProximalAdagrad",
        "ResourceApplyProximalGradientDescent" => "ApplyProximalGradientDescent",
        "ResourceSparseApplyAdadelta" => "SparseApplyAdadelta",
        "ResourceSparseApplyAdagrad" => "SparseApplyAdagrad",
        "ResourceSparseApplyAdagradDA" => "SparseApplyAdagradDA",
        "ResourceSparseApplyAdagradV2" => "SparseApplyAdagradV2",
        "ResourceSparseApplyCenteredRMSProp" => "SparseApplyCenteredRMSProp",
        "ResourceSparseApplyFtrl" => "SparseApplyFtrl",
        "ResourceSparseApplyFtrlV2" => "SparseApplyFtrlV2",
        "ResourceSparseApplyMomentum" => "SparseApplyMomentum",
        "ResourceSparseApplyProximalAdagrad" => "SparseApplyProximalAdagrad",
        "ResourceSparseApplyProximalGradientDescent" => "SparseApplyProximalGradientDescent",
        "ResourceSparseApplyRMSProp" => "SparseApplyRMSProp",
        "ResourceScatterNdAdd" => "ScatterNdAdd",
        "ResourceScatterNdMax" => "ScatterNdMax",
        "ResourceScatterNdMin" => "ScatterNdMin",
        "ResourceScatterNdSub" => "ScatterNdSub",
        "ResourceScatterNdUpdate" => "ScatterNdUpdate",
        "ResourceStridedSliceAssign" => "StridedSliceAssign",
        "ResourceScatterAdd" => "ScatterAdd",
        "ResourceScatterSub" => "ScatterSub",
        "ResourceScatterUpdate" => "ScatterUpdate",
        _ => return None,
    })
}

#[test]
fn refusals_are_in_tensorflows_words() {
    let registry = Arc::new(Registry::standard(Arc::new(CpuKernels)));
    let mut failures = Vec::new();
    for case in cases("error") {
        let refused = |result: Result<Vec<HostTensor>>| -> Option<Error> { result.err() };
        match refused(outputs_of(&case, &registry, |shape| shape.into())) {
            None => failures.push(format!("{} : accepted", case.text)),
            Some(error) if error.code() != Code::InvalidArgument || !same_words(error.message(), case.rest[0]) => {
                failures.push(format!("{} : {} {:?}\n      instead of {:?}", case.text, error.code(), error.message(), case.rest[0]));
            }
            Some(_) => {}
        }
    }
    report(&failures);
}

#[test]
fn random_operations_give_what_tensorflow_gives() {
    let registry = Arc::new(Registry::standard(Arc::new(CpuKernels)));
    let mut failures = Vec::new();
    for case in cases("random") {
        let expected = tensors(case.rest[0], tensor).expect("values can be read");
        let mut builder = GraphBuilder::new(registry.clone());
        let (node, inputs) = build(&mut builder, &case, |shape| shape.into()).unwrap();
        let feeds =
            inputs.iter().zip(&case.inputs).filter(|(_, (kind, _))| *kind == Kind::Fed).map(|(input, (_, value))| (*input, value.clone()));
        match Interpreter::new(&builder, feeds.collect::<Vec<_>>()).first_draw(node) {
            Ok(values) => {
                assert_eq!(values.len(), expected.len(), "{}: number of outputs", case.text);
                for (value, expected) in values.iter().zip(&expected) {
                    if let Err(difference) = agree(value, expected, 1e-6, 0.0) {
                        failures.push(format!("{} : {difference}", case.text));
                    }
                }
            }
            Err(error) => failures.push(format!("{} : {error}", case.text)),
        }
    }
    report(&failures);
}

#[test]
fn what_tensorflow_refuses_is_refused() {
    let registry = Arc::new(Registry::standard(Arc::new(CpuKernels)));
    let mut failures = Vec::new();
    for case in cases("refused") {
        match outputs_of(&case, &registry, |shape| shape.into()) {
            Err(error) if error.code() == Code::InvalidArgument => {}
            Err(error) => failures.push(format!("{} : {error}", case.text)),
            Ok(_) => failures.push(format!("{} : accepted", case.text)),
        }
    }
    report(&failures);
}

/// Whether a message is TensorFlow's. A kernel's fault leaves the wrong index out: `indices[1] is not in [0, 3)`.
fn same_words(message: &str, expected: &str) -> bool {
    let without_index = |text: &str| -> Option<String> {
        let (before, after) = text.split_once("] = ")?;
        let (_, after) = after.split_once(" is ")?;
        Some(format!("{before}] is {after}"))
    };
    message == expected || without_index(expected).is_some_and(|expected| expected == message)
}

#[test]
fn every_rule_has_an_operation_and_a_recorded_case() {
    let registry = Registry::standard(Arc::new(CpuKernels));
    let recorded: BTreeSet<&str> =
        ["op", "apply", "random"].into_iter().flat_map(cases).flat_map(|case| [Some(case.op), reference_form(case.op)]).flatten().collect();
    let mut missing = Vec::new();
    for name in registry.names() {
        registry.table().require(name).unwrap();
        let lower = registry.get(name).unwrap().lower;
        let computes = !matches!(
            lower,
            Lower::Const
                | Lower::Placeholder
                | Lower::PlaceholderWithDefault
                | Lower::Variable
                | Lower::ReadVariable
                | Lower::IsInitialized
                | Lower::Assign
                | Lower::Restore
                | Lower::Save
                | Lower::Switch
                | Lower::Merge
                // Recorded as loops and lists are: crates/cli/tests/cases.
                | Lower::List(_)
        );
        if computes && !recorded.contains(name) {
            missing.push(name);
        }
    }
    // Operations that compute nothing, and second names of operations that are recorded.
    let expected = [
        "Assert",
        "BatchMatMul",
        "BiasAddV1",
        "ControlTrigger",
        "DisableCopyOnRead",
        "EnsureShape",
        "Enter",
        "Exit",
        "IdentityN",
        "LoopCond",
        "NextIteration",
        "NoOp",
        "PreventGradient",
        "RefEnter",
        "RefExit",
        "RefNextIteration",
        "ResourceGather",
        "ResourceGatherNd",
        "ScatterDiv",
        "ScatterMax",
        "ScatterMin",
        "ScatterMul",
        "StackCloseV2",
        "SymbolicGradient",
        "TensorArrayCloseV3",
        "TensorListElementShape",
        "VariableShape",
    ];
    assert_eq!(missing, expected);
}

/// Effects that must not follow a failure wait for these alone. The kernels of anchors are asked with their fused expressions.
#[test]
fn it_is_known_which_operations_can_fail() {
    let registry = Arc::new(Registry::standard(Arc::new(CpuKernels)));
    let mut found = BTreeSet::new();
    for case in ["op", "apply", "random"].into_iter().flat_map(cases) {
        if matches!(registry.require(case.op).unwrap().lower, Lower::Anchor(_)) {
            continue;
        }
        let mut builder = GraphBuilder::new(registry.clone());
        let (node, inputs) = build(&mut builder, &case, |shape| shape.into()).unwrap();
        let feeds = inputs.iter().zip(&case.inputs).filter(|(_, (kind, _))| *kind != Kind::Known);
        let feeds: Vec<(Output, HostTensor)> = feeds.map(|(input, (_, value))| (*input, value.clone())).collect();
        let mut interpreter = Interpreter::new(&builder, feeds);
        // A node that cannot be run in this way needs no kernel.
        let _ = match registry.require(case.op).unwrap().lower {
            Lower::Stateful(_) => interpreter.first_draw(node).map(drop),
            Lower::Update(_) | Lower::UpdateInPlace(_) => interpreter.update(node).map(drop),
            _ => interpreter.value(Output { node, index: 0 }).map(drop),
        };
        if interpreter.can_fail {
            found.insert(case.op);
        }
    }
    let expected = include_str!("../data/can_fail.txt");
    assert_eq!(found.into_iter().collect::<Vec<_>>(), expected.lines().collect::<Vec<_>>());
}
