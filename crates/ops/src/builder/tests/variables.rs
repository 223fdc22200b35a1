use plimsoll_graph::HostTensor;

use super::*;

#[test]
fn a_reference_has_tensorflow_1s_nodes() {
    let mut b = builder();
    let noise = Initializer::truncated_normal(0.1, Some(5));
    let x = float(&mut b, "x");
    b.control_dependencies(&[x.node], |b| {
        b.name_scope("elsewhere", |b| {
            b.device("/cpu:0", |b| {
                b.variable_scope("conv1", Reuse::No, |b| b.get_variable("weights", DataType::Float, [2, 3], &noise).unwrap())
            });
        });
    });
    b.global_variables_initializer().unwrap();
    let graph = verify(b);
    assert_eq!(
        lines(&graph, "")[1..],
        [
            "conv1/weights/Initializer/truncated_normal/shape = Const()",
            "conv1/weights/Initializer/truncated_normal/mean = Const()",
            "conv1/weights/Initializer/truncated_normal/stddev = Const()",
            "conv1/weights/Initializer/truncated_normal/TruncatedNormal = TruncatedNormal(conv1/weights/Initializer/truncated_normal/shape)",
            "conv1/weights/Initializer/truncated_normal/mul = Mul(conv1/weights/Initializer/truncated_normal/TruncatedNormal, conv1/weights/Initializer/truncated_normal/stddev)",
            "conv1/weights/Initializer/truncated_normal = AddV2(conv1/weights/Initializer/truncated_normal/mul, conv1/weights/Initializer/truncated_normal/mean)",
            "conv1/weights = VariableV2() @/device:CPU:0",
            "conv1/weights/Assign = Assign(conv1/weights, conv1/weights/Initializer/truncated_normal) @/device:CPU:0",
            "conv1/weights/read = Identity(conv1/weights) @/device:CPU:0",
            "init = NoOp() @/device:CPU:0 ^conv1/weights/Assign",
        ]
    );
    for node in ["Initializer/truncated_normal/mul", "Assign", "read"] {
        assert_eq!(classes(&graph, &format!("conv1/weights/{node}")), ["loc:@conv1/weights"]);
    }
    assert_eq!(classes(&graph, "conv1/weights"), ["loc:@conv1/weights"]);
    let random = graph.node(graph.find("conv1/weights/Initializer/truncated_normal/TruncatedNormal").unwrap());
    assert_eq!((random.attrs.int("seed"), random.attrs.int("seed2")), (Ok(87_654_321), Ok(5)));
}

#[test]
fn a_resource_has_tensorflow_2s_nodes() {
    let mut b = builder();
    b.set_variable_kind(VariableKind::Resource);
    let v = b.device("/cpu:0", |b| weights(b, "v"));
    assert_eq!((b.data_type(v.handle), b.shape_of(v.value)), (DataType::Resource, &dims([2, 3])));
    let graph = verify(b);
    assert_eq!(
        lines(&graph, ""),
        [
            "v/Initializer/zeros = Const()",
            "v = VarHandleOp() @/device:CPU:0",
            "v/IsInitialized/VarIsInitializedOp = VarIsInitializedOp(v) @/device:CPU:0",
            "v/Assign = AssignVariableOp(v, v/Initializer/zeros) @/device:CPU:0",
            "v/Read/ReadVariableOp = ReadVariableOp(v) @/device:CPU:0",
        ]
    );
    let handle = graph.node(graph.find("v").unwrap());
    assert_eq!((handle.attrs.text("shared_name"), handle.attrs.text("container")), (Ok("v"), Ok("")));
    assert_eq!(classes(&graph, "v"), ["loc:@v"]);
    assert_eq!(classes(&graph, "v/Initializer/zeros"), ["loc:@v"]);
}

