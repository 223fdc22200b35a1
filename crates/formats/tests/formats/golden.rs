//! Recorded TensorFlow runs: every model, checkpoint, array and config of theirs is read.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use plimsoll_base::{ArgType, Result};
use plimsoll_formats::bundle::BundleReader;
use plimsoll_formats::{
    OBJECT_GRAPH_KEY, npy, parse_saved_model, read_config, read_object_graph, read_saved_model, variables_prefix, write_saved_model,
};
use plimsoll_graph::{Graph, OpTable, TensorName};

fn cases() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/golden");
    let Ok(entries) = std::fs::read_dir(&root) else {
        eprintln!("skipped: {} is not there", root.display());
        return Vec::new();
    };
    entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

#[test]
fn saved_models_and_their_variables_are_read() -> Result<()> {
    let ops = OpTable::tensorflow();
    for folder in cases().into_iter().map(|case| case.join("model")).filter(|folder| folder.exists()) {
        let model = read_saved_model(&folder)?;
        assert_eq!(parse_saved_model(&write_saved_model(&model))?, model);
        let meta = model.serving()?;
        assert!(meta.meta_info_def.stripped_default_attrs);
        let graph = Graph::resolve(meta.graph_def.clone(), &ops)?;
        assert!(meta.init_op().is_some_and(|name| !name.is_empty()));
        for info in meta.signature_def.values().flat_map(|signature| signature.inputs.values().chain(signature.outputs.values())) {
            assert!(info.name.is_empty() || graph.find(&TensorName::parse(&info.name)?.node).is_some(), "{}", info.name);
        }
        let saver = meta.saver_def.as_ref().expect("a saver");
        assert!(graph.find(&saver.restore_op_name).is_some());

        let reader = BundleReader::open(variables_prefix(&folder))?;
        let objects = read_object_graph(&reader.read(OBJECT_GRAPH_KEY)?.strings().expect("a string")[0])?;
        let keys: BTreeSet<&str> =
            objects.nodes.iter().flat_map(|node| &node.attributes).map(|tensor| tensor.checkpoint_key.as_str()).collect();
        let names: BTreeSet<&str> = reader.names().filter(|name| *name != OBJECT_GRAPH_KEY).collect();
        assert_eq!(keys, names);
        for name in names {
            assert_eq!(reader.entry(name)?.shape, *reader.read(name)?.shape());
        }
        let variables = meta.object_graph_def.iter().flat_map(|graph| &graph.nodes).filter_map(|node| node.variable.as_ref());
        assert!(variables.clone().count() > 0);
        variables.for_each(|variable| assert!(ArgType::from_number(variable.dtype).is_some()));
    }
    Ok(())
}

#[test]
fn arrays_and_configs_are_read() -> Result<()> {
    for case in cases() {
        if let Ok(config) = std::fs::read(case.join("config.pbtxt")) {
            assert!(read_config(&config)?.allow_soft_placement);
        }
        let steps = std::fs::read_dir(&case).unwrap().flatten().filter(|entry| entry.path().is_dir());
        for file in steps.flat_map(|step| std::fs::read_dir(step.path()).unwrap().flatten()).map(|entry| entry.path()) {
            if file.extension().is_some_and(|extension| extension == "npy") {
                let bytes = std::fs::read(&file).unwrap();
                let mut written = Vec::new();
                npy::write(&npy::read(&bytes).map_err(|error| error.context(file.display()))?, &mut written)?;
                assert!(written == bytes, "{}", file.display());
            }
        }
    }
    Ok(())
}
