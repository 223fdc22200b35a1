//! Requests to CUDA C. Pure: the same request gives the same text on every machine, with or without a card.
//!
//! A kernel's text depends on the form of its request alone; sizes are its arguments. So requests of one form share one compiled
//! kernel. Reductions combine in an order that the shape fixes. There are no float atomics, and multiplications are fused only where
//! the text says so: programs are compiled with [`OPTIONS`]. Every kernel has blocks of [`THREADS`] threads in one dimension.
//!
//! The text is in the common part of C and CUDA C. Tests run it as the real compiler translates it, and as a compiler for processors does.

mod conv;
mod copy;
mod decide;
mod depthwise;
mod expr;
mod exprs;
mod gather;
mod in_top_k;
mod lrn;
mod movement;
mod nn;
mod norm;
mod on_rows;
mod pad;
mod pool;
mod product;
mod random;
mod reduce;
mod require;
mod resize;
mod tile;
mod view;
mod write;

use std::collections::BTreeSet;

pub use copy::copy;
pub(crate) use copy::copy_blocks;
pub use decide::decide;
pub use movement::{Packed, packed};
pub use pad::pad;

use plimsoll_base::{Code, DataType, Error, Result};
use plimsoll_request::KernelRequest;
use plimsoll_request::anchor::Anchor;

use crate::cudnn::{EngineLimits, EngineName, GraphPlan};

/// The threads of a block.
pub const THREADS: u32 = 256;

/// The compiler's options beside the architecture.
pub const OPTIONS: &[&str] = &["--fmad=false", "--std=c++17", "-default-device", "-w"];

/// The most blocks of a grid whose threads go on with further elements.
const MOST_BLOCKS: u64 = 2048;

/// The families of kernels: an entry is one of these names and a number that belongs to the text. A kernel of another name is not made.
pub const FAMILIES: &[&str] = &[
    "arg",
    "avg_pool",
    "avg_pool_grad",
    "check",
    "concat",
    "conv",
    "conv_by_filter",
    "conv_by_input",
    "copy",
    "cross_entropy",
    "decide",
    "depthwise",
    "depthwise_by_filter",
    "depthwise_by_input",
    "expr",
    "exprs",
    "fold",
    "fold_parts",
    "in_top_k",
    "join",
    "key_counter",
    "log_softmax",
    "lrn",
    "lrn_grad",
    "lrn_shares",
    "max_pool",
    "max_pool_grad",
    "max_pool_places",
    "move",
    "norm_grad",
    "norm_parts",
    "norm_products",
    "norm_sums",
    "normalize",
    "one_hot",
    "pad",
    "product",
    "random",
    "require",
    "resize",
    "rows",
    "scan",
    "softmax",
    "statistics",
    "take",
    "update_rows",
];

/// The text that every program begins with.
const PRELUDE: &str = include_str!("prelude.cu");

/// The kernels that answer a request, one after the other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Emitted {
    /// What cuDNN computes.
    pub convolution: Option<Convolution>,
    /// How many of the kernels come before it.
    pub before: usize,
    /// The kernels, in order; none where there is nothing to compute.
    pub kernels: Vec<Kernel>,
    /// Bytes of each buffer between them.
    pub between: Vec<u64>,
    /// What the kernels' faults mean: the fault with number `n` is that at `n - 1`.
    pub faults: Vec<FaultText>,
    /// `(input, output)`: the output may lie where the input does.
    pub in_place: Vec<(usize, usize)>,
}

/// A convolution by cuDNN, or another graph of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Convolution {
    /// The graph.
    pub plan: GraphPlan,
    /// How.
    pub engine: EngineName,
    /// What the engine has to keep to.
    pub limits: EngineLimits,
    /// Of a convolution input, filter, result; bias, residual, features, sums and sums of squares, where it has them. Of attention the
    /// request's arguments, and scratch.
    pub tensors: Vec<KernelArg>,
    /// The first of the buffers between.
    pub workspace: KernelArg,
}

