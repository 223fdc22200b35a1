use super::*;
use crate::builder::optimizer::{
    Adam, ExponentialMovingAverage, GradientDescent, Momentum, Optimizer, average_gradients, compute_gradients, exponential_decay,
};

/// A loss of two variables, one on the CPU and one on a GPU.
fn model(kind: VariableKind) -> (GraphBuilder, Output) {
    let mut b = builder();
    b.set_variable_kind(kind);
    let x = float(&mut b, "x");
    let w = b.device("/cpu:0", |b| weights(b, "fc/w"));
    let v = weights(&mut b, "fc/v");
    let y = b.mul(x, w.value).build().unwrap();
    let loss = b.mul(y, v.value).name("loss").build().unwrap();
    (b, loss)
}

#[test]
fn descends_along_the_gradient() {
    let (mut b, loss) = model(VariableKind::Reference);
    let variables = b.trainable_variables();
    let train = GradientDescent::new(0.1).minimize(&mut b, loss, &variables, "train").unwrap();
    assert_eq!(b.node(train).name, "train");
    let graph = verify(b);
    assert_eq!(
        lines(&graph, "train"),
        [
            "train/learning_rate = Const()",
            "train/update_fc/w/ApplyGradientDescent = ApplyGradientDescent(fc/w, train/learning_rate, gradients/mul_grad/Mul_1) @/device:CPU:0",
            "train/update_fc/v/ApplyGradientDescent = ApplyGradientDescent(fc/v, train/learning_rate, gradients/loss_grad/Mul_1)",
            "train/NoOp = NoOp() ^train/update_fc/v/ApplyGradientDescent",
            "train/NoOp_1 = NoOp() @/device:CPU:0 ^train/update_fc/w/ApplyGradientDescent",
            "train = NoOp() ^train/NoOp ^train/NoOp_1",
        ]
    );
    assert_eq!(classes(&graph, "train/update_fc/w/ApplyGradientDescent"), ["loc:@fc/w"]);
}

#[test]
fn momentum_has_slots_with_their_variables() {
    let (mut b, loss) = model(VariableKind::Reference);
    let variables = b.trainable_variables();
    let step = b.untrained_variable("global_step", DataType::Int64, [], &Initializer::Zeros).unwrap();
    let gradients = compute_gradients(&mut b, loss, &variables[..1]).unwrap();
    let mut momentum = Momentum::new(0.1, 0.9);
    momentum.apply_gradients_and_count(&mut b, &gradients, &step, "").unwrap();
    // A second application shares the slots, a second optimizer has its own.
    momentum.apply_gradients(&mut b, &gradients, "").unwrap();
    Momentum::new(0.1, 0.9).nesterov(true).apply_gradients(&mut b, &gradients, "").unwrap();
    let graph = verify(b);
    let slots: Vec<String> = lines(&graph, "fc/w/Momentum");
    assert_eq!(
        slots[..4],
        [
            "fc/w/Momentum/Initializer/zeros = Const() @/device:CPU:0",
            "fc/w/Momentum = VariableV2() @/device:CPU:0",
            "fc/w/Momentum/Assign = Assign(fc/w/Momentum, fc/w/Momentum/Initializer/zeros) @/device:CPU:0",
            "fc/w/Momentum/read = Identity(fc/w/Momentum) @/device:CPU:0",
        ]
    );
    assert_eq!((slots.len(), slots[5].as_str()), (8, "fc/w/Momentum_1 = VariableV2() @/device:CPU:0"));
    assert_eq!(classes(&graph, "fc/w/Momentum"), ["loc:@fc/w"]);
    assert_eq!(
        lines(&graph, "Momentum")[..6],
        [
            "Momentum/learning_rate = Const()",
            "Momentum/momentum = Const()",
            "Momentum/update_fc/w/ApplyMomentum = ApplyMomentum(fc/w, fc/w/Momentum, Momentum/learning_rate, gradients/mul_grad/Mul_1, Momentum/momentum) @/device:CPU:0",
            "Momentum/update = NoOp() @/device:CPU:0 ^Momentum/update_fc/w/ApplyMomentum",
            "Momentum/Const = Const() ^Momentum/update",
            "Momentum = AssignAdd(global_step, Momentum/Const)",
        ]
    );
    let nesterov = graph.node(graph.find("Momentum_2/update_fc/w/ApplyMomentum").unwrap());
    assert_eq!(nesterov.attrs.bool("use_nesterov"), Ok(true));
}

