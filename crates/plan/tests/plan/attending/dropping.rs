//! Attention whose shares drop out: with its gradient one work that multiplies shares, and one that reads the same tensor.

use plimsoll_base::DataType;
use plimsoll_graph::Output;
use plimsoll_request::scaled_attention::{KeptShares, Lies, ScaledAttention, ScoreBias};

use super::lying::{SHAPE, expected};
use super::{Making, count, found, narrowed, planned_of};

/// What is done to shares.
type Behind = fn(&mut Making, Output) -> Output;

impl Making {
    fn times(&mut self, value: Output, number: f32) -> Output {
        let (of, number) = (self.g.data_type(value), self.number(number));
        let number = if of == DataType::Float { number } else { self.cast(number, of) };
        self.op("Mul", &[value, number])
    }
}

/// Attention of floats between the products, of heads first.
fn attention(m: &mut Making, [q, k, v]: [Output; 3], behind: Behind) -> Output {
    let [q, k, v] = [q, k, v].map(|value| m.transposed(value, [0, 2, 1, 3]));
    let scores = m.product(q, k, true);
    let scores = m.scaled(scores);
    let shares = m.op("Softmax", &[scores]);
    let shares = behind(m, shares);
    m.product(shares, v, false)
}

fn kept(data_type: DataType, sizes: [u64; 4], factor: f32) -> ScaledAttention {
    ScaledAttention { kept: Some(KeptShares { data_type, sizes, factor }), ..expected(true, [Lies::ByHeads; 4]) }
}

#[test]
fn shares_drop_out_by_a_condition_or_a_tensor() {
    use DataType::{Bfloat16, Float};
    let all = [2, 4, 16, 16];
    let cases: [(&str, Behind, ScaledAttention); 7] = [
        (
            "multiplied, chosen, cast",
            |m, shares| {
                let (stays, shares) = (m.condition("stays", &[2, 4, 16, 16]), m.times(shares, 1.25));
                let shares = m.chosen(stays, shares, 0.0);
                narrowed(m, shares)
            },
            kept(Bfloat16, all, 1.25),
        ),
        (
            "cast, chosen, multiplied",
            |m, shares| {
                let (stays, shares) = (m.condition("stays", &[2, 4, 16, 16]), narrowed(m, shares));
                let shares = m.chosen(stays, shares, 0.0);
                m.times(shares, 1.5)
            },
            kept(Bfloat16, all, 1.5),
        ),
        (
            "chosen for all heads at once",
            |m, shares| {
                let stays = m.condition("stays", &[2, 1, 16, 16]);
                let shares = m.chosen(stays, shares, 0.0);
                narrowed(m, shares)
            },
            kept(Bfloat16, [2, 1, 16, 16], 1.0),
        ),
        (
            "chosen for keys alone",
            |m, shares| {
                let (stays, shares) = (m.condition("stays", &[16]), m.times(shares, 1.25));
                let shares = m.chosen(stays, shares, 0.0);
                narrowed(m, shares)
            },
            kept(Bfloat16, [1, 1, 1, 16], 1.25),
        ),
        (
            "by a condition as floats",
            |m, shares| {
                let stays = m.condition("stays", &[2, 4, 16, 16]);
                let (stays, shares) = (m.cast(stays, DataType::Float), m.times(shares, 2.0));
                let shares = m.op("Mul", &[shares, stays]);
                narrowed(m, shares)
            },
            kept(Bfloat16, all, 2.0),
        ),
        (
            "by a tensor of floats",
            |m, shares| {
                let stays = m.fed("stays", &[2, 4, 16, 16]);
                let shares = m.op("Mul", &[stays, shares]);
                narrowed(m, shares)
            },
            kept(Float, all, 1.0),
        ),
        (
            "by a tensor of narrow floats",
            |m, shares| {
                let stays = m.fed("stays", &[2, 4, 16, 16]);
                let (stays, shares) = (narrowed(m, stays), narrowed(m, shares));
                m.op("Mul", &[shares, stays])
            },
            kept(Bfloat16, all, 1.0),
        ),
    ];
    for (what, behind, of) in cases {
        let plan = planned_of(&SHAPE, true, |m, operands| attention(m, operands, behind));
        assert_eq!(found(&plan), (vec![of], 1), "{what}");
        // Alone, no engine has it.
        assert_eq!(count(&planned_of(&SHAPE, false, |m, operands| attention(m, operands, behind))), (0, 0), "{what}");
    }
}

