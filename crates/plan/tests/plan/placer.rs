//! TensorFlow's placer, case by case: `tests/data/placer.txt`, whose head says how cases are written.

use crate::placing::{Case, Cases};

#[test]
fn every_case_of_the_table_is_placed_as_tensorflow_does() {
    let cases = Cases::read(include_str!("../data/placer.txt"));
    assert!(cases.cases.len() > 80, "only {} cases were read", cases.cases.len());
    let failures: Vec<String> = cases.cases.iter().flat_map(|case| case.run(&cases)).collect();
    assert!(failures.is_empty(), "{} of {}:\n{}", failures.len(), cases.cases.len(), failures.join("\n"));
}

/// The ids of table P, without those that need a session (P72).
#[test]
fn every_row_of_the_table_has_its_case() {
    let cases = Cases::read(include_str!("../data/placer.txt"));
    let ids: Vec<&str> = cases.cases.iter().map(Case::id).collect();
    let missing: Vec<String> =
        (1..=76).filter(|id| *id != 72).map(|id| format!("P{id}")).filter(|id| !ids.contains(&id.as_str())).collect();
    assert_eq!(missing, Vec::<String>::new());
}

#[test]
fn a_wrong_expectation_is_noticed() {
    let text = "op A() -> (a:float) | |\nkernels A | CPU\ncase X\n  n = A\n  => n GPU\n  => why n default\n  => error INTERNAL no\n";
    let cases = Cases::read(text);
    assert_eq!(cases.cases[0].run(&cases).len(), 3);
}
