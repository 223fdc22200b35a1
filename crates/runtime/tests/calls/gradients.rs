//! SymbolicGradient of functions that were not made by a friend. What TensorFlow gives for those of friends is recorded in
//! crates/cli/tests/programs.

use super::*;

/// The gradient of a function of one float, at `x`, times `dy`.
fn gradient(name: &str, function: AttrValue, inputs: &[&str]) -> NodeDef {
    let attrs = [("f", function), floats("Tin", inputs.len()), floats("Tout", inputs.len() - 1)];
    node(name, "SymbolicGradient", inputs, &attrs)
}

fn of(name: &str, function: &str) -> NodeDef {
    gradient(name, func(function), &["x", "x"])
}

fn unary(name: &str, op: &str, input: &str) -> NodeDef {
    node(name, op, &[input], &[float()])
}

fn failed(def: GraphDef, fetch: &str) -> Error {
    let mut def = def;
    def.nodes.push(unary("other", "Neg", "x"));
    let session = session(def).unwrap();
    assert_eq!(run(&session, "other").unwrap(), -2.0);
    run(&session, fetch).unwrap_err()
}

#[test]
fn gradients_of_calls_in_calls_are_made_one_after_another() {
    for how in [How::Partitioned, How::Stateful, How::ByName] {
        // Calls that may have effects run again for each gradient in the chain.
        let calls = if matches!(how, How::Stateful) { 300 } else { 2000 };
        let session = session(graph(chain(how, calls), vec![of("g", "f0")])).unwrap();
        assert_eq!(run(&session, "g").unwrap(), -2.0, "{how:?}");
    }
    // -(-x) in 2^6 calls.
    let calls = |next: &str| {
        let ((a, between), (mut b, result)) = (call(How::ByName, "a", next, "x"), call(How::ByName, "b", next, "x"));
        b.inputs = vec![between];
        (vec![a, b], result)
    };
    assert_eq!(run(&session(graph(doubling(6, calls), vec![of("g", "f0")])).unwrap(), "g").unwrap(), 2.0);
    let error = session(graph(doubling(40, calls), vec![of("g", "f0")])).err().unwrap();
    assert_eq!((error.code(), error.node()), (Code::InvalidArgument, Some("g")), "{error}");
}

#[test]
fn what_cannot_be_made_says_why_where_it_runs() {
    let several = |how: usize| gradient("g", func("leaf"), &["x"; 5][..how]);
    let attrs = [("f", func("leaf")), floats("Tin", 2), ("Tout", AttrValue::data_types(&[DataType::Double]))];
    let other = node("g", "SymbolicGradient", &["x", "x"], &attrs);
    let named = |function: &str| of("g", function);
    let with = |name: &str, attr: &str, value: AttrValue| {
        gradient("g", AttrValue::Func(FuncRef { name: name.into(), attrs: [(attr.to_string(), value)].into() }), &["x", "x"])
    };
    for (asked, code, said) in [
        (named("nowhere"), Code::NotFound, "No gradient defined for op: nowhere"),
        (named(""), Code::NotFound, "No gradient defined for op: "),
        (named("SymbolicGradient"), Code::InvalidArgument, "Can't take gradient of SymbolicGradient"),
        (several(3), Code::InvalidArgument, "the gradient of 'leaf' takes 2 tensors, and the node 3"),
        (several(5), Code::InvalidArgument, "the gradient of 'leaf' takes 2 tensors, and the node 5"),
        (other, Code::InvalidArgument, "tensor 0 that the gradient of 'leaf' gives is float, and that of the node double"),
        (named("Neg"), Code::InvalidArgument, "attribute 'T'"),
        (with("NonMaxSuppression", "T", AttrValue::Type(FLOAT)), Code::InvalidArgument, "takes"),
        (with("Neg", "T", AttrValue::Placeholder("T".into())), Code::Unimplemented, "attributes that a call gives"),
        (named("fails"), Code::InvalidArgument, "the gradient of 'fails': 'nothing' in function 'fails' names nothing"),
        (named("ends"), Code::Unimplemented, "No gradient defined for operation 'end' (op type: Exit)"),
        (named("given"), Code::NotFound, "function 'lost' is not in the library"),
        (named("wrong"), Code::InvalidArgument, "the gradient of 'wrong' takes 1 tensors, and the node 2"),
    ] {
        let looped = vec![
            node("begin", "Enter", &["x"], &[float(), ("frame_name", AttrValue::Bytes(b"f".to_vec()))]),
            node("end", "Exit", &["begin:output:0"], &[float()]),
        ];
        let functions = vec![
            leaf("leaf"),
            function("fails", vec![unary("neg", "Neg", "nothing")], "neg:y:0"),
            function("ends", looped, "end:output:0"),
            leaf("given"),
            leaf("wrong"),
        ];
        let mut def = graph(functions, vec![asked]);
        def.library.gradients = vec![("given".into(), "lost".into()), ("wrong".into(), "leaf".into())];
        let error = failed(def, "g");
        assert_eq!((error.code(), error.node()), (code, Some("g")), "{error}");
        assert!(error.message().contains(said), "{said}: {error}");
    }
}

