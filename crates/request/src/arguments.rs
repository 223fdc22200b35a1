//! How many bytes the arguments of a request take.

use plimsoll_base::{DataType, Error, Result};

use crate::KernelRequest;
use crate::anchor::{Anchor, Epilogue};
use crate::attention::Attention;
use crate::bands::Bands;
use crate::block::Block;
use crate::conv::{ConvSpec, FilterForm};
use crate::crop::Makes;
use crate::diagonals::DiagonalForm;
use crate::expr::Expr;
use crate::exprs::Exprs;
use crate::factors::{FactorOp, Factors};
use crate::fft::Fft;
use crate::gather::Gather;
use crate::linalg::{Linalg, MatrixOp};
use crate::movement::Movement;
use crate::nn::Nn;
use crate::norm::BatchNormSpec;
use crate::pool::{ArgMax, PoolSpec, Pooling, Positions};
use crate::random::{Distribution, Random, SeedSource};
use crate::reduce::Reduction;
use crate::row_wise::{RowWise, Span};
use crate::rows::{RowOperand, UpdateRows};
use crate::scaled_attention::{KeptShares, ScaledAttention, ScoreBias};
use crate::window::Layout;

/// The bytes of each argument of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arguments {
    /// The least bytes of each input.
    pub inputs: Vec<u64>,
    /// The bytes of each output.
    pub outputs: Vec<u64>,
    /// Whether the first output is read before it is written.
    pub updates_first: bool,
}

impl Arguments {
    fn of(inputs: impl Into<Vec<u64>>, outputs: impl Into<Vec<u64>>) -> Arguments {
        Arguments { inputs: inputs.into(), outputs: outputs.into(), updates_first: false }
    }
}

