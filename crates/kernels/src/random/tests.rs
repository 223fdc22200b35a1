use super::*;
use crate::testing::{bytes, run, run_pieces, values};

/// An execution in TensorFlow, from a line that scripts/record_random.py wrote.
struct Recorded<'a> {
    op: &'a str,
    data_type: DataType,
    seed: i64,
    seed2: i64,
    elements: u64,
    run: u64,
    bounds: Vec<i64>,
    hash: u64,
    values: Vec<(usize, u64)>,
}

impl Recorded<'_> {
    fn distribution(&self) -> Distribution {
        match self.op.trim_start_matches("Stateless").trim_end_matches("V2") {
            "RandomUniform" => Distribution::Uniform,
            "RandomStandardNormal" | "RandomNormal" => Distribution::Normal,
            "TruncatedNormal" => Distribution::TruncatedNormal,
            "RandomUniformInt" => Distribution::UniformInt,
            other => panic!("{other}"),
        }
    }

    fn inputs(&self) -> Vec<Vec<u8>> {
        self.bounds.iter().map(|bound| if self.data_type == DataType::Int32 { bytes(&[*bound as i32]) } else { bytes(&[*bound]) }).collect()
    }

    fn len(&self) -> usize {
        self.data_type.bytes_of(self.elements).unwrap() as usize
    }

    fn check(&self, output: &[u8]) {
        let what = format!("{} {} {} {} of {}", self.op, self.seed, self.seed2, self.run, self.elements);
        let size = self.data_type.size().unwrap();
        let exact = matches!(self.distribution(), Distribution::Uniform | Distribution::UniformInt);
        for &(at, bits) in &self.values {
            let element = &output[at * size..(at + 1) * size];
            let got = element.iter().rev().fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
            // Neighbours of one sign have neighbouring bits.
            let apart = got.abs_diff(bits);
            assert!(apart <= if exact { 0 } else { 2 }, "{what}, element {at}: {got:x} instead of {bits:x}");
        }
        if exact {
            let hash = output.iter().fold(0xCBF2_9CE4_8422_2325u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3));
            assert_eq!(hash, self.hash, "{what}: some element differs");
        }
    }
}

fn recorded() -> Vec<Recorded<'static>> {
    let parse = |line: &'static str| {
        let mut words = line.split(' ');
        let mut next = || words.next().unwrap();
        Recorded {
            op: next(),
            data_type: DataType::from_name(next()).unwrap(),
            seed: next().parse().unwrap(),
            seed2: next().parse().unwrap(),
            elements: next().parse().unwrap(),
            run: next().parse().unwrap(),
            bounds: next().split(',').filter(|bound| *bound != "-").map(|bound| bound.parse().unwrap()).collect(),
            hash: u64::from_str_radix(next(), 16).unwrap(),
            values: words
                .map(|word| {
                    let (at, bits) = word.split_once('=').unwrap();
                    (at.parse().unwrap(), u64::from_str_radix(bits, 16).unwrap())
                })
                .collect(),
        }
    };
    include_str!("testdata/random.txt").lines().map(parse).collect()
}

fn slices(vectors: &[Vec<u8>]) -> Vec<&[u8]> {
    vectors.iter().map(Vec::as_slice).collect()
}

#[test]
fn stateful_operations_give_what_tensorflow_gives() {
    let mut seen = 0;
    for first in recorded().iter().filter(|case| !case.op.starts_with("Stateless") && case.run == 0) {
        let op = RandomOp {
            distribution: first.distribution(),
            data_type: first.data_type,
            elements: first.elements,
            seed: first.seed,
            seed2: first.seed2,
        };
        let is_second = |case: &&Recorded<'_>| {
            (case.op, case.data_type, case.seed, case.seed2, case.elements, case.run, &case.bounds)
                == (first.op, first.data_type, first.seed, first.seed2, first.elements, 1, &first.bounds)
        };
        let all = recorded();
        let second = all.iter().find(is_second).unwrap();
        let inputs = first.inputs();
        let mut outputs = [vec![0; 8], vec![0xEE; first.len()]];
        run(&op.stateful(Isa::best()).unwrap(), &slices(&inputs), &mut outputs).unwrap();
        first.check(&outputs[1]);
        assert_eq!(values::<u64>(&outputs[0]), [first.elements * 256]);
        // The same in two steps, in pieces.
        let fill = op.reserved(Isa::best()).unwrap();
        let calls: Vec<_> = (0..fill.chunks).rev().map(|piece| piece..piece + 1).collect();
        let mut again = [vec![0xEE; first.len()]];
        run_pieces(&fill, &slices(&[&inputs[..], &[vec![0; 8]]].concat()), &mut again, &calls, &[]).unwrap();
        assert!(again[0] == outputs[1]);
        let mut state = [vec![0; 8], vec![0xEE; 8]];
        run(&reserve(first.elements * 256), &[], &mut state).unwrap();
        assert_eq!(state, [outputs[0].clone(), vec![0; 8]]);
        run(&op.stateful(Isa::best()).unwrap(), &slices(&inputs), &mut outputs).unwrap();
        second.check(&outputs[1]);
        seen += 1;
    }
    assert!(seen > 100);
}

