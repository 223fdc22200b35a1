//! Kernels of tensors that no test has memory for: their indices have 64 bits. The text of a large request is run with the sizes of a
//! small one.

use plimsoll_base::DataType;
use plimsoll_device_cuda::emit::{self, Emitted, Kernel, KernelArg};
use plimsoll_request::KernelRequest;
use plimsoll_request::product::ProductSpec;
use plimsoll_request::window::WindowAxis;

use super::anchors::{self, DENSE, conv_request, convolution, product_request};
use super::engines::{Engines, Run};
use super::making::Making;

/// The names of a kernel's parameters, and whether each has 64 bits.
fn params(kernel: &Kernel) -> Vec<(&str, bool)> {
    let (_, rest) = kernel.body.split_once("KERNEL BOUNDS ").unwrap();
    let (_, rest) = rest.split_once('(').unwrap();
    let params = rest.split(')').next().unwrap().split(", ");
    params.map(|param| param.rsplit_once(' ').unwrap()).map(|(ctype, name)| (name, ctype == "u64")).collect()
}

/// The kernels of `large` with the arguments of `small`, by name.
fn with_arguments(large: &Emitted, small: &Emitted) -> Emitted {
    assert_eq!(large.kernels.len(), small.kernels.len());
    let kernel = |(large, small): (&Kernel, &Kernel)| {
        let given = params(small);
        let argument = |(name, is_wide): (&str, bool)| {
            let at = given.iter().position(|given| given.0 == name).unwrap_or_else(|| panic!("{name}: {}", small.body));
            match small.args[at] {
                KernelArg::U32(number) if is_wide => KernelArg::U64(number.into()),
                argument => argument,
            }
        };
        Kernel { blocks: small.blocks, args: params(large).into_iter().map(argument).collect(), ..large.clone() }
    };
    Emitted { kernels: large.kernels.iter().zip(&small.kernels).map(kernel).collect(), ..small.clone() }
}

#[test]
fn indices_of_64_bits_find_the_same_elements() {
    let product = |m, transpose_a| ProductSpec { m, n: 33, k: 20, transpose_a, transpose_b: !transpose_a, ..DENSE };
    let several = |batch| ProductSpec { m: 18, n: 33, k: 20, batch, ..DENSE };
    let mut pairs: Vec<[KernelRequest; 2]> = Vec::new();
    for transpose_a in [false, true] {
        pairs.push([50, 1 << 32].map(|m| product_request(DataType::Float, product(m, transpose_a), None)));
    }
    pairs.push([3, 1 << 24].map(|batch| product_request(DataType::Double, several(batch), None)));
    let same = WindowAxis { size: 9, positions: 9, taps: 3, stride: 1, dilation: 2, pad: 2 };
    let half = WindowAxis { size: 9, positions: 5, taps: 3, stride: 2, dilation: 1, pad: 1 };
    for kind in 0..3 {
        // So many that sums by the filter have parts in both, and others in none.
        let (few, many, channels) = if kind == 2 { (16, 1 << 22, 20) } else { (2, 1 << 25, 6) };
        let batches = [few, many];
        pairs.push(batches.map(|batch| conv_request(kind, convolution(DataType::Float, batch, &[half, same], [3, channels]), kind < 2)));
    }
    for kind in 3..6 {
        let batches = [if kind == 5 { 16 } else { 2 }, 1 << 23];
        pairs.push(batches.map(|batch| conv_request(kind, convolution(DataType::Float, batch, &[half, same], [5, 10]), kind == 3)));
    }
    let mut making = Making::new(21);
    let runs: Vec<Run> = pairs
        .into_iter()
        .map(|[small, large]| {
            let large = emit::emit(&large).unwrap();
            assert!(["for (u64 tile", "for (u64 e"].iter().any(|text| large.kernels[0].body.contains(text)), "{}", large.kernels[0].body);
            let run = anchors::anchor(&mut making, small).emit().unwrap();
            Run { emitted: with_arguments(&large, &run.emitted), ..run }
        })
        .collect();
    for outcome in Engines::find().run(&runs) {
        outcome.run.compare(outcome.engine, &outcome.result);
    }
}