impl KernelRequest {
    /// The bytes of its arguments, in the order that it documents.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where sizes contradict each other or are more than can be addressed; UNIMPLEMENTED for
    /// [`KernelRequest::Named`], whose arguments its library knows.
    pub fn arguments(&self) -> Result<Arguments> {
        Ok(match self {
            KernelRequest::Expr { expr, shape, operands } => {
                Arguments::of(operands_of(expr.inputs(), operands)?, results_of(expr, elements(shape)?)?)
            }
            KernelRequest::Exprs(request) => of_exprs(request)?,
            KernelRequest::Anchor { anchor, epilogue, pooling } => of_anchor(anchor, epilogue.as_ref(), pooling.as_ref())?,
            KernelRequest::ConvBackpropFilter { spec, unpooled: None } => Arguments::of(
                [tensor(spec.data_type, &spec.input())?, tensor(spec.data_type, &spec.output())?],
                [tensor(spec.data_type, &spec.filter())?],
            ),
            KernelRequest::ConvBackpropFilter { spec, unpooled: Some(pool) } => Arguments::of(
                [tensor(spec.data_type, &spec.input())?, positions(pool)?, tensor(pool.data_type, &pool.output())?],
                [tensor(spec.data_type, &spec.filter())?],
            ),
            KernelRequest::ConvStatistics(spec) => {
                if spec.layout != Layout::ChannelsLast {
                    return Err(inconsistent("statistics of channels that come first"));
                }
                let (result, channel) = (tensor(spec.data_type, &spec.output())?, floats(&[spec.out_c])?);
                let filter = tensor(spec.data_type, &spec.filter())?;
                Arguments::of([tensor(spec.data_type, &spec.input())?, filter], [result, channel, channel])
            }
            KernelRequest::Attention(request) => of_attention(request)?,
            KernelRequest::ScaledAttention(request) => of_scaled_attention(request, false)?,
            KernelRequest::ScaledAttentionGrad(request) => of_scaled_attention(request, true)?,
            KernelRequest::Bands(request) => of_bands(request)?,
            KernelRequest::RowWise(request) => of_row_wise(request)?,
            KernelRequest::ConvBackpropFilterSums { spec, unpooled, sums, onto, form } => {
                let one = KernelRequest::ConvBackpropFilter { spec: *spec, unpooled: *unpooled };
                let filter = match form {
                    FilterForm::Taps => tensor(DataType::Float, &spec.filter())?,
                    FilterForm::Points { along, .. } => tensor(DataType::Float, &[*along, *along, spec.in_c, spec.out_c])?,
                };
                Arguments { outputs: vec![times(*sums, filter)?], updates_first: *onto, ..one.arguments()? }
            }
            KernelRequest::ConvBackpropFilterEnd { spec, points, sums } => {
                let all = tensor(DataType::Float, &[*sums, *points, *points, spec.in_c, spec.out_c])?;
                Arguments::of([all], [tensor(DataType::Float, &spec.filter())?])
            }
            KernelRequest::DepthwiseConvBackpropInput(spec) => {
                Arguments::of([depthwise_filter(spec)?, tensor(spec.data_type, &spec.output())?], [tensor(spec.data_type, &spec.input())?])
            }
            KernelRequest::DepthwiseConvBackpropFilter(spec) => {
                Arguments::of([tensor(spec.data_type, &spec.input())?, tensor(spec.data_type, &spec.output())?], [depthwise_filter(spec)?])
            }
            KernelRequest::MaxPool(pooling) => Arguments::of([tensor(pooling.spec.data_type, &pooling.spec.input())?], pooled(pooling)?),
            KernelRequest::MaxPoolGrad(spec) => {
                Arguments::of([positions(spec)?, tensor(spec.data_type, &spec.output())?], [tensor(spec.data_type, &spec.input())?])
            }
            KernelRequest::MaxPoolGradOfInput { spec, .. } => {
                let output = tensor(spec.data_type, &spec.output())?;
                Arguments::of([tensor(spec.data_type, &spec.input())?, output, output], [tensor(spec.data_type, &spec.input())?])
            }
            KernelRequest::MaxPoolGradGrad(spec) => {
                let (input, output) = (tensor(spec.data_type, &spec.input())?, tensor(spec.data_type, &spec.output())?);
                Arguments::of([input, output, input], [output])
            }
            KernelRequest::AvgPool(spec) => {
                Arguments::of([tensor(spec.data_type, &spec.input())?], [tensor(spec.data_type, &spec.output())?])
            }
            KernelRequest::AvgPoolGrad(spec) => {
                Arguments::of([tensor(spec.data_type, &spec.output())?], [tensor(spec.data_type, &spec.input())?])
            }
            KernelRequest::BatchNorm { spec, training, reserve_3, summed, epilogue } => {
                let (all, channel) = batch(spec)?;
                if *summed && !training {
                    return Err(inconsistent("sums for a normalization by given statistics"));
                }
                let sums = if *summed { vec![channel; 2] } else { Vec::new() };
                // Statistics that are all replaced are not read.
                let running = if *training && spec.exponential_avg_factor == 1.0 { 0 } else { channel };
                let reserved = if *reserve_3 { vec![4] } else { Vec::new() };
                let (result, further) = match epilogue {
                    Some(epilogue) => behind_norm(spec, epilogue)?,
                    None => (all, Vec::new()),
                };
                let outputs = [vec![result, channel, channel, channel, channel], reserved].concat();
                Arguments::of([vec![all, channel, channel, running, running], sums, further].concat(), outputs)
            }
            KernelRequest::BatchNormGrad { spec, relu, .. } => {
                let (all, channel) = batch(spec)?;
                let offset = if *relu { vec![channel] } else { Vec::new() };
                Arguments::of([vec![all, all, channel, channel, channel], offset].concat(), [all, channel, channel, 0, 0])
            }
            KernelRequest::Lrn(spec) => {
                let all = tensor(spec.data_type, &[spec.rows, spec.channels])?;
                Arguments::of([all], [all])
            }
            KernelRequest::LrnGrad(spec) => {
                let all = tensor(spec.data_type, &[spec.rows, spec.channels])?;
                Arguments::of([all, all, all], [all])
            }
            KernelRequest::Resample(spec) => {
                let (from, to) = spec.shapes();
                Arguments::of([tensor(spec.data_type, &from)?], [tensor(spec.data_type, &to)?])
            }
            KernelRequest::Crop(spec) => {
                let (images, crops) = (floats(&spec.images())?, floats(&spec.crops())?);
                let (boxes, names) = (floats(&[spec.boxes, 4])?, tensor(DataType::Int32, &[spec.boxes])?);
                match spec.makes {
                    Makes::Crops { .. } => Arguments::of([images, boxes, names], [crops]),
                    Makes::Images => Arguments::of([crops, boxes, names], [images]),
                    Makes::Boxes => Arguments::of([crops, images, boxes, names], [boxes]),
                }
            }
            KernelRequest::Warp(spec) => {
                let (from, to) = spec.shapes();
                let inputs = [tensor(spec.data_type, &from)?, floats(&[spec.transforms(), 8])?, floats(&[])?];
                Arguments::of(inputs, [tensor(spec.data_type, &to)?])
            }
            KernelRequest::Factors(request) => of_factors(request)?,
            KernelRequest::Fft(request) => of_fft(request)?,
            KernelRequest::Linalg(request) => of_matrices(request)?,
            KernelRequest::Nn(request) => of_rows(request)?,
            KernelRequest::Reduction(request) => of_reduction(request)?,
            KernelRequest::Movement { element, movement } => of_movement(size_of_element(*element)?, movement)?,
            KernelRequest::Gather(request) => of_gather(request)?,
            KernelRequest::UpdateRows(request) => of_rows_updated(request)?,
            KernelRequest::OnRows(request) => request.arguments()?,
            KernelRequest::Random(request) => of_random(request)?,
            KernelRequest::CheckNumerics { data_type, elements, .. } => {
                let all = bytes(*data_type, *elements)?;
                Arguments::of([all], [all])
            }
            KernelRequest::Require(_) => Arguments::of([1], []),
            KernelRequest::Nothing => Arguments::default(),
            KernelRequest::Named(name) => return Err(Error::unimplemented(format!("the arguments of {name} are not known"))),
        })
    }
}

