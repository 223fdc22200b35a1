//! The graphs that are measured: for each class of kernels, sizes from networks of several kinds.

use std::sync::Arc;

use plimsoll_base::{DataType, Result};
use plimsoll_device::Class;
use plimsoll_graph::{AttrValue, Graph, HostTensor, Output};
use plimsoll_ops::{GraphBuilder, Registry};

/// A graph to be measured.
pub struct Case {
    /// The class that most of its commands are of.
    pub class: Class,
    /// Whether its commands are so small that the time between them is measured with it.
    pub has_gaps: bool,
    make: Make,
}

/// Makes a graph's nodes.
type Make = Box<dyn Fn(&mut Bench) -> Result<()>>;

impl Case {
    /// Makes the graph.
    pub fn build(&self, registry: &Arc<Registry>) -> Result<Built> {
        let mut bench = Bench { builder: GraphBuilder::new(Arc::clone(registry)), feeds: Vec::new(), targets: Vec::new() };
        (self.make)(&mut bench)?;
        Ok(Built { graph: bench.builder.finish(), feeds: bench.feeds, targets: bench.targets })
    }
}

/// A graph with the values of its placeholders.
pub struct Built {
    pub graph: Graph,
    pub feeds: Vec<(String, HostTensor)>,
    pub targets: Vec<String>,
}

/// A graph while it is made.
struct Bench {
    builder: GraphBuilder,
    feeds: Vec<(String, HostTensor)>,
    targets: Vec<String>,
}

impl Bench {
    /// A placeholder with numbers between 0.25 and 1.
    fn floats(&mut self, shape: &[u64]) -> Result<Output> {
        let element = |index: u64| 0.25 + 0.75 * (index.wrapping_mul(2_654_435_761) % 65_536) as f32 / 65_536.0;
        let count = shape.iter().product();
        self.fed(HostTensor::from_slice(shape.to_vec(), &(0..count).map(element).collect::<Vec<f32>>())?)
    }

    /// A placeholder with indices below `limit`.
    fn indices(&mut self, count: u64, limit: u64) -> Result<Output> {
        let element = |index: u64| (index.wrapping_mul(2_654_435_761) % limit) as i32;
        self.fed(HostTensor::from_slice([count], &(0..count).map(element).collect::<Vec<i32>>())?)
    }

    fn fed(&mut self, value: HostTensor) -> Result<Output> {
        let name = format!("x{}", self.feeds.len());
        let placeholder = self.builder.placeholder(&name, value.data_type(), value.shape()).build()?;
        self.feeds.push((name, value));
        Ok(placeholder)
    }

    /// Has the node of `output` run.
    fn run(&mut self, output: Output) {
        self.targets.push(self.builder.node(output.node).name.clone());
    }

    /// Has the gradients of `y` by `xs` run, for a gradient that is fed.
    fn run_gradients(&mut self, y: Output, xs: &[Output], shape: &[u64]) -> Result<()> {
        let dy = self.floats(shape)?;
        for gradient in self.builder.gradients_from(&[y], &[Some(dy)], xs)?.into_iter().flatten() {
            self.run(gradient);
        }
        Ok(())
    }

    fn unary(&mut self, op: &str, x: Output) -> Result<Output> {
        self.builder.op(op).input(x).build()
    }
}

fn case(class: Class, make: impl Fn(&mut Bench) -> Result<()> + 'static) -> Case {
    Case { class, has_gaps: false, make: Box::new(make) }
}

/// The graphs, class after class.
pub fn cases() -> Vec<Case> {
    let families = [
        expressions(),
        products(),
        convolutions(),
        winograd(),
        depthwise(),
        poolings(),
        reductions(),
        movements(),
        gathers(),
        normalizations(),
        losses(),
        others(),
        vec![small()],
    ];
    let mut cases: Vec<Case> = families.into_iter().flatten().collect();
    cases.sort_by_key(|case| case.class);
    cases
}

/// Many commands that take next to no time.
fn small() -> Case {
    let mut small = case(Class::Product, |bench| {
        let (mut x, w) = (bench.floats(&[4, 4])?, bench.floats(&[4, 4])?);
        for _ in 0..100 {
            x = bench.builder.matmul(x, w).build()?;
        }
        bench.run(x);
        Ok(())
    });
    small.has_gaps = true;
    small
}

