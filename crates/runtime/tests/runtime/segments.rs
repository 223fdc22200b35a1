//! Two loops, of which the second reads in reverse what the first one writes into lists, made at random, under ten lines: loops that keep
//! their state at every k-th iteration give the same bits, and all that [`super::lines`] says holds. The two may be in a condition, in another
//! loop, or in a condition in that; there may be loops in them; and their works may be on two devices.

use std::cell::Cell;
use std::fmt::Write;
use std::sync::Arc;

use plimsoll_base::Bytes;
use plimsoll_cards::Options;
use plimsoll_device::DeviceKind;
use plimsoll_graph::Graph;
use plimsoll_kernels::CpuKernels;
use plimsoll_ops::Registry;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::lines::{Machine, at_every_line, cases, run, session, waves};
use super::random_graphs::{Made, guarded};

/// Every float tensor has this shape, but for the variable, which is a square.
pub const ROWS: u64 = 4;
pub const COLUMNS: u64 = 24;

/// A value of a body, made of two others on a device.
#[derive(Clone, Debug)]
struct Step {
    what: u8,
    a: u16,
    b: u16,
    device: usize,
}

/// Two loops.
#[derive(Clone, Debug)]
pub struct Loops {
    trips: u64,
    forward: Vec<Step>,
    back: Vec<Step>,
    /// For each list, which value its tensors are, and whether they are pushed and popped, or set and read by a number.
    lists: Vec<(u16, bool)>,
    /// Whether what leaves the first loop changes the variable before the second loop begins.
    changes_between: bool,
    /// Whether a list is read behind the loops, too.
    reads_behind: bool,
    /// Whether the second loop reads the lists in the order in which they were written.
    is_forward: bool,
    around: Around,
}

/// Where the two loops are.
#[derive(Clone, Copy, Debug, Default)]
struct Around {
    /// How often a loop around them runs, if there is one.
    trips: Option<u64>,
    /// Whether a condition around them holds, if there is one; in a loop it holds every other time, from the first or the second one on.
    condition: Option<bool>,
}

fn around() -> impl Strategy<Value = Around> {
    let trips = prop_oneof![1 => Just(None), 1 => (1u64..4).prop_map(Some)];
    let condition = prop_oneof![2 => Just(None), 1 => prop::bool::weighted(0.8).prop_map(Some)];
    (trips, condition).prop_map(|(trips, condition)| Around { trips, condition })
}

fn steps(least: usize) -> impl Strategy<Value = Vec<Step>> {
    let step = (0u8..7, any::<u16>(), any::<u16>(), 0usize..2).prop_map(|(what, a, b, device)| Step { what, a, b, device });
    prop::collection::vec(step, least..8)
}

pub fn loops() -> impl Strategy<Value = Loops> {
    let lists = prop::collection::vec((any::<u16>(), any::<bool>()), 1..5);
    let odd = (prop::bool::weighted(0.05), prop::bool::weighted(0.1), prop::bool::weighted(0.05));
    // Lists of few iterations take no more than the state and a segment.
    let trips = prop_oneof![1 => 3u64..24, 2 => 24u64..48];
    let parts = (trips, steps(2), steps(1), lists, odd, around());
    parts.prop_map(|(trips, forward, back, lists, (changes_between, reads_behind, is_forward), around)| Loops {
        trips,
        forward,
        back,
        lists,
        changes_between,
        reads_behind,
        is_forward,
        around,
    })
}

/// A GraphDef as text.
pub struct Text {
    text: String,
    /// The devices that there are, and the one of the nodes to come.
    devices: &'static [&'static str],
    device: &'static str,
    /// The node that numbers wait for which wait for no other: it is in the loop and the condition at hand.
    within: String,
}

/// What two loops read.
struct Given {
    x: String,
    square: String,
}

pub const FLOAT: &str = "DT_FLOAT";
pub const INT: &str = "DT_INT32";
const LIST: &str = "DT_VARIANT";

