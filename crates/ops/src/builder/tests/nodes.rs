use plimsoll_graph::{AttrValue, HostTensor, Node};

use super::*;

#[test]
fn types_and_lengths_follow_from_the_inputs() {
    let mut b = builder();
    let x = float(&mut b, "x");
    let i = b.scalar(0i32).unwrap();
    let node = |b: &GraphBuilder, output: Output| b.node(output.node).clone();

    let sum = b.add_n([x, x, x]).build().unwrap();
    let attrs = node(&b, sum).attrs;
    assert_eq!((attrs.int("N"), attrs.data_type("T")), (Ok(3), Ok(DataType::Float)));

    let joined = b.concat([x, x], 1).build().unwrap();
    let attrs = node(&b, joined).attrs;
    assert_eq!((attrs.int("N"), attrs.data_type("T"), attrs.data_type("Tidx")), (Ok(2), Ok(DataType::Float), Ok(DataType::Int32)));
    assert_eq!(name(&b, node(&b, joined).inputs[2]), "concat/axis");

    let both = b.op("IdentityN").inputs([x, i]).build_node().unwrap();
    assert_eq!(b.node(both).attrs.data_types("T"), Ok(vec![DataType::Float, DataType::Int32]));
    assert_eq!(b.output_count(both), 2);
    assert_eq!(b.data_type(Output { node: both, index: 1 }), DataType::Int32);

    // Two lists that share one length.
    let batch = b.op("DynamicStitch").inputs([i, i, x, x]).build().unwrap();
    assert_eq!(node(&b, batch).attrs.int("N"), Ok(2));

    let product = b.matmul(x, x).attr("transpose_b", AttrValue::Bool(true)).build().unwrap();
    assert_eq!(node(&b, product).attrs.bool("transpose_a"), Ok(false));
    verify(b);
}

#[test]
fn facts_are_known_as_nodes_are_made() {
    let mut b = builder();
    let x = b.placeholder("x", DataType::Float, dims([-1, 3])).build().unwrap();
    let bias = b.constant(HostTensor::from_slice([3], &[1f32, 2.0, 3.0]).unwrap()).build().unwrap();
    let sum = b.add(x, bias).build().unwrap();
    assert_eq!((b.data_type(sum), b.shape_of(sum)), (DataType::Float, &dims([-1, 3])));
    assert_eq!(b.fact(bias).value.as_ref().unwrap().to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0]);
    assert_eq!(b.graph().tensor_name(sum), "add:0");
}

#[test]
fn errors_name_the_node() {
    use Code::*;
    let mut b = builder();
    let x = float(&mut b, "x");
    let i = b.scalar(1i32).unwrap();
    assert_error(b.op("NoSuchOp").name("a").build(), NotFound, "a", "Op type not registered 'NoSuchOp'");
    assert_error(b.op("Relu").build(), InvalidArgument, "Relu", "takes 1 inputs (features), not 0");
    assert_error(b.op("Relu").inputs([x, x]).build(), InvalidArgument, "Relu_1", "not 2");
    assert_error(b.add(x, i).name("sum").build(), InvalidArgument, "sum", "input 1 of AddV2 is int32, not float");
    assert_error(b.op("Assign").inputs([x, x]).build(), InvalidArgument, "Assign", "input 0 of Assign is float, not float_ref");
    assert_error(
        b.matmul(x, x).attr("transposed", AttrValue::Bool(true)).build(),
        InvalidArgument,
        "MatMul",
        "has no attribute 'transposed'",
    );
    assert_error(b.matmul(x, x).attr("transpose_a", AttrValue::Int(1)).build(), InvalidArgument, "MatMul_1", "is int, not bool");
    assert_error(b.op("Cast").input(x).build(), InvalidArgument, "Cast", "'DstT' of Cast is missing");
    assert_error(b.conv2d(x, x, [1, 1], "FULL").build(), InvalidArgument, "Conv2D", "'padding' of Conv2D cannot be \"FULL\"");
    assert_error(b.op("LRN").input(i).build(), InvalidArgument, "LRN", "'T' of LRN cannot be int32");
    assert_error(b.add_n([]).build(), InvalidArgument, "AddN", "");
    assert_error(b.op("Relu").input(x).name("a b").build(), InvalidArgument, "a b", "cannot name another node");
    assert_error(b.op("Relu").input(x).device("/gpu:x").build(), InvalidArgument, "Relu_2", "/gpu:x");
    assert_error(b.op("Relu").input(Output { node: x.node, index: 1 }).build(), InvalidArgument, "Relu_3", "'x:1' does not exist");
    assert_error(b.op("NoOp").name("nothing").build(), InvalidArgument, "nothing", "does not exist");
    assert_error(b.op("IfX").build_node(), NotFound, "IfX", "");
    let unknown = b.placeholder("u", DataType::Float, PartialShape::unknown()).build().unwrap();
    assert_error(b.reduce_sum(unknown, None).name("total").build(), InvalidArgument, "total", "no known rank");
    let shape = b.placeholder("s", DataType::Float, dims([4])).build().unwrap();
    assert_error(b.add(x, shape).build(), InvalidArgument, "add", "Incompatible shapes: [2,3] vs. [4]");

    let mut other = builder();
    for _ in 0..20 {
        float(&mut other, "y");
    }
    let foreign = float(&mut other, "z");
    assert_error(b.relu(foreign).build(), InvalidArgument, "Relu_4", "another graph");
    assert_error(b.op("NoOp").control(foreign.node).build_node(), InvalidArgument, "NoOp", "another graph");
    assert_error(
        b.op("IdentityN").inputs([x]).attr("T", AttrValue::data_types(&[])).build_node(),
        InvalidArgument,
        "IdentityN",
        "IdentityN takes (input), not 1 inputs",
    );
    verify(b);
}

#[test]
fn goes_on_with_a_graph_that_exists() {
    let mut b = builder();
    let x = float(&mut b, "x");
    b.relu(x).build().unwrap();
    let mut graph = b.finish();
    let mystery = Node {
        name: "odd".into(),
        op: "Mystery".into(),
        inputs: vec![x],
        controls: vec![],
        device: String::new(),
        attrs: Default::default(),
        carried: vec![],
    };
    let mystery = graph.add(mystery).unwrap();

    let mut b = GraphBuilder::extend(graph, registry()).unwrap();
    let relu = b.graph().tensor("Relu").unwrap();
    assert_eq!(b.shape_of(relu), &dims([2, 3]));
    let again = b.relu(relu).build().unwrap();
    assert_eq!(name(&b, again), "Relu_1");
    assert_eq!(b.data_type(Output { node: mystery, index: 0 }), DataType::Variant);
    verify(b);
}
