//! Every kernel that is generated, on shapes and elements made at random, against the processor's: as NVRTC translates it, run by an
//! interpreter, and as the system's C compiler does. What is not installed is skipped, visibly.
//!
//! PLIMSOLL_KERNELS=N tries N times as many shapes. Where PLIMSOLL_CHECK is set (`bench/gpu/check.sh`), the card of this machine runs them, too.

mod anchors;
mod attending;
mod card;
mod cases;
mod compiled;
mod cudnn;
mod deciding;
mod drawn;
mod engines;
mod expressions;
mod forms;
mod hostile;
#[path = "../computing/machine.rs"]
#[allow(dead_code, reason = "the tests of cards share it")]
mod machine;
mod making;
mod normalizing;
mod on_rows;
mod planted;
mod pooled;
mod sass;
mod wide;

use cases::Case;
use engines::{Engines, Outcome, Run};

/// Cases of all kinds, but for products and convolutions, whose kernels are long.
fn short_kernels() -> Vec<Case> {
    let all = [
        expressions::expressions(making::FLOATS, 1),
        expressions::expressions(making::INTEGERS, 2),
        expressions::of_groups(14),
        cases::movements(3),
        cases::reductions(4),
        cases::rows(5),
        pooled::pools(6),
        cases::gathers(7),
        drawn::random(8),
        drawn::keys(18),
        cases::targets(19),
        cases::resized(20),
        cases::conditions(),
        normalizing::norms(9),
        normalizing::behind_norms(15),
        normalizing::of_sums(21),
        normalizing::lrns(10),
        anchors::depthwise(13),
    ];
    all.into_iter().flatten().collect()
}

/// Runs cases of one kind on every engine and compares.
fn check(cases: Vec<Case>) {
    let (mut emitted, mut refused) = (0, Vec::new());
    let mut runs = Vec::new();
    for case in &cases {
        match case.emit() {
            Ok(run) => {
                emitted += 1;
                runs.push(run);
            }
            Err(error) => refused.push(error.to_string()),
        }
    }
    assert!(refused.len() * 10 <= emitted, "{} of {} cases have no kernel: {:?}", refused.len(), cases.len(), refused.first());
    compare(&runs);
}

fn compare(runs: &[Run]) {
    for outcome in Engines::find().run(runs) {
        let Outcome { engine, run, result } = outcome;
        run.compare(engine, &result);
    }
    if let Some(card) = card::Card::find() {
        card.compare(runs);
    }
}

#[test]
fn forms_of_cudnn() {
    let runs: Vec<Run> = forms::forms(16).into_iter().map(|(case, emitted)| case.by(emitted).unwrap()).collect();
    compare(&runs);
}

#[test]
fn expressions_of_floats() {
    check(expressions::expressions(making::FLOATS, 1));
}

#[test]
fn expressions_of_integers() {
    check(expressions::expressions(making::INTEGERS, 2));
}

#[test]
fn expressions_of_several_groups() {
    check(expressions::of_groups(14));
}

#[test]
fn expressions_on_rows() {
    compare(&on_rows::on_rows(22));
    compare(&on_rows::outside(23));
}

#[test]
fn every_primitive() {
    check(expressions::primitives());
}

#[test]
fn movements() {
    check(cases::movements(3));
}

#[test]
fn reductions() {
    check(cases::reductions(4));
}

#[test]
fn softmax_and_losses() {
    check(cases::rows(5));
}

#[test]
fn batch_normalization() {
    check(normalizing::norms(9));
}

#[test]
fn what_is_behind_batch_normalization() {
    check(normalizing::behind_norms(15));
    normalizing::bits_behind_norms(&Engines::find());
}

#[test]
fn batch_normalization_by_sums() {
    check(normalizing::of_sums(21));
}

#[test]
fn local_response_normalization() {
    check(normalizing::lrns(10));
}

#[test]
fn pooling() {
    check(pooled::pools(6));
}

#[test]
fn rows_that_indices_name() {
    check(cases::gathers(7));
}

#[test]
fn random_numbers() {
    check(drawn::random(8));
}

#[test]
fn keys_of_seeds() {
    check(drawn::keys(18));
}

#[test]
fn targets_among_the_most_probable() {
    check(cases::targets(19));
}

#[test]
fn images_between_neighbours() {
    check(cases::resized(20));
}

#[test]
fn conditions_that_have_to_hold() {
    check(cases::conditions());
}

#[test]
fn products() {
    check(anchors::products(10));
}

#[test]
fn convolutions() {
    check(anchors::convolutions(12));
}

#[test]
fn depthwise_convolutions() {
    check(anchors::depthwise(13));
}

#[test]
fn products_are_near_where_sums_are_rounded() {
    check(anchors::rounded_products(11));
}

#[test]
fn faults_are_those_of_the_processor() {
    check(cases::faults());
}
