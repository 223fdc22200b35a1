//! Attention by cuDNN and its gradient against sums of doubles: on a mock card with the mock cuDNN, and on the card that `bench/gpu/check.sh` checks.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use plimsoll_base::{Bf16, DataType, F16, Result};
use plimsoll_cards::CudnnMode;
use plimsoll_device::{DeviceSpec, KernelCall, Library, Variant};
use plimsoll_device_cuda::emit::Emitted;
use plimsoll_device_cuda::{CudaSource, EngineLimits, EngineName, any_card};
use plimsoll_request::KernelRequest;
use plimsoll_request::scaled_attention::{KeptShares, Lies, ScaledAttention, ScoreBias};

use super::card::Card;
use super::cases::Near;
use super::cudnn::card;
use super::engines::Run;
use super::making::Making;

/// A tensor of four axes.
struct Tensor {
    sizes: [usize; 4],
    values: Vec<f64>,
}

fn rounded(data_type: DataType, value: f64) -> f64 {
    match data_type {
        DataType::Half => F16::from_f32(value as f32).to_f32().into(),
        DataType::Bfloat16 => Bf16::from_f32(value as f32).to_f32().into(),
        _ => f64::from(value as f32),
    }
}

impl Tensor {
    fn new(sizes: [u64; 4], value: impl FnMut(usize) -> f64) -> Tensor {
        let sizes = sizes.map(|size| size as usize);
        Tensor { sizes, values: (0..sizes.iter().product()).map(value).collect() }
    }

    /// Numbers between -2 and 2.
    fn drawn(making: &mut Making, sizes: [u64; 4]) -> Tensor {
        Tensor::new(sizes, |_| (making.below(65) as f64 - 32.0) / 16.0)
    }

    fn at(&self, at: [usize; 4]) -> f64 {
        let along = |place: usize, axis: usize| place * self.sizes[axis] + if self.sizes[axis] == 1 { 0 } else { at[axis] };
        self.values[(0..4).fold(0, along)]
    }

    /// The same elements in the order in which they lie.
    fn lying(self, lies: Lies) -> Tensor {
        let Tensor { sizes: [batch, heads, rows, columns], .. } = self;
        let sizes = match lies {
            Lies::ByHeads => return self,
            Lies::ByRows => [batch, rows, heads, columns],
        };
        let place = |at: usize| [at / (rows * heads * columns), at / columns % heads, at / (heads * columns) % rows, at % columns];
        Tensor { sizes, values: (0..self.values.len()).map(|at| self.at(place(at))).collect() }
    }

    fn bytes(&self, data_type: DataType) -> Vec<u8> {
        let bytes = |value: &f64| match data_type {
            DataType::Half => F16::from_f32(*value as f32).to_bits().to_le_bytes().to_vec(),
            DataType::Bfloat16 => Bf16::from_f32(*value as f32).to_bits().to_le_bytes().to_vec(),
            _ => (*value as f32).to_le_bytes().to_vec(),
        };
        self.values.iter().flat_map(bytes).collect()
    }
}

/// `sum of a[row, i] b[i, column]` for each matrix.
fn product(rows: u64, terms: u64, columns: u64, [x, y]: [u64; 2], term: impl Fn([usize; 2], usize, usize, usize) -> f64) -> Tensor {
    let at = |place: usize| {
        let (column, rest) = (place % columns as usize, place / columns as usize);
        let (row, matrix) = (rest % rows as usize, rest / rows as usize);
        ([matrix / y as usize, matrix % y as usize], row, column)
    };
    Tensor::new([x, y, rows, columns], |place| {
        let (matrix, row, column) = at(place);
        (0..terms as usize).map(|i| term(matrix, row, i, column)).sum()
    })
}

/// All that is computed, in doubles; shares and gradients by scores are rounded before products, as engines round them.
struct Computed {
    inputs: Vec<Vec<u8>>,
    result: Tensor,
    sums: Tensor,
    gradients: Vec<Tensor>,
    of: Tensor,
}

