//! If as Switch and Merge: every input goes through a Switch to the branch that is taken, every result through a Merge.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{AttrValue, Attrs, AttrsExt, NodeDef};

use super::{Inliner, Site, results};

pub(super) fn is_branch(op: &str) -> bool {
    matches!(op, "If" | "StatelessIf")
}

const BOOL: i32 = 10;

impl Inliner<'_> {
    pub(super) fn branch(&mut self, node: NodeDef) -> Result<()> {
        let (controls, data): (Vec<String>, Vec<String>) = node.inputs.iter().cloned().partition(|input| input.starts_with('^'));
        let (predicate, inputs) = data.split_first().ok_or_else(|| Error::invalid_argument("an If without a predicate"))?;
        let input_types = node.attrs.list("Tin")?.types.clone();
        let types = node.attrs.list("Tout")?.types.clone();
        if input_types.len() != inputs.len() {
            return Err(Error::invalid_argument(format!("{} inputs, but Tin has {}", inputs.len(), input_types.len())));
        }
        let prefix = self.prefix(&format!("{}/If", node.name));
        let device = node.device.as_str();
        let mut make = |name: &str, op: &str, inputs, attrs| self.make_node(&prefix, name, op, inputs, attrs, device);
        let of_type = |number: i32| vec![("T", AttrValue::Type(number))];
        // Everything else waits for the predicate.
        let asked = std::iter::once(predicate.clone()).chain(controls).collect();
        let predicate_type = node.attrs.get("Tcond").cloned().unwrap_or(AttrValue::Type(BOOL));
        let predicate = make("pred", "ToBool", asked, vec![("T", predicate_type)]);
        let fork = make("fork", "Switch", vec![predicate.clone(), predicate.clone()], of_type(BOOL));
        let sides = [("else", 0), ("then", 1)];
        let starts = sides.map(|(side, index)| make(&format!("{side}_start"), "Identity", vec![format!("{fork}:{index}")], of_type(BOOL)));
        let switches: Vec<String> = inputs
            .iter()
            .zip(&input_types)
            .enumerate()
            .map(|(index, (input, number))| {
                make(&format!("input_{index}"), "Switch", vec![input.clone(), predicate.clone()], of_type(*number))
            })
            .collect();
        let mut given = Vec::with_capacity(2);
        let mut ends = Vec::with_capacity(2);
        for ((side, index), start) in sides.into_iter().zip(&starts) {
            let func = node.attrs.func(&format!("{side}_branch"))?;
            let data: Vec<String> = switches.iter().map(|switch| format!("{switch}:{index}")).collect();
            let below = format!("{prefix}/{side}");
            let body = self.body(func, &data, &Site { prefix: &below, device, controls: &[], start: Some(start) })?;
            if body.results.len() != types.len() {
                let message = format!("'{}' gives {} results where Tout has {}", func.name, body.results.len(), types.len());
                return Err(Error::invalid_argument(message));
            }
            let waits = std::iter::once(start.clone()).chain(body.must_run).collect();
            ends.push(self.make_node(&prefix, &format!("{side}_end"), "Identity", waits, vec![("T", AttrValue::Type(BOOL))], device));
            given.push(body.results);
        }
        let two = AttrValue::Int(2);
        let end = self.make_node(&prefix, "end", "Merge", ends, vec![("T", AttrValue::Type(BOOL)), ("N", two.clone())], device);
        let mut merged = Vec::with_capacity(types.len());
        for (index, number) in types.iter().enumerate() {
            let inputs = given.iter().map(|results| results[index].clone()).collect();
            let attrs = vec![("T", AttrValue::Type(*number)), ("N", two.clone())];
            merged.push(self.make_node(&prefix, &format!("output_{index}"), "Merge", inputs, attrs, device));
        }
        let all = results(&node, merged, types, [format!("^{end}")]);
        self.nodes.push(all);
        Ok(())
    }

    fn make_node(
        &mut self,
        prefix: &str,
        name: &str,
        op: &str,
        inputs: Vec<String>,
        attrs: Vec<(&str, AttrValue)>,
        device: &str,
    ) -> String {
        let name = format!("{prefix}/{name}");
        self.names.insert(name.clone());
        let attrs: Attrs = attrs.into_iter().map(|(name, value)| (name.to_string(), value)).collect();
        let (op, device) = (op.to_string(), device.to_string());
        self.nodes.push(NodeDef { name: name.clone(), op, inputs, device, attrs, carried: Default::default() });
        name
    }
}
