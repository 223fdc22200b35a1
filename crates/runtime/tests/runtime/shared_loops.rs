//! Loops of several devices. The graphs are recorded cases of crates/cli; their nodes ask for devices at random. Values are those of one
//! device, whatever the devices and the threads.

use std::sync::Arc;

use plimsoll_base::Code;
use plimsoll_cards::Options;
use plimsoll_device::{DeviceKind, Work};
use plimsoll_graph::{Graph, GraphDef, HostTensor};
use plimsoll_kernels::CpuKernels;
use plimsoll_ops::Registry;
use plimsoll_plan::Plan;
use plimsoll_runtime::{Devices, Session};

use crate::mutated_loops::{CASES, fed, graph};
use crate::plan_files::Random;
use crate::random_graphs::guarded;

/// Nodes that ask for devices at random, in functions too.
pub fn scattered(mut graph: GraphDef, devices: &[&str], random: &mut Random) -> GraphDef {
    let functions = graph.library.functions.iter_mut().flat_map(|function| &mut function.nodes);
    for node in graph.nodes.iter_mut().chain(functions) {
        let is_pinned = node.op.contains("Variable") || node.op.contains("VarHandle") || node.attrs.contains_key("_class");
        if !is_pinned && random.below(3) > 0 {
            node.device = devices[random.below(devices.len())].to_string();
        }
    }
    graph
}

pub fn session(devices: &Devices, graph: GraphDef) -> Session {
    let registry = Arc::new(Registry::standard(Arc::new(CpuKernels)));
    Session::new(devices, &Graph::resolve(graph, registry.table()).unwrap(), registry).unwrap()
}

/// How many loops several queues have, each counted in all of them.
pub fn shared(plan: &Plan) -> usize {
    let commands = plan.queues.iter().flat_map(|queue| &queue.program.commands);
    commands.filter(|command| matches!(&command.work, Work::Loop { with, .. } if !with.is_empty())).count()
}

pub fn bits(values: &[HostTensor]) -> Vec<Vec<u8>> {
    values.iter().map(|value| value.dense().unwrap().bytes().unwrap().to_vec()).collect()
}

/// Runs each case on devices at random: the values of one device. How many of the runs have shared loops.
fn same_values(options: &Options, names: &[&str], seeds: u64) -> usize {
    let mut found = 0;
    for (number, (case, has_variables, feeds, fetches)) in CASES.iter().enumerate() {
        for seed in 0..seeds {
            let mut random = Random((number as u64) << 32 | seed);
            let one = guarded(&Options::new().intra_op(1));
            let one = session(&one, graph(case));
            let several = guarded(options);
            let several = session(&several, scattered(graph(case), names, &mut random));
            for count in [2, 0, 1, 5] {
                let values: Vec<HostTensor> = feeds.iter().map(|name| fed(case, name, count)).collect();
                let keys: Vec<String> = feeds.iter().map(|name| format!("{name}:0")).collect();
                let fed: Vec<(&str, &HostTensor)> = keys.iter().map(String::as_str).zip(&values).collect();
                if *has_variables && count == 2 {
                    for session in [&one, &several] {
                        session.run(&[], &[], &["init"]).unwrap();
                    }
                }
                match (one.run(&fed, fetches, &[]), several.run(&fed, fetches, &[])) {
                    (Ok(want), Ok(got)) if bits(&got) != bits(&want) => {
                        let plan = several.plan(&fed, fetches, &[]).unwrap();
                        panic!("{case}, seed {seed}, {count} iterations: {got:?} instead of {want:?}\n{plan}");
                    }
                    (Ok(_), Ok(_)) => {}
                    (want, got) => {
                        let code = |outcome: plimsoll_base::Result<Vec<HostTensor>>| outcome.err().map(|error| error.code());
                        let text = got.as_ref().err().map(ToString::to_string);
                        assert_eq!(code(got), code(want), "{case}, seed {seed}, {count} iterations: {text:?}");
                    }
                }
                match several.plan(&fed, fetches, &[]) {
                    Ok(plan) => found += usize::from(shared(&plan) > 0),
                    Err(error) => assert_eq!(error.code(), Code::Unimplemented, "{error}"),
                }
            }
        }
    }
    found
}

#[test]
fn loops_on_several_processors_have_the_values_of_one() {
    for threads in [1, 3] {
        let options = Options::new().intra_op(threads).device_count(DeviceKind::Cpu, 3);
        let found = same_values(&options, &["/cpu:0", "/cpu:1", "/cpu:2"], 6);
        assert!(found > 30, "{found} runs with shared loops");
    }
}

#[test]
fn loops_on_simulated_cards_have_the_values_of_one_processor() {
    let options = Options::new().intra_op(2).device_count(DeviceKind::Gpu, 2);
    let found = same_values(&options, &["/cpu:0", "/gpu:0", "/gpu:1"], 4);
    assert!(found > 20, "{found} runs with shared loops");
}