fn of_exprs(request: &Exprs) -> Result<Arguments> {
    request.check()?;
    let types = || request.single.iter().zip(request.expr.inputs());
    let mut inputs = types().filter(|(single, _)| **single).map(|(_, data_type)| bytes(*data_type, 1)).collect::<Result<Vec<u64>>>()?;
    let mut outputs = Vec::new();
    for elements in &request.elements {
        for (_, data_type) in types().filter(|(single, _)| !**single) {
            inputs.push(bytes(*data_type, *elements)?);
        }
        outputs.extend(results_of(&request.expr, *elements)?);
    }
    Ok(Arguments::of(inputs, outputs))
}

fn of_attention(request: &Attention) -> Result<Arguments> {
    request.check()?;
    let Arguments { mut inputs, .. } = of_anchor(&Anchor::Product(DataType::Float, request.scores), None, None)?;
    if let Some(Epilogue { expr, operands }) = &request.between {
        inputs.extend(operands_of(&expr.inputs()[1..], operands)?);
    }
    let of_values = of_anchor(&Anchor::Product(DataType::Float, request.values), None, None)?;
    inputs.push(of_values.inputs[1]);
    Ok(Arguments::of(inputs, of_values.outputs))
}

fn of_scaled_attention(request: &ScaledAttention, is_gradient: bool) -> Result<Arguments> {
    request.check()?;
    let [q, k, v, result] = request.sizes().map(|sizes| tensor(request.data_type, &sizes));
    let (q, k, v, result) = (q?, k?, v?, result?);
    let sums = tensor(DataType::Float, &request.of_sums())?;
    // Scores are nowhere, but their places are counted.
    elements(&request.scores())?;
    let mut inputs = vec![q, k, v];
    if let Some(ScoreBias { data_type, sizes }) = request.bias {
        inputs.push(tensor(data_type, &sizes)?);
    }
    if let Some(KeptShares { data_type, sizes, .. }) = request.kept {
        inputs.push(tensor(data_type, &sizes)?);
    }
    if is_gradient {
        inputs.extend([result, sums, result]);
        return Ok(Arguments::of(inputs, [q, k, v]));
    }
    Ok(Arguments::of(inputs, if request.sums { vec![result, sums] } else { vec![result] }))
}

fn of_bands(request: &Bands) -> Result<Arguments> {
    request.check()?;
    let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
    for (number, stage) in request.stages.iter().enumerate() {
        let of_stage = of_anchor(&stage.anchor, stage.epilogue.as_ref(), None)?;
        inputs.extend(&of_stage.inputs[usize::from(number > 0)..]);
        outputs = of_stage.outputs;
    }
    Ok(Arguments::of(inputs, outputs))
}

