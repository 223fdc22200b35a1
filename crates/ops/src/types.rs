//! The types that an operation computes: those for which its rules make requests that a library answers.
//!
//! Nothing lists them. A small node is made for each type that the table of operations allows, with inputs of shapes and values that
//! its rules accept, and the requests that it becomes are put to the library. So a type is here when a plan would take it.

use plimsoll_base::{ArgType, Code, DataType, Result};
use plimsoll_device::{DeviceSpec, Library};
use plimsoll_graph::{ArgDef, AttrDef, AttrList, AttrValue, Attrs, HostTensor, Node, OpDef, PartialShape, Shape};
use plimsoll_request::KernelRequest;

use crate::infer::int_tensor;
use crate::{Fact, InferCx, KernelCx, Lower, Meta, OpRules, Registry};

/// The shapes that inputs are tried with. Every size is 2, so that most fit each other; the others are for vectors of a fixed length,
/// boxes, depthwise convolutions, batches of blocks, empty slices, colours and columns.
const SHAPES: [&[u64]; 16] = [
    &[2, 2],
    &[],
    &[2],
    &[2, 2, 2, 2],
    &[2, 2, 2],
    &[1],
    &[4],
    &[2, 2, 2, 2, 2],
    &[2, 4],
    &[5],
    &[3],
    &[2, 2, 2, 4],
    &[4, 2, 2, 2],
    &[0],
    &[2, 2, 3],
    &[2, 1],
];
/// Inputs are tried in all shapes where they are no more than this; otherwise those behind the first have one shape.
const MOST_FREE: usize = 4;
/// The elements of an input, by its position and theirs.
type Values = fn(usize, u64) -> i64;
/// The elements that are tried, where rules have to know them; in the first round they are not known.
const VALUES: [Option<Values>; 6] =
    [None, Some(|_, _| 0), Some(|_, index| index as i64), Some(|_, _| 1), Some(|_, _| 2), Some(|input, _| input as i64 + 1)];
/// Inputs are looked for with no more types than this; those that are accepted are then tried with all.
const MOST_TYPES: usize = 3;
/// Lists of integers (strides, sizes of windows) are ones, this many.
const LISTS: [usize; 4] = [4, 5, 1, 0];

/// The types that an operation computes with a library, in the order of the table; for an operation without a type to choose, those of
/// its arguments. Then those of them that it computes with another library, too, which is asked with inputs that the first accepts. A
/// library comes with the specification that it is asked for. None where no inputs were found that the rules accept.
pub fn types(
    registry: &Registry,
    (library, spec): (&dyn Library, &DeviceSpec),
    other: (&dyn Library, &DeviceSpec),
    op: &str,
) -> Option<(Vec<DataType>, Vec<DataType>)> {
    let (rules, def) = (registry.get(op)?, registry.table().get(op)?);
    let probe = Probe { rules, def: &def, library, spec };
    let second = Probe { library: other.0, spec: other.1, ..probe };
    let main = main_attr(&def);
    if moves_bytes(rules.lower) {
        let types = main.map_or_else(|| fixed_types(&def), allowed);
        return Some((types.clone(), types));
    }
    let Some(main) = main else {
        let accepted = probe.first(&[None])?;
        let types = fixed_types(&def);
        return Some(if second.answers(None, &accepted) { (types.clone(), types) } else { (types, Vec::new()) });
    };
    let tried: Vec<Option<DataType>> = allowed(main).into_iter().map(Some).collect();
    let accepted = probe.first(&tried)?;
    let types: Vec<DataType> = tried.iter().filter(|tried| probe.answers(**tried, &accepted)).filter_map(|tried| *tried).collect();
    let both = types.iter().copied().filter(|data_type| second.answers(Some(*data_type), &accepted)).collect();
    Some((types, both))
}

/// The attribute of a type that says what is computed.
fn main_attr(def: &OpDef) -> Option<&AttrDef> {
    let of = |name: &str| def.attrs.iter().find(|attr| attr.kind == "type" && attr.name == name);
    let of_first = || of(&def.inputs.first()?.type_attr);
    let lists = |attr: &&AttrDef| {
        let mut args = def.inputs.iter().chain(&def.outputs);
        attr.kind == "list(type)" && args.any(|arg| arg.type_list_attr == attr.name)
    };
    let of_results = || def.inputs.is_empty().then(|| def.outputs.iter().find_map(|output| of(&output.type_attr)))?;
    of("dtype").or_else(|| of("T")).or_else(of_first).or_else(|| def.attrs.iter().find(lists)).or_else(of_results)
}

