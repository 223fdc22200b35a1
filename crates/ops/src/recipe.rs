//! Operations that are several works, one behind another: a product between two transposes, say.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{HostTensor, Shape};
use plimsoll_request::KernelRequest;
use plimsoll_request::anchor::Anchor;
use plimsoll_request::check::Requirement;
use plimsoll_request::expr::{BinaryOp, Expr, ExprBuilder, UnaryOp};
use plimsoll_request::movement::Movement;
use plimsoll_request::reduce::{ReduceOp, Reduction, ScanOp};

use crate::{KernelCx, Meta};

/// Where a tensor of a recipe comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// An input of the node.
    Input(usize),
    /// A result of a step.
    Made {
        /// The step.
        step: usize,
        /// Which of its results.
        result: usize,
    },
}

/// A tensor of a recipe, seen in some type and shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Ingredient {
    /// Where its elements are.
    pub source: Source,
    /// Its type and shape.
    pub meta: Meta,
}

impl Ingredient {
    /// The same elements in another shape.
    ///
    /// # Errors
    /// INTERNAL where the shape has other elements.
    pub fn reshaped(&self, shape: impl Into<Shape>) -> Result<Ingredient> {
        let shape = shape.into();
        if shape.elements()? != self.meta.shape.elements()? {
            return Err(Error::internal(format!("a recipe sees a tensor of shape {} as {shape}", self.meta.shape)));
        }
        Ok(Ingredient { source: self.source, meta: Meta { data_type: self.meta.data_type, shape } })
    }

    /// The bytes of its elements as elements of another type with as many.
    ///
    /// # Errors
    /// INTERNAL where elements of the type have other bytes.
    pub fn seen_as(&self, data_type: DataType) -> Result<Ingredient> {
        if data_type.size().is_none() || data_type.size() != self.meta.data_type.size() {
            return Err(Error::internal(format!("a recipe sees {} as {data_type}", self.meta.data_type)));
        }
        Ok(Ingredient { source: self.source, meta: Meta { data_type, shape: self.meta.shape.clone() } })
    }

    /// Its dimensions.
    pub fn dims(&self) -> &[u64] {
        self.meta.shape.dims()
    }

    /// The type of its elements.
    pub fn data_type(&self) -> DataType {
        self.meta.data_type
    }
}

/// What a step computes.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "a recipe has a few steps")]
pub enum Computation {
    /// An expression for every element of a shape, to which the inputs broadcast. It may be joined with its neighbours.
    Expr(Expr, Shape),
    /// A product or convolution. Expressions that follow may become its epilogue.
    Anchor(Anchor),
    /// A request. Its arguments are all inputs, then all results.
    Request(KernelRequest),
}

/// A work of a recipe.
#[derive(Clone, Debug)]
pub struct Step {
    /// What it computes.
    pub computes: Computation,
    /// What it reads.
    pub inputs: Vec<Ingredient>,
    /// Types and shapes of its results. A step without results is there for its checks.
    pub outputs: Vec<Meta>,
}

impl Step {
    /// The request that computes it.
    pub fn request(&self) -> KernelRequest {
        match &self.computes {
            Computation::Expr(expr, shape) => KernelRequest::Expr {
                expr: expr.clone(),
                shape: shape.to_vec(),
                operands: self.inputs.iter().map(|input| input.meta.shape.to_vec()).collect(),
            },
            Computation::Anchor(anchor) => KernelRequest::Anchor { anchor: *anchor, epilogue: None, pooling: None },
            Computation::Request(request) => request.clone(),
        }
    }
}

/// The works that compute a node, in order.
#[derive(Clone, Debug, Default)]
pub struct Recipe {
    steps: Vec<Step>,
    results: Vec<Ingredient>,
}

impl Recipe {
    /// Nothing is computed yet.
    pub fn new() -> Recipe {
        Recipe::default()
    }

    /// The steps, each behind those whose results it reads.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The outputs of the node.
    pub fn results(&self) -> &[Ingredient] {
        &self.results
    }

    /// Input `index` of the node.
    pub fn input(&self, cx: &KernelCx<'_>, index: usize) -> Ingredient {
        Ingredient { source: Source::Input(index), meta: cx.inputs[index].clone() }
    }

    /// The recipe, whose results are the node's outputs.
    #[must_use]
    pub fn finish(self, results: impl Into<Vec<Ingredient>>) -> Recipe {
        Recipe { results: results.into(), ..self }
    }

    /// A step that answers a request; its results have these types and shapes.
    pub fn request(
        &mut self,
        request: KernelRequest,
        inputs: impl Into<Vec<Ingredient>>,
        outputs: impl Into<Vec<Meta>>,
    ) -> Vec<Ingredient> {
        self.step(Computation::Request(request), inputs.into(), outputs.into())
    }

    /// As [`Recipe::request`], of one result.
    pub fn one(&mut self, request: KernelRequest, inputs: impl Into<Vec<Ingredient>>, output: Meta) -> Ingredient {
        self.request(request, inputs, [output]).swap_remove(0)
    }

    /// Elements of one tensor that are moved into a tensor of `shape`.
    ///
    /// # Errors
    /// As [`Meta::element`].
    pub fn moved(&mut self, movement: Movement, of: &Ingredient, shape: impl Into<Shape>) -> Result<Ingredient> {
        let element = of.meta.element()? as usize;
        let output = Meta { data_type: of.meta.data_type, shape: shape.into() };
        Ok(self.one(KernelRequest::Movement { element, movement }, [of.clone()], output))
    }

