//! The kernels that bring tensors into the form that cuDNN takes: no request has them as its own, so each comes with a request that says the same.

use plimsoll_base::DataType;
use plimsoll_device_cuda::emit::{self, Emitted, Packed};
use plimsoll_request::KernelRequest;
use plimsoll_request::movement::Movement;

use super::cases::{Case, Near, count};
use super::making::{Making, times};

/// Bytes of a word of tensor cores.
const WORD: u64 = 16;

fn case(making: &mut Making, element: u64, shape: &[u64], movement: Movement) -> Case {
    let inputs = vec![making.elements(DataType::Uint8, element * count(shape))];
    let of = if element == 2 { DataType::Uint16 } else { DataType::Uint32 };
    Case {
        request: KernelRequest::Movement { element: element as usize, movement },
        inputs,
        input_types: vec![of],
        types: vec![of],
        near: Near::Exact,
    }
}

fn alone(kernel: emit::Kernel) -> Emitted {
    Emitted { kernels: vec![kernel], ..Emitted::default() }
}

/// Channels that are padded to whole words, and filters that are turned, with and without padded channels.
pub fn forms(seed: u64) -> Vec<(Case, Emitted)> {
    let mut making = Making::new(seed);
    let mut made = Vec::new();
    for number in 0..times(24) {
        let element = *making.of(&[2u64, 4]);
        let (rows, channels) = (1 + making.below(300), 1 + making.below(3 * WORD / element));
        let wide = channels.next_multiple_of(WORD / element) + WORD / element * making.below(2);
        let padded = Movement::Pad {
            shape: vec![rows, channels],
            paddings: vec![(0, 0), (0, wide - channels)],
            value: Some(vec![0; element as usize]),
        };
        let emitted = match number % 3 {
            0 => {
                let case = case(&mut making, element, &[rows, channels], padded);
                (case, alone(emit::pad(element, rows, [channels, wide]).unwrap()))
            }
            1 => {
                let axes = [(rows, rows, channels), (wide, channels, 1)].map(|(size, there, apart)| Packed { size, there, apart });
                (case(&mut making, element, &[rows, channels], padded), alone(emit::packed(element, &axes).unwrap()))
            }
            _ => {
                // Taps, channels of the input, channels of the result: the last come first.
                let [taps, inputs, results] = [1 + making.below(9), 1 + making.below(20), channels];
                let axes = [(results, 1), (taps, inputs * results), (inputs, results)];
                let axes = axes.map(|(size, apart)| Packed { size, there: size, apart });
                let shape = vec![taps, inputs, results];
                let turned = Movement::Transpose { shape: shape.clone(), perm: vec![2, 0, 1] };
                (case(&mut making, element, &shape, turned), alone(emit::packed(element, &axes).unwrap()))
            }
        };
        made.push(emitted);
    }
    made
}
