//! Requests with their inputs.

use plimsoll_base::{Code, DataType, Result};
use plimsoll_device::InstructionSet;
use plimsoll_device_cuda::emit;
use plimsoll_kernels::CpuKernels;
use plimsoll_request::KernelRequest;
use plimsoll_request::check::Requirement;
use plimsoll_request::expr::{BinaryOp, ExprBuilder, Scalar};
use plimsoll_request::exprs::Exprs;
use plimsoll_request::gather::{Access, Gather, ScatterOp, SegmentOp};
use plimsoll_request::movement::{Movement, Pick};
use plimsoll_request::nn::Nn;
use plimsoll_request::random::{Distribution, Random};
use plimsoll_request::reduce::{ReduceOp, Reduction, ScanOp};
use plimsoll_request::resample::{Method, Resample};
use plimsoll_request::rows::{RowOperand, UpdateRows};

use super::engines::Run;
use super::expressions::operand;
use super::making::{Making, times};

/// How near results of floats have to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Near {
    /// All bits, but for those of NaN.
    Exact,
    /// That many units in the last place.
    Units(f64),
    /// That many units of the last place of a number of that size, or of the result.
    Of(f64, f64),
    /// As that for floats. Those of two bytes are rounded from such: within two units of the last place of the result, or of 1.
    Rounded(f64, f64),
}

pub struct Case {
    pub request: KernelRequest,
    pub inputs: Vec<Vec<u8>>,
    pub input_types: Vec<DataType>,
    /// The types of the results.
    pub types: Vec<DataType>,
    pub near: Near,
}

impl Case {
    /// The kernels, and what the processor makes of the same.
    pub fn emit(&self) -> Result<Run> {
        let emitted = emit::emit(&self.request)?;
        assert_eq!(emitted, emit::emit(&self.request)?, "the same request has the same kernels");
        self.by(emitted)
    }

    /// What the processor makes of it, for these kernels.
    pub fn by(&self, emitted: emit::Emitted) -> Result<Run> {
        let arguments = self.request.arguments()?;
        let inputs: Vec<&[u8]> = self.inputs.iter().map(Vec::as_slice).collect();
        assert_eq!(inputs.iter().map(|input| input.len() as u64).collect::<Vec<_>>(), arguments.inputs, "{:?}", self.request);
        let expected = match &self.request {
            KernelRequest::Exprs(request) => group_by_group(request, &inputs),
            KernelRequest::BatchNorm { epilogue: Some(_), .. }
            | KernelRequest::BatchNorm { summed: true, .. }
            | KernelRequest::BatchNormGrad { relu: true, .. } => super::normalizing::step_by_step(&self.request, &inputs),
            request => CpuKernels.evaluate_on(InstructionSet::detect(), request, &inputs, &arguments.outputs),
        };
        let expected = match expected {
            Err(error) if self.request.can_fail() && [Code::InvalidArgument, Code::FailedPrecondition].contains(&error.code()) => {
                Err(error.message().to_string())
            }
            Err(error) => return Err(error),
            Ok(results) => Ok(results),
        };
        let in_place = emitted.in_place.first().copied();
        let name = format!("{:?}", self.request).chars().take(600).collect();
        Ok(Run {
            name,
            request: self.request.clone(),
            emitted,
            inputs: self.inputs.clone(),
            outputs: arguments.outputs.iter().map(|bytes| *bytes as usize).collect(),
            expected,
            types: self.types.clone(),
            near: self.near,
            input_types: self.input_types.clone(),
            in_place,
        })
    }
}

/// What the processor makes of each group by itself.
fn group_by_group(request: &Exprs, inputs: &[&[u8]]) -> Result<Vec<Vec<u8>>> {
    let mut results = Vec::new();
    for (group, elements) in request.elements.iter().enumerate() {
        let own: Vec<&[u8]> = (0..request.single.len()).map(|operand| inputs[request.operand(group, operand)]).collect();
        let alone = request.group(*elements);
        results.extend(CpuKernels.evaluate_on(InstructionSet::detect(), &alone, &own, &alone.arguments()?.outputs)?);
    }
    Ok(results)
}

