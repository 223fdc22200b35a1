//! Nothing that a graph can say makes a rule or a kernel panic.

use plimsoll_base::{Code, DataType};
use plimsoll_device::InstructionSet;
use plimsoll_graph::{AttrList, AttrValue, Attrs, HostTensor, Node, OpDef, Output, PartialShape, Shape};
use plimsoll_kernels::CpuKernels;
use plimsoll_ops::{Call, Fact, KernelCx, Lower, Meta, OpRules, Registry, infer_node};
use plimsoll_request::KernelRequest;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

/// Numbers from a seed (xorshift).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 33) % limit
    }

    fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    fn pick<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize].clone()
    }

    /// Mostly a small number, sometimes one at an edge.
    fn int(&mut self) -> i64 {
        match self.below(12) {
            0 => self.pick(&[i64::MIN, i64::MAX, i64::MIN + 1, 1 << 62, i32::MAX as i64, i32::MIN as i64]),
            1 => -1,
            _ => self.below(7) as i64 - 2,
        }
    }

    fn dim(&mut self, wild: bool) -> u64 {
        if wild && self.one_in(10) { self.pick(&[u64::MAX, 1 << 63, 1 << 40, i64::MAX as u64]) } else { self.pick(&[0, 1, 1, 2, 2, 3, 4]) }
    }

    fn shape(&mut self, wild: bool) -> Shape {
        let rank = self.pick(&[0, 0, 1, 1, 1, 2, 2, 2, 3, 4]);
        (0..rank).map(|_| self.dim(wild)).collect()
    }

    fn partial(&mut self) -> PartialShape {
        if self.one_in(8) {
            return PartialShape::unknown();
        }
        let wild = self.one_in(3);
        PartialShape(Some(self.shape(wild).iter().map(|dim| if self.one_in(6) { None } else { Some(*dim) }).collect()))
    }

    fn tensor(&mut self, data_type: DataType) -> Option<HostTensor> {
        let size = data_type.size()?;
        let shape = self.shape(false);
        let count = shape.elements().ok()?;
        let mut bytes = Vec::new();
        for _ in 0..count {
            let element = match data_type {
                DataType::Float => (self.int() as f32 * 0.5).to_le_bytes().to_vec(),
                DataType::Double => (self.int() as f64 * 0.5).to_le_bytes().to_vec(),
                _ => self.int().to_le_bytes()[..size.min(8)].iter().copied().chain(std::iter::repeat(0)).take(size).collect(),
            };
            bytes.extend(element);
        }
        HostTensor::from_bytes(data_type, shape, &bytes).ok()
    }

    fn attr(&mut self, kind: &str, allowed: Option<&AttrList>, known_types: &[i32]) -> AttrValue {
        match kind {
            "int" => AttrValue::Int(self.int()),
            "bool" => AttrValue::Bool(self.one_in(2)),
            "float" => AttrValue::Float(self.int() as f32),
            "string" => {
                AttrValue::Bytes(allowed.filter(|list| !list.bytes.is_empty()).map_or_else(|| b"x".to_vec(), |list| self.pick(&list.bytes)))
            }
            "type" => {
                let types = allowed.map_or(known_types, |list| &list.types);
                let common: Vec<i32> = types.iter().copied().filter(|number| known_types.contains(number)).collect();
                AttrValue::Type(if common.is_empty() || self.one_in(20) { self.pick(types) } else { self.pick(&common) })
            }
            "shape" => AttrValue::Shape(self.partial()),
            "tensor" => self.tensor(DataType::Float).map_or(AttrValue::Unset, AttrValue::Tensor),
            "list(int)" => AttrValue::ints((0..self.below(4)).map(|_| self.int()).collect::<Vec<_>>()),
            "list(type)" => AttrValue::data_types(&[DataType::Float, DataType::Int32]),
            _ => AttrValue::List(Box::default()),
        }
    }

    fn attrs(&mut self, def: &OpDef) -> Attrs {
        let known: Vec<i32> = [DataType::Float, DataType::Double, DataType::Int32, DataType::Int64, DataType::Bool, DataType::Uint8]
            .map(DataType::number)
            .to_vec();
        let numbers: Vec<&str> = def.inputs.iter().chain(&def.outputs).map(|arg| arg.number_attr.as_str()).collect();
        let mut attrs = Attrs::new();
        for attr in &def.attrs {
            let allowed = match &attr.allowed {
                Some(AttrValue::List(list)) => Some(&**list),
                _ => None,
            };
            let value = if numbers.contains(&attr.name.as_str()) {
                AttrValue::Int(self.below(4) as i64)
            } else if let Some(default) = attr.default.clone().filter(|_| !self.one_in(3)) {
                default
            } else {
                self.attr(&attr.kind, allowed, &known)
            };
            attrs.insert(attr.name.clone(), value);
        }
        attrs
    }

    /// A number for each axis (or two), as slices and paddings take them.
    fn per_axis(&mut self, data_type: DataType, rank: u64, pairs: bool) -> Option<HostTensor> {
        let shape = if pairs { Shape::from([rank, 2]) } else { Shape::from([rank]) };
        let bytes = (0..shape.elements().ok()?).flat_map(|_| {
            let number = if self.one_in(8) { self.int() } else { self.below(4) as i64 };
            number.to_le_bytes()[..data_type.size().unwrap_or(0)].to_vec()
        });
        HostTensor::from_bytes(data_type, shape, &bytes.collect::<Vec<_>>()).ok()
    }

    /// Facts of inputs; in half of the cases all have complete shapes, mostly of one family.
    fn facts(&mut self, def: &OpDef, attrs: &Attrs) -> Option<Vec<Fact>> {
        let (complete, common) = (self.one_in(2), self.shape(false));
        let (by_axis, pairs) = (complete && self.one_in(2), self.one_in(2));
        let mut facts = Vec::new();
        for arg in def.input_types(attrs).ok()? {
            let shape = match self.below(4) {
                _ if !complete => self.partial(),
                0 => (&self.shape(false)).into(),
                1 => (&Shape::scalar()).into(),
                _ => (&common).into(),
            };
            let mut fact = Fact { is_ref: arg.is_ref, ..Fact::new(arg.base, shape) };
            if by_axis && !arg.is_ref && matches!(arg.base, DataType::Int32 | DataType::Int64) && !facts.is_empty() {
                fact = self.per_axis(arg.base, common.rank() as u64, pairs).map_or(fact, Fact::known);
                facts.push(fact);
                continue;
            }
            let often = if arg.base.is_integer() { 2 } else { 4 };
            if arg.base == DataType::Resource {
                fact.handle = (!self.one_in(4)).then(|| (DataType::Float, if self.one_in(2) { (&common).into() } else { self.partial() }));
            } else if !arg.is_ref && self.one_in(often) {
                fact = self.tensor(arg.base).map_or(fact, Fact::known);
            }
            facts.push(fact);
        }
        Some(facts)
    }
}

