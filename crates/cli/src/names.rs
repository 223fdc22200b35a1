//! From the names that a user types to the signature of a graph: fetches, targets and feeds.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use plimsoll::graph::{ArgType, AttrsExt};
use plimsoll::{DataType, Error, Feed, Graph, HostTensor, NodeId, Output, PartialShape, Registry, Shape, Signature};

use crate::failure::{Failure, OrUsage, Result, wrong_use};

/// Shapes of tensors that will be fed, by the name that was typed.
pub type FeedShapes = BTreeMap<String, Shape>;

/// Reads `NAME=2x3`; `NAME=` and `NAME=scalar` are scalars.
pub fn parse_feed_shape(text: &str) -> Result<(String, Shape)> {
    let parsed = text.rsplit_once('=').and_then(|(name, dims)| Some((name, parse_shape(dims)?)));
    match parsed {
        Some((name, shape)) if !name.is_empty() => Ok((name.to_string(), shape)),
        _ => wrong_use(format!("'{text}' is not the shape of a feed: write NAME=2x3, or NAME=scalar for a tensor without dimensions")),
    }
}

fn parse_shape(text: &str) -> Option<Shape> {
    let text = text.trim().trim_start_matches('[').trim_end_matches(']');
    if text.is_empty() || text == "scalar" {
        return Some(Shape::scalar());
    }
    let shape: Shape = text.split(['x', ',']).map(|dim| dim.trim().parse::<u64>().ok()).collect::<Option<Vec<u64>>>()?.into();
    shape.elements().ok().map(|_| shape)
}

/// Reads a file of shapes: a JSON object, `{"x": [2, 3]}`, or a line `NAME=2x3` for each.
pub fn read_shapes(path: &Path) -> Result<FeedShapes> {
    let bytes = plimsoll::model::read_file(path).or_usage()?;
    let text = String::from_utf8_lossy(&bytes);
    if text.trim_start().starts_with('{') {
        let dims: BTreeMap<String, Vec<u64>> =
            serde_json::from_str(&text).or_else(|error| wrong_use(format!("{}: {error}; write {{\"NAME\": [2, 3]}}", path.display())))?;
        return Ok(dims.into_iter().map(|(name, dims)| (name, dims.into())).collect());
    }
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(parse_feed_shape).collect()
}

/// The request to a graph.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// Tensors.
    pub fetches: Vec<String>,
    /// Nodes.
    pub targets: Vec<String>,
}

impl Asked {
    /// The part of this that a graph has. Where it has none of it: the one output or operation that no node uses.
    ///
    /// # Errors
    /// Wrong use, with the names to choose from.
    pub fn of_graph(&self, graph: &Graph, registry: &Registry) -> Result<Asked> {
        let has = |name: &&String| graph.find(node_of(name)).is_some();
        let found = Asked {
            fetches: self.fetches.iter().filter(has).cloned().collect(),
            targets: self.targets.iter().filter(has).cloned().collect(),
        };
        if !found.fetches.is_empty() || !found.targets.is_empty() {
            return Ok(found);
        }
        let ends = ends(graph, registry);
        if self.fetches.is_empty() && self.targets.is_empty() && ends.fetches.len() + ends.targets.len() == 1 {
            return Ok(ends);
        }
        wrong_use(format!("say what to compute, with --fetch TENSOR or --target OPERATION; {}", ends.described()))
    }

    /// The names to choose from, where these are the outputs that no node of the graph uses.
    pub fn described(&self) -> String {
        let of = |what: &str, names: &[String]| match names {
            [] => None,
            [only] => Some(format!("the {what} {only}")),
            [..] => Some(format!("the {what}s {}", list(names))),
        };
        let found: Vec<String> = [of("tensor", &self.fetches), of("operation", &self.targets)].into_iter().flatten().collect();
        match found.is_empty() {
            true => "every node of the graph feeds another one".to_string(),
            false => format!("the graph ends in {}", found.join(" and ")),
        }
    }

    /// Whether every name is in one of the graphs.
    ///
    /// # Errors
    /// Wrong use, for the first name that is not.
    pub fn check<'a>(&self, graphs: impl Iterator<Item = &'a Graph> + Clone) -> Result<()> {
        for name in self.fetches.iter().chain(&self.targets) {
            check_name(name, graphs.clone())?;
        }
        Ok(())
    }
}

