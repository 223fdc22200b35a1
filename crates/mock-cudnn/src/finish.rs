//! What attributes make of a descriptor as a whole.

use std::collections::BTreeSet;
use std::ffi::c_int;

use serde_json::Value;

use crate::attention::{Attention, DIVIDE, Forward, MULTIPLY, Operation, SUBTRACT};
use crate::attributes::{first_of, kind};
use crate::behind::{ADD, Behind, GREATER, OnEach, SELECT, Statistics};
use crate::convolution::{Convolution, Tensor, Window};
use crate::descriptor::{Answer, Choice, Computed, Descriptor, Graph, Made, Pack, Plan, State, because};
use crate::driver;
use crate::engines::Engine;
use crate::status::{BAD, NOT_FINISHED, NOT_INITIALIZED, NOT_SUPPORTED, NULL, Status, WRONG_CARD};

/// What cuDNN 9.26 has to know of a card.
const PROPERTIES: [&str; 23] = [
    "deviceVer",
    "multiProcessorCount",
    "warpSize",
    "maxSharedMemoryPerBlock",
    "maxSharedMemoryPerBlockOptin",
    "reservedSharedMemoryPerBlock",
    "maxRegistersPerSM",
    "maxCtasPerSM",
    "maxThreadsPerBlock",
    "maxThreadsPerSM",
    "regsPerBlock",
    "totalGlobalMem",
    "smClockRateKHz",
    "l2CacheSize",
    "maxBlockSize",
    "memClockRateKHz",
    "maxGridSize",
    "supportCoopLaunch",
    "pciDeviceId",
    "isTccDriver",
    "cudaDeviceId",
    "driverVer",
    "deviceName",
];

/// Finishes a descriptor, once.
///
/// # Errors
/// As cuDNN.
pub fn finish(descriptor: &Descriptor) -> Answer<()> {
    let mut state = descriptor.state();
    if state.made.is_some() {
        return because(BAD, "a descriptor that is finished");
    }
    state.made = Some(made(descriptor.kind, &state)?);
    Ok(())
}

fn made(of: c_int, state: &State) -> Answer<Made> {
    match of {
        kind::TENSOR => tensor(state).map(Made::Tensor),
        kind::WINDOW => window(state).map(Made::Window),
        kind::FORWARD | kind::BY_FILTER | kind::BY_INPUT => convolution(of, state).map(Made::Convolution),
        // It is an addition where nothing is said.
        kind::POINTWISE => Ok(Made::Pointwise(state.number(0).unwrap_or(ADD))),
        kind::ON_EACH => on_each(state).map(Made::OnEach),
        kind::PRODUCT => Ok(Made::Arithmetic),
        // It is a sum where nothing is said.
        kind::REDUCTION => Ok(Made::Reduction(state.number(1600).unwrap_or(0))),
        kind::MULTIPLIED | kind::REDUCED | kind::SEEN => operation(of, state).map(Made::Operation),
        kind::ATTENTION => attention(state).map(Made::Operation),
        kind::STATISTICS => statistics(state).map(Made::Statistics),
        kind::GRAPH => graph(state),
        kind::PROPERTIES => properties(state).map(Made::Properties),
        kind::HEURISTICS => heuristics(state),
        kind::ENGINE => engine(state).map(Made::Engine),
        kind::KNOB => Ok(Made::Knob(state.number(600).unwrap_or(0), state.integer(601).unwrap_or(0))),
        kind::CHOICE => choice(state).map(Made::Choice),
        kind::PLAN => plan(state).map(Made::Plan),
        _ => pack(state).map(Made::Pack),
    }
}

fn tensor(state: &State) -> Answer<Tensor> {
    let (sizes, strides) = (state.integers(902).unwrap_or_default(), state.integers(903).unwrap_or_default());
    let alignment = state.integer(900).unwrap_or(0);
    let data_type = state.number(901).unwrap_or(0);
    let element = Tensor { name: 0, data_type, sizes: Vec::new(), strides: Vec::new(), alignment, is_virtual: false, is_said: false }
        .element()
        .unwrap_or(4);
    if sizes.is_empty() || sizes.len() > 8 || sizes.len() != strides.len() {
        return because(BAD, "sizes and strides of a tensor");
    }
    if sizes.iter().chain(&strides).any(|number| *number < 0) {
        return because(BAD, "sizes or strides below 0");
    }
    if alignment <= 0 || alignment % element as i64 != 0 {
        return because(BAD, format!("an alignment of {alignment} bytes"));
    }
    let [is_virtual, is_said] = [907, 908].map(|name| state.values.get(&name).is_some_and(|bytes| bytes[..] != [0]));
    if is_said && sizes.iter().any(|size| *size != 1) {
        return because(BAD, "a number of more elements than one");
    }
    Ok(Tensor { name: state.integer(906).unwrap_or(0), data_type, sizes, strides, alignment, is_virtual, is_said })
}

