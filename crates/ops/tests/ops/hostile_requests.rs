//! Requests from an unchecked file: a library refuses those that make no sense, and kernels stay in their arguments.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::interpret::{Interpreter, build};
use crate::common::record::{Kind, cases};
use plimsoll_base::Bytes;
use plimsoll_device::{Args, CpuLibrary, DeviceSpec, InstructionSet, KernelCall, Library, StepArg, Variant};
use plimsoll_graph::Output;
use plimsoll_kernels::CpuKernels;
use plimsoll_memory::{Block, Ledger};
use plimsoll_ops::{GraphBuilder, Registry};
use plimsoll_request::KernelRequest;
use serde_json::Value;

/// The requests of recorded operations, some of each kind.
fn requests() -> Vec<KernelRequest> {
    const OF_A_KIND: usize = 12;
    let registry = Arc::new(Registry::standard(Arc::new(CpuKernels)));
    let mut found: BTreeMap<String, Vec<KernelRequest>> = BTreeMap::new();
    for case in cases("op") {
        let mut builder = GraphBuilder::new(registry.clone());
        let Ok((node, inputs)) = build(&mut builder, &case, |shape| shape.into()) else { continue };
        let feeds = inputs.iter().zip(&case.inputs).filter(|(_, (kind, _))| *kind != Kind::Known);
        let mut interpreter = Interpreter::new(&builder, feeds.map(|(input, (_, value))| (*input, value.clone())).collect::<Vec<_>>());
        let _ = interpreter.value(Output { node, index: 0 });
        for request in std::mem::take(&mut interpreter.requests) {
            let kind = format!("{request:?}").chars().take_while(|letter| *letter != '[').take(40).collect();
            let kept = found.entry(kind).or_default();
            if kept.len() < OF_A_KIND && !kept.contains(&request) {
                kept.push(request);
            }
        }
    }
    found.into_values().flatten().collect()
}

struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % most.max(1)
    }
}

/// The numbers and names in a value.
fn leaves(value: &mut Value) -> Vec<&mut Value> {
    if !value.is_array() && !value.is_object() {
        return vec![value];
    }
    match value {
        Value::Array(items) => items.iter_mut().flat_map(leaves).collect(),
        Value::Object(fields) => fields.values_mut().flat_map(leaves).collect(),
        _ => Vec::new(),
    }
}

fn mutate(value: &mut Value, random: &mut Random) {
    let others: Vec<Value> = leaves(value).into_iter().map(|leaf| leaf.clone()).collect();
    let mut leaves = leaves(value);
    let count = leaves.len();
    if count == 0 {
        return;
    }
    let leaf = &mut leaves[random.below(count)];
    **leaf = match leaf {
        Value::Number(number) => {
            let (now, signed) = (number.as_u64().unwrap_or(0), number.as_i64().unwrap_or(0));
            match random.below(9) {
                0 => now.wrapping_add(1).into(),
                1 => now.saturating_sub(1).into(),
                2 => 0.into(),
                3 => now.wrapping_mul(2).into(),
                4 => (1u64 << random.below(64)).into(),
                5 => u64::MAX.into(),
                6 => signed.wrapping_neg().into(),
                7 => (random.below(6) as u64).into(),
                _ => others[random.below(others.len())].clone(),
            }
        }
        Value::Bool(bool) => Value::Bool(!*bool),
        Value::String(_) => match random.below(2) {
            0 => ["float", "double", "int32", "int64", "uint8", "bool", "half", "bfloat16", "string", "int16"][random.below(10)].into(),
            _ => others[random.below(others.len())].clone(),
        },
        _ => others[random.below(others.len())].clone(),
    };
    if random.below(4) == 0 {
        let mut lists = lists(value);
        let count = lists.len();
        if count > 0 {
            let list = &mut lists[random.below(count)];
            match random.below(2) {
                0 => _ = list.pop(),
                _ => list.extend(list.last().cloned()),
            }
        }
    }
}

/// The lists in a value that have no lists in them.
fn lists(value: &mut Value) -> Vec<&mut Vec<Value>> {
    let is_list = |items: &[Value]| !items.iter().any(|item| item.is_array() || item.is_object());
    match value {
        Value::Array(items) => {
            if is_list(items) {
                return vec![items];
            }
            items.iter_mut().flat_map(lists).collect()
        }
        Value::Object(fields) => fields.values_mut().flat_map(lists).collect(),
        _ => Vec::new(),
    }
}