fn of_row_wise(request: &RowWise) -> Result<Arguments> {
    let spans = request.check()?;
    elements(&[request.rows, request.row])?;
    let bytes = |span: &Span| tensor(DataType::Float, &span.shape(request.rows, request.row));
    let results = request.results.iter().map(|result| bytes(&spans[*result])).collect::<Result<Vec<u64>>>()?;
    Ok(Arguments::of(request.inputs.iter().map(bytes).collect::<Result<Vec<u64>>>()?, results))
}

fn of_anchor(anchor: &Anchor, epilogue: Option<&Epilogue>, pooling: Option<&Pooling>) -> Result<Arguments> {
    let (inputs, result) = match anchor {
        Anchor::Product(data_type, spec) => {
            for sizes in [[spec.batch, spec.m, spec.k], [spec.batch, spec.k, spec.n], [spec.batch, spec.m, spec.n]] {
                elements(&sizes)?;
            }
            let [a, b, c] = spec.extents()?;
            ([bytes(*data_type, a)?, bytes(*data_type, b)?], c)
        }
        Anchor::Conv(spec) => {
            ([tensor(spec.data_type, &spec.input())?, tensor(spec.data_type, &spec.filter())?], elements(&spec.output())?)
        }
        Anchor::ConvBackpropInput(spec) => {
            ([tensor(spec.data_type, &spec.filter())?, tensor(spec.data_type, &spec.output())?], elements(&spec.input())?)
        }
        Anchor::DepthwiseConv(spec) => ([tensor(spec.data_type, &spec.input())?, depthwise_filter(spec)?], elements(&spec.output())?),
    };
    let mut arguments = Arguments::of(inputs, [bytes(anchor.data_type(), result)?]);
    if let Some(Epilogue { expr, operands }) = epilogue {
        let (first, others) = expr.inputs().split_first().ok_or_else(|| inconsistent("an epilogue without operands"))?;
        if *first != anchor.data_type() {
            return Err(inconsistent("an epilogue of another type"));
        }
        arguments.inputs.extend(operands_of(others, operands)?);
        arguments.outputs = results_of(expr, result)?;
    }
    if let Some(pooling) = pooling {
        if arguments.outputs != [tensor(pooling.spec.data_type, &pooling.spec.input())?] {
            return Err(inconsistent("a pooling of something else"));
        }
        arguments.outputs = pooled(pooling)?;
    }
    Ok(arguments)
}

fn of_factors(request: &Factors) -> Result<Arguments> {
    let Factors { op, data_type, matrices, rows, columns } = request;
    if !matches!(op, FactorOp::Qr { .. } | FactorOp::Svd { .. }) && rows != columns {
        return Err(inconsistent("a square matrix with other rows than columns"));
    }
    let result = |(data_type, shape): (DataType, Vec<u64>)| tensor(data_type, &[&[*matrices], &shape[..]].concat());
    let outputs = request.results().into_iter().map(result).collect::<Result<Vec<u64>>>()?;
    Ok(Arguments::of([tensor(*data_type, &[*matrices, *rows, *columns])?], outputs))
}

fn of_fft(request: &Fft) -> Result<Arguments> {
    let types = request.types().ok_or_else(|| Error::unimplemented(format!("Fourier transforms with parts of {}", request.part)))?;
    tensor(types[0], &[request.rows, request.taken()])?;
    Ok(Arguments::of([tensor(types[0], &[request.rows, request.row])?], [tensor(types[1], &[request.rows, request.given()])?]))
}

fn of_matrices(request: &Linalg) -> Result<Arguments> {
    let Linalg { op, data_type, matrices, size, columns } = request;
    let squares = tensor(*data_type, &[*matrices, *size, *size])?;
    let one = bytes(*data_type, *matrices)?;
    Ok(match op {
        MatrixOp::Cholesky | MatrixOp::Inverse { .. } => Arguments::of([squares], [squares]),
        MatrixOp::Solve { .. } | MatrixOp::TriangularSolve { .. } => {
            let right = tensor(*data_type, &[*matrices, *size, *columns])?;
            Arguments::of([squares, right], [right])
        }
        MatrixOp::Determinant => Arguments::of([squares], [one]),
        MatrixOp::LogDeterminant => Arguments::of([squares], [one, one]),
    })
}

