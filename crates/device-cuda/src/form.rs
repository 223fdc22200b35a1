//! The convolutions of cuDNN that compute requests: how their tensors lie, and the kernels that bring these there and take them from there.
//!
//! cuDNN has filters with the channels of the result first, TensorFlow has them last. So a kernel turns the filter before the convolution, or
//! behind the gradient by it. Tensor cores take channels by words of 16 bytes. Where a request has others, a form has channels that are padded with zeros:
//! kernels write the padded tensors, and take a result's own channels. What these kernels write for cuDNN, and it for them, is scratch of the command.

use plimsoll_base::{DataType, Result};
use plimsoll_device::DeviceSpec;
use plimsoll_request::conv::ConvSpec;
use plimsoll_request::product::ProductSpec;
use plimsoll_request::window::{Axes, Layout, WindowAxis};

use crate::cudnn::{ConvolutionKind, ConvolutionPlan, Finish, Lying};
use crate::emit::{self, KernelArg};

/// A convolution that computes a request, or all of it but the epilogue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    pub plan: ConvolutionPlan,
    /// Where the request's two tensors and its result are among input, filter and result of the convolution.
    pub places: [Place; 3],
    /// Whether the request's filter has the channels of the result last.
    turns: bool,
    /// The request's channels of the input and of the result. The convolution's may be more: zeros behind these.
    channels: [u64; 2],
}

/// A tensor of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    First,
    Second,
    Result,
}

impl Place {
    /// Input, filter and result of a convolution of that kind whose two tensors come in this order.
    fn of(kind: ConvolutionKind) -> [Place; 3] {
        match kind {
            ConvolutionKind::Forward => [Place::First, Place::Second, Place::Result],
            ConvolutionKind::ByInput => [Place::Result, Place::First, Place::Second],
            ConvolutionKind::ByFilter => [Place::First, Place::Result, Place::Second],
        }
    }
}

/// A product as a convolution of 1x1, the form of it that can finish, and whether it is a plain one. Rows of a plain one are images; but where A is
/// transposed the terms are, and the result is a filter. None for matrices that do not lie one behind the other.
///
/// Several products at once are a convolution in as many groups, of one image whose pixels are columns, with channels first: rows of B (or of the
/// result) are channels, and rows of A are filters. Of two transposed matrices, rows of A are channels and columns pixels, and rows of B are filters.
pub(crate) fn as_convolution(data_type: DataType, spec: &ProductSpec) -> Option<(Form, Option<Form>, bool)> {
    use ConvolutionKind::{ByFilter, ByInput, Forward};
    use Place::{First, Result, Second};
    let ProductSpec { m, n, k, transpose_a, transpose_b, batch, places: None } = *spec else { return None };
    let form = |kind, [images, in_c, out_c, pixels, groups]: [u64; 5], layout, places| {
        let axes = Axes::new(&[WindowAxis { size: pixels, positions: pixels, ..WindowAxis::ONE }]).ok()?;
        let spec = ConvSpec { data_type, batch: images, in_c, out_c, axes, layout, groups };
        Some(Form { plan: ConvolutionPlan::of(kind, spec), places, turns: false, channels: [in_c, out_c] })
    };
    let is_plain = batch == 1 && !(transpose_a && transpose_b);
    let forward = form(Forward, [m, k, n, 1, 1], Layout::ChannelsLast, [First, Second, Result]);
    let [rows, columns, terms] = [m, n, k].map(|size| size.checked_mul(batch));
    let (bare, finished) = match (is_plain, transpose_a, transpose_b) {
        (true, false, false) => {
            let finished = forward.map(|form| Form { turns: true, ..form });
            (form(ByInput, [m, n, k, 1, 1], Layout::ChannelsLast, [Result, Second, First]), finished)
        }
        (true, false, true) => (forward, forward),
        (true, true, false) => (form(ByFilter, [k, n, m, 1, 1], Layout::ChannelsLast, [Second, Result, First]), None),
        (_, true, true) if batch == 1 => {
            let bare = form(Forward, [1, k, n, m, 1], Layout::ChannelsLast, [First, Second, Result]);
            (bare.map(|form| Form { plan: ConvolutionPlan { lying: Lying::Turned, ..form.plan }, ..form }), None)
        }
        (_, true, true) => return None,
        (_, false, false) => (form(Forward, [1, terms?, rows?, n, batch], Layout::ChannelsFirst, [Second, First, Result]), None),
        (_, true, false) => (form(ByInput, [1, rows?, terms?, n, batch], Layout::ChannelsFirst, [Result, First, Second]), None),
        (_, false, true) => (form(ByFilter, [1, columns?, rows?, k, batch], Layout::ChannelsFirst, [Second, Result, First]), None),
    };
    Some((bare?, finished, is_plain))
}

