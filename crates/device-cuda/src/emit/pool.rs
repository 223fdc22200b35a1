//! Pooling: a thread for each element of the result, which looks at the elements or windows that it comes from, in order. Channels that lie
//! beside each other are one thread's, as many as 16 bytes hold, where rows of channels are whole words.

use plimsoll_base::{Error, Result};
use plimsoll_request::pool::{ArgMax, Maxima, PoolSpec, Pooling, Positions};
use plimsoll_request::window::Layout;

use super::write::{Index, Writer, computed, is_float, narrow, stored, widen};
use super::{Emitted, Kernel, KernelArg, blocks, count};

/// Maxima of windows, and where they are.
///
/// # Errors
/// UNIMPLEMENTED for types and maxima without a kernel.
pub(super) fn max(pooling: &Pooling) -> Result<Emitted> {
    let places = (pooling.positions != Positions::None).then_some(KernelArg::Argument(2));
    Ok(Emitted { kernels: vec![maxima(pooling, Some(KernelArg::Argument(1)), places)?], ..Emitted::default() })
}

/// The gradient of max pooling: by positions that the first kernel finds.
///
/// # Errors
/// As [`max`].
pub(super) fn max_grad_of_input(spec: &PoolSpec, kind: Maxima) -> Result<Emitted> {
    let places = KernelArg::Between(0);
    let first = maxima(&Pooling { spec: *spec, maxima: kind, positions: Positions::All }, None, Some(places))?;
    let then = by_places(spec, [places, KernelArg::Argument(2), KernelArg::Argument(3)])?;
    Ok(Emitted { kernels: vec![first, then], between: vec![count(&spec.output()) * ArgMax::of(spec).size()], ..Emitted::default() })
}

/// The gradient by the positions of the maxima.
///
/// # Errors
/// UNIMPLEMENTED for types without a kernel.
pub(super) fn max_grad(spec: &PoolSpec) -> Result<Emitted> {
    Ok(Emitted { kernels: vec![by_places(spec, [0, 1, 2].map(KernelArg::Argument))?], ..Emitted::default() })
}

/// The C type of a position.
fn place(spec: &PoolSpec) -> &'static str {
    if ArgMax::of(spec) == ArgMax::U8 { "u8" } else { "u32" }
}

/// Writes the maxima of windows, their positions, or both.
fn maxima(pooling: &Pooling, maxima: Option<KernelArg>, positions: Option<KernelArg>) -> Result<Kernel> {
    if pooling.maxima != Maxima::First {
        return Err(Error::unimplemented("a kernel for a card: MaxPool3D"));
    }
    let spec = &pooling.spec;
    let t = computed(spec.data_type)?;
    let mut writer = begin(spec)?;
    writer.input("p", stored(spec.data_type)?, KernelArg::Argument(0));
    if let Some(to) = maxima {
        writer.output("q", stored(spec.data_type)?, to);
    }
    let place = place(spec);
    if let Some(to) = positions {
        writer.output("places", place, to);
    }
    sizes(&mut writer, spec);
    each(&mut writer, spec, "positions");
    let lowest = if t == "f64" { "-1.7976931348623157e308" } else { "-3.40282347e38f" };
    let lanes = Lanes::of(spec);
    let Lanes { vector, .. } = lanes;
    writer.line(format!("{t} most[{vector}]; u32 best[{vector}], tap = 0;"));
    writer.line(format!("{} {{ most[k] = {lowest}; best[k] = 0xFFFFFFFFu; }}", lanes.each_channel()));
    let x = widen(spec.data_type, lanes.element("v"));
    windows(
        &mut writer,
        spec,
        &format!(
            "if (here) {{ {} {} {{ {t} x = {x}; if (x > most[k]) {{ most[k] = x; best[k] = tap; }} }} }} ++tap;",
            lanes.load("v", "p", "at"),
            lanes.each_channel(),
        ),
    );
    if maxima.is_some() {
        lanes.store(&mut writer, stored(spec.data_type)?, "q", &narrow(spec.data_type, "most[k]"));
    }
    match pooling.positions {
        Positions::None => writer.line("(void)best;"),
        Positions::All => lanes.store(&mut writer, place, "places", &format!("({place})best[k]")),
        Positions::Positive => {
            lanes.store(&mut writer, place, "places", &format!("most[k] > 0 ? ({place})best[k] : ({place})0xFFFFFFFFu"));
        }
    }
    writer.line("}");
    writer.finish(if maxima.is_some() { "max_pool" } else { "max_pool_places" }, blocks(count(&spec.output()) / vector))
}

