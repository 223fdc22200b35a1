use plimsoll_graph::AttrValue;
use plimsoll_graph::id::Id;

use super::*;

#[test]
fn names_follow_tensorflows_rule() {
    let mut b = builder();
    let c = |b: &mut GraphBuilder, wanted: &str| {
        let output = b.constant(plimsoll_graph::HostTensor::scalar(1f32)).name("c").build().unwrap();
        assert_eq!(name(b, output), wanted);
    };
    c(&mut b, "c");
    c(&mut b, "c_1");
    let scope = b.name_scope("nested", |b| {
        let scope = format!("{}/", b.current_name_scope());
        c(b, "nested/c");
        b.name_scope("inner", |b| c(b, "nested/inner/c"));
        b.name_scope("inner", |b| {
            c(b, "nested/inner_1/c");
            b.name_scope(&scope, |b| {
                c(b, "nested/c_1");
                b.name_scope("", |b| c(b, "c_2"));
            });
            c(b, "nested/inner_1/c_1");
        });
        scope
    });
    b.name_scope("nested", |b| c(b, "nested_1/c"));
    // The result of a scope takes the scope's name.
    let x = float(&mut b, "x");
    let whole = b.relu(x).name(&scope).build().unwrap();
    assert_eq!(name(&b, whole), "nested");
    assert_error(b.relu(x).name(&scope).build(), Code::InvalidArgument, "nested", "cannot name another node");
    verify(b);
}

#[test]
fn devices_merge_part_by_part() {
    let mut b = builder();
    let device = |b: &mut GraphBuilder| {
        let output = float(b, "x");
        b.node(output.node).device.clone()
    };
    b.device("/job:worker/task:1", |b| {
        assert_eq!(device(b), "/job:worker/task:1");
        b.device("/gpu:0", |b| {
            assert_eq!(device(b), "/job:worker/task:1/device:GPU:0");
            b.device("/task:2/cpu:0", |b| assert_eq!(device(b), "/job:worker/task:2/device:CPU:0"));
            b.no_device(|b| assert_eq!(device(b), ""));
            let output = b.placeholder("y", DataType::Float, dims([1])).device("/cpu:1").build().unwrap();
            assert_eq!(b.node(output.node).device, "/job:worker/task:1/device:CPU:1");
        });
    });
    assert_eq!(device(&mut b), "");
    let wrong = b.device("/nonsense:1", |b| b.scalar(1f32));
    assert_error(wrong, Code::InvalidArgument, "Const", "/nonsense:1");
}

#[test]
fn control_dependencies_leave_out_what_an_input_implies() {
    let mut b = builder();
    let (x, first, second) = (float(&mut b, "x"), float(&mut b, "a_first"), float(&mut b, "b_second"));
    b.control_dependencies(&[second.node], |b| {
        b.control_dependencies(&[first.node], |b| {
            let inside = b.relu(x).name("inside").build().unwrap();
            b.relu(inside).name("implied").build().unwrap();
            b.relu(first).name("taken").build().unwrap();
            b.no_control_dependencies(|b| b.relu(x).name("free").build().unwrap());
        });
        b.relu(x).name("outer").control(x.node).build().unwrap();
    });
    let graph = verify(b);
    assert_eq!(
        lines(&graph, "")[3..],
        [
            "inside = Relu(x) ^a_first ^b_second",
            "implied = Relu(inside)",
            "taken = Relu(a_first) ^b_second",
            "free = Relu(x)",
            "outer = Relu(x) ^b_second ^x",
        ]
    );
}

#[test]
fn colocation_names_groups_and_takes_the_device() {
    let mut b = builder();
    let x = b.device("/gpu:1", |b| float(b, "x"));
    let y = float(&mut b, "y");
    b.device("/cpu:0", |b| {
        b.colocate_with(x.node, |b| {
            let a = b.relu(y).name("a").build().unwrap();
            b.colocate_with(y.node, |b| b.relu(y).name("b").build().unwrap());
            // A group is handed on.
            b.colocate_with(a.node, |b| b.relu(y).name("c").build().unwrap());
        });
        b.colocate_with(y.node, |b| b.relu(x).name("d").build().unwrap());
    });
    let graph = verify(b);
    assert_eq!(
        lines(&graph, "")[2..],
        ["a = Relu(y) @/device:GPU:1", "b = Relu(y) @/device:GPU:1", "c = Relu(y) @/device:GPU:1", "d = Relu(x)"]
    );
    assert_eq!(classes(&graph, "a"), ["loc:@x"]);
    assert_eq!(classes(&graph, "b"), ["loc:@x", "loc:@y"]);
    assert_eq!(classes(&graph, "c"), ["loc:@x"]);
    assert_eq!(classes(&graph, "d"), ["loc:@y"]);
}

#[test]
fn groups_have_a_node_for_each_device() {
    let mut b = builder();
    let (x, y) = (float(&mut b, "x"), b.device("/gpu:0", |b| float(b, "y")));
    b.group(&[x.node], "one").unwrap();
    b.group(&[], "none").unwrap();
    let all = b.group(&[y.node, x.node, x.node], "all").unwrap();
    assert_eq!(b.node(all).name, "all");
    let graph = verify(b);
    assert_eq!(
        lines(&graph, "")[2..],
        [
            "one = NoOp() ^x",
            "none = NoOp()",
            "all/NoOp = NoOp() ^x",
            "all/NoOp_1 = NoOp() @/device:GPU:0 ^y",
            "all = NoOp() ^all/NoOp ^all/NoOp_1"
        ]
    );
}

#[test]
fn scopes_by_hand_are_those_of_the_closures() {
    let mut b = builder();
    let first = float(&mut b, "first");
    let root = b.scopes();
    assert_eq!(b.enter_name_scope("outer"), "outer");
    let outer = b.scopes();
    b.enter_device("/gpu:1").unwrap();
    b.enter_control_dependencies(&[first.node]).unwrap();
    let made = b.scalar(1f32).unwrap();
    assert_eq!((name(&b, made), b.node(made.node).device.as_str()), ("outer/Const".into(), "/device:GPU:1"));
    assert_eq!(b.node(made.node).controls, [first.node]);
    b.enter_no_control_dependencies();
    b.enter_colocation(first.node).unwrap();
    let beside = b.scalar(1f32).unwrap();
    assert_eq!((b.node(beside.node).device.as_str(), b.node(beside.node).controls.len()), ("", 0));
    assert_eq!(b.node(beside.node).attrs.get("_class"), Some(&AttrValue::texts(&["loc:@first"])));
    b.enter_no_colocation();
    b.enter_colocation_with_new("later");
    let with_new = b.scalar(1f32).unwrap();
    assert_eq!(b.node(with_new.node).attrs.get("_class"), Some(&AttrValue::texts(&["loc:@later"])));
    b.set_scopes(outer);
    let plain = b.scalar(1f32).unwrap();
    assert_eq!((name(&b, plain), b.node(plain.node).device.as_str()), ("outer/Const_3".into(), ""));
    b.set_scopes(root);
    assert_eq!(b.enter_name_scope("outer"), "outer_1");
    b.set_device(plain.node, "/cpu:1").unwrap();
    assert_eq!(b.node(plain.node).device, "/device:CPU:1");
    let wrong = b.enter_device("/nonsense:1").unwrap_err();
    assert_eq!(wrong.code(), Code::InvalidArgument);
    let other = NodeId::from_index(99);
    assert!(b.enter_control_dependencies(&[other]).is_err() && b.enter_colocation(other).is_err() && b.set_device(other, "").is_err());
    b.set_shape(first, &dims([3])).unwrap_err();
    verify(b);
}
