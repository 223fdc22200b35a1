//! Convolutions and products with what follows them channel by channel: `(conv(x, w) + b)·m + a` is `conv(x, w·m) + (b·m + a)`;
//! where `w` is a constant, which the graph keeps, `conv(x, w)·m + (b·m + a)`.
//!
//! A chain is a convolution, and the additions, multiplications and batch norms behind it whose other operands are closed vectors, one
//! element for each channel. Nothing but the next of the chain reads a result before the last.

use std::collections::HashMap;

use plimsoll_base::{DataType, Result};
use plimsoll_graph::{AttrValue, AttrsExt, Graph, HostTensor, Node, NodeId, Output};

use super::append::Appender;
use super::closed::Closed;

/// A chain, and its new form.
pub(super) struct Chain {
    /// The convolution and what follows it, in order.
    nodes: Vec<NodeId>,
    /// The tensor that takes the place of the last result.
    pub result: Output,
}

impl Chain {
    /// The nodes of the graph as written.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.nodes.iter().copied()
    }

    /// The last result.
    pub fn end(&self) -> Option<Output> {
        self.nodes.last().map(|node| Output { node: *node, index: 0 })
    }
}

/// A convolution or a product with a filter that is closed.
struct Anchor {
    node: NodeId,
    data_type: DataType,
    channels: u64,
    /// Dimensions of its result.
    rank: usize,
    /// The shape in which a vector of channels multiplies the filter.
    of_filter: Vec<u64>,
}

/// What happens to each channel.
enum Step {
    Add(Output),
    Subtract(Output),
    Multiply(Output),
    /// Scale, offset, mean and variance, and what is added to the variance.
    Normalize([Output; 4], f32),
}

/// The readers of a graph's tensors.
struct Readers {
    /// Nodes that read data of a node, with the numbers of output and input.
    data: HashMap<NodeId, Vec<(u32, NodeId, usize)>>,
    /// Nodes that others wait for.
    controls: std::collections::HashSet<NodeId>,
}

/// Adds the new forms of a graph's chains: a convolution with a filter of its own, and a bias.
///
/// # Errors
/// As [`Appender::closed`].
pub(super) fn fold(builder: &mut Appender<'_>) -> Result<Vec<Chain>> {
    let readers = Readers::new(builder.graph);
    let mut chains: Vec<Chain> = Vec::new();
    for id in builder.graph.nodes().ids() {
        let Some(anchor) = anchor(builder.graph, builder.closed, id) else { continue };
        let (nodes, steps) = follow(builder.graph, builder.closed, &readers, &anchor);
        if steps.iter().any(|step| matches!(step, Step::Multiply(_) | Step::Normalize(..))) {
            let result = build(builder, &anchor, &steps)?;
            chains.push(Chain { nodes, result });
        }
    }
    Ok(chains)
}

fn anchor(graph: &Graph, closed: &Closed, id: NodeId) -> Option<Anchor> {
    let node = graph.node(id);
    let is_flag = |name: &str| node.attrs.bool(name).unwrap_or(false);
    let (last, rank) = match node.op.as_str() {
        "Conv2D" | "DepthwiseConv2dNative" => ("NHWC", 4),
        "Conv3D" => ("NDHWC", 5),
        "MatMul" => ("", 2),
        _ => return None,
    };
    if !last.is_empty() && node.attrs.text("data_format").ok()? != last {
        return None;
    }
    let filter = *node.inputs.get(1).filter(|_| closed.get(id).is_none())?;
    let data_type = closed.get(filter.node)?.facts.get(filter.index as usize)?.data_type;
    let shape = closed.shape(filter)?.to_vec();
    let (channels, of_filter) = match (node.op.as_str(), &shape[..]) {
        ("Conv2D", [.., channels]) | ("Conv3D", [.., channels]) => (*channels, vec![*channels]),
        ("DepthwiseConv2dNative", [_, _, inputs, each]) => (inputs.checked_mul(*each)?, vec![*inputs, *each]),
        ("MatMul", [rows, _]) if is_flag("transpose_b") => (*rows, vec![*rows, 1]),
        ("MatMul", [_, columns]) => (*columns, vec![*columns]),
        _ => return None,
    };
    // In types of two bytes a filter of its own would be rounded otherwise than a result.
    let is_exact = matches!(data_type, DataType::Float | DataType::Double);
    (is_exact && channels > 0).then_some(Anchor { node: id, data_type, channels, rank, of_filter })
}

