//! Convolutions as descriptors say them, and what they compute.

use std::ffi::c_int;

use plimsoll_base::{Bf16, F16};

use crate::attributes::kind;
use crate::behind::Finish;
use crate::descriptor::{Answer, because};
use crate::status::BAD;

/// Batch, channels, then axes; a filter has channels of the result and of a group of the input.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    pub name: i64,
    /// `cudnnDataType_t`.
    pub data_type: c_int,
    pub sizes: Vec<i64>,
    pub strides: Vec<i64>,
    pub alignment: i64,
    /// Whether it is never in memory.
    pub is_virtual: bool,
    /// Whether it is one number of the host's.
    pub is_said: bool,
}

/// How the filter slides along each axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    pub before: Vec<i64>,
    pub behind: Vec<i64>,
    pub strides: Vec<i64>,
    pub dilations: Vec<i64>,
    pub flips: bool,
}

/// A convolution of one kind; it computes one of the tensors from the two others.
#[derive(Clone, Debug, PartialEq)]
pub struct Convolution {
    pub kind: c_int,
    pub input: Tensor,
    pub filter: Tensor,
    pub result: Tensor,
    pub window: Window,
    pub alpha: f32,
    pub beta: f32,
}

/// The elements of a tensor without gaps, in the order of its sizes, but for the channels, which come last.
struct Dense {
    outer: usize,
    inner: usize,
    channels: usize,
    values: Vec<f64>,
}

impl Tensor {
    /// Bytes of an element.
    pub fn element(&self) -> Option<usize> {
        match self.data_type {
            0 => Some(4),
            2 | 9 => Some(2),
            _ => None,
        }
    }

    pub fn elements(&self) -> u64 {
        self.sizes.iter().map(|size| *size as u64).product()
    }

    /// The bytes from its first to its last element.
    pub fn extent(&self) -> u64 {
        let last: i64 = self.sizes.iter().zip(&self.strides).map(|(size, stride)| (size - 1) * stride).sum();
        (last as u64 + 1) * self.element().unwrap_or(0) as u64
    }

    fn axes(&self) -> &[i64] {
        &self.sizes[2..]
    }

    /// Where the elements lie, in the order of [`Dense`].
    fn places(&self) -> Vec<usize> {
        let order: Vec<usize> = [0].into_iter().chain(2..self.sizes.len()).chain([1]).collect();
        let mut places = vec![0i64];
        for at in order {
            places = places.iter().flat_map(|place| (0..self.sizes[at]).map(move |index| place + index * self.strides[at])).collect();
        }
        places.into_iter().map(|place| place as usize).collect()
    }

    /// # Safety
    /// Its bytes are there, and nothing writes them.
    unsafe fn read(&self, from: *const u8, tensor_cores: bool) -> Dense {
        let values = self.places().into_iter().map(|place| {
            // SAFETY: the caller's promise.
            let value = unsafe {
                match self.data_type {
                    0 => from.cast::<f32>().add(place).read(),
                    2 => F16::from_bits(from.cast::<u16>().add(place).read()).to_f32(),
                    _ => Bf16::from_bits(from.cast::<u16>().add(place).read()).to_f32(),
                }
            };
            f64::from(if tensor_cores && self.data_type == 0 { tensor_float(value) } else { value })
        });
        Dense { values: values.collect(), ..self.empty() }
    }

    fn empty(&self) -> Dense {
        let inner = self.axes().iter().product::<i64>() as usize;
        let (outer, channels) = (self.sizes[0] as usize, self.sizes[1] as usize);
        Dense { outer, inner, channels, values: vec![0.0; outer * inner * channels] }
    }

    /// # Safety
    /// Its bytes are there, and nothing else uses them.
    unsafe fn write(&self, to: *mut u8, dense: &Dense) {
        for (place, value) in self.places().into_iter().zip(&dense.values) {
            let value = *value as f32;
            // SAFETY: the caller's promise.
            unsafe {
                match self.data_type {
                    0 => to.cast::<f32>().add(place).write(value),
                    2 => to.cast::<u16>().add(place).write(F16::from_f32(value).to_bits()),
                    _ => to.cast::<u16>().add(place).write(Bf16::from_f32(value).to_bits()),
                }
            }
        }
    }
}

