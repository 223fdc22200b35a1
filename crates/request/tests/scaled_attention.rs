//! The arguments of attention of narrow floats, of any sizes: a request of a plan from a file may say anything.

use plimsoll_base::{Code, DataType};
use plimsoll_request::KernelRequest;
use plimsoll_request::scaled_attention::{KeptShares, Lies, ScaledAttention, ScoreBias};

fn attention() -> ScaledAttention {
    let bias = Some(ScoreBias { data_type: DataType::Float, sizes: [2, 1, 5, 7] });
    let (rows, keys, width, value_width) = (5, 7, 8, 16);
    ScaledAttention {
        data_type: DataType::Half,
        batch: 2,
        heads: 3,
        rows,
        keys,
        width,
        value_width,
        scale: 0.5,
        bias,
        kept: None,
        sums: false,
        lies: [Lies::ByHeads; 4],
    }
}

#[test]
fn arguments_are_those_that_are_documented() {
    let of = |request: KernelRequest| request.arguments().map(|arguments| (arguments.inputs, arguments.outputs)).unwrap();
    let (q, k, v, result) = (2 * 6 * 5 * 8, 2 * 6 * 7 * 8, 2 * 6 * 7 * 16, 2 * 6 * 5 * 16);
    let (bias, sums) = (4 * 2 * 5 * 7, 4 * 6 * 5);
    let (plain, with_sums) = (attention(), ScaledAttention { sums: true, ..attention() });
    assert_eq!(of(KernelRequest::ScaledAttention(plain)), (vec![q, k, v, bias], vec![result]));
    assert_eq!(of(KernelRequest::ScaledAttention(with_sums)), (vec![q, k, v, bias], vec![result, sums]));
    let without = ScaledAttention { bias: None, ..with_sums };
    assert_eq!(of(KernelRequest::ScaledAttentionGrad(without)), (vec![q, k, v, result, sums, result], vec![q, k, v]));
    let kept = ScaledAttention { kept: Some(KeptShares { data_type: DataType::Half, sizes: [2, 3, 5, 1], factor: 1.25 }), ..with_sums };
    let of_kept = 2 * 6 * 5;
    assert_eq!(of(KernelRequest::ScaledAttention(kept)), (vec![q, k, v, bias, of_kept], vec![result, sums]));
    assert_eq!(of(KernelRequest::ScaledAttentionGrad(kept)), (vec![q, k, v, bias, of_kept, result, sums, result], vec![q, k, v]));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let biased = |data_type, sizes| ScaledAttention { bias: Some(ScoreBias { data_type, sizes }), ..attention() };
    let kept =
        |data_type, sizes, factor| ScaledAttention { kept: Some(KeptShares { data_type, sizes, factor }), sums: true, ..attention() };
    let fine = kept(DataType::Half, [2, 3, 5, 7], 1.25);
    assert!(fine.check().is_ok());
    let max = u64::MAX;
    for other in [
        ScaledAttention { data_type: DataType::Float, bias: None, ..attention() },
        ScaledAttention { scale: f32::NAN, ..attention() },
        biased(DataType::Bfloat16, [1; 4]),
        biased(DataType::Float, [2, 3, 5, 8]),
        biased(DataType::Float, [3, 1, 1, 1]),
        kept(DataType::Bool, [2, 3, 5, 7], 1.25),
        kept(DataType::Half, [2, 3, 7, 5], 1.25),
        kept(DataType::Float, [2, 3, 5, 7], f32::INFINITY),
        // Only where the gradient's logarithms are a result.
        ScaledAttention { sums: false, ..fine },
        ScaledAttention { batch: max, bias: None, ..attention() },
        ScaledAttention { rows: max, keys: max, bias: None, ..attention() },
        ScaledAttention { batch: 0, width: max, value_width: max, bias: None, ..attention() },
        // Q, K and V have room, and scores have none.
        ScaledAttention { rows: 1 << 40, keys: 1 << 40, width: 1, value_width: 1, bias: None, ..attention() },
    ] {
        for request in [KernelRequest::ScaledAttention(other), KernelRequest::ScaledAttentionGrad(other)] {
            assert_eq!(request.arguments().unwrap_err().code(), Code::InvalidArgument, "{request:?}");
        }
    }
}

/// Requests of plans that were written before tensors could lie by rows are read as they were meant.
#[test]
fn tensors_lie_by_heads_unless_it_is_said() {
    let (plain, by_rows) =
        (attention(), ScaledAttention { lies: [Lies::ByRows, Lies::ByHeads, Lies::ByRows, Lies::ByRows], ..attention() });
    let text = serde_json::to_string(&plain).unwrap();
    assert!(!text.contains("lies") && !text.contains("kept"), "{text}");
    for of in [plain, by_rows] {
        let read: ScaledAttention = serde_json::from_str(&serde_json::to_string(&of).unwrap()).unwrap();
        assert_eq!(read, of);
        // The same elements, each once.
        for (sizes, distances) in of.sizes().into_iter().zip(of.distances()) {
            let mut dims: Vec<(u64, u64)> = distances.into_iter().zip(sizes).collect();
            dims.sort_unstable();
            let all = dims.into_iter().fold(1, |next, (distance, size)| if distance == next { distance * size } else { 0 });
            assert_eq!(all, sizes.iter().product::<u64>());
        }
    }
    let [q, k, ..] = by_rows.distances();
    assert_eq!((q, k), ([3 * 5 * 8, 8, 3 * 8, 1], [3 * 7 * 8, 7 * 8, 8, 1]));
}
