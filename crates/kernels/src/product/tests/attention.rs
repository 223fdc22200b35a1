//! Attention gives the bits of its parts one after the other.

use plimsoll_request::attention::Attention;

use super::*;
use crate::nn::softmax;

/// How what is between changes a score: not at all, or by a number. `Mask` adds an operand for each column of a group of heads, and
/// `Twice` reads the score again.
#[derive(Clone, Copy, Debug)]
enum Between {
    Nothing,
    Number,
    Mask,
    Twice,
}

fn between(between: Between, shape: &[u64]) -> Option<Epilogue> {
    let mut b = ExprBuilder::new();
    let mut score = b.input(DataType::Float).unwrap();
    let number = b.number(DataType::Float, 0.25).unwrap();
    let mut operands = Vec::new();
    match between {
        Between::Nothing => return None,
        Between::Number => score = b.binary(BinaryOp::Mul, score, number).unwrap(),
        Between::Mask | Between::Twice => {
            let mask = b.input(DataType::Float).unwrap();
            operands.push(vec![shape[0], 1, 1, shape[3]]);
            let scaled = b.binary(BinaryOp::Mul, score, number).unwrap();
            let masked = b.binary(BinaryOp::Add, scaled, mask).unwrap();
            score = if let Between::Twice = between { b.binary(BinaryOp::Sub, masked, score).unwrap() } else { masked };
        }
    }
    Some(Epilogue { expr: b.finish(vec![score]), operands })
}

/// Matrices of `rows` rows: dense, or as heads beside each other in rows.
fn place(heads: bool, [outer, inner]: [u64; 2], rows: u64, columns: u64) -> Place {
    match heads {
        true => Place { row: inner * columns, matrix: [0, 0, if outer > 1 { inner * columns * rows } else { 0 }, columns] },
        false => Place { row: columns, matrix: [0, 0, inner * rows * columns, rows * columns] },
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn attention_gives_the_bits_of_its_parts(
        batch in [1u64..4, 1u64..4],
        [m, n, k, columns] in [2u64..90, 2u64..150, 1u64..40, 2u64..40],
        heads in any::<[bool; 4]>(),
        adjoint in any::<[bool; 2]>(),
        changed in prop_oneof![Just(Between::Nothing), Just(Between::Number), Just(Between::Mask), Just(Between::Twice)],
        seed in any::<u64>(),
    ) {
        let shape = vec![batch[0], batch[1], m, n];
        let sizes = [1, 1, batch[0], batch[1]];
        let of = |transposed: bool, rows, columns, heads| place(heads, batch, if transposed { columns } else { rows }, if transposed { rows } else { columns });
        let scores = ProductSpec {
            m, n, k, transpose_a: adjoint[0], transpose_b: adjoint[1], batch: batch[0] * batch[1],
            places: Some(Places { sizes, a: of(adjoint[0], m, k, heads[0]), b: of(adjoint[1], k, n, heads[1]), c: place(false, batch, m, n) }),
        };
        let values = ProductSpec {
            m, n: columns, k: n, transpose_a: false, transpose_b: false, batch: scores.batch,
            places: Some(Places { sizes, a: place(false, batch, m, n), b: place(heads[2], batch, n, columns), c: place(heads[3], batch, m, columns) }),
        };
        let request = Attention { scores, shape: shape.clone(), between: between(changed, &shape), values };
        let all = request.check().unwrap() as usize;
        let [q, key, _] = scores.extents().unwrap();
        let [_, v, result] = values.extents().unwrap();
        let [q, key, v, mask] = [(q, 1), (key, 2), (v, 3), (batch[0] * n, 4)].map(|(count, salt)| testing::bytes(&numbers(count, seed ^ salt)));
        for isa in Isa::available() {
            let one = |prepared: &Prepared, inputs: &[&[u8]], size: usize| run(prepared, inputs, &[4 * size], &backwards(prepared), &[]).remove(0);
            let mut made = one(&product_on(isa, scores, None, Tuning::default()).unwrap(), &[&q, &key], all);
            let mut operands: Vec<&[u8]> = Vec::new();
            if let Some(Epilogue { expr, operands: shapes }) = &request.between {
                let shapes = [vec![shape.clone()], shapes.clone()].concat();
                if shapes.len() > 1 {
                    operands.push(&mask);
                }
                made = one(&elementwise_on(isa, expr, &shape, &shapes).unwrap(), &[&[&made[..]], &operands[..]].concat(), all);
            }
            let shares = one(&softmax(isa, DataType::Float, all as u64 / n, n).unwrap(), &[&made], all);
            let expected = one(&product_on(isa, values, None, Tuning::default()).unwrap(), &[&shares, &v], result as usize);
            let fused = crate::product::attention(isa, &request).unwrap();
            let inputs = [&[&q[..], &key[..]], &operands[..], &[&v[..]]].concat();
            prop_assert_eq!(expected, one(&fused, &inputs, result as usize), "{:?} {:?}", isa, &request);
        }
    }
}

#[test]
fn parts_that_do_not_fit_and_layers_are_refused() {
    let spec = |m, n, k| ProductSpec { m, n, k, transpose_a: false, transpose_b: false, batch: 2, places: None };
    let fits = Attention { scores: spec(4, 6, 3), shape: vec![2, 4, 6], between: None, values: spec(4, 5, 6) };
    assert!(fits.check().is_ok() && crate::product::attention(Isa::Portable, &fits).is_ok());
    for request in [
        Attention { shape: vec![4, 12], ..fits.clone() },
        Attention { values: spec(4, 5, 7), ..fits.clone() },
        Attention { values: ProductSpec { transpose_a: true, ..spec(4, 5, 6) }, ..fits.clone() },
        Attention { values: ProductSpec { batch: 3, ..spec(4, 5, 6) }, ..fits.clone() },
    ] {
        assert!(request.check().is_err() && crate::product::attention(Isa::Portable, &request).is_err(), "{request:?}");
    }
    // Two layers with a softmax between them, and attention of the same sizes.
    let layers = |transpose_b| Attention {
        scores: ProductSpec { batch: 1, transpose_b, ..spec(9, 80, 7) },
        shape: vec![9, 80],
        between: None,
        values: ProductSpec { batch: 1, ..spec(9, 70, 80) },
    };
    assert_eq!(crate::product::attention(Isa::best(), &layers(false)).unwrap_err().code(), Code::Unimplemented);
    assert!(crate::product::attention(Isa::best(), &layers(true)).is_ok());
}
