//! The types that operations are said to compute are those for which values were recorded, and maybe more.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::common::record::cases;
use plimsoll_device::{DeviceSpec, InstructionSet, Library};
use plimsoll_kernels::CpuKernels;
use plimsoll_ops::Registry;

/// Operations whose rules accept inputs that [`plimsoll_ops::types`] does not find: boxes, equations, stated shapes, scales, keys,
/// counters and numbers of algorithms.
const NOT_FOUND: &[&str] =
    &["DrawBoundingBoxes", "DrawBoundingBoxesV2", "Einsum", "ParallelConcat", "ScaleAndTranslateGrad", "StatelessRandomUniformIntV2"];

#[test]
fn types_are_those_that_were_recorded_at_least() {
    let registry = Registry::standard(Arc::new(CpuKernels));
    let spec = DeviceSpec::cpu(0, None, 1, InstructionSet::Baseline);
    let own: (&dyn Library, &DeviceSpec) = (&CpuKernels, &spec);
    let (mut failures, mut compared, mut known) = (BTreeSet::new(), 0, HashMap::new());
    for case in cases("op") {
        let Some(def) = registry.table().get(case.op) else { continue };
        // The type of the first input says what is computed, unless the type of the results does.
        let (Some(arg), Some((_, value))) = (def.inputs.first(), case.inputs.first()) else { continue };
        let by_result = def.attrs.iter().any(|attr| attr.name == "dtype");
        if NOT_FOUND.contains(&case.op) || by_result || !["T", "SrcT", "Tparams"].contains(&arg.type_attr.as_str()) {
            continue;
        }
        compared += 1;
        let found = known.entry(case.op).or_insert_with(|| plimsoll_ops::types(&registry, own, own, case.op));
        if let Some((types, both)) = found {
            assert_eq!(types, both, "{}: with the same library twice", case.op);
        }
        if !found.as_ref().is_some_and(|(types, _)| types.contains(&value.data_type())) {
            failures.insert(format!("{} of {}", case.op, value.data_type()));
        }
    }
    assert!(compared > 500, "{compared} cases");
    assert!(failures.is_empty(), "{failures:?}");
}

#[test]
fn every_operation_has_types_but_for_a_few() {
    let registry = Registry::standard(Arc::new(CpuKernels));
    let spec = DeviceSpec::cpu(0, None, 1, InstructionSet::Baseline);
    let own: (&dyn Library, &DeviceSpec) = (&CpuKernels, &spec);
    let names = registry.names();
    let lacking: Vec<&str> = names.into_iter().filter(|name| plimsoll_ops::types(&registry, own, own, name).is_none()).collect();
    assert!(lacking.len() < 20 && NOT_FOUND.iter().all(|name| lacking.contains(name)), "{lacking:?}");
}