/// As Keras writes it: scores have keys as rows, shares of hidden scores are zeros, and of the others some drop out.
#[test]
fn shares_drop_out_beside_hidden_scores() {
    let build = |m: &mut Making, [q, k, v]: [Output; 3], of_shares: Option<&str>| {
        let (q, k, v) = (m.transposed(q, [0, 2, 3, 1]), m.transposed(k, [0, 2, 1, 3]), m.transposed(v, [0, 2, 1, 3]));
        let condition = m.condition("mask", &[2, 1, 1, 16]);
        let scores = m.product(k, q, false);
        let scores = m.transposed(scores, [0, 1, 3, 2]);
        let scores = m.chosen(condition, scores, -1e9);
        let shares = m.op("Softmax", &[scores]);
        let of_shares = of_shares.map_or(condition, |name| m.condition(name, &[2, 1, 1, 16]));
        let shares = m.chosen(of_shares, shares, 0.0);
        let (stays, shares) = (m.condition("stays", &[2, 4, 16, 16]), m.times(shares, 1.109375));
        let shares = m.chosen(stays, shares, 0.0);
        let result = m.product(shares, v, false);
        m.transposed(result, [0, 2, 1, 3])
    };
    let plan = planned_of(&SHAPE, true, |m, operands| build(m, operands, None));
    let of = ScaledAttention {
        scale: 1.0,
        bias: Some(ScoreBias { data_type: DataType::Float, sizes: [2, 1, 1, 16] }),
        lies: [Lies::ByRows, Lies::ByHeads, Lies::ByHeads, Lies::ByHeads],
        ..kept(DataType::Bfloat16, [2, 4, 16, 16], 1.109375)
    };
    assert_eq!(found(&plan), (vec![of], 1));
    // Shares that drop out twice.
    assert_eq!(count(&planned_of(&SHAPE, true, |m, operands| build(m, operands, Some("other")))), (0, 0));
}

#[test]
fn what_else_is_done_to_shares_stays() {
    let other: [(&str, Behind); 5] = [
        ("a number alone", |m, shares| {
            let shares = m.times(shares, 2.0);
            narrowed(m, shares)
        }),
        ("another number than zero", |m, shares| {
            let stays = m.condition("stays", &[2, 4, 16, 16]);
            let shares = m.chosen(stays, shares, 0.5);
            narrowed(m, shares)
        }),
        ("two tensors", |m, shares| {
            let (one, other) = (m.fed("one", &[2, 4, 16, 16]), m.fed("other", &[2, 4, 16, 16]));
            let shares = m.op("Mul", &[shares, one]);
            let shares = m.op("Mul", &[shares, other]);
            narrowed(m, shares)
        }),
        ("a tensor whose gradient is wanted", |m, shares| {
            let stays = m.fed("stays", &[2, 4, 16, 16]);
            m.wanted.push(stays);
            let shares = m.op("Mul", &[shares, stays]);
            narrowed(m, shares)
        }),
        ("shares of a condition's own", |m, shares| {
            let (half, stays) = (m.number(0.5), m.op("Square", &[shares]));
            let stays = m.op("Less", &[stays, half]);
            let shares = m.chosen(stays, shares, 0.0);
            narrowed(m, shares)
        }),
    ];
    for (what, behind) in other {
        assert_eq!(count(&planned_of(&SHAPE, true, |m, operands| attention(m, operands, behind))), (0, 0), "{what}");
    }
}