/// The nodes of the chain that begins with the anchor, and what they do.
fn follow(graph: &Graph, closed: &Closed, readers: &Readers, anchor: &Anchor) -> (Vec<NodeId>, Vec<Step>) {
    let (mut nodes, mut steps) = (vec![anchor.node], Vec::new());
    let mut at = anchor.node;
    while let Some((next, input)) = readers.only(at) {
        let node = graph.node(next);
        let waits = !node.controls.iter().all(|control| closed.get(*control).is_some());
        let is_last = |step: &Step| !matches!(step, Step::Normalize(..)) || readers.reads_first_only(next);
        match step(node, input, closed, anchor).filter(|step| !waits && !readers.controls.contains(&next) && is_last(step)) {
            Some(step) => steps.push(step),
            None => break,
        }
        nodes.push(next);
        at = next;
    }
    (nodes, steps)
}

fn step(node: &Node, input: usize, closed: &Closed, anchor: &Anchor) -> Option<Step> {
    let is_vector = |tensor: &Output| {
        let fact = closed.get(tensor.node).and_then(|value| value.facts.get(tensor.index as usize));
        let shape = closed.shape(*tensor).unwrap_or_default();
        fact.is_some_and(|fact| fact.data_type == anchor.data_type)
            && shape.last() == Some(&anchor.channels)
            && shape.iter().product::<u64>() == anchor.channels
            && shape.len() <= anchor.rank
    };
    let operand = |index: usize| node.inputs.get(index).copied().filter(is_vector);
    let has_channels_last = || node.attrs.text("data_format").is_ok_and(|format| matches!(format, "NHWC" | "NDHWC"));
    match (node.op.as_str(), input) {
        ("BiasAdd", 0) if has_channels_last() => operand(1).map(Step::Add),
        ("Add" | "AddV2", 0 | 1) => operand(1 - input).map(Step::Add),
        ("Sub", 0) => operand(1).map(Step::Subtract),
        ("Mul", 0 | 1) => operand(1 - input).map(Step::Multiply),
        ("FusedBatchNorm" | "FusedBatchNormV2" | "FusedBatchNormV3", 0)
            if has_channels_last() && anchor.data_type == DataType::Float && !node.attrs.bool("is_training").ok()? =>
        {
            let operands = [operand(1)?, operand(2)?, operand(3)?, operand(4)?];
            Some(Step::Normalize(operands, node.attrs.float("epsilon").ok()?))
        }
        _ => None,
    }
}

/// The new form of a chain: its result.
fn build(builder: &mut Appender<'_>, anchor: &Anchor, steps: &[Step]) -> Result<Output> {
    let node = builder.graph.node(anchor.node).clone();
    let mut vectors = Vectors { builder, anchor, name: format!("{}/folded", node.name) };
    let (mut scale, mut offset): (Option<Output>, Option<Output>) = (None, None);
    for step in steps {
        match step {
            Step::Add(operand) => offset = Some(vectors.plus(offset, *operand)?),
            Step::Subtract(operand) => {
                let operand = vectors.flat(*operand)?;
                offset = Some(match offset {
                    Some(offset) => vectors.of("Sub", &[offset, operand])?,
                    None => vectors.of("Neg", &[operand])?,
                });
            }
            Step::Multiply(operand) => {
                let operand = vectors.flat(*operand)?;
                scale = Some(vectors.times(scale, operand)?);
                offset = offset.map(|offset| vectors.of("Mul", &[offset, operand])).transpose()?;
            }
            Step::Normalize([gamma, beta, mean, variance], epsilon) => {
                let epsilon = vectors.constant(HostTensor::scalar(*epsilon))?;
                let spread = vectors.of("AddV2", &[*variance, epsilon])?;
                let spread = vectors.of("Rsqrt", &[spread])?;
                let factor = vectors.of("Mul", &[*gamma, spread])?;
                scale = Some(vectors.times(scale, factor)?);
                let moved = vectors.of("Mul", &[*mean, factor])?;
                let moved = vectors.of("Sub", &[*beta, moved])?;
                offset = offset.map(|offset| vectors.of("Mul", &[offset, factor])).transpose()?;
                offset = Some(vectors.plus(offset, moved)?);
            }
        }
    }
    let mut filter = node.inputs[1];
    // The graph keeps its constants: a filter that is one would be there twice, so its results are multiplied.
    let is_constant = vectors.builder.closed.get(filter.node).is_some_and(|value| value.sources.is_empty());
    if let Some(scale) = scale.filter(|_| !is_constant) {
        let scale = vectors.shaped(scale, &anchor.of_filter)?;
        filter = vectors.of("Mul", &[filter, scale])?;
    }
    let (name, beside) = (vectors.name, anchor.node);
    if !is_constant {
        filter = builder.keep(filter, format!("{name}/filter"), beside)?;
    }
    let attrs: Vec<(&str, AttrValue)> = node.attrs.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    let mut result = builder.open(&node.op, name.clone(), &[node.inputs[0], filter], &attrs, beside)?;
    builder.graph.node_mut(result.node).controls.clone_from(&node.controls);
    if let Some(scale) = scale.filter(|_| is_constant) {
        let scale = builder.keep(scale, format!("{name}/scale"), beside)?;
        let attrs = [("T", AttrValue::data_type(anchor.data_type))];
        result = builder.open("Mul", format!("{name}/Mul"), &[result, scale], &attrs, beside)?;
    }
    if let Some(offset) = offset {
        let bias = builder.keep(offset, format!("{name}/bias"), beside)?;
        let attrs = [("T", AttrValue::data_type(anchor.data_type))];
        result = builder.open("BiasAdd", format!("{name}/BiasAdd"), &[result, bias], &attrs, beside)?;
    }
    Ok(result)
}

