//! SavedModels: values of variables are in files until something needs them.

use std::path::{Path, PathBuf};

use plimsoll::{Code, Devices, Options};

fn saved() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/tests/saved/model")
}

#[test]
fn variables_without_names_are_found_by_the_calls_that_hand_them_over() {
    let devices = Devices::open(&Options::new()).unwrap();
    let session = devices.load(saved().with_file_name("nameless")).unwrap();
    let x = plimsoll::HostTensor::from_slice([2], &[1f32, -2.0]).unwrap();
    let called = session.call("serving_default", &[("x", x)]).unwrap();
    assert_eq!(called[0].1.to_vec::<f32>().unwrap(), [15.0, 3.0]);
}

#[test]
fn variables_are_read_and_saved_though_no_run_has_needed_them() {
    let devices = Devices::open(&Options::new()).unwrap();
    let session = devices.load(saved()).unwrap();
    assert!(session.variables().is_empty(), "{:?}", session.variables());
    let folder = std::env::temp_dir().join(format!("plimsoll-stored-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    session.save(folder.join("untouched")).unwrap();
    let w = session.read_variable("w").unwrap();
    assert_eq!(w.shape().dims(), [4, 3]);
    assert_eq!(session.variables().len(), 1, "one was needed");
    // One of them has storage and another value now, the others go from file to file.
    session.write_variable("b", &plimsoll::HostTensor::from_slice([3], &[1f32, 2.0, 3.0]).unwrap()).unwrap();
    session.save(folder.join("changed")).unwrap();
    for (name, b) in [("untouched", [0f32; 3]), ("changed", [1.0, 2.0, 3.0])] {
        let other = devices.load(saved()).unwrap();
        let restored = other.restore(folder.join(name)).unwrap();
        assert!(restored.missing.is_empty() && restored.restored.contains(&"velocity".to_string()), "{restored:?}");
        assert_eq!(other.read_variable("b").unwrap().to_vec::<f32>().unwrap(), b, "{name}");
        assert_eq!(other.read_variable("w").unwrap(), w);
    }
    assert_eq!(session.read_variable("none").unwrap_err().code(), Code::NotFound);
    std::fs::remove_dir_all(folder).unwrap();
}