impl Form {
    /// A convolution of the request's, with TensorFlow's filter.
    pub fn of(kind: ConvolutionKind, spec: &ConvSpec) -> Form {
        Form { plan: ConvolutionPlan::of(kind, *spec), places: Place::of(kind), turns: true, channels: [spec.in_c, spec.out_c] }
    }

    /// The same with channels padded to whole words of tensor cores, for elements of which these take so many at once. None where they are whole
    /// words, in groups, with channels first, and where a tensor would be larger than any that kernels take.
    pub fn padded(&self, at_once: u64) -> Option<Form> {
        let spec = self.plan.spec;
        let [in_c, out_c] = self.channels.map(|channels| channels.checked_next_multiple_of(at_once));
        let wide = ConvSpec { in_c: in_c?, out_c: out_c?, ..spec };
        let is_plain = spec.groups == 1 && spec.layout == Layout::ChannelsLast && self.plan.lying == Lying::Plain;
        let is_fine = [wide.input(), wide.output(), wide.filter()].iter().all(|shape| {
            let elements = shape.iter().try_fold(self.element() as u64, |product, size| product.checked_mul(*size));
            elements.is_some_and(|bytes| bytes <= emit::MOST_BYTES)
        });
        let form = Form { plan: ConvolutionPlan { spec: wide, ..self.plan }, ..*self };
        (is_plain && is_fine && form.is_padded()).then_some(form)
    }

    /// The same with that behind the convolution.
    pub fn finishing(self, finish: Finish) -> Form {
        Form { plan: ConvolutionPlan { finish, ..self.plan }, ..self }
    }

    /// Whether the convolution has more channels than the request.
    pub fn is_padded(&self) -> bool {
        let (input, result) = self.pads();
        input || result
    }

    /// Whether what is computed has as many channels as the request's.
    pub fn has_whole_results(&self) -> bool {
        !self.is_packed(self.written())
    }

    /// Bytes of an element.
    pub fn element(&self) -> usize {
        self.plan.spec.data_type.size().unwrap_or(0)
    }

    /// Bytes of the tensors whose channels are padded.
    pub fn padded_bytes(&self) -> u64 {
        let (input, result) = self.pads();
        let is_padded = [input, input || result, result];
        (0..3).filter(|at| is_padded[*at]).map(|at| self.elements(at) * self.element() as u64).sum()
    }

    /// Whether channels of the input are padded, and of the result.
    fn pads(&self) -> (bool, bool) {
        (self.plan.spec.in_c != self.channels[0], self.plan.spec.out_c != self.channels[1])
    }

    /// Which of input, filter and result is written.
    fn written(&self) -> usize {
        match self.plan.kind {
            ConvolutionKind::Forward => 2,
            ConvolutionKind::ByInput => 0,
            ConvolutionKind::ByFilter => 1,
        }
    }

    /// Whether input, filter or result lies in scratch, and a kernel brings it there or takes it from there.
    fn is_packed(&self, at: usize) -> bool {
        let (input, result) = self.pads();
        match at {
            0 => input,
            1 => self.turns || input || result,
            _ => result,
        }
    }