/// Names for a message.
pub fn list(names: &[String]) -> String {
    match names {
        [] => "none".to_string(),
        [..] if names.len() <= 8 => names.join(", "),
        _ => format!("{}, and {} more", names[..8].join(", "), names.len() - 8),
    }
}

/// Whether a tensor or node of that name is in one of the graphs.
pub fn check_name<'a>(name: &str, graphs: impl Iterator<Item = &'a Graph> + Clone) -> Result<()> {
    if graphs.clone().any(|graph| graph.find(node_of(name)).is_some()) {
        return Ok(());
    }
    let error = Error::invalid_argument(format!("there is no '{name}' in the graph"));
    Err(Failure::usage(error.suggesting(node_of(name), graphs.flat_map(Graph::node_names))))
}

/// The node of a tensor's name.
pub fn node_of(name: &str) -> &str {
    match name.rsplit_once(':') {
        Some((node, index)) if index.bytes().all(|byte| byte.is_ascii_digit()) => node,
        _ => name,
    }
}

/// Outputs and operations that no node of the graph uses.
pub fn ends(graph: &Graph, registry: &Registry) -> Asked {
    let mut used = HashSet::new();
    for node in graph.nodes().values() {
        used.extend(node.inputs.iter().map(|input| input.node).chain(node.controls.iter().copied()));
    }
    let mut ends = Asked::default();
    for (id, node) in graph.nodes().iter() {
        let is_source =
            matches!(node.op.as_str(), "Const" | "Placeholder" | "PlaceholderWithDefault" | "VariableV2" | "Variable" | "VarHandleOp");
        if used.contains(&id) || is_source {
            continue;
        }
        match output_type(graph, registry, Output { node: id, index: 0 }) {
            Some(first) if !first.is_ref && first.base != DataType::Resource => ends.fetches.push(format!("{}:0", node.name)),
            _ => ends.targets.push(node.name.clone()),
        }
    }
    ends
}

/// The type of an output, where the graph's operations are known.
pub fn output_type(graph: &Graph, registry: &Registry, output: Output) -> Option<ArgType> {
    let node = graph.node(output.node);
    registry.table().get(&node.op)?.output_types(&node.attrs).ok()?.get(output.index as usize).copied()
}

/// Whether a tensor of the graph can be fed a value, as far as the graph says it. In old graphs a placeholder of unknown shape says that
/// it is a scalar: planning decides then.
///
/// # Errors
/// INVALID_ARGUMENT with both types and shapes, and how to convert the value.
pub fn check_feed(graph: &Graph, registry: &Registry, name: &str, value: &HostTensor) -> plimsoll::Result<()> {
    let Ok(output) = graph.tensor(name) else { return Ok(()) };
    let Some(wanted) = output_type(graph, registry, output).map(|wanted| wanted.base) else { return Ok(()) };
    let node = graph.node(output.node);
    let is_placeholder = node.op.starts_with("Placeholder");
    let shape = node.attrs.shape("shape").ok().filter(|_| is_placeholder).cloned().unwrap_or_else(PartialShape::unknown);
    let dims = shape.0.as_deref().filter(|dims| !dims.is_empty());
    let (data_type, given) = (value.data_type(), value.shape().dims());
    let fits = |(wanted, given): (&Option<u64>, &u64)| wanted.is_none_or(|wanted| wanted == *given);
    if data_type == wanted && dims.is_none_or(|dims| dims.len() == given.len() && dims.iter().zip(given).all(fits)) {
        return Ok(());
    }
    let error = Error::invalid_argument(format!("the file is {data_type}{}, and '{}' is {wanted}{shape}", value.shape(), node.name));
    Err(if data_type == wanted { error } else { error.with_remedy(conversion(wanted)) })
}

/// How a `.npy` file becomes one of another type.
pub fn conversion(wanted: DataType) -> String {
    let numpy = match wanted {
        DataType::Float => "float32".to_string(),
        DataType::Double => "float64".to_string(),
        DataType::Half => "float16".to_string(),
        other => other.to_string(),
    };
    format!("convert it: np.save(file, np.load(file).astype('{numpy}'))")
}