/// Bytes of the types of an argument that is moved.
fn type_of(element: usize) -> DataType {
    match element {
        1 => DataType::Uint8,
        2 => DataType::Uint16,
        4 => DataType::Uint32,
        8 => DataType::Uint64,
        _ => DataType::Complex128,
    }
}

pub fn count(shape: &[u64]) -> u64 {
    shape.iter().product()
}

pub fn movements(seed: u64) -> Vec<Case> {
    let mut making = Making::new(seed);
    let mut cases = Vec::new();
    for number in 0..times(60) {
        let element = *making.of(&[1usize, 2, 4, 4, 8, 16]);
        let shape = making.shape(4, 1500);
        let rank = shape.len();
        let axis = making.below(rank as u64) as usize;
        let movement = match number % 13 {
            0 => {
                let from = operand(&mut making, &shape);
                Movement::BroadcastTo { from, to: shape }
            }
            1 => {
                let shapes = (0..1 + making.below(4)).map(|_| {
                    let mut one = shape.clone();
                    one[axis] = making.below(9);
                    one
                });
                Movement::Concat { shapes: shapes.collect(), axis }
            }
            2 => Movement::Fill { elements: count(&shape) },
            3 => Movement::Pack { count: 1 + making.below(5) as usize, axis: making.below(rank as u64 + 1) as usize, shape },
            4 => {
                let paddings = shape.iter().map(|_| (making.below(3), making.below(3))).collect();
                let value = (making.below(2) == 0).then(|| making.elements(DataType::Uint8, element as u64));
                Movement::Pad { shape, paddings, value }
            }
            5 => Movement::Reverse { axes: (0..rank).filter(|_| making.below(2) == 0).collect(), shape },
            6 => {
                let begin: Vec<u64> = shape.iter().map(|size| making.below(*size)).collect();
                let sizes = shape.iter().zip(&begin).map(|(size, begin)| making.below(size - begin + 1)).collect();
                Movement::Slice { shape, begin, sizes }
            }
            7 => {
                let sizes: Vec<u64> = (0..1 + making.below(4)).map(|_| making.below(6)).collect();
                let mut shape = shape;
                shape[axis] = sizes.iter().sum();
                Movement::Split { shape, axis, sizes }
            }
            8 | 9 => {
                let strides: Vec<i64> = shape.iter().map(|_| *making.of(&[1, 1, 2, 3, -1, -2])).collect();
                let mut begin = Vec::new();
                let mut sizes = Vec::new();
                for (size, stride) in shape.iter().zip(&strides) {
                    let first = making.below(*size);
                    let left = if *stride > 0 { size - 1 - first } else { first };
                    begin.push(first);
                    sizes.push(1 + making.below(left / stride.unsigned_abs() + 1).min(left / stride.unsigned_abs()));
                }
                if number % 13 == 8 {
                    Movement::StridedSlice { shape, begin, strides, sizes }
                } else {
                    Movement::StridedSliceGrad { shape, begin, strides, sizes }
                }
            }
            10 => Movement::Tile { multiples: shape.iter().map(|_| 1 + making.below(3)).collect(), shape },
            11 => {
                let mut perm: Vec<usize> = (0..rank).collect();
                for at in (1..rank).rev() {
                    perm.swap(at, making.below(at as u64 + 1) as usize);
                }
                Movement::Transpose { shape, perm }
            }
            _ if making.below(2) == 0 => Movement::Unpack { shape: shape.iter().map(|size| (*size).min(12)).collect(), axis },
            _ => {
                let picks = shape.iter().map(|size| match making.below(4) {
                    0 => Pick::All,
                    1 => Pick::Mirror { before: making.below(*size), after: making.below(*size), edge: making.below(2) == 0 },
                    2 => Pick::Nearest { size: 1 + making.below(9), align_corners: making.below(2) == 0, half_pixel_centers: false },
                    _ => Pick::Windows { positions: 1, taps: *size, stride: 1, rate: 1 },
                });
                Movement::Pick { picks: picks.collect(), shape }
            }
        };
        let request = KernelRequest::Movement { element, movement };
        let arguments = request.arguments().unwrap();
        let inputs = arguments.inputs.iter().map(|bytes| (0..*bytes).map(|_| making.word() as u8).collect()).collect();
        cases.push(Case {
            request,
            inputs,
            input_types: vec![type_of(element); arguments.inputs.len()],
            types: vec![type_of(element); arguments.outputs.len()],
            near: Near::Exact,
        });
    }
    cases
}