impl Text {
    /// Without nodes, which will be on the first of these.
    pub fn new(devices: &'static [&'static str]) -> Text {
        Text { text: String::new(), devices, device: devices[0], within: String::new() }
    }

    /// The graph.
    pub fn graph(&self) -> Graph {
        let registry = Registry::standard(Arc::new(CpuKernels));
        let graph = plimsoll_formats::read_graph_def(self.text.as_bytes()).unwrap();
        Graph::resolve(graph, registry.table()).unwrap_or_else(|error| panic!("{error}\n{}", self.text))
    }

    /// The nodes to come are on the device of this number, or on the only one.
    fn on(&mut self, number: usize) {
        self.device = self.devices[number % self.devices.len()];
    }

    pub fn node(&mut self, name: &str, op: &str, inputs: &[&str], attrs: &[(&str, String)]) -> String {
        write!(self.text, "node {{ name: \"{name}\" op: \"{op}\" device: \"{}\"", self.device).unwrap();
        inputs.iter().for_each(|input| write!(self.text, " input: \"{input}\"").unwrap());
        attrs.iter().for_each(|(key, value)| write!(self.text, " attr {{ key: \"{key}\" value {{ {value} }} }}").unwrap());
        self.text.push_str(" }\n");
        name.to_string()
    }

    pub fn typed(&mut self, name: &str, op: &str, inputs: &[&str]) -> String {
        self.node(name, op, inputs, &[("T", of(FLOAT))])
    }

    fn ints(&mut self, name: &str, values: &[i64], after: &str) -> String {
        let numbers: String = values.iter().map(|value| format!(" int_val: {value}")).collect();
        let shape = if values.len() == 1 { String::new() } else { format!("dim {{ size: {} }}", values.len()) };
        let value = format!("tensor {{ dtype: {INT} tensor_shape {{ {shape} }}{numbers} }}");
        let after = format!("^{}", if after.is_empty() { &self.within } else { after });
        let inputs = if after.len() > 1 { vec![after.as_str()] } else { Vec::new() };
        self.node(name, "Const", &inputs, &[("dtype", of(INT)), ("value", value)])
    }

    /// What a frame carries: its value in the body is `NAME/now`, and `NAME/next` has to be made.
    pub fn carried(&mut self, frame: &str, name: &str, first: &str, data_type: &str) {
        let attrs = [("T", of(data_type)), ("frame_name", format!("s: \"{frame}\""))];
        self.node(&format!("{name}/enter"), "Enter", &[first], &attrs);
        let inputs = [format!("{name}/enter"), format!("{name}/round")];
        self.node(&format!("{name}/merge"), "Merge", &[&inputs[0], &inputs[1]], &[("T", of(data_type)), ("N", "i: 2".to_string())]);
        let inputs = [format!("{name}/merge"), format!("{frame}/cond")];
        self.node(&format!("{name}/switch"), "Switch", &[&inputs[0], &inputs[1]], &[("T", of(data_type))]);
        self.node(&format!("{name}/now"), "Identity", &[&format!("{name}/switch:1")], &[("T", of(data_type))]);
        self.node(&format!("{name}/exit"), "Exit", &[&format!("{name}/switch")], &[("T", of(data_type))]);
        self.node(&format!("{name}/round"), "NextIteration", &[&format!("{name}/next")], &[("T", of(data_type))]);
    }

    /// What stays in a frame.
    pub fn stays(&mut self, frame: &str, name: &str, value: &str, data_type: &str) -> String {
        let attrs = [("T", of(data_type)), ("frame_name", format!("s: \"{frame}\"")), ("is_constant", "b: true".to_string())];
        self.node(name, "Enter", &[value], &attrs)
    }

    /// A frame that counts `FRAME/i` from 0 to `trips`.
    pub fn counts(&mut self, frame: &str, trips: u64) {
        let zero = self.ints(&format!("{frame}/zero"), &[0], "");
        self.carried(frame, &format!("{frame}/i"), &zero, INT);
        let (merge, now) = (format!("{frame}/i/merge"), format!("{frame}/i/now"));
        let limit = self.ints(&format!("{frame}/limit"), &[trips as i64], &merge);
        let less = self.node(&format!("{frame}/less"), "Less", &[&merge, &limit], &[("T", of(INT))]);
        self.node(&format!("{frame}/cond"), "LoopCond", &[&less], &[]);
        let one = self.ints(&format!("{frame}/one"), &[1], &now);
        self.node(&format!("{frame}/i/next"), "AddV2", &[&now, &one], &[("T", of(INT))]);
    }

    /// A value that a loop in the body of a frame makes of two others.
    fn repeated(&mut self, frame: &str, name: &str, p: &str, q: &str) -> String {
        let outer = std::mem::replace(&mut self.within, format!("{frame}/i/now"));
        self.counts(name, 3);
        self.carried(name, &format!("{name}/z"), p, FLOAT);
        let more = self.stays(name, &format!("{name}/q"), q, FLOAT);
        let sum = self.typed(&format!("{name}/sum"), "AddV2", &[&format!("{name}/z/now"), &more]);
        self.typed(&format!("{name}/z/next"), "Tanh", &[&sum]);
        self.within = outer;
        format!("{name}/z/exit")
    }

    /// `value` where a bool holds, and where it does not.
    fn switch(&mut self, name: &str, value: &str, holds: &str) -> [String; 2] {
        self.node(&format!("{name}/switch"), "Switch", &[value, holds], &[("T", of(FLOAT))]);
        let there = self.typed(&format!("{name}/there"), "Identity", &[&format!("{name}/switch:1")]);
        [there, self.typed(&format!("{name}/else"), "Identity", &[&format!("{name}/switch")])]
    }

    /// Values made of these by steps.
    fn body(&mut self, frame: &str, steps: &[Step], square: &str, mut values: Vec<String>) -> Vec<String> {
        for (at, step) in steps.iter().enumerate() {
            let [p, q] = [step.a, step.b].map(|index| values[index as usize % values.len()].clone());
            let name = format!("{frame}/value{at}");
            self.on(step.device);
            values.push(match step.what {
                0 => self.typed(&name, "AddV2", &[&p, &q]),
                1 => self.typed(&name, "Mul", &[&p, &q]),
                2 => self.typed(&name, "Tanh", &[&p]),
                3 => self.typed(&name, "Sigmoid", &[&p]),
                4 => self.typed(&name, "Sub", &[&p, &q]),
                5 => self.repeated(frame, &name, &p, &q),
                _ => {
                    let product = self.typed(&format!("{name}/product"), "MatMul", &[&p, square]);
                    self.typed(&name, "Tanh", &[&product])
                }
            });
        }
        self.on(0);
        values
    }
}

