//! Models in every form that TensorFlow saves (`scripts/record_forms.py`): the values are TensorFlow's.

use std::path::{Path, PathBuf};

use plimsoll::npy;

use super::{Folder, Said, plimsoll};

fn form(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/forms").join(name)
}

/// Runs `plimsoll eval`, with `y` written to a file, and compares it with the recorded array.
fn eval(folder: &Folder, model: &Path, rest: &str, recorded: &str) -> Said {
    let out = folder.0.join("y.npy");
    let _ = std::fs::remove_file(&out);
    let said = plimsoll(&format!("eval {} --feed x={} --fetch {rest}={}", model.display(), form("x.npy").display(), out.display()));
    assert_eq!(said.code, 0, "{}: {}", model.display(), said.err);
    let [got, wanted] = [out, form(recorded)].map(|path| npy::read(&std::fs::read(path).unwrap()).unwrap());
    assert_eq!(got.shape(), wanted.shape(), "{}", model.display());
    let [got, wanted] = [got, wanted].map(|tensor| tensor.to_vec::<f32>().unwrap());
    let is_near = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-6 + 1e-5 * b.abs();
    assert!(got.iter().zip(&wanted).all(is_near), "{}: {got:?}, recorded {wanted:?}", model.display());
    said
}

#[test]
fn meta_graphs_have_the_values_of_the_checkpoint_beside_them() {
    let folder = Folder::new("forms-meta");
    for name in ["v1", "v1s", "v2s", "resource"] {
        eval(&folder, &form(&format!("{name}.ckpt.meta")), "y", &format!("y_{name}.npy"));
    }
}

#[test]
fn a_meta_graph_without_its_checkpoint_starts_with_its_init_op_or_a_checkpoint_that_is_named() {
    let folder = Folder::new("forms-alone");
    let meta = folder.0.join("net.meta");
    std::fs::copy(form("v2s.ckpt.meta"), &meta).unwrap();
    // Parts of a variable come from slices, of either version.
    for checkpoint in ["v2s", "v1s", "v1"] {
        let restore = format!("--restore {}", form(&format!("{checkpoint}.ckpt")).display());
        let said = eval(&folder, &meta, &format!("y {restore} --fetch y"), "y_v2s.npy");
        assert!(!said.err.contains("layer/w/part_0,"), "{}", said.err);
    }
    // The initializer's values are random ones, but there are some.
    let said = plimsoll(&format!("eval {} --feed x={} --fetch y", meta.display(), form("x.npy").display()));
    assert_eq!((said.code, said.out.starts_with("y float[3,3] = ")), (0, true), "{}", said.err);
}

#[test]
fn a_meta_graph_trains_with_its_collections() {
    let folder = Folder::new("forms-train");
    let copy = |name: &str| assert!(std::fs::copy(form(name), folder.0.join(name)).is_ok());
    ["v1.ckpt.meta", "v1.ckpt"].into_iter().for_each(copy);
    let model = folder.0.join("v1.ckpt.meta");
    let saved = folder.0.join("out");
    let data = format!("--data x={} --data labels={}", form("x.npy").display(), form("labels.npy").display());
    let said = plimsoll(&format!("train {} {data} --batch-size 3 --steps 1 --save {}", model.display(), saved.display()));
    assert_eq!(said.code, 0, "{}", said.err);
    let trained = format!("y --restore {} --fetch y", saved.display());
    eval(&folder, &model, &trained, "trained_v1.npy");
}

#[test]
fn saved_models_of_every_maker() {
    let folder = Folder::new("forms-saved");
    for name in ["simple", "tags", "module"] {
        eval(&folder, &form(name), "y", &format!("y_{name}.npy"));
    }
    // A table that the signature does not use needs no rule.
    eval(&folder, &form("archive"), "output_0", "y_archive.npy");
    let said = plimsoll(&format!("plan {} --signature serve --feed-shape x=3x4", form("archive").display()));
    assert_eq!(said.code, 0, "{}", said.err);
    let devices = plimsoll::Devices::open(&plimsoll::Options::new()).unwrap();
    let session = devices.load(form("archive")).unwrap();
    let x = npy::read(&std::fs::read(form("x.npy")).unwrap()).unwrap();
    let y = session.call("serve", &[("x", x)]).unwrap().remove(0).1;
    assert_eq!(y.shape().dims(), [3, 3]);
}