#[test]
fn scopes_say_whether_variables_are_shared() {
    let mut b = builder();
    let first = b.variable_scope("a", Reuse::No, |b| weights(b, "w"));
    let again = b.variable_scope("a", Reuse::Yes, |b| {
        let w = weights(b, "w");
        // Reuse is inherited; the name scope is a new one.
        b.variable_scope("deep", Reuse::No, |b| {
            let missing = b.get_variable("w", DataType::Float, [2, 3], &Initializer::Zeros);
            assert_error(missing, Code::NotFound, "", "variable a/deep/w does not exist");
        });
        assert_eq!(b.current_name_scope(), "a_1");
        w
    });
    assert_eq!(first, again);
    b.variable_scope("a", Reuse::No, |b| {
        let taken = b.get_variable("w", DataType::Float, [2, 3], &Initializer::Zeros);
        assert_error(taken, Code::AlreadyExists, "", "variable a/w already exists");
    });
    b.variable_scope("a", Reuse::Auto, |b| {
        assert_eq!(weights(b, "w"), first);
        assert_eq!(weights(b, "new").name, "a/new");
        let other = b.get_variable("w", DataType::Float, [3, 2], &Initializer::Zeros);
        assert_error(other, Code::InvalidArgument, "", "variable a/w is float[2,3], not float[3,2]");
        let other = b.get_variable("w", DataType::Double, [2, 3], &Initializer::Zeros);
        assert_error(other, Code::InvalidArgument, "", "not double[2,3]");
    });
    // Outside again nothing is reused.
    assert!(b.get_variable("w", DataType::Float, [2], &Initializer::Ones).is_ok());
    assert_eq!(b.variables().iter().map(|variable| variable.name.as_str()).collect::<Vec<_>>(), ["a/w", "a/new", "w"]);
    verify(b);
}

#[test]
fn variables_of_their_own_are_named_in_the_name_scope() {
    for kind in kinds() {
        let mut b = builder();
        b.set_variable_kind(kind);
        weights(&mut b, "w");
        b.name_scope("train", |b| {
            let steps = b.untrained_variable("step", DataType::Int64, [], &Initializer::Zeros).unwrap();
            assert_eq!(steps.name, "train/step");
            assert_eq!(b.untrained_variable("step", DataType::Int64, [], &Initializer::Zeros).unwrap().name, "train/step_1");
            let one = b.scalar(1i64).unwrap();
            b.assign_add(&steps, one).unwrap();
            let added = b.assign_sub(&steps, one).unwrap();
            b.control_dependencies(&[added], |b| {
                let value = b.read(&steps).unwrap();
                assert_eq!(b.node(value.node).controls, [added]);
            });
        });
        let float = b.get_untrained_variable("mean", DataType::Float, [2], &Initializer::Ones).unwrap();
        let ones = b.initial_value(&Initializer::Ones, DataType::Float, &[2].into()).unwrap();
        let assign = b.assign(&float, ones).unwrap();
        let op = if kind == VariableKind::Reference { "Assign" } else { "AssignVariableOp" };
        assert_eq!((b.node(assign).op.as_str(), b.node(assign).inputs[0]), (op, float.handle));
        assert_eq!(b.trainable_variables().len(), 1);
        verify(b);
    }
}