/// The signature of the request. It has a feed for every tensor that has a shape in `shapes` and for every placeholder that is
/// needed. `shown` is the user's name of a placeholder.
///
/// # Errors
/// Wrong use for names that are not there and for placeholders whose shape is open, with the option to give.
pub fn signature(
    graph: &Graph,
    registry: &Registry,
    asked: &Asked,
    shapes: &FeedShapes,
    shown: impl Fn(&str) -> String,
) -> Result<Signature> {
    let mut feeds = Vec::new();
    let mut fed = HashSet::new();
    for (name, shape) in shapes {
        if graph.find(node_of(name)).is_none() {
            continue;
        }
        let output = graph.tensor(name).or_usage()?;
        let Some(data_type) = output_type(graph, registry, output) else {
            return wrong_use(format!("'{name}' cannot be fed: it is an operation without results"));
        };
        if !fed.insert(output) {
            return wrong_use(format!("'{name}' is given twice"));
        }
        feeds.push(Feed { tensor: name.clone(), data_type: data_type.base, shape: shape.clone(), value: None });
    }
    let (mut open, mut options) = (Vec::new(), Vec::new());
    for placeholder in needed_placeholders(graph, asked, &fed) {
        let node = graph.node(placeholder);
        let shape = node.attrs.shape("shape").cloned().unwrap_or_else(|_| PartialShape::unknown());
        let data_type =
            output_type(graph, registry, Output { node: placeholder, index: 0 }).map_or(DataType::Float, |data_type| data_type.base);
        let Some(shape) = shape.complete() else {
            let example = match &shape.0 {
                Some(dims) => dims.iter().map(|dim| dim.map_or("N".to_string(), |dim| dim.to_string())).collect::<Vec<_>>().join("x"),
                None => "2x3".to_string(),
            };
            let shown = shown(&node.name);
            open.push(format!("'{shown}' is {data_type} and its shape {shape} is open"));
            options.push(format!("--feed-shape {shown}={example}"));
            continue;
        };
        feeds.push(Feed { tensor: format!("{}:0", node.name), data_type, shape, value: None });
    }
    if !open.is_empty() {
        let error = Error::invalid_argument(format!("placeholders need shapes: {}", open.join("; ")));
        return Err(Failure::usage(error.with_remedy(format!("add {}", options.join(" ")))));
    }
    Ok(Signature { feeds, fetches: asked.fetches.clone(), targets: asked.targets.clone() })
}

/// Placeholders that the asked for reaches without passing a fed tensor, in the graph's order.
pub fn needed_placeholders(graph: &Graph, asked: &Asked, fed: &HashSet<Output>) -> Vec<NodeId> {
    let mut stack: Vec<NodeId> = asked.fetches.iter().chain(&asked.targets).filter_map(|name| graph.find(node_of(name))).collect();
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    while let Some(id) = stack.pop() {
        if !seen.insert(id) {
            continue;
        }
        let node = graph.node(id);
        let is_fed = fed.contains(&Output { node: id, index: 0 });
        if node.op == "Placeholder" && !is_fed {
            found.push(id);
        }
        stack.extend(node.inputs.iter().filter(|input| !fed.contains(input)).map(|input| input.node));
        stack.extend(node.controls.iter().copied());
    }
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_read() {
        let read = |text: &str| parse_feed_shape(text).map(|(name, shape)| (name, shape.dims().to_vec())).ok();
        assert_eq!(read("x:0=2x3"), Some(("x:0".to_string(), vec![2, 3])));
        assert_eq!(read("x=[4, 5]"), Some(("x".to_string(), vec![4, 5])));
        assert_eq!(read("x="), Some(("x".to_string(), vec![])));
        assert_eq!(read("x=scalar"), Some(("x".to_string(), vec![])));
        for text in ["", "x", "=2", "x=2x", "x=-1", "x=2y3", "x=9999999999x9999999999x9"] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn nodes_of_tensors() {
        assert_eq!(["a", "a:0", "a/b:12", "a:b"].map(node_of), ["a", "a", "a/b", "a:b"]);
    }
}