fn computed(making: &mut Making, of: &ScaledAttention) -> Computed {
    let ScaledAttention { data_type, batch, heads, rows, keys, width, value_width, scale, bias, .. } = *of;
    let [q, k, v, gradient] = of.sizes().map(|sizes| Tensor::drawn(making, sizes));
    // A mask hides some keys, but never the first.
    let bias = bias.map(|ScoreBias { data_type, sizes }| {
        let mut bias = Tensor::drawn(making, sizes);
        let columns = bias.sizes[3];
        let hides = |place: usize| !place.is_multiple_of(columns) && place.is_multiple_of(3);
        bias.values.iter_mut().enumerate().filter(|(place, _)| hides(*place)).for_each(|(_, value)| *value = rounded(data_type, -1e4));
        (data_type, bias)
    });
    // Of conditions there are ones and zeros.
    let kept = of.kept.map(|KeptShares { data_type: own, sizes, factor }| {
        let ones = Tensor::new(sizes, |_| if making.below(4) == 0 { 0.0 } else { 1.0 });
        (own, if own == data_type { ones } else { Tensor::drawn(making, sizes) }, f64::from(factor))
    });
    let all = [batch, heads];
    let at = |tensor: &Tensor, [x, y]: [usize; 2], row, column| tensor.at([x, y, row, column]);
    let mut scores = product(rows, width, keys, all, |m, row, i, key| at(&q, m, row, i) * at(&k, m, key, i));
    let sizes = scores.sizes;
    for (place, score) in scores.values.iter_mut().enumerate() {
        let (key, row) = (place % sizes[3], place / sizes[3] % sizes[2]);
        let matrix = place / sizes[3] / sizes[2];
        *score *= f64::from(scale);
        *score += bias.as_ref().map_or(0.0, |(_, bias)| bias.at([matrix / sizes[1], matrix % sizes[1], row, key]));
    }
    let row_of = |matrix: [usize; 2], row: usize| (0..keys as usize).map(move |key| (matrix, row, key));
    let sums = product(rows, 1, 1, all, |m, row, _, _| {
        let most = row_of(m, row).map(|(m, row, key)| at(&scores, m, row, key)).fold(f64::NEG_INFINITY, f64::max);
        most + row_of(m, row).map(|(m, row, key)| (at(&scores, m, row, key) - most).exp()).sum::<f64>().ln()
    });
    let shares = product(rows, 1, keys, all, |m, row, _, key| (at(&scores, m, row, key) - at(&sums, m, row, 0)).exp());
    let round = |value| rounded(data_type, value);
    let stays = |m, row, key| kept.as_ref().map_or(1.0, |(_, kept, factor)| at(kept, m, row, key) * factor);
    let weights = product(rows, 1, keys, all, |m, row, _, key| round(at(&shares, m, row, key) * stays(m, row, key)));
    let result = product(rows, keys, value_width, all, |m, row, key, column| at(&weights, m, row, key) * at(&v, m, key, column));
    let by_v = product(keys, rows, value_width, all, |m, key, row, column| at(&weights, m, row, key) * at(&gradient, m, row, column));
    let by_weights = product(rows, value_width, keys, all, |m, row, i, key| at(&gradient, m, row, i) * at(&v, m, key, i));
    let by_shares = product(rows, 1, keys, all, |m, row, _, key| at(&by_weights, m, row, key) * stays(m, row, key));
    let of_rows = product(rows, value_width, 1, all, |m, row, i, _| at(&gradient, m, row, i) * round(at(&result, m, row, i)));
    let by_scores = product(rows, 1, keys, all, |m, row, _, key| {
        round(at(&shares, m, row, key) * (at(&by_shares, m, row, key) - at(&of_rows, m, row, 0)) * f64::from(scale))
    });
    let by_q = product(rows, keys, width, all, |m, row, key, column| at(&by_scores, m, row, key) * at(&k, m, key, column));
    let by_k = product(keys, rows, width, all, |m, key, row, column| at(&by_scores, m, row, key) * at(&q, m, row, column));
    let [of_q, of_k, of_v, of_result] = of.lies;
    let lying = [(q, of_q), (k, of_k), (v, of_v)].map(|(tensor, lies)| tensor.lying(lies));
    let mut inputs: Vec<Vec<u8>> = lying.iter().map(|tensor| tensor.bytes(data_type)).collect();
    inputs.extend(bias.iter().map(|(data_type, bias)| bias.bytes(*data_type)));
    inputs.extend(kept.iter().map(|(data_type, kept, _)| kept.bytes(*data_type)));
    let gradients = vec![by_q.lying(of_q), by_k.lying(of_k), by_v.lying(of_v)];
    Computed { inputs, result: result.lying(of_result), sums, gradients, of: gradient.lying(of_result) }
}

