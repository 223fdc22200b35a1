//! From a request to the feeds of a signature: the tensors that a graph ends in, and the placeholders that a request reaches. The
//! graph gives the type and shape of a tensor that is fed.

use std::collections::{BTreeMap, HashMap, HashSet};

use plimsoll_base::{ArgType, DataType, Error, Result};
use plimsoll_graph::{Attrs, AttrsExt, Graph, IdVec, NodeId, Output, PartialShape};
use plimsoll_ops::{Lower, Registry};

use crate::Feed;
use crate::freeze::is_added;
use crate::infer::needed;

/// A request to a graph, in its names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Tensors that are wanted, as `node` or `node:k`.
    pub fetches: Vec<String>,
    /// Nodes that have to run.
    pub targets: Vec<String>,
}

/// A placeholder that a request reaches and that is not fed.
#[derive(Clone, Debug, PartialEq)]
pub struct Unfilled {
    /// Its name.
    pub name: String,
    /// The type of its elements; float where its operation is not known.
    pub data_type: DataType,
    /// The shape that it asks for.
    pub shape: PartialShape,
}

/// The feeds of a request, as far as their shapes are known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Feeds {
    /// Tensors whose shapes were given, then placeholders whose shapes are whole.
    pub known: Vec<Feed>,
    /// Tensors whose shapes were given with open dimensions: these are N.
    pub sized: Vec<Unfilled>,
    /// The other placeholders that the request reaches.
    pub open: Vec<Unfilled>,
}

impl Feeds {
    /// Placeholders that leave only their first dimension open have batches of N.
    #[must_use]
    pub fn by_batch(mut self) -> Feeds {
        let is_batch = |open: &Unfilled| {
            let dims = open.shape.0.as_deref().and_then(<[_]>::split_first);
            dims.is_some_and(|(first, others)| first.is_none() && others.iter().all(Option::is_some))
        };
        self.sized.extend(self.open.extract_if(.., |open| is_batch(open)));
        self
    }
}

/// What a graph says of a tensor that may be fed.
#[derive(Clone, Debug, PartialEq)]
pub struct FeedRule {
    /// The tensor.
    pub tensor: Output,
    /// The type of its elements.
    pub data_type: DataType,
    /// The shape that a placeholder asks for; unknown for other nodes.
    pub shape: PartialShape,
    /// Whether the node is a placeholder.
    pub is_placeholder: bool,
}

impl Asked {
    /// The outputs and operations that no node of the graph uses, without those of nodes that freezing has added.
    pub fn ends(graph: &Graph, registry: &Registry) -> Asked {
        let mut used = HashSet::new();
        for node in graph.nodes().values() {
            used.extend(node.inputs.iter().map(|input| input.node).chain(node.controls.iter().copied()));
        }
        let mut ends = Asked::default();
        for (id, node) in graph.nodes().iter() {
            let is_source =
                matches!(node.op.as_str(), "Const" | "Placeholder" | "PlaceholderWithDefault" | "VariableV2" | "Variable" | "VarHandleOp");
            if used.contains(&id) || is_source || is_added(node) {
                continue;
            }
            match output_type(graph, registry, Output { node: id, index: 0 }) {
                Some(first) if !first.is_ref && first.base != DataType::Resource => ends.fetches.push(format!("{}:0", node.name)),
                _ => ends.targets.push(node.name.clone()),
            }
        }
        ends
    }

    /// How many tensors and nodes it names.
    pub fn count(&self) -> usize {
        self.fetches.len() + self.targets.len()
    }

    /// The placeholders that it reaches without passing a tensor of `fed`, in the graph's order. Names that the graph does not have
    /// reach nothing.
    pub fn unfilled(&self, graph: &Graph, registry: &Registry, fed: &HashSet<Output>) -> Vec<Unfilled> {
        let fed: HashMap<Output, usize> = fed.iter().map(|output| (*output, 0)).collect();
        let nodes: Vec<NodeId> = self.fetches.iter().chain(&self.targets).filter_map(|name| graph.find(node_of(name))).collect();
        let needed: IdVec<NodeId, bool> = needed(graph, &fed, &HashSet::new(), &[], &nodes);
        let is_unfilled = |id: &NodeId| {
            let is_placeholder = registry.get(&graph.node(*id).op).is_some_and(|rules| matches!(rules.lower, Lower::Placeholder));
            needed[*id] && is_placeholder && !fed.contains_key(&Output { node: *id, index: 0 })
        };
        let unfilled = |id: NodeId| {
            let node = graph.node(id);
            let data_type = output_type(graph, registry, Output { node: id, index: 0 }).map_or(DataType::Float, |first| first.base);
            Unfilled { name: node.name.clone(), data_type, shape: shape(&node.attrs) }
        };
        graph.nodes().iter().map(|(id, _)| id).filter(is_unfilled).map(unfilled).collect()
    }