fn of_rows(request: &Nn) -> Result<Arguments> {
    Ok(match request {
        Nn::Softmax { data_type, rows, classes, .. } => {
            let all = bytes(*data_type, elements(&[*rows, *classes])?)?;
            Arguments::of([all], [all])
        }
        Nn::CrossEntropy { data_type, label_type, batch, classes } => {
            let all = bytes(*data_type, elements(&[*batch, *classes])?)?;
            let labels = label_type.map_or(Ok(all), |label_type| bytes(label_type, *batch))?;
            Arguments::of([all, labels], [bytes(*data_type, *batch)?, all])
        }
    })
}

fn of_reduction(request: &Reduction) -> Result<Arguments> {
    Ok(match request {
        Reduction::Reduce { data_type, shape, axes, .. } | Reduction::ReduceSome { data_type, shape, axes, .. } => {
            let kept: Vec<u64> = (0..shape.len()).filter(|axis| !axes.contains(axis)).map(|axis| shape[axis]).collect();
            Arguments::of([bytes(*data_type, elements(shape)?)?], [bytes(*data_type, elements(&kept)?)?])
        }
        Reduction::HalfSquares { data_type, shape } => Arguments::of([bytes(*data_type, elements(shape)?)?], [bytes(*data_type, 1)?]),
        Reduction::Arg { data_type, output_type, shape, axis, .. } => {
            let others = elements(&without(shape, *axis)?)?;
            Arguments::of([bytes(*data_type, elements(shape)?)?], [bytes(*output_type, others)?])
        }
        Reduction::Scan { data_type, shape, .. } => {
            let all = bytes(*data_type, elements(shape)?)?;
            Arguments::of([all], [all])
        }
        Reduction::TopK { data_type, index_type, rows, classes, k } => {
            let found = elements(&[*rows, *k])?;
            Arguments::of([bytes(*data_type, elements(&[*rows, *classes])?)?], [bytes(*data_type, found)?, bytes(*index_type, found)?])
        }
        Reduction::InTopK { target_type, batch, classes, k } => {
            let mut inputs = vec![floats(&[*batch, *classes])?, bytes(*target_type, *batch)?];
            inputs.extend(k.is_none().then(|| bytes(*target_type, 1)).transpose()?);
            Arguments::of(inputs, [*batch])
        }
    })
}

fn of_movement(element: u64, movement: &Movement) -> Result<Arguments> {
    let size = |shape: &[u64]| times(elements(shape)?, element);
    Ok(match movement {
        Movement::BroadcastTo { from, to } => Arguments::of([size(from)?], [size(to)?]),
        Movement::Concat { shapes, axis } => {
            let inputs = shapes.iter().map(|shape| size(shape)).collect::<Result<Vec<_>>>()?;
            if shapes.iter().any(|shape| *axis >= shape.len()) {
                return Err(inconsistent("an axis that is not there"));
            }
            let total = sum(&inputs)?;
            Arguments::of(inputs, [total])
        }
        Movement::Diagonals(request) => {
            let (matrices, stored) = (size(&[request.matrices, request.rows, request.columns])?, request.stored()?);
            let diagonals = size(&[request.matrices, stored.count, stored.length])?;
            match request.form {
                DiagonalForm::Matrix => Arguments::of([diagonals, element], [matrices]),
                DiagonalForm::Part => Arguments::of([matrices, element], [diagonals]),
                DiagonalForm::Set => Arguments::of([matrices, diagonals], [matrices]),
                DiagonalForm::Band => Arguments::of([matrices], [matrices]),
            }
        }
        Movement::Fill { elements } => Arguments::of([element], [times(*elements, element)?]),
        Movement::Pack { shape, count, .. } => {
            let one = size(shape)?;
            if *count > MOST_ARGUMENTS {
                return Err(inconsistent("more tensors than a graph has"));
            }
            Arguments::of(vec![one; *count], [times(one, *count as u64)?])
        }
        Movement::Pad { shape, paddings, value } => {
            if paddings.len() != shape.len() {
                return Err(inconsistent("paddings of another rank"));
            }
            let padded = shape.iter().zip(paddings).map(|(size, (before, after))| sum(&[*size, *before, *after]));
            let output = size(&padded.collect::<Result<Vec<_>>>()?)?;
            let value = if value.is_none() { vec![element] } else { Vec::new() };
            Arguments::of([vec![size(shape)?], value].concat(), [output])
        }
        Movement::Pick { shape, picks } => {
            if picks.len() != shape.len() {
                return Err(inconsistent("picks of another rank"));
            }
            let picked = shape.iter().zip(picks).map(|(size, pick)| pick.size(*size));
            let picked = picked.collect::<Option<Vec<_>>>().ok_or_else(|| inconsistent("elements that are not there"))?;
            Arguments::of([size(shape)?], [size(&picked)?])
        }
        Movement::Reverse { shape, .. } | Movement::Transpose { shape, .. } => Arguments::of([size(shape)?], [size(shape)?]),
        Movement::Slice { shape, sizes, .. } | Movement::StridedSlice { shape, sizes, .. } => Arguments::of([size(shape)?], [size(sizes)?]),
        Movement::StridedSliceGrad { shape, sizes, .. } => Arguments::of([size(sizes)?], [size(shape)?]),
        Movement::Split { shape, axis, sizes } => {
            let others = elements(&without(shape, *axis)?)?;
            let parts = sizes.iter().map(|part| times(times(others, *part)?, element));
            Arguments::of([size(shape)?], parts.collect::<Result<Vec<_>>>()?)
        }
        Movement::Tile { shape, multiples } => Arguments::of([size(shape)?], [times(size(shape)?, elements(multiples)?)?]),
        Movement::Unpack { shape, axis } => {
            let one = size(&without(shape, *axis)?)?;
            let count = usize::try_from(shape[*axis]).ok().filter(|count| *count <= MOST_ARGUMENTS);
            let count = count.ok_or_else(|| inconsistent("more tensors than a graph has"))?;
            Arguments::of([size(shape)?], vec![one; count])
        }
    })
}