#[test]
fn adam_moves_its_powers_after_all_updates() {
    let (mut b, loss) = model(VariableKind::Reference);
    let variables = b.trainable_variables();
    Adam::new(0.1).minimize(&mut b, loss, &variables, "").unwrap();
    assert_eq!(b.trainable_variables().len(), 2);
    let names: Vec<&str> = b.variables()[2..].iter().map(|variable| variable.name.as_str()).collect();
    assert_eq!(names, ["beta1_power", "beta2_power", "fc/w/Adam", "fc/w/Adam_1", "fc/v/Adam", "fc/v/Adam_1"]);
    let graph = verify(b);
    assert_eq!(classes(&graph, "beta1_power"), ["loc:@fc/v"]);
    let after = "^Adam/update_fc/v/ApplyAdam ^Adam/update_fc/w/ApplyAdam";
    assert_eq!(
        lines(&graph, "Adam")[4..],
        [
            "Adam/update_fc/w/ApplyAdam = ApplyAdam(fc/w, fc/w/Adam, fc/w/Adam_1, beta1_power/read, beta2_power/read, Adam/learning_rate, Adam/beta1, Adam/beta2, Adam/epsilon, gradients/mul_grad/Mul_1) @/device:CPU:0".to_string(),
            "Adam/update_fc/v/ApplyAdam = ApplyAdam(fc/v, fc/v/Adam, fc/v/Adam_1, beta1_power/read, beta2_power/read, Adam/learning_rate, Adam/beta1, Adam/beta2, Adam/epsilon, gradients/loss_grad/Mul_1)".to_string(),
            format!("Adam/mul = Mul(beta1_power/read, Adam/beta1) {after}"),
            "Adam/Assign = Assign(beta1_power, Adam/mul)".to_string(),
            format!("Adam/mul_1 = Mul(beta2_power/read, Adam/beta2) {after}"),
            "Adam/Assign_1 = Assign(beta2_power, Adam/mul_1)".to_string(),
            "Adam/NoOp = NoOp() ^Adam/Assign ^Adam/Assign_1 ^Adam/update_fc/v/ApplyAdam".to_string(),
            "Adam/NoOp_1 = NoOp() @/device:CPU:0 ^Adam/update_fc/w/ApplyAdam".to_string(),
            "Adam = NoOp() ^Adam/NoOp ^Adam/NoOp_1".to_string(),
        ]
    );
}

#[test]
fn resources_are_updated_by_their_own_operations() {
    let (mut b, loss) = model(VariableKind::Resource);
    let variables = b.trainable_variables();
    Adam::new(0.1).betas(0.8, 0.9).epsilon(0.1).minimize(&mut b, loss, &variables, "train").unwrap();
    Momentum::new(0.1, 0.9).minimize(&mut b, loss, &variables, "").unwrap();
    GradientDescent::new(0.1).minimize(&mut b, loss, &variables, "").unwrap();
    b.global_variables_initializer().unwrap();
    let graph = verify(b);
    let count = |op: &str| graph.nodes().values().filter(|node| node.op == op).count();
    assert_eq!(["ResourceApplyAdam", "ResourceApplyMomentum", "ResourceApplyGradientDescent"].map(count), [2, 2, 2]);
    assert_eq!(count("AssignVariableOp"), 2 + 2 + 4 + 2 + 2);
    assert_eq!(lines(&graph, "train/AssignVariableOp")[0], "train/AssignVariableOp = AssignVariableOp(beta1_power, train/mul)",);
}

#[test]
fn a_learning_rate_may_be_a_tensor() {
    let (mut b, loss) = model(VariableKind::Reference);
    let rate = b.placeholder("rate", DataType::Float, dims([])).build().unwrap();
    let variables = b.trainable_variables();
    GradientDescent::new(rate).minimize(&mut b, loss, &variables, "").unwrap();
    let x = b.graph().tensor("x").unwrap();
    let nothing = GradientDescent::new(0.1).minimize(&mut b, x, &variables, "");
    assert_error(nothing, Code::InvalidArgument, "", "no variable has a gradient");
    let graph = verify(b);
    assert!(lines(&graph, "GradientDescent/update_fc/v")[0].contains("(fc/v, rate, "));
}

