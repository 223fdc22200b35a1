//! If and Case as Switch and Merge: every input goes through Switches to the branch that is taken, every result through a
//! Merge.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{AttrValue, Attrs, AttrsExt, FuncRef, HostTensor, NodeDef};

use super::{Inliner, Site, Wish, results};

pub(super) fn is_branch(op: &str) -> bool {
    matches!(op, "If" | "StatelessIf" | "Case" | "StatelessCase")
}

const BOOL: i32 = 10;
const INT32: i32 = 3;

/// Nodes under one name, on one device.
struct Place<'a> {
    prefix: &'a str,
    wish: Wish<'a>,
}

impl Inliner<'_> {
    pub(super) fn branch(&mut self, node: NodeDef) -> Result<()> {
        let (controls, data): (Vec<String>, Vec<String>) = node.inputs.iter().cloned().partition(|input| input.starts_with('^'));
        let (selector, inputs) = data.split_first().ok_or_else(|| Error::invalid_argument("nothing says which branch is taken"))?;
        let (input_types, types) = (node.attrs.list("Tin")?.types.clone(), node.attrs.list("Tout")?.types.clone());
        if input_types.len() != inputs.len() {
            return Err(Error::invalid_argument(format!("{} inputs, but Tin has {}", inputs.len(), input_types.len())));
        }
        let branches: Vec<(String, FuncRef)> = match node.op.as_str() {
            "If" | "StatelessIf" => ["then", "else"]
                .into_iter()
                .map(|side| Ok((side.to_string(), node.attrs.func(&format!("{side}_branch"))?.clone())))
                .collect::<Result<_>>()?,
            _ => node.attrs.list("branches")?.funcs.iter().enumerate().map(|(index, func)| (index.to_string(), func.clone())).collect(),
        };
        let prefix = self.prefix(&format!("{}/{}", node.name, node.op));
        let wish = Wish { device: &node.device, caller: Wish::caller_of(&node.attrs) };
        let place = Place { prefix: &prefix, wish };
        let predicates = self.predicates(&node, selector, &controls, branches.len(), &place);
        // What is left for this branch and those after it, and a node that runs where one of them is taken.
        let mut left = inputs.to_vec();
        let mut start = predicates.first().cloned();
        let mut given = Vec::with_capacity(branches.len());
        let mut ends = Vec::with_capacity(branches.len());
        for (index, (side, func)) in branches.iter().enumerate() {
            let mut mine = std::mem::take(&mut left);
            let mut here = start.take();
            if let (Some(predicate), Some(gate)) = (predicates.get(index), &here) {
                let mut fork = |name: &str, input: String, number: i32| {
                    let inputs = vec![input, predicate.clone()];
                    self.make(&place, name, "Switch", inputs, vec![("T", AttrValue::Type(number))])
                };
                let gate = fork(&format!("{side}_fork"), gate.clone(), BOOL);
                let forked = mine.into_iter().zip(&input_types).enumerate();
                let forked: Vec<String> = forked.map(|(at, (input, number))| fork(&format!("{side}_input_{at}"), input, *number)).collect();
                mine = forked.iter().map(|fork| format!("{fork}:1")).collect();
                left = forked.into_iter().map(|fork| format!("{fork}:0")).collect();
                start = Some(format!("{gate}:0"));
                here = Some(format!("{gate}:1"));
            }
            let here =
                here.map(|gate| self.make(&place, &format!("{side}_start"), "Identity", vec![gate], vec![("T", AttrValue::Type(BOOL))]));
            let below = format!("{prefix}/{side}");
            let waits: Vec<&String> = if here.is_none() { controls.iter().collect() } else { Vec::new() };
            let site = Site { prefix: &below, wish, controls: &waits, start: here.as_deref() };
            let body = self.body(func, &mine, &site)?;
            if body.results.len() != types.len() {
                let message = format!("'{}' gives {} results where Tout has {}", func.name, body.results.len(), types.len());
                return Err(Error::invalid_argument(message));
            }
            given.push(body.results);
            match here {
                Some(start) => {
                    let waits = std::iter::once(start).chain(body.must_run).collect();
                    ends.push(self.make(&place, &format!("{side}_end"), "Identity", waits, vec![("T", AttrValue::Type(BOOL))]));
                }
                None => ends.extend(body.must_run),
            }
        }
        if predicates.is_empty() {
            let all = results(&node, given.pop().unwrap_or_default(), types, ends.into_iter().chain(controls));
            self.nodes.push(all);
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
        self.nodes.push(all);
        Ok(())
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
        let mut attrs: Attrs = attrs.into_iter().map(|(name, value)| (name.to_string(), value)).collect();
        let (op, mut device) = (op.to_string(), String::new());
        place.wish.give(&mut device, &mut attrs);
        self.nodes.push(NodeDef { name: name.clone(), op, inputs, device, attrs, carried: Default::default() });
        name
    }
}
