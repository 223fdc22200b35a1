//! If and Case as Switch and Merge: every input goes through Switches to the branch that is taken, every result through a
//! Merge.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{AttrValue, Attrs, AttrsExt, HostTensor, Node, NodeId, Output};

use super::functions::branches;
use super::{Inliner, Manner, Site, Tag, Waiting};

const BOOL: i32 = 10;
const INT32: i32 = 3;

/// The attribute by which TensorFlow, too, makes Switches and Merges of a condition before it places the graph.
pub(super) const IS_LOWERED: &str = "_lower_using_switch_merge";

/// Nodes under one name, on one device.
pub(super) struct Place<'a> {
    pub prefix: &'a str,
    pub device: &'a str,
    pub tag: Tag,
}

impl Inliner<'_> {
    /// Puts a condition. One that TensorFlow lowers is placed node by node, with Switches beside their data; any other one is on
    /// the device of its node.
    pub(super) fn branch(&mut self, waiting: Waiting) -> Result<()> {
        let Waiting { number, id, node, tag, scope } = waiting;
        let (selector, inputs) = node.inputs.split_first().ok_or_else(|| Error::invalid_argument("nothing says which branch is taken"))?;
        let (input_types, types) = (node.attrs.list("Tin")?.types.clone(), node.attrs.list("Tout")?.types.clone());
        if input_types.len() != inputs.len() {
            return Err(Error::invalid_argument(format!("{} inputs, but Tin has {}", inputs.len(), input_types.len())));
        }
        let branches = branches(&node.op, &node.attrs)?;
        let prefix = self.prefix(&format!("{}/{}", self.name(id), node.op));
        let is_lowered = node.attrs.bool(IS_LOWERED).unwrap_or(false);
        let (manner, device, inside) = match is_lowered {
            true => (Manner::Branch, node.device.as_str(), Tag { branches: tag.branches + 1, is_generator: false, ..tag }),
            false => (Manner::Bound, "", Tag { call: Some(number), is_bound: true, ..Tag::default() }),
        };
        let place = Place { prefix: &prefix, device, tag: inside };
        let predicates = self.predicates(&node, *selector, branches.len(), &place);
        // The rest for this branch and those after it, and a node that runs where one of them is taken.
        let mut left = inputs.to_vec();
        let mut start = predicates.first().copied();
        let mut given = Vec::with_capacity(branches.len());
        let (mut ends, mut end_controls) = (Vec::with_capacity(branches.len()), Vec::new());
        for (index, (side, func)) in branches.iter().enumerate() {
            let mut mine = std::mem::take(&mut left);
            let mut here = start.take();
            if let (Some(predicate), Some(gate)) = (predicates.get(index), here) {
                let gate = self.fork(&place, &format!("{side}_fork"), gate, *predicate, BOOL, false);
                let forked = mine.into_iter().zip(&input_types).enumerate();
                let forked: Vec<NodeId> = forked
                    .map(|(at, (input, number))| {
                        self.fork(&place, &format!("{side}_input_{at}"), input, *predicate, *number, is_lowered && index == 0)
                    })
                    .collect();
                mine = forked.iter().map(|fork| Output { node: *fork, index: 1 }).collect();
                left = forked.into_iter().map(first).collect();
                start = Some(first(gate));
                here = Some(Output { node: gate, index: 1 });
            }
            let boolean = vec![("T", AttrValue::Type(BOOL))];
            let here = here.map(|gate| self.make(&place, &format!("{side}_start"), "Identity", (vec![gate], Vec::new()), boolean.clone()));
            // A Case of one branch is a call.
            let all_wait = here.is_none();
            let waits_for = match here {
                None if !node.controls.is_empty() => {
                    Some(self.make(&place, &format!("{side}_start"), "NoOp", (Vec::new(), node.controls.clone()), Vec::new()))
                }
                other => other,
            };
            let prefix = format!("{prefix}/{side}");
            let site = Site {
                prefix,
                manner,
                device: node.device.clone(),
                tag: inside,
                parent: scope,
                start: waits_for,
                all_wait,
                has_effects: false,
            };
            let body = self.body(func, &mine, site)?;
            if body.results.len() != types.len() {
                let message = format!("'{}' gives {} results where Tout has {}", func.name, body.results.len(), types.len());
                return Err(Error::invalid_argument(message));
            }
            given.push(body.results);
            match here {
                Some(start) => {
                    let waits = (vec![first(start)], body.must_run);
                    ends.push(first(self.make(&place, &format!("{side}_end"), "Identity", waits, boolean)));
                }
                None => end_controls.extend(body.must_run),
            }
        }
        if predicates.is_empty() {
            end_controls.extend(&node.controls);
            self.results(id, node, given.pop().unwrap_or_default(), types, end_controls, tag);
            return Ok(());
        }
        let count = AttrValue::Int(branches.len() as i64);
        let merge = |number: i32| vec![("T", AttrValue::Type(number)), ("N", count.clone())];
        let end = self.make(&place, "end", "Merge", (ends, Vec::new()), merge(BOOL));
        let mut merged = Vec::with_capacity(types.len());
        for (index, number) in types.iter().enumerate() {
            let inputs = given.iter().map(|results| results[index]).collect();
            merged.push(first(self.make(&place, &format!("output_{index}"), "Merge", (inputs, Vec::new()), merge(*number))));
        }
        self.results(id, node, merged, types, vec![end], tag);
        Ok(())
    }

    /// A Switch by a predicate; `beside` its data, or with the condition.
    pub(super) fn fork(&mut self, place: &Place<'_>, name: &str, input: Output, predicate: Output, number: i32, beside: bool) -> NodeId {
        let mut attrs = vec![("T", AttrValue::Type(number))];
        if beside {
            attrs.push(("_class", AttrValue::texts(&[format!("loc:@{}", self.name(input.node))])));
        }
        let place = Place { device: if beside { "" } else { place.device }, ..*place };
        let id = self.make(&place, name, "Switch", (vec![input, predicate], Vec::new()), attrs);
        if beside {
            self.beside.insert(id, input.node);
        }
        id
    }

    /// For each branch but the last, a bool that says whether it is taken if none before it is. They wait for the controls of the
    /// condition, and everything else for them.
    fn predicates(&mut self, node: &Node, selector: Output, branches: usize, place: &Place<'_>) -> Vec<Output> {
        let asked = |data: Vec<Output>| (data, node.controls.clone());
        if matches!(node.op.as_str(), "If" | "StatelessIf") {
            let of_type = node.attrs.get("Tcond").cloned().unwrap_or(AttrValue::Type(BOOL));
            return vec![first(self.make(place, "pred", "ToBool", asked(vec![selector]), vec![("T", of_type)]))];
        }
        let mut predicates = Vec::new();
        for index in 0..branches.saturating_sub(1) {
            let value = AttrValue::Tensor(HostTensor::scalar(index as i32));
            let attrs = vec![("dtype", AttrValue::Type(INT32)), ("value", value)];
            let number = first(self.make(place, &format!("{index}_index"), "Const", asked(Vec::new()), attrs));
            let equal = vec![("T", AttrValue::Type(INT32))];
            predicates.push(first(self.make(place, &format!("{index}_pred"), "Equal", asked(vec![selector, number]), equal)));
        }
        predicates
    }

    pub(super) fn make(
        &mut self,
        place: &Place<'_>,
        name: &str,
        op: &str,
        (inputs, controls): (Vec<Output>, Vec<NodeId>),
        attrs: Vec<(&str, AttrValue)>,
    ) -> NodeId {
        let name = format!("{}/{name}", place.prefix);
        let attrs: Attrs = attrs.into_iter().map(|(name, value)| (name.to_string(), value)).collect();
        let (op, device) = (op.to_string(), place.device.to_string());
        self.add(Node { name, op, inputs, controls, device, attrs, carried: Vec::new() }, place.tag)
    }
}

/// The first output of a node.
pub(super) fn first(node: NodeId) -> Output {
    Output { node, index: 0 }
}