/// The gradient from positions and the gradient by the output to that by the input.
fn by_places(spec: &PoolSpec, [places, from, to]: [KernelArg; 3]) -> Result<Kernel> {
    let place = place(spec);
    let mut writer = begin(spec)?;
    writer.input("places", place, places);
    writer.input("p", stored(spec.data_type)?, from);
    writer.output("q", stored(spec.data_type)?, to);
    sizes(&mut writer, spec);
    let lanes = Lanes::of(spec);
    // What another position has is 0, without a branch: behind one, the compiler would load element by element.
    let (v, here) = (lanes.element("v"), format!("{} == ({place})tap", lanes.element("there")));
    let value = match lanes.ctype {
        "u16" => widen(spec.data_type, format!("(u16)({v} & (0u - (u32)({here})))")),
        _ => format!("({here} ? {v} : 0)"),
    };
    let loads = format!("{} {}", lanes.load_as(place, "there", "places", "at"), lanes.load("v", "p", "at"));
    scattered(&mut writer, spec, &format!("{loads} {} sum[k] += {value};", lanes.each_channel()))?;
    writer.finish("max_pool_grad", blocks(count(&spec.input()) / lanes.vector))
}

/// Means of windows.
///
/// # Errors
/// UNIMPLEMENTED for types without a kernel.
pub(super) fn average(spec: &PoolSpec) -> Result<Emitted> {
    let t = computed(spec.data_type)?;
    let mut writer = begin(spec)?;
    writer.input("p", stored(spec.data_type)?, KernelArg::Argument(0));
    writer.output("q", stored(spec.data_type)?, KernelArg::Argument(1));
    sizes(&mut writer, spec);
    each(&mut writer, spec, "positions");
    let lanes = Lanes::of(spec);
    lanes.sums(&mut writer, t);
    writer.line(format!("{t} number = 0;"));
    let (load, value) = (lanes.load("v", "p", "at"), widen(spec.data_type, lanes.element("v")));
    windows(&mut writer, spec, &format!("if (here) {{ {load} {} sum[k] += {value}; number += 1; }}", lanes.each_channel()));
    lanes.store(&mut writer, stored(spec.data_type)?, "q", &narrow(spec.data_type, "(sum[k] / number)"));
    writer.line("}");
    finish(writer, spec, "avg_pool", count(&spec.output()))
}

/// The gradient of means of windows.
///
/// # Errors
/// UNIMPLEMENTED for types without a kernel.
pub(super) fn average_grad(spec: &PoolSpec) -> Result<Emitted> {
    let t = computed(spec.data_type)?;
    let mut writer = begin(spec)?;
    writer.input("p", stored(spec.data_type)?, KernelArg::Argument(0));
    writer.output("q", stored(spec.data_type)?, KernelArg::Argument(1));
    sizes(&mut writer, spec);
    let s = signed(spec);
    writer.before.push_str(&format!(
        "DEVICE {s} @_inside({s} at, {s} size, {s} taps, {s} stride, {s} pad) {{\n  \
         {s} first = at * stride - pad, end = first + taps;\n  return (end < size ? end : size) - (first > 0 ? first : 0);\n}}\n",
    ));
    let number = [0, 1, 2].map(|axis| format!("@_inside(o{axis}, size{axis}, taps{axis}, stride{axis}, pad{axis})")).join(" * ");
    let lanes = Lanes::of(spec);
    let (load, value) = (lanes.load("v", "p", "at"), widen(spec.data_type, lanes.element("v")));
    let share = format!("(void)tap; {load} {t} number = ({t})({number}); {} sum[k] += {value} / number;", lanes.each_channel());
    scattered(&mut writer, spec, &share)?;
    finish(writer, spec, "avg_pool_grad", count(&spec.input()))
}