    /// Its feeds: every tensor that has a shape in `shapes`, and every placeholder that it reaches. Open dimensions there are N.
    /// Shapes of tensors that the graph does not have are passed over.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for a tensor that cannot be fed, or is named twice.
    pub fn feeds(&self, graph: &Graph, registry: &Registry, shapes: &BTreeMap<String, PartialShape>) -> Result<Feeds> {
        let mut feeds = Feeds::default();
        let mut fed = HashSet::new();
        for (name, shape) in shapes.iter().filter(|(name, _)| graph.find(node_of(name)).is_some()) {
            let Some(rule) = FeedRule::of(graph, registry, name)? else {
                return Err(Error::invalid_argument(format!("'{name}' cannot be fed: it is an operation without results")));
            };
            if !fed.insert(rule.tensor) {
                return Err(Error::invalid_argument(format!("'{name}' is given twice")));
            }
            let data_type = rule.data_type;
            match shape.complete() {
                Some(shape) => feeds.known.push(Feed { tensor: name.clone(), data_type, shape, value: None }),
                None => feeds.sized.push(Unfilled { name: name.clone(), data_type, shape: shape.clone() }),
            }
        }
        for placeholder in self.unfilled(graph, registry, &fed) {
            let Unfilled { name, data_type, shape } = &placeholder;
            match shape.complete() {
                Some(shape) => feeds.known.push(Feed { tensor: format!("{name}:0"), data_type: *data_type, shape, value: None }),
                None => feeds.open.push(placeholder),
            }
        }
        Ok(feeds)
    }
}

impl FeedRule {
    /// The rule for the tensor of that name; none for an operation without results, or one that is not known.
    ///
    /// # Errors
    /// As [`Graph::tensor`].
    pub fn of(graph: &Graph, registry: &Registry, name: &str) -> Result<Option<FeedRule>> {
        let tensor = graph.tensor(name)?;
        let node = graph.node(tensor.node);
        let is_placeholder = matches!(node.op.as_str(), "Placeholder" | "PlaceholderV2" | "PlaceholderWithDefault");
        let shape = if is_placeholder { shape(&node.attrs) } else { PartialShape::unknown() };
        let rule = |found: ArgType| FeedRule { tensor, data_type: found.base, shape, is_placeholder };
        Ok(output_type(graph, registry, tensor).map(rule))
    }

    /// Whether it takes a value of this type and shape.
    pub fn takes(&self, data_type: DataType, dims: &[u64]) -> bool {
        self.data_type == data_type && self.fits(dims, 0)
    }

    /// Whether it takes values of this shape, the size of the first dimension aside.
    pub fn takes_batches(&self, dims: &[u64]) -> bool {
        self.fits(dims, 1)
    }

    /// The size that its first dimension must have.
    pub fn batch(&self) -> Option<u64> {
        self.dims().and_then(|dims| dims[0])
    }

    fn fits(&self, dims: &[u64], from: usize) -> bool {
        let fits = |(wanted, given): (&Option<u64>, &u64)| wanted.is_none_or(|wanted| wanted == *given);
        self.dims().is_none_or(|wanted| wanted.len() == dims.len() && wanted.iter().zip(dims).skip(from).all(fits))
    }

    /// The dimensions, where they are known. In old graphs a placeholder of unknown shape says that it is a scalar: planning
    /// decides then.
    fn dims(&self) -> Option<&[Option<u64>]> {
        self.shape.0.as_deref().filter(|dims| !dims.is_empty())
    }
}

/// The type of an output, where the operation is known.
fn output_type(graph: &Graph, registry: &Registry, output: Output) -> Option<ArgType> {
    let node = graph.node(output.node);
    registry.table().get(&node.op)?.output_types(&node.attrs).ok()?.get(output.index as usize).copied()
}

fn shape(attrs: &Attrs) -> PartialShape {
    attrs.shape("shape").cloned().unwrap_or_else(|_| PartialShape::unknown())
}

