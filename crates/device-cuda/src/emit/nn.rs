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
            let t = rows.t;
            rows.sums(&mut writer);
            let result = if log { format!("{} - most - {}", rows.x("c"), rows.log("sum")) } else { format!("{} / sum", rows.power("c")) };
            writer.line(format!("if (inside) for ({} c = lane; c < classes; c += {}) {{", writer.index(), rows.lanes));
            writer.line(format!("{t} y = {result}; to[c] = {};", narrow(data_type, "y")));
            writer.line("}\n  }");
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
            let (t, lanes, index) = (rows.t, rows.lanes, writer.index());
            if label_type.is_some() {
                writer.line(format!("i64 label = inside ? (i64)labels[k] : 0; {t} log_sum = {};", rows.log("sum")));
                writer.line("if (inside && lane == 0 && (label < 0 || label >= (i64)classes)) fail(fault, base, k, 1);");
                writer.line(format!("if (inside) for ({index} c = lane; c < classes; c += {lanes}) {{"));
                writer.line(format!("{t} x = {}, y = {} / sum - ((i64)c == label ? 1 : 0);", rows.x("c"), rows.power("c")));
                writer.line(format!(
                    "if ((i64)c == label) {{ {t} loss = log_sum - (x - most); losses[k] = {}; }}",
                    narrow(data_type, "loss")
                ));
                writer.line(format!("to[c] = {};", narrow(data_type, "y")));
                writer.line("}\n  }");
            } else {
                writer.line(format!("{t} log_sum = {}, a = 0;", rows.log("sum")));
                writer.line(format!("if (inside) for ({index} c = lane; c < classes; c += {lanes}) {{"));
                writer.line(format!("{t} x = {}, label = {};", rows.x("c"), widen(data_type, "labels[k * classes + c]")));
                writer.line(format!("{t} y = {} / sum - label;", rows.power("c")));
                writer.line("a += label * (log_sum - (x - most));");
                writer.line(format!("to[c] = {};", narrow(data_type, "y")));
                writer.line("}");
                rows.join(&mut writer, "a + b");
                writer.line(format!("if (inside && lane == 0) losses[k] = {};", narrow(data_type, "a")));
                writer.line("}");
            }
            let text = "Received a label value of {0} which is outside the valid range of [0, {1}).";
            let faults = label_type.map(|of| FaultText::of(text, FaultNumber::Value(1, of), FaultNumber::Constant(classes as i64)));
            rows.finish(writer, "cross_entropy", vec![(0, 1)], faults.into_iter().collect())
        }
    }
}

/// Rows of classes, and the lanes that share one.
struct Rows {
    data_type: DataType,
    /// The type that is computed with.
    t: &'static str,
    rows: u64,
    classes: u64,
    lanes: u64,
}

impl Rows {
    fn new(data_type: DataType, rows: u64, classes: u64) -> Result<Rows> {
        if !is_float(data_type) {
            return Err(Error::unimplemented(format!("a kernel for a card: Softmax of {data_type}")));
        }
        let lanes = classes.div_ceil(4).clamp(1, u64::from(THREADS)).next_power_of_two();
        Ok(Rows { data_type, t: computed(data_type)?, rows, classes, lanes })
    }

    fn per_block(&self) -> u64 {
        u64::from(THREADS) / self.lanes
    }

    fn writer(&self) -> Writer {
        Writer::new(Index::of(self.rows * self.classes.max(1)))
    }

    /// Logit `c` of the row.
    fn x(&self, c: &str) -> String {
        widen(self.data_type, format!("from[{c}]"))
    }

    /// The power of logit `c` less the largest.
    fn power(&self, c: &str) -> String {
        let exp = if self.t == "f64" { "exp" } else { "exp_f32" };
        format!("{exp}({} - most)", self.x(c))
    }

    fn log(&self, of: &str) -> String {
        format!("{}({of})", if self.t == "f64" { "log" } else { "log_f32" })
    }

    /// The head of the loop over rows: `k`, `lane`, `inside`, and the pointers `from` and `to`.
    fn begin(&self, writer: &mut Writer) {
        let (index, per_block, ctype) = (writer.index(), self.per_block(), stored(self.data_type).unwrap_or("f32"));
        writer.size("rows", self.rows as i64);
        writer.size("classes", self.classes as i64);
        if self.lanes > 1 {
            writer.line(format!("__shared__ {} tree[THREADS];", self.t));
        }
        writer.line(format!("{index} lane = threadIdx.x % {}, tiles = (rows + {}) / {per_block};", self.lanes, per_block - 1));
        writer.line(format!("for ({index} tile = blockIdx.x; tile < tiles; tile += gridDim.x) {{"));
        writer.line(format!("{index} k = tile * {per_block} + threadIdx.x / {}; u32 inside = k < rows;", self.lanes));
        writer.line(format!("const {ctype}* from = p + (inside ? k * classes : 0); {ctype}* to = q + (inside ? k * classes : 0);"));
    }

    /// `most`, the largest logit that is a number, and `sum`, the sum of the powers: both the same in all lanes of a row.
    fn sums(&self, writer: &mut Writer) {
        let (t, index, lanes) = (self.t, writer.index(), self.lanes);
        let infinity = if t == "f64" { "INF_F64" } else { "INF_F32" };
        writer.line(format!("{t} most, sum;"));
        writer.line(format!("{{ {t} a = -{infinity};"));
        writer.line(format!(
            "if (inside) for ({index} c = lane; c < classes; c += {lanes}) {{ {t} x = {}; a = x > a ? x : a; }}",
            self.x("c")
        ));
        self.join(writer, "b > a ? b : a");
        writer.line("most = a; }");
        writer.line(format!("{{ {t} a = 0;"));
        writer.line(format!("if (inside) for ({index} c = lane; c < classes; c += {lanes}) a += {};", self.power("c")));
        self.join(writer, "a + b");
        writer.line("sum = a; }");
    }

    /// Joins the `a` and `b` of lanes: all get the result.
    fn join(&self, writer: &mut Writer, join: &str) {
        if self.lanes == 1 {
            return;
        }
        writer.line("tree[threadIdx.x] = a;");
        let mut half = self.lanes / 2;
        while half > 0 {
            writer.line("__syncthreads();");
            writer.line(format!("if (lane < {half}) {{ {} b = tree[threadIdx.x + {half}]; a = {join}; tree[threadIdx.x] = a; }}", self.t));
            half /= 2;
        }
        writer.line("__syncthreads();");
        writer.line("a = tree[threadIdx.x - lane];");
        writer.line("__syncthreads();");
    }

    fn finish(&self, writer: Writer, name: &str, in_place: Vec<(usize, usize)>, faults: Vec<FaultText>) -> Result<Emitted> {
        let blocks = self.rows.div_ceil(self.per_block()).clamp(1, MOST_BLOCKS) as u32;
        Ok(Emitted { kernels: vec![writer.finish(name, blocks)?], faults, in_place, ..Emitted::default() })
    }
}
