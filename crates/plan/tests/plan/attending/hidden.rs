//! Attention of which a condition hides scores, as Keras' masks do.

use plimsoll_base::DataType;
use plimsoll_graph::{HostTensor, Output};
use plimsoll_request::scaled_attention::{Lies, ScaledAttention, ScoreBias};

use super::lying::{SHAPE, expected};
use super::{Making, count, found, narrowed, planned_of};

impl Making {
    /// A condition that is fed, as whether numbers are above zero.
    pub fn condition(&mut self, name: &str, shape: &[u64]) -> Output {
        let (fed, zero) = (self.fed(name, shape), self.number(0.0));
        self.op("Greater", &[fed, zero])
    }

    /// `value` where the condition holds.
    pub fn chosen(&mut self, condition: Output, value: Output, otherwise: f32) -> Output {
        let of = self.g.data_type(value);
        let (number, from) = (self.number(otherwise), DataType::Float);
        let number = if of == from { number } else { self.cast(number, of) };
        self.op("SelectV2", &[condition, value, number])
    }
}

/// Attention with something between, and something behind the softmax.
fn attention(m: &mut Making, [q, k, v]: [Output; 3], between: impl FnOnce(&mut Making, Output) -> Output) -> Output {
    let scores = m.einsum("BTNH,BSNH->BNTS", q, k);
    let scores = m.scaled(scores);
    let scores = between(m, scores);
    let shares = m.op("Softmax", &[scores]);
    let shares = narrowed(m, shares);
    m.einsum("BNTS,BSNH->BTNH", shares, v)
}

fn masked(sums: bool, sizes: [u64; 4]) -> ScaledAttention {
    ScaledAttention { bias: Some(ScoreBias { data_type: DataType::Float, sizes }), ..expected(sums, [Lies::ByRows; 4]) }
}

#[test]
fn hidden_scores_are_a_number_that_is_added() {
    for (shapes, sizes) in [
        (&[&[2, 1, 1, 16][..]][..], [2, 1, 1, 16]),
        (&[&[16, 16]], [1, 1, 16, 16]),
        (&[&[2, 1, 16, 16]], [2, 1, 16, 16]),
        (&[&[2, 4, 1, 16]], [2, 4, 1, 16]),
        (&[&[2, 1, 1, 16], &[16, 16]], [2, 1, 16, 16]),
        (&[&[2, 1, 1, 16], &[2, 1, 16, 1], &[16, 16]], [2, 1, 16, 16]),
    ] {
        for is_trained in [false, true] {
            let plan = planned_of(&SHAPE, is_trained, |m, operands| {
                attention(m, operands, |m, scores| {
                    // As TensorFlow's backend of Keras has it: all is seen, and then less.
                    let (truth, all) =
                        (HostTensor::from_bools([0u64; 0], &[true]).unwrap(), HostTensor::from_slice([4], &[2i32, 4, 16, 16]).unwrap());
                    let (truth, all) = (m.g.constant(truth).build().unwrap(), m.g.constant(all).build().unwrap());
                    let mut condition = m.op("Fill", &[all, truth]);
                    for (number, shape) in shapes.iter().enumerate() {
                        let one = m.condition(&format!("mask{number}"), shape);
                        condition = m.op("LogicalAnd", &[condition, one]);
                    }
                    m.chosen(condition, scores, -2.4e38)
                })
            });
            assert_eq!(found(&plan), (vec![masked(is_trained, sizes)], usize::from(is_trained)), "{shapes:?}");
        }
    }
}

/// Where shares may drop out, Keras has zeros for hidden ones, so that a row of which all are hidden is zeros.
#[test]
fn shares_of_hidden_scores_may_be_zeros() {
    let build = |m: &mut Making, [q, k, v]: [Output; 3], other: Option<&str>| {
        let (q, k, v) = (m.transposed(q, [0, 2, 1, 3]), m.transposed(k, [0, 2, 1, 3]), m.transposed(v, [0, 2, 1, 3]));
        let condition = m.condition("mask", &[2, 1, 1, 16]);
        let scores = m.product(q, k, true);
        let scores = m.scaled(scores);
        let scores = narrowed(m, scores);
        let scores = m.chosen(condition, scores, -1e9);
        let shares = m.op("Softmax", &[scores]);
        let of_shares = other.map_or(condition, |name| m.condition(name, &[2, 1, 1, 16]));
        let shares = m.chosen(of_shares, shares, 0.0);
        let result = m.product(shares, v, false);
        m.transposed(result, [0, 2, 1, 3])
    };
    let plan = planned_of(&SHAPE, false, |m, operands| build(m, operands, None));
    assert_eq!(found(&plan), (vec![masked(false, [2, 1, 1, 16])], 0));
    // With its gradient, which such rows have none of.
    let plan = planned_of(&SHAPE, true, |m, operands| build(m, operands, None));
    let of = ScaledAttention { lies: [Lies::ByHeads; 4], ..masked(true, [2, 1, 1, 16]) };
    assert_eq!(found(&plan), (vec![of], 1));
    // Another condition behind the softmax: by that shares drop out.
    assert_eq!(count(&planned_of(&SHAPE, false, |m, operands| build(m, operands, Some("other")))), (0, 0));
}