fn window(state: &State) -> Answer<Window> {
    let count = state.integer(106).unwrap_or(0);
    let list = |name, fill: Option<i64>, least: i64| match state.integers(name).or_else(|| Some(vec![fill?; usize::try_from(count).ok()?]))
    {
        Some(list) if list.len() as i64 == count && list.iter().all(|number| *number >= least) => Ok(list),
        _ => because(BAD, format!("attribute {name} of a convolution along {count} axes")),
    };
    if !(2..=6).contains(&count) {
        return because(BAD, format!("a convolution along {count} axes"));
    }
    Ok(Window {
        dilations: list(102, None, 1)?,
        strides: list(103, None, 1)?,
        behind: list(104, Some(0), 0)?,
        before: list(105, Some(0), 0)?,
        flips: state.number(101).unwrap_or(0) == 0,
    })
}

fn convolution(of: c_int, state: &State) -> Answer<Convolution> {
    let first = first_of(of);
    let other = |at| match state.other(first + at) {
        Some(other) => other.made(),
        None => because(BAD, format!("no attribute {}", first + at)),
    };
    let tensor = |at| match other(at)? {
        Made::Tensor(tensor) => Ok(tensor),
        _ => because(BAD, format!("attribute {} is no tensor", first + at)),
    };
    let Made::Window(window) = other(2)? else { return because(BAD, "a convolution without one") };
    let (alpha, beta) = (state.float(first).unwrap_or(1.0), state.float(first + 1).unwrap_or(0.0));
    // cuDNN takes other filters, too, and 9.19 on an H200 computes as if these lay so. No test should come to depend on that.
    let filter = tensor(3)?;
    if filter.sizes.first().is_some_and(|channels| *channels > 1) && filter.strides[0] != filter.sizes[1..].iter().product::<i64>() {
        return because(NOT_SUPPORTED, "a filter whose channels of the result do not come first");
    }
    Convolution { kind: of, filter, input: tensor(4)?, result: tensor(5)?, window, alpha, beta }.checked()
}

fn on_each(state: &State) -> Answer<OnEach> {
    let mode = match state.other(750).map(|other| other.made()) {
        Some(Ok(Made::Pointwise(mode))) => mode,
        Some(_) => return because(BAD, "an operation on each element that is none"),
        None => ADD,
    };
    let tensor = |name| match state.other(name).map(|other| other.made()) {
        Some(Ok(Made::Tensor(tensor))) => Ok(Some(tensor)),
        Some(_) => because(BAD, format!("attribute {name} is no tensor")),
        None => Ok(None),
    };
    let (Some(from), Some(to)) = (tensor(751)?, tensor(753)?) else { return because(BAD, "no tensor, or no result") };
    let (second, choice) = (tensor(752)?, tensor(758)?);
    if second.is_none() && [ADD, MULTIPLY, DIVIDE, SUBTRACT, GREATER, SELECT].contains(&mode) || choice.is_none() && mode == SELECT {
        return because(BAD, "an operation of fewer tensors than it has");
    }
    Ok(OnEach { mode, from, second, choice, to })
}

/// The tensor of an attribute, where it is set.
fn tensor_of(state: &State, name: c_int) -> Answer<Option<Tensor>> {
    match state.other(name).map(|other| other.made()) {
        Some(Ok(Made::Tensor(tensor))) => Ok(Some(tensor)),
        Some(_) => because(BAD, format!("attribute {name} is no tensor")),
        None => Ok(None),
    }
}

/// One that has to be set, or that is refused with this status.
fn wanted(state: &State, name: c_int, status: Status) -> Answer<Tensor> {
    tensor_of(state, name)?.ok_or_else(|| (status, format!("no attribute {name}")))
}

fn operation(of: c_int, state: &State) -> Answer<Operation> {
    match of {
        kind::MULTIPLIED => {
            let [a, b, to] = [1520, 1521, 1522].map(|name| wanted(state, name, NOT_SUPPORTED));
            let (a, b, to) = (a?, b?, to?);
            let sizes = |tensor: &Tensor| tensor.sizes.clone();
            let fit = match (&sizes(&a)[..], &sizes(&b)[..], &sizes(&to)[..]) {
                ([.., m, k], [.., other, n], [.., rows, columns]) => (m, k, n) == (rows, other, columns),
                _ => false,
            };
            if fit { Ok(Operation::Product { a, b, to }) } else { because(BAD, "matrices that do not fit each other") }
        }
        kind::REDUCED => {
            let operator = match state.other(1612).map(|other| other.made()) {
                Some(Ok(Made::Reduction(operator))) => operator,
                Some(_) => return because(BAD, "a reduction that is none"),
                None => 0,
            };
            Ok(Operation::Reduced { operator, from: wanted(state, 1610, BAD)?, to: wanted(state, 1611, BAD)? })
        }
        _ => {
            let (from, to) = (wanted(state, 2200, BAD)?, wanted(state, 2201, BAD)?);
            if from.elements() != to.elements() {
                return because(BAD, "a tensor seen with other elements");
            }
            Ok(Operation::Seen { from, to })
        }
    }
}

