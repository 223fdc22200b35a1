//! Graphs of functions that were not made by a friend: calls that lie deep in each other, that multiply, that go in circles.

mod gradients;

use std::sync::Arc;

use plimsoll_base::{Code, DataType, Error};
use plimsoll_cards::Options;
use plimsoll_graph::{ArgDef, AttrList, AttrValue, Attrs, FuncRef, FunctionDef, Graph, GraphDef, HostTensor, Library, NodeDef, OpDef};
use plimsoll_kernels::CpuKernels;
use plimsoll_ops::Registry;
use plimsoll_runtime::{Devices, Session};

const FLOAT: i32 = 1;

fn node(name: &str, op: &str, inputs: &[&str], attrs: &[(&str, AttrValue)]) -> NodeDef {
    NodeDef {
        name: name.into(),
        op: op.into(),
        inputs: inputs.iter().map(|input| input.to_string()).collect(),
        attrs: attrs.iter().map(|(name, value)| (name.to_string(), value.clone())).collect(),
        ..NodeDef::default()
    }
}

fn func(name: &str) -> AttrValue {
    AttrValue::Func(FuncRef { name: name.into(), attrs: Attrs::new() })
}

fn float() -> (&'static str, AttrValue) {
    ("T", AttrValue::Type(FLOAT))
}

fn floats(name: &'static str, count: usize) -> (&'static str, AttrValue) {
    (name, AttrValue::List(Box::new(AttrList { types: vec![FLOAT; count], ..AttrList::default() })))
}

/// How a function is called.
#[derive(Clone, Copy, Debug)]
enum How {
    Partitioned,
    Stateful,
    ByName,
}

/// A call of `callee` with one float, and how its result is spelled in a function.
fn call(how: How, name: &str, callee: &str, input: &str) -> (NodeDef, String) {
    let attrs = [floats("Tin", 1), floats("Tout", 1), ("f", func(callee))];
    match how {
        How::Partitioned => (node(name, "PartitionedCall", &[input], &attrs), format!("{name}:output:0")),
        How::Stateful => (node(name, "StatefulPartitionedCall", &[input], &attrs), format!("{name}:output:0")),
        How::ByName => (node(name, callee, &[input], &[]), format!("{name}:y:0")),
    }
}

/// An If between two functions of one float.
fn branch(name: &str, predicate: &str, then: &str, other: &str, input: &str) -> NodeDef {
    let attrs = [
        ("Tcond", AttrValue::data_type(DataType::Bool)),
        floats("Tin", 1),
        floats("Tout", 1),
        ("then_branch", func(then)),
        ("else_branch", func(other)),
    ];
    node(name, "If", &[predicate, input], &attrs)
}

/// `name(x: float) -> (y: float)`.
fn function(name: &str, nodes: Vec<NodeDef>, result: &str) -> FunctionDef {
    let arg = |name: &str| ArgDef { name: name.into(), data_type: FLOAT, ..ArgDef::default() };
    let signature = OpDef { name: name.into(), inputs: vec![arg("x")], outputs: vec![arg("y")], ..OpDef::default() };
    FunctionDef { signature, nodes, ret: [("y".to_string(), result.to_string())].into(), ..FunctionDef::default() }
}

fn leaf(name: &str) -> FunctionDef {
    function(name, vec![node("neg", "Neg", &["x"], &[float()])], "neg:y:0")
}

fn holds() -> NodeDef {
    let value = AttrValue::Tensor(HostTensor::from_bools(plimsoll_graph::Shape::scalar(), &[true]).unwrap());
    node("p", "Const", &[], &[("dtype", AttrValue::data_type(DataType::Bool)), ("value", value)])
}

fn graph(functions: Vec<FunctionDef>, nodes: Vec<NodeDef>) -> GraphDef {
    let placeholder = node("x", "Placeholder", &[], &[("dtype", AttrValue::Type(FLOAT))]);
    let nodes = std::iter::once(placeholder).chain(nodes).collect();
    GraphDef { nodes, library: Library { functions, ..Library::default() }, ..GraphDef::default() }
}

fn session(def: GraphDef) -> Result<Session, Error> {
    let registry = Arc::new(Registry::standard(Arc::new(CpuKernels)));
    let mut options = Options::new();
    options.device_count.insert("CPU".into(), 2);
    Session::new(&Devices::open(&options)?, &Graph::resolve(def, registry.table())?, registry)
}

fn run(session: &Session, fetch: &str) -> Result<f32, Error> {
    let x = HostTensor::scalar(2f32);
    Ok(session.run(&[("x", &x)], &[fetch], &[])?[0].as_slice::<f32>()?[0])
}

