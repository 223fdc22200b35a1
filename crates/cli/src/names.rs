//! Names and shapes on the command line, and what is said where a graph does not have them or needs more.

use std::collections::BTreeMap;
use std::path::Path;

use plimsoll::model::{Model, Tags};
use plimsoll::signature::{Asked, FeedRule, Feeds, SignatureInN, Unfilled, node_of};
use plimsoll::{Code, DataType, Error, Graph, HostTensor, PartialShape, Registry, Shape, Signature};

use crate::failure::{Failure, OrUsage, Result, wrong_use};

/// Shapes of tensors that will be fed, by the name that was typed. Open dimensions are N.
pub type FeedShapes = BTreeMap<String, PartialShape>;

/// The tags of the option `--tags`.
pub fn tags(text: Option<&str>) -> Tags {
    text.map_or_else(Tags::default, Tags::listed)
}

/// The model, of its graphs only the one with the tags.
///
/// # Errors
/// Wrong use for tags that it does not have.
pub fn tagged(model: Model, path: &Path, tags: &Tags) -> Result<Model> {
    model.with_tags(tags).map_err(|error| without_tags(error.context(path.display())))
}

/// A graph that the model does not have is wrong use.
fn without_tags(error: Error) -> Failure {
    match error.code() {
        Code::NotFound => Failure::usage(error.with_remedy("name one of these sets with --tags")),
        Code::InvalidArgument => Failure::usage(error),
        _ => Failure::from(error),
    }
}

/// Reads `NAME=2x3` and `NAME=Nx3`; `NAME=` and `NAME=scalar` are scalars.
pub fn parse_feed_shape(text: &str) -> Result<(String, PartialShape)> {
    let parsed = text.rsplit_once('=').and_then(|(name, dims)| Some((name, parse_shape(dims)?)));
    match parsed {
        Some((name, shape)) if !name.is_empty() => Ok((name.to_string(), shape)),
        _ => wrong_use(format!(
            "'{text}' is not the shape of a feed: write NAME=2x3, NAME=Nx3 for every N, or NAME=scalar for a tensor without dimensions"
        )),
    }
}

fn parse_shape(text: &str) -> Option<PartialShape> {
    let text = text.trim().trim_start_matches('[').trim_end_matches(']');
    if text.is_empty() || text == "scalar" {
        return Some(PartialShape(Some(Vec::new())));
    }
    let dim = |dim: &str| match dim.trim() {
        "N" => Some(None),
        number => number.parse::<u64>().ok().map(Some),
    };
    let dims = text.split(['x', ',']).map(dim).collect::<Option<Vec<Option<u64>>>>()?;
    let known: Vec<u64> = dims.iter().map(|dim| dim.unwrap_or(1)).collect();
    Shape::from(known).elements().ok().map(|_| PartialShape(Some(dims)))
}

/// Reads a file of shapes: a JSON object, `{"x": [2, 3]}`, or a line `NAME=2x3` for each.
pub fn read_shapes(path: &Path) -> Result<FeedShapes> {
    let bytes = plimsoll::model::read_file(path).or_usage()?;
    let text = String::from_utf8_lossy(&bytes);
    if text.trim_start().starts_with('{') {
        let dims: BTreeMap<String, Vec<u64>> =
            serde_json::from_str(&text).or_else(|error| wrong_use(format!("{}: {error}; write {{\"NAME\": [2, 3]}}", path.display())))?;
        return Ok(dims.into_iter().map(|(name, dims)| (name, PartialShape(Some(dims.into_iter().map(Some).collect())))).collect());
    }
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(parse_feed_shape).collect()
}

/// The names to choose from: the outputs that no node of the graph uses.
pub fn described(ends: &Asked) -> String {
    let of = |what: &str, names: &[String]| match names {
        [] => None,
        [only] => Some(format!("the {what} {only}")),
        [..] => Some(format!("the {what}s {}", list(names))),
    };
    let found: Vec<String> = [of("tensor", &ends.fetches), of("operation", &ends.targets)].into_iter().flatten().collect();
    match found.is_empty() {
        true => "every node of the graph feeds another one".to_string(),
        false => format!("the graph ends in {}", found.join(" and ")),
    }
}

/// The one output or operation that no node of the graph uses.
///
/// # Errors
/// Wrong use where there are several or none, with the names to choose from.
pub fn only_end(graph: &Graph, registry: &Registry) -> Result<Asked> {
    let ends = Asked::ends(graph, registry);
    if ends.count() == 1 {
        return Ok(ends);
    }
    wrong_use(format!("say what to compute, with --fetch TENSOR or --target OPERATION; {}", described(&ends)))
}