/// Attention of these sizes, whose bias, if any, is of that type and has the axes that are said.
fn attention(data_type: DataType, sizes: [u64; 6], bias: Option<(DataType, [bool; 4])>) -> ScaledAttention {
    let [batch, heads, rows, keys, width, value_width] = sizes;
    let scores = [batch, heads, rows, keys];
    let bias =
        bias.map(|(data_type, has)| ScoreBias { data_type, sizes: std::array::from_fn(|axis| if has[axis] { scores[axis] } else { 1 }) });
    let scale = (width as f32).sqrt().recip();
    ScaledAttention {
        data_type,
        batch,
        heads,
        rows,
        keys,
        width,
        value_width,
        scale,
        bias,
        kept: None,
        sums: false,
        lies: [Lies::ByHeads; 4],
    }
}

/// The same, of which shares drop out by a tensor of that type with the axes that are said.
fn dropping(of: ScaledAttention, data_type: DataType, has: [bool; 4]) -> ScaledAttention {
    let scores = of.scores();
    let sizes = std::array::from_fn(|axis| if has[axis] { scores[axis] } else { 1 });
    ScaledAttention { kept: Some(KeptShares { data_type, sizes, factor: 1.25 }), sums: true, ..of }
}

/// All of uneven lengths, of one head and of many, of one row, with every form of a bias, and with tensors that lie by heads and by rows.
fn attentions() -> Vec<ScaledAttention> {
    use DataType::{Bfloat16, Float, Half};
    let causal = [false, false, true, true];
    vec![
        attention(Bfloat16, [2, 3, 16, 16, 8, 8], None),
        attention(Bfloat16, [2, 2, 7, 13, 16, 16], Some((Float, causal))),
        attention(Half, [1, 1, 33, 5, 24, 24], None),
        attention(Half, [3, 1, 12, 19, 8, 8], Some((Half, [true, false, false, true]))),
        attention(Bfloat16, [2, 2, 1, 9, 8, 8], Some((Bfloat16, [false, true, false, true]))),
        attention(Bfloat16, [2, 2, 40, 3, 32, 32], Some((Float, [true; 4]))),
        attention(Half, [1, 4, 20, 20, 64, 64], Some((Float, [true, false, true, true]))),
        ScaledAttention { lies: [Lies::ByRows; 4], ..attention(Bfloat16, [2, 3, 7, 13, 8, 16], Some((Float, [true, false, true, true]))) },
        ScaledAttention { lies: [Lies::ByRows; 4], ..attention(Half, [3, 2, 9, 6, 16, 8], Some((Float, [true, false, false, true]))) },
        ScaledAttention {
            lies: [Lies::ByRows, Lies::ByHeads, Lies::ByHeads, Lies::ByRows],
            ..attention(Bfloat16, [2, 4, 11, 5, 8, 8], None)
        },
        ScaledAttention {
            lies: [Lies::ByHeads, Lies::ByRows, Lies::ByRows, Lies::ByHeads],
            ..attention(Half, [2, 2, 5, 17, 8, 24], Some((Half, [false, true, true, true])))
        },
        dropping(attention(Bfloat16, [2, 3, 16, 16, 8, 8], None), Bfloat16, [true; 4]),
        dropping(attention(Half, [1, 2, 7, 13, 24, 16], Some((Float, causal))), Half, [true; 4]),
        dropping(attention(Bfloat16, [2, 2, 20, 9, 16, 16], Some((Float, [true, false, false, true]))), Float, [true, false, true, true]),
        ScaledAttention {
            lies: [Lies::ByRows, Lies::ByHeads, Lies::ByHeads, Lies::ByRows],
            ..dropping(attention(Bfloat16, [2, 4, 11, 5, 8, 8], None), Bfloat16, [true, true, false, true])
        },
    ]
}

