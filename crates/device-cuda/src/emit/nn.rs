//! Softmax and losses: lanes of a block share a row, and keep to the order of the lanes.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_request::nn::Nn;

use super::write::{Index, Writer, computed, is_float, narrow, stored, widen};
use super::{Emitted, FaultNumber, FaultText, KernelArg, MOST_BLOCKS, THREADS};

/// A computation on rows.
///
/// # Errors
/// UNIMPLEMENTED for types without a kernel; INVALID_ARGUMENT where there are no classes.
pub(super) fn emit(nn: Nn) -> Result<Emitted> {
    match nn {
        Nn::Softmax { log, data_type, rows, classes } => {
            let rows = Rows::new(data_type, rows, classes)?;
            let mut writer = rows.writer();
            writer.input("p", stored(data_type)?, KernelArg::Argument(0));
            writer.output("q", stored(data_type)?, KernelArg::Argument(1));
            rows.begin(&mut writer);
            rows.sums(&mut writer);
            let result = if log { format!("x - most - {}", rows.log("sum")) } else { format!("{} / sum", rows.power()) };
            rows.each_class(&mut writer, None, Some(&result), "");
            writer.line("}");
            rows.finish(writer, if log { "log_softmax" } else { "softmax" }, vec![(0, 0)], Vec::new())
        }
        Nn::CrossEntropy { data_type, label_type, batch, classes } => {
            if label_type.is_some() && classes == 0 {
                return Err(Error::invalid_argument(format!("Must have at least one class, but got logits shape [{batch},0]")));
            }
            let rows = Rows::new(data_type, batch, classes)?;
            let mut writer = rows.writer();
            let ctype = stored(data_type)?;
            writer.input("p", ctype, KernelArg::Argument(0));
            writer.input("labels", stored(label_type.unwrap_or(data_type))?, KernelArg::Argument(1));
            writer.output("losses", ctype, KernelArg::Argument(2));
            writer.output("q", ctype, KernelArg::Argument(3));
            if label_type.is_some() {
                writer.fault();
            }
            rows.begin(&mut writer);
            rows.sums(&mut writer);
            let t = rows.t;
            if label_type.is_some() {
                writer.line(format!("i64 label = inside ? (i64)labels[k] : 0; {t} log_sum = {};", rows.log("sum")));
                writer.line("if (inside && lane == 0 && (label < 0 || label >= (i64)classes)) fail(fault, base, k, 1);");
                let class = if rows.vector == 1 { "c" } else { "(c + j)" };
                let loss =
                    format!("if ((i64){class} == label) {{ {t} loss = log_sum - (x - most); losses[k] = {}; }}", narrow(data_type, "loss"));
                let result = format!("{} / sum - ((i64){class} == label ? 1 : 0)", rows.power());
                rows.each_class(&mut writer, None, Some(&result), &loss);
                writer.line("}");
            } else {
                writer.line(format!("{t} log_sum = {};", rows.log("sum")));
                rows.accumulator(&mut writer, "0");
                let result = format!("{} / sum - label", rows.power());
                let loss = format!("{} += label * (log_sum - (x - most));", rows.a());
                rows.each_class(&mut writer, Some("labels"), Some(&result), &loss);
                rows.join(&mut writer, Join::Sum);
                writer.line(format!("if (inside && lane == 0) losses[k] = {};", narrow(data_type, rows.joined())));
                writer.line("}");
            }
            let text = "Received a label value of {0} which is outside the valid range of [0, {1}).";
            let faults = label_type.map(|of| FaultText::of(text, FaultNumber::Value(1, of), FaultNumber::Constant(classes as i64)));
            rows.finish(writer, "cross_entropy", vec![(0, 1)], faults.into_iter().collect())
        }
    }
}

/// Rows of classes, and the lanes that share one. Where rows are whole words of 16 bytes, a thread has as many lanes beside each other as a word
/// has classes: the order of sums is that of the lanes, whatever a thread has.
struct Rows {
    data_type: DataType,
    /// The type that is computed with.
    t: &'static str,
    rows: u64,
    classes: u64,
    lanes: u64,
    /// Lanes that a thread has.
    vector: u64,
}