/// The node of a tensor's name: the name without `:k`.
pub fn node_of(name: &str) -> &str {
    match name.rsplit_once(':') {
        Some((node, index)) if index.bytes().all(|byte| byte.is_ascii_digit()) => node,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use plimsoll_formats::read_graph_def;
    use plimsoll_kernels::CpuKernels;

    use super::*;

    const GRAPH: &str = r#"
        node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } }
               attr { key: "shape" value { shape { dim { size: -1 } dim { size: 4 } } } } }
        node { name: "rate" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } attr { key: "shape" value { shape { } } } }
        node { name: "any" op: "Placeholder" attr { key: "dtype" value { type: DT_INT32 } }
               attr { key: "shape" value { shape { unknown_rank: true } } } }
        node { name: "twice" op: "Add" input: "x" input: "x" attr { key: "T" value { type: DT_FLOAT } } }
        node { name: "scaled" op: "Mul" input: "twice" input: "rate" attr { key: "T" value { type: DT_FLOAT } } }
        node { name: "kept" op: "Identity" input: "any" attr { key: "T" value { type: DT_INT32 } } }
        node { name: "all" op: "NoOp" input: "^twice" }
    "#;

    fn graph() -> (Graph, Registry) {
        let registry = Registry::standard(Arc::new(CpuKernels));
        (Graph::resolve(read_graph_def(GRAPH.as_bytes()).unwrap(), registry.table()).unwrap(), registry)
    }

    fn asked(fetches: &[&str], targets: &[&str]) -> Asked {
        let owned = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        Asked { fetches: owned(fetches), targets: owned(targets) }
    }

    #[test]
    fn ends_are_tensors_and_operations_that_no_node_uses() {
        let (graph, registry) = graph();
        assert_eq!(Asked::ends(&graph, &registry), asked(&["scaled:0", "kept:0"], &["all"]));
        assert_eq!(Asked::ends(&Graph::new(), &registry).count(), 0);
    }

    #[test]
    fn a_request_reaches_placeholders_up_to_the_tensors_that_are_fed() {
        let (graph, registry) = graph();
        let reached = |asked: Asked, fed: &[&str]| {
            let fed = fed.iter().map(|name| graph.tensor(name).unwrap()).collect();
            asked.unfilled(&graph, &registry, &fed).into_iter().map(|unfilled| unfilled.name).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(reached(asked(&["scaled:0"], &["kept"]), &[]), "x rate any");
        assert_eq!(reached(asked(&["scaled"], &[]), &["twice"]), "rate");
        assert_eq!(reached(asked(&["scaled"], &[]), &["x", "rate"]), "");
        assert_eq!(reached(asked(&[], &["all"]), &["rate"]), "x");
        assert_eq!(reached(asked(&["nothing"], &[]), &[]), "");
    }

    #[test]
    fn feeds_have_the_shapes_that_were_given_or_are_whole() {
        let (graph, registry) = graph();
        let shape = |dims: &[u64]| PartialShape(Some(dims.iter().copied().map(Some).collect()));
        let shapes = |given: &[(&str, &[u64])]| given.iter().map(|(name, dims)| (name.to_string(), shape(dims))).collect();
        let request = asked(&["scaled:0"], &[]);
        let feeds = request.feeds(&graph, &registry, &shapes(&[])).unwrap();
        assert_eq!(feeds.known.iter().map(|feed| feed.tensor.as_str()).collect::<Vec<_>>(), ["rate:0"]);
        assert_eq!(
            feeds.open.iter().map(|open| format!("{} {}{}", open.name, open.data_type, open.shape)).collect::<Vec<_>>(),
            ["x float[?,4]"]
        );
        let feeds = request.feeds(&graph, &registry, &shapes(&[("x", &[2, 4]), ("elsewhere", &[1])])).unwrap();
        let known: Vec<String> = feeds.known.iter().map(|feed| format!("{}{}", feed.tensor, feed.shape)).collect();
        assert_eq!((known.join(" ").as_str(), feeds.open.len()), ("x[2,4] rate:0[]", 0));
        let in_n = request.feeds(&graph, &registry, &shapes(&[])).unwrap().by_batch();
        assert_eq!((in_n.sized.len(), in_n.open.len(), in_n.sized[0].name.as_str()), (1, 0, "x"));
        let given = [("x:0".to_string(), PartialShape(Some(vec![None, Some(4)])))].into();
        let in_n = request.feeds(&graph, &registry, &given).unwrap();
        assert_eq!((in_n.sized.len(), in_n.open.len(), in_n.sized[0].name.as_str()), (1, 0, "x:0"));
        for (given, error) in [
            (shapes(&[("all", &[])]), "'all' cannot be fed: it is an operation without results"),
            (shapes(&[("x", &[2, 4]), ("x:0", &[2, 4])]), "'x:0' is given twice"),
        ] {
            assert_eq!(request.feeds(&graph, &registry, &given).unwrap_err().message(), error);
        }
    }

    #[test]
    fn a_placeholder_says_what_it_takes() {
        let (graph, registry) = graph();
        let rule = |name: &str| FeedRule::of(&graph, &registry, name).unwrap().unwrap();
        let x = rule("x");
        assert!(x.takes(DataType::Float, &[7, 4]) && !x.takes(DataType::Int32, &[7, 4]) && !x.takes(DataType::Float, &[7, 5]));
        assert!(!x.takes(DataType::Float, &[4]) && x.batch().is_none() && x.is_placeholder);
        // A shape of no dimensions may be one that an old graph does not know.
        assert!(rule("rate").takes(DataType::Float, &[3]) && rule("rate").takes_batches(&[3]));
        assert!(rule("twice").takes(DataType::Float, &[3]) && !rule("twice").is_placeholder);
        let fixed = FeedRule { shape: PartialShape(Some(vec![Some(8), Some(4)])), ..x };
        assert_eq!((fixed.batch(), fixed.takes_batches(&[2, 4]), fixed.takes(DataType::Float, &[2, 4])), (Some(8), true, false));
        assert!(FeedRule::of(&graph, &registry, "all").unwrap().is_none());
        assert!(FeedRule::of(&graph, &registry, "nothing").is_err());
    }

    #[test]
    fn nodes_of_tensors() {
        assert_eq!(["a", "a:0", "a/b:12", "a:b"].map(node_of), ["a", "a", "a/b", "a:b"]);
    }
}