pub fn reductions(seed: u64) -> Vec<Case> {
    let mut making = Making::new(seed);
    let mut cases = Vec::new();
    let numbers = [
        DataType::Float,
        DataType::Float,
        DataType::Double,
        DataType::Half,
        DataType::Bfloat16,
        DataType::Int32,
        DataType::Int64,
        DataType::Uint8,
    ];
    for number in 0..times(60) {
        let most = if number % 10 == 0 { 60_000 } else { 3000 };
        let shape = making.shape(4, most);
        let axis = making.below(shape.len() as u64) as usize;
        let data_type = *making.of(&numbers);
        let (reduction, data_type, output) = match number % 6 {
            0..=2 => {
                let op = *making.of(&[ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Max, ReduceOp::Min, ReduceOp::Sum]);
                let axes = (0..shape.len()).filter(|_| making.below(2) == 0).collect();
                (Reduction::Reduce { op, data_type, shape: shape.clone(), axes, divided: true }, data_type, data_type)
            }
            3 => {
                let op = *making.of(&[ReduceOp::All, ReduceOp::Any]);
                let reduction = Reduction::Reduce { op, data_type: DataType::Bool, shape: shape.clone(), axes: vec![axis], divided: false };
                (reduction, DataType::Bool, DataType::Bool)
            }
            4 if making.below(2) == 0 && data_type != DataType::Uint8 => {
                let data_type = if data_type.compute_type() == data_type { data_type } else { DataType::Float };
                let op = if data_type.is_integer() { *making.of(&[ScanOp::Sum, ScanOp::Prod]) } else { ScanOp::Sum };
                let (exclusive, reverse) = (making.below(2) == 0, making.below(2) == 0);
                (Reduction::Scan { op, data_type, shape: shape.clone(), axis, exclusive, reverse }, data_type, data_type)
            }
            4 => {
                let data_type = if data_type.is_integer() { DataType::Float } else { data_type };
                (Reduction::HalfSquares { data_type, shape: shape.clone() }, data_type, data_type)
            }
            _ => {
                let (smallest, output_type) = (making.below(2) == 0, *making.of(&[DataType::Int32, DataType::Int64]));
                (Reduction::Arg { smallest, data_type, output_type, shape: shape.clone(), axis }, data_type, output_type)
            }
        };
        let squares = matches!(reduction, Reduction::HalfSquares { .. });
        cases.push(Case {
            inputs: vec![making.elements(data_type, count(&shape))],
            request: KernelRequest::Reduction(reduction),
            input_types: vec![data_type],
            types: vec![output],
            // Sums of eighths are exact in any order; of their squares they are beyond two bytes.
            near: if squares { Near::Units(64.0) } else { Near::Exact },
        });
    }
    // Rows and results of whole words: results of a thread side by side, and lanes of one.
    for data_type in [DataType::Float, DataType::Bfloat16, DataType::Int64, DataType::Uint8] {
        for (shape, axes) in [(vec![300, 64], vec![0]), (vec![50, 256], vec![1]), (vec![9000, 16], vec![0]), (vec![7, 40, 32], vec![1])] {
            let op = if shape.len() == 3 { ReduceOp::Max } else { ReduceOp::Sum };
            let reduction = Reduction::Reduce { op, data_type, shape: shape.clone(), axes, divided: false };
            // The sums of 9000 numbers of two bytes are beyond the type.
            if data_type != DataType::Bfloat16 || shape[0] < 9000 {
                cases.push(Case {
                    inputs: vec![making.elements(data_type, count(&shape))],
                    request: KernelRequest::Reduction(reduction),
                    input_types: vec![data_type],
                    types: vec![data_type],
                    near: Near::Exact,
                });
            }
        }
    }
    // Products of ones and twos, and a large one of each form for the parts.
    for (shape, axes) in [(vec![3, 70_000], vec![1]), (vec![70_000, 3], vec![0]), (vec![40, 50, 60], vec![0, 2]), (vec![0, 4], vec![0])] {
        for data_type in [DataType::Float, DataType::Int64] {
            let reduction = Reduction::Reduce { op: ReduceOp::Sum, data_type, shape: shape.clone(), axes: axes.clone(), divided: true };
            cases.push(Case {
                inputs: vec![making.elements(data_type, count(&shape))],
                request: KernelRequest::Reduction(reduction),
                input_types: vec![data_type],
                types: vec![data_type],
                near: Near::Exact,
            });
        }
    }
    cases
}