pub fn of(data_type: &str) -> String {
    format!("type: {data_type}")
}

pub fn make(loops: &Loops, devices: &'static [&'static str]) -> Made {
    let mut g = Text::new(devices);
    let shape = |dims: &[u64]| dims.iter().map(|dim| format!("dim {{ size: {dim} }} ")).collect::<String>();
    g.node("x", "Placeholder", &[], &[("dtype", of(FLOAT)), ("shape", format!("shape {{ {} }}", shape(&[ROWS, COLUMNS])))]);
    // A variable.
    let square = shape(&[COLUMNS, COLUMNS]);
    g.node("square", "VariableV2", &[], &[("dtype", of(FLOAT)), ("shape", format!("shape {{ {square} }}"))]);
    let values: String = (0..COLUMNS * COLUMNS).map(|at| format!(" float_val: {}", (at * 7 % 11) as f32 * 0.0625 - 0.3125)).collect();
    let value = format!("tensor {{ dtype: {FLOAT} tensor_shape {{ {square} }}{values} }}");
    g.node("square/first", "Const", &[], &[("dtype", of(FLOAT)), ("value", value)]);
    g.typed("init", "Assign", &["square", "square/first"]);
    g.typed("square/read", "Identity", &["square"]);
    let mut given = Given { x: "x".to_string(), square: "square/read".to_string() };
    // Around the two loops.
    if let Some(trips) = loops.around.trips {
        g.counts("outer", trips);
        g.carried("outer", "s", &given.x, FLOAT);
        g.carried("outer", "m", &given.square, FLOAT);
        g.within = "outer/i/now".to_string();
        given = Given { x: "s/now".to_string(), square: "m/now".to_string() };
    }
    let [x, mut otherwise] = [given.x.clone(), String::new()];
    if let Some(holds) = loops.around.condition {
        let holds = g.holds(holds, loops.around.trips.is_some());
        [given.x, otherwise] = g.switch("if/x", &given.x, &holds);
        given.square = g.switch("if/square", &given.square, &holds)[0].clone();
        g.within.clone_from(&given.x);
    }
    let mut result = two_loops(&mut g, loops, &given);
    if loops.around.condition.is_some() {
        let otherwise = g.typed("if/tanh", "Tanh", &[&otherwise]);
        result = g.node("if/merge", "Merge", &[&result, &otherwise], &[("T", of(FLOAT)), ("N", "i: 2".to_string())]);
    }
    let transposed = [("T", of(FLOAT)), ("transpose_a", "b: true".to_string())];
    if loops.around.trips.is_some() {
        // Written over what the first loop reads.
        g.node("m/product", "MatMul", &[&x, &result], &transposed);
        g.typed("m/small", "Tanh", &["m/product"]);
        g.typed("m/next", "Sub", &["m/now", "m/small"]);
        g.typed("s/next", "Identity", &[&result]);
        result = g.typed("s/and_m", "MatMul", &["s/exit", "m/exit"]);
    }
    // Behind them.
    g.within.clear();
    g.node("product", "MatMul", &["x", &result], &transposed);
    g.typed("small", "Tanh", &["product"]);
    g.typed("changes", "AssignSub", &["square", "small"]);
    g.node("result", "Identity", &[&result], &[("T", of(FLOAT))]);
    Made { graph: g.graph(), values: vec!["result:0".to_string()], variables: Vec::new() }
}

