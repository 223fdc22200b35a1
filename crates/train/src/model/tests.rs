use super::*;
use crate::data::digits as data;

fn build(towers: usize, optimizer: OptimizerKind) -> TrainingGraph {
    let registry = Arc::new(plimsoll_runtime::standard_registry());
    let components = data::held_out().unwrap().components().to_vec();
    TrainingGraph::together(&registry, &digits, &components, &Towers::on_cpus(towers), &recipe(optimizer)).unwrap()
}

fn recipe(optimizer: OptimizerKind) -> Recipe {
    Recipe { optimizer, learning_rate: 0.1, decay: None, moving_average: None, seed: 1 }
}

fn together(graph: &TrainingGraph) -> &Together {
    match &graph.parts.steps {
        Steps::Together(together) => together,
        Steps::Apart(_) => panic!("the towers step together"),
    }
}

fn names(graph: &TrainingGraph) -> Vec<&str> {
    graph.variables.iter().map(|variable| variable.name.as_str()).collect()
}

#[test]
fn towers_share_variables_on_the_first_cpu() {
    let one = build(1, OptimizerKind::Sgd);
    let three = build(3, OptimizerKind::Sgd);
    let layers =
        ["hidden1/weights", "hidden1/biases", "hidden2/weights", "hidden2/biases", "softmax_linear/weights", "softmax_linear/biases"];
    assert_eq!(names(&three)[0], GLOBAL_STEP);
    assert_eq!(names(&three)[1..], layers);
    assert_eq!(names(&one), names(&three));
    let graph = &three.graph;
    for variable in &three.variables {
        assert_eq!(graph.node(variable.handle.node).device, "/device:CPU:0");
    }
    assert_eq!(together(&three).feeds[2], ["tower_2/images:0", "tower_2/labels:0"]);
    let device = |name: &str| graph.node(graph.find(name).unwrap()).device.as_str();
    assert_eq!(device("tower_2/hidden1/MatMul"), "/device:CPU:2");
    assert_eq!(device("tower_1/cross_entropy"), "/device:CPU:1");
    assert_eq!(device("loss"), "/device:CPU:0");
    assert!(graph.nodes().values().filter(|node| node.name.starts_with("tower_2/gradients/")).all(|node| node.device == "/device:CPU:2"));
    let (init, Together { train, loss, .. }) = (&three.parts.init, together(&three));
    assert_eq!((loss.as_deref(), &train[..], &init[..]), (Some("loss:0"), &["train".to_string()][..], &["init".to_string()][..]));
}

#[test]
fn slots_are_variables_too_and_seeds_do_not_depend_on_the_number_of_towers() {
    let adam = build(2, OptimizerKind::Adam);
    for name in ["beta1_power", "hidden1/weights/Adam", "hidden1/weights/Adam_1", "softmax_linear/biases/Adam_1"] {
        assert!(names(&adam).contains(&name), "{name}");
    }
    assert!(names(&build(2, OptimizerKind::Momentum)).contains(&"hidden2/biases/Momentum"));
    let seeds = |graph: &TrainingGraph| -> Vec<(i64, i64)> {
        use plimsoll::graph::AttrsExt;
        let random = graph.graph.nodes().values().filter(|node| node.op == "TruncatedNormal");
        random.map(|node| (node.attrs.int("seed").unwrap(), node.attrs.int("seed2").unwrap())).collect()
    };
    assert_eq!(seeds(&adam), [(1, 0), (1, 1), (1, 2)]);
    assert_eq!(seeds(&build(1, OptimizerKind::Sgd)), seeds(&adam));
}

#[test]
fn optimizers_have_names() {
    for kind in [OptimizerKind::Sgd, OptimizerKind::Momentum, OptimizerKind::Adam] {
        assert_eq!(kind.to_string().parse::<OptimizerKind>(), Ok(kind));
    }
    assert!("Adam".parse::<OptimizerKind>().unwrap_err().to_string().contains("sgd, momentum or adam"));
    let none = Towers { devices: Vec::new(), variables: "/cpu:0".to_string() };
    let registry = Arc::new(plimsoll_runtime::standard_registry());
    let error = TrainingGraph::together(&registry, &digits, &[], &none, &recipe(OptimizerKind::Sgd)).unwrap_err();
    assert!(error.message().contains("at least 1"));
}