pub fn rows(seed: u64) -> Vec<Case> {
    let mut making = Making::new(seed);
    let mut cases = Vec::new();
    for number in 0..times(24) {
        let data_type = *making.of(&[DataType::Float, DataType::Float, DataType::Double]);
        let rows = *making.of(&[1, 2, 7, 50, 300]);
        let classes = *making.of(&[1, 2, 3, 10, 33, 100, 1000]);
        let classes = if rows == 300 { classes.min(10) } else { classes };
        let logits = making.elements(data_type, rows * classes);
        let near = Near::Of(1.0, 32.0);
        let (nn, more, more_type, types) = match number % 4 {
            0 => (Nn::Softmax { log: false, data_type, rows, classes }, None, data_type, vec![data_type]),
            1 => (Nn::Softmax { log: true, data_type, rows, classes }, None, data_type, vec![data_type]),
            2 => {
                let labels = making.elements(data_type, rows * classes);
                (Nn::CrossEntropy { data_type, label_type: None, batch: rows, classes }, Some(labels), data_type, vec![data_type; 2])
            }
            _ => {
                let label_type = *making.of(&[DataType::Int32, DataType::Int64]);
                let labels = indices(&mut making, label_type, rows, classes);
                (
                    Nn::CrossEntropy { data_type, label_type: Some(label_type), batch: rows, classes },
                    Some(labels),
                    label_type,
                    vec![data_type; 2],
                )
            }
        };
        let near = if number % 4 == 2 { Near::Of(classes as f64 * 8.0, 32.0) } else { near };
        let inputs: Vec<Vec<u8>> = [logits].into_iter().chain(more).collect();
        cases.push(Case { request: KernelRequest::Nn(nn), inputs, input_types: vec![data_type, more_type], types, near });
    }
    cases
}

fn indices(making: &mut Making, data_type: DataType, number: u64, limit: u64) -> Vec<u8> {
    (0..number)
        .flat_map(|_| {
            let index = making.below(limit);
            index.to_le_bytes()[..data_type.size().unwrap()].to_vec()
        })
        .collect()
}