/// A kernel and the arguments of its launch.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    /// The name of the function. Kernels of one name have one text.
    pub entry: String,
    /// The text behind the prelude.
    pub body: String,
    /// How many blocks; at least 1.
    pub blocks: u32,
    /// The arguments, in order.
    pub args: Vec<KernelArg>,
}

impl Kernel {
    /// Which of the [`FAMILIES`] it belongs to.
    pub fn family(&self) -> &str {
        self.entry.rsplit_once('_').map_or("", |(family, _)| family)
    }
}

/// An argument of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelArg {
    /// The address of that argument of the request, where inputs come before outputs.
    Argument(u32),
    /// The address of that buffer between the kernels.
    Between(u32),
    /// Four bytes.
    U32(u32),
    /// Eight bytes.
    U64(u64),
    /// The address of the run's fault word: 8 bytes that begin as all ones.
    Fault,
    /// The address of the byte that says whether the command is run, or 0.
    Guard,
    /// The address of the fault word where a command before this one can fail, or 0.
    Stop,
    /// Eight bytes: the command's number in the bits from 44 on. A fault leaves `command | element << 4 | number` there, the least of all.
    FaultBase,
}

/// A fault that a kernel finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultText {
    /// TensorFlow's status code.
    pub code: Code,
    /// The message; `{0}` and `{1}` stand for the numbers.
    pub message: &'static str,
    /// The numbers.
    pub numbers: [FaultNumber; 2],
}

/// A number of a fault's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultNumber {
    /// This one.
    Constant(i64),
    /// That of the element.
    Element,
    /// The integer that the element of that argument, of that type, is.
    Value(u32, DataType),
}

impl FaultText {
    const DIVISION_BY_ZERO: FaultText = FaultText::plain("Integer division by zero");
    const NEGATIVE_POWER: FaultText = FaultText::plain("Integers to negative integer powers are not allowed");

    const fn plain(message: &'static str) -> FaultText {
        FaultText { code: Code::InvalidArgument, message, numbers: [FaultNumber::Constant(0); 2] }
    }

    const fn of(message: &'static str, first: FaultNumber, second: FaultNumber) -> FaultText {
        FaultText { code: Code::InvalidArgument, message, numbers: [first, second] }
    }
}

/// The number of the command in a launch's [`KernelArg::FaultBase`]: commands are numbered below [`MOST_COMMANDS`].
pub const fn fault_base(command: u32) -> u64 {
    (command as u64) << 44
}

/// The commands of a queue whose faults a word can tell apart.
pub const MOST_COMMANDS: u32 = (1 << 20) - 1;

/// The command whose fault is in a word.
pub fn command_of(word: u64) -> u32 {
    (word >> 44) as u32
}

/// A fault word that no kernel has written.
pub const NO_FAULT: u64 = u64::MAX;

/// The number of what is no command's fault: the run was given up while a loop ran on the card.
pub const GIVEN_UP: u32 = 0;

/// The number of a fault and the element that has it, from a fault word; none where there is no fault.
pub fn fault_of(word: u64) -> Option<(u32, u64)> {
    (word != NO_FAULT).then_some(((word & 15) as u32, (word >> 4) & ((1 << 40) - 1)))
}