impl Rows {
    fn new(data_type: DataType, rows: u64, classes: u64) -> Result<Rows> {
        if !is_float(data_type) {
            return Err(Error::unimplemented(format!("a kernel for a card: Softmax of {data_type}")));
        }
        let lanes = classes.div_ceil(4).clamp(1, u64::from(THREADS)).next_power_of_two();
        let widest = 16 / data_type.size().unwrap_or(16) as u64;
        let vector = if lanes >= widest && classes.is_multiple_of(widest) { widest } else { 1 };
        Ok(Rows { data_type, t: computed(data_type)?, rows, classes, lanes, vector })
    }

    /// Threads that share a row.
    fn threads(&self) -> u64 {
        self.lanes / self.vector
    }

    fn per_block(&self) -> u64 {
        u64::from(THREADS) / self.threads()
    }

    fn writer(&self) -> Writer {
        Writer::new(Index::of(self.rows * self.classes.max(1)))
    }

    /// The power of the logit `x` less the largest.
    fn power(&self) -> String {
        let exp = if self.t == "f64" { "exp" } else { "exp_f32" };
        format!("{exp}(x - most)")
    }

    fn log(&self, of: &str) -> String {
        format!("{}({of})", if self.t == "f64" { "log" } else { "log_f32" })
    }

