//! Several products at once, and products of two transposed matrices, by cuDNN as convolutions: the results are those of kernels.

use plimsoll_base::{Bytes, DataType};
use plimsoll_cards::CudnnMode;
use plimsoll_device::{Tuned, TunedPart, TunedRequest, Variant};
use plimsoll_device_cuda::{EngineLimits, any_card};
use plimsoll_request::KernelRequest;
use plimsoll_request::anchor::Anchor;
use plimsoll_request::product::{Place, Places, ProductSpec};

use super::convolutions::{FULL, Loaded, Rig, command, here};

const SPEC: ProductSpec = ProductSpec { m: 5, n: 7, k: 6, transpose_a: false, transpose_b: false, batch: 3, places: None };

fn request(spec: ProductSpec) -> KernelRequest {
    KernelRequest::Anchor { anchor: Anchor::Product(DataType::Float, spec), epilogue: None, pooling: None }
}

fn all() -> Vec<ProductSpec> {
    let letters = [(false, false), (false, true), (true, false)];
    let several = letters.map(|(transpose_a, transpose_b)| ProductSpec { transpose_a, transpose_b, ..SPEC });
    several.into_iter().chain([ProductSpec { transpose_a: true, transpose_b: true, batch: 1, ..SPEC }]).collect()
}

#[test]
fn their_results_are_those_of_kernels() {
    let Some(rig) = Rig::new("batched-values") else { return };
    let card = rig.open().unwrap();
    for spec in all() {
        let (device, library) = rig.device(&card, FULL).unwrap();
        let variants = library.variants(&any_card(), &request(spec)).unwrap();
        assert!(variants[0].name.starts_with("cudnn-9.26.99/70/") && &*variants[1].name == "cuda", "{spec:?}: {variants:?}");
        let ProductSpec { m, n, k, batch, .. } = spec;
        let [a, b, c] = [m * k, k * n, m * n].map(|elements| 4 * batch * elements);
        let (results, places) = ([8192, 12288], [0, 4096]);
        let call =
            |at: usize| command(request(spec), variants[at].clone(), vec![here(places[0], a), here(places[1], b), here(results[at], c)]);
        let mut loaded = Loaded::new(device, vec![call(0), call(1)]).unwrap();
        // Small whole numbers: sums are exact in each order.
        for (place, bytes, seed) in [(places[0], a, 7u64), (places[1], b, 11)] {
            let numbers = (0..bytes / 4).flat_map(|at| (((at * seed * 2_654_435_761) >> 7) as u8 as f32 - 100.0).to_le_bytes());
            loaded.arena.write(place, &numbers.collect::<Vec<u8>>()).unwrap();
        }
        for step in 0..3 {
            loaded.step().unwrap();
            let [by_cudnn, by_kernel] = results.map(|at| {
                let mut bytes = vec![0; c as usize];
                loaded.arena.read(at, &mut bytes).unwrap();
                bytes
            });
            assert!(by_cudnn == by_kernel && by_kernel.iter().any(|byte| *byte != 0), "step {step}: {spec:?}");
        }
    }
}

#[test]
fn without_times_of_theirs_kernels_compute_them() {
    let Some(rig) = Rig::new("batched-choice") else { return };
    let card = rig.open().unwrap();
    let names = |variants: Vec<Variant>| variants.iter().map(|variant| variant.name.to_string()).collect::<Vec<_>>();
    let of = card.library(FULL, CudnnMode::Auto, None).tuned_for(card.name());
    for spec in all() {
        let spec = ProductSpec { m: 512, n: 512, k: 512, ..spec };
        let limits = EngineLimits { workspace: Bytes(1 << 30), ..FULL };
        let auto = names(card.library(limits, CudnnMode::Auto, None).variants(&any_card(), &request(spec)).unwrap());
        assert!(auto[0] == "cuda" && auto[1].starts_with("cudnn-"), "{auto:?}");
        let times = [("cuda".to_string(), 2e-6), (auto[1].clone(), 1e-6)];
        let part = TunedPart::from([(Tuned::key(&request(spec)).unwrap(), TunedRequest::new("", times))]);
        let mut own = of.clone();
        own.cudnn.as_mut().unwrap().workspace = limits.workspace;
        let timed = card.library(limits, CudnnMode::Auto, Some(&Tuned::of([(own, part)])));
        assert_eq!(names(timed.variants(&any_card(), &request(spec)).unwrap()), [auto[1].clone(), auto[0].clone()]);
    }
    // Of two transposed matrices one product alone, and none whose matrices lie apart.
    let dense = |rows: u64, row: u64| Place { row, matrix: [0, 0, 0, rows * row] };
    let places = Places { sizes: [1, 1, 1, 3], a: dense(5, 8), b: dense(6, 7), c: dense(5, 7) };
    for other in [ProductSpec { transpose_a: true, transpose_b: true, ..SPEC }, ProductSpec { places: Some(places), ..SPEC }] {
        let always = card.library(FULL, CudnnMode::Always, None).variants(&any_card(), &request(other));
        assert_eq!(always.map(names).unwrap_or_default(), ["cuda"], "{other:?}");
    }
}
