//! A graph as TensorFlow has it when it places it: conditions and loops that it lowers are Switches, Merges and frames, under the names
//! that it gives them. Calls stay.
//!
//! Source of the rules and names: TensorFlow's `lower_functional_ops`, `lower_if_op`, `lower_while_op` and `inline_function_utils`.
//! It is there for the log of placement; what runs is [`super::inline`]'s.

use std::collections::{BinaryHeap, HashMap, HashSet};

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::id::Id;
use plimsoll_graph::{AttrList, AttrValue, Attrs, AttrsExt, AttrsPool, FuncRef, FunctionDef, Graph, IdVec, Node, NodeId, OpTable, Output};

use super::body::Body;
use super::branch::{IS_LOWERED, first};
use super::functions::{Functions, branches, is_loop, is_partitioned};
use super::site::Manner;

/// The graph as TensorFlow places it; none where that is the graph itself, or it has a Case, which is not lowered here.
///
/// # Errors
/// INVALID_ARGUMENT where a function does not exist or makes no sense, and for graphs that grow beyond measure.
pub fn lowered(graph: &Graph, ops: &OpTable) -> Result<Option<Graph>> {
    let functions = Functions::of(&graph.library);
    let is_lowered = |node: &Node| node.attrs.bool(IS_LOWERED).unwrap_or(false);
    let is_case = |op: &str| matches!(op, "Case" | "StatelessCase");
    let in_library = graph.library.functions.iter().flat_map(|function| &function.nodes).any(|node| is_case(&node.op));
    if in_library || !graph.nodes().values().any(|node| is_lowered(node)) || graph.nodes().values().any(|node| is_case(&node.op)) {
        return Ok(None);
    }
    super::check_size(graph, &functions)?;
    let mut lowering = Lowering {
        functions: &functions,
        ops,
        nodes: graph.nodes().values().map(|node| Some(Node::clone(node))).collect(),
        order: graph.topological()?.into_iter().map(|id| (id, false)).collect(),
        names: 0,
        data: HashMap::new(),
        controls: HashMap::new(),
        pool: AttrsPool::default(),
    };
    let mut next = 0;
    while let Some(&(id, is_call)) = lowering.order.get(next) {
        next += 1;
        lowering.lower(id, is_call)?;
    }
    let mut made = lowering.finish(ops)?;
    (made.library, made.versions) = (graph.library.clone(), graph.versions.clone());
    Ok(Some(made))
}

struct Lowering<'a> {
    functions: &'a Functions<'a>,
    ops: &'a OpTable,
    /// None for nodes that others have taken the place of.
    nodes: IdVec<NodeId, Option<Node>>,
    /// The nodes that may be lowered, in TensorFlow's order, and whether it made them to call a function.
    order: Vec<(NodeId, bool)>,
    /// How many names it has made.
    names: u64,
    /// What has taken the place of outputs, and of control edges.
    data: HashMap<Output, Output>,
    controls: HashMap<NodeId, NodeId>,
    /// The attributes of bodies' nodes.
    pool: AttrsPool,
}

/// A call of a function as it is put in the place of a node.
struct Call {
    func: FuncRef,
    inputs: Vec<Output>,
    /// The types of what goes in and out.
    types: (Vec<i32>, Vec<i32>),
    is_partitioned: bool,
}

impl<'a> Lowering<'a> {
    fn name(&mut self, beginning: String) -> String {
        self.names += 1;
        format!("{beginning}/_{}", self.names - 1)
    }

    fn node(&self, id: NodeId) -> Result<&Node> {
        self.nodes[id].as_ref().ok_or_else(|| Error::internal("a node that was lowered is lowered again"))
    }

    /// What a tensor is by now.
    fn at(&self, tensor: Output) -> Output {
        let mut here = tensor;
        while let Some(next) = self.data.get(&here) {
            here = *next;
        }
        here
    }

