use super::*;

#[test]
fn sums_what_arrives_and_follows_only_what_leads_to_an_x() {
    let mut b = builder();
    let (x, z) = (float(&mut b, "x"), float(&mut b, "z"));
    let square = b.mul(x, x).name("square").build().unwrap();
    // Has no gradient, but nothing leads from it to x.
    let aside = b.op("Tanh").input(z).build().unwrap();
    let y = b.add(square, aside).name("y").build().unwrap();
    let gradients = b.gradients(&[y], &[x, z]);
    assert_error(gradients, Code::Unimplemented, "Tanh", "No gradient defined for operation 'Tanh' (op type: Tanh)");
    let gradients = b.gradients(&[y], &[x, square, y]).unwrap();
    let names: Vec<String> = gradients.iter().map(|gradient| name(&b, gradient.unwrap())).collect();
    assert_eq!(names, ["gradients_1/AddN", "gradients_1/grad_ys_0", "gradients_1/grad_ys_0"]);
    let graph = verify(b);
    assert_eq!(
        lines(&graph, "gradients_1/")[2..],
        [
            "gradients_1/grad_ys_0 = Fill(gradients_1/Shape, gradients_1/grad_ys_0/Const)",
            "gradients_1/square_grad/Mul = Mul(gradients_1/grad_ys_0, x)",
            "gradients_1/square_grad/Mul_1 = Mul(gradients_1/grad_ys_0, x)",
            "gradients_1/AddN = AddN(gradients_1/square_grad/Mul, gradients_1/square_grad/Mul_1)",
        ]
    );
}

#[test]
fn none_where_nothing_depends_on_it() {
    let mut b = builder();
    let (x, z) = (float(&mut b, "x"), float(&mut b, "z"));
    let stopped = b.stop_gradient(z).build().unwrap();
    let whole = b.cast(x, DataType::Int32).build().unwrap();
    let back = b.cast(whole, DataType::Float).build().unwrap();
    let y = b.mul(x, stopped).build().unwrap();
    let y = b.op("AddV2").inputs([y, stopped]).build().unwrap();
    let gradients = b.gradients(&[y], &[z, x]).unwrap();
    assert_eq!((gradients[0], gradients[1].is_some()), (None, true));
    // Integers let nothing through, so Cast needs no gradient.
    assert_eq!(b.gradients(&[back], &[x]).unwrap(), [None]);
    verify(b);
}

#[test]
fn references_and_handles_receive_gradients() {
    for kind in kinds() {
        let mut b = builder();
        b.set_variable_kind(kind);
        let x = float(&mut b, "x");
        let w = b.device("/cpu:0", |b| weights(b, "w"));
        let y = b.device("/gpu:0", |b| {
            let again = b.read(&w).unwrap();
            let y = b.mul(x, w.value).build().unwrap();
            b.mul(y, again).build().unwrap()
        });
        let gradients = b.gradients(&[y], &[w.handle, w.value]).unwrap();
        let sum = gradients[0].unwrap();
        assert_eq!((b.node(sum.node).op.as_str(), b.node(sum.node).device.as_str()), ("AddN", "/device:GPU:0"));
        assert_eq!(b.shape_of(sum), &dims([2, 3]));
        assert_eq!(b.node(gradients[1].unwrap().node).op, "Mul");
        verify(b);
    }
}

#[test]
fn given_gradients_take_the_place_of_ones() {
    let mut b = builder();
    let (x, g) = (float(&mut b, "x"), float(&mut b, "g"));
    let y = b.relu(x).build().unwrap();
    assert_eq!(b.gradients_from(&[y, y], &[Some(g), None], &[y]).unwrap().len(), 1);
    assert_eq!(b.gradients_from(&[y], &[Some(g)], &[x]).unwrap(), [Some(g)]);
    let whole = b.scalar(1i32).unwrap();
    let small = b.scalar(1f32).unwrap();
    assert_error(b.gradients_from(&[y], &[Some(whole)], &[x]), Code::InvalidArgument, "Relu", "is int32, not float");
    assert_error(b.gradients_from(&[y], &[Some(small)], &[x]), Code::InvalidArgument, "Relu", "[]");
    assert_error(b.gradients_from(&[y], &[], &[x]), Code::InvalidArgument, "", "0 gradients for 1 ys");
    assert_error(b.gradients(&[whole], &[x]), Code::InvalidArgument, "Const", "Const:0 is int32");
}

#[test]
fn a_wrong_rule_is_caught() {
    let mut b = builder();
    let x = float(&mut b, "x");
    let axis = b.scalar(0i32).unwrap();
    let split = b.op("Split").inputs([axis, x]).attr("num_split", plimsoll_graph::AttrValue::Int(2)).build().unwrap();
    assert_error(b.gradients(&[split], &[x]), Code::Internal, "Split", "is for 1 inputs, not 2");
    // Both parts of a broadcast sum receive the sum's gradient: the wrong shape for one of them.
    let small = b.placeholder("small", DataType::Float, dims([3])).build().unwrap();
    let sum = b.add(x, small).build().unwrap();
    assert_error(
        b.gradients(&[sum], &[small]),
        Code::Internal,
        "add",
        "the gradient of input 1 of AddV2 is float[2,3], the input float[3]",
    );
}

#[test]
fn a_gradient_has_the_shape_of_its_tensor() {
    let mut b = builder();
    let x = float(&mut b, "x");
    let y = b.relu(x).build().unwrap();
    let given = b.placeholder("given", DataType::Float, PartialShape::unknown()).build().unwrap();
    b.gradients_from(&[y], &[Some(given)], &[x]).unwrap();
    assert_eq!(b.shape_of(given), &dims([2, 3]));
}

#[test]
fn gates_hold_gradients_back_until_all_are_there() {
    let mut b = builder();
    b.set_gate_gradients(true);
    let (x, z) = (float(&mut b, "x"), float(&mut b, "z"));
    let square = b.device("/gpu:0", |b| b.mul(x, z).build().unwrap());
    let y = b.relu(square).build().unwrap();
    let gradients = b.gradients(&[y], &[x]).unwrap();
    assert_eq!(name(&b, gradients[0].unwrap()), "gradients/mul_grad/tuple/control_dependency");
    let graph = verify(b);
    assert_eq!(
        lines(&graph, "gradients/mul_grad/tuple"),
        [
            "gradients/mul_grad/tuple/group_deps = NoOp() @/device:GPU:0 ^gradients/mul_grad/Mul ^gradients/mul_grad/Mul_1",
            "gradients/mul_grad/tuple/control_dependency = Identity(gradients/mul_grad/Mul) @/device:GPU:0 ^gradients/mul_grad/tuple/group_deps",
            "gradients/mul_grad/tuple/control_dependency_1 = Identity(gradients/mul_grad/Mul_1) @/device:GPU:0 ^gradients/mul_grad/tuple/group_deps",
        ]
    );
    assert_eq!(classes(&graph, "gradients/mul_grad/tuple/control_dependency_1"), ["loc:@gradients/mul_grad/Mul_1"]);
}
