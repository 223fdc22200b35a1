//! `plimsoll ops`.

use serde_json::Value;

use super::{Folder, document, plimsoll, saved};

/// An operation's entry in the document.
fn entry<'a>(document: &'a Value, name: &str) -> &'a Value {
    let operations = document["operations"].as_array().expect("a list");
    operations.iter().find(|operation| operation["name"] == name).unwrap_or_else(|| panic!("no {name}"))
}

fn types(entry: &Value) -> Vec<&str> {
    entry["types"].as_array().map(|types| types.iter().map(|name| name.as_str().unwrap()).collect()).unwrap_or_default()
}

#[test]
fn operations_are_listed_with_what_they_compute() {
    let document = document("ops --json");
    let operations = document["operations"].as_array().unwrap();
    let names: Vec<&str> = operations.iter().map(|operation| operation["name"].as_str().unwrap()).collect();
    assert!(names.is_sorted() && names.len() > 250, "{} operations", names.len());
    let product = entry(&document, "MatMul");
    assert!(types(product).contains(&"float") && types(product).contains(&"half"), "{product}");
    assert!(!types(product).contains(&"uint8"), "TensorFlow has no such product either: {product}");
    assert_eq!((&product["gradient"], &product["devices"]), (&"yes".into(), &serde_json::json!(["CPU", "GPU"])));
    assert_eq!(entry(&document, "Shape")["gradient"], "stops");
    let logic = entry(&document, "LogicalAnd");
    assert_eq!(types(logic), ["bool"]);
    let update = entry(&document, "ResourceApplyAdam");
    assert!(types(update).contains(&"float") && !types(update).contains(&"int32"), "{update}");
    let text = plimsoll("ops");
    assert_eq!((text.code, text.out.lines().count()), (0, names.len() + 1), "{}", text.err);
    let line = text.out.lines().find(|line| line.starts_with("LogicalAnd ")).unwrap();
    assert_eq!(line.split_whitespace().collect::<Vec<_>>(), ["LogicalAnd", "stops", "CPU", "GPU", "all", "bool"]);
    // A card has kernels for expressions of real numbers, not for every type, and none for files.
    let on_cards = |name: &str| entry(&document, name)["nvidia"].as_array().unwrap().clone();
    assert!(on_cards("Relu").contains(&"float".into()) && on_cards("AddV2").len() < types(entry(&document, "AddV2")).len());
    assert!(on_cards("Cholesky").is_empty() && on_cards("LRN").contains(&"float".into()));
    assert!(
        ["Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter", "DepthwiseConv2dNative"]
            .iter()
            .all(|name| on_cards(name).contains(&"half".into()))
    );
    assert!(on_cards("MatMul").contains(&"bfloat16".into()) && on_cards("BatchMatMulV2").contains(&"double".into()));
    let word = |name: &str| text.out.lines().find(|line| line.starts_with(name)).unwrap().split_whitespace().nth(4).unwrap();
    assert_eq!([word("AddV2 "), word("Cholesky ")], ["some", "host"]);
}

/// A node `x`, a call of a function that holds two operations without rules, and one that no program has.
const GRAPH: &str = r#"
node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } }
node { name: "call" op: "aborts" input: "x" }
node { name: "mine" op: "NobodysOp" input: "call" }
node { name: "stop" op: "Abort" }
library { function {
  signature { name: "aborts" input_arg { name: "a" type: DT_FLOAT } output_arg { name: "b" type: DT_FLOAT } }
  node_def { name: "quit" op: "Abort" }
  ret { key: "b" value: "a" }
} }
"#;

#[test]
fn a_model_lacks_operations_or_none() {
    let folder = Folder::new("ops-missing");
    let graph = folder.write("graph.pbtxt", GRAPH);
    let said = plimsoll(&format!("ops --missing {graph}"));
    let expected = "the graph: 2 operations have no rules
  Abort      2 nodes  first: stop
  NobodysOp   1 node  first: mine  (no operation of TensorFlow 2.21)
";
    assert_eq!((said.code, said.out.as_str()), (1, expected), "{}", said.err);
    let said = plimsoll(&format!("ops --missing {graph} --json"));
    let document: Value = serde_json::from_str(&said.out).unwrap();
    let missing = serde_json::json!([
        { "operation": "Abort", "nodes": 2, "first": "stop", "known": true },
        { "operation": "NobodysOp", "nodes": 1, "first": "mine", "known": false },
    ]);
    assert_eq!((said.code, &document), (1, &serde_json::json!({ "signatures": [{ "signature": null, "missing": missing }] })));
    let complete = plimsoll("ops --missing mlp_sgd_ref/graph.pb");
    assert_eq!((complete.code, complete.out.as_str()), (0, "the graph: every operation has rules\n"), "{}", complete.err);
}

#[test]
fn a_saved_model_is_asked_by_signature() {
    let model = saved("model");
    let said = plimsoll(&format!("ops --missing {} --json", model.display()));
    let document: Value = serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("{error}: {}", said.err));
    let signatures = document["signatures"].as_array().unwrap();
    assert!(signatures.iter().any(|entry| entry["signature"] == "train"), "{document}");
    assert!(said.code == 0 && signatures.iter().all(|entry| entry["missing"] == serde_json::json!([])), "{document}");
}

#[test]
fn a_model_that_is_not_there_is_wrong_use() {
    let said = plimsoll("ops --missing nowhere.pb");
    assert!(said.code == 2 && said.err.contains("nowhere.pb") && said.out.is_empty(), "{}", said.err);
}

/// Tags are a way out only where there are graphs with tags.
#[test]
fn a_folder_without_a_model_has_no_tags_to_name() {
    let folder = Folder::new("ops-nothing");
    let said = plimsoll(&format!("ops --missing {}", folder.0.display()));
    assert!(said.code == 1 && said.err.contains("holds no saved_model.pb") && !said.err.contains("--tags"), "{}", said.err);
    let said = plimsoll(&format!("ops --missing {} --tags nobody", saved("model").display()));
    assert!(said.code == 2 && said.err.contains("name one of these sets with --tags"), "{}", said.err);
}