fn allowed(attr: &AttrDef) -> Vec<DataType> {
    let numbers = match &attr.allowed {
        Some(AttrValue::List(list)) => list.types.clone(),
        _ => (1..=DataType::ALL.len() as i32).collect(),
    };
    numbers.into_iter().filter_map(DataType::from_number).filter(|data_type| data_type.size().is_some()).collect()
}

/// The types of the arguments, each once.
fn fixed_types(def: &OpDef) -> Vec<DataType> {
    let mut types = Vec::new();
    for arg in def.inputs.iter().chain(&def.outputs) {
        if let Some(data_type) = DataType::from_number(arg.data_type)
            && data_type.size().is_some()
            && !types.contains(&data_type)
        {
            types.push(data_type);
        }
    }
    types
}

/// The type of an attribute that is either of two complex types, or of those of their parts, beside another type.
fn fitting(attr: &AttrDef, beside: DataType) -> Option<DataType> {
    let allowed = allowed(attr);
    let is_pair = matches!(allowed[..], [DataType::Float, DataType::Double] | [DataType::Complex64, DataType::Complex128]);
    let fits = |data_type: &DataType| Some(*data_type) == beside.part() || Some(*data_type) == beside.pair() || *data_type == beside;
    allowed.iter().copied().find(fits).filter(|_| is_pair)
}

/// A node for a type.
struct Asked {
    data_type: Option<DataType>,
    node: Node,
    inputs: Vec<ArgType>,
    outputs: Vec<ArgType>,
}

/// One of [`SHAPES`].
type Tried = u8;

/// The inputs, by themselves and two at a time, that rules refuse whatever the others are. Rules refuse no less where they know more, so
/// that all shapes of many inputs need not be tried.
struct Refused {
    /// Input and shape have a number. Those of one, then those of two; none where that was not asked.
    answers: Vec<Option<bool>>,
    inputs: usize,
}

impl Refused {
    fn new(inputs: usize) -> Refused {
        let one = inputs * SHAPES.len();
        // The rules themselves are asked as fast about two inputs.
        Refused { answers: vec![None; if inputs < 3 { 0 } else { one + one * one }], inputs }
    }

    /// Whether some of these are refused, as `ask` says where that was not asked before.
    fn has(&mut self, shapes: &[Tried], ask: impl Fn(&[(usize, Tried)]) -> bool) -> bool {
        if self.answers.is_empty() {
            return false;
        }
        let one = self.inputs * SHAPES.len();
        let number = |input: usize| input * SHAPES.len() + usize::from(shapes[input]);
        let mut is_refused = |at: usize, some: &[(usize, Tried)]| *self.answers[at].get_or_insert_with(|| ask(some));
        let of = |input: usize| (input, shapes[input]);
        let mut singles = 0..shapes.len();
        singles.any(|input| is_refused(number(input), &[of(input)]))
            || (0..shapes.len()).any(|first| {
                let mut behind = first + 1..shapes.len();
                behind.any(|second| is_refused(one + number(first) * one + number(second), &[of(first), of(second)]))
            })
    }
}

/// Inputs and attributes that are tried.
#[derive(Clone, Debug)]
struct Attempt {
    shapes: Vec<Tried>,
    value: Option<Values>,
    list: usize,
}

#[derive(Clone, Copy)]
struct Probe<'a> {
    rules: &'a OpRules,
    def: &'a OpDef,
    library: &'a dyn Library,
    spec: &'a DeviceSpec,
}

