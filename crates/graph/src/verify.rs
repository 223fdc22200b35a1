//! Whether a graph makes sense: edges end at outputs that exist and have the right type, no cycles. (`_class` may name a label that
//! is no node, as in TensorFlow: such a label is a group.)

use plimsoll_base::{ArgType, Error, Result};

use crate::{AttrValue, Graph, IdVec, Node, NodeId, OpTable};

/// All nodes of a graph together may have this many outputs: a number in a node of a few bytes makes a million of them.
pub const MAX_OUTPUTS: usize = 1 << 24;

/// Checks the graph. Nodes of unknown operations are taken as they are.
///
/// # Errors
/// INVALID_ARGUMENT naming the node and its flaw.
pub(crate) fn verify(graph: &Graph, ops: &OpTable) -> Result<()> {
    let at = |node: &Node, error: Error| error.at_node(&node.name);
    let mut count = 0;
    let mut outputs_of = |node: &Node| {
        let outputs = ops.get(&node.op).map(|op| op.output_types(&node.attrs)).transpose()?;
        count += outputs.as_ref().map_or(0, Vec::len);
        if count > MAX_OUTPUTS {
            return Err(Error::invalid_argument(format!("the nodes of the graph have more than {MAX_OUTPUTS} outputs")));
        }
        Ok(outputs)
    };
    let outputs: IdVec<NodeId, Option<Vec<ArgType>>> =
        graph.nodes().values().map(|node| outputs_of(node).map_err(|error| at(node, error))).collect::<Result<_>>()?;
    for node in graph.nodes().values() {
        check_attrs(ops, node).and_then(|()| check_edges(graph, ops, &outputs, node)).map_err(|error| at(node, error))?;
    }
    graph.topological().map(drop)
}

fn check_edges(graph: &Graph, ops: &OpTable, outputs: &IdVec<NodeId, Option<Vec<ArgType>>>, node: &Node) -> Result<()> {
    let wanted = ops.get(&node.op).map(|op| op.input_types(&node.attrs)).transpose()?;
    if let Some(wanted) = &wanted
        && wanted.len() != node.inputs.len()
    {
        return Err(Error::invalid_argument(format!("{} takes {} inputs, not {}", node.op, wanted.len(), node.inputs.len())));
    }
    for (position, input) in node.inputs.iter().enumerate() {
        let Some(types) = &outputs[input.node] else { continue };
        let source = || graph.tensor_name(*input);
        let Some(given) = types.get(input.index as usize) else {
            return Err(Error::invalid_argument(format!("input {position} is {}, but that node has {} outputs", source(), types.len())));
        };
        let Some(wanted) = wanted.as_ref().map(|wanted| wanted[position]) else { continue };
        if given.base != wanted.base || (wanted.is_ref && !given.is_ref) {
            return Err(Error::invalid_argument(format!("input {position}, {}, is {given} where {} expects {wanted}", source(), node.op)));
        }
    }
    Ok(())
}

fn check_attrs(ops: &OpTable, node: &Node) -> Result<()> {
    for attr in ops.get(&node.op).iter().flat_map(|op| &op.attrs) {
        let Some(value) = node.attrs.get(&attr.name) else { continue };
        check_kind(&attr.name, &attr.kind, value)?;
        if let (Some(AttrValue::List(allowed)), AttrValue::Type(number)) = (&attr.allowed, value)
            && !allowed.types.contains(number)
        {
            return Err(Error::invalid_argument(format!("attribute '{}' of {} cannot be {value}", attr.name, node.op)));
        }
        if let (Some(AttrValue::List(allowed)), AttrValue::Bytes(bytes)) = (&attr.allowed, value)
            && !allowed.bytes.contains(bytes)
        {
            return Err(Error::invalid_argument(format!("attribute '{}' of {} cannot be {value}", attr.name, node.op)));
        }
    }
    Ok(())
}

fn check_kind(name: &str, kind: &str, value: &AttrValue) -> Result<()> {
    let fits = match kind {
        "string" => matches!(value, AttrValue::Bytes(_)),
        "int" => matches!(value, AttrValue::Int(_)),
        "float" => matches!(value, AttrValue::Float(_)),
        "bool" => matches!(value, AttrValue::Bool(_)),
        "type" => matches!(value, AttrValue::Type(_)),
        "shape" => matches!(value, AttrValue::Shape(_)),
        "tensor" => matches!(value, AttrValue::Tensor(_) | AttrValue::Unset),
        "func" => matches!(value, AttrValue::Func(_)),
        _ => matches!(value, AttrValue::List(_)),
    };
    if fits || matches!(value, AttrValue::Placeholder(_) | AttrValue::Opaque(_)) {
        return Ok(());
    }
    Err(Error::invalid_argument(format!("attribute '{name}' is {}, not {kind}", value.kind())))
}

