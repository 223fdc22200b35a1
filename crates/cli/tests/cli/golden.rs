//! TensorFlow's recorded runs.

use std::path::{Path, PathBuf};

use super::{cases, plimsoll};

/// A folder beside the project; none, visibly, where it is not there.
fn golden(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/golden").join(name);
    if !path.is_dir() {
        eprintln!("skipped: {} is not there", path.display());
    }
    path.is_dir().then_some(path)
}

/// The same bits, and within tolerance, whatever the devices and threads.
fn verifies(case: &Path) {
    let verify = |options: &str| {
        let said = plimsoll(&format!("verify {} {options}", case.display()));
        assert_eq!(said.code, 0, "{options}: {}{}", said.out, said.err);
        assert!(said.out.trim_end().ends_with(" OK"), "{}", said.out);
        said.out.split_whitespace().find(|word| word.starts_with("worst_error=")).expect("it says the worst error").to_string()
    };
    let wanted = verify("");
    for options in
        ["--device-count CPU=2", "--intra-op 1", "--intra-op 2", "--intra-op 3", "--intra-op 1 --inter-op 1 --device-count CPU=2"]
    {
        assert_eq!(verify(options), wanted, "{options}");
    }
}

#[test]
fn small_cases() {
    for case in ["scalars", "mlp_sgd_ref", "mlp_adam_resource", "towers"] {
        verifies(&cases().join(case));
    }
}

#[test]
fn mnist_mlp_by_gradient_descent() {
    golden("tf1_mnist_mlp_sgd").iter().for_each(|case| verifies(case));
}

#[test]
fn mnist_mlp_by_adam_on_resource_variables() {
    golden("tf1_mnist_mlp_adam_resource").iter().for_each(|case| verifies(case));
}

#[test]
fn keras_models_that_were_exported() {
    for name in ["keras_mlp_train_sgdm", "keras_cnn_train_adam", "keras_mobilenetv2_infer"] {
        golden(name).iter().for_each(|case| verifies(case));
    }
}
