//! Pooling, and its gradients.

use plimsoll_base::DataType;
use plimsoll_request::KernelRequest;
use plimsoll_request::pool::{Maxima, PoolSpec, Pooling, Positions};
use plimsoll_request::window::{Axes, Layout, WindowAxis};

use super::cases::{Case, Near, count};
use super::making::{Making, times};

/// Pooling whose channels are whole words of 16 bytes.
fn pools_of_words(making: &mut Making) -> Vec<Case> {
    let mut cases = Vec::new();
    let axis = WindowAxis { size: 9, positions: 5, taps: 3, stride: 2, dilation: 1, pad: 1 };
    for (data_type, channels) in [(DataType::Float, 12), (DataType::Bfloat16, 16), (DataType::Half, 8)] {
        let axes = Axes::new(&[axis, axis]).unwrap();
        let spec = PoolSpec { data_type, batch: 2, channels, axes, layout: Layout::ChannelsLast };
        let (input, output) = (count(&spec.input()), count(&spec.output()));
        let places: Vec<u8> = (0..output).map(|_| making.below(spec.taps()) as u8).collect();
        let near = Near::Rounded(1.0, 8.0);
        let request = KernelRequest::MaxPool(Pooling { spec, maxima: Maxima::First, positions: Positions::Positive });
        let mut add = |request, inputs: Vec<Vec<u8>>, input_types, types, near| {
            cases.push(Case { request, inputs, input_types, types, near });
        };
        let byte = DataType::Uint8;
        add(request, vec![making.elements(data_type, input)], vec![data_type], vec![data_type, byte], Near::Exact);
        let inputs = vec![places, making.elements(data_type, output)];
        add(KernelRequest::MaxPoolGrad(spec), inputs, vec![byte, data_type], vec![data_type], near);
        let inputs = vec![making.elements(data_type, input)];
        add(KernelRequest::AvgPool(spec), inputs, vec![data_type], vec![data_type], near);
        let inputs = vec![making.elements(data_type, output)];
        add(KernelRequest::AvgPoolGrad(spec), inputs, vec![data_type], vec![data_type], near);
    }
    cases
}

fn pool(making: &mut Making) -> PoolSpec {
    let count = 1 + making.below(3);
    let axes: Vec<WindowAxis> = (0..count)
        .map(|_| {
            let (size, taps, stride) = (1 + making.below(9), 1 + making.below(3), 1 + making.below(3));
            let taps = taps.min(size);
            let pad = making.below(taps);
            // Each window has an element of the input.
            let positions = ((size + pad - 1) / stride + 1).min(1 + (size + 2 * pad - taps) / stride);
            WindowAxis { size, positions, taps, stride, dilation: 1, pad }
        })
        .collect();
    PoolSpec {
        data_type: DataType::Float,
        batch: 1 + making.below(3),
        channels: *making.of(&[1, 3, 8, 17]),
        axes: Axes::new(&axes).unwrap(),
        layout: Layout::ChannelsLast,
    }
}

pub fn pools(seed: u64) -> Vec<Case> {
    let mut making = Making::new(seed);
    let mut cases = Vec::new();
    for number in 0..times(40) {
        let spec = pool(&mut making);
        let float = DataType::Float;
        let (input, output) = (count(&spec.input()), count(&spec.output()));
        let near = Near::Of(1.0, 8.0);
        let case = match number % 5 {
            0 => {
                let positions = *making.of(&[Positions::None, Positions::All, Positions::Positive]);
                let types = if positions == Positions::None { vec![float] } else { vec![float, DataType::Uint8] };
                let request = KernelRequest::MaxPool(Pooling { spec, maxima: Maxima::First, positions });
                Case { request, inputs: vec![making.elements(float, input)], input_types: vec![float], types, near: Near::Exact }
            }
            1 => {
                let places = (0..output).map(|_| if making.below(9) == 0 { 255 } else { making.below(spec.taps()) as u8 }).collect();
                let inputs = vec![places, making.elements(float, output)];
                let input_types = vec![DataType::Uint8, float];
                Case { request: KernelRequest::MaxPoolGrad(spec), inputs, input_types, types: vec![float], near: Near::Exact }
            }
            // The maxima are not asked for.
            2 => {
                let inputs = vec![making.elements(float, input), vec![0; 4 * output as usize], making.elements(float, output)];
                let request = KernelRequest::MaxPoolGradOfInput { spec, maxima: Maxima::First };
                Case { request, inputs, input_types: vec![float; 3], types: vec![float], near: Near::Exact }
            }
            3 => {
                let inputs = vec![making.elements(float, input)];
                Case { request: KernelRequest::AvgPool(spec), inputs, input_types: vec![float], types: vec![float], near }
            }
            _ => {
                let inputs = vec![making.elements(float, output)];
                Case { request: KernelRequest::AvgPoolGrad(spec), inputs, input_types: vec![float], types: vec![float], near }
            }
        };
        cases.push(case);
    }
    cases.extend(pools_of_words(&mut making));
    cases
}