    fn control_at(&self, id: NodeId) -> NodeId {
        let mut here = id;
        while let Some(next) = self.controls.get(&here) {
            here = *next;
        }
        here
    }

    fn add(&mut self, node: Node) -> NodeId {
        self.nodes.push(Some(node))
    }

    fn make(&mut self, name: String, op: &str, (inputs, controls): (Vec<Output>, Vec<NodeId>), device: &str, kind: Option<i32>) -> NodeId {
        let mut attrs = Attrs::new();
        if let Some(kind) = kind {
            attrs.insert("T".to_string(), AttrValue::Type(kind));
        }
        if op == "Merge" {
            attrs.insert("N".to_string(), AttrValue::Int(inputs.len() as i64));
        }
        self.add(Node { name, op: op.to_string(), inputs, controls, device: device.to_string(), attrs, carried: Vec::new() })
    }

    fn device_of(&self, tensor: Output) -> Result<String> {
        Ok(self.node(self.at(tensor).node)?.device.clone())
    }

    fn lower(&mut self, id: NodeId, is_call: bool) -> Result<()> {
        let Some(node) = self.nodes[id].clone() else { return Ok(()) };
        let is_lowered = node.attrs.bool(IS_LOWERED).unwrap_or(false);
        let at = |error: Error| error.at_node(&node.name);
        match node.op.as_str() {
            "If" | "StatelessIf" if is_lowered => self.branch(id, &node).map_err(at),
            op if is_loop(op) && is_lowered => self.repeat(id, &node).map_err(at),
            op => match self.functions.called(op, &node.attrs) {
                Some(func) if is_call => {
                    let types = self.types_of(&node, &func)?;
                    let call = Call { func, inputs: node.inputs.clone(), types, is_partitioned: is_partitioned(op) };
                    self.call(id, &node, call).map_err(at)
                }
                _ => Ok(()),
            },
        }
    }

    /// The types of a call's arguments and results.
    fn types_of(&self, node: &Node, func: &FuncRef) -> Result<(Vec<i32>, Vec<i32>)> {
        if is_partitioned(&node.op) {
            return Ok((node.attrs.list("Tin")?.types.clone(), node.attrs.list("Tout")?.types.clone()));
        }
        let function = self.function(&func.name)?;
        let kind = |arg: &plimsoll_graph::ArgDef| match arg.type_attr.as_str() {
            "" => Ok(arg.data_type),
            attr => func.attrs.data_type(attr).map(DataType::number),
        };
        let all = |args: &[plimsoll_graph::ArgDef]| args.iter().map(kind).collect::<Result<Vec<i32>>>();
        Ok((all(&function.signature.inputs)?, all(&function.signature.outputs)?))
    }