#[test]
fn optimizers_can_be_chosen_while_the_program_runs() {
    let choices: [Box<dyn Optimizer>; 3] =
        [Box::new(GradientDescent::new(0.1)), Box::new(Momentum::new(0.1, 0.9)), Box::new(Adam::new(0.1))];
    for mut optimizer in choices {
        let (mut b, loss) = model(VariableKind::Reference);
        let variables = b.trainable_variables();
        let train = optimizer.minimize(&mut b, loss, &variables, "").unwrap();
        assert_eq!(b.node(train).name, optimizer.name());
        verify(b);
    }
}

#[test]
fn means_over_towers_need_the_same_variables() {
    let (mut b, loss) = model(VariableKind::Reference);
    let variables = b.trainable_variables();
    let tower = compute_gradients(&mut b, loss, &variables).unwrap();
    let means = average_gradients(&mut b, &[tower.clone(), tower.clone()]).unwrap();
    assert_eq!(means.iter().map(|(mean, _)| name(&b, *mean)).collect::<Vec<_>>(), ["Mean", "Mean_1"]);
    assert_error(average_gradients(&mut b, &[tower.clone(), tower[..1].to_vec()]), Code::InvalidArgument, "", "variable fc/w");
    assert_eq!(average_gradients(&mut b, &[]).unwrap(), []);
    assert_eq!(lines(&verify(b), "concat = "), ["concat = ConcatV2(ExpandDims, ExpandDims_1, concat/axis)"]);
}

#[test]
fn averages_and_rates_follow_the_steps() {
    let (mut b, _) = model(VariableKind::Reference);
    let variables = b.trainable_variables();
    let step = b.get_untrained_variable("global_step", DataType::Int64, [], &Initializer::Zeros).unwrap();
    let rate = exponential_decay(&mut b, 0.1, &step, 350.0, 0.1, true).unwrap();
    assert_eq!((name(&b, rate).as_str(), b.data_type(rate)), ("ExponentialDecay", DataType::Float));
    let mut averages = ExponentialMovingAverage::new(0.9999).num_updates(&step);
    averages.apply(&mut b, &variables[..1]).unwrap();
    assert_eq!(averages.average(&variables[0]).unwrap().name, "fc/w/ExponentialMovingAverage");
    assert_eq!(averages.average(&variables[1]), None);
    let refused = averages.apply(&mut b, &[step]);
    assert_error(refused, Code::InvalidArgument, "", "only float is averaged");
    let graph = verify(b);
    assert_eq!(
        lines(&graph, "fc/w/ExponentialMovingAverage")[1],
        "fc/w/ExponentialMovingAverage/Assign = Assign(fc/w/ExponentialMovingAverage, fc/w/Initializer/zeros) @/device:CPU:0"
    );
    assert_eq!(
        lines(&graph, "ExponentialMovingAverage/AssignMovingAvg")[2..],
        [
            "ExponentialMovingAverage/AssignMovingAvg/read = Identity(fc/w/ExponentialMovingAverage) @/device:CPU:0",
            "ExponentialMovingAverage/AssignMovingAvg/read_1 = Identity(fc/w) @/device:CPU:0",
            "ExponentialMovingAverage/AssignMovingAvg/sub_1 = Sub(ExponentialMovingAverage/AssignMovingAvg/read, ExponentialMovingAverage/AssignMovingAvg/read_1)",
            "ExponentialMovingAverage/AssignMovingAvg/mul = Mul(ExponentialMovingAverage/AssignMovingAvg/sub_1, ExponentialMovingAverage/AssignMovingAvg/sub)",
            "ExponentialMovingAverage/AssignMovingAvg = AssignSub(fc/w/ExponentialMovingAverage, ExponentialMovingAverage/AssignMovingAvg/mul) @/device:CPU:0",
        ]
    );
}