/// Numbers of elements, from a scalar's neighbourhood to far beyond the caches.
const ELEMENTS: [u64; 8] = [10, 300, 4_096, 40_000, 131_072, 524_288, 2_097_152, 6_291_456];

fn expressions() -> Vec<Case> {
    let mut cases = Vec::new();
    for elements in ELEMENTS {
        cases.push(case(Class::Expression, move |bench| {
            let (x, y) = (bench.floats(&[elements])?, bench.floats(&[elements])?);
            let product = bench.builder.mul(x, y).build()?;
            let sum = bench.builder.sub(product, y).build()?;
            bench.run(sum);
            Ok(())
        }));
        cases.push(case(Class::Expression, move |bench| {
            let x = bench.floats(&[elements])?;
            let y = bench.unary("Tanh", x)?;
            let z = bench.unary("Exp", y)?;
            bench.run(z);
            Ok(())
        }));
    }
    // The step of Adam, and a bias for each channel.
    for elements in [1_000, 235_200, 1_000_000] {
        cases.push(case(Class::Expression, move |bench| {
            let (m, v, g) = (bench.floats(&[elements])?, bench.floats(&[elements])?, bench.floats(&[elements])?);
            let square = bench.builder.mul(g, g).build()?;
            let second = bench.builder.add(v, square).build()?;
            let root = bench.unary("Sqrt", second)?;
            let step = bench.builder.div(m, root).build()?;
            bench.run(step);
            bench.run(second);
            Ok(())
        }));
        cases.push(case(Class::Expression, move |bench| {
            let (x, bias) = (bench.floats(&[elements / 50, 50])?, bench.floats(&[50])?);
            let sum = bench.builder.bias_add(x, bias).build()?;
            let relu = bench.builder.relu(sum).build()?;
            bench.run(relu);
            Ok(())
        }));
    }
    cases
}

fn products() -> Vec<Case> {
    let sizes: [[u64; 3]; 12] = [
        [4, 4, 4],
        [1, 1_000, 1_280],
        [16, 96, 576],
        [32, 128, 3_136],
        [50, 300, 784],
        [50, 10, 100],
        [64, 384, 2_304],
        [128, 192, 384],
        [128, 10, 192],
        [197, 768, 64],
        [512, 300, 784],
        [640, 640, 640],
    ];
    let mut cases = Vec::new();
    for [m, n, k] in sizes {
        cases.push(case(Class::Product, move |bench| {
            let (x, w, bias) = (bench.floats(&[m, k])?, bench.floats(&[k, n])?, bench.floats(&[n])?);
            let product = bench.builder.matmul(x, w).build()?;
            let sum = bench.builder.bias_add(product, bias).build()?;
            let relu = bench.builder.relu(sum).build()?;
            bench.run(relu);
            Ok(())
        }));
        cases.push(case(Class::Product, move |bench| {
            let (x, w) = (bench.floats(&[m, k])?, bench.floats(&[k, n])?);
            let product = bench.builder.matmul(x, w).build()?;
            bench.run_gradients(product, &[x, w], &[m, n])
        }));
    }
    // A gradient that an optimizer takes at once.
    for [m, n, k] in [[100, 10, 50], [300, 100, 50], [784, 300, 50], [512, 512, 256]] {
        cases.push(case(Class::Product, move |bench| {
            let (x, dy, m, v) = (bench.floats(&[k, m])?, bench.floats(&[k, n])?, bench.floats(&[m, n])?, bench.floats(&[m, n])?);
            let product = bench.builder.op("MatMul").inputs([x, dy]).attr("transpose_a", AttrValue::Bool(true)).build()?;
            let square = bench.builder.mul(product, product).build()?;
            let (first, second) = (bench.builder.add(m, product).build()?, bench.builder.add(v, square).build()?);
            let root = bench.unary("Sqrt", second)?;
            let step = bench.builder.div(first, root).build()?;
            [first, second, step].into_iter().for_each(|output| bench.run(output));
            Ok(())
        }));
    }
    for side in [8u64, 64, 256] {
        cases.push(case(Class::GenericProduct, move |bench| {
            let values: Vec<f64> = (0..side * side).map(|index| index as f64 / 7.0).collect();
            let x = bench.fed(HostTensor::from_slice([side, side], &values)?)?;
            let product = bench.builder.matmul(x, x).build()?;
            bench.run(product);
            Ok(())
        }));
    }
    cases
}