/// The tensor, or some elements where it is not known.
fn sample(meta: &Meta, value: Option<&HostTensor>) -> HostTensor {
    let byte = |byte: u64| if meta.data_type == DataType::Bool { byte as u8 & 1 } else { (byte * 37) as u8 };
    let made = || HostTensor::from_bytes(meta.data_type, meta.shape.clone(), &(0..meta.bytes().unwrap_or(0)).map(byte).collect::<Vec<_>>());
    value.map_or_else(|| made().unwrap(), |value| value.dense().unwrap())
}

/// Prepares the node's kernel and runs it, where everything is small.
fn try_to_run(rules: &OpRules, node: &Node, inputs: &[Fact], outputs: &[Fact]) -> bool {
    let meta = |fact: &Fact| {
        let (data_type, shape) = fact.handle.clone().unwrap_or((fact.data_type, fact.shape.clone()));
        data_type.size()?;
        shape.complete().filter(|shape| shape.elements().is_ok_and(|elements| elements <= 4096)).map(|shape| Meta { data_type, shape })
    };
    let (Some(inputs_), Some(outputs_)) =
        (inputs.iter().map(meta).collect::<Option<Vec<_>>>(), outputs.iter().map(meta).collect::<Option<Vec<_>>>())
    else {
        return false;
    };
    let values: Vec<Option<HostTensor>> = inputs.iter().map(|fact| fact.value.clone()).collect();
    let cx = KernelCx { node, inputs: &inputs_, outputs: &outputs_, values: &values };
    let (call, outputs) = match rules.lower {
        Lower::Unary(_) | Lower::Binary(_) | Lower::Elementwise(_) => {
            let Ok(Some(expr)) = rules.lower.expression(&cx) else { return false };
            let operands = inputs_.iter().map(|meta| meta.shape.to_vec()).collect();
            let request = KernelRequest::Expr { expr, shape: outputs_[0].shape.to_vec(), operands };
            (Call::new(request, (0..inputs_.len()).collect::<Vec<_>>()), outputs_)
        }
        Lower::Kernel(prepare) | Lower::Move(prepare) => match prepare(&cx) {
            Ok(call) => (call, outputs_),
            Err(_) => return false,
        },
        Lower::UpdateInPlace(prepare) => match prepare(&cx) {
            Ok(call) => {
                let Ok(arguments) = call.request.arguments() else { return false };
                let changed = call.inputs[..arguments.outputs.len()].iter().map(|input| inputs_[*input].clone()).collect();
                (call, changed)
            }
            Err(_) => return false,
        },
        Lower::Recipe(make) => {
            let Ok(recipe) = make(&cx) else { return false };
            let inputs: Vec<HostTensor> = inputs_.iter().zip(&values).map(|(meta, value)| sample(meta, value.as_ref())).collect();
            let results = recipe.evaluate(&inputs, |request, inputs, outputs| {
                let dense: Vec<HostTensor> = inputs.iter().map(|input| input.dense().unwrap()).collect();
                let bytes: Vec<&[u8]> = dense.iter().map(|input| input.bytes().unwrap_or_default()).collect();
                let sizes: Vec<u64> = outputs.iter().map(|meta| meta.bytes().unwrap_or(0)).collect();
                if sizes.iter().any(|bytes| *bytes > MOST_BYTES) {
                    // A step between may be far larger than what goes in and comes out.
                    return Ok(None);
                }
                let results = CpuKernels.evaluate_on(InstructionSet::detect(), request, &bytes, &sizes)?;
                let tensor = |(bytes, meta): (&Vec<u8>, &Meta)| HostTensor::from_bytes(meta.data_type, meta.shape.clone(), bytes);
                results.iter().zip(outputs).map(tensor).collect::<plimsoll_base::Result<_>>().map(Some)
            });
            return match results {
                Err(error) => !matches!(error.code(), Code::Unimplemented | Code::ResourceExhausted),
                Ok(_) => true,
            };
        }
        Lower::Update(make) => {
            drop(make(&cx));
            return false;
        }
        _ => return false,
    };
    let arguments: Vec<HostTensor> = call.inputs.iter().map(|input| sample(&inputs_[*input], values[*input].as_ref())).collect();
    let arguments: Vec<&[u8]> = arguments.iter().map(|tensor| tensor.bytes().unwrap_or_default()).collect();
    let sizes: Vec<u64> = outputs.iter().map(|meta| meta.bytes().unwrap_or(0)).collect();
    match CpuKernels.evaluate_on(InstructionSet::detect(), &call.request, &arguments, &sizes) {
        // The library does not have it.
        Err(error) => !matches!(error.code(), Code::Unimplemented | Code::ResourceExhausted),
        Ok(_) => true,
    }
}

