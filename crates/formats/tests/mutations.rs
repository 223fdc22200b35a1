//! Files with bytes changed, cut, repeated and spliced. Every reader answers with a value or an error, in bounded memory, and
//! writes and reads accepted values again. `PLIMSOLL_MUTATIONS=100000` says how many per kind of file (2,000 without).

use std::path::{Path, PathBuf};

use plimsoll_formats::bundle::{BundleReader, Checkpoint, Slice};
use plimsoll_formats::{
    is_meta_graph, npy, parse_saved_model, print_graph_def, read_config, read_graph_def, read_meta_graph, to_options, write_config,
    write_graph_def,
};
use plimsoll_graph::{Graph, OpTable};

/// xorshift64*: the same numbers everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

fn mutations() -> usize {
    std::env::var("PLIMSOLL_MUTATIONS").ok().and_then(|count| count.parse().ok()).unwrap_or(2000)
}

fn mutate(random: &mut Random, seed: &[u8]) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len());
        match random.below(8) {
            0 => bytes.truncate(at),
            1 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
            2 if !bytes.is_empty() => bytes[at] = random.next() as u8,
            3 if !bytes.is_empty() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)],
            4 => bytes.splice(at..at, std::iter::repeat_n(0xff, random.below(10))).for_each(drop),
            5 => {
                let end = at + random.below(bytes.len() - at).min(100);
                bytes.drain(at..end);
            }
            6 => {
                let end = at + random.below(bytes.len() - at).min(1000);
                let piece = bytes[at..end].to_vec();
                let to = random.below(bytes.len());
                bytes.splice(to..to, piece);
            }
            _ => bytes.splice(at..at, [random.next() as u8]).for_each(drop),
        }
    }
    bytes
}

fn data(names: &[&str]) -> Vec<PathBuf> {
    names.iter().map(|name| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)).collect()
}

/// TensorFlow's graphs beside the workspace, up to a size that keeps the test short.
fn shared(largest: u64) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/graphs");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        eprintln!("skipped: {} is not there", folder.display());
        return Vec::new();
    };
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| std::fs::metadata(path).is_ok_and(|data| data.len() <= largest));
    files.sort();
    files
}

/// Tries `count` mutations, spread over the files.
fn try_all(files: Vec<PathBuf>, count: usize, mut check: impl FnMut(&[u8])) {
    let seeds: Vec<Vec<u8>> = files.iter().map(|path| std::fs::read(path).unwrap()).collect();
    let mut random = Random(0x5eed);
    for seed in seeds.iter().cycle().take(if seeds.is_empty() { 0 } else { count }) {
        check(&mutate(&mut random, seed));
    }
    // Linux says how much memory the process had at most: 100 times the largest file would be far below this.
    let peak = std::fs::read_to_string("/proc/self/status").ok().and_then(|status| {
        let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    });
    assert!(peak.is_none_or(|kib| kib < 512 << 10), "{peak:?} KiB");
}

fn check_graph(bytes: &[u8], ops: &OpTable) {
    let Ok(graph) = read_graph_def(bytes) else { return };
    let written = write_graph_def(&graph);
    let again = read_graph_def(&written).unwrap();
    assert!(write_graph_def(&again) == written);
    let text = print_graph_def(&graph);
    read_graph_def(text.as_bytes()).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let _ = Graph::resolve(graph, ops);
}

#[test]
fn graphs_in_binary() {
    let ops = OpTable::tensorflow();
    try_all(data(&["attributes.pb", "functions.pb"]), mutations(), |bytes| check_graph(bytes, &ops));
}

#[test]
fn larger_graphs_in_binary() {
    let ops = OpTable::tensorflow();
    try_all(shared(110_000), mutations() / 10, |bytes| check_graph(bytes, &ops));
}

#[test]
fn every_cut_of_a_graph() {
    let ops = OpTable::tensorflow();
    for path in data(&["attributes.pb", "functions.pb"]) {
        let bytes = std::fs::read(path).unwrap();
        (0..bytes.len()).for_each(|end| {
            if let Ok(graph) = read_graph_def(&bytes[..end]) {
                let _ = Graph::resolve(graph, &ops);
            }
        });
    }
}

#[test]
fn graphs_in_text() {
    let ops = OpTable::tensorflow();
    try_all(data(&["attributes.pbtxt"]), mutations() / 4, |bytes| check_graph(bytes, &ops));
}

#[test]
fn configs() {
    let text = b"device_count { key: 'CPU' value: 2 } gpu_options { per_process_gpu_memory_fraction: 0.4 experimental { virtual_devices { memory_limit_mb: [1, 2.5] } } }";
    let binary = write_config(&read_config(text).unwrap());
    let mut random = Random(0xc0ff);
    for seed in [&text[..], &binary].into_iter().cycle().take(mutations()) {
        if let Ok(config) = read_config(&mutate(&mut random, seed)) {
            assert_eq!(write_config(&read_config(&write_config(&config)).unwrap()), write_config(&config));
            let _ = to_options(&config);
        }
    }
}

#[test]
fn saved_models() {
    // A SavedModel whose graph is a sample: meta_graphs { graph_def { … } }, with lengths of two bytes.
    let graph = std::fs::read(&data(&["functions.pb"])[0]).unwrap();
    let field = |number: u8, bytes: &[u8]| [&[number << 3 | 2, bytes.len() as u8 | 0x80, (bytes.len() >> 7) as u8], bytes].concat();
    let model = field(2, &field(2, &graph));
    assert_eq!(parse_saved_model(&model).unwrap().meta_graphs[0].graph_def, read_graph_def(&graph).unwrap());
    let mut random = Random(0x5a7e);
    (0..mutations() / 4).for_each(|_| {
        let _ = parse_saved_model(&mutate(&mut random, &model));
    });
}