    /// Elements of input, filter or result of the convolution.
    fn elements(&self, at: usize) -> u64 {
        let spec = self.plan.spec;
        [spec.input(), spec.filter(), spec.output()][at].iter().product()
    }

    /// The tensors in scratch, with their bytes.
    pub fn packed(&self) -> impl Iterator<Item = (usize, u64)> + use<> {
        let form = *self;
        (0..3).filter(move |at| form.is_packed(*at)).map(move |at| (at, form.elements(at) * form.element() as u64))
    }

    /// The predicted seconds of the kernels that bring tensors into scratch, or take them from there.
    pub fn packing_seconds(&self, spec: &DeviceSpec) -> f64 {
        self.packed().map(|(_, bytes)| moved_seconds(spec, 2.0 * bytes as f64)).sum()
    }

    /// The kernel that brings a tensor from an argument to its place in scratch, or from there, and whether it comes before the convolution.
    ///
    /// # Errors
    /// As [`emit::emit`].
    pub fn packing(&self, at: usize, argument: KernelArg, scratch: KernelArg) -> Result<(emit::Kernel, bool)> {
        let ConvSpec { in_c, out_c, axes, layout, groups, batch, .. } = self.plan.spec;
        let [own_in, own_out] = self.channels;
        let element = self.element() as u64;
        let is_before = at != self.written();
        let along = |size: fn(&WindowAxis) -> u64| axes.iter().map(size).product::<u64>();
        let kernel = if at == 1 {
            let taps = along(|axis| axis.taps);
            let [in_group, own_group] = [in_c, own_in].map(|channels| channels.checked_div(groups).unwrap_or(0));
            // Results, taps and channels of a result: sizes there, and how far apart they are.
            let wide = match layout {
                Layout::ChannelsLast => [(out_c, taps * in_group), (taps, in_group), (in_group, 1)],
                Layout::ChannelsFirst => [(out_c, taps * in_group), (taps, 1), (in_group, taps)],
            };
            let own = match (self.turns, layout) {
                (true, _) => [(own_out, 1), (taps, own_group * own_out), (own_group, own_out)],
                (false, Layout::ChannelsLast) => [(own_out, taps * own_group), (taps, own_group), (own_group, 1)],
                (false, Layout::ChannelsFirst) => [(own_out, taps * own_group), (taps, 1), (own_group, taps)],
            };
            let (to, from) = if is_before { (wide, own) } else { (own, wide) };
            let mut order = [0, 1, 2];
            // A dense tensor's dimensions come in the order of how far apart their elements are; those of one element anywhere.
            order.sort_by_key(|axis| std::cmp::Reverse((to[*axis].1, to[*axis].0)));
            let axes = order.map(|axis| emit::Packed { size: to[axis].0, there: from[axis].0, apart: from[axis].1 });
            emit::packed(element, &axes)?
        } else {
            let pixels = if at == 0 { along(|axis| axis.size) } else { along(|axis| axis.positions) };
            let (wide, own, rows) = if at == 0 { (in_c, own_in, batch * pixels) } else { (out_c, own_out, batch * pixels) };
            match is_before {
                true => emit::pad(element, rows, [own, wide])?,
                false => {
                    let axes = [(rows, wide), (own, 1)].map(|(size, apart)| emit::Packed { size, there: size, apart });
                    emit::packed(element, &axes)?
                }
            }
        };
        let (from, to) = if is_before { (argument, scratch) } else { (scratch, argument) };
        let rename = |arg: &KernelArg| match *arg {
            KernelArg::Argument(0) => from,
            KernelArg::Argument(1) => to,
            other => other,
        };
        Ok((emit::Kernel { args: kernel.args.iter().map(rename).collect(), ..kernel }, is_before))
    }
}

/// The predicted seconds of a kernel that moves so many bytes.
pub(crate) fn moved_seconds(spec: &DeviceSpec, bytes: f64) -> f64 {
    DeviceSpec::LAUNCH + bytes / (DeviceSpec::REACHED * spec.bandwidth)
}