impl Probe<'_> {
    /// An attempt that the library answers for one of the first types.
    fn first(&self, types: &[Option<DataType>]) -> Option<Attempt> {
        let is_listed = self.def.attrs.iter().any(|attr| attr.kind == "list(int)" && attr.default.is_none());
        // Most work on floats; others on one of their first types.
        let is_float = |data_type: &&Option<DataType>| **data_type == Some(DataType::Float);
        let ordered = types.iter().filter(is_float).chain(types.iter().filter(|data_type| !is_float(data_type)));
        for data_type in ordered.take(MOST_TYPES) {
            for list in LISTS.iter().take(if is_listed { LISTS.len() } else { 1 }) {
                let Some(asked) = self.asked(*data_type, *list) else { continue };
                let count = asked.inputs.len();
                let holds_ints = asked.inputs.iter().any(|arg| matches!(arg.base, DataType::Int32 | DataType::Int64));
                let arrangements: Vec<Vec<Tried>> = self.by_names(count).into_iter().chain(arrangements(count)).collect();
                for value in VALUES.iter().take(if holds_ints { VALUES.len() } else { 1 }) {
                    let mut refused = Refused::new(count);
                    for shapes in &arrangements {
                        if refused.has(shapes, |some| self.is_refused(&asked, some, *value)) {
                            continue;
                        }
                        let attempt = Attempt { shapes: shapes.clone(), value: *value, list: *list };
                        if self.has_kernels(&asked, &attempt) {
                            return Some(attempt);
                        }
                    }
                }
            }
        }
        None
    }

    /// The shapes of an update by rows: those of variables and gradients, of the indices, and of numbers.
    fn by_names(&self, inputs: usize) -> Option<Vec<Tried>> {
        let shape = |arg: &ArgDef| -> &[u64] {
            let is_variable = arg.is_ref || arg.data_type == DataType::Resource.number();
            match arg.name.as_str() {
                "grad" => &[2, 2],
                "indices" => &[2],
                _ if is_variable => &[2, 2],
                _ => &[],
            }
        };
        let tried = |arg: &ArgDef| SHAPES.iter().position(|dims| *dims == shape(arg)).map(|at| at as Tried);
        if self.def.inputs.len() == inputs { self.def.inputs.iter().map(tried).collect() } else { None }
    }

    /// A node for a type, and what it takes and gives; none where there is no such node.
    fn asked(&self, data_type: Option<DataType>, list: usize) -> Option<Asked> {
        let node = self.node(data_type, list)?;
        let (inputs, outputs) = (self.def.input_types(&node.attrs).ok()?, self.def.output_types(&node.attrs).ok()?);
        Some(Asked { data_type, node, inputs, outputs })
    }

    /// Whether the rules accept the inputs for that type, and the library has kernels for the works that the node becomes.
    fn answers(&self, data_type: Option<DataType>, attempt: &Attempt) -> bool {
        self.asked(data_type, attempt.list).is_some_and(|asked| self.has_kernels(&asked, attempt))
    }

    /// As [`Probe::answers`]; what rules know beforehand needs no kernel.
    fn has_kernels(&self, asked: &Asked, attempt: &Attempt) -> bool {
        self.requests(asked, attempt).is_some_and(|requests| {
            requests.iter().all(|request| self.library.variants(self.spec, request).is_ok_and(|variants| !variants.is_empty()))
        })
    }

    /// Whether the rules refuse some inputs, whatever the shapes of the others are.
    fn is_refused(&self, asked: &Asked, some: &[(usize, Tried)], value: Option<Values>) -> bool {
        let unknown = |arg: &ArgType| match arg.base {
            DataType::Resource => resource(asked.data_type, PartialShape::unknown()),
            base => Fact { is_ref: arg.is_ref, ..Fact::new(base, PartialShape::unknown()) },
        };
        let mut inputs: Vec<Fact> = asked.inputs.iter().map(unknown).collect();
        for &(input, tried) in some {
            match input_fact(asked.data_type, &asked.inputs[input], (input, tried), value) {
                Ok(fact) => inputs[input] = fact,
                Err(_) => return true,
            }
        }
        self.inferred(asked, &inputs).is_err_and(|error| error.code() == Code::InvalidArgument)
    }

    /// What the rules say of the results.
    fn inferred(&self, asked: &Asked, inputs: &[Fact]) -> Result<Vec<Fact>> {
        let fact = |arg: &ArgType| Fact { is_ref: arg.is_ref, ..Fact::new(arg.base, PartialShape::unknown()) };
        let mut cx = InferCx::new(&asked.node, inputs, asked.outputs.iter().map(fact).collect());
        (self.rules.infer)(&mut cx)?;
        Ok(cx.outputs)
    }

    fn requests(&self, asked: &Asked, attempt: &Attempt) -> Option<Vec<KernelRequest>> {
        let Asked { data_type, node, .. } = asked;
        let each = asked.inputs.iter().zip(&attempt.shapes).enumerate();
        let inputs: Vec<Fact> =
            each.map(|(input, (arg, tried))| input_fact(*data_type, arg, (input, *tried), attempt.value).ok()).collect::<Option<_>>()?;
        let outputs = self.inferred(asked, &inputs).ok()?;
        if !outputs.is_empty() && outputs.iter().all(|fact| fact.value.is_some()) {
            return Some(Vec::new());
        }
        let outputs = outputs.iter().map(meta).collect::<Option<Vec<Meta>>>()?;
        let metas = inputs.iter().map(meta).collect::<Option<Vec<Meta>>>()?;
        let values: Vec<Option<HostTensor>> = inputs.iter().map(|fact| fact.value.clone()).collect();
        lowered(self.rules.lower, &KernelCx { node, inputs: &metas, outputs: &outputs, values: &values }).ok()
    }

    /// A node of the operation for a type; none where an attribute has no value that could be guessed.
    fn node(&self, data_type: Option<DataType>, list: usize) -> Option<Node> {
        let main = main_attr(self.def).map(|attr| attr.name.as_str());
        let mut attrs = Attrs::new();
        for attr in &self.def.attrs {
            let value = match (data_type, attr.kind.as_str()) {
                (Some(data_type), "type") if main == Some(&attr.name) => AttrValue::data_type(data_type),
                (Some(data_type), "type") if fitting(attr, data_type).is_some() => AttrValue::data_type(fitting(attr, data_type)?),
                _ => attr.default.clone().filter(|value| *value != AttrValue::Unset).or_else(|| guessed(attr, data_type, list))?,
            };
            attrs.insert(attr.name.clone(), value);
        }
        Some(Node { name: self.def.name.clone(), op: self.def.name.clone(), attrs, ..Node::default() })
    }
}