/// Names for a message.
pub fn list(names: &[String]) -> String {
    match names {
        [] => "none".to_string(),
        [..] if names.len() <= 8 => names.join(", "),
        _ => format!("{}, and {} more", names[..8].join(", "), names.len() - 8),
    }
}

/// Whether every name is one of a tensor or node of the graph.
///
/// # Errors
/// Wrong use, for the first name that is not.
pub fn check<'a>(names: impl IntoIterator<Item = &'a String>, graph: &Graph) -> Result<()> {
    let Some(name) = names.into_iter().find(|name| graph.find(node_of(name)).is_none()) else { return Ok(()) };
    let error = Error::invalid_argument(format!("there is no '{name}' in the graph"));
    Err(Failure::usage(error.suggesting(node_of(name), graph.node_names())))
}

/// Whether a tensor of the graph can be fed a value, as far as the graph says it.
///
/// # Errors
/// INVALID_ARGUMENT with both types and shapes, and how to convert the value.
pub fn check_feed(graph: &Graph, registry: &Registry, name: &str, value: &HostTensor) -> plimsoll::Result<()> {
    let Ok(Some(rule)) = FeedRule::of(graph, registry, name) else { return Ok(()) };
    let (data_type, wanted) = (value.data_type(), rule.data_type);
    if rule.takes(data_type, value.shape().dims()) {
        return Ok(());
    }
    let (given, node) = (value.shape(), &graph.node(rule.tensor.node).name);
    let error = Error::invalid_argument(format!("the file is {data_type}{given}, and '{node}' is {wanted}{}", rule.shape));
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

/// A request's signature.
pub enum Sized {
    /// With whole shapes.
    Whole(Signature),
    /// With dimensions that are N.
    InN(SignatureInN),
}

/// The signature of the request. Where no shape is given, or one in N, open batches are N, too. `shown` is the user's name of a
/// placeholder.
///
/// # Errors
/// Wrong use for names that are not there and for placeholders whose shape is open, with the option to give.
pub fn signature(graph: &Graph, registry: &Registry, asked: &Asked, shapes: &FeedShapes, shown: impl Fn(&str) -> String) -> Result<Sized> {
    let mut feeds = asked.feeds(graph, registry, shapes).or_usage()?;
    if shapes.is_empty() || !feeds.sized.is_empty() {
        feeds = feeds.by_batch();
    }
    let Feeds { known, sized, open } = feeds;
    if open.is_empty() {
        let whole = Signature { feeds: known, fetches: asked.fetches.clone(), targets: asked.targets.clone(), ..Signature::default() };
        return Ok(match sized.is_empty() {
            true => Sized::Whole(whole),
            false => Sized::InN(SignatureInN { whole, sized }),
        });
    }
    let said = |Unfilled { name, data_type, shape }: &Unfilled| format!("'{}' is {data_type} and its shape {shape} is open", shown(name));
    let option = |open: &Unfilled| format!("--feed-shape {}={}", shown(&open.name), example(&open.shape));
    let joined = |texts: Vec<String>, between: &str| texts.join(between);
    let error = Error::invalid_argument(format!("placeholders need shapes: {}", joined(open.iter().map(said).collect(), "; ")));
    Err(Failure::usage(error.with_remedy(format!("add {}", joined(open.iter().map(option).collect(), " ")))))
}

/// A shape to write for an open one: a batch of N, and numbers of its own for other dimensions.
fn example(shape: &PartialShape) -> String {
    let Some(dims) = &shape.0 else { return "2x3".to_string() };
    let dim = |(index, dim): (usize, &Option<u64>)| match dim {
        Some(dim) => dim.to_string(),
        None if index == 0 => "N".to_string(),
        None => "32".to_string(),
    };
    dims.iter().enumerate().map(dim).collect::<Vec<_>>().join("x")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_read() {
        let read = |text: &str| parse_feed_shape(text).map(|(name, shape)| (name, shape.0.unwrap())).ok();
        assert_eq!(read("x:0=2x3"), Some(("x:0".to_string(), vec![Some(2), Some(3)])));
        assert_eq!(read("x=[4, 5]"), Some(("x".to_string(), vec![Some(4), Some(5)])));
        assert_eq!(read("x=Nx5xN"), Some(("x".to_string(), vec![None, Some(5), None])));
        assert_eq!(read("x="), Some(("x".to_string(), vec![])));
        assert_eq!(read("x=scalar"), Some(("x".to_string(), vec![])));
        for text in ["", "x", "=2", "x=2x", "x=-1", "x=2y3", "x=Mx3", "x=nx3", "x=9999999999x9999999999x9"] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