fn attention(state: &State) -> Answer<Operation> {
    let [q, k, v, result] = [2800, 2801, 2802, 2803].map(|name| wanted(state, name, NOT_FINISHED));
    let (q, k, v, result) = (q?, k?, v?, result?);
    if [&q, &k, &v, &result].iter().any(|tensor| tensor.sizes.len() != 4) {
        return because(BAD, "attention of tensors that have not four axes");
    }
    let is_it = q.sizes[3] == k.sizes[3] && k.sizes[2] == v.sizes[2] && q.sizes[2] == result.sizes[2] && v.sizes[3] == result.sizes[3];
    if !is_it {
        return because(BAD, "attention whose tensors do not fit each other");
    }
    let more = match state.other(2811).map(|other| other.made()) {
        None => None,
        Some(Ok(Made::OnEach(each))) if each.mode == ADD => Some(each),
        Some(_) => return because(NOT_SUPPORTED, "a graph of scores that is no sum"),
    };
    let names = more.as_ref().map(|more| (more.from.name, more.to.name));
    if names != state.integer(2812).zip(state.integer(2813)) {
        return because(BAD, "a graph of scores without them");
    }
    let (scale, sums) = (tensor_of(state, 2805)?, tensor_of(state, 2804)?);
    Ok(Operation::Forward(Box::new(Forward { q, k, v, result, scale, sums, more })))
}

/// A graph of attention, or of its gradient. Each tensor is made once, and where there are several operations, each has to do with another one.
fn of_attention(operations: &[std::sync::Arc<Descriptor>], state: &State) -> Answer<Made> {
    let operation = |operation: &std::sync::Arc<Descriptor>| match operation.made()? {
        Made::Operation(operation) => Ok(operation),
        Made::OnEach(each) => Ok(Operation::OnEach(each)),
        _ => because(BAD, "an operation of another graph"),
    };
    let operations = Attention(operations.iter().map(operation).collect::<Answer<Vec<_>>>()?);
    if !operations.is_connected() {
        return because(BAD, "operations that have nothing to do with each other");
    }
    Ok(Made::Graph(Graph { of: Computed::Attention(operations), handle: handle(state, 800) }))
}

fn statistics(state: &State) -> Answer<Statistics> {
    let [of, sums, squares] = [772, 773, 774].map(|name| tensor_of(state, name));
    Ok(Statistics { of: of?, sums: sums?, squares: squares? })
}

/// A convolution, and operations on each element of the result of the one before; comparisons are of other tensors, and statistics may be.
/// One operation on each element is a graph, too, of which nothing is known here.
fn graph(state: &State) -> Answer<Made> {
    let operations = state.others.get(&801).map_or(&[][..], Vec::as_slice);
    let Some((first, rest)) = operations.split_first() else { return because(BAD, "a graph of nothing") };
    let convolution = match first.made()? {
        Made::Convolution(convolution) => convolution,
        each @ Made::OnEach(_) if rest.is_empty() => return Ok(each),
        Made::Operation(_) | Made::OnEach(_) => return of_attention(operations, state),
        _ => return because(BAD, "a graph that does not begin with a convolution"),
    };
    let mut value = match convolution.kind {
        kind::FORWARD => convolution.result.name,
        kind::BY_INPUT => convolution.input.name,
        _ => convolution.filter.name,
    };
    let mut behind = Behind::default();
    for operation in rest {
        match operation.made()? {
            Made::OnEach(each) if each.from.name == value => {
                value = each.to.name;
                behind.each.push(each);
            }
            Made::OnEach(each) if each.mode == GREATER => behind.each.push(each),
            Made::Statistics(statistics) if behind.statistics.is_none() => behind.statistics = Some(statistics),
            _ => return because(BAD, "an operation that is not behind the one before"),
        }
    }
    Ok(Made::Graph(Graph { of: Computed::Convolution(convolution, behind), handle: handle(state, 800) }))
}

fn handle(state: &State, name: c_int) -> Option<usize> {
    state.integer(name).map(|handle| handle as usize).filter(|handle| *handle != 0)
}