/// TensorFlow fails where a run comes to it, too.
#[test]
fn one_that_cannot_be_made_refuses_no_run_that_does_not_come_to_it() {
    let value = AttrValue::Tensor(HostTensor::from_bools(plimsoll_graph::Shape::scalar(), &[false]).unwrap());
    let never = node("never", "Const", &[], &[("dtype", AttrValue::data_type(DataType::Bool)), ("value", value)]);
    let bad = gradient("bad", func("nowhere"), &["fork:1", "fork:1"]);
    let sides = vec![
        never,
        node("fork", "Switch", &["x", "never"], &[float()]),
        bad,
        unary("good", "Neg", "fork:0"),
        node("join", "Merge", &["good", "bad"], &[float(), ("N", AttrValue::Int(2))]),
    ];
    assert_eq!(run(&session(graph(Vec::new(), sides)).unwrap(), "join").unwrap(), -2.0);
    // In a function that is called, as a value that is not read.
    let unread = vec![of("bad", "nowhere"), unary("neg", "Neg", "x")];
    let (first, _) = call(How::ByName, "first", "f", "x");
    assert_eq!(run(&session(graph(vec![function("f", unread, "neg:y:0")], vec![first])).unwrap(), "first").unwrap(), -2.0);
}

#[test]
fn gradients_without_end_are_refused() {
    // A function that calls itself, one that has its own gradient, and one that wraps its argument with each call.
    let (again, result) = call(How::ByName, "c", "f", "x");
    let error = session(graph(vec![function("f", vec![again], &result)], vec![of("g", "f")])).err().unwrap();
    assert_eq!((error.code(), error.node()), (Code::Unimplemented, Some("g")), "{error}");
    assert!(error.message().contains("'gradient of f' calls itself"), "{error}");
    let own = function("f", vec![of("c", "f")], "c:output:0");
    let error = failed(graph(vec![own], vec![of("g", "f")]), "g");
    assert_eq!((error.code(), error.node()), (Code::Unimplemented, Some("g")), "{error}");
    let with = |name: &str, inner: AttrValue| AttrValue::Func(FuncRef { name: name.into(), attrs: [("F".to_string(), inner)].into() });
    let next = with("f", with("wrap", AttrValue::Placeholder("F".into())));
    let grows = node("c", "PartitionedCall", &["x"], &[floats("Tin", 1), floats("Tout", 1), ("f", next)]);
    let functions = vec![function("f", vec![grows], "c:output:0"), leaf("leaf")];
    let def = graph(functions, vec![gradient("g", with("f", func("leaf")), &["x", "x"])]);
    let error = session(def).and_then(|session| run(&session, "g")).unwrap_err();
    assert!(error.message().contains("deep"), "{error}");
}

/// TensorFlow's runtime makes no gradients of conditions in functions.
#[test]
fn a_condition_in_a_function_has_a_gradient() {
    let body = || {
        vec![
            node("zero", "ZerosLike", &["x"], &[float()]),
            node("above", "Greater", &["x", "zero:y:0"], &[float()]),
            node("fork", "Switch", &["x", "above:z:0"], &[float()]),
            unary("square", "Square", "fork:output_true:0"),
            unary("neg", "Neg", "fork:output_false:0"),
            node("join", "Merge", &["neg:y:0", "square:y:0"], &[float(), ("N", AttrValue::Int(2))]),
        ]
    };
    let session = session(graph(vec![function("f", body(), "join:output:0")], vec![of("g", "f")])).unwrap();
    let at = |x: f32| session.run(&[("x", &HostTensor::scalar(x))], &["g"], &[]).unwrap()[0].as_slice::<f32>().unwrap()[0];
    assert_eq!([at(3.0), at(-3.0)], [18.0, 3.0]);
}

#[test]
fn gradients_of_every_operation_by_itself_fail_cleanly_or_run() {
    let registry = Registry::standard(Arc::new(CpuKernels));
    let table = registry.table();
    let names: Vec<String> = table.names().map(str::to_string).collect();
    let list = |types: Vec<i32>| AttrValue::List(Box::new(AttrList { types, ..AttrList::default() }));
    let mut made = 0;
    for op in &names {
        let def = table.get(op).unwrap();
        let mut attrs = Attrs::new();
        for attr in &def.attrs {
            let value = match attr.kind.as_str() {
                "type" => AttrValue::Type(FLOAT),
                "int" => AttrValue::Int(2),
                "list(type)" => list(vec![FLOAT; 2]),
                _ => continue,
            };
            attrs.insert(attr.name.clone(), value);
        }
        let (Ok(xs), Ok(ys)) = (def.input_types(&attrs), def.output_types(&attrs)) else { continue };
        let (xs, ys): (Vec<i32>, Vec<i32>) = (xs.iter().map(|arg| arg.number()).collect(), ys.iter().map(|arg| arg.number()).collect());
        let takes: Vec<i32> = xs.iter().chain(&ys).copied().collect();
        let mut nodes = Vec::new();
        let mut inputs = Vec::new();
        for (at, data_type) in takes.iter().enumerate() {
            let name = format!("in{at}");
            nodes.push(node(&name, "Placeholder", &[], &[("dtype", AttrValue::Type(*data_type))]));
            inputs.push(name);
        }
        let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
        let f = AttrValue::Func(FuncRef { name: op.clone(), attrs });
        nodes.push(node("g", "SymbolicGradient", &inputs, &[("f", f), ("Tin", list(takes)), ("Tout", list(xs))]));
        nodes.push(unary("other", "Neg", "x"));
        // Types that no tensor has, as references, are refused as they are read.
        let Ok(session) = session(graph(Vec::new(), nodes)) else { continue };
        assert_eq!(run(&session, "other").unwrap(), -2.0);
        // What it takes is not fed, which is looked at first.
        let error = session.run(&[], &["g"], &[]).unwrap_err();
        assert!(!matches!(error.code(), Code::Internal | Code::Unknown), "{op}: {error}");
        made += usize::from(
            session.graph().find("g/g").is_some() || session.graph().node(session.graph().find("g").unwrap()).op == "IdentityN",
        );
    }
    assert!(made > 100, "{made} of {}", names.len());
}