/// `f0` calls `f1` calls … `f{count}`, which negates.
fn chain(how: How, count: usize) -> Vec<FunctionDef> {
    let link = |at: usize| {
        let (call, result) = call(how, "c", &format!("f{}", at + 1), "x");
        function(&format!("f{at}"), vec![call], &result)
    };
    (0..count).map(link).chain([leaf(&format!("f{count}"))]).collect()
}

#[test]
fn thousands_of_calls_in_a_row_run() {
    for how in [How::Partitioned, How::Stateful, How::ByName] {
        let (first, _) = call(how, "first", "f0", "x");
        let session = session(graph(chain(how, 4000), vec![first])).unwrap();
        assert_eq!(run(&session, "first").unwrap(), -2.0, "{how:?}");
    }
}

#[test]
fn conditions_in_conditions_are_placed_however_deep() {
    let nest = |count: usize| {
        let level = |at: usize| {
            let nodes = vec![holds(), branch("if", "p:output:0", &format!("f{}", at + 1), "leaf", "x")];
            function(&format!("f{at}"), nodes, "if:output:0")
        };
        let functions = (0..count).map(level).chain([leaf(&format!("f{count}")), leaf("leaf")]).collect();
        session(graph(functions, vec![holds(), branch("first", "p", "f0", "leaf", "x")])).unwrap()
    };
    assert_eq!(run(&nest(200), "first").unwrap(), -2.0);
    // A node that depends on more predicates than are kept apart is refused by name, or runs.
    if let Err(error) = run(&nest(4000), "first") {
        assert_eq!(error.code(), Code::Unimplemented, "{error}");
    }
}

/// Every function passes its argument to the next one, twice.
fn doubling(count: usize, twice: impl Fn(&str) -> (Vec<NodeDef>, String)) -> Vec<FunctionDef> {
    let level = |at: usize| {
        let (nodes, result) = twice(&format!("f{}", at + 1));
        function(&format!("f{at}"), nodes, &result)
    };
    (0..count).map(level).chain([leaf(&format!("f{count}"))]).collect()
}

#[test]
fn what_would_grow_beyond_measure_is_refused_before_it_grows() {
    for how in [How::Partitioned, How::ByName] {
        let calls = |next: &str| {
            let ((a, between), (mut b, result)) = (call(how, "a", next, "x"), call(how, "b", next, "x"));
            b.inputs = vec![between];
            (vec![a, b], result)
        };
        for count in [30, 64, 4000] {
            let error = session(graph(doubling(count, calls), vec![call(how, "first", "f0", "x").0])).err().unwrap();
            assert_eq!((error.code(), error.node()), (Code::InvalidArgument, Some("first")), "{error}");
            assert!(error.message().contains("function 'f0'") && error.message().contains("500000 nodes"), "{error}");
        }
        let session = session(graph(doubling(8, calls), vec![call(how, "first", "f0", "x").0])).unwrap();
        assert_eq!(run(&session, "first").unwrap(), 2.0);
    }
    let branches = |next: &str| (vec![holds(), branch("if", "p:output:0", next, next, "x")], "if:output:0".to_string());
    for count in [17, 64] {
        let nodes = vec![holds(), branch("first", "p", "f0", "f0", "x")];
        let error = session(graph(doubling(count, branches), nodes)).err().unwrap();
        assert_eq!((error.code(), error.node()), (Code::InvalidArgument, Some("first")), "{error}");
    }
}

#[test]
fn long_names_and_attributes_are_counted() {
    // A name as long as a file likes, below which many nodes would lie.
    let long = "n".repeat(100_000);
    let body = (0..1000).map(|at| node(&format!("k{at}"), "Neg", &["x"], &[float()])).collect();
    let session_of = |functions| session(graph(functions, vec![call(How::Partitioned, &long, "f", "x").0]));
    assert_eq!(run(&session_of(vec![function("f", body, "k0:y:0")]).unwrap(), &long).unwrap(), -2.0);
    // A list of a megabyte in a function that is called 2^10 times.
    let calls = |next: &str| {
        let ((a, between), (mut b, result)) = (call(How::Partitioned, "a", next, "x"), call(How::Partitioned, "b", next, "x"));
        b.inputs = vec![between];
        (vec![a, b], result)
    };
    let mut functions = doubling(10, calls);
    let last = functions.last_mut().unwrap();
    last.nodes[0].attrs.insert("_hint".into(), AttrValue::Bytes(vec![0; 1 << 20]));
    let error = session(graph(functions, vec![call(How::Partitioned, "first", "f0", "x").0])).err().unwrap();
    assert!(error.code() == Code::InvalidArgument && error.message().contains("bytes"), "{error}");
}

