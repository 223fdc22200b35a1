//! Requests that make no sense are errors, and never a kernel that reads or writes beyond its arguments. A plan's file is untrusted.

use plimsoll_base::Code;
use plimsoll_device_cuda::emit;
use plimsoll_ptx::{Host, Job, Launch, Value};
use plimsoll_request::KernelRequest;
use serde_json::Value as Json;

use super::cases::Case;
use super::making::{Making, times};
use super::{anchors, short_kernels};

/// Every number of a document, in order.
fn numbers<'a>(document: &'a mut Json, found: &mut Vec<&'a mut Json>) {
    match document {
        Json::Number(_) => found.push(document),
        Json::Array(list) => list.iter_mut().for_each(|one| numbers(one, found)),
        Json::Object(fields) => fields.values_mut().for_each(|one| numbers(one, found)),
        _ => {}
    }
}

/// Every list of a document, in order.
fn lists<'a>(document: &'a mut Json, found: &mut Vec<&'a mut Vec<Json>>) {
    match document {
        Json::Array(list) => {
            if list.iter().all(Json::is_number) {
                found.push(list);
            } else {
                list.iter_mut().for_each(|one| lists(one, found));
            }
        }
        Json::Object(fields) => fields.values_mut().for_each(|one| lists(one, found)),
        _ => {}
    }
}

/// The request with a number or a list that is another one, where that is a request.
fn mutated(making: &mut Making, request: &KernelRequest) -> Option<KernelRequest> {
    let mut document = serde_json::to_value(request).ok()?;
    for _ in 0..1 + making.below(3) {
        if making.below(3) > 0 {
            let mut found = Vec::new();
            numbers(&mut document, &mut found);
            let count = found.len() as u64;
            let at = making.below(count) as usize;
            let other = *making.of(&[0i64, 1, 2, 3, 5, 7, 64, 255, -1, 1 << 16, 1 << 31, 1 << 40, 1 << 46, i64::MAX]);
            **found.get_mut(at)? = other.into();
        } else {
            let mut found = Vec::new();
            lists(&mut document, &mut found);
            let count = found.len() as u64;
            let list = found.into_iter().nth(making.below(count) as usize)?;
            if making.below(2) == 0 {
                list.pop();
            } else {
                list.push(making.below(4).into());
            }
        }
    }
    serde_json::from_value(document).ok()
}

fn everything() -> Vec<Case> {
    [anchors::products(10), anchors::convolutions(12)].into_iter().flatten().chain(short_kernels()).collect()
}

#[test]
fn mutated_requests_are_refused_or_stay_within_their_arguments() {
    /// Requests of more bytes are not run.
    const MOST: u64 = 1 << 16;
    let cases = everything();
    let mut making = Making::new(77);
    let (mut refused, mut jobs, mut names, mut kernels) = (0, Vec::new(), Vec::new(), Vec::new());
    for _ in 0..times(4000) {
        let case = making.below(cases.len() as u64) as usize;
        let Some(request) = mutated(&mut making, &cases[case].request) else { continue };
        let emitted = match emit::emit(&request) {
            Ok(emitted) => emitted,
            Err(error) => {
                assert!(matches!(error.code(), Code::InvalidArgument | Code::Unimplemented), "{request:?}: {error}");
                refused += 1;
                continue;
            }
        };
        // What is left is run with zeros: each argument is as long as the request says.
        let arguments = request.arguments().unwrap();
        let sizes: Vec<u64> = arguments.inputs.iter().chain(&arguments.outputs).chain(&emitted.between).copied().collect();
        if sizes.iter().sum::<u64>() > MOST || jobs.len() > 150 {
            continue;
        }
        let mut job = Job { buffers: sizes.iter().map(|bytes| vec![0; *bytes as usize]).collect(), ..Job::default() };
        job.buffers.push(u64::MAX.to_le_bytes().to_vec());
        let count = arguments.inputs.len() + arguments.outputs.len();
        for kernel in &emitted.kernels {
            let args = kernel.args.iter().map(|arg| match *arg {
                emit::KernelArg::Argument(argument) => Value::Buffer(argument as usize),
                emit::KernelArg::Between(buffer) => Value::Buffer(count + buffer as usize),
                emit::KernelArg::U32(number) => Value::Number(number.into()),
                emit::KernelArg::U64(number) => Value::Number(number),
                emit::KernelArg::Guard => Value::Number(0),
                emit::KernelArg::Fault | emit::KernelArg::Stop => Value::Buffer(sizes.len()),
                emit::KernelArg::FaultBase => Value::Number(0),
            });
            job.launches.push(Launch { entry: kernel.entry.clone(), blocks: kernel.blocks, threads: emit::THREADS, args: args.collect() });
        }
        names.push(format!("{request:?}"));
        jobs.push(job);
        kernels.extend(emitted.kernels);
    }
    assert!(refused > 300 && jobs.len() > 100, "{refused} refused, {} run", jobs.len());
    let Some(host) = Host::find().filter(Host::checks_bounds) else {
        eprintln!("skipped: there is no C compiler with sanitizers");
        return;
    };
    let program = host.compile(&emit::program(&kernels)).unwrap();
    if let Err(error) = program.run(&mut jobs, false) {
        let last = error.lines().filter_map(|line| line.strip_prefix("job ")).next_back().unwrap_or("0");
        panic!("{}: {error}", names[last.split(' ').next().unwrap().parse::<usize>().unwrap_or(0)]);
    }
}

#[test]
fn what_is_too_large_is_refused() {
    let huge = KernelRequest::Movement { element: 8, movement: plimsoll_request::movement::Movement::Fill { elements: 1 << 40 } };
    let error = emit::emit(&huge).unwrap_err();
    assert_eq!(error.code(), Code::Unimplemented);
    assert!(error.message().contains("an argument of 8796093022208 bytes"), "{error}");
}