    fn function(&self, name: &str) -> Result<&'a FunctionDef> {
        self.functions.find(name).ok_or_else(|| Error::invalid_argument(format!("function '{name}' is not in the library")))
    }

    /// A node whose turn as a call comes later.
    fn later(
        &mut self,
        name: String,
        func: FuncRef,
        (inputs, controls): (Vec<Output>, Vec<NodeId>),
        device: &str,
        types: [&[i32]; 2],
    ) -> NodeId {
        let list = |types: &[i32]| AttrValue::List(Box::new(AttrList { types: types.to_vec(), ..AttrList::default() }));
        let attrs = [("f", AttrValue::Func(func)), ("Tin", list(types[0])), ("Tout", list(types[1]))];
        let attrs: Attrs = attrs.into_iter().map(|(name, value)| (name.to_string(), value)).collect();
        let op = "PartitionedCall".to_string();
        let id = self.add(Node { name, op, inputs, controls, device: device.to_string(), attrs, carried: Vec::new() });
        self.order.push((id, true));
        id
    }

    /// The node under the name of one that was lowered, which can be fetched.
    fn keep(&mut self, id: NodeId, node: &Node, outputs: Vec<Output>, types: &[i32], control: NodeId) {
        self.nodes[id] = None;
        let list = AttrValue::List(Box::new(AttrList { types: types.to_vec(), ..AttrList::default() }));
        let op = if outputs.is_empty() { "NoOp" } else { "IdentityN" };
        let kept = self.make(node.name.clone(), op, (outputs, vec![control]), &node.device, None);
        if let (false, Some(kept)) = (types.is_empty(), &mut self.nodes[kept]) {
            kept.attrs.insert("T".to_string(), list);
        }
    }

    fn branch(&mut self, id: NodeId, node: &Node) -> Result<()> {
        let functions = branches(&node.op, &node.attrs)?;
        let [(_, then), (_, otherwise)] = &functions[..] else { return Err(Error::internal("an If of other than two branches")) };
        let (given, types) = (node.attrs.list("Tin")?.types.clone(), node.attrs.list("Tout")?.types.clone());
        let (predicate, inputs) = node.inputs.split_first().ok_or_else(|| Error::invalid_argument("nothing says which branch is taken"))?;
        let boolean = Some(DataType::Bool.number());
        let [then_name, else_name] = ["then", "else"].map(|side| self.name(format!("{}/{side}", node.name)));
        let mut pivot = |what: &str, op: &str, inputs: Vec<Output>, controls: Vec<NodeId>| {
            let name = self.name(format!("{}/{what}", node.name));
            self.make(name, op, (inputs, controls), &node.device, boolean)
        };
        let switch = pivot("switch_pred", "Switch", vec![*predicate, *predicate], node.controls.clone());
        let pivot_false = pivot("pivot_f", "Identity", vec![first(switch)], Vec::new());
        let pivot_true = pivot("pivot_t", "Identity", vec![Output { node: switch, index: 1 }], Vec::new());
        let mut switches = Vec::with_capacity(inputs.len());
        for (input, kind) in inputs.iter().zip(&given) {
            let source = self.node(self.at(*input).node)?;
            let (beside, device) = (source.name.clone(), source.device.clone());
            let name = self.name(format!("{}/{beside}", node.name));
            let switch = self.make(name, "Switch", (vec![*input, *predicate], Vec::new()), &device, Some(*kind));
            self.colocate(switch, &beside);
            switches.push(switch);
        }
        let side = |index: u32| switches.iter().map(|switch| Output { node: *switch, index }).collect::<Vec<Output>>();
        let (to_then, to_else) = (side(1), side(0));
        let then = self.later(then_name, then.clone(), (to_then, vec![pivot_true]), &node.device, [&given, &types]);
        let otherwise = self.later(else_name, otherwise.clone(), (to_else, vec![pivot_false]), &node.device, [&given, &types]);
        let mut outputs = Vec::with_capacity(types.len());
        for (index, kind) in (0..).zip(&types) {
            let name = self.name(format!("{}/output", node.name));
            let inputs = [then, otherwise].map(|side| Output { node: side, index }).to_vec();
            outputs.push(first(self.make(name, "Merge", (inputs, Vec::new()), &node.device, Some(*kind))));
        }
        let name = self.name(format!("{}/branch_executed", node.name));
        let pivots = vec![first(pivot_true), first(pivot_false)];
        let executed = self.make(name, "Merge", (pivots, vec![then, otherwise]), &node.device, boolean);
        self.replace(id, &outputs, executed);
        self.keep(id, node, outputs, &types, executed);
        Ok(())
    }

    fn repeat(&mut self, id: NodeId, node: &Node) -> Result<()> {
        let types = node.attrs.list("T")?.types.clone();
        if types.len() != node.inputs.len() {
            return Err(Error::invalid_argument(format!("{} inputs, but T has {}", node.inputs.len(), types.len())));
        }
        let functions = branches(&node.op, &node.attrs)?;
        let [(_, cond), (_, body)] = &functions[..] else { return Err(Error::internal("a loop of other functions than two")) };
        let [cond_name, body_name] = ["cond", "body"].map(|part| self.name(format!("{}/{part}", node.name)));
        let stays = |kind: i32| kind == DataType::Resource.number();
        let mut enters = Vec::with_capacity(types.len());
        for (input, kind) in node.inputs.iter().zip(&types) {
            let (name, device) = (self.name(format!("{}/enter", node.name)), self.device_of(*input)?);
            let enter = self.make(name, "Enter", (vec![*input], Vec::new()), &device, Some(*kind));
            if let Some(made) = &mut self.nodes[enter] {
                made.attrs.insert("frame_name".to_string(), AttrValue::Bytes(node.name.clone().into_bytes()));
                made.attrs.insert("is_constant".to_string(), AttrValue::Bool(stays(*kind)));
            }
            enters.push(enter);
        }
        if !node.controls.is_empty() {
            let name = self.name(format!("{}/LoopControlInputs", node.name));
            let start = self.make(name, "NoOp", (Vec::new(), node.controls.clone()), &node.device, None);
            for enter in &enters {
                self.nodes[*enter].iter_mut().for_each(|enter| enter.controls.push(start));
            }
        }
        // By value: its Merge, or the Enter of a handle.
        let mut values = Vec::with_capacity(types.len());
        let mut merges = Vec::new();
        for (enter, kind) in enters.iter().zip(&types) {
            if stays(*kind) {
                values.push(first(*enter));
                continue;
            }
            let (name, device) = (self.name(format!("{}/merge", node.name)), self.device_of(first(*enter))?);
            // Its second input is the NextIteration, which is made later.
            let merge = self.make(name, "Merge", (vec![first(*enter), first(*enter)], Vec::new()), &device, Some(*kind));
            values.push(first(merge));
            merges.push(merge);
        }
        let Some(gate) = merges.first().copied() else {
            return Err(Error::unimplemented("not yet: a loop that carries no value from one iteration to the next"));
        };
        let boolean = DataType::Bool.number();
        let test = self.later(cond_name, cond.clone(), (values.clone(), vec![gate]), &node.device, [&types, &[boolean]]);
        let name = self.name(format!("{}/LoopCond", node.name));
        let test = first(self.make(name, "LoopCond", (vec![first(test)], Vec::new()), &node.device, None));
        let mut switches = Vec::new();
        for ((value, input), kind) in values.iter_mut().zip(&node.inputs).zip(&types).filter(|(_, kind)| !stays(**kind)) {
            let beside = self.node(self.at(*input).node)?.name.clone();
            let (name, device) = (self.name(format!("{}/{beside}_switch", node.name)), self.device_of(*value)?);
            let switch = self.make(name, "Switch", (vec![*value, test], Vec::new()), &device, Some(*kind));
            *value = Output { node: switch, index: 1 };
            switches.push(switch);
        }
        let gate_type = types.iter().copied().find(|kind| !stays(*kind));
        let name = self.name(format!("{}/loop_body_control", node.name));
        let start = Output { node: switches[0], index: 1 };
        let start = self.make(name, "Identity", (vec![start], Vec::new()), &node.device, gate_type);
        let body = self.later(body_name, body.clone(), (values, vec![start]), &node.device, [&types, &types]);
        let (mut outputs, mut exits) = (Vec::with_capacity(types.len()), Vec::new());
        let mut left = switches.iter();
        for (input, kind) in node.inputs.iter().zip(&types) {
            let Some(switch) = left.as_slice().first().copied().filter(|_| !stays(*kind)) else {
                outputs.push(*input);
                continue;
            };
            left.next();
            let (name, device) = (self.name(format!("{}/exit", node.name)), self.device_of(first(switch))?);
            let exit = self.make(name, "Exit", (vec![first(switch)], Vec::new()), &device, Some(*kind));
            outputs.push(first(exit));
            exits.push(exit);
        }
        let name = self.name(format!("{}/LoopExecuted", node.name));
        let executed = self.make(name, "NoOp", (Vec::new(), exits), &node.device, None);
        self.replace(id, &outputs, executed);
        self.keep(id, node, outputs, &types, executed);
        let goes = (0..).zip(&types).filter(|(_, kind)| !stays(**kind));
        for ((index, kind), merge) in goes.zip(merges) {
            let (name, device) = (self.name(format!("{}/next_iteration", node.name)), self.device_of(first(merge))?);
            let next = self.make(name, "NextIteration", (vec![Output { node: body, index }], vec![body]), &device, Some(*kind));
            self.nodes[merge].iter_mut().for_each(|merge| merge.inputs[1] = first(next));
        }
        Ok(())
    }

    /// Others are read in the place of a node.
    fn replace(&mut self, id: NodeId, outputs: &[Output], control: NodeId) {
        self.data.extend((0..).zip(outputs).map(|(index, output)| (Output { node: id, index }, *output)));
        self.controls.insert(id, control);
    }

    fn colocate(&mut self, id: NodeId, beside: &str) {
        let class = AttrValue::texts(&[format!("loc:@{beside}")]);
        self.nodes[id].iter_mut().for_each(|node| _ = node.attrs.insert("_class".to_string(), class.clone()));
    }

    /// A function's body in the place of a call.
    fn call(&mut self, id: NodeId, node: &Node, call: Call) -> Result<()> {
        let function = self.function(&call.func.name)?;
        let manner = if call.is_partitioned { Manner::Branch } else { Manner::Bound };
        let label = |what: &str| format!("Func/{}/{what}", node.name);
        let start = (!node.controls.is_empty()).then(|| {
            let name = self.name(label("input_control_node"));
            self.make(name, "NoOp", (Vec::new(), node.controls.clone()), &node.device, None)
        });
        let mut arguments = Vec::with_capacity(call.inputs.len());
        for (input, kind) in call.inputs.iter().zip(&call.types.0) {
            arguments.push(self.identity(label("input"), *input, *kind, (node, call.is_partitioned), start)?);
        }
        let given: Vec<Output> = arguments.iter().copied().map(first).collect();
        let (body, all_attrs) = Body::new(self.ops, self.functions, function, &call.func, &given, self.nodes.next_id(), &mut self.pool)?;
        let ids: Vec<NodeId> = (0..function.nodes.len()).map(|_| self.nodes.push(None)).collect();
        let names: HashSet<&str> = function.nodes.iter().map(|node| node.name.as_str()).collect();
        for ((own, def), mut attrs) in ids.iter().zip(&function.nodes).zip(all_attrs) {
            let (inputs, mut controls) = body.inputs(&def.inputs, &node.name)?;
            let is_called = self.functions.called(&def.op, &attrs).is_some() && def.inputs.iter().all(|input| !input.starts_with('^'));
            if let Some(start) = start.filter(|_| def.inputs.is_empty() || is_called) {
                controls.push(start);
            }
            if let Some(AttrValue::List(classes)) = attrs.get_mut("_class") {
                for class in &mut classes.bytes {
                    let Some(label) = std::str::from_utf8(class).ok().and_then(|class| class.strip_prefix("loc:@")) else { continue };
                    let label = match body.source(label) {
                        Some(argument) => self.node(argument)?.name.clone(),
                        None if names.contains(label) => format!("{}/{label}", node.name),
                        None => label.to_string(),
                    };
                    *class = format!("loc:@{label}").into_bytes();
                }
            }
            let device = if call.is_partitioned { manner.device(&def.device, &node.device) } else { node.device.clone() };
            let name = format!("{}/{}", node.name, def.name);
            self.nodes[*own] = Some(Node { name, op: def.op.clone(), inputs, controls, device, attrs, carried: Vec::new() });
        }
        self.order.extend(sorted(&ids, &self.nodes).into_iter().map(|id| (id, false)));
        let mut outputs = Vec::new();
        for (result, kind) in body.results()?.into_iter().zip(&call.types.1) {
            outputs.push(self.identity(label("output"), result, *kind, (node, call.is_partitioned), None)?);
        }
        let ends = if call.is_partitioned { body.must_run(&node.name)? } else { outputs.clone() };
        let name = self.name(label("output_control_node"));
        let end = self.make(name, "NoOp", (Vec::new(), ends), &node.device, None);
        let outputs: Vec<Output> = outputs.into_iter().map(first).collect();
        self.replace(id, &outputs, end);
        self.keep(id, node, outputs, &call.types.1, end);
        Ok(())
    }

    /// What a call takes or gives: it asks for the device that its source asks for, or that of the call.
    fn identity(
        &mut self,
        label: String,
        input: Output,
        kind: i32,
        (call, is_beside): (&Node, bool),
        start: Option<NodeId>,
    ) -> Result<NodeId> {
        let name = self.name(label);
        let source = self.node(self.at(input).node)?;
        let device = if is_beside { source.device.clone() } else { call.device.clone() };
        let identity = self.make(name, "Identity", (vec![input], start.into_iter().collect()), &device, Some(kind));
        Ok(identity)
    }

    /// The nodes that are left, with their edges to what has taken the place of others.
    fn finish(mut self, ops: &OpTable) -> Result<Graph> {
        let mut numbers: IdVec<NodeId, Option<NodeId>> = IdVec::filled(None, self.nodes.len());
        let left = self.nodes.iter().filter(|(_, node)| node.is_some()).map(|(id, _)| id);
        left.enumerate().for_each(|(index, id)| numbers[id] = Some(NodeId::from_index(index)));
        let number = |id: NodeId| numbers[id].ok_or_else(|| Error::internal("a node that was lowered is read"));
        let mut nodes = IdVec::new();
        for id in self.nodes.ids().collect::<Vec<_>>() {
            let Some(mut node) = self.nodes[id].take() else { continue };
            for input in &mut node.inputs {
                let at = self.at(*input);
                *input = Output { node: number(at.node)?, ..at };
            }
            let controls = node.controls.iter().map(|control| number(self.control_at(*control)));
            node.controls = controls.collect::<Result<Vec<NodeId>>>()?;
            node.controls.sort_unstable();
            node.controls.dedup();
            let _: NodeId = nodes.push(node);
        }
        Graph::of_nodes(nodes, ops)
    }
}