#[test]
fn functions_that_call_themselves_are_named() {
    let through = |names: &[&str]| -> Vec<FunctionDef> {
        let next = |at: usize| names[(at + 1) % names.len()];
        names
            .iter()
            .enumerate()
            .map(|(at, name)| match at % 2 {
                0 => {
                    let (call, result) = call(How::Partitioned, "c", next(at), "x");
                    function(name, vec![call], &result)
                }
                _ => function(name, vec![holds(), branch("c", "p:output:0", next(at), "leaf", "x")], "c:output:0"),
            })
            .chain([leaf("leaf")])
            .collect()
    };
    for names in [&["f"][..], &["f", "g"], &["f", "g", "h"]] {
        let error = session(graph(through(names), vec![call(How::Stateful, "first", "f", "x").0])).err().unwrap();
        assert_eq!((error.code(), error.node()), (Code::Unimplemented, Some("first")), "{error}");
        assert!(names.iter().all(|name| error.message().contains(&format!("'{name}'"))), "{error}");
        // Functions that are not called may go in circles.
        session(graph(through(names), vec![call(How::Stateful, "first", "leaf", "x").0])).unwrap();
    }
    // A long way round.
    let names: Vec<String> = (0..3000).map(|at| format!("f{at}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let error = session(graph(through(&names), vec![call(How::Stateful, "first", "f0", "x").0])).err().unwrap();
    assert!(error.message().contains("'f0' calls itself through 'f1'") && error.to_string().len() < 300, "{error}");
}

#[test]
fn functions_given_to_functions_are_filled_in_and_do_not_grow_without_end() {
    // apply[F](x) = F(x), and one that hands it on inside of another attribute.
    let applies = |name: &str, given: AttrValue| {
        let attrs = [floats("Tin", 1), floats("Tout", 1), ("f", given)];
        function(name, vec![node("c", "PartitionedCall", &["x"], &attrs)], "c:output:0")
    };
    let with = |name: &str, inner: AttrValue| AttrValue::Func(FuncRef { name: name.into(), attrs: [("F".to_string(), inner)].into() });
    let placeholder = || AttrValue::Placeholder("F".into());
    let first = |given: AttrValue| node("first", "PartitionedCall", &["x"], &[floats("Tin", 1), floats("Tout", 1), ("f", given)]);
    let functions = || vec![applies("apply", placeholder()), applies("twice", with("apply", placeholder())), leaf("leaf")];
    let session_of = |given| session(graph(functions(), vec![first(given)]));
    assert_eq!(run(&session_of(with("twice", func("leaf"))).unwrap(), "first").unwrap(), -2.0);
    // Every call wraps its argument once more.
    let grows = |name: &str| vec![applies(name, with(name, with("wrap", placeholder()))), leaf("leaf")];
    let error = session(graph(grows("f"), vec![first(with("f", func("leaf")))])).err().unwrap();
    assert!(error.code() == Code::InvalidArgument && error.message().contains("deep"), "{error}");
    // Every call doubles its argument.
    let level = |at: usize| {
        let pair =
            |name: &str| FuncRef { name: name.into(), attrs: [("F".to_string(), placeholder()), ("G".to_string(), placeholder())].into() };
        let next = FuncRef { name: format!("f{}", at + 1), attrs: [("F".to_string(), AttrValue::Func(pair("pair")))].into() };
        applies(&format!("f{at}"), AttrValue::Func(next))
    };
    let doubles: Vec<FunctionDef> = (0..60).map(level).chain([applies("f60", placeholder())]).collect();
    let error = session(graph(doubles, vec![first(with("f0", func("leaf")))])).err().unwrap();
    assert!(error.code() == Code::InvalidArgument && error.message().contains("bytes of different attributes"), "{error}");
}

/// TensorFlow 1's Defun in a Defun: the operation of a node of a body is a function, and its outputs have that one's names.
#[test]
fn a_function_of_the_library_may_be_an_operation_of_a_body() {
    let (inner, result) = call(How::ByName, "c", "leaf", "x");
    let outer = function("outer", vec![inner, node("twice", "Add", &[&result, "c:y:0"], &[float()])], "twice:z:0");
    let session = session(graph(vec![outer, leaf("leaf")], vec![call(How::ByName, "first", "outer", "x").0])).unwrap();
    assert_eq!(run(&session, "first").unwrap(), -4.0);
    // Several outputs, counted by the function's own attributes.
    let arg = |name: &str| ArgDef { name: name.into(), type_attr: "T".into(), number_attr: "N".into(), ..ArgDef::default() };
    let (mut many, n) = (leaf("many"), ("N", AttrValue::Int(2)));
    many.signature.inputs = vec![arg("xs")];
    many.signature.outputs = vec![
        ArgDef { name: "a".into(), data_type: FLOAT, ..ArgDef::default() },
        ArgDef { name: "b".into(), data_type: FLOAT, ..ArgDef::default() },
    ];
    many.nodes = vec![node("neg", "Neg", &["xs:1"], &[float()])];
    many.ret = [("a".to_string(), "xs:0".to_string()), ("b".to_string(), "neg:y:0".to_string())].into();
    let outer = function("outer", vec![node("c", "many", &["x", "x"], &[float(), n])], "c:b:0");
    let def = graph(vec![outer, many], vec![call(How::Partitioned, "first", "outer", "x").0]);
    assert_eq!(run(&self::session(def).unwrap(), "first").unwrap(), -2.0);
}

#[test]
fn what_is_missing_deep_inside_is_named() {
    let mut functions = chain(How::Partitioned, 50);
    functions.pop();
    let error = session(graph(functions, vec![call(How::Partitioned, "first", "f0", "x").0])).err().unwrap();
    assert!(error.code() == Code::InvalidArgument && error.message().contains("'f50' is not in the library"), "{error}");
}

#[test]
fn inputs_of_bodies_that_make_no_sense_are_named() {
    let neg = |name: &str, inputs: &[&str]| node(name, "Neg", inputs, &[float()]);
    for (nodes, result, at, said) in [
        (vec![neg("a", &["b"])], "a:y:0", "first", "'b' in function 'f' names nothing"),
        (vec![neg("a", &["x:1"])], "a:y:0", "first", "'x:1' in function 'f' names nothing"),
        (vec![neg("a", &["x"]), neg("b", &["a:y:1"])], "b:y:0", "first/b", "input 0 is first/a:1, but that node has 1 outputs"),
        (vec![neg("a", &["x", "^b"])], "a:y:0", "first/a", "Unknown input node 'first/b'"),
        (vec![neg("a", &["x"]), neg("b", &["^a", "x"])], "b:y:0", "first/b", "data input 'x' comes after a control input"),
        (vec![neg("a", &["x"]), neg("a", &["x"])], "a:y:0", "first/a", "Node name 'first/a' is not unique"),
        (vec![neg("a b", &["x"])], "a b:y:0", "first/a b", "'first/a b' is not a node name"),
        (vec![neg("a", &["x"])], "b:y:0", "first", "'b:y:0' in function 'f' names nothing"),
        (vec![neg("a", &["b:y:0"]), neg("b", &["a:y:0"])], "b:y:0", "first/a", "3 nodes in a cycle"),
    ] {
        let def = graph(vec![function("f", nodes, result)], vec![call(How::Partitioned, "first", "f", "x").0]);
        let error = session(def).err().unwrap();
        assert!(error.code() == Code::InvalidArgument && error.message().contains(said), "{said}: {error}");
        assert!(error.node().is_some_and(|node| node.starts_with(at)), "{at}: {error}");
    }
}

/// The waits of a call, of its arguments, and of nodes that are alone in its body.
#[test]
fn controls_of_a_call_reach_its_body_once() {
    let constant = node("k", "Const", &[], &[("dtype", AttrValue::Type(FLOAT)), ("value", AttrValue::Tensor(HostTensor::scalar(3f32)))]);
    let body = vec![
        node("a", "Neg", &["x"], &[float()]),
        node("b", "Neg", &["a:y:0"], &[float()]),
        constant,
        node("sum", "Add", &["b:y:0", "k:output:0"], &[float()]),
    ];
    let (mut first, _) = call(How::Partitioned, "first", "f", "x");
    first.inputs.push("^before".into());
    let session = session(graph(vec![function("f", body, "sum:z:0")], vec![node("before", "NoOp", &[], &[]), first])).unwrap();
    let graph = session.graph();
    let waits = |name: &str| {
        let controls = &graph.node(graph.find(name).unwrap()).controls;
        controls.iter().map(|id| graph.node(*id).name.as_str()).collect::<Vec<_>>()
    };
    let start = "first/input_control_node";
    assert_eq!([waits("first/a"), waits("first/k"), waits(start)], [vec![start], vec![start], vec!["before"]]);
    assert_eq!([waits("first/b"), waits("first/sum")], [Vec::<&str>::new(), Vec::new()]);
    assert_eq!(run(&session, "first").unwrap(), 5.0);
}