pub fn gathers(seed: u64) -> Vec<Case> {
    let mut making = Making::new(seed);
    let mut cases = Vec::new();
    for number in 0..times(40) {
        let index_type = *making.of(&[DataType::Int32, DataType::Int64]);
        let data_type = *making.of(&[DataType::Float, DataType::Double, DataType::Bfloat16, DataType::Int32, DataType::Uint8]);
        let (rows, inner) = (1 + making.below(30), *making.of(&[1, 3, 4, 16, 33]));
        let named = making.below(40);
        let (gather, inputs, input_types, output) = match number % 5 {
            0 => {
                let element = *making.of(&[1usize, 2, 4, 8, 16]);
                let outer = 1 + making.below(3);
                let batch_dims = making.below(2) as usize;
                let params = [vec![outer; 1 + batch_dims], vec![rows, inner]].concat();
                let indices_shape = [vec![outer; batch_dims], vec![named]].concat();
                let data = (0..count(&params) * element as u64).map(|_| making.word() as u8).collect();
                let named = indices(&mut making, index_type, count(&indices_shape), rows);
                let gather = Gather::Take { element, params, indices: indices_shape, axis: 1 + batch_dims, batch_dims, index_type };
                (KernelRequest::Gather(gather), vec![data, named], vec![type_of(element), index_type], type_of(element))
            }
            1 => {
                let element = *making.of(&[1usize, 4, 8]);
                let shape = vec![named, 3];
                let axis = making.below(3) as usize;
                let named = indices(&mut making, index_type, count(&shape), rows + 2);
                let [on, off] = [1u8, 2].map(|byte| vec![byte; element]);
                let gather = Gather::OneHot { element, index_type, shape, depth: rows, axis };
                (KernelRequest::Gather(gather), vec![named, on, off], vec![index_type], type_of(element))
            }
            2 => {
                let op = *making.of(&[SegmentOp::Sum, SegmentOp::Prod, SegmentOp::Max, SegmentOp::Min]);
                let data = making.elements(data_type, named * inner);
                let ids = indices(&mut making, index_type, named, rows);
                let (shape, ids_shape) = (vec![named, inner], vec![named]);
                let gather = Gather::Segment { op, data_type, index_type, shape, ids_shape, segments: rows };
                (KernelRequest::Gather(gather), vec![data, ids], vec![data_type, index_type], data_type)
            }
            3 => {
                let ops = [ScatterOp::Update, ScatterOp::Add, ScatterOp::Sub, ScatterOp::Mul, ScatterOp::Min, ScatterOp::Max];
                let op = *making.of(&ops);
                let scalar_updates = making.below(4) == 0;
                let variable = making.elements(data_type, rows * inner);
                let ids = indices(&mut making, index_type, named, rows);
                let updates = making.elements(data_type, if scalar_updates { 1 } else { named * inner });
                let shape = vec![rows, inner];
                let gather = Gather::Scatter {
                    op,
                    data_type,
                    index_type,
                    shape,
                    indices: named,
                    depth: 1,
                    scalar_updates,
                    ignore: false,
                    in_place: false,
                };
                (KernelRequest::Gather(gather), vec![variable, ids, updates], vec![data_type, index_type, data_type], data_type)
            }
            _ => {
                let update = momentum(rows, inner, named, index_type);
                let float = DataType::Float;
                let mut inputs = vec![making.elements(float, rows * inner), making.elements(float, rows * inner)];
                inputs.extend([making.elements(float, named * inner), making.elements(float, 1)]);
                inputs.push(indices(&mut making, index_type, named, rows));
                (KernelRequest::UpdateRows(update), inputs, vec![float, float, float, float, index_type], float)
            }
        };
        let types = vec![output; gather.arguments().unwrap().outputs.len()];
        cases.push(Case { request: gather, inputs, input_types, types, near: Near::Exact });
    }
    // Whole words of what an index makes.
    for element in [1usize, 2, 4, 8] {
        let named = indices(&mut making, DataType::Int32, 21, 18);
        let [on, off] = [1u8, 2].map(|byte| vec![byte; element]);
        let gather = Gather::OneHot { element, index_type: DataType::Int32, shape: vec![21], depth: 16, axis: 1 };
        let (input_types, types) = (vec![DataType::Int32], vec![type_of(element)]);
        cases.push(Case { request: KernelRequest::Gather(gather), inputs: vec![named, on, off], input_types, types, near: Near::Exact });
    }
    // An update of 0 looks at nothing.
    for access in [Access::Write, Access::Read, Access::ReadWritten] {
        let named = [[0, 1, 2], [1, 0, 3]][usize::from(access == Access::ReadWritten)];
        cases.push(marks(access, named, vec![1, 0, 1]));
    }
    cases
}

/// Three accesses to a TensorArray of five elements, of which the second and the fourth are marked.
fn marks(access: Access, indices: [i32; 3], updates: Vec<u8>) -> Case {
    let (data_type, index_type) = (DataType::Uint8, DataType::Int32);
    let scatter = Gather::Scatter {
        op: ScatterOp::Mark(access),
        data_type,
        index_type,
        shape: vec![5],
        indices: 3,
        depth: 1,
        scalar_updates: updates.len() == 1,
        ignore: false,
        in_place: false,
    };
    let indices = indices.iter().flat_map(|index| index.to_le_bytes()).collect();
    Case {
        request: KernelRequest::Gather(scatter),
        inputs: vec![vec![0, 1, 0, 1, 0], indices, updates],
        input_types: vec![data_type, index_type, data_type],
        types: vec![data_type],
        near: Near::Exact,
    }
}

