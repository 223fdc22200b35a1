//! Attention whose tensors lie by rows: as Einsum reads and writes them, and transposed.

use plimsoll_base::DataType;
use plimsoll_graph::{AttrValue, HostTensor, Output};
use plimsoll_request::scaled_attention::{Lies, ScaledAttention};

use super::{Making, count, found, narrowed, planned_of};

/// Examples, rows, heads and columns.
pub const SHAPE: [u64; 4] = [2, 16, 4, 8];

impl Making {
    pub fn einsum(&mut self, equation: &str, one: Output, other: Output) -> Output {
        self.g.op("Einsum").inputs([one, other]).attr("equation", AttrValue::text(equation)).build().unwrap()
    }

    pub fn transposed(&mut self, value: Output, perm: [i32; 4]) -> Output {
        let perm = self.g.constant(HostTensor::from_slice([4], &perm).unwrap()).build().unwrap();
        self.op("Transpose", &[value, perm])
    }
}

/// What is expected of tensors that lie so.
pub fn expected(sums: bool, lies: [Lies; 4]) -> ScaledAttention {
    let (rows, width, data_type, scale) = (16, 8, DataType::Bfloat16, 0.5);
    ScaledAttention {
        data_type,
        batch: 2,
        heads: 4,
        rows,
        keys: rows,
        width,
        value_width: width,
        scale,
        bias: None,
        kept: None,
        sums,
        lies,
    }
}

#[test]
fn products_of_einsum_are_attention_where_they_lie() {
    let by_rows = [Lies::ByRows; 4];
    let of_result = [Lies::ByRows, Lies::ByRows, Lies::ByRows, Lies::ByHeads];
    let of_values = [Lies::ByRows, Lies::ByRows, Lies::ByHeads, Lies::ByRows];
    for (scores, values, is_first, is_turned, lies) in [
        ("BTNH,BSNH->BNTS", "BNTS,BSNH->BTNH", true, false, by_rows),
        ("aecd,abcd->acbe", "acbe,aecd->abcd", false, false, by_rows),
        ("btnh,bsnh->bnts", "bnts,bsnh->bnth", true, false, of_result),
        ("btnh,bsnh->bnts", "bnts,bnsh->btnh", true, true, of_values),
    ] {
        for is_trained in [false, true] {
            let plan = planned_of(&SHAPE, is_trained, |m, [q, k, v]| {
                let v = if is_turned { m.transposed(v, [0, 2, 1, 3]) } else { v };
                let scores = if is_first { m.einsum(scores, q, k) } else { m.einsum(scores, k, q) };
                let scores = m.scaled(scores);
                let shares = m.op("Softmax", &[scores]);
                let shares = narrowed(m, shares);
                m.einsum(values, shares, v)
            });
            // A search for attention alone reads what was transposed before, too.
            let lies = if is_turned && !is_trained { by_rows } else { lies };
            let (forward, gradients) = found(&plan);
            assert_eq!((&forward[..], gradients), (&[expected(is_trained, lies)][..], usize::from(is_trained)), "{scores}, {values}");
        }
    }
}

/// As Keras writes it where shares may drop out: all products are of matrices, and scores have keys as rows first.
#[test]
fn tensors_are_read_before_and_written_behind_transpositions() {
    let by_rows = [Lies::ByRows; 4];
    let products = |m: &mut Making, [q, k, v]: [Output; 3], is_turned: bool| {
        let k = m.transposed(k, [0, 2, 1, 3]);
        let scores = if is_turned {
            let q = m.transposed(q, [0, 2, 3, 1]);
            let scores = m.product(k, q, false);
            m.transposed(scores, [0, 1, 3, 2])
        } else {
            let q = m.transposed(q, [0, 2, 1, 3]);
            m.product(q, k, true)
        };
        let scores = m.scaled(scores);
        let shares = m.op("Softmax", &[scores]);
        let (shares, v) = (narrowed(m, shares), m.transposed(v, [0, 2, 1, 3]));
        let result = m.product(shares, v, false);
        m.transposed(result, [0, 2, 1, 3])
    };
    for is_turned in [false, true] {
        let plan = planned_of(&SHAPE, false, |m, operands| products(m, operands, is_turned));
        assert_eq!(found(&plan), (vec![expected(false, by_rows)], 0));
        assert!(!plan.to_string().contains("Transpose"), "{plan}");
    }
    // With its gradient attention is that of the transposed tensors.
    let plan = planned_of(&SHAPE, true, |m, operands| products(m, operands, false));
    assert_eq!(found(&plan), (vec![expected(true, [Lies::ByHeads; 4])], 1));
    // Where scores have keys as rows first, Q is read before it is transposed, and the gradient by it is written behind that.
    let plan = planned_of(&SHAPE, true, |m, operands| products(m, operands, true));
    let lies = [Lies::ByRows, Lies::ByHeads, Lies::ByHeads, Lies::ByHeads];
    assert_eq!(found(&plan), (vec![expected(true, lies)], 1));
}

#[test]
fn other_products_stay() {
    let attention = |m: &mut Making, equations: [&str; 2], [q, k, v]: [Output; 3], perm: Option<[i32; 4]>| {
        let scores = m.einsum(equations[0], q, k);
        let scores = m.scaled(scores);
        let scores = perm.map_or(scores, |perm| m.transposed(scores, perm));
        let shares = m.op("Softmax", &[scores]);
        let shares = perm.map_or(shares, |perm| m.transposed(shares, perm));
        let shares = narrowed(m, shares);
        m.einsum(equations[1], shares, v)
    };
    for (what, equations, perm) in [
        ("shares along rows", ["btnh,bsnh->bnst", "bnst,bsnh->btnh"], None),
        ("shares along rows, transposed", ["btnh,bsnh->bnts", "bnts,bsnh->btnh"], Some([0, 1, 3, 2])),
        ("shares along heads", ["btnh,bsnh->btsn", "btsn,bsnh->btnh"], None),
        ("heads and examples exchanged", ["btnh,bsnh->nbts", "nbts,bsnh->btnh"], None),
    ] {
        for is_trained in [false, true] {
            let plan = planned_of(&SHAPE, is_trained, |m, operands| attention(m, equations, operands, perm));
            assert_eq!(count(&plan), (0, 0), "{what}, trained {is_trained}");
        }
    }
}
