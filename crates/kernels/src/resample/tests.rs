use plimsoll_base::DataType;
use plimsoll_request::resample::{Method, Resample};

use super::prepare;
use crate::simd::Isa;
use crate::testing::run;

fn resized(isa: Isa, spec: Resample, input: &[f32]) -> Vec<f32> {
    let bytes: Vec<u8> = input.iter().flat_map(|value| value.to_ne_bytes()).collect();
    let (_, to) = spec.shapes();
    let mut outputs = [vec![0; 4 * to.iter().product::<u64>() as usize]];
    run(&prepare(isa, spec).unwrap(), &[&bytes], &mut outputs).unwrap();
    outputs[0].chunks_exact(4).map(|bytes| f32::from_ne_bytes(bytes.try_into().unwrap())).collect()
}

fn spec(method: Method) -> Resample {
    Resample { data_type: DataType::Float, batch: 2, size: [5, 4], resized: [7, 9], channels: 5, method, transposed: false }
}

#[test]
fn a_gradient_is_the_transposed_map() {
    let bilinear = Method::Bilinear { align_corners: false, half_pixel_centers: true };
    for isa in Isa::available() {
        for method in [bilinear, Method::Bicubic { align_corners: true, half_pixel_centers: false }, Method::Area { align_corners: false }]
        {
            let spec = spec(method);
            let x: Vec<f32> = (0..200).map(|at| (at * 7 % 13) as f32 - 6.0).collect();
            let dy: Vec<f32> = (0..630).map(|at| (at * 5 % 11) as f32 - 5.0).collect();
            let y = resized(isa, spec, &x);
            let dx = resized(isa, Resample { transposed: true, ..spec }, &dy);
            let product = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(a * b)).sum::<f64>();
            let (one, other) = (product(&y, &dy), product(&x, &dx));
            assert!((one - other).abs() < 1e-3, "{method:?}: {one} and {other}");
        }
    }
}

#[test]
fn an_image_without_pixels_cannot_be_resized() {
    let method = Method::Bilinear { align_corners: false, half_pixel_centers: false };
    assert!(prepare(Isa::Portable, Resample { size: [0, 4], ..spec(method) }).is_err());
    assert!(prepare(Isa::Portable, Resample { data_type: DataType::Int32, ..spec(method) }).is_err());
    assert!(prepare(Isa::Portable, Resample { resized: [1 << 40, 1], ..spec(method) }).is_err());
    assert!(prepare(Isa::Portable, Resample { resized: [0, 1], ..spec(method) }).is_ok());
}