fn of_gather(request: &Gather) -> Result<Arguments> {
    Ok(match request {
        Gather::Take { element, params, indices, axis, batch_dims, index_type } => {
            if *axis >= params.len() || *batch_dims > indices.len() {
                return Err(inconsistent("an axis that is not there"));
            }
            let output = [&params[..*axis], &indices[*batch_dims..], &params[*axis + 1..]].concat();
            let element = size_of_element(*element)?;
            let size = |shape: &[u64]| times(elements(shape)?, element);
            Arguments::of([size(params)?, bytes(*index_type, elements(indices)?)?], [size(&output)?])
        }
        Gather::OneHot { element, index_type, shape, depth, .. } => {
            let (one, count) = (size_of_element(*element)?, elements(shape)?);
            Arguments::of([bytes(*index_type, count)?, one, one], [times(times(count, *depth)?, one)?])
        }
        Gather::Segment { data_type, index_type, shape, ids_shape, segments, .. } => {
            let row = shape.get(ids_shape.len()..).ok_or_else(|| inconsistent("more ids than data"))?;
            let inputs = [bytes(*data_type, elements(shape)?)?, bytes(*index_type, elements(ids_shape)?)?];
            Arguments::of(inputs, [bytes(*data_type, times(elements(row)?, *segments)?)?])
        }
        Gather::Scatter { data_type, index_type, shape, indices, depth, scalar_updates, .. } => {
            let variable = bytes(*data_type, elements(shape)?)?;
            let row = elements(shape.get(*depth..).ok_or_else(|| inconsistent("indices of more dimensions than there are"))?)?;
            let updates = if *scalar_updates { 1 } else { times(row, *indices)? };
            let indices = bytes(*index_type, times(*indices, *depth as u64)?)?;
            Arguments::of([variable, indices, bytes(*data_type, updates)?], [variable])
        }
        Gather::TakeNd { element, params, indices, depth, index_type, .. } => {
            let row = elements(params.get(*depth..).ok_or_else(|| inconsistent("indices of more dimensions than there are"))?)?;
            let element = size_of_element(*element)?;
            let inputs = [times(elements(params)?, element)?, bytes(*index_type, times(*indices, *depth as u64)?)?];
            Arguments::of(inputs, [times(times(row, *indices)?, element)?])
        }
        Gather::Block { element, block } => {
            let element = size_of_element(*element)?;
            let (whole, part) = of_block(element, block)?;
            Arguments::of([vec![whole], names_of(block)?].concat(), [part])
        }
        Gather::Embed { element, block, from, onto } => {
            let element = size_of_element(*element)?;
            let (whole, _) = of_block(element, block)?;
            if from.len() != block.sizes.len() || from.iter().zip(&block.sizes).any(|(from, size)| from != size && *from != 1) {
                return Err(inconsistent("a block of another shape"));
            }
            let first = if *onto { vec![whole] } else { Vec::new() };
            Arguments::of([first, names_of(block)?, vec![times(elements(from)?, element)?]].concat(), [whole])
        }
        Gather::Bound { data_type, index_type, rows, sorted, values, .. } => {
            let all = elements(&[*rows, *values])?;
            let inputs = [bytes(*data_type, elements(&[*rows, *sorted])?)?, bytes(*data_type, all)?];
            Arguments::of(inputs, [bytes(*index_type, all)?])
        }
    })
}