#[test]
fn stateless_operations_give_what_tensorflow_gives() {
    let mut seen = 0;
    for case in recorded().iter().filter(|case| case.op.starts_with("Stateless")) {
        let mut key = [vec![0; 8], vec![0; 16]];
        run(&key_counter(DataType::Int64).unwrap(), &[&bytes(&[case.seed, case.seed2])], &mut key).unwrap();
        if case.op == "StatelessRandomGetKeyCounter" {
            let expected: Vec<u64> = case.values.iter().map(|(_, bits)| *bits).collect();
            assert_eq!(values::<u64>(&key.concat()), expected);
            if let (Ok(seed), Ok(seed2)) = (i32::try_from(case.seed), i32::try_from(case.seed2)) {
                let mut narrow = [vec![0; 8], vec![0; 16]];
                run(&key_counter(DataType::Int32).unwrap(), &[&bytes(&[seed, seed2])], &mut narrow).unwrap();
                assert_eq!(narrow, key);
            }
            seen += 1;
            continue;
        }
        let prepared = stateless(Isa::best(), case.distribution(), case.data_type, case.elements).unwrap();
        let calls: Vec<_> = (0..prepared.chunks).rev().map(|piece| piece..piece + 1).collect();
        let mut output = [vec![0xEE; case.len()]];
        run_pieces(&prepared, &slices(&[&key[..], &case.inputs()].concat()), &mut output, &calls, &[]).unwrap();
        case.check(&output[0]);
        seen += 1;
    }
    assert!(seen > 20);
}

#[test]
fn a_large_output_is_cut_in_pieces_and_nothing_is_nothing() {
    let op = RandomOp { distribution: Distribution::Uniform, data_type: DataType::Float, elements: 100_003, seed: 1, seed2: 2 };
    assert!(op.reserved(Isa::best()).unwrap().chunks > 1);
    assert_eq!(op.stateful(Isa::best()).unwrap().chunks, 1);
    let mut outputs = [vec![0; 8], vec![]];
    run(&RandomOp { elements: 0, ..op }.stateful(Isa::best()).unwrap(), &[], &mut outputs).unwrap();
    assert_eq!(outputs[0], [0; 8]);
}

#[test]
fn what_cannot_be_drawn_is_refused() {
    let integers = RandomOp { distribution: Distribution::UniformInt, data_type: DataType::Int32, elements: 3, seed: 1, seed2: 2 };
    let mut outputs = [vec![0; 8], vec![0; 12]];
    let fault = run(&integers.stateful(Isa::best()).unwrap(), &[&bytes(&[3]), &bytes(&[3])], &mut outputs).unwrap_err();
    assert_eq!(fault.to_error().message(), "Need minval < maxval, got 3 >= 3");
    // Of an empty output the bounds are not looked at: as TensorFlow.
    let nothing = RandomOp { elements: 0, ..integers };
    run(&nothing.stateful(Isa::best()).unwrap(), &[&bytes(&[3]), &bytes(&[3])], &mut [vec![0; 8], vec![]]).unwrap();
    assert!(RandomOp { data_type: DataType::Float, ..integers }.stateful(Isa::best()).is_err());
    assert!(RandomOp { distribution: Distribution::Normal, ..integers }.stateful(Isa::best()).is_err());
    assert!(stateless(Isa::best(), Distribution::Uniform, DataType::Bool, 1).is_err());
    assert!(stateless(Isa::best(), Distribution::Uniform, DataType::Float, u64::MAX).is_err());
    assert!(key_counter(DataType::Float).is_err());
}