impl Finish {
    /// # Safety
    /// The bytes of bias, residual and features are there, and nothing writes them.
    unsafe fn apply(&self, y: &mut Dense, places: &[*mut u8], zero: f32) {
        let mut places = places.iter();
        // SAFETY: the caller's promise.
        let mut read = |tensor: &Option<Tensor>| Some(unsafe { tensor.as_ref()?.read(*places.next()?, false) });
        let (bias, residual, features) = (read(&self.bias), read(&self.residual), read(&self.features));
        for (at, value) in y.values.iter_mut().enumerate() {
            let mut float = *value as f32;
            if let Some(residual) = &residual {
                float += residual.values[at] as f32;
            }
            if let Some(bias) = &bias {
                float += bias.values[at % bias.channels] as f32;
            }
            float = if self.relu && float <= 0.0 { 0.0 } else { float };
            if let Some(features) = &features {
                float = if features.values[at] > f64::from(zero) { float } else { zero };
            }
            *value = f64::from(float);
        }
    }

    /// The statistics, from elements as they were stored: of each channel sums of floats, one after the other.
    ///
    /// # Safety
    /// The bytes of result, sums and sums of squares are there, and nothing else uses them.
    unsafe fn sum_up(&self, from: *const u8, places: &[*mut u8]) {
        let (Some([of_sums, of_squares]), [.., sums, squares]) = (&self.statistics, places) else { return };
        // SAFETY: the caller's promise.
        let stored = unsafe { self.result.read(from, false) };
        let mut both = [vec![0f32; stored.channels], vec![0f32; stored.channels]];
        for (at, value) in stored.values.iter().enumerate() {
            let (channel, value) = (at % stored.channels, *value as f32);
            both[0][channel] += value;
            both[1][channel] += value * value;
        }
        let tensors = [(of_sums, *sums), (of_squares, *squares)];
        for ((tensor, place), values) in tensors.into_iter().zip(both) {
            let values = values.into_iter().map(f64::from).collect();
            // SAFETY: the caller's promise.
            unsafe { tensor.write(place, &Dense { outer: 1, inner: 1, channels: stored.channels, values }) };
        }
    }
}

/// Rounded to 10 bits behind the first, as tensor cores take floats.
fn tensor_float(value: f32) -> f32 {
    if value.is_finite() { f32::from_bits(value.to_bits().wrapping_add(0x1000) & !0x1fff) } else { value }
}

impl Dense {
    fn at(&self, outer: usize, inner: usize) -> usize {
        (outer * self.inner + inner) * self.channels
    }
}

impl Convolution {
    /// Looks whether the sizes are those of a convolution.
    ///
    /// # Errors
    /// BAD with the reason.
    pub fn checked(self) -> Answer<Convolution> {
        let Convolution { input, filter, result, window, .. } = &self;
        let count = window.strides.len();
        if [input, filter, result].iter().any(|tensor| tensor.sizes.len() != count + 2) {
            return because(BAD, format!("tensors that have not {count} axes"));
        }
        let (channels, in_group) = (input.sizes[1], filter.sizes[1]);
        if in_group == 0 || channels % in_group != 0 || filter.sizes[0] % (channels / in_group).max(1) != 0 {
            return because(BAD, format!("{channels} channels of filters with {in_group}"));
        }
        if result.sizes[0] != input.sizes[0] || result.sizes[1] != filter.sizes[0] {
            return because(BAD, "images or channels of the result");
        }
        for at in 0..count {
            let seen = (filter.sizes[at + 2] - 1) * window.dilations[at] + 1;
            let all = input.sizes[at + 2] + window.before[at] + window.behind[at];
            if all < seen || (all - seen) / window.strides[at] + 1 != result.sizes[at + 2] {
                return because(BAD, format!("positions along axis {at}"));
            }
        }
        Ok(self)
    }

