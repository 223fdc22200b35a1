//! Files of data sets with bytes that should not be there: an error or other examples, never a panic.

use std::path::{Path, PathBuf};

use plimsoll::{Code, HostTensor, Result};
use plimsoll_train::data::{BatchSource, Examples, InOrder, Shuffled, arrays, cifar10, mnist};

/// A folder of this test alone, removed when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("plimsoll-train-files-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Opens the examples and reads all of them; how often that went well and how often not.
fn try_all(variants: impl Iterator<Item = Vec<u8>>, path: &Path, open: impl Fn() -> Result<Examples>) -> (u32, u32) {
    let (mut good, mut bad) = (0, 0);
    for bytes in variants {
        // Some file systems flush a file that is written over.
        let _ = std::fs::remove_file(path);
        std::fs::write(path, bytes).unwrap();
        let result = open().and_then(|examples| {
            let mut batch = examples.batch(1)?;
            let (mut in_order, mut shuffled) = (InOrder::new(examples.clone()), Shuffled::new(examples.clone(), 1)?);
            (0..examples.count()).try_for_each(|_| in_order.next_into(&mut batch).and_then(|()| shuffled.next_into(&mut batch)))
        });
        match result {
            Ok(()) => good += 1,
            Err(error) => {
                assert!(matches!(error.code(), Code::DataLoss | Code::InvalidArgument | Code::Unimplemented), "{error}");
                bad += 1;
            }
        }
    }
    (good, bad)
}

/// The bytes with each of the first `header` replaced, and cut off at and after each of them.
fn variants(bytes: &[u8], header: usize) -> impl Iterator<Item = Vec<u8>> {
    let replaced = (0..header).flat_map(|at| [0, 1, b'0', b'9', b')', 0x7f, 0x80, 0xff].map(|byte| (at, byte)));
    let replaced = replaced.map(|(at, byte)| {
        let mut bytes = bytes.to_vec();
        bytes[at] = byte;
        bytes
    });
    replaced.chain((0..header + 2).map(|end| bytes[..end].to_vec()))
}

#[test]
fn changed_headers_are_no_panic() {
    let folder = Folder::new("headers");
    let path = folder.0.join("x.npy");
    let mut array = Vec::new();
    plimsoll::npy::write(&HostTensor::from_slice([3, 4], &[0.5f32; 12]).unwrap(), &mut array).unwrap();
    let files = [("x".to_string(), path.as_path())];
    let (good, bad) = try_all(variants(&array, array.len() - 48), &path, || arrays::open(&files));
    assert!(good > 0 && bad > good, "{good} {bad}");

    let images = folder.0.join("train-images-idx3-ubyte");
    let labels = folder.0.join("train-labels-idx1-ubyte");
    let image_bytes = [&[0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 28, 0, 0, 0, 28][..], &[7; 2 * 784]].concat();
    let label_bytes = [0, 0, 8, 1, 0, 0, 0, 2, 3, 9];
    std::fs::write(&labels, label_bytes).unwrap();
    let open = || mnist::training(&folder.0, mnist::Images::Flat);
    // A byte may be replaced by itself.
    let (good, bad) = try_all(variants(&image_bytes, 16), &images, open);
    assert!(good > 0 && bad > 100, "{good} {bad}");
    std::fs::write(&images, &image_bytes).unwrap();
    let (good, bad) = try_all(variants(&label_bytes, 8), &labels, open);
    assert!(good > 0 && bad > 50, "{good} {bad}");

    let batch = folder.0.join("data_batch_1.bin");
    let open = || cifar10::training(&folder.0, cifar10::Inputs::Distorted);
    let (good, bad) = try_all(variants(&[3; 2 * 3073], 40), &batch, open);
    assert!(good > 300 && bad > 40, "{good} {bad}");
}