#[test]
fn attention_by_cudnn_is_that_of_doubles() {
    let Some((card, machine)) = card("attention") else { return };
    let library = card.library(EngineLimits::default(), CudnnMode::Always, None);
    let on = Card::on(&card, library.clone());
    let mut making = Making::new(43);
    let mut tried = [0; 2];
    for of in attentions() {
        let Computed { inputs, result, sums, gradients, of: gradient } = computed(&mut making, &of);
        let with_sums = ScaledAttention { sums: true, ..of };
        let (data_type, drops) = (of.data_type, of.kept.is_some());
        let forward = |of, near| {
            let (mut types, mut expected) = (vec![data_type], vec![result.bytes(data_type)]);
            if with_sums == of {
                types.push(DataType::Float);
                expected.push(sums.bytes(DataType::Float));
            }
            (KernelRequest::ScaledAttention(of), inputs.clone(), types, expected, near)
        };
        let mut read = inputs.clone();
        read.extend([result.bytes(data_type), sums.bytes(DataType::Float), gradient.bytes(data_type)]);
        let made = gradients.iter().map(|gradient| gradient.bytes(data_type)).collect();
        // Logarithms are floats: of them many more units are few.
        let runs = [
            forward(of, Near::Of(1.0, 2.0)),
            forward(with_sums, Near::Of(4.0, 32.0)),
            (KernelRequest::ScaledAttentionGrad(with_sums), read, vec![data_type; 3], made, Near::Of(2.0, 3.0)),
        ];
        // Where shares drop out logarithms are always a result.
        for (at, (request, inputs, types, expected, near)) in runs.into_iter().enumerate().skip(usize::from(drops)) {
            let variants = match library.variants(&any_card(), &request) {
                Ok(variants) => variants,
                // An engine that cuDNN compiles need not be there on the card that is checked.
                Err(why) => {
                    assert!(machine.is_none(), "{request:?}: {why}");
                    continue;
                }
            };
            let [variant] = &variants[..] else { panic!("{variants:?}") };
            let name: EngineName = variant.name.parse().unwrap();
            assert!(library.has(&any_card(), &request, variant).unwrap(), "{name}");
            tried[usize::from(at == 2)] += 1;
            let run = Run {
                name: format!("{request:?} by {name}"),
                emitted: Emitted::default(),
                outputs: expected.iter().map(Vec::len).collect(),
                input_types: vec![data_type; inputs.len()],
                in_place: None,
                expected: Ok(expected),
                request,
                inputs,
                types,
                near,
            };
            on.compare_by(&run, variant.clone());
        }
    }
    assert!(machine.is_none() || tried == [26, 15], "{tried:?}");
    // Columns that are no words of 16 bytes, and nothing at all, have no engine; nor has a card without cuDNN.
    for other in [attention(DataType::Half, [1, 1, 8, 8, 12, 12], None), attention(DataType::Half, [1, 0, 8, 8, 8, 8], None)] {
        for request in [KernelRequest::ScaledAttention(other), KernelRequest::ScaledAttentionGrad(ScaledAttention { sums: true, ..other })]
        {
            let why = library.variants(&any_card(), &request).unwrap_err();
            assert_eq!(why.message(), "attention for which cuDNN has no engine");
        }
    }
    drop((on, card));
    machine.iter().for_each(|machine| assert_eq!(machine.used(0), 0));
}