/// A momentum update of rows: two variables, a gradient and a rate.
fn momentum(rows: u64, inner: u64, indices: u64, index_type: DataType) -> UpdateRows {
    let mut builder = ExprBuilder::new();
    let [variable, moment, gradient, rate] = [(); 4].map(|()| builder.input(DataType::Float).unwrap());
    let half = builder.constant(Scalar::F32(0.5));
    let kept = builder.binary(BinaryOp::Mul, moment, half).unwrap();
    let moment = builder.binary(BinaryOp::Add, kept, gradient).unwrap();
    let step = builder.binary(BinaryOp::Mul, moment, rate).unwrap();
    let variable = builder.binary(BinaryOp::Sub, variable, step).unwrap();
    UpdateRows {
        expr: builder.finish(vec![variable, moment]),
        operands: vec![RowOperand::Variable, RowOperand::Variable, RowOperand::Update, RowOperand::Scalar],
        rows,
        inner,
        indices,
        index_type,
    }
}

/// Targets among the most probable classes; some are no class, and some rows have what is no number.
pub fn targets(seed: u64) -> Vec<Case> {
    let mut making = Making::new(seed);
    let mut cases = Vec::new();
    for number in 0..times(16) {
        let (batch, classes) = (*making.of(&[1, 7, 8, 50]), *making.of(&[1, 3, 10, 16, 100, 257, 512]));
        let target_type = if number % 2 == 0 { DataType::Int32 } else { DataType::Int64 };
        let size = target_type.size().unwrap();
        let integer = |value: i64| value.to_le_bytes()[..size].to_vec();
        let float = DataType::Float;
        let predictions = if number % 4 == 3 { making.wild(float, batch * classes) } else { making.elements(float, batch * classes) };
        let targets = (0..batch).flat_map(|_| integer(making.below(classes + 2) as i64 - 1)).collect();
        let k = 1 + making.below(classes / 2 + 1) as i64;
        let given = number % 3 == 0;
        let mut inputs = vec![predictions, targets];
        let mut input_types = vec![float, target_type];
        if !given {
            inputs.push(integer(k));
            input_types.push(target_type);
        }
        let in_top_k = Reduction::InTopK { target_type, batch, classes, k: given.then_some(k) };
        let request = KernelRequest::Reduction(in_top_k);
        cases.push(Case { request, inputs, input_types, types: vec![DataType::Bool], near: Near::Exact });
    }
    cases
}

/// Images resized between neighbours.
pub fn resized(seed: u64) -> Vec<Case> {
    let mut making = Making::new(seed);
    let mut cases = Vec::new();
    for number in 0..times(24) {
        let data_type = *making.of(&[DataType::Float, DataType::Float, DataType::Double]);
        let mut side = || 1 + making.below(9);
        let (size, resized) = ([side(), side()], [side(), side()]);
        let (batch, channels) = (1 + making.below(2), *making.of(&[1, 2, 3, 4, 5, 8]));
        let method = Method::Bilinear { align_corners: number % 3 == 0, half_pixel_centers: number % 3 == 1 };
        let spec = Resample { data_type, batch, size, resized, channels, method, transposed: false };
        let inputs = vec![making.wild(data_type, count(&spec.images()))];
        let request = KernelRequest::Resample(spec);
        cases.push(Case { request, inputs, input_types: vec![data_type], types: vec![data_type], near: Near::Exact });
    }
    cases
}

/// A condition, true or not.
pub fn conditions() -> Vec<Case> {
    let all = [Requirement::ListNotEmpty, Requirement::Unwritten, Requirement::Fetched(3), Requirement::ResourceInitialized];
    let cases = all.into_iter().flat_map(|requirement| [0, 1].map(|byte| (requirement, byte)));
    let case = |(requirement, byte)| Case {
        request: KernelRequest::Require(requirement),
        inputs: vec![vec![byte]],
        input_types: vec![DataType::Bool],
        types: Vec::new(),
        near: Near::Exact,
    };
    cases.map(case).collect()
}