/// Images, their side, channels before and after, the filter's side, stride.
const CONVOLUTIONS: [[u64; 6]; 14] = [
    [1, 96, 3, 16, 3, 2],
    [1, 48, 16, 8, 1, 1],
    [1, 24, 16, 96, 1, 1],
    [1, 12, 96, 16, 1, 1],
    [1, 6, 192, 32, 1, 1],
    [1, 56, 64, 64, 3, 1],
    [1, 14, 256, 256, 3, 1],
    [1, 112, 3, 64, 7, 2],
    [8, 28, 1, 32, 5, 1],
    [32, 28, 1, 32, 5, 1],
    [32, 14, 32, 64, 5, 1],
    [32, 24, 3, 64, 5, 1],
    [128, 24, 3, 64, 5, 1],
    [64, 12, 64, 64, 5, 1],
];

fn convolutions() -> Vec<Case> {
    let mut cases = Vec::new();
    for [batch, side, before, after, taps, stride] in CONVOLUTIONS {
        let [input, filter] = [[batch, side, side, before], [taps, taps, before, after]];
        let strides = [stride as i64, stride as i64];
        for activation in ["Relu", "Relu6", "Elu"] {
            cases.push(case(Class::Convolution, move |bench| {
                let (x, w, bias) = (bench.floats(&input)?, bench.floats(&filter)?, bench.floats(&[after])?);
                let convolution = bench.builder.conv2d(x, w, strides, "SAME").build()?;
                let sum = bench.builder.bias_add(convolution, bias).build()?;
                let result = bench.unary(activation, sum)?;
                bench.run(result);
                Ok(())
            }));
        }
        if stride == 1 {
            cases.push(case(Class::FilterGradient, move |bench| {
                let (x, w) = (bench.floats(&input)?, bench.floats(&filter)?);
                let convolution = bench.builder.conv2d(x, w, strides, "SAME").build()?;
                bench.run_gradients(convolution, &[x, w], &[batch, side, side, after])
            }));
        }
    }
    cases
}

/// Images, side, channels before and after, taps.
const WINOGRAD: [[u64; 5]; 16] = [
    [1, 14, 256, 256, 3],
    [1, 28, 128, 128, 3],
    [1, 56, 64, 64, 3],
    [1, 7, 512, 512, 3],
    [1, 28, 24, 40, 3],
    [4, 7, 512, 512, 3],
    [4, 14, 256, 256, 3],
    [8, 28, 128, 128, 3],
    [8, 56, 64, 64, 3],
    [16, 32, 16, 16, 3],
    [32, 32, 32, 32, 3],
    [64, 8, 64, 64, 3],
    [8, 56, 3, 64, 3],
    [32, 24, 3, 64, 5],
    [32, 12, 64, 64, 5],
    [8, 28, 32, 96, 5],
];

fn winograd() -> Vec<Case> {
    let mut cases = Vec::new();
    for [batch, side, before, after, taps] in WINOGRAD {
        let [input, filter] = [[batch, side, side, before], [taps, taps, before, after]];
        cases.push(case(Class::Winograd, move |bench| {
            let (x, w, bias) = (bench.floats(&input)?, bench.floats(&filter)?, bench.floats(&[after])?);
            let convolution = bench.builder.conv2d(x, w, [1, 1], "SAME").build()?;
            let sum = bench.builder.bias_add(convolution, bias).build()?;
            let result = bench.unary("Relu", sum)?;
            bench.run(result);
            Ok(())
        }));
        cases.push(case(Class::Winograd, move |bench| {
            let (x, w) = (bench.floats(&input)?, bench.floats(&filter)?);
            let convolution = bench.builder.conv2d(x, w, [1, 1], "SAME").build()?;
            bench.run_gradients(convolution, &[x, w], &[batch, side, side, after])
        }));
    }
    cases
}