impl Text {
    /// A bool that the values of a run say; in the outer loop, whether the number of the iteration is even, or odd.
    fn holds(&mut self, holds: bool, in_loop: bool) -> String {
        if in_loop {
            let two = self.ints("if/two", &[2], "");
            let rest = self.node("if/rest", "FloorMod", &["outer/i/now", &two], &[("T", of(INT))]);
            let wanted = self.ints("if/wanted", &[i64::from(!holds)], "");
            return self.node("if/holds", "Equal", &[&rest, &wanted], &[("T", of(INT))]);
        }
        let axes = self.ints("if/axes", &[0, 1], "");
        let sum = self.node("if/sum", "Sum", &["x", &axes], &[("T", of(FLOAT)), ("Tidx", of(INT))]);
        let rounded = self.node("if/rounded", "Cast", &[&sum], &[("SrcT", of(FLOAT)), ("DstT", of(INT))]);
        let most = self.ints("if/most", &[if holds { 1 << 20 } else { -(1 << 20) }], "");
        self.node("if/holds", "Less", &[&rounded, &most], &[("T", of(INT))])
    }
}

/// The loops that read these. What comes of them.
fn two_loops(g: &mut Text, loops: &Loops, given: &Given) -> String {
    // The first loop.
    g.counts("forward", loops.trips);
    g.typed("x/half", "Tanh", &[&given.x]);
    g.carried("forward", "h", &given.x, FLOAT);
    g.on(1);
    g.carried("forward", "c", "x/half", FLOAT);
    g.on(0);
    let (x, square) = (g.stays("forward", "forward/x", &given.x, FLOAT), g.stays("forward", "forward/square", &given.square, FLOAT));
    g.node("forward/float", "Cast", &["forward/i/now"], &[("SrcT", of(INT)), ("DstT", of(FLOAT))]);
    g.typed("forward/scaled", "Mul", &[&x, "forward/float"]);
    let values = g.body("forward", &loops.forward, &square, ["h/now", "c/now", "forward/scaled"].map(String::from).to_vec());
    let last = values.last().unwrap();
    g.typed("h/sum", "AddV2", &["h/now", last]);
    g.typed("h/next", "Tanh", &["h/sum"]);
    g.on(1);
    g.typed("c/product", "Mul", &["c/now", &values[values.len() / 2]]);
    g.typed("c/next", "Sigmoid", &["c/product"]);
    // Its lists.
    let of_list = [("element_dtype", of(FLOAT)), ("shape_type", of(INT))];
    let item = g.ints("item", &[ROWS as i64, COLUMNS as i64], "");
    for (at, (value, is_pushed)) in loops.lists.iter().enumerate() {
        g.on(at);
        let (list, value) = (format!("list{at}"), &values[*value as usize % values.len()]);
        let count = g.ints(&format!("{list}/count"), &[loops.trips as i64], "");
        let op = if *is_pushed { "EmptyTensorList" } else { "TensorListReserve" };
        let first = g.node(&format!("{list}/first"), op, &[&item, &count], &of_list);
        g.carried("forward", &list, &first, LIST);
        let now = format!("{list}/now");
        match is_pushed {
            true => g.node(&format!("{list}/next"), "TensorListPushBack", &[&now, value], &of_list[..1]),
            false => g.node(&format!("{list}/next"), "TensorListSetItem", &[&now, "forward/i/now", value], &of_list[..1]),
        };
    }
    g.on(0);
    let mut after = "h/exit".to_string();
    if loops.changes_between && g.within.is_empty() {
        let change =
            g.node("between/product", "MatMul", &["h/exit", "c/exit"], &[("T", of(FLOAT)), ("transpose_a", "b: true".to_string())]);
        g.typed("between/small", "Tanh", &[&change]);
        let change = g.typed("between", "AssignSub", &["square", "between/small"]);
        after = g.node("between/h", "Identity", &["h/exit", &format!("^{change}")], &[("T", of(FLOAT))]);
    }
    // The second loop.
    g.counts("back", loops.trips);
    g.carried("back", "d", &after, FLOAT);
    let square = g.stays("back", "back/square", &given.square, FLOAT);
    let shape = g.stays("back", "back/item", &item, INT);
    let end = g.ints("back/end", &[loops.trips as i64 - 1], "back/i/now");
    let reversed = g.node("back/reversed", "Sub", &[&end, "back/i/now"], &[("T", of(INT))]);
    let mut values = vec!["d/now".to_string()];
    for (at, (_, is_pushed)) in loops.lists.iter().enumerate() {
        let list = format!("list{at}");
        g.on(at);
        if *is_pushed {
            let back = format!("back/{list}");
            g.carried("back", &back, &format!("{list}/exit"), LIST);
            let popped = g.node(&format!("{back}/pop"), "TensorListPopBack", &[&format!("{back}/now"), &shape], &of_list[..1]);
            g.node(&format!("{back}/next"), "Identity", &[&popped], &[("T", of(LIST))]);
            values.push(format!("{popped}:1"));
        } else {
            let stays = g.stays("back", &format!("back/{list}"), &format!("{list}/exit"), LIST);
            let row = if loops.is_forward { "back/i/now" } else { &reversed };
            values.push(g.node(&format!("back/{list}/get"), "TensorListGetItem", &[&stays, row, &shape], &of_list[..1]));
        }
    }
    g.on(0);
    let values = g.body("back", &loops.back, &square, values);
    // All of the lists counts.
    let mut sum = values.last().unwrap().clone();
    for (at, value) in values.iter().take(1 + loops.lists.len()).enumerate() {
        sum = g.typed(&format!("d/sum{at}"), "AddV2", &[&sum, value]);
    }
    g.typed("d/next", "Tanh", &[&sum]);
    if loops.reads_behind && !loops.lists[0].1 {
        let all = g.node(
            "all",
            "TensorListStack",
            &["list0/exit", &item],
            &[("element_dtype", of(FLOAT)), ("num_elements", "i: -1".to_string())],
        );
        let zero = g.ints("all/zero", &[0], "");
        let total = g.node("total", "Sum", &[&all, &zero], &[("T", of(FLOAT)), ("Tidx", of(INT)), ("keep_dims", "b: false".to_string())]);
        return g.typed("with_total", "AddV2", &[&total, "d/exit"]);
    }
    g.typed("both", "AddV2", &["h/exit", "d/exit"])
}

