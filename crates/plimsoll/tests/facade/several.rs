//! Models opened together: by TensorFlow's rules, and by first fit on devices with a line each.

use plimsoll::builder::Initializer;
use plimsoll::{Code, DataType, Devices, Feed, Graph, HostTensor, Options, PartialShape, PlacementMode, Shape, Signature, Together};

/// `y` = the sum of `x` times a variable of that many columns.
fn network(devices: &Devices, columns: u64) -> Graph {
    let mut b = devices.builder();
    let x = b.placeholder("x", DataType::Float, PartialShape(Some(vec![None, Some(32)]))).build().unwrap();
    let w = b.get_variable("w", DataType::Float, [32, columns], &Initializer::random_uniform(-1.0, 1.0, Some(3))).unwrap();
    let product = b.matmul(x, w.value).build().unwrap();
    b.reduce_sum(product, None).name("y").build().unwrap();
    b.global_variables_initializer().unwrap();
    b.finish()
}

fn runs() -> Vec<Signature> {
    let x = Feed { tensor: "x".into(), data_type: DataType::Float, shape: Shape::from([4, 32]), value: None };
    let init = Signature { targets: vec!["init".into()], ..Signature::default() };
    vec![init, Signature { feeds: vec![x], fetches: vec!["y".into()], targets: vec![], ..Signature::default() }]
}

fn options(limits: [&str; 2]) -> Options {
    Options::new().device_count(plimsoll::DeviceKind::Cpu, 2).limit("CPU:0", limits[0]).limit("CPU:1", limits[1])
}

fn value(session: &plimsoll::Session) -> HostTensor {
    let x = HostTensor::from_slice([4, 32], &[0.25f32; 128]).unwrap();
    session.run(&[], &[], &["init"]).unwrap();
    session.release_unused();
    session.run(&[("x", x)], &["y"], &[]).unwrap().remove(0)
}

#[test]
fn models_are_placed_in_their_order_on_the_first_device_with_room() {
    let free = Devices::open(&Options::new()).unwrap();
    let wanted = [500, 400].map(|columns| value(&free.session(network(&free, columns)).unwrap()));
    // 64,000 and 51,200 bytes of weights; the initializer takes as much again.
    let limits = ["176KiB", "176KiB"];
    for (mode, together) in [(PlacementMode::FirstFit, Together::SideBySide), (PlacementMode::TensorFlow, Together::InTurn)] {
        let devices = Devices::open(&options(limits).placement(mode)).unwrap();
        let mut several = devices.several();
        several.graph("a", network(&devices, 500), runs()).unwrap().graph("b", network(&devices, 400), runs()).unwrap();
        let opened = several.open().unwrap();
        assert_eq!(opened.joint.together(), together);
        if mode == PlacementMode::TensorFlow {
            assert!(opened.log.is_empty());
            assert_eq!(opened.joint.check_side_by_side().unwrap_err().code(), Code::ResourceExhausted);
            assert_eq!(opened.joint.rounds().unwrap(), [[0], [1]]);
            continue;
        }
        assert!(opened.log[0].starts_with("a: whole on CPU:0: fits: "), "{:?}", opened.log);
        assert!(opened.log[1].starts_with("b: whole on CPU:0: does not fit: "), "{:?}", opened.log);
        assert!(opened.log[2].starts_with("b: whole on CPU:1: fits: "), "{:?}", opened.log);
        let values: Vec<HostTensor> = std::thread::scope(|scope| {
            opened
                .sessions
                .iter()
                .map(|session| scope.spawn(|| value(session)))
                .collect::<Vec<_>>()
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        assert_eq!(values, wanted);
        assert!(devices.report().iter().all(|report| report.limit.is_some_and(|limit| report.peak <= limit)));
        assert_eq!(opened.joint.rounds().unwrap(), [[0, 1]]);
    }
}

/// Either fills the one device that has room for it.
#[test]
fn a_model_with_room_nowhere_beside_others_takes_its_turn() {
    let devices = Devices::open(&options(["176KiB", "32KiB"]).placement(PlacementMode::FirstFit)).unwrap();
    let mut several = devices.several();
    several.graph("a", network(&devices, 500), runs()).unwrap().graph("b", network(&devices, 400), runs()).unwrap();
    let opened = several.open().unwrap();
    assert_eq!((opened.joint.together(), opened.joint.rounds().unwrap()), (Together::InTurn, vec![vec![0], vec![1]]));
    assert_eq!(opened.log[1], "b: fits nowhere beside the models before it, whole or in pieces: takes its turn");
    assert!(opened.log[2].starts_with("b: whole on CPU:0: fits: "), "{:?}", opened.log);
    for session in &opened.sessions {
        value(session);
        session.close();
    }
}

#[test]
fn a_model_that_fits_nowhere_is_named() {
    for mode in [PlacementMode::FirstFit, PlacementMode::TensorFlow] {
        let devices = Devices::open(&options(["128KiB", "32KiB"]).placement(mode)).unwrap();
        let mut several = devices.several();
        several.graph("a", network(&devices, 200), runs()).unwrap().graph("huge", network(&devices, 2000), runs()).unwrap();
        let error = several.open().unwrap_err();
        assert_eq!(error.code(), Code::ResourceExhausted);
        assert!(error.message().starts_with("huge: "), "{error}");
    }
}