fn depthwise() -> Vec<Case> {
    let mut cases = Vec::new();
    for [batch, side, channels, taps] in [[1, 48, 16, 3], [1, 24, 96, 3], [1, 12, 192, 3], [1, 6, 336, 3], [1, 14, 240, 5], [8, 28, 64, 3]]
    {
        let shape = [batch, side, side, channels];
        let convolved = move |bench: &mut Bench| {
            let (x, w) = (bench.floats(&shape)?, bench.floats(&[taps, taps, channels, 1])?);
            let op = bench.builder.op("DepthwiseConv2dNative").inputs([x, w]).attr("strides", AttrValue::ints([1, 1, 1, 1]));
            Ok::<_, plimsoll_base::Error>((x, w, op.attr("padding", AttrValue::text("SAME")).build()?))
        };
        cases.push(case(Class::Depthwise, move |bench| {
            let (_, _, convolution) = convolved(bench)?;
            let relu = bench.unary("Relu6", convolution)?;
            bench.run(relu);
            Ok(())
        }));
        cases.push(case(Class::Depthwise, move |bench| {
            let (x, w, convolution) = convolved(bench)?;
            bench.run_gradients(convolution, &[x, w], &shape)
        }));
    }
    cases
}

fn poolings() -> Vec<Case> {
    let mut cases = Vec::new();
    for [batch, side, channels, window, stride] in [
        [1u64, 7, 16, 2, 2],
        [1, 14, 8, 2, 2],
        [2, 14, 16, 2, 2],
        [1, 28, 8, 2, 2],
        [2, 32, 16, 2, 2],
        [1, 56, 64, 3, 2],
        [8, 24, 32, 2, 2],
        [32, 28, 32, 2, 2],
        [32, 12, 64, 3, 2],
        [128, 24, 64, 3, 2],
    ] {
        let out = side.div_ceil(stride);
        let (window, strides) = ([window as i64; 2], [stride as i64; 2]);
        for largest in [true, false] {
            let pooled = move |bench: &mut Bench| {
                let x = bench.floats(&[batch, side, side, channels])?;
                let op = if largest { GraphBuilder::max_pool } else { GraphBuilder::avg_pool };
                Ok::<_, plimsoll_base::Error>((x, op(&mut bench.builder, x, window, strides, "SAME").build()?))
            };
            cases.push(case(Class::Pooling, move |bench| {
                let (_, pooled) = pooled(bench)?;
                bench.run(pooled);
                Ok(())
            }));
            cases.push(case(Class::Pooling, move |bench| {
                let (x, pooled) = pooled(bench)?;
                bench.run_gradients(pooled, &[x], &[batch, out, out, channels])
            }));
        }
    }
    cases
}

fn reductions() -> Vec<Case> {
    let mut cases = Vec::new();
    for [rows, columns] in [[16, 1], [50, 10], [50, 300], [512, 300], [128, 4_096], [6_272, 64], [73_728, 64], [1_000, 1_000]] {
        for axes in [vec![0], vec![1], vec![0, 1]] {
            cases.push(case(Class::Reduction, move |bench| {
                let x = bench.floats(&[rows, columns])?;
                let sum = bench.builder.reduce_sum(x, Some(&axes)).build()?;
                bench.run(sum);
                Ok(())
            }));
        }
        cases.push(case(Class::Reduction, move |bench| {
            let x = bench.floats(&[rows, columns])?;
            let norm = bench.builder.l2_loss(x).build()?;
            bench.run(norm);
            let largest = bench.builder.arg_max(x, 1).build()?;
            bench.run(largest);
            Ok(())
        }));
    }
    cases
}