#[cfg(test)]
mod tests {
    use crate::{AttrValue, Attrs, Graph, GraphDef, HostTensor, NodeDef, OpTable};
    use plimsoll_base::DataType;

    fn node(name: &str, op: &str, inputs: &[&str], attrs: &[(&str, AttrValue)]) -> NodeDef {
        NodeDef {
            name: name.into(),
            op: op.into(),
            inputs: inputs.iter().map(|input| input.to_string()).collect(),
            attrs: attrs.iter().map(|(name, value)| (name.to_string(), value.clone())).collect::<Attrs>(),
            ..NodeDef::default()
        }
    }

    fn float() -> (&'static str, AttrValue) {
        ("T", AttrValue::data_type(DataType::Float))
    }

    fn constant(name: &str) -> NodeDef {
        let value = AttrValue::Tensor(HostTensor::scalar(1f32));
        node(name, "Const", &[], &[("dtype", AttrValue::data_type(DataType::Float)), ("value", value)])
    }

    fn error(nodes: Vec<NodeDef>) -> String {
        let error = Graph::resolve(GraphDef { nodes, ..GraphDef::default() }, &OpTable::tensorflow()).unwrap_err();
        assert_eq!(error.code(), plimsoll_base::Code::InvalidArgument, "{error}");
        error.to_string()
    }

    #[test]
    fn a_good_graph_resolves_and_spells_itself_again() {
        let nodes = vec![
            constant("a"),
            node("b", "Identity", &["a"], &[float()]),
            node("c", "NoOp", &["^b"], &[]),
            node("d", "Mystery", &["b", "^c"], &[]),
        ];
        let def = GraphDef { nodes, ..GraphDef::default() };
        let graph = Graph::resolve(def.clone(), &OpTable::tensorflow()).unwrap();
        assert_eq!(graph.to_def(), def);
    }

    #[test]
    fn every_flaw_is_named_with_its_node() {
        let identity = |name: &str, input: &str| node(name, "Identity", &[input], &[float()]);
        for (nodes, fragments) in [
            (vec![constant("a"), constant("a")], vec!["is not unique", "{{node a}}"]),
            (vec![constant("a b")], vec!["is not a node name"]),
            (vec![node("a", "", &[], &[])], vec!["names no operation"]),
            (vec![identity("b", "a")], vec!["Unknown input node 'a'", "{{node b}}"]),
            (vec![constant("a"), identity("b", "a:1")], vec!["has 1 outputs"]),
            (vec![constant("a"), node("b", "Identity", &["^a", "a"], &[float()])], vec!["after a control input"]),
            (vec![constant("a"), node("b", "Identity", &["a", "a"], &[float()])], vec!["takes 1 inputs, not 2"]),
            (vec![constant("a"), node("b", "Identity", &["a"], &[])], vec!["attribute 'T' of Identity is missing"]),
            (vec![constant("a"), node("b", "Identity", &["a"], &[("T", AttrValue::Int(1))])], vec!["attribute 'T' is int"]),
            (
                vec![constant("a"), node("b", "Identity", &["a"], &[("T", AttrValue::data_type(DataType::Int32))])],
                vec!["is float where Identity expects int32"],
            ),
            (vec![constant("a"), node("b", "Assign", &["a", "a"], &[float()])], vec!["expects float_ref"]),
            (vec![identity("a", "b"), identity("b", "a")], vec!["nodes in a cycle"]),
            (vec![constant("a"), node("b", "LRN", &["a"], &[("T", AttrValue::data_type(DataType::Double))])], vec!["cannot be double"]),
        ] {
            let text = error(nodes);
            for fragment in fragments {
                assert!(text.contains(fragment), "{text:?} lacks {fragment:?}");
            }
        }
    }

    #[test]
    fn a_few_bytes_do_not_make_millions_of_outputs_each() {
        let axis = HostTensor::scalar(0i32);
        let axis = node("axis", "Const", &[], &[("dtype", AttrValue::data_type(DataType::Int32)), ("value", AttrValue::Tensor(axis))]);
        let split = |at: usize| node(&format!("s{at}"), "Split", &["axis", "a"], &[float(), ("num_split", AttrValue::Int(1 << 20))]);
        let nodes = [constant("a"), axis].into_iter().chain((0..1000).map(split)).collect();
        let text = error(nodes);
        assert!(text.contains("have more than 16777216 outputs") && text.contains("{{node s15}}"), "{text}");
    }

    #[test]
    fn loops_of_tf1_may_go_back_into_merge() {
        let nodes = vec![
            constant("a"),
            node("merge", "Merge", &["a", "next"], &[float(), ("N", AttrValue::Int(2))]),
            node("next", "NextIteration", &["merge"], &[float()]),
        ];
        Graph::resolve(GraphDef { nodes, ..GraphDef::default() }, &OpTable::tensorflow()).unwrap();
    }
}