/// Larger results than this are not computed.
const MOST_BYTES: u64 = 1 << 26;

#[test]
fn every_node_gives_an_answer_or_an_error() {
    let registry = Registry::standard(Arc::new(CpuKernels));
    let rounds: u64 = std::env::var("PLIMSOLL_MUTATIONS").map_or(2000, |rounds| rounds.parse().unwrap());
    let (mut accepted, mut ran) = (0, 0);
    for name in registry.names() {
        // The numbers of an operation do not depend on which others there are.
        let mut dice = Dice(name.bytes().fold(0x9E37_79B9_7F4A_7C15, |seed, byte| (seed ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3)));
        let def = registry.table().require(name).unwrap();
        let rules = *registry.get(name).unwrap();
        for _ in 0..rounds {
            let attrs = dice.attrs(&def);
            let Some(inputs) = dice.facts(&def, &attrs) else { continue };
            let node = Node {
                name: "node".to_string(),
                op: name.to_string(),
                inputs: vec![Output { node: plimsoll_graph::id::Id::from_index(0), index: 0 }; inputs.len()],
                controls: Vec::new(),
                device: String::new(),
                attrs,
                carried: Vec::new(),
            };
            let context = || format!("{name} {:?} of {inputs:?}", node.attrs);
            let result = std::panic::catch_unwind(AssertUnwindSafe(|| infer_node(&registry, &def, &node, &inputs)))
                .unwrap_or_else(|_| panic!("{}", context()));
            let Ok(outputs) = result else { continue };
            accepted += 1;
            for fact in &outputs {
                if let Some(value) = &fact.value {
                    assert_eq!((value.data_type(), Some(value.shape().clone())), (fact.data_type, fact.shape.complete()), "{}", context());
                }
            }
            let begun = std::time::Instant::now();
            let run = std::panic::catch_unwind(|| try_to_run(&rules, &node, &inputs, &outputs)).unwrap_or_else(|_| panic!("{}", context()));
            if begun.elapsed().as_secs() > 5 {
                eprintln!("slow: {}", context());
            }
            ran += usize::from(run);
        }
    }
    assert!(accepted > 10_000 && ran > 2_000, "{accepted} accepted, {ran} ran");
}