    /// A tensor with its dimensions in another order; itself where the elements stay where they are.
    ///
    /// # Errors
    /// As [`Meta::element`].
    pub fn transposed(&mut self, of: &Ingredient, perm: &[usize]) -> Result<Ingredient> {
        let dims = of.dims();
        let shape: Vec<u64> = perm.iter().map(|&dim| dims[dim]).collect();
        let moving = perm.iter().filter(|&&dim| dims[dim] != 1);
        if moving.is_sorted() {
            return of.reshaped(shape);
        }
        self.moved(Movement::Transpose { shape: dims.to_vec(), perm: perm.to_vec() }, of, shape)
    }

    /// A product or a convolution with a result of that shape.
    pub fn anchor(&mut self, anchor: Anchor, inputs: [Ingredient; Anchor::INPUTS], shape: impl Into<Shape>) -> Ingredient {
        let output = Meta { data_type: anchor.data_type(), shape: shape.into() };
        self.step(Computation::Anchor(anchor), inputs.to_vec(), vec![output]).swap_remove(0)
    }

    /// The results of an expression for every element of `shape`; the inputs broadcast to it.
    pub fn expression(&mut self, expr: Expr, inputs: impl Into<Vec<Ingredient>>, shape: impl Into<Shape>) -> Vec<Ingredient> {
        let shape = shape.into();
        let meta = |data_type| Meta { data_type, shape: shape.clone() };
        let outputs = expr.output_types().into_iter().map(meta).collect();
        self.step(Computation::Expr(expr, shape), inputs.into(), outputs)
    }

    /// One value in, one out, for each element.
    ///
    /// # Errors
    /// UNIMPLEMENTED where the operation does not work on the type.
    pub fn unary(&mut self, op: UnaryOp, of: &Ingredient) -> Result<Ingredient> {
        let mut builder = ExprBuilder::new();
        let x = builder.input(of.data_type())?;
        let result = builder.unary(op, x)?;
        Ok(self.expression(builder.finish(vec![result]), [of.clone()], of.meta.shape.clone()).swap_remove(0))
    }

    /// Two values in, one out, for each element of `shape`, broadcasting.
    ///
    /// # Errors
    /// As [`Recipe::unary`].
    pub fn binary(&mut self, op: BinaryOp, of: [&Ingredient; 2], shape: impl Into<Shape>) -> Result<Ingredient> {
        let mut builder = ExprBuilder::new();
        let (x, y) = (builder.input(of[0].data_type())?, builder.input(of[1].data_type())?);
        let result = builder.binary(op, x, y)?;
        Ok(self.expression(builder.finish(vec![result]), of.map(Ingredient::clone), shape).swap_remove(0))
    }

    /// A step that refuses what follows unless all of these bools are true.
    pub fn require(&mut self, requirement: Requirement, of: Ingredient) {
        let shape = of.dims().to_vec();
        let axes = (0..shape.len()).collect();
        let request = Reduction::Reduce { op: ReduceOp::All, data_type: DataType::Bool, shape, axes, divided: false };
        let holds = self.one(KernelRequest::Reduction(request), [of], Meta { data_type: DataType::Bool, shape: Shape::scalar() });
        self.request(KernelRequest::Require(requirement), [holds], []);
    }

    /// Numbers from 0 on, as many as `count`.
    ///
    /// # Errors
    /// UNIMPLEMENTED for a type without numbers.
    pub fn numbered(&mut self, data_type: DataType, count: u64) -> Result<Ingredient> {
        let mut builder = ExprBuilder::new();
        let one = builder.number(data_type, 1.0)?;
        let ones = self.expression(builder.finish(vec![one]), [], [count]).swap_remove(0);
        let scan = Reduction::Scan { op: ScanOp::Sum, data_type, shape: vec![count], axis: 0, exclusive: true, reverse: false };
        Ok(self.one(KernelRequest::Reduction(scan), [ones.clone()], ones.meta))
    }

    fn step(&mut self, computes: Computation, inputs: Vec<Ingredient>, outputs: Vec<Meta>) -> Vec<Ingredient> {
        let step = self.steps.len();
        let made = outputs.iter().cloned().enumerate();
        let made = made.map(|(result, meta)| Ingredient { source: Source::Made { step, result }, meta }).collect();
        self.steps.push(Step { computes, inputs, outputs });
        made
    }

    /// The results, where `answer` computes a request: the folded or interpreted node. None where a step has no answer.
    ///
    /// # Errors
    /// Those of `answer`, and where a result cannot be seen in its shape.
    pub fn evaluate(
        &self,
        inputs: &[HostTensor],
        mut answer: impl FnMut(&KernelRequest, &[&HostTensor], &[Meta]) -> Result<Option<Vec<HostTensor>>>,
    ) -> Result<Option<Vec<HostTensor>>> {
        let mut made: Vec<Vec<HostTensor>> = Vec::with_capacity(self.steps.len());
        let seen = |ingredient: &Ingredient, made: &[Vec<HostTensor>]| {
            let tensor = match ingredient.source {
                Source::Input(input) => &inputs[input],
                Source::Made { step, result } => &made[step][result],
            };
            if tensor.data_type() == ingredient.meta.data_type {
                return tensor.reshaped(ingredient.meta.shape.clone());
            }
            let bytes = tensor.dense()?;
            HostTensor::from_bytes(ingredient.meta.data_type, ingredient.meta.shape.clone(), bytes.bytes().unwrap_or_default())
        };
        for step in &self.steps {
            let arguments = step.inputs.iter().map(|input| seen(input, &made)).collect::<Result<Vec<_>>>()?;
            let Some(results) = answer(&step.request(), &arguments.iter().collect::<Vec<_>>(), &step.outputs)? else { return Ok(None) };
            made.push(results);
        }
        self.results.iter().map(|result| seen(result, &made)).collect::<Result<Vec<_>>>().map(Some)
    }
}