/// More than this is not computed here.
const MOST_BYTES: u64 = 1 << 20;
const MOST_FLOPS: f64 = 1e7;

/// Computes a request, every argument between pages that fault. Whether it was computed.
fn compute(spec: &DeviceSpec, request: &KernelRequest, variant: &Variant, random: &mut Random) -> bool {
    let Ok(arguments) = CpuKernels.arguments(request) else { return false };
    let sizes: Vec<u64> = arguments.inputs.iter().chain(&arguments.outputs).copied().collect();
    let scratch: Vec<u64> = variant.steps.iter().flat_map(|step| [step.scratch, step.per_worker]).collect();
    let total = [&sizes, &variant.between, &scratch].into_iter().flatten().try_fold(0u64, |sum, bytes| sum.checked_add(*bytes));
    let flops: f64 = variant.steps.iter().map(|step| step.cost.flops + step.cost.bytes).sum();
    let chunks: u64 = variant.steps.iter().map(|step| u64::from(step.chunks)).sum();
    if total.is_none_or(|total| total > MOST_BYTES) || flops.is_nan() || flops > MOST_FLOPS || chunks > 100_000 || sizes.len() > 500 {
        return false;
    }
    let ledger = Ledger::new("memory", None);
    let block = |bytes: &u64| Block::guarded(&ledger, Bytes(*bytes), "an argument").expect("there is memory");
    let arguments: Vec<Block> = sizes.iter().map(block).collect();
    for argument in &arguments {
        let bytes: Vec<u8> = (0..argument.bytes().0).map(|_| if random.below(3) == 0 { random.below(256) as u8 } else { 0 }).collect();
        argument.write(0, &bytes).expect("it is inside");
    }
    let between: Vec<Block> = variant.between.iter().map(block).collect();
    // SAFETY: the block is this process's memory, and lives while the pointer is used.
    let pointer = |block: &Block| unsafe { block.address().pointer() };
    for number in 0..variant.steps.len() {
        let call = KernelCall { request: Arc::new(request.clone()), variant: Arc::new(variant.clone()), step: number as u32 };
        let prepared = CpuKernels.code(spec, &call).expect("a variant has code");
        let all = || (0..arguments.len() as u32).map(StepArg::Argument).collect();
        let pointers: Vec<*mut u8> = call
            .step()
            .args
            .clone()
            .unwrap_or_else(all)
            .iter()
            .map(|arg| match arg {
                StepArg::Argument(index) => pointer(&arguments[*index as usize]),
                StepArg::Between(index) => pointer(&between[*index as usize]),
            })
            .collect();
        let (scratch, worker) = (block(&prepared.scratch), block(&prepared.per_worker));
        let args = Args { pointers: &pointers, scratch: pointer(&scratch), worker: pointer(&worker) };
        // SAFETY: every argument has as many bytes as the request says, and nothing else uses them.
        if unsafe { prepared.kernel.run(0..prepared.chunks, &args) }.is_err() {
            return true;
        }
    }
    true
}

#[test]
fn mutated_requests_are_refused_or_stay_in_their_arguments() {
    let cases: usize = std::env::var("PLIMSOLL_MUTATIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(4_000);
    let spec = DeviceSpec::cpu(0, None, 1, InstructionSet::detect());
    // The step of a run that faults.
    let is_said = std::env::var_os("PLIMSOLL_TEST_SAY").is_some();
    let requests = requests();
    let (mut refused, mut computed) = (0, 0);
    for seed in 0..cases {
        let mut random = Random(seed as u64);
        let mut value = serde_json::to_value(&requests[random.below(requests.len())]).expect("requests are written");
        for _ in 0..1 + random.below(3) {
            mutate(&mut value, &mut random);
        }
        let Ok(request) = serde_json::from_value::<KernelRequest>(value.clone()) else { continue };
        if is_said {
            eprintln!("seed {seed}: {value}");
        }
        let made = std::panic::catch_unwind(|| CpuKernels.variants(&spec, &request));
        let variants = made.unwrap_or_else(|_| panic!("seed {seed}: {value}"));
        match variants {
            Err(_) => refused += 1,
            Ok(variants) => {
                computed += usize::from(compute(&spec, &request, &variants[0], &mut random));
            }
        }
    }
    assert!(computed > cases / 20 && refused > cases / 20, "{computed} computed and {refused} refused of {cases}");
}