    /// Input, filter, result.
    pub fn tensors(&self) -> [&Tensor; 3] {
        [&self.input, &self.filter, &self.result]
    }

    /// How many groups of channels there are.
    pub fn groups(&self) -> i64 {
        self.input.sizes[1] / self.filter.sizes[1].max(1)
    }

    /// For each position and tap that see an element of the input: position, tap, element.
    fn pairs(&self) -> Vec<(usize, usize, usize)> {
        let mut pairs = vec![(0, 0, 0)];
        for at in 0..self.window.strides.len() {
            let (size, taps, positions) = (self.input.sizes[at + 2], self.filter.sizes[at + 2], self.result.sizes[at + 2]);
            let Window { before, strides, dilations, flips, .. } = &self.window;
            let mut longer = Vec::new();
            for (position, tap, element) in pairs {
                for (p, t) in (0..positions).flat_map(|p| (0..taps).map(move |t| (p, t))) {
                    let seen = if *flips { taps - 1 - t } else { t };
                    let e = p * strides[at] - before[at] + seen * dilations[at];
                    if (0..size).contains(&e) {
                        longer.push((position * positions + p, tap * taps + t, element * size + e));
                    }
                }
            }
            pairs = longer;
        }
        pairs.into_iter().map(|(position, tap, element)| (position as usize, tap as usize, element as usize)).collect()
    }

    /// Computes it, from and to where input, filter and result are. Behind it come `finish`, where bias, residual and features are, and its
    /// zero: floats, which are rounded to the type of the result in the end.
    ///
    /// # Safety
    /// Their bytes are there, and nothing else uses them.
    pub unsafe fn compute(&self, [input, filter, result]: [*mut u8; 3], finish: Option<(&Finish, &[*mut u8], f32)>, tensor_cores: bool) {
        let read = |tensor: &Tensor, from: *mut u8, is_computed: bool| match is_computed {
            true => tensor.empty(),
            // SAFETY: the caller's promise.
            false => unsafe { tensor.read(from, tensor_cores) },
        };
        let mut x = read(&self.input, input, self.kind == kind::BY_INPUT);
        let mut w = read(&self.filter, filter, self.kind == kind::BY_FILTER);
        let mut y = read(&self.result, result, self.kind == kind::FORWARD);
        let of_a_group = w.outer / self.groups() as usize;
        for (position, tap, element) in self.pairs() {
            for image in 0..x.outer {
                let (from, to) = (x.at(image, element), y.at(image, position));
                for channel in 0..w.outer {
                    let (x_at, w_at) = (from + channel / of_a_group * w.channels, w.at(channel, tap));
                    let (xs, ws) = (x_at..x_at + w.channels, w_at..w_at + w.channels);
                    let y = &mut y.values[to + channel];
                    match self.kind {
                        kind::FORWARD => *y += x.values[xs].iter().zip(&w.values[ws]).map(|(x, w)| x * w).sum::<f64>(),
                        kind::BY_INPUT => x.values[xs].iter_mut().zip(&w.values[ws]).for_each(|(x, w)| *x += *y * w),
                        _ => w.values[ws].iter_mut().zip(&x.values[xs]).for_each(|(w, x)| *w += *y * x),
                    }
                }
            }
        }
        let (mut computed, tensor, place) = match self.kind {
            kind::FORWARD => (y, &self.result, result),
            kind::BY_INPUT => (x, &self.input, input),
            _ => (w, &self.filter, filter),
        };
        // SAFETY: the caller's promise.
        unsafe {
            match finish {
                None => tensor.write(place, &computed),
                Some((finish, places, zero)) => {
                    finish.apply(&mut computed, places, zero);
                    finish.result.write(place, &computed);
                    finish.sum_up(place, places);
                }
            }
        }
    }
}