fn movements() -> Vec<Case> {
    let mut cases = Vec::new();
    for [rows, columns] in [[4, 10], [64, 64], [512, 300], [1_024, 1_024], [2_304, 1_024]] {
        cases.push(case(Class::Movement, move |bench| {
            let (x, y) = (bench.floats(&[rows, columns])?, bench.floats(&[rows, columns])?);
            let joined = bench.builder.concat([x, y], 1).build()?;
            bench.run(joined);
            Ok(())
        }));
        cases.push(case(Class::Movement, move |bench| {
            let x = bench.floats(&[rows, columns])?;
            let perm = bench.builder.constant(HostTensor::from_slice([2], &[1i32, 0])?).build()?;
            let turned = bench.builder.op("Transpose").inputs([x, perm]).build()?;
            bench.run(turned);
            let pads = bench.builder.constant(HostTensor::from_slice([2, 2], &[1i32, 1, 2, 2])?).build()?;
            let padded = bench.builder.op("Pad").inputs([x, pads]).build()?;
            bench.run(padded);
            Ok(())
        }));
    }
    cases
}

fn gathers() -> Vec<Case> {
    let mut cases = Vec::new();
    for [rows, columns, count] in [[100, 8, 16], [10_000, 64, 128], [10_000, 64, 4_096], [2_000, 1_024, 1_024]] {
        cases.push(case(Class::Gather, move |bench| {
            let (x, at) = (bench.floats(&[rows, columns])?, bench.indices(count, rows)?);
            let axis = bench.builder.scalar(0i32)?;
            let taken = bench.builder.op("GatherV2").inputs([x, at, axis]).build()?;
            bench.run(taken);
            Ok(())
        }));
    }
    cases
}

fn normalizations() -> Vec<Case> {
    let mut cases = Vec::new();
    for [batch, side, channels] in [[1, 14, 32], [1, 56, 64], [8, 28, 64], [32, 24, 64], [128, 24, 64]] {
        let shape = [batch, side, side, channels];
        cases.push(case(Class::Normalization, move |bench| {
            let x = bench.floats(&shape)?;
            let normal = bench.builder.lrn(x).build()?;
            bench.run(normal);
            bench.run_gradients(normal, &[x], &shape)
        }));
        cases.push(case(Class::Normalization, move |bench| {
            let x = bench.floats(&shape)?;
            let [scale, offset] = [bench.floats(&[channels])?, bench.floats(&[channels])?];
            let none = bench.builder.constant(HostTensor::from_slice::<f32>([0], &[])?).build()?;
            let op = bench.builder.op("FusedBatchNormV3").inputs([x, scale, offset, none, none]);
            let normal = op.attr("is_training", AttrValue::Bool(true)).build()?;
            bench.run(normal);
            bench.run_gradients(normal, &[x, scale, offset], &shape)
        }));
    }
    cases
}

fn losses() -> Vec<Case> {
    let mut cases = Vec::new();
    for [rows, classes] in [[1, 10], [50, 10], [128, 10], [512, 10], [1, 1_000], [64, 1_000], [4_096, 200]] {
        cases.push(case(Class::Loss, move |bench| {
            let (x, labels) = (bench.floats(&[rows, classes])?, bench.indices(rows, classes)?);
            let loss = bench.builder.sparse_softmax_cross_entropy(x, labels).build()?;
            bench.run(loss);
            let softmax = bench.builder.softmax(x).build()?;
            bench.run(softmax);
            Ok(())
        }));
    }
    cases
}

fn others() -> Vec<Case> {
    let mut cases = Vec::new();
    for elements in [10u64, 10_000, 1_000_000] {
        cases.push(case(Class::Random, move |bench| {
            let shape = bench.builder.constant(HostTensor::from_slice([1], &[elements as i32])?).build()?;
            for op in ["RandomUniform", "RandomStandardNormal"] {
                let op = bench.builder.op(op).input(shape).attr("dtype", AttrValue::data_type(DataType::Float));
                let drawn = op.attr("seed", AttrValue::Int(1)).build()?;
                bench.run(drawn);
            }
            Ok(())
        }));
        cases.push(case(Class::Other, move |bench| {
            let x = bench.floats(&[elements])?;
            let op = bench.builder.op("CheckNumerics").input(x).attr("message", AttrValue::text("x"));
            let checked = op.build()?;
            bench.run(checked);
            Ok(())
        }));
    }
    cases
}