/// The bytes of the tensor and of the block.
fn of_block(element: u64, block: &Block) -> Result<(u64, u64)> {
    let rank = block.shape.len();
    if block.begins.len() != rank || block.strides.len() != rank || block.sizes.len() != rank {
        return Err(inconsistent("a block of another rank"));
    }
    Ok((times(elements(&block.shape)?, element)?, times(elements(&block.sizes)?, element)?))
}

/// The bytes of a block's names.
fn names_of(block: &Block) -> Result<Vec<u64>> {
    block.names.iter().map(|(data_type, count)| bytes(*data_type, *count)).collect()
}

fn of_rows_updated(request: &UpdateRows) -> Result<Arguments> {
    request.check()?;
    let size = |(operand, data_type): (&RowOperand, &DataType)| match operand {
        RowOperand::Variable => tensor(*data_type, &[request.rows, request.inner]),
        RowOperand::Update => tensor(*data_type, &[request.indices, request.inner]),
        RowOperand::Scalar => bytes(*data_type, 1),
    };
    let mut inputs = request.operands.iter().zip(request.expr.inputs()).map(size).collect::<Result<Vec<u64>>>()?;
    let outputs = inputs[..request.variables()].to_vec();
    inputs.push(bytes(request.index_type, request.indices)?);
    Ok(Arguments::of(inputs, outputs))
}

fn of_random(request: &Random) -> Result<Arguments> {
    let range = |distribution: Distribution, data_type: DataType| match distribution {
        Distribution::UniformInt => bytes(data_type, 1).map(|one| vec![one, one]),
        _ => Ok(Vec::new()),
    };
    Ok(match request {
        Random::Stateful { distribution, data_type, elements, .. } => {
            let outputs = [8, bytes(*data_type, *elements)?];
            Arguments { updates_first: true, ..Arguments::of(range(*distribution, *data_type)?, outputs) }
        }
        Random::Reserve { .. } => Arguments { updates_first: true, ..Arguments::of([], [8, 8]) },
        Random::Reserved { distribution, data_type, elements, .. } => {
            Arguments::of([range(*distribution, *data_type)?, vec![8]].concat(), [bytes(*data_type, *elements)?])
        }
        Random::Stateless { distribution, data_type, elements } => {
            Arguments::of([vec![8, 16], range(*distribution, *data_type)?].concat(), [bytes(*data_type, *elements)?])
        }
        Random::KeyCounter { seed_type } => Arguments::of([bytes(*seed_type, 2)?], [8, 16]),
        Random::Categorical(request) => {
            let (logits, drawn) = (
                tensor(request.data_type, &[request.rows, request.classes])?,
                tensor(request.output_type, &[request.rows, request.samples])?,
            );
            match request.source {
                SeedSource::State { .. } => Arguments { updates_first: true, ..Arguments::of([logits], [8, drawn]) },
                SeedSource::Given { seed_type } => Arguments::of([logits, bytes(seed_type, 2)?], [drawn]),
            }
        }
        Random::Candidates(request) => {
            let (sampled, truths) = (request.sampled, request.truths);
            let state = request.sampler.state_bytes().ok_or_else(|| Error::invalid_argument("too many classes"))?;
            let outputs = [state, bytes(DataType::Int64, sampled)?, floats(&[truths])?, floats(&[sampled])?];
            Arguments { updates_first: true, ..Arguments::of([bytes(DataType::Int64, truths)?], outputs) }
        }
    })
}

/// Elements and bytes of an argument at most: as many as a processor can address.
const MOST: u64 = 1 << 47;

/// More arguments than this have no kernel.
const MOST_ARGUMENTS: usize = 1 << 24;