/// An engine that adds in any order is none that plans may name.
#[test]
fn gradients_that_add_in_any_order_are_refused() {
    let Some((card, machine)) = card("attention-order") else { return };
    let library = card.library(EngineLimits::default(), CudnnMode::Always, None);
    let of = ScaledAttention { sums: true, ..attention(DataType::Bfloat16, [2, 3, 16, 16, 8, 8], None) };
    let request = KernelRequest::ScaledAttentionGrad(of);
    let Ok(variants) = library.variants(&any_card(), &request) else { return assert!(machine.is_none()) };
    let name: EngineName = variants[0].name.parse().unwrap();
    assert!(name.knobs.contains(&(14, 4)), "{name}");
    // Scratch: workspace, each row's sum of products, and sums for the gradient by Q.
    let scratch = [name.workspace.0, 4 * 2 * 3 * 16, 4 * 2 * 3 * 16 * 8].iter().map(|bytes| bytes.next_multiple_of(256)).sum::<u64>();
    assert_eq!(variants[0].steps[0].scratch, scratch);
    let any = EngineName { knobs: name.knobs.iter().copied().filter(|knob| knob.0 != 14).collect(), ..name };
    let mut plan = variants[0].clone();
    (plan.name, plan.numerics) = (any.to_string().into(), any.to_string().into());
    let on = Card::on(&card, library.clone());
    let Computed { inputs, result, sums, of: gradient, .. } = computed(&mut Making::new(47), &of);
    let inputs: Vec<Vec<u8>> =
        inputs.into_iter().chain([result.bytes(of.data_type), sums.bytes(DataType::Float), gradient.bytes(of.data_type)]).collect();
    let run = Run {
        name: "any order".to_string(),
        emitted: Emitted::default(),
        outputs: inputs[..3].iter().map(Vec::len).collect(),
        expected: Ok(Vec::new()),
        types: vec![of.data_type; 3],
        near: Near::Exact,
        input_types: vec![of.data_type; inputs.len()],
        in_place: None,
        request,
        inputs,
    };
    let said = catch_unwind(AssertUnwindSafe(|| on.compare_by(&run, plan))).unwrap_err();
    let why = said.downcast::<String>().expect("a text");
    assert!(why.contains("its bits are others each time"), "{why}");
    drop((on, card));
    machine.iter().for_each(|machine| assert_eq!(machine.used(0), 0));
}

/// A library that exchanges two tensors of a graph.
#[derive(Debug)]
struct Exchanged(Arc<dyn CudaSource>, [usize; 2]);

impl Library for Exchanged {
    fn variants(&self, spec: &DeviceSpec, request: &KernelRequest) -> Result<Vec<Variant>> {
        self.0.variants(spec, request)
    }

    fn has(&self, spec: &DeviceSpec, request: &KernelRequest, variant: &Variant) -> Result<bool> {
        self.0.has(spec, request, variant)
    }
}

impl CudaSource for Exchanged {
    fn emitted(&self, request: &KernelRequest) -> Result<Emitted> {
        self.0.emitted(request)
    }

    fn code(&self, call: &KernelCall) -> Result<Emitted> {
        let mut emitted = self.0.code(call)?;
        if let Some(graph) = &mut emitted.convolution {
            graph.tensors.swap(self.1[0], self.1[1]);
        }
        Ok(emitted)
    }
}

/// Planted faults: of a gradient two inputs, two results, or an input and scratch are exchanged.
#[test]
fn tensors_in_another_order_are_noticed() {
    if std::env::var_os("PLIMSOLL_CHECK").is_some() {
        return;
    }
    let Some((card, machine)) = card("attention-planted") else { return };
    let of = ScaledAttention { sums: true, ..attention(DataType::Bfloat16, [2, 2, 16, 16, 8, 8], None) };
    let Computed { inputs, result, sums, gradients, of: gradient } = computed(&mut Making::new(53), &of);
    let inputs: Vec<Vec<u8>> =
        inputs.into_iter().chain([result.bytes(of.data_type), sums.bytes(DataType::Float), gradient.bytes(of.data_type)]).collect();
    let expected: Vec<Vec<u8>> = gradients.iter().map(|gradient| gradient.bytes(of.data_type)).collect();
    let request = KernelRequest::ScaledAttentionGrad(of);
    for (pair, is_noticed) in [([0, 0], false), ([0, 1], true), ([1, 2], true), ([3, 5], true), ([6, 7], true), ([7, 8], true)] {
        let library = Arc::new(Exchanged(card.library(EngineLimits::default(), CudnnMode::Always, None), pair));
        let variant = library.variants(&any_card(), &request).unwrap().remove(0);
        let run = Run {
            name: format!("tensors {pair:?}"),
            request: request.clone(),
            emitted: Emitted::default(),
            inputs: inputs.clone(),
            outputs: expected.iter().map(Vec::len).collect(),
            expected: Ok(expected.clone()),
            types: vec![of.data_type; 3],
            near: Near::Of(2.0, 3.0),
            input_types: vec![of.data_type; inputs.len()],
            in_place: None,
        };
        let on = Card::on(&card, library);
        let said = catch_unwind(AssertUnwindSafe(|| on.compare_by(&run, variant)));
        assert_eq!(said.is_err(), is_noticed, "tensors {pair:?}");
    }
    drop(card);
    machine.iter().for_each(|machine| assert_eq!(machine.used(0), 0));
}