/// Samples of `scripts/record_forms.py`.
fn form(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/tests/forms").join(name)
}

#[test]
fn meta_graphs() {
    try_all(vec![form("v1.ckpt.meta"), form("resource.ckpt.meta")], mutations() / 10, |bytes| {
        let _ = is_meta_graph(bytes);
        if let Ok(meta) = read_meta_graph(bytes) {
            let _ = (meta.variables("variables"), meta.names("train_op"), meta.init_op());
        }
    });
}

#[test]
fn saved_models_of_keras() {
    try_all(vec![form("archive/saved_model.pb"), form("tags/saved_model.pb")], mutations() / 10, |bytes| {
        let _ = parse_saved_model(bytes).and_then(|model| model.into_serving());
    });
}

#[test]
fn checkpoints_of_version_1() {
    let folder = std::env::temp_dir().join(format!("plimsoll-mutations-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let prefix = folder.join("v1.ckpt");
    let good = std::fs::read(form("v1.ckpt")).unwrap();
    // The one data block of the sample, and where its checksum is.
    let end = (5..good.len()).find(|end| good[*end..].starts_with(&masked(&good[..*end]))).unwrap();
    let whole = |checkpoint: &Checkpoint| checkpoint.names().map(|name| checkpoint.read(name).is_ok()).collect::<Vec<_>>();
    std::fs::write(&prefix, &good).unwrap();
    assert_eq!(whole(&Checkpoint::open(&prefix).unwrap()), [true; 6]);
    let slice = Slice::parse("4 3 1,2:-").unwrap();
    let mut accepted = 0;
    let mut random = Random(0x0dd);
    for round in 0..mutations() {
        // Checksums refuse nearly everything, so half of them are put right; these have the length of the sample.
        let mut bytes = mutate(&mut random, if round % 2 == 0 { &good } else { &good[..end] });
        if round % 2 == 1 {
            bytes.resize(end, 0);
            bytes[end - 1] = good[end - 1];
            let checksum = masked(&bytes);
            bytes.extend(checksum);
            bytes.extend_from_slice(&good[end + 4..]);
        }
        std::fs::write(&prefix, &bytes).unwrap();
        let Ok(checkpoint) = Checkpoint::open(&prefix) else { continue };
        accepted += 1;
        for name in checkpoint.names() {
            let _ = checkpoint.read(name);
            let _ = checkpoint.read_in_pieces(name, Some(&slice), &mut [0; 64], &mut |_, _| Ok(()));
            let _ = checkpoint.beside_buffer(name);
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(accepted > 10, "{accepted}");
}

fn masked(bytes: &[u8]) -> [u8; 4] {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

#[test]
fn slices_of_a_bundle() {
    let prefix = data(&["checkpoint"]).remove(0);
    let reader = Checkpoint::open(&prefix).unwrap();
    let whole: Vec<f32> = reader.read("sliced").unwrap().to_vec().unwrap();
    // One of the saved slices, and one across all of them.
    for (text, wanted) in [("2 3 4 1,1:0,2:-", (12..20).collect::<Vec<usize>>()), ("2 3 4 -:1,2:3,1", vec![7, 11, 19, 23])] {
        let slice = Slice::parse(text).unwrap();
        let mut bytes = vec![0u8; wanted.len() * 4];
        let mut put = |at: u64, piece: &[u8]| {
            bytes[at as usize..][..piece.len()].copy_from_slice(piece);
            Ok(())
        };
        reader.read_in_pieces("sliced", Some(&slice), &mut [0; 20], &mut put).unwrap();
        let got: Vec<f32> = bytes.chunks(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect();
        assert_eq!(got, wanted.iter().map(|index| whole[*index]).collect::<Vec<_>>(), "{text}");
    }
    let other = Slice::parse("3 3 4 -:-:-").unwrap();
    assert!(reader.read_in_pieces("sliced", Some(&other), &mut [0; 64], &mut |_, _| Ok(())).is_err());
}

#[test]
fn arrays() {
    try_all(data(&["float.npy", "fortran.npy", "scalar.npy"]), mutations(), |bytes| {
        if let Ok(tensor) = npy::read(bytes) {
            let mut written = Vec::new();
            npy::write(&tensor, &mut written).unwrap();
            assert_eq!(npy::read(&written).unwrap(), tensor);
        }
    });
}

#[test]
fn indexes_of_checkpoints() {
    let prefix = data(&["checkpoint"]).remove(0);
    let good = std::fs::read(&data(&["checkpoint.index"])[0]).unwrap();
    assert_eq!(with_checksum(&good), good);
    try_all(data(&["checkpoint.index"]), mutations(), |bytes| {
        // Checksums refuse nearly everything, so the same is tried with the checksum of the data block put right.
        for index in [bytes, &with_checksum(bytes)] {
            if let Ok(reader) = BundleReader::from_index(&prefix, index) {
                for name in reader.names() {
                    let _ = reader.read(name);
                    let _ = reader.read_in_pieces(name, &mut [0; 64], &mut |_, _| Ok(()));
                }
            }
        }
    });
}

/// The same index with the checksum of its data block put right, if the block is as long as it was.
fn with_checksum(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if bytes.len() >= DATA_BLOCK + 4 {
        let crc = crc32c(&bytes[..DATA_BLOCK]).rotate_right(15).wrapping_add(0xa282_ead8);
        bytes[DATA_BLOCK..DATA_BLOCK + 4].copy_from_slice(&crc.to_le_bytes());
    }
    bytes
}

/// Bytes of the sample's data block with its type.
const DATA_BLOCK: usize = 342;

fn crc32c(bytes: &[u8]) -> u32 {
    !bytes
        .iter()
        .fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 }))
}
