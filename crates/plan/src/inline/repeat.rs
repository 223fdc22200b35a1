//! While as a frame: Enter, Merge, Switch, NextIteration and Exit for each value that goes round, LoopCond for all of them.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{AttrValue, Attrs, AttrsExt, Node, NodeId, Output};

use super::branch::{IS_LOWERED, Place, first};
use super::functions::branches;
use super::{Inliner, Manner, Site, Tag, Waiting};

/// A value that goes round, or a handle, which stays.
struct Round {
    enter: NodeId,
    /// The Merge, and the NextIteration whose turn comes behind the body.
    goes: Option<(NodeId, NodeId)>,
}

impl Inliner<'_> {
    /// Puts a loop. One that TensorFlow lowers is placed node by node; any other one is on the device of its node.
    pub(super) fn repeat(&mut self, waiting: Waiting) -> Result<()> {
        let Waiting { number, id, node, tag, scope } = waiting;
        let types = node.attrs.list("T")?.types.clone();
        if types.len() != node.inputs.len() {
            return Err(Error::invalid_argument(format!("{} inputs, but T has {}", node.inputs.len(), types.len())));
        }
        let functions = branches(&node.op, &node.attrs)?;
        let [(_, cond), (_, body)] = &functions[..] else { return Err(Error::internal("a loop of other functions than two")) };
        let prefix = self.prefix(&format!("{}/{}", self.name(id), node.op));
        let (manner, device, inside) = match node.attrs.bool(IS_LOWERED).unwrap_or(false) {
            true => (Manner::Branch, node.device.as_str(), Tag { branches: tag.branches + 1, is_generator: false, ..tag }),
            false => (Manner::Bound, "", Tag { call: Some(number), is_bound: true, ..Tag::default() }),
        };
        let place = Place { prefix: &prefix, device, tag: inside };
        // What goes round is asked for where what comes in is; the test and the body are where the loop is.
        let is_lowered = manner == Manner::Branch;
        let beside = |inliner: &mut Self, id: NodeId, source: NodeId| {
            if is_lowered {
                inliner.beside.insert(id, source);
            }
        };
        let mut rounds = Vec::with_capacity(types.len());
        for (index, (input, data_type)) in node.inputs.iter().zip(&types).enumerate() {
            let stays = *data_type == DataType::Resource.number();
            let attrs = vec![
                ("T", AttrValue::Type(*data_type)),
                ("frame_name", AttrValue::Bytes(prefix.clone().into_bytes())),
                ("is_constant", AttrValue::Bool(stays)),
            ];
            let enter = self.make(&place, &format!("enter_{index}"), "Enter", (vec![*input], node.controls.clone()), attrs);
            beside(self, enter, input.node);
            let goes = if stays {
                None
            } else {
                let next = self.named(format!("{prefix}/next_{index}"));
                let attrs = vec![("T", AttrValue::Type(*data_type)), ("N", AttrValue::Int(2))];
                let merge = self.make(&place, &format!("merge_{index}"), "Merge", (vec![first(enter), first(next)], Vec::new()), attrs);
                beside(self, merge, enter);
                beside(self, next, merge);
                Some((merge, next))
            };
            rounds.push(Round { enter, goes });
        }
        let Some(gate) = rounds.iter().position(|round| round.goes.is_some()) else {
            return Err(Error::unimplemented("not yet: a loop that carries no value from one iteration to the next"));
        };
        // What reads nothing waits for the iteration.
        let start = |inliner: &mut Self, name: &str, values: &[Output]| {
            inliner.make(&place, name, "Identity", (vec![values[gate]], Vec::new()), vec![("T", AttrValue::Type(types[gate]))])
        };
        let site = |part: &str, start: NodeId| {
            let prefix = format!("{prefix}/{part}");
            Site {
                prefix,
                manner,
                device: node.device.clone(),
                tag: inside,
                parent: scope,
                start: Some(start),
                all_wait: false,
                has_effects: false,
            }
        };
        let given: Vec<Output> = rounds.iter().map(|round| first(round.goes.map_or(round.enter, |(merge, _)| merge))).collect();
        let test = start(self, "cond_start", &given);
        let tested = self.body(cond, &given, site("cond", test))?;
        let (&[again], &[data_type]) = (&tested.results[..], &tested.types[..]) else {
            return Err(Error::invalid_argument(format!("'{}' gives {} results and not one", cond.name, tested.results.len())));
        };
        let of_type = vec![("T", AttrValue::Type(data_type))];
        let again = first(self.make(&place, "again", "ToBool", (vec![again], tested.must_run), of_type));
        let again = first(self.make(&place, "loop_cond", "LoopCond", (vec![again], Vec::new()), Vec::new()));
        let mut arguments = Vec::with_capacity(rounds.len());
        let mut results = Vec::with_capacity(rounds.len());
        let mut last = Vec::new();
        for (index, (round, data_type)) in rounds.iter().zip(&types).enumerate() {
            let Some((merge, _)) = round.goes else {
                arguments.push(first(round.enter));
                results.push(node.inputs[index]);
                continue;
            };
            let of_type = || vec![("T", AttrValue::Type(*data_type))];
            let switch = self.fork(&place, &format!("switch_{index}"), first(merge), again, *data_type, false);
            beside(self, switch, merge);
            arguments.push(Output { node: switch, index: 1 });
            let exit = self.make(&place, &format!("exit_{index}"), "Exit", (vec![first(switch)], Vec::new()), of_type());
            beside(self, exit, switch);
            results.push(first(exit));
            last.push(exit);
        }
        let run = start(self, "body_start", &arguments);
        let ran = self.body(body, &arguments, site("body", run))?;
        if ran.results.len() != types.len() {
            let message = format!("'{}' gives {} results where T has {}", body.name, ran.results.len(), types.len());
            return Err(Error::invalid_argument(message));
        }
        let mut must_run = ran.must_run;
        for ((round, result), data_type) in rounds.iter().zip(ran.results).zip(&types) {
            let Some((_, next)) = round.goes else { continue };
            let attrs: Attrs = [("T".to_string(), AttrValue::Type(*data_type))].into();
            let (op, device, controls) = ("NextIteration".to_string(), place.device.to_string(), std::mem::take(&mut must_run));
            self.set(next, Node { op, inputs: vec![result], controls, device, attrs, ..Node::default() }, inside);
        }
        let handles = (0..).zip(results.iter().zip(&rounds)).filter(|(_, (_, round))| round.goes.is_none());
        self.handles.extend(handles.map(|(index, (result, _))| (Output { node: id, index }, *result)));
        self.results(id, node, results, types, last, tag);
        Ok(())
    }
}
