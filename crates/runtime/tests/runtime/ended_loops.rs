//! Loops of several devices that end early: by a fault in the part of one device, by a deadline, by a cancellation. The other parts end
//! too, what stands behind the end has not happened, and the session goes on.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_base::{Bytes, Code, DataType};
use plimsoll_cards::Options;
use plimsoll_device::DeviceKind;
use plimsoll_graph::id::NodeId;
use plimsoll_graph::{AttrValue, HostTensor, Output};
use plimsoll_kernels::CpuKernels;
use plimsoll_ops::builder::{Initializer, Variable, VariableKind};
use plimsoll_ops::{GraphBuilder, Registry};
use plimsoll_runtime::{Cancellation, Devices, Session};

use crate::random_graphs::guarded;
use crate::shared_loops::shared;

fn builder() -> GraphBuilder {
    GraphBuilder::new(Arc::new(Registry::standard(Arc::new(CpuKernels))))
}

fn op(b: &mut GraphBuilder, name: &str, inputs: &[Output]) -> NodeId {
    b.op(name).inputs(inputs.iter().copied()).build_node().unwrap()
}

fn first(node: NodeId) -> Output {
    Output { node, index: 0 }
}

/// `value` in the frame `loop`.
fn enter(b: &mut GraphBuilder, value: Output, stays: bool) -> Output {
    b.op("Enter").input(value).attr("frame_name", AttrValue::text("loop")).attr("is_constant", AttrValue::Bool(stays)).build().unwrap()
}

/// A number in an iteration, which `behind` belongs to.
fn number(b: &mut GraphBuilder, behind: NodeId, value: f32) -> Output {
    b.control_dependencies(&[behind], |b| b.scalar(value).unwrap())
}

/// `variable` of the device of its name grows by one behind these nodes.
fn count(b: &mut GraphBuilder, variable: &Variable, device: &str, behind: &[NodeId]) -> NodeId {
    let handle = enter(b, variable.handle, true);
    let one = number(b, behind[0], 1.0);
    b.control_dependencies(behind, |b| {
        let float = AttrValue::data_type(DataType::Float);
        b.device(device, |b| b.op("AssignAddVariableOp").inputs([handle, one]).attr("dtype", float).build_node().unwrap())
    })
}

/// A loop of two devices that goes on while a number is less than `limit`; the number is `step` more, and half of it, after each iteration.
/// In iteration k, `check` computes 1 / (5 - number) on the second device, and fails where that is no finite number. On the first device
/// `before` counts iterations ahead of the check, and `after` those behind it; `beside` does on the second. `end` counts behind the loop.
fn session(devices: &Devices, at: [&str; 2], limit: f32, by: [f32; 2]) -> Session {
    let mut b = builder();
    b.set_variable_kind(VariableKind::Resource);
    let mut variable =
        |name: &str, device: &str| b.device(device, |b| b.get_variable(name, DataType::Float, [], &Initializer::Zeros).unwrap());
    let [before, after, beside, end] =
        [("before", at[0]), ("after", at[0]), ("beside", at[1]), ("end", at[0])].map(|(name, device)| variable(name, device));
    b.global_variables_initializer().unwrap();
    b.device(at[0], |b| {
        let zero = b.scalar(0f32).unwrap();
        let start = enter(b, zero, false);
        let merge = op(b, "Merge", &[start, start]);
        let most = number(b, merge, limit);
        let less = op(b, "Less", &[first(merge), most]);
        let test = op(b, "LoopCond", &[first(less)]);
        let switch = op(b, "Switch", &[first(merge), first(test)]);
        let body = op(b, "Identity", &[Output { node: switch, index: 1 }]);
        let counted = count(b, &before, at[0], &[body]);
        let five = number(b, body, 5.0);
        let check = b.device(at[1], |b| {
            let left = b.sub(five, first(body)).build().unwrap();
            let part = b.op("Reciprocal").input(left).build().unwrap();
            b.control_dependencies(&[counted], |b| {
                b.op("CheckNumerics").input(part).attr("message", AttrValue::text("no number")).name("check").build_node().unwrap()
            })
        });
        let ends = [count(b, &after, at[0], &[check]), count(b, &beside, at[1], &[check])];
        let step = number(b, body, by[0]);
        let factor = number(b, body, by[1]);
        let next = b.control_dependencies(&ends, |b| {
            let more = b.add(first(body), step).build().unwrap();
            b.mul(more, factor).build().unwrap()
        });
        let next = op(b, "NextIteration", &[next]);
        b.close_loop(merge, next).unwrap();
        let exit = op(b, "Exit", &[Output { node: switch, index: 0 }]);
        let last = b.control_dependencies(&[exit], |b| {
            let one = b.scalar(1f32).unwrap();
            b.assign_add(&end, one).unwrap()
        });
        b.group(&[last], "all").unwrap();
        let one = b.scalar(1f32).unwrap();
        let short = b.assign_add(&end, one).unwrap();
        b.group(&[short], "short").unwrap();
    });
    let registry = b.registry().clone();
    let session = Session::new(devices, &b.finish(), registry).unwrap();
    session.run(&[], &[], &["init"]).unwrap();
    let plan = session.plan(&[], &[], &["all"]).unwrap();
    assert!(shared(&plan) > 0, "{at:?}: no loop of two queues\n{plan}");
    session
}

