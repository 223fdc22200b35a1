//! If and Case as Switch and Merge: every input goes through Switches to the branch that is taken, every result through a
//! Merge.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{AttrValue, Attrs, AttrsExt, HostTensor, NodeDef};

use super::functions::branches;
use super::{Inliner, Item, Manner, Site, Tag, Waiting, results};

const BOOL: i32 = 10;
const INT32: i32 = 3;

/// The attribute by which TensorFlow, too, makes Switches and Merges of a condition before it places the graph.
const IS_LOWERED: &str = "_lower_using_switch_merge";

/// Nodes under one name, on one device.
struct Place<'a> {
    prefix: &'a str,
    device: &'a str,
    tag: Tag,
}

impl Inliner<'_> {
    /// Puts a condition. One that TensorFlow lowers is placed node by node, with Switches beside their data; any other one is on
    /// the device of its node.
    pub(super) fn branch(&mut self, waiting: Waiting) -> Result<()> {
        let Waiting { number, node, tag, scope } = waiting;
        let (controls, data): (Vec<String>, Vec<String>) = node.inputs.iter().cloned().partition(|input| input.starts_with('^'));
        let (selector, inputs) = data.split_first().ok_or_else(|| Error::invalid_argument("nothing says which branch is taken"))?;
        let (input_types, types) = (node.attrs.list("Tin")?.types.clone(), node.attrs.list("Tout")?.types.clone());
        if input_types.len() != inputs.len() {
            return Err(Error::invalid_argument(format!("{} inputs, but Tin has {}", inputs.len(), input_types.len())));
        }
        let branches = branches(&node.op, &node.attrs)?;
        let prefix = self.prefix(&format!("{}/{}", node.name, node.op));
        let is_lowered = node.attrs.bool(IS_LOWERED).unwrap_or(false);
        let (manner, device, inside) = match is_lowered {
            true => (Manner::Branch, node.device.as_str(), Tag { branches: tag.branches + 1, is_generator: false, ..tag }),
            false => (Manner::Bound, "", Tag { call: Some(number), is_bound: true, ..Tag::default() }),
        };
        let place = Place { prefix: &prefix, device, tag: inside };
        let predicates = self.predicates(&node, selector, &controls, branches.len(), &place);
        // The rest for this branch and those after it, and a node that runs where one of them is taken.
        let mut left = inputs.to_vec();
        let mut start = predicates.first().cloned();
        let mut given = Vec::with_capacity(branches.len());
        let mut ends = Vec::with_capacity(branches.len());
        for (index, (side, func)) in branches.iter().enumerate() {
            let mut mine = std::mem::take(&mut left);
            let mut here = start.take();
            if let (Some(predicate), Some(gate)) = (predicates.get(index), &here) {
                let gate = self.fork(&place, &format!("{side}_fork"), gate.clone(), predicate, BOOL, false);
                let forked = mine.into_iter().zip(&input_types).enumerate();
                let forked: Vec<String> = forked
                    .map(|(at, (input, number))| {
                        self.fork(&place, &format!("{side}_input_{at}"), input, predicate, *number, is_lowered && index == 0)
                    })
                    .collect();
                mine = forked.iter().map(|fork| format!("{fork}:1")).collect();
                left = forked.into_iter().map(|fork| format!("{fork}:0")).collect();
                start = Some(format!("{gate}:0"));
                here = Some(format!("{gate}:1"));
            }
            let boolean = vec![("T", AttrValue::Type(BOOL))];
            let here = here.map(|gate| self.make(&place, &format!("{side}_start"), "Identity", vec![gate], boolean.clone()));
            // A Case of one branch is a call.
            let all_wait = here.is_none();
            let first = match &here {
                None if !controls.is_empty() => Some(self.make(&place, &format!("{side}_start"), "NoOp", controls.clone(), Vec::new())),
                other => other.clone(),
            };
            let prefix = format!("{prefix}/{side}");
            let site = Site { prefix, manner, device: node.device.clone(), tag: inside, parent: scope, start: first, all_wait };
            let body = self.body(func, &mine, site)?;
            if body.results.len() != types.len() {
                let message = format!("'{}' gives {} results where Tout has {}", func.name, body.results.len(), types.len());
                return Err(Error::invalid_argument(message));
            }
            given.push(body.results);
            match here {
                Some(start) => {
                    let waits = std::iter::once(start).chain(body.must_run).collect();
                    ends.push(self.make(&place, &format!("{side}_end"), "Identity", waits, boolean));
                }
                None => ends.extend(body.must_run),
            }
        }
        if predicates.is_empty() {
            let all = results(&node, given.pop().unwrap_or_default(), types, ends.into_iter().chain(controls));
            self.items.push(Item::Node(all, tag));
            return Ok(());
        }
        let count = AttrValue::Int(branches.len() as i64);
        let merge = |number: i32| vec![("T", AttrValue::Type(number)), ("N", count.clone())];
        let end = self.make(&place, "end", "Merge", ends, merge(BOOL));
        let mut merged = Vec::with_capacity(types.len());
        for (index, number) in types.iter().enumerate() {
            let inputs = given.iter().map(|results| results[index].clone()).collect();
            merged.push(self.make(&place, &format!("output_{index}"), "Merge", inputs, merge(*number)));
        }
        let all = results(&node, merged, types, [format!("^{end}")]);
        self.items.push(Item::Node(all, tag));
        Ok(())
    }

    /// A Switch by a predicate; `beside` its data, or with the condition.
    fn fork(&mut self, place: &Place<'_>, name: &str, input: String, predicate: &str, number: i32, beside: bool) -> String {
        let mut attrs = vec![("T", AttrValue::Type(number))];
        if beside {
            attrs.push(("_class", AttrValue::texts(&[format!("loc:@{}", input.split(':').next().unwrap_or_default())])));
        }
        let place = Place { device: if beside { "" } else { place.device }, ..*place };
        let name = self.make(&place, name, "Switch", vec![input, predicate.to_string()], attrs);
        if beside {
            self.beside.insert(name.clone());
        }
        name
    }

    /// For each branch but the last, a bool that says whether it is taken if none before it is. They wait for `controls`, and
    /// everything else for them.
    fn predicates(&mut self, node: &NodeDef, selector: &str, controls: &[String], branches: usize, place: &Place<'_>) -> Vec<String> {
        let asked = |first: Vec<String>| first.into_iter().chain(controls.iter().cloned()).collect();
        if matches!(node.op.as_str(), "If" | "StatelessIf") {
            let of_type = node.attrs.get("Tcond").cloned().unwrap_or(AttrValue::Type(BOOL));
            return vec![self.make(place, "pred", "ToBool", asked(vec![selector.to_string()]), vec![("T", of_type)])];
        }
        let mut predicates = Vec::new();
        for index in 0..branches.saturating_sub(1) {
            let value = AttrValue::Tensor(HostTensor::scalar(index as i32));
            let number = self.make(
                place,
                &format!("{index}_index"),
                "Const",
                asked(Vec::new()),
                vec![("dtype", AttrValue::Type(INT32)), ("value", value)],
            );
            let inputs = asked(vec![selector.to_string(), number]);
            predicates.push(self.make(place, &format!("{index}_pred"), "Equal", inputs, vec![("T", AttrValue::Type(INT32))]));
        }
        predicates
    }

    fn make(&mut self, place: &Place<'_>, name: &str, op: &str, inputs: Vec<String>, attrs: Vec<(&str, AttrValue)>) -> String {
        let name = format!("{}/{name}", place.prefix);
        self.names.insert(name.clone());
        let attrs: Attrs = attrs.into_iter().map(|(name, value)| (name.to_string(), value)).collect();
        let (op, device) = (op.to_string(), place.device.to_string());
        let node = NodeDef { name: name.clone(), op, inputs, device, attrs, carried: Default::default() };
        self.items.push(Item::Node(node, place.tag));
        name
    }
}
