//! Lists whose tensors have several shapes, or other shapes than operations state, recorded by scripts/record_list_shapes.py. What
//! TensorFlow refuses has its code, and what it computes its values. What is not built yet says so, and what to do.

use std::path::Path;

use plimsoll::{Code, DataType, Devices, Error, HostTensor, Options, Result, formats};
use serde::Deserialize;

/// Of these the plan says UNIMPLEMENTED, at a node and with a remedy.
const NOT_YET: &[&str] = &[
    "set_of_two_shapes",
    "set_over_one_of_another_shape",
    "pushed_of_two_shapes",
    "pushed_of_two_lengths_where_the_rank_is_stated",
    "set_behind_a_resize",
    "set_into_the_rows_of_a_tensor",
    "scattered_into_a_list_of_another_shape",
    "gathered_from_two_shapes",
    "stacked_of_two_shapes",
    "concatenated_of_two_lengths",
    "joined_of_two_shapes",
    "split_into_two_lengths",
    "pushed_in_a_loop_upon_another_shape",
    "pushed_in_a_loop_of_another_shape_than_stated",
    "read_as_another_shape",
    "read_as_another_shape_where_nothing_was_set",
    "popped_as_another_shape",
    "popped_as_another_shape_than_stated",
    "written_of_two_shapes",
    "written_of_two_lengths_where_the_rank_is_stated",
    "array_split_into_two_lengths",
    "array_concatenated_of_two_lengths",
];

#[derive(Deserialize)]
struct Recorded {
    name: String,
    fetches: Vec<String>,
    /// The elements of each fetch.
    values: Option<Vec<Vec<f64>>>,
    /// The code with which the run fails, where it does.
    error: Option<String>,
    graph: String,
}

impl Recorded {
    fn run(&self) -> Result<Vec<HostTensor>> {
        let devices = Devices::open(&Options::new())?;
        let session = devices.session(devices.resolve(formats::read_graph_def(self.graph.as_bytes())?)?)?;
        session.run(&[], &self.fetches.iter().map(String::as_str).collect::<Vec<_>>(), &[])
    }

    /// # Errors
    /// What is wrong.
    fn check(&self) -> Result<(), String> {
        let run = self.run();
        if NOT_YET.contains(&self.name.as_str()) {
            let is_said = |error: &Error| error.code() == Code::Unimplemented && error.node().is_some() && error.remedy().is_some();
            return if run.as_ref().is_err_and(is_said) { Ok(()) } else { Err(format!("{run:?}")) };
        }
        match (run, &self.error, &self.values) {
            (Err(error), Some(code), _) if error.code().name() == code => Ok(()),
            (Ok(found), None, Some(wanted)) if found.iter().map(elements).eq(wanted.iter().cloned()) => Ok(()),
            (run, ..) => Err(format!("{run:?}")),
        }
    }
}

fn elements(tensor: &HostTensor) -> Vec<f64> {
    match tensor.data_type() {
        DataType::Float => tensor.to_vec::<f32>().unwrap().into_iter().map(f64::from).collect(),
        _ => tensor.to_i64s().unwrap().into_iter().map(|element| element as f64).collect(),
    }
}

#[test]
fn lists_of_several_shapes_are_as_tensorflows_or_said_not_to_be_built() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/list_shapes.jsonl");
    let text = std::fs::read_to_string(file).expect("there are records");
    let records: Vec<Recorded> = text.lines().map(|line| serde_json::from_str(line).expect("it is a record")).collect();
    let failures: Vec<String> =
        records.iter().filter_map(|record| record.check().err().map(|why| format!("{}: {why}", record.name))).collect();
    assert!(records.len() > NOT_YET.len(), "only {} records", records.len());
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}