    /// What a lane accumulates, in the body of [`Rows::each_class`].
    fn a(&self) -> &'static str {
        if self.vector == 1 { "a" } else { "a[j]" }
    }

    /// What all lanes have behind [`Rows::join`].
    fn joined(&self) -> &'static str {
        if self.vector == 1 { "a" } else { "a[0]" }
    }

    /// Declares what lanes accumulate.
    fn accumulator(&self, writer: &mut Writer, first: &str) {
        writer.line(match self.vector {
            1 => format!("{} a = {first};", self.t),
            vector => format!("{} a[{vector}]; {} a[j] = {first};", self.t, self.each_lane()),
        });
    }

    fn each_lane(&self) -> String {
        format!("_Pragma(\"unroll\") for (u32 j = 0; j < {}; ++j)", self.vector)
    }

    /// The head of the loop over rows: `k`, `lane`, `inside`, and the pointers `from` and `to`.
    fn begin(&self, writer: &mut Writer) {
        let (index, per_block, ctype) = (writer.index(), self.per_block(), stored(self.data_type).unwrap_or("f32"));
        for join in [Join::Most, Join::Sum].into_iter().filter(|_| self.vector > 1) {
            let t = self.t;
            writer.before.push_str(&format!("DEVICE {t} {}({t} a, {t} b) {{ return {}; }}\n", join.function(), join.text()));
        }
        let threads = self.threads();
        writer.size("rows", self.rows as i64);
        writer.size("classes", self.classes as i64);
        if threads > 1 {
            let size = if self.vector == 1 { "THREADS".to_string() } else { format!("{} * THREADS", self.vector) };
            writer.line(format!("__shared__ {} tree[{size}];", self.t));
        }
        writer.line(format!("{index} lane = threadIdx.x % {threads}, tiles = (rows + {}) / {per_block};", per_block - 1));
        writer.line(format!("for ({index} tile = blockIdx.x; tile < tiles; tile += gridDim.x) {{"));
        writer.line(format!("{index} k = tile * {per_block} + threadIdx.x / {threads}; u32 inside = k < rows;"));
        writer.line(format!("const {ctype}* from = p + (inside ? k * classes : 0); {ctype}* to = q + (inside ? k * classes : 0);"));
    }

    /// A statement for each class `c` of a lane with its logit `x`, and with the element `label` of the tensor that is named; and what is
    /// written of it.
    fn each_class(&self, writer: &mut Writer, labels: Option<&str>, result: Option<&str>, body: &str) {
        let (t, index, lanes, vector) = (self.t, writer.index(), self.lanes, self.vector);
        let label_of = |value: String| format!("{t} label = {};", widen(self.data_type, value));
        if vector == 1 {
            writer.line(format!("if (inside) for ({index} c = lane; c < classes; c += {lanes}) {{"));
            let label = labels.map_or(String::new(), |labels| label_of(format!("{labels}[k * classes + c]")));
            writer.line(format!("{t} x = {}; {label} {body}", widen(self.data_type, "from[c]")));
            if let Some(result) = result {
                writer.line(format!("{t} y = {result}; to[c] = {};", narrow(self.data_type, "y")));
            }
            writer.line("}");
            return;
        }
        let word = format!("{}x{vector}", stored(self.data_type).unwrap_or("f32"));
        writer.line(format!("if (inside) for ({index} c = lane * {vector}; c < classes; c += {lanes}) {{"));
        writer.line(format!("{word} v = *(const {word}*)(from + c);"));
        if let Some(labels) = labels {
            writer.line(format!("{word} l = *(const {word}*)({labels} + (k * classes + c));"));
        }
        if result.is_some() {
            writer.line(format!("{word} made;"));
        }
        let label = labels.map_or(String::new(), |_| label_of("l.v[j]".to_string()));
        writer.line(format!("{} {{ {t} x = {}; {label} {body}", self.each_lane(), widen(self.data_type, "v.v[j]")));
        if let Some(result) = result {
            writer.line(format!("{t} y = {result}; made.v[j] = {};", narrow(self.data_type, "y")));
        }
        writer.line(if result.is_some() { format!("}} *({word}*)(to + c) = made;\n  }}") } else { "} }".to_string() });
    }

    /// `most`, the largest logit that is a number, and `sum`, the sum of the powers: both the same in all lanes of a row.
    fn sums(&self, writer: &mut Writer) {
        let t = self.t;
        let infinity = if t == "f64" { "INF_F64" } else { "INF_F32" };
        let a = self.a();
        writer.line(format!("{t} most, sum;\n  {{"));
        self.accumulator(writer, &format!("-{infinity}"));
        self.each_class(writer, None, None, &format!("{a} = x > {a} ? x : {a};"));
        self.join(writer, Join::Most);
        writer.line(format!("most = {}; }}\n  {{", self.joined()));
        self.accumulator(writer, "0");
        self.each_class(writer, None, None, &format!("{a} += {};", self.power()));
        self.join(writer, Join::Sum);
        writer.line(format!("sum = {}; }}", self.joined()));
    }

    /// Joins what lanes have accumulated: all get the result.
    fn join(&self, writer: &mut Writer, join: Join) {
        let (t, threads, vector) = (self.t, self.threads(), self.vector);
        if vector == 1 {
            if threads == 1 {
                return;
            }
            writer.line("tree[threadIdx.x] = a;");
            let mut half = threads / 2;
            while half > 0 {
                writer.line("__syncthreads();");
                writer.line(format!(
                    "if (lane < {half}) {{ {t} b = tree[threadIdx.x + {half}]; a = {}; tree[threadIdx.x] = a; }}",
                    join.text()
                ));
                half /= 2;
            }
            writer.line("__syncthreads();");
            writer.line("a = tree[threadIdx.x - lane];");
            writer.line("__syncthreads();");
            return;
        }
        let function = join.function();
        let each_lane = self.each_lane();
        if threads > 1 {
            writer.line(format!("{each_lane} tree[j * THREADS + threadIdx.x] = a[j];"));
            let mut half = threads / 2;
            while half > 0 {
                writer.line("__syncthreads();");
                writer.line(format!("if (lane < {half}) {each_lane} {{"));
                writer.line(format!(
                    "a[j] = {function}(a[j], tree[j * THREADS + threadIdx.x + {half}]); tree[j * THREADS + threadIdx.x] = a[j];\n  }}"
                ));
                half /= 2;
            }
        }
        let mut half = vector / 2;
        while half > 0 {
            writer.line(format!("_Pragma(\"unroll\") for (u32 j = 0; j < {half}; ++j) a[j] = {function}(a[j], a[j + {half}]);"));
            half /= 2;
        }
        if threads > 1 {
            writer.line("if (lane == 0) tree[threadIdx.x] = a[0];");
            writer.line("__syncthreads();");
            writer.line("a[0] = tree[threadIdx.x - lane];");
            writer.line("__syncthreads();");
        }
    }

    fn finish(&self, writer: Writer, name: &str, in_place: Vec<(usize, usize)>, faults: Vec<FaultText>) -> Result<Emitted> {
        let blocks = self.rows.div_ceil(self.per_block()).clamp(1, MOST_BLOCKS) as u32;
        Ok(Emitted { kernels: vec![writer.finish(name, blocks)?], faults, in_place, ..Emitted::default() })
    }
}

/// How lanes are joined.
#[derive(Clone, Copy, PartialEq)]
enum Join {
    Most,
    Sum,
}

impl Join {
    /// The result, of `a` and `b`.
    fn text(self) -> &'static str {
        if self == Join::Most { "b > a ? b : a" } else { "a + b" }
    }

    /// The name of the function on two lanes, where a thread has several.
    fn function(self) -> &'static str {
        if self == Join::Most { "@_most" } else { "@_sum" }
    }
}