fn values(session: &Session) -> [f32; 4] {
    ["before", "after", "beside", "end"].map(|name| session.read_variable(name).unwrap().to_vec::<f32>().unwrap()[0])
}

/// Each pair of devices, with one thread and with several.
fn each(check: impl Fn(&Devices, [&str; 2])) {
    let pairs = [
        ["/cpu:0", "/cpu:1"],
        ["/cpu:1", "/cpu:0"],
        ["/cpu:0", "/gpu:0"],
        ["/gpu:0", "/cpu:0"],
        ["/gpu:0", "/gpu:1"],
        ["/gpu:1", "/gpu:0"],
    ];
    for threads in [1, 3] {
        for at in pairs {
            let options = Options::new().intra_op(threads).device_count(DeviceKind::Cpu, 2).device_count(DeviceKind::Gpu, 2);
            let devices = guarded(&options);
            check(&devices, at);
            assert!(devices.report().iter().all(|device| device.reserved == Bytes::ZERO), "{at:?}: {:?}", devices.report());
        }
    }
}

#[test]
fn a_fault_in_an_iteration_ends_the_loop_on_all_devices() {
    each(|devices, at| {
        let session = session(devices, at, 1e9, [1.0, 1.0]);
        for round in 1u8..=20 {
            let error = session.run(&[], &[], &["all"]).unwrap_err();
            assert_eq!((error.code(), error.node()), (Code::InvalidArgument, Some("check")), "{at:?}: {error}");
            let round = f32::from(round);
            assert_eq!(values(&session), [6.0 * round, 5.0 * round, 5.0 * round, round - 1.0], "{at:?}");
            session.run(&[], &[], &["short"]).unwrap();
        }
        session.close();
    });
}

#[test]
fn a_loop_that_comes_to_its_end_is_counted_on_all_devices() {
    each(|devices, at| {
        let session = session(devices, at, 4.5, [1.0, 1.0]);
        for round in 1u8..=3 {
            session.run(&[], &[], &["all"]).unwrap();
            let round = f32::from(round);
            assert_eq!(values(&session), [5.0 * round, 5.0 * round, 5.0 * round, round], "{at:?}");
        }
        session.close();
    });
}

/// The number goes to one and stays there.
#[test]
fn a_loop_without_an_end_ends_on_all_devices() {
    each(|devices, at| {
        let session = session(devices, at, 2.0, [1.0, 0.5]);
        let ended = Cancellation::after(Duration::from_millis(30)).unwrap();
        let error = session.run_until(&[], &[], &["all"], &ended).unwrap_err();
        assert_eq!(error.code(), Code::DeadlineExceeded, "{at:?}: {error}");
        let cancelled = Cancellation::new();
        std::thread::scope(|scope| {
            let run = scope.spawn(|| session.run_until(&[], &[], &["all"], &cancelled));
            std::thread::sleep(Duration::from_millis(30));
            cancelled.cancel();
            assert_eq!(run.join().unwrap().unwrap_err().code(), Code::Cancelled, "{at:?}");
        });
        let [before, after, beside, end] = values(&session);
        // The iteration in which each of the two runs ended may be done in part.
        let is_near = |count: f32| (before - 2.0..=before).contains(&count);
        assert!(before > 0.0 && is_near(after) && is_near(beside) && end == 0.0, "{at:?}: {before} {after} {beside} {end}");
        session.run(&[], &[], &["short"]).unwrap();
        assert_eq!(values(&session), [before, after, beside, 1.0], "{at:?}: something goes on");
        session.close();
    });
}

/// Values that loops of two devices carry, of more elements than there can be.
#[test]
fn a_loop_of_two_devices_is_refused_where_it_does_not_fit() {
    let mut b = builder();
    let dims = b.constant(HostTensor::from_slice([1], &[1i64 << 62]).unwrap()).build().unwrap();
    let start = b.scalar(0f32).unwrap();
    let start = enter(&mut b, start, false);
    let merge = op(&mut b, "Merge", &[start, start]);
    let most = number(&mut b, merge, 9.0);
    let less = op(&mut b, "Less", &[first(merge), most]);
    let test = op(&mut b, "LoopCond", &[first(less)]);
    let switch = op(&mut b, "Switch", &[first(merge), first(test)]);
    let body = Output { node: switch, index: 1 };
    let dims = enter(&mut b, dims, true);
    let sum = b.device("/cpu:1", |b| {
        let many = b.fill(dims, body).build().unwrap();
        b.reduce_sum(many, None).build().unwrap()
    });
    let next = op(&mut b, "NextIteration", &[sum]);
    b.close_loop(merge, next).unwrap();
    b.op("Exit").input(Output { node: switch, index: 0 }).name("exit").build().unwrap();
    let registry = b.registry().clone();
    let limit = Bytes(64 << 20);
    let options = Options::new().device_count(DeviceKind::Cpu, 2).limit("CPU:0", &limit.0.to_string()).limit("CPU:1", &limit.0.to_string());
    let devices = Devices::open(&options).unwrap();
    let error = Session::new(&devices, &b.finish(), registry).and_then(|session| session.run(&[], &["exit"], &[]).map(drop)).unwrap_err();
    assert!([Code::InvalidArgument, Code::ResourceExhausted].contains(&error.code()), "{error}");
    assert!(devices.report().iter().all(|report| report.peak <= limit));
}