/// A change of scores.
type Between = fn(&mut Making, Output) -> Output;

#[test]
fn other_conditions_stay() {
    let other: [(&str, Between); 10] = [
        ("minus infinity", |m, scores| {
            let condition = m.condition("mask", &[2, 1, 1, 16]);
            m.chosen(condition, scores, f32::NEG_INFINITY)
        }),
        ("a number that is not low", |m, scores| {
            let condition = m.condition("mask", &[2, 1, 1, 16]);
            m.chosen(condition, scores, -1e4)
        }),
        ("hidden where it holds", |m, scores| {
            let (condition, low) = (m.condition("mask", &[2, 1, 1, 16]), m.number(-1e9));
            m.op("SelectV2", &[condition, low, scores])
        }),
        ("a tensor in their place", |m, scores| {
            let (condition, low) = (m.condition("mask", &[2, 1, 1, 16]), m.fed("low", &[2, 4, 16, 16]));
            m.op("SelectV2", &[condition, scores, low])
        }),
        ("a number behind it", |m, scores| {
            let (condition, half) = (m.condition("mask", &[2, 1, 1, 16]), m.number(0.5));
            let masked = m.chosen(condition, scores, -1e9);
            m.op("Mul", &[masked, half])
        }),
        ("a condition for rows alone", |m, scores| {
            let condition = m.condition("mask", &[2, 1, 16, 1]);
            m.chosen(condition, scores, -1e9)
        }),
        ("a condition for each score", |m, scores| {
            let condition = m.condition("mask", &[2, 4, 16, 16]);
            m.chosen(condition, scores, -1e9)
        }),
        ("either of two conditions", |m, scores| {
            let (one, other) = (m.condition("one", &[2, 1, 1, 16]), m.condition("other", &[16, 16]));
            let both = m.op("LogicalOr", &[one, other]);
            let (hidden, one) = (m.chosen(both, scores, -1e9), m.condition("third", &[16, 16]));
            m.chosen(one, hidden, -1e9)
        }),
        ("a tensor that is added, too", |m, scores| {
            let (condition, bias) = (m.condition("mask", &[2, 1, 1, 16]), m.fed("bias", &[16, 16]));
            let added = m.op("AddV2", &[scores, bias]);
            m.chosen(condition, added, -1e9)
        }),
        ("scores that are fetched", |m, scores| {
            let condition = m.condition("mask", &[2, 1, 1, 16]);
            let hidden = m.chosen(condition, scores, -1e9);
            m.fetched.push(hidden);
            hidden
        }),
    ];
    for (what, between) in other {
        for is_trained in [false, true] {
            let plan = planned_of(&SHAPE, is_trained, |m, operands| attention(m, operands, between));
            assert_eq!(count(&plan), (0, 0), "{what}, trained {is_trained}");
        }
    }
}

/// Shares that are a result of the layer, and shares that drop out, are read by others.
#[test]
fn shares_that_others_read_stay() {
    for drops in [false, true] {
        let plan = planned_of(&SHAPE, false, |m, [q, k, v]| {
            let (condition, scores) = (m.condition("mask", &[2, 1, 1, 16]), m.einsum("BTNH,BSNH->BNTS", q, k));
            let scores = m.scaled(scores);
            let scores = m.chosen(condition, scores, -1e9);
            let shares = m.op("Softmax", &[scores]);
            let mut shares = narrowed(m, shares);
            if drops {
                let stays = m.condition("stays", &[2, 4, 16, 16]);
                shares = m.chosen(stays, shares, 0.0);
            } else {
                m.fetched.push(shares);
            }
            m.einsum("BNTS,BSNH->BTNH", shares, v)
        });
        assert_eq!(count(&plan), (0, 0), "drops {drops}");
    }
}