const CPU: &[&str] = &["/cpu:0"];
const CPUS: &[&str] = &["/cpu:0", "/cpu:1"];
const CARD: &[&str] = &["/gpu:0"];
const CARDS: &[&str] = &["/gpu:0", "/gpu:1"];

/// How many segments of `loops` the descents have, where they hold at ten limits: on one processor, and on one of two that have the loops.
fn segments(loops: &Loops) -> Result<[usize; 2], TestCaseError> {
    let x = waves(&[ROWS, COLUMNS]);
    let of = (&x, "result:0");
    let made = make(loops, CPU);
    let (_, _, fitting) = at_every_line(&made, of, Machine::ONE)?;
    let on_two = make(loops, CPUS);
    let machine = Machine { processors: 2, device: (loops.trips % 2) as usize, has_file: false };
    let (_, _, on_one_of_two) = at_every_line(&on_two, of, machine)?;
    // With a line of nothing for all of two processors, and for cards whose values may wait on the host.
    let options = Options::new().intra_op(2);
    let expected = run(&session(&made, &guarded(&options)), &made, of).unwrap();
    let [cpus, card, cards] =
        [(DeviceKind::Cpu, 2), (DeviceKind::Gpu, 1), (DeviceKind::Gpu, 2)].map(|(kind, count)| options.clone().device_count(kind, count));
    for (made, options) in [(&made, &cpus), (&on_two, &cpus), (&make(loops, CARD), &card), (&make(loops, CARDS), &cards)] {
        let devices = guarded(options);
        let low = session(made, &devices).with_lines(vec![Some(Bytes::ZERO); devices.specs().len()]).unwrap();
        prop_assert_eq!(&run(&low, made, of).unwrap(), &expected, "on two devices");
    }
    Ok([fitting.segments.len(), on_one_of_two.segments.len()])
}

