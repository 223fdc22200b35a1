//! Small files that TensorFlow and numpy wrote (`scripts/record_format_samples.py`), held against their known contents.

use std::path::{Path, PathBuf};

use plimsoll_base::{Code, DataType};
use plimsoll_formats::bundle::{
    BundleReader, BundleWriter, CheckpointState, latest_checkpoint, merge, read_checkpoint_state, write_checkpoint_state,
};
use plimsoll_formats::{npy, print_graph_def, read_graph_def, write_graph_def};
use plimsoll_graph::{AttrValue, AttrsExt, GraphDef, HostTensor, Shape, TensorData};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn graph(name: &str) -> GraphDef {
    read_graph_def(&std::fs::read(data(name)).unwrap()).unwrap()
}

fn scratch(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("plimsoll-formats-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn every_kind_of_attribute_is_read() {
    let graph = graph("attributes.pb");
    assert_eq!(graph.versions.producer, 2474);
    let node = &graph.nodes[0];
    assert_eq!((node.device.as_str(), &node.inputs[..]), ("/device:GPU:1", &["a".to_string(), "b:1".into(), "^c".into()][..]));
    let attrs = &node.attrs;
    assert_eq!(attrs["s"], AttrValue::Bytes(b"\xff\0text".to_vec()));
    assert_eq!((attrs.int("i"), attrs.float("f"), attrs.bool("b")), (Ok(-7), Ok(1.5), Ok(true)));
    assert_eq!(attrs["type"], AttrValue::Type(119));
    assert_eq!(attrs.shape("shape").unwrap().to_string(), "[?,3]");
    assert_eq!(attrs.shape("unknown").unwrap().0, None);
    assert!(matches!(attrs["named"], AttrValue::Opaque(_)));
    assert_eq!(attrs["placeholder"], AttrValue::Placeholder("T".into()));
    assert_eq!(attrs.func("func").unwrap().attrs.data_type("T"), Ok(DataType::Float));
    assert_eq!(attrs["unset"], AttrValue::Unset);
    assert_eq!(attrs.list("empty_list").unwrap(), &Default::default());
    assert_eq!(attrs.list("s_list").unwrap().bytes, [b"a".to_vec(), Vec::new()]);
    assert_eq!(attrs.list("i_list").unwrap().ints, [1, -1, 1 << 62]);
    assert_eq!(attrs.list("f_list").unwrap().floats, [0.1, f32::INFINITY]);
    assert_eq!(attrs.list("b_list").unwrap().bools, [true, false]);
    assert_eq!(attrs.data_types("type_list"), Ok(vec![DataType::Float, DataType::String]));
    assert_eq!(attrs.list("shape_list").unwrap().shapes[0].to_string(), "[4]");
    assert_eq!(attrs.list("func_list").unwrap().funcs[0].name, "g");
    assert!(!graph.nodes[1].carried.is_empty());
}

#[test]
fn tensors_of_every_type_are_read_and_splats_stay_small() {
    let graph = graph("attributes.pb");
    let attrs = &graph.nodes[2].attrs;
    let one = |name: &str| -> (&[u8], &[u8]) {
        match name {
            "float16" => (&[0, 0x3c], &[0, 0x3c]),
            "bfloat16" => (&[0x80, 0x3f], &[0x80, 0x3f]),
            "float32" => (&[0, 0, 0x80, 0x3f], &[0, 0, 0xc0, 0x3f]),
            "float64" => (&[0, 0, 0, 0, 0, 0, 0xf0, 0x3f], &[0, 0, 0, 0, 0, 0, 0xf8, 0x3f]),
            "complex64" => (&[0, 0, 0x80, 0x3f, 0, 0, 0, 0], &[0, 0, 0x80, 0x3f, 0, 0, 0, 0x40]),
            "complex128" => {
                (&[0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 0, 0, 0, 0, 0, 0, 0, 0], &[0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 0, 0, 0, 0, 0, 0, 0, 0x40])
            }
            "int64" => (&[1, 0, 0, 0, 0, 0, 0, 0], &[0xfd, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
            "uint64" => (&[1, 0, 0, 0, 0, 0, 0, 0], &[3, 0, 0, 0, 0, 0, 0, 0]),
            "int32" | "qint32" | "uint32" => (&[1, 0, 0, 0], &[3, 0, 0, 0]),
            "int16" | "uint16" | "qint16" | "quint16" => (&[1, 0], &[3, 0]),
            "bool" => (&[1], &[1]),
            "float8_e5m2" => (&[0x3c], &[1]),
            "float8_e4m3fn" => (&[0x38], &[1]),
            _ => (&[1], &[3]),
        }
    };
    let mut types = 0;
    for name in attrs.keys().filter_map(|name| name.strip_suffix("_splat")) {
        let (element, repeated) = one(name);
        let content = attrs.tensor(&format!("{name}_content")).unwrap().dense().unwrap();
        let zero = vec![0; element.len()];
        assert_eq!(content.bytes().unwrap(), [&zero, element, element, element, element, element].concat(), "{name}");
        let splat = attrs.tensor(&format!("{name}_splat")).unwrap();
        assert_eq!((splat.elements(), splat.splat()), (1 << 30, Some(repeated)), "{name}");
        types += 1;
    }
    assert_eq!(types, 24);
    let strings = attrs.tensor("strings").unwrap();
    assert_eq!(strings.strings().unwrap(), [b"a".to_vec(), Vec::new(), vec![0xff; 200], b"d".to_vec()]);
    assert!(matches!(attrs.tensor("resource").unwrap().data(), TensorData::Opaque(_)));
}

#[test]
fn graphs_survive_both_forms() {
    for name in ["attributes.pb", "functions.pb"] {
        let graph = graph(name);
        assert_eq!(read_graph_def(&write_graph_def(&graph)).unwrap(), graph);
        assert_eq!(read_graph_def(print_graph_def(&graph).as_bytes()).unwrap(), graph);
    }
    assert_eq!(graph("attributes.pb"), graph("attributes.pbtxt"), "TensorFlow's text says the same");
}

#[test]
fn a_checkpoint_is_read() {
    let reader = BundleReader::open(data("checkpoint")).unwrap();
    assert_eq!(reader.names().collect::<Vec<_>>(), ["bfloat16", "bools", "layer/weights", "scalar", "sliced", "strings"]);
    assert_eq!(reader.read("scalar").unwrap(), HostTensor::scalar(1.5f32));
    assert_eq!(reader.read("bools").unwrap(), HostTensor::from_bools([2], &[true, false]).unwrap());
    assert_eq!(reader.read("layer/weights").unwrap(), HostTensor::from_slice([2, 3], &[0i64, 1, 2, 3, 4, 5]).unwrap());
    assert_eq!(reader.read("strings").unwrap().strings().unwrap()[2], b"bc".repeat(100));
    let numbers: Vec<f32> = (0..24).map(|number| number as f32).collect();
    assert_eq!(reader.read("sliced").unwrap(), HostTensor::from_slice([2, 3, 4], &numbers).unwrap());
    let entry = reader.entry("bfloat16").unwrap();
    assert_eq!((entry.data_type, entry.shape.dims()), (DataType::Bfloat16, &[2][..]));
    let mut bytes = [0; 4];
    reader.read_into("bfloat16", &mut bytes).unwrap();
    assert_eq!(bytes, [0x80, 0x3f, 0x00, 0x40]);
    assert!(reader.read_into("bfloat16", &mut [0; 5]).is_err());
    let error = reader.read("nothing").unwrap_err();
    assert!(error.code() == Code::NotFound && error.message().contains("Key nothing not found in checkpoint"), "{error}");
    assert_eq!(BundleReader::open(data("no_checkpoint")).unwrap_err().code(), Code::NotFound);
}

/// A tensor's bytes, through a buffer of that length.
fn streamed(reader: &BundleReader, name: &str, buffer: usize) -> plimsoll_base::Result<Vec<u8>> {
    let entry = reader.entry(name)?;
    let mut bytes = vec![0xee; entry.data_type.bytes_of(entry.shape.elements()?).unwrap() as usize];
    reader.read_in_pieces(name, &mut vec![0; buffer], &mut |at, piece| {
        bytes[at as usize..][..piece.len()].copy_from_slice(piece);
        Ok(())
    })?;
    Ok(bytes)
}

#[test]
fn a_checkpoint_is_read_and_written_in_pieces() {
    let reader = BundleReader::open(data("checkpoint")).unwrap();
    let folder = scratch("pieces");
    let mut writer = BundleWriter::create(folder.join("ckpt")).unwrap();
    for name in reader.names().filter(|name| *name != "strings") {
        let whole = reader.read(name).unwrap();
        for buffer in [9, 64, 1000] {
            assert_eq!(streamed(&reader, name, buffer).unwrap(), whole.bytes().unwrap(), "{name} through {buffer} bytes");
        }
        let mut fill = |put: &mut dyn FnMut(&[u8]) -> plimsoll_base::Result<()>| whole.bytes().unwrap().chunks(5).try_for_each(put);
        writer.add_pieces(name, whole.data_type(), whole.shape(), &mut fill).unwrap();
        assert!(writer.add_pieces("other", whole.data_type(), &Shape::from([100, 100]), &mut fill).is_err());
    }
    assert!(streamed(&reader, "scalar", 3).is_err() && reader.read_in_pieces("strings", &mut [0; 64], &mut |_, _| Ok(())).is_err());
    writer.finish().unwrap();
    let again = BundleReader::open(folder.join("ckpt")).unwrap();
    assert_eq!(again.names().count(), reader.names().count() - 1);
    again.names().for_each(|name| assert_eq!(again.read(name).unwrap(), reader.read(name).unwrap(), "{name}"));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_checkpoint_is_written() {
    let folder = scratch("written");
    let prefix = folder.join("new").join("ckpt-1");
    let reader = BundleReader::open(data("checkpoint")).unwrap();
    let mut writer = BundleWriter::create(&prefix).unwrap();
    for name in reader.names() {
        writer.add(name, &reader.read(name).unwrap()).unwrap();
    }
    let splat = HostTensor::from_leading(DataType::Int32, [10_000].into(), &7i32.to_le_bytes()).unwrap();
    writer.add("splat", &splat).unwrap();
    assert!(writer.add("splat", &splat).unwrap_err().message().contains("duplicate"));
    assert!(writer.add("", &splat).is_err() && writer.add("\0x", &splat).is_err());
    assert!(BundleReader::open(&prefix).is_err(), "nothing stands there before it is finished");
    writer.finish().unwrap();
    let again = BundleReader::open(&prefix).unwrap();
    for name in reader.names() {
        assert_eq!(again.read(name).unwrap(), reader.read(name).unwrap(), "{name}");
    }
    assert_eq!(again.read("splat").unwrap(), splat);
    drop(BundleWriter::create(folder.join("new").join("ckpt-2")).unwrap());
    assert_eq!(std::fs::read_dir(folder.join("new")).unwrap().count(), 2, "an unfinished checkpoint leaves nothing");

    assert_eq!(latest_checkpoint(&folder).unwrap(), None);
    let state = CheckpointState {
        model_checkpoint_path: "new/ckpt-1".into(),
        all_model_checkpoint_paths: vec!["a \"b\"".into()],
        ..Default::default()
    };
    write_checkpoint_state(&folder, &state).unwrap();
    assert_eq!(read_checkpoint_state(&folder).unwrap(), Some(state));
    assert_eq!(latest_checkpoint(&folder).unwrap(), Some(folder.join("new/ckpt-1")));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn checkpoints_are_merged() {
    let folder = scratch("merged");
    let write = |name: &str, tensors: &[(&str, f32)]| {
        let mut writer = BundleWriter::create(folder.join(name)).unwrap();
        tensors.iter().for_each(|(name, value)| writer.add(name, &HostTensor::scalar(*value)).unwrap());
        writer.finish().unwrap();
        folder.join(name)
    };
    let parts = [write("part0", &[("b", 1.0), ("d", 2.0)]), write("part1", &[("a", 3.0), ("c", 4.0)])];
    let twice = write("twice", &[("c", 5.0)]);
    let error = merge(&[&parts[0], &parts[1], &twice], folder.join("all")).unwrap_err();
    assert!(error.code() == Code::InvalidArgument && error.message().contains("'c'"), "{error}");
    assert!(merge::<&Path>(&[], folder.join("all")).is_err());
    merge(&parts, folder.join("all")).unwrap();
    let reader = BundleReader::open(folder.join("all")).unwrap();
    let values: Vec<(&str, HostTensor)> = reader.names().map(|name| (name, reader.read(name).unwrap())).collect();
    assert_eq!(values, [("a", 3.0f32), ("b", 1.0), ("c", 4.0), ("d", 2.0)].map(|(name, value)| (name, HostTensor::scalar(value))));
    assert!(BundleReader::open(&parts[0]).is_err(), "the old index is gone");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn damage_to_the_data_of_a_checkpoint_is_noticed() {
    let folder = scratch("damaged");
    let name = "checkpoint.data-00000-of-00001";
    let good = std::fs::read(data(name)).unwrap();
    std::fs::copy(data("checkpoint.index"), folder.join("checkpoint.index")).unwrap();
    let reader = BundleReader::open(folder.join("checkpoint")).unwrap();
    assert_eq!(reader.read("scalar").unwrap_err().code(), Code::NotFound);
    for position in (0..good.len()).step_by(3) {
        let mut bad = good.clone();
        bad[position] ^= 0x04;
        std::fs::write(folder.join(name), &bad).unwrap();
        let failed: Vec<&str> = reader.names().filter(|name| reader.read(name).is_err()).collect();
        assert_eq!(failed.len(), 1, "byte {position}: {failed:?}");
        assert!(failed == ["strings"] || streamed(&reader, failed[0], 64).is_err_and(|error| error.code() == Code::DataLoss));
        std::fs::write(folder.join(name), &good[..position]).unwrap();
        assert!(reader.names().any(|name| reader.read(name).is_err_and(|error| error.code() == Code::DataLoss)), "cut at {position}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn arrays_are_read() {
    let read = |name: &str| npy::read(&std::fs::read(data(name)).unwrap()).unwrap();
    assert_eq!(read("float.npy"), HostTensor::from_slice([2, 3], &[0f32, 1.0, 2.0, 3.0, 4.0, 5.0]).unwrap());
    assert_eq!(read("fortran.npy"), HostTensor::from_slice([2, 3, 4], &(0..24).collect::<Vec<i16>>()).unwrap());
    assert_eq!(read("scalar.npy"), HostTensor::scalar(1.5f64));
    let mut written = Vec::new();
    npy::write(&read("float.npy"), &mut written).unwrap();
    assert_eq!(written, std::fs::read(data("float.npy")).unwrap(), "numpy's own bytes");
}