/// Arithmetic of vectors of channels.
struct Vectors<'b, 'a> {
    builder: &'b mut Appender<'a>,
    anchor: &'b Anchor,
    name: String,
}

impl Vectors<'_, '_> {
    fn of(&mut self, op: &str, inputs: &[Output]) -> Result<Output> {
        let attrs = [("T", AttrValue::data_type(self.anchor.data_type))];
        self.builder.closed(op, format!("{}/{op}", self.name), inputs, &attrs, self.anchor.node)
    }

    fn constant(&mut self, value: HostTensor) -> Result<Output> {
        let attrs = [("dtype", AttrValue::data_type(value.data_type())), ("value", AttrValue::Tensor(value))];
        self.builder.closed("Const", format!("{}/Const", self.name), &[], &attrs, self.anchor.node)
    }

    fn shaped(&mut self, tensor: Output, dims: &[u64]) -> Result<Output> {
        if self.builder.closed.shape(tensor).is_some_and(|shape| shape.dims() == dims) {
            return Ok(tensor);
        }
        let dims: Vec<i64> = dims.iter().map(|dim| *dim as i64).collect();
        let shape = self.constant(HostTensor::from_slice([dims.len() as u64], &dims)?)?;
        let types = [("T", self.anchor.data_type), ("Tshape", DataType::Int64)];
        let attrs = types.map(|(name, data_type)| (name, AttrValue::data_type(data_type)));
        self.builder.closed("Reshape", format!("{}/Reshape", self.name), &[tensor, shape], &attrs, self.anchor.node)
    }

    fn flat(&mut self, tensor: Output) -> Result<Output> {
        self.shaped(tensor, &[self.anchor.channels])
    }

    fn plus(&mut self, sum: Option<Output>, operand: Output) -> Result<Output> {
        let operand = self.flat(operand)?;
        sum.map_or(Ok(operand), |sum| self.of("AddV2", &[sum, operand]))
    }

    fn times(&mut self, product: Option<Output>, operand: Output) -> Result<Output> {
        product.map_or(Ok(operand), |product| self.of("Mul", &[product, operand]))
    }
}

impl Readers {
    fn new(graph: &Graph) -> Readers {
        let mut readers = Readers { data: HashMap::new(), controls: Default::default() };
        for (id, node) in graph.nodes().iter() {
            for (input, output) in node.inputs.iter().enumerate() {
                readers.data.entry(output.node).or_default().push((output.index, id, input));
            }
            readers.controls.extend(&node.controls);
        }
        readers
    }

    /// The only reader of a node, which reads its first output, and the number of the input.
    fn only(&self, id: NodeId) -> Option<(NodeId, usize)> {
        match self.data.get(&id).map(Vec::as_slice) {
            Some([(0, reader, input)]) if !self.controls.contains(&id) => Some((*reader, *input)),
            _ => None,
        }
    }

    fn reads_first_only(&self, id: NodeId) -> bool {
        self.data.get(&id).is_none_or(|readers| readers.iter().all(|(output, ..)| *output == 0))
    }
}