#[test]
fn segments_hold_at_ten_limits() {
    let mut runner = TestRunner::new(Config { cases: cases(), ..Config::default() });
    let (all, with) = (Cell::new(0u32), Cell::new([0u32; 2]));
    runner
        .run(&loops(), |loops| {
            let (found, before) = (segments(&loops)?, with.get());
            all.set(all.get() + 1);
            with.set([0, 1].map(|on| before[on] + u32::from(found[on] > 0)));
            Ok(())
        })
        .unwrap();
    let (all, with) = (all.get(), with.get());
    println!("of {all} pairs of loops {} have segments on one device, and {} on two", with[0], with[1]);
    assert!(all < 20 || with.iter().all(|with| 3 * with >= all), "{with:?} of {all} pairs of loops have segments");
}

/// Not all random loops have segments: these have, wherever they are.
fn loops_of_16_iterations(around: Around) {
    let step = |(at, &(what, a, b)): (usize, &(u8, u16, u16))| Step { what, a, b, device: at / 2 % 2 };
    let steps = |steps: &[(u8, u16, u16)]| steps.iter().enumerate().map(step).collect();
    let loops = Loops {
        trips: 16,
        forward: steps(&[(0, 35138, 49433), (4, 15093, 53952), (5, 56337, 56656), (6, 56337, 56656)]),
        back: steps(&[(1, 25649, 61386), (3, 45044, 6741), (0, 63587, 28247), (4, 10542, 37146)]),
        lists: vec![(31166, false), (53804, false), (3379, false), (23062, true)],
        changes_between: false,
        reads_behind: true,
        is_forward: false,
        around,
    };
    let found = segments(&loops).unwrap();
    assert!(found.iter().all(|found| *found > 0), "{around:?}: {found:?}");
}

#[test]
fn loops_keep_the_state_of_every_kth_iteration() {
    loops_of_16_iterations(Around::default());
}

#[test]
fn loops_in_a_loop_keep_the_state_of_every_kth_iteration() {
    loops_of_16_iterations(Around { trips: Some(3), condition: None });
}

#[test]
fn loops_in_a_condition_keep_the_state_of_every_kth_iteration() {
    [true, false].into_iter().for_each(|holds| loops_of_16_iterations(Around { trips: None, condition: Some(holds) }));
    loops_of_16_iterations(Around { trips: Some(2), condition: Some(true) });
}

/// The first loop is of two devices, and the second one, which a guard passes over, of one of them.
#[test]
fn a_loop_of_one_device_in_a_condition_runs_that_of_two_again() {
    let step = |what, a, b| Step { what, a, b, device: 0 };
    for (what, holds, trips) in [(5, false, 6), (5, true, 16), (3, true, 16), (0, false, 16)] {
        let loops = Loops {
            trips,
            forward: vec![step(0, 12319, 4), step(0, 0, 0)],
            back: vec![step(what, 22, 42065)],
            lists: vec![(19353, true)],
            changes_between: false,
            reads_behind: false,
            is_forward: false,
            around: Around { trips: None, condition: Some(holds) },
        };
        segments(&loops).unwrap();
    }
}
