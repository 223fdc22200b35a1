//! Normalizations with their inputs.

use plimsoll_base::DataType;
use plimsoll_request::KernelRequest;
use plimsoll_request::lrn::LrnSpec;
use plimsoll_request::norm::BatchNormSpec;

use super::cases::{Case, Near};
use super::making::{Making, times};

pub fn norms(seed: u64) -> Vec<Case> {
    let mut making = Making::new(seed);
    let mut cases = Vec::new();
    for number in 0..times(24) {
        let float = DataType::Float;
        // In each pair of a normalization and a gradient: threads with one channel, and with as many as 16 bytes hold, in one tile and in two.
        let data_type = [float, DataType::Bfloat16, DataType::Half, float][number / 2 % 4];
        let (rows, channels) = (*making.of(&[1, 2, 9, 64, 300, 1000]), *making.of(&[1, 3, 15, 31, 32, 40, 132, 264]));
        let factor = *making.of(&[1.0, 0.25]);
        let spec = BatchNormSpec { data_type, rows, channels, epsilon: 0.001, exponential_avg_factor: factor };
        let training = making.below(3) > 0;
        // Variances are positive.
        let positive = |making: &mut Making| (0..channels).flat_map(|_| (0.5 + making.below(9) as f32).to_le_bytes()).collect::<Vec<u8>>();
        let images = making.elements(data_type, rows * channels);
        let [scale, offset, mean] = [(); 3].map(|()| making.elements(float, channels));
        let variance = positive(&mut making);
        let case = if number % 2 == 0 {
            let reserve_3 = making.below(2) == 0;
            let replaced = training && factor == 1.0;
            let statistics = if replaced { [Vec::new(), Vec::new()] } else { [mean, variance] };
            let inputs = [vec![images, scale, offset], statistics.to_vec()].concat();
            let types = [vec![data_type], vec![float; if reserve_3 { 5 } else { 4 }]].concat();
            let input_types = [vec![data_type], vec![float; 4]].concat();
            let request = KernelRequest::BatchNorm { spec, training, reserve_3 };
            Case { request, inputs, input_types, types, near: Near::Rounded(64.0, 32.0) }
        } else {
            let gradient = making.elements(data_type, rows * channels);
            let request = KernelRequest::BatchNormGrad { spec, training };
            let inputs = vec![gradient, images, scale, mean, variance];
            let input_types = [vec![data_type; 2], vec![float; 3]].concat();
            let types = [vec![data_type], vec![float; 4]].concat();
            Case { request, inputs, input_types, types, near: Near::Rounded(2048.0, 32.0) }
        };
        cases.push(case);
    }
    cases
}

pub fn lrns(seed: u64) -> Vec<Case> {
    let mut making = Making::new(seed);
    let mut cases = Vec::new();
    for number in 0..times(24) {
        let float = DataType::Float;
        let (rows, channels) = (making.below(40), *making.of(&[1, 2, 9, 31, 64]));
        let (bias, alpha) = (*making.of(&[1.0, 2.0]), *making.of(&[1.0, 0.125]));
        let beta = *making.of(&[0.5, 0.75, 1.0, 0.3]);
        let depth_radius = *making.of(&[0, 1, 4, 100]);
        let spec = LrnSpec { data_type: float, rows, channels, depth_radius, bias, alpha, beta };
        let [x, y, gradient] = [(); 3].map(|()| making.elements(float, rows * channels));
        let near = Near::Of(64.0, 64.0);
        cases.push(if number % 2 == 0 {
            Case { request: KernelRequest::Lrn(spec), inputs: vec![x], input_types: vec![float], types: vec![float], near }
        } else {
            let (request, inputs) = (KernelRequest::LrnGrad(spec), vec![gradient, x, y]);
            Case { request, inputs, input_types: vec![float; 3], types: vec![float], near: Near::Of(4096.0, 64.0) }
        });
    }
    cases
}
