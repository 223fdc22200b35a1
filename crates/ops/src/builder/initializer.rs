//! First values of variables.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{AttrValue, HostTensor, Output, Shape};

use super::GraphBuilder;
use super::functions::{int_vector, splat};

/// How a variable begins. Seeds are an operation's own; without one the builder's is used (see [`GraphBuilder::set_seed`]).
#[derive(Clone, Debug)]
pub enum Initializer {
    /// All elements 0.
    Zeros,
    /// All elements 1.
    Ones,
    /// All elements this number.
    Constant(f64),
    /// These elements.
    Value(HostTensor),
    /// A tensor of the graph.
    Tensor(Output),
    /// A normal distribution, cut at two standard deviations.
    #[expect(missing_docs, reason = "the distribution's parameters")]
    TruncatedNormal { mean: f32, stddev: f32, seed: Option<i64> },
    /// A normal distribution.
    #[expect(missing_docs, reason = "the distribution's parameters")]
    RandomNormal { mean: f32, stddev: f32, seed: Option<i64> },
    /// Evenly distributed in `[min, max)`.
    #[expect(missing_docs, reason = "the distribution's parameters")]
    RandomUniform { min: f32, max: f32, seed: Option<i64> },
    /// Glorot's: evenly in plus or minus `sqrt(6 / (fan_in + fan_out))`.
    #[expect(missing_docs, reason = "a seed")]
    GlorotUniform { seed: Option<i64> },
    /// He's: truncated normal of standard deviation `sqrt(2 / fan_in)`.
    #[expect(missing_docs, reason = "a seed")]
    HeNormal { seed: Option<i64> },
}

impl Initializer {
    /// A truncated normal distribution around 0.
    pub fn truncated_normal(stddev: f32, seed: Option<i64>) -> Initializer {
        Initializer::TruncatedNormal { mean: 0.0, stddev, seed }
    }

    /// A normal distribution around 0.
    pub fn random_normal(stddev: f32, seed: Option<i64>) -> Initializer {
        Initializer::RandomNormal { mean: 0.0, stddev, seed }
    }

    /// Evenly distributed in `[min, max)`.
    pub fn random_uniform(min: f32, max: f32, seed: Option<i64>) -> Initializer {
        Initializer::RandomUniform { min, max, seed }
    }

    /// Glorot's uniform distribution.
    pub fn glorot_uniform(seed: Option<i64>) -> Initializer {
        Initializer::GlorotUniform { seed }
    }

    /// He's normal distribution.
    pub fn he_normal(seed: Option<i64>) -> Initializer {
        Initializer::HeNormal { seed }
    }
}

/// The standard deviation of a standard normal distribution cut at two.
const STDDEV_OF_TRUNCATED: f64 = 0.879_625_661_034_239_8;

/// The seed where only the operation or only the graph has one (TensorFlow's).
const DEFAULT_GRAPH_SEED: i64 = 87_654_321;

impl GraphBuilder {
    /// The seed of the graph, for random operations without a seed of their own; none for other numbers on every session.
    pub fn set_seed(&mut self, seed: Option<i64>) {
        self.seed = seed;
    }

    /// The attributes `seed` and `seed2` of a random operation made here, by TensorFlow's rule: the graph's seed and the
    /// operation's. The number of nodes so far stands in for an operation's seed; both are 0 where there is no seed at all.
    pub fn seeds(&self, own: Option<i64>) -> (i64, i64) {
        let seeds = match (self.seed, own) {
            (None, None) => return (0, 0),
            (Some(graph), own) => (graph, own.unwrap_or(self.graph.nodes().len() as i64)),
            (None, Some(own)) => (DEFAULT_GRAPH_SEED, own),
        };
        // Two zeros would mean that there is no seed.
        if seeds == (0, 0) { (0, i64::from(i32::MAX)) } else { seeds }
    }