/// The bytes of operands of these types and shapes.
fn operands_of(types: &[DataType], shapes: &[Vec<u64>]) -> Result<Vec<u64>> {
    if types.len() != shapes.len() {
        return Err(inconsistent("an expression with other operands than its shapes"));
    }
    types.iter().zip(shapes).map(|(data_type, shape)| bytes(*data_type, elements(shape)?)).collect()
}

/// The bytes of an expression's results for so many elements.
fn results_of(expr: &Expr, elements: u64) -> Result<Vec<u64>> {
    expr.output_types().into_iter().map(|data_type| bytes(data_type, elements)).collect()
}

/// The bytes of a pooling's results.
fn pooled(pooling: &Pooling) -> Result<Vec<u64>> {
    let output = tensor(pooling.spec.data_type, &pooling.spec.output())?;
    Ok(match pooling.positions {
        Positions::None => vec![output],
        Positions::All | Positions::Positive => vec![output, positions(&pooling.spec)?],
    })
}

fn positions(spec: &PoolSpec) -> Result<u64> {
    bytes(ArgMax::of(spec).data_type(), elements(&spec.output())?)
}

fn depthwise_filter(spec: &ConvSpec) -> Result<u64> {
    tensor(spec.data_type, &[spec.taps(), spec.out_c])
}

/// The bytes of the whole, and of a number for each channel.
fn batch(spec: &BatchNormSpec) -> Result<(u64, u64)> {
    Ok((tensor(spec.data_type, &[spec.rows, spec.channels])?, tensor(DataType::Float, &[spec.channels])?))
}

/// The bytes of the result of an epilogue behind a normalization, and of its further operands, which are as large as y.
fn behind_norm(spec: &BatchNormSpec, Epilogue { expr, operands }: &Epilogue) -> Result<(u64, Vec<u64>)> {
    let all = elements(&[spec.rows, spec.channels])?;
    let (first, others) = expr.inputs().split_first().ok_or_else(|| inconsistent("an epilogue without operands"))?;
    let results = results_of(expr, all)?;
    let is_whole = |operand: &Vec<u64>| elements(operand).is_ok_and(|elements| elements == all);
    match results[..] {
        [result] if *first == spec.data_type && operands.iter().all(is_whole) => Ok((result, operands_of(others, operands)?)),
        _ => Err(inconsistent("an epilogue that does not fit its normalization")),
    }
}

/// The bytes of an element that is moved and not looked at.
fn size_of_element(element: usize) -> Result<u64> {
    match element {
        1 | 2 | 4 | 8 | 16 => Ok(element as u64),
        _ => Err(inconsistent("elements of an odd size")),
    }
}

fn without(shape: &[u64], axis: usize) -> Result<Vec<u64>> {
    if axis >= shape.len() {
        return Err(inconsistent("an axis that is not there"));
    }
    Ok([&shape[..axis], &shape[axis + 1..]].concat())
}

fn floats(shape: &[u64]) -> Result<u64> {
    tensor(DataType::Float, shape)
}

fn tensor(data_type: DataType, shape: &[u64]) -> Result<u64> {
    bytes(data_type, elements(shape)?)
}

fn bytes(data_type: DataType, elements: u64) -> Result<u64> {
    let bytes = data_type.bytes_of(elements).filter(|bytes| *bytes <= MOST);
    bytes.ok_or_else(|| Error::invalid_argument(format!("a request with {elements} elements of {data_type}")))
}

/// Elements of a shape. Dimensions beside one of 0 are bounded, too: kernels multiply them.
fn elements(shape: &[u64]) -> Result<u64> {
    let product = shape.iter().try_fold(1u64, |product, size| times(product, (*size).max(1)))?;
    Ok(if shape.contains(&0) { 0 } else { product })
}

fn times(a: u64, b: u64) -> Result<u64> {
    a.checked_mul(b).filter(|product| *product <= MOST).ok_or_else(too_large)
}

fn sum(sizes: &[u64]) -> Result<u64> {
    sizes.iter().try_fold(0u64, |sum, size| sum.checked_add(*size)).filter(|sum| *sum <= MOST).ok_or_else(too_large)
}

fn too_large() -> Error {
    inconsistent("sizes that no memory has")
}

fn inconsistent(what: &str) -> Error {
    Error::invalid_argument(format!("a request says {what}"))
}