#[test]
fn a_variable_of_open_shape_has_the_shape_of_its_value() {
    let folder = Folder::new("forms-open");
    eval(&folder, &form("open"), "y --signature read --fetch y", "y_open.npy");
    let devices = plimsoll::Devices::open(&plimsoll::Options::new()).unwrap();
    let session = devices.load(form("open")).unwrap();
    let of = |rows: u64| plimsoll::HostTensor::from_slice([rows, 4], &vec![2.0f32; 4 * rows as usize]).unwrap();
    let sum = |name: &str, rows: u64| Ok(session.call(name, &[("x", of(rows))])?.remove(0).1.to_vec::<f32>()?[0]);
    assert_eq!(sum("keep", 2), Ok(16.0));
    // TensorFlow lets the variable grow. Here nothing happens to it.
    let refused: plimsoll::Error = sum("grow", 1).unwrap_err();
    assert_eq!(refused.code(), plimsoll::Code::Unimplemented, "{refused}");
    assert!(refused.to_string().contains("assigned another shape: shapes [2,4] and [3,4]"), "{refused}");
    assert_eq!(sum("keep", 2), Ok(16.0));
}

#[test]
fn recorded_cases_hold_models_in_every_form() {
    let folder = Folder::new("forms-recorded");
    let case = |name: &str, files: &[&str], case: &str| {
        let case_folder = folder.0.join(name);
        for file in files {
            let to = case_folder.join(file);
            std::fs::create_dir_all(to.parent().unwrap()).unwrap();
            std::fs::copy(form(file), to).unwrap();
        }
        std::fs::write(case_folder.join("case.json"), case).unwrap();
        let said = plimsoll(&format!("verify {}", case_folder.display()));
        assert_eq!(said.code, 0, "{name}: {}{}", said.out, said.err);
    };
    // The table of the other signature needs no rule.
    let of_archive = r#"{"saved_model": "archive", "rtol": 1e-5, "atol": 1e-6,
        "steps": [{"signature": "serve", "feeds": {"x": "x.npy"}, "fetches": {"output_0": "y_archive.npy"}}]}"#;
    let variables = ["archive/variables/variables.index", "archive/variables/variables.data-00000-of-00001"];
    case("archive", &[&["archive/saved_model.pb", "x.npy", "y_archive.npy"], &variables[..]].concat(), of_archive);
    // A MetaGraph's variables have the values of its checkpoint.
    let of_meta = r#"{"graph": "v1.ckpt.meta", "rtol": 1e-5, "atol": 1e-6, "steps": [
        {"feeds": {"x": "x.npy"}, "fetches": {"y:0": "y_v1.npy"}},
        {"feeds": {"x": "x.npy", "labels": "labels.npy"}, "targets": ["train"]},
        {"feeds": {"x": "x.npy"}, "fetches": {"y:0": "trained_v1.npy"}}]}"#;
    case("meta", &["v1.ckpt.meta", "v1.ckpt", "x.npy", "labels.npy", "y_v1.npy", "trained_v1.npy"], of_meta);
}

#[test]
fn a_run_of_one_signature_does_without_the_others() {
    use plimsoll::model::{self, SavedGraph};
    let read = |name: &str| SavedGraph::of(model::read(&form(name)).unwrap(), &form(name)).unwrap();
    let names = |saved: &SavedGraph| saved.graph.nodes.iter().map(|node| node.name.clone()).collect::<Vec<_>>();
    let whole = read("archive");
    let serve = whole.signature("serve").unwrap().clone();
    let wanted: Vec<&str> = serve.inputs.values().chain(serve.outputs.values()).map(|info| info.name.as_str()).collect();
    let mut saved = whole.clone();
    saved.keep_for(&wanted);
    let kept = names(&saved);
    assert!(kept.len() < names(&whole).len() && names(&whole).iter().filter(|name| kept.contains(name)).eq(&kept));
    assert!(saved.graph.library.functions.len() < whole.graph.library.functions.len());
    assert_eq!((saved.signature("serve").is_ok(), saved.signature("find").is_err()), (true, true));
    // A name that may be in a function keeps everything, and so does a model of TensorFlow 1.
    let mut saved = whole.clone();
    saved.keep_for(&[&wanted[..], &["StatefulPartitionedCall/dense/MatMul"]].concat());
    assert_eq!(names(&saved), names(&whole));
    let mut simple = read("simple");
    let all = names(&simple);
    simple.keep_for(&[]);
    assert_eq!(names(&simple), all);
}