/// The kernels of a request.
///
/// # Errors
/// UNIMPLEMENTED where there are none; INVALID_ARGUMENT for sizes that make no sense.
pub fn emit(request: &KernelRequest) -> Result<Emitted> {
    let arguments = request.arguments()?;
    let most = arguments.inputs.iter().chain(&arguments.outputs).copied().max().unwrap_or(0);
    if most > MOST_BYTES {
        return Err(Error::unimplemented(format!("a kernel for a card with an argument of {most} bytes")));
    }
    let outputs_are_empty = !arguments.outputs.is_empty() && arguments.outputs.iter().all(|bytes| *bytes == 0);
    let mut emitted = match request {
        KernelRequest::Expr { expr, shape, operands } => expr::emit(expr, shape, operands)?,
        KernelRequest::Exprs(request) => exprs::emit(request)?,
        KernelRequest::OnRows(on) => on_rows::emit(on)?,
        KernelRequest::Movement { element, movement } => movement::emit(*element, movement)?,
        KernelRequest::Reduction(reduction) => reduce::emit(reduction)?,
        KernelRequest::Nn(nn) => nn::emit(*nn)?,
        KernelRequest::BatchNorm { spec, training, reserve_3, summed, epilogue } => {
            let statistics = match (training, summed) {
                (false, _) => norm::Statistics::Given,
                (true, false) => norm::Statistics::OfX,
                (true, true) => norm::Statistics::OfSums,
            };
            norm::batch_norm(spec, statistics, *reserve_3, epilogue.as_ref())?
        }
        KernelRequest::BatchNormGrad { spec, training, relu } => norm::batch_norm_grad(spec, *training, *relu)?,
        KernelRequest::Anchor { anchor: Anchor::Product(data_type, spec), epilogue, pooling: None } => {
            product::emit(*data_type, spec, epilogue.as_ref())?
        }
        KernelRequest::Anchor { anchor: Anchor::Conv(spec), epilogue, pooling: None } => conv::forward(spec, epilogue.as_ref())?,
        KernelRequest::Anchor { anchor: Anchor::ConvBackpropInput(spec), epilogue, pooling: None } => {
            conv::by_input(spec, epilogue.as_ref())?
        }
        KernelRequest::Anchor { anchor: Anchor::DepthwiseConv(spec), epilogue, pooling: None } => {
            depthwise::forward(spec, epilogue.as_ref())?
        }
        KernelRequest::DepthwiseConvBackpropInput(spec) => depthwise::by_input(spec)?,
        KernelRequest::DepthwiseConvBackpropFilter(spec) => depthwise::by_filter(spec)?,
        KernelRequest::ConvBackpropFilter { spec, unpooled: None } => conv::by_filter(spec)?,
        KernelRequest::MaxPool(pooling) => pool::max(pooling)?,
        KernelRequest::MaxPoolGrad(spec) => pool::max_grad(spec)?,
        KernelRequest::MaxPoolGradOfInput { spec, maxima } => pool::max_grad_of_input(spec, *maxima)?,
        KernelRequest::AvgPool(spec) => pool::average(spec)?,
        KernelRequest::AvgPoolGrad(spec) => pool::average_grad(spec)?,
        KernelRequest::Lrn(spec) => lrn::forward(spec)?,
        KernelRequest::LrnGrad(spec) => lrn::gradient(spec)?,
        KernelRequest::Gather(gather) => gather::emit(gather)?,
        KernelRequest::UpdateRows(update) => gather::update_rows(update)?,
        KernelRequest::Random(random) => random::emit(random)?,
        KernelRequest::Resample(spec) => resize::emit(spec)?,
        KernelRequest::Require(requirement) => require::emit(*requirement)?,
        KernelRequest::Nothing => Emitted::default(),
        _ => return Err(Error::unimplemented(format!("a kernel for a card: {}", name_of(request)))),
    };
    if outputs_are_empty && !request.can_fail() {
        emitted = Emitted::default();
    }
    Ok(emitted)
}

/// The text of a program with these kernels.
pub fn program<'a>(kernels: impl IntoIterator<Item = &'a Kernel>) -> String {
    let mut seen = BTreeSet::new();
    let mut text = PRELUDE.to_string();
    for kernel in kernels {
        if seen.insert(kernel.entry.as_str()) {
            text.push('\n');
            text.push_str(&kernel.body);
        }
    }
    text
}

/// The largest argument: the numbers of its elements fit a fault word.
pub(crate) const MOST_BYTES: u64 = 1 << 40;

/// The name of a kind of request, for errors.
fn name_of(request: &KernelRequest) -> String {
    let text = format!("{request:?}");
    text.split(|letter: char| !letter.is_alphanumeric()).next().unwrap_or_default().to_string()
}

/// Elements of a shape; the request's sizes were checked.
fn count(shape: &[u64]) -> u64 {
    shape.iter().product()
}

/// As many blocks as `threads` threads need, or as many as a grid has.
fn blocks(threads: u64) -> u32 {
    threads.div_ceil(u64::from(THREADS)).clamp(1, MOST_BLOCKS) as u32
}