fn begin(spec: &PoolSpec) -> Result<Writer> {
    let is_undilated = spec.axes.iter().all(|axis| axis.dilation == 1 && axis.stride > 0 && axis.taps > 0);
    let is_small =
        spec.axes.iter().all(|axis| [axis.size, axis.positions, axis.taps, axis.stride, axis.pad].iter().all(|size| *size < 1 << 31));
    if !is_float(spec.data_type) || !is_undilated || !is_small || spec.taps() >= 1 << 31 {
        return Err(Error::unimplemented(format!("a kernel for a card: pooling of {}", spec.data_type)));
    }
    Ok(Writer::new(Index::of(count(&spec.input()).max(count(&spec.output())))))
}

/// The channels of a thread.
struct Lanes {
    ctype: &'static str,
    vector: u64,
}

impl Lanes {
    fn of(spec: &PoolSpec) -> Lanes {
        let widest = 16 / spec.data_type.size().unwrap_or(16) as u64;
        let fits = spec.layout == Layout::ChannelsLast && spec.channels > 0 && spec.channels.is_multiple_of(widest);
        // No word holds as many positions of four bytes.
        let fits = fits && (ArgMax::of(spec) == ArgMax::U8 || widest <= 4);
        Lanes { ctype: stored(spec.data_type).unwrap_or("f32"), vector: if fits { widest } else { 1 } }
    }

    fn each_channel(&self) -> String {
        format!("_Pragma(\"unroll\") for (u32 k = 0; k < {}; ++k)", self.vector)
    }

    /// A variable with the elements of the channels at a place.
    fn load(&self, name: &str, tensor: &str, at: &str) -> String {
        self.load_as(self.ctype, name, tensor, at)
    }

    fn load_as(&self, ctype: &str, name: &str, tensor: &str, at: &str) -> String {
        let word = self.word(ctype);
        format!("{word} {name} = *(const {word}*)({tensor} + {at});")
    }

    fn word(&self, ctype: &str) -> String {
        if self.vector == 1 { ctype.to_string() } else { format!("{ctype}x{}", self.vector) }
    }

    /// Element `k` of a variable.
    fn element(&self, name: &str) -> String {
        if self.vector == 1 { name.to_string() } else { format!("{name}.v[k]") }
    }

    /// Declares the `sum` of each channel.
    fn sums(&self, writer: &mut Writer, t: &str) {
        writer.line(format!("{t} sum[{}]; {} sum[k] = 0;", self.vector, self.each_channel()));
    }

    /// Writes a value of each channel to a tensor's place `i`.
    fn store(&self, writer: &mut Writer, ctype: &str, tensor: &str, value: &str) {
        let word = self.word(ctype);
        writer.line(format!("{{ {word} made; {} {} = {value};", self.each_channel(), self.element("made")));
        writer.line(format!("*({word}*)({tensor} + i) = made; }}"));
    }
}

/// The signed type of indices: windows may begin before the input.
fn signed(spec: &PoolSpec) -> &'static str {
    let most = count(&spec.input()).max(count(&spec.output()));
    let reach =
        spec.axes.iter().flat_map(|axis| [axis.size, axis.taps, axis.stride, axis.pad, axis.positions.saturating_mul(axis.stride)]).max();
    if most < 1 << 31 && reach.unwrap_or(0) < 1 << 30 { "i32" } else { "i64" }
}

/// The parameters that say the sizes.
fn sizes(writer: &mut Writer, spec: &PoolSpec) {
    let t = signed(spec);
    let mut size = |name: String, value: u64| if t == "i32" { writer.word(t, name, value as u32) } else { writer.long(t, name, value) };
    size("channels".to_string(), spec.channels);
    for (at, axis) in spec.axes.filled().iter().enumerate() {
        for (name, value) in
            [("size", axis.size), ("positions", axis.positions), ("taps", axis.taps), ("stride", axis.stride), ("pad", axis.pad)]
        {
            size(format!("{name}{at}"), value);
        }
    }
}