/// The handle of a variable.
fn resource(main: Option<DataType>, shape: PartialShape) -> Fact {
    let handle = Some((main.unwrap_or(DataType::Float), shape));
    Fact { handle, ..Fact::new(DataType::Resource, PartialShape::from(&Shape::scalar())) }
}

/// An input of an attempt.
fn input_fact(main: Option<DataType>, arg: &ArgType, (input, tried): (usize, Tried), value: Option<Values>) -> Result<Fact> {
    let shape = Shape::from(SHAPES[usize::from(tried)].to_vec());
    if arg.base == DataType::Resource {
        return Ok(resource(main, PartialShape::from(&shape)));
    }
    let fact = Fact { is_ref: arg.is_ref, ..Fact::new(arg.base, PartialShape::from(&shape)) };
    match value {
        Some(value) if matches!(arg.base, DataType::Int32 | DataType::Int64 | DataType::Float) && !arg.is_ref => {
            let values: Vec<i64> = (0..shape.elements()?).map(|index| value(input, index)).collect();
            let floats = || values.iter().map(|value| *value as f32).collect::<Vec<f32>>();
            let value = match arg.base {
                DataType::Float => HostTensor::from_slice(shape, &floats())?,
                base => int_tensor(&values, shape, base)?,
            };
            Ok(Fact { value: Some(value), ..fact })
        }
        _ => Ok(fact),
    }
}