#[test]
fn a_graph_of_a_saved_model_is_named_by_its_tags() {
    let folder = Folder::new("forms-tags");
    eval(&folder, &form("tags"), "y --tags train --fetch y", "y_train.npy");
    eval(&folder, &form("tags"), "y --tags gpu,serve --fetch y", "y_tags.npy");
    let (tags, simple) = (form("tags").display().to_string(), form("simple").display().to_string());
    let both = format!("plan {tags} {simple} --tags tags::train --feed-shape x=3x4");
    assert_eq!(plimsoll(&both).code, 0, "{}", plimsoll(&both).err);
    let x = format!("--feed x={}", form("x.npy").display());
    for (line, wanted) in [
        (format!("eval {tags} {x} --tags serve"), "tags 'serve'; there are graphs with 'train' and 'serve,gpu'"),
        (format!("plan {tags} --tags=,"), "tags ''; there are"),
        (format!("place {tags} --tags train,serve"), "tags 'serve,train'; there are"),
        (format!("ops --missing {tags} --tags tpu"), "tags 'tpu'; there are"),
        (format!("train {tags} --tags tpu --signature y --data x=y"), "tags 'tpu'; there are"),
        (format!("plan {} --tags serve", form("v1.ckpt.meta").display()), "only the graphs of a SavedModel have tags"),
        ("ops --tags serve".to_string(), "--missing <MODEL>"),
        ("train digits --tags serve".to_string(), "--tags serve: only models have it"),
    ] {
        let said = plimsoll(&line);
        assert_eq!((said.code, said.err.contains(wanted)), (2, true), "{line}: {}", said.err);
    }
    for line in [format!("place {tags} --tags train"), format!("ops --missing {tags} --tags train")] {
        assert_eq!(plimsoll(&line).code, 0, "{line}");
    }
    let devices = plimsoll::Devices::open(&plimsoll::Options::new()).unwrap();
    let session = devices.load_tagged(form("tags"), &plimsoll::model::Tags::listed("train")).unwrap();
    let x = npy::read(&std::fs::read(form("x.npy")).unwrap()).unwrap();
    let y = session.call("serving_default", &[("x", x)]).unwrap().remove(0).1;
    let recorded = npy::read(&std::fs::read(form("y_train.npy")).unwrap()).unwrap();
    assert_eq!(y.to_vec::<f32>().unwrap(), recorded.to_vec::<f32>().unwrap());
}

#[test]
fn damage_to_a_checkpoint_names_file_tensor_and_place() {
    let folder = Folder::new("forms-damage");
    for (meta, damaged, files, what) in [
        (
            "v1s.ckpt.meta",
            "v1s.ckpt-00000-of-00003",
            &["v1s.ckpt-00001-of-00003", "v1s.ckpt-00002-of-00003"][..],
            "the checksum of the block at 0 differs",
        ),
        (
            "v2s.ckpt.meta",
            "v2s.ckpt.data-00001-of-00003",
            &["v2s.ckpt.index", "v2s.ckpt.data-00000-of-00003", "v2s.ckpt.data-00002-of-00003"],
            "bytes at ",
        ),
    ] {
        [meta].iter().chain(files).for_each(|name| assert!(std::fs::copy(form(name), folder.0.join(name)).is_ok()));
        let mut bytes = std::fs::read(form(damaged)).unwrap();
        bytes.iter_mut().take(90).for_each(|byte| *byte ^= 4);
        std::fs::write(folder.0.join(damaged), bytes).unwrap();
        let said = plimsoll(&format!("eval {} --feed x={} --fetch y", folder.0.join(meta).display(), form("x.npy").display()));
        assert_eq!(said.code, 1, "{}{}", said.out, said.err);
        assert!([damaged, what, "DATA_LOSS"].iter().all(|part| said.err.contains(part)), "{}", said.err);
        // A shard that is missing is no checkpoint.
        std::fs::remove_file(folder.0.join(files[0])).unwrap();
        let said = plimsoll(&format!(
            "eval {} --feed x={} --fetch y --restore {}",
            folder.0.join(meta).display(),
            form("x.npy").display(),
            folder.0.join(meta).with_extension("").display()
        ));
        assert_eq!(said.code, 1, "{}{}", said.out, said.err);
    }
}

#[test]
fn files_of_other_programs_are_told_by_their_contents() {
    let folder = Folder::new("forms-foreign");
    for (name, bytes, line) in [
        ("a.pb", &b"PK\x03\x04....model.weights.h5"[..], "compile=False).export("),
        ("b", b"\x1c\0\0\0TFL3....", "tf2onnx.convert --tflite"),
        ("c.pb", b"\x08\x08\x12\x07pytorch", "onnx2tf -i"),
        ("d.bin", b"PK\x03\x04....archive/data.pkl", "torch.onnx.export("),
        ("e.pbtxt", b"\x89HDF\r\n\x1a\n", "keras.saving.load_model("),
        ("f.model", b"\x10\0\0\0\0\0\0\0{\"w\":{", "from_preset("),
        ("g.tgz", b"\x1f\x8b\x08\0", "tar -xzf"),
    ] {
        let said = plimsoll(&format!("plan {}", folder.write(name, bytes)));
        assert_eq!(said.code, 2, "{name}: {}", said.err);
        assert!(said.err.contains(line), "{name}: {}", said.err);
    }
}