/// The head of the loop over elements `i` of a tensor with such axes: its image `b`, channel `c`, and indices `i0`, `i1`, `i2`. The
/// other tensor is indexed by `@_at`.
fn each(writer: &mut Writer, spec: &PoolSpec, size: &str) {
    let other = if size == "positions" { "size" } else { "positions" };
    let elements = if size == "positions" { count(&spec.output()) } else { count(&spec.input()) };
    let index = writer.index();
    let Lanes { vector, .. } = Lanes::of(spec);
    writer.size("n", (elements / vector) as i64);
    let t = signed(spec);
    let take = |name: &str, size: &str| format!("{t} {name} = ({t})(rest % ({index}){size}); rest /= ({index}){size};");
    let mut channel = take("c", "channels");
    if vector == 1 {
        writer.each("i", "n");
        writer.line(format!("{index} rest = i;"));
    } else {
        writer.size("words", (spec.channels / vector) as i64);
        writer.each("g", "n");
        writer.line(format!("{index} i = g * {vector}, rest = g;"));
        channel = format!("{} c *= {vector};", take("c", "words"));
    }
    let axes = [2, 1, 0].map(|axis| take(&format!("i{axis}"), &format!("{size}{axis}"))).join(" ");
    match spec.layout {
        Layout::ChannelsLast => {
            writer.line(format!("{channel} {axes} {t} b = ({t})rest;"));
            writer
                .line(format!("#define OTHER(x0, x1, x2) ((((b * {other}0 + (x0)) * {other}1 + (x1)) * {other}2 + (x2)) * channels + c)"));
        }
        Layout::ChannelsFirst => {
            writer.line(format!("{axes} {channel} {t} b = ({t})rest;"));
            writer
                .line(format!("#define OTHER(x0, x1, x2) ((((b * channels + c) * {other}0 + (x0)) * {other}1 + (x1)) * {other}2 + (x2))"));
        }
    }
}

/// For all taps of the window at `i0`, `i1`, `i2`: a statement that reads `at` where `here`.
fn windows(writer: &mut Writer, spec: &PoolSpec, statement: &str) {
    let t = signed(spec);
    for axis in 0..3 {
        writer.line(format!(
            "for ({t} t{axis} = 0; t{axis} < taps{axis}; ++t{axis}) {{ {t} o{axis} = i{axis} * stride{axis} - pad{axis} + t{axis};"
        ));
    }
    let here = [0, 1, 2].map(|axis| format!("o{axis} >= 0 && o{axis} < size{axis}")).join(" && ");
    writer.line(format!("u32 here = {here}; {t} at = OTHER(o0, o1, o2);"));
    writer.line(statement);
    writer.line("} } }\n#undef OTHER");
}

/// Elements of the input, each the `sum[k]` that a statement makes of the windows that hold it, in order: at `at`, as `tap`.
fn scattered(writer: &mut Writer, spec: &PoolSpec, statement: &str) -> Result<()> {
    each(writer, spec, "size");
    let lanes = Lanes::of(spec);
    lanes.sums(writer, computed(spec.data_type)?);
    let t = signed(spec);
    for axis in 0..3 {
        let (size, taps, stride, pad) = (format!("positions{axis}"), format!("taps{axis}"), format!("stride{axis}"), format!("pad{axis}"));
        writer
            .line(format!("{t} far{axis} = i{axis} + {pad}, first{axis} = far{axis} < {taps} ? 0 : (far{axis} - {taps}) / {stride} + 1;"));
        writer.line(format!("{t} last{axis} = far{axis} / {stride} < {size} ? far{axis} / {stride} : {size} - 1;"));
    }
    for axis in 0..3 {
        writer.line(format!("for ({t} o{axis} = first{axis}; o{axis} <= last{axis}; ++o{axis}) {{"));
    }
    let tap = |axis: usize| format!("(far{axis} - o{axis} * stride{axis})");
    writer.line(format!("u32 tap = (u32)(({} * taps1 + {}) * taps2 + {}); {t} at = OTHER(o0, o1, o2);", tap(0), tap(1), tap(2)));
    writer.line(statement);
    writer.line("} } }\n#undef OTHER");
    lanes.store(writer, lanes.ctype, "q", &narrow(spec.data_type, "sum[k]"));
    writer.line("}");
    Ok(())
}

fn finish(writer: Writer, spec: &PoolSpec, name: &str, elements: u64) -> Result<Emitted> {
    let Lanes { vector, .. } = Lanes::of(spec);
    Ok(Emitted { kernels: vec![writer.finish(name, blocks(elements / vector))?], ..Emitted::default() })
}