/// The value of an attribute that has no default.
fn guessed(attr: &AttrDef, main: Option<DataType>, list: usize) -> Option<AttrValue> {
    let words = match &attr.allowed {
        Some(AttrValue::List(list)) => &list.bytes[..],
        _ => &[],
    };
    let other = || {
        let allowed = allowed(attr);
        [DataType::Int32, DataType::Float].into_iter().find(|data_type| allowed.contains(data_type)).or(allowed.first().copied())
    };
    Some(match attr.kind.as_str() {
        "type" => AttrValue::data_type(other()?),
        "list(type)" => {
            let types = vec![main.unwrap_or(DataType::Float).number(); attr.minimum.unwrap_or(1).max(1) as usize];
            AttrValue::List(Box::new(AttrList { types, ..AttrList::default() }))
        }
        "int" => AttrValue::Int(attr.minimum.unwrap_or(1).max(1)),
        "float" => AttrValue::Float(1.0),
        "bool" => AttrValue::Bool(false),
        "string" => AttrValue::Bytes(words.first().cloned().unwrap_or_default()),
        "list(int)" => AttrValue::ints(vec![1; list]),
        "list(float)" => AttrValue::List(Box::new(AttrList { floats: vec![1.0], ..AttrList::default() })),
        "shape" => AttrValue::Shape(PartialShape::from(&Shape::from(vec![2]))),
        "tensor" => AttrValue::Tensor(HostTensor::zeros(main?, Shape::from(vec![2])).ok()?),
        _ => return None,
    })
}

/// The shapes of so many inputs: all that there are where they are few; otherwise a run of one shape, then one of another, and the
/// last maybe as the first.
fn arrangements(inputs: usize) -> Vec<Vec<Tried>> {
    let shapes = || 0..SHAPES.len() as Tried;
    let mut all: Vec<Vec<Tried>> = shapes().map(|shape| vec![shape; inputs]).collect();
    for first in shapes() {
        for second in shapes() {
            for cut in 1..inputs {
                let run = [vec![first; cut], vec![second; inputs - cut]].concat();
                let mut ends = run.clone();
                ends[inputs - 1] = first;
                all.extend([run, ends]);
            }
        }
    }
    if inputs > 0 && inputs <= MOST_FREE {
        let count = SHAPES.len().pow(inputs as u32);
        let nth = |mut number: usize| {
            let digit = |_| {
                let shape = (number % SHAPES.len()) as Tried;
                number /= SHAPES.len();
                shape
            };
            (0..inputs).map(digit).collect()
        };
        all.extend((0..count).map(nth));
    }
    all
}

/// Type and shape; a handle stands for its variable.
fn meta(fact: &Fact) -> Option<Meta> {
    let (data_type, shape) = match &fact.handle {
        Some((data_type, shape)) => (*data_type, shape),
        None => (fact.data_type, &fact.shape),
    };
    Some(Meta { data_type, shape: shape.complete()? })
}

/// Whether the planner does it by itself: it moves the bytes of any type that has a size.
fn moves_bytes(lower: Lower) -> bool {
    matches!(
        lower,
        Lower::Nothing
            | Lower::ControlTrigger
            | Lower::Const
            | Lower::Placeholder
            | Lower::PlaceholderWithDefault
            | Lower::Variable
            | Lower::Alias
            | Lower::ReadVariable
            | Lower::IsInitialized
            | Lower::Switch
            | Lower::Merge
            | Lower::Restore
            | Lower::Save
            | Lower::Assign
            | Lower::List(_)
            | Lower::Counted(_)
    )
}

/// The requests of the works that a node becomes.
fn lowered(lower: Lower, cx: &KernelCx<'_>) -> Result<Vec<KernelRequest>> {
    let elementwise = |expr, shape: &Shape| KernelRequest::Expr {
        expr,
        shape: shape.to_vec(),
        operands: cx.inputs.iter().map(|input| input.shape.to_vec()).collect(),
    };
    Ok(match lower {
        Lower::Unary(_) | Lower::Binary(_) | Lower::Elementwise(_) => {
            let expr = lower.expression(cx)?;
            expr.map(|expr| elementwise(expr, &cx.outputs[0].shape)).into_iter().collect()
        }
        Lower::Anchor(make) => vec![KernelRequest::Anchor { anchor: make(cx)?.anchor, epilogue: None, pooling: None }],
        Lower::Kernel(make) | Lower::Move(make) | Lower::UpdateInPlace(make) => vec![make(cx)?.request],
        Lower::Recipe(make) => make(cx)?.steps().iter().map(crate::recipe::Step::request).collect(),
        Lower::Stateful(make) => {
            let call = make(cx)?;
            call.before.into_iter().chain([call.request]).collect()
        }
        Lower::Update(make) => {
            let update = make(cx)?;
            vec![elementwise(update.expr, &cx.inputs[update.writes.first().copied().unwrap_or(0)].shape)]
        }
        _ => Vec::new(),
    })
}