#[test]
fn first_values_are_tensorflows() {
    let mut b = builder();
    let value = |b: &mut GraphBuilder, initializer: Initializer, data_type| {
        let output = b.initial_value(&initializer, data_type, &[2, 3].into()).unwrap();
        b.fact(output).value.clone().unwrap()
    };
    assert_eq!(value(&mut b, Initializer::Zeros, DataType::Bool), HostTensor::from_bools([2, 3], &[false; 6]).unwrap());
    assert_eq!(value(&mut b, Initializer::Ones, DataType::Int64), HostTensor::from_slice([2, 3], &[1i64; 6]).unwrap());
    assert_eq!(value(&mut b, Initializer::Constant(0.5), DataType::Float), HostTensor::from_slice([2, 3], &[0.5f32; 6]).unwrap());
    let wrong = Initializer::Value(HostTensor::scalar(1f32));
    assert_error(b.initial_value(&wrong, DataType::Float, &[2].into()), Code::InvalidArgument, "", "float[]");
    let noise = Initializer::glorot_uniform(None);
    assert_error(b.initial_value(&noise, DataType::Int32, &[2].into()), Code::Unimplemented, "", "int32");

    // Limits and deviations, as keras computes them for a 3x3 convolution from 16 to 32 channels.
    let number = |b: &GraphBuilder, name: &str| {
        let output = b.graph().tensor(name).unwrap();
        b.fact(output).value.as_ref().unwrap().to_vec::<f32>().unwrap()[0]
    };
    b.initial_value(&noise, DataType::Float, &[3, 3, 16, 32].into()).unwrap();
    assert!((number(&b, "random_uniform/max") - (6f32 / 432.0).sqrt()).abs() < 1e-7);
    assert_eq!(number(&b, "random_uniform/min"), -number(&b, "random_uniform/max"));
    b.initial_value(&Initializer::he_normal(None), DataType::Float, &[3, 3, 16, 32].into()).unwrap();
    assert!((number(&b, "truncated_normal/stddev") - (2f32 / 144.0).sqrt() / 0.879_625_7).abs() < 1e-7);
}

#[test]
fn seeds_follow_tensorflows_rule() {
    let mut b = builder();
    assert_eq!(b.seeds(None), (0, 0));
    assert_eq!(b.seeds(Some(3)), (87_654_321, 3));
    b.set_seed(Some(7));
    assert_eq!(b.seeds(Some(3)), (7, 3));
    let first = b.seeds(None);
    float(&mut b, "x");
    assert_ne!(b.seeds(None), first);
    b.set_seed(Some(0));
    assert_eq!(b.seeds(Some(0)), (0, i64::from(i32::MAX)));
}

#[test]
fn variables_of_a_graph_from_elsewhere_can_be_adopted() {
    for kind in kinds() {
        let mut b = builder();
        b.set_variable_kind(kind);
        let original = weights(&mut b, "w");
        let mut b = GraphBuilder::extend(b.finish(), registry()).unwrap();
        let adopted = b.adopt_variable(original.handle.node, true).unwrap();
        assert_eq!(adopted, original);
        assert_eq!(b.adopt_variable(original.handle.node, true).unwrap(), original);
        assert_eq!(b.trainable_variables().len(), 1);
        assert_eq!(b.variable_scope("", Reuse::Yes, |b| weights(b, "w")), original);
        assert_error(b.adopt_variable(original.value.node, true), Code::InvalidArgument, &name(&b, original.value), "holds no variable");

        // A handle alone: there is nothing that reads or assigns.
        let alone = b.op("VarHandleOp").name("alone").attr("dtype", plimsoll_graph::AttrValue::data_type(DataType::Float));
        let alone = alone.attr("shape", plimsoll_graph::AttrValue::Shape(dims([2]))).build().unwrap();
        let adopted = b.adopt_variable(alone.node, false).unwrap();
        assert_eq!((name(&b, adopted.value).as_str(), adopted.initializer, adopted.trainable), ("alone/ReadVariableOp", None, false));
        verify(b);
    }
}

#[test]
fn stand_ins_are_found_where_the_variable_would_be() {
    let mut b = builder();
    let original = weights(&mut b, "w");
    let copy = b.untrained_variable("copy", DataType::Float, original.shape.clone(), &Initializer::Zeros).unwrap();
    let find = |b: &mut GraphBuilder| b.variable_scope("", Reuse::Yes, |b| weights(b, "w"));
    assert_eq!(b.with_stand_ins([(&original, &copy)], find), copy);
    assert_eq!(find(&mut b), original, "only inside");
    // Variables that are made inside stay the same.
    let (made, found) = b.with_stand_ins([(&original, &copy)], |b| (weights(b, "v"), find(b)));
    assert_eq!((made.name.as_str(), found), ("v", copy));
    verify(b);
}