fn properties(state: &State) -> Answer<String> {
    if let Some(text) = state.values.get(&2702) {
        let properties: Option<Value> = serde_json::from_slice(text).ok();
        let missing = PROPERTIES.iter().find(|name| properties.as_ref().is_none_or(|properties| properties.get(name).is_none()));
        return match missing {
            Some(name) => because(BAD, format!("properties without {name}")),
            None => Ok(String::from_utf8_lossy(text).into_owned()),
        };
    }
    match state.number(2700).map(driver::properties) {
        Some(Some(json)) => Ok(json),
        _ => because(NOT_INITIALIZED, "no such card"),
    }
}

/// Whether a descriptor names a card, or a handle does; there is none beside them.
fn card(state: &State, name: c_int) -> Answer<bool> {
    match state.other(name).map(|other| other.made()) {
        Some(Ok(Made::Properties(_))) => Ok(true),
        Some(_) => because(BAD, format!("attribute {name} is no card's properties")),
        None => Ok(false),
    }
}

fn graph_of(state: &State, name: c_int) -> Answer<Option<Graph>> {
    match state.other(name).map(|other| other.made()) {
        Some(Ok(Made::Graph(graph))) => Ok(Some(graph)),
        Some(_) => because(BAD, format!("attribute {name} is no graph")),
        None => Ok(None),
    }
}

fn heuristics(state: &State) -> Answer<Made> {
    let Some(graph) = graph_of(state, 201)? else { return because(BAD, "heuristics without a graph") };
    card(state, 204)?;
    let is_known = match &graph.of {
        Computed::Convolution(convolution, _) => convolution.tensors().iter().all(|tensor| tensor.element().is_some()),
        Computed::Attention(_) => true,
    };
    let engines = if is_known { Engine::all(&graph) } else { Vec::new() };
    Ok(Made::Engines(engines.into_iter().map(|engine| Choice { graph: graph.clone(), engine }).collect()))
}

fn engine(state: &State) -> Answer<Choice> {
    let Some(graph) = graph_of(state, 1300)? else { return because(NULL, "an engine without a graph") };
    let knows_card = card(state, 1307)? || graph.handle.is_some();
    let index = state.integer(1301).unwrap_or(-1);
    match Engine::of(&graph, index, &[]) {
        None => because(NOT_SUPPORTED, format!("no engine {index}")),
        Some(engine) if engine.uses_tensor_cores() && !knows_card => because(WRONG_CARD, format!("engine {index} for no card")),
        Some(engine) => Ok(Choice { graph, engine }),
    }
}

fn choice(state: &State) -> Answer<Choice> {
    let Some(Ok(Made::Engine(Choice { graph, engine }))) = state.other(300).map(|other| other.made()) else {
        return because(BAD, "a choice without an engine");
    };
    let knobs = state.others.get(&302).map_or(&[][..], Vec::as_slice);
    let knob = |knob: &std::sync::Arc<Descriptor>| match knob.made()? {
        Made::Knob(of, value) => Ok((of, value)),
        _ => because(BAD, "a knob that is none"),
    };
    let knobs: Vec<(c_int, i64)> = knobs.iter().map(knob).collect::<Answer<_>>()?;
    match Engine::of(&graph, engine.index, &knobs) {
        Some(engine) => Ok(Choice { graph, engine }),
        None => because(NOT_SUPPORTED, format!("engine {} has no such knobs", engine.index)),
    }
}

/// A plan for a handle's card may want more workspace than one for a card's properties: as a test has set.
fn plan(state: &State) -> Answer<Plan> {
    let Some(Ok(Made::Choice(choice))) = state.other(401).map(|other| other.made()) else {
        return because(BAD, "a plan without an engine");
    };
    card(state, 407)?;
    let handle = handle(state, 400);
    let more = handle.map(driver::more_workspace).transpose()?.unwrap_or(0);
    let workspace = choice.engine.workspace + more;
    Ok(Plan { choice, handle, workspace })
}

fn pack(state: &State) -> Answer<Pack> {
    let (names, addresses) = (state.integers(1000).unwrap_or_default(), state.integers(1001).unwrap_or_default());
    if names.is_empty() || names.len() != addresses.len() {
        return because(BAD, "addresses of tensors");
    }
    let tensors: Vec<(i64, u64)> = names.iter().copied().zip(addresses.iter().map(|address| *address as u64)).collect();
    Ok(Pack { tensors, workspace: state.integer(1003).unwrap_or(0) as u64 })
}

/// Knobs of one type twice are no choice.
pub fn are_apart(knobs: &[std::sync::Arc<Descriptor>]) -> bool {
    let types: BTreeSet<c_int> = knobs.iter().filter_map(|knob| knob.state().number(600)).collect();
    types.len() == knobs.len()
}