/// The nodes of a body, each behind those that it reads; the body's order among equals.
fn sorted(ids: &[NodeId], nodes: &IdVec<NodeId, Option<Node>>) -> Vec<NodeId> {
    let number: HashMap<NodeId, usize> = ids.iter().enumerate().map(|(number, id)| (*id, number)).collect();
    let op = |id: NodeId| nodes[id].as_ref().map_or("", |node| node.op.as_str());
    let mut waits = vec![0usize; ids.len()];
    let mut followers: Vec<Vec<usize>> = vec![Vec::new(); ids.len()];
    for (at, node) in ids.iter().enumerate().filter_map(|(at, id)| Some((at, nodes[*id].as_ref()?))) {
        let before = node.inputs.iter().map(|input| input.node).chain(node.controls.iter().copied());
        let is_back = |before: NodeId| node.op == "Merge" && op(before) == "NextIteration";
        for before in before.filter(|before| !is_back(*before)).filter_map(|before| number.get(&before)) {
            waits[at] += 1;
            followers[*before].push(at);
        }
    }
    let mut ready: BinaryHeap<std::cmp::Reverse<usize>> = (0..ids.len()).filter(|at| waits[*at] == 0).map(std::cmp::Reverse).collect();
    let mut sorted = Vec::with_capacity(ids.len());
    while let Some(std::cmp::Reverse(at)) = ready.pop() {
        sorted.push(ids[at]);
        for &follower in &followers[at] {
            waits[follower] -= 1;
            if waits[follower] == 0 {
                ready.push(std::cmp::Reverse(follower));
            }
        }
    }
    sorted
}