    /// The first value of a variable of that type and shape.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where a given value is of another type or shape; UNIMPLEMENTED for random numbers that are not floats.
    pub fn initial_value(&mut self, initializer: &Initializer, data_type: DataType, shape: &Shape) -> Result<Output> {
        match initializer {
            Initializer::Zeros => self.constant(splat(data_type, shape, 0.0)?).name("zeros").build(),
            Initializer::Ones => self.constant(splat(data_type, shape, 1.0)?).name("ones").build(),
            Initializer::Constant(value) => self.constant(splat(data_type, shape, *value)?).build(),
            Initializer::Value(value) => {
                check(data_type, shape, value.data_type(), &value.shape().into())?;
                self.constant(value.clone()).build()
            }
            Initializer::Tensor(output) => {
                self.check_output(*output)?;
                let fact = self.fact(*output);
                check(data_type, shape, fact.data_type, &fact.shape)?;
                Ok(*output)
            }
            Initializer::TruncatedNormal { mean, stddev, seed } => {
                self.normal("TruncatedNormal", "truncated_normal", data_type, shape, [*mean, *stddev], *seed)
            }
            Initializer::RandomNormal { mean, stddev, seed } => {
                self.normal("RandomStandardNormal", "random_normal", data_type, shape, [*mean, *stddev], *seed)
            }
            Initializer::RandomUniform { min, max, seed } => self.uniform(data_type, shape, [*min, *max], *seed),
            Initializer::GlorotUniform { seed } => {
                let (fan_in, fan_out) = fans(shape);
                let limit = (6.0 / (fan_in + fan_out).max(1.0)).sqrt() as f32;
                self.uniform(data_type, shape, [-limit, limit], *seed)
            }
            Initializer::HeNormal { seed } => {
                let stddev = (2.0 / fans(shape).0.max(1.0)).sqrt() / STDDEV_OF_TRUNCATED;
                self.normal("TruncatedNormal", "truncated_normal", data_type, shape, [0.0, stddev as f32], *seed)
            }
        }
    }

    fn normal(
        &mut self,
        op: &str,
        name: &str,
        data_type: DataType,
        shape: &Shape,
        parameters: [f32; 2],
        seed: Option<i64>,
    ) -> Result<Output> {
        self.random(op, name, ["mean", "stddev"], data_type, shape, parameters, seed, |b, [mean, stddev], numbers, name| {
            let scaled = b.mul(numbers, stddev).build()?;
            b.add(scaled, mean).name(name).build()
        })
    }

    fn uniform(&mut self, data_type: DataType, shape: &Shape, bounds: [f32; 2], seed: Option<i64>) -> Result<Output> {
        self.random("RandomUniform", "random_uniform", ["min", "max"], data_type, shape, bounds, seed, |b, [min, max], numbers, name| {
            let range = b.sub(max, min).build()?;
            let scaled = b.mul(numbers, range).build()?;
            b.add(scaled, min).name(name).build()
        })
    }

    /// Random numbers from `op`, scaled by `scale(builder, parameters, numbers, name)`.
    #[expect(clippy::too_many_arguments, reason = "the parts that differ between the distributions")]
    fn random(
        &mut self,
        op: &str,
        name: &str,
        names: [&str; 2],
        data_type: DataType,
        shape: &Shape,
        parameters: [f32; 2],
        seed: Option<i64>,
        scale: impl FnOnce(&mut GraphBuilder, [Output; 2], Output, &str) -> Result<Output>,
    ) -> Result<Output> {
        if !data_type.is_floating() {
            return Err(Error::unimplemented(format!("random numbers of type {data_type}")));
        }
        self.name_scope(name, |b| {
            let absolute = format!("{}/", b.current_name_scope());
            let dims: Vec<i64> = shape.iter().map(|dim| *dim as i64).collect();
            let dims = b.constant(int_vector(&dims)).name("shape").build()?;
            let first = b.constant(splat(data_type, &Shape::scalar(), parameters[0].into())?).name(names[0]).build()?;
            let second = b.constant(splat(data_type, &Shape::scalar(), parameters[1].into())?).name(names[1]).build()?;
            let (seed, seed2) = b.seeds(seed);
            let numbers = b.op(op).input(dims).attr("dtype", AttrValue::data_type(data_type));
            let numbers = numbers.attr("seed", AttrValue::Int(seed)).attr("seed2", AttrValue::Int(seed2)).build()?;
            scale(b, [first, second], numbers, &absolute)
        })
    }
}

fn check(data_type: DataType, shape: &Shape, given_type: DataType, given: &plimsoll_graph::PartialShape) -> Result<()> {
    if given_type != data_type || !given.admits(shape) {
        return Err(Error::invalid_argument(format!("the initial value is {given_type}{given}, the variable {data_type}{shape}")));
    }
    Ok(())
}

/// How many inputs and outputs an element of the kernel sees: `[..., in, out]`, where leading axes are a receptive field.
fn fans(shape: &Shape) -> (f64, f64) {
    match shape.dims() {
        [] => (1.0, 1.0),
        [only] => (*only as f64, *only as f64),
        [field @ .., inputs, outputs] => {
            let field: f64 = field.iter().map(|dim| *dim as f64).product();
            (field * *inputs as f64, field * *outputs as f64)
        }
    }
}
