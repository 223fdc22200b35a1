//! Random numbers, and the keys of seeds.

use plimsoll_base::DataType;
use plimsoll_request::KernelRequest;
use plimsoll_request::random::{Distribution, Random};

use super::cases::{Case, Near};
use super::making::{Making, times};

pub fn random(seed: u64) -> Vec<Case> {
    let mut making = Making::new(seed);
    let mut cases = Vec::new();
    for elements in [1, 5, 64, 1003] {
        for (distribution, data_type) in [
            (Distribution::Uniform, DataType::Float),
            (Distribution::Uniform, DataType::Double),
            (Distribution::Uniform, DataType::Half),
            (Distribution::Uniform, DataType::Bfloat16),
            (Distribution::Normal, DataType::Float),
            (Distribution::UniformInt, DataType::Int32),
            (Distribution::UniformInt, DataType::Int64),
        ] {
            // Normals: of sine, cosine and logarithm.
            let near = if distribution == Distribution::Normal { Near::Of(1.0, 4.0) } else { Near::Exact };
            let (mut bounds, mut bound_types) = (Vec::new(), Vec::new());
            if distribution == Distribution::UniformInt {
                let size = data_type.size().unwrap();
                bounds.extend([-7i64, 1000].map(|bound| bound.to_le_bytes()[..size].to_vec()));
                bound_types.extend([data_type; 2]);
            }
            let words = |words: u64| vec![DataType::Uint64; words as usize];
            let counter = if elements == 64 { vec![0xFF; 16] } else { making.elements(DataType::Uint64, 2) };
            let mut add = |random, inputs, input_types, types| {
                cases.push(Case { request: KernelRequest::Random(random), inputs, input_types, types, near });
            };
            let inputs = [vec![making.word().to_le_bytes().to_vec(), counter.clone()], bounds.clone()].concat();
            let input_types = [words(2), bound_types.clone()].concat();
            add(Random::Stateless { distribution, data_type, elements }, inputs, input_types, vec![data_type]);
            // The state is the counter's low word.
            let (seed, seed2) = (making.word() as i64, making.word() as i64);
            let inputs = [bounds.clone(), vec![counter[..8].to_vec()]].concat();
            let input_types = [bound_types.clone(), words(1)].concat();
            add(Random::Reserved { distribution, data_type, elements, seed, seed2 }, inputs, input_types, vec![data_type]);
        }
    }
    cases
}

/// Keys and counters of seeds.
pub fn keys(seed: u64) -> Vec<Case> {
    let mut making = Making::new(seed);
    let mut cases = Vec::new();
    for seed_type in [DataType::Int32, DataType::Int64, DataType::Uint32, DataType::Uint64] {
        for _ in 0..times(3) {
            let size = seed_type.size().unwrap();
            let words = [making.word(), making.word()].iter().flat_map(|word| word.to_le_bytes()[8 - size..].to_vec()).collect();
            cases.push(Case {
                request: KernelRequest::Random(Random::KeyCounter { seed_type }),
                inputs: vec![words],
                input_types: vec![seed_type],
                types: vec![DataType::Uint64; 2],
                near: Near::Exact,
            });
        }
    }
    cases
}