/// A fault of each kind.
pub fn faults() -> Vec<Case> {
    let mut cases = Vec::new();
    let ints = |values: &[i32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    for (op, second) in
        [(BinaryOp::Div, 0), (BinaryOp::FloorDiv, 0), (BinaryOp::FloorMod, 0), (BinaryOp::TruncateMod, 0), (BinaryOp::Pow, -1)]
    {
        let mut builder = ExprBuilder::new();
        let (a, b) = (builder.input(DataType::Int32).unwrap(), builder.input(DataType::Int32).unwrap());
        let result = builder.binary(op, a, b).unwrap();
        let request = KernelRequest::Expr { expr: builder.finish(vec![result]), shape: vec![3], operands: vec![vec![3]; 2] };
        let inputs = vec![ints(&[1, 2, 3]), ints(&[1, second, 1])];
        cases.push(Case { request, inputs, input_types: vec![DataType::Int32; 2], types: vec![DataType::Int32], near: Near::Exact });
    }
    let float = DataType::Float;
    let floats = |count: usize| vec![0u8; 4 * count];
    let mut add = |request: KernelRequest, inputs: Vec<Vec<u8>>, input_types: Vec<DataType>| {
        let types = vec![float; request.arguments().unwrap().outputs.len()];
        cases.push(Case { request, inputs, input_types, types, near: Near::Exact });
    };
    let index_type = DataType::Int32;
    let take = Gather::Take { element: 4, params: vec![5, 2], indices: vec![4], axis: 0, batch_dims: 0, index_type };
    add(KernelRequest::Gather(take), vec![floats(10), ints(&[0, 4, 5, -1])], vec![float, index_type]);
    let (shape, ids_shape) = (vec![3, 2], vec![3]);
    let segment = Gather::Segment { op: SegmentOp::Sum, data_type: float, index_type, shape, ids_shape, segments: 4 };
    add(KernelRequest::Gather(segment), vec![floats(6), ints(&[-1, 0, 4])], vec![float, index_type]);
    for wrong in [-1, 5] {
        let (op, shape) = (ScatterOp::Add, vec![5, 2]);
        let scatter = Gather::Scatter {
            op,
            data_type: float,
            index_type,
            shape,
            indices: 3,
            depth: 1,
            scalar_updates: false,
            ignore: false,
            in_place: false,
        };
        add(KernelRequest::Gather(scatter), vec![floats(10), ints(&[0, wrong, 1]), floats(6)], vec![float, index_type, float]);
    }
    let inputs = vec![floats(10), floats(10), floats(6), floats(1), ints(&[0, 1, 5])];
    add(KernelRequest::UpdateRows(momentum(5, 2, 3, index_type)), inputs, vec![float, float, float, float, index_type]);
    let entropy = Nn::CrossEntropy { data_type: float, label_type: Some(index_type), batch: 3, classes: 4 };
    add(KernelRequest::Nn(entropy), vec![floats(12), ints(&[0, 4, 1])], vec![float, index_type]);
    let random = Random::Stateless { distribution: Distribution::UniformInt, data_type: DataType::Int32, elements: 9 };
    let inputs = vec![vec![0; 8], vec![0; 16], ints(&[3]), ints(&[3])];
    add(KernelRequest::Random(random), inputs, vec![DataType::Uint64, DataType::Uint64, index_type, index_type]);
    let (distribution, data_type) = (Distribution::UniformInt, DataType::Int32);
    let random = Random::Reserved { distribution, data_type, elements: 9, seed: 1, seed2: 2 };
    add(KernelRequest::Random(random), vec![ints(&[3]), ints(&[3]), vec![0; 8]], vec![index_type, index_type, DataType::Uint64]);
    for (access, named) in
        [(Access::Write, [0, 3, 2]), (Access::Read, [0, 1, 4]), (Access::ReadWritten, [1, 3, 4]), (Access::Write, [0, 5, 2])]
    {
        cases.push(marks(access, named, vec![1]));
    }
    cases
}
