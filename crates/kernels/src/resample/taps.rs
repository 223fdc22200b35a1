//! The weights along one axis of a resized image, as TensorFlow computes them: in floats.

use std::f32::consts::PI;

use plimsoll_base::{Error, Result};
use plimsoll_request::resample::{Filter, Method, Placing, scale};

/// Which elements make each element of the result, and with which weights.
#[derive(Clone, Debug, Default)]
pub(super) struct Taps {
    /// Where the taps of each element begin; and the end.
    starts: Vec<u32>,
    taps: Vec<(u32, f32)>,
}

/// The most elements of an axis, and taps of all of them.
const MOST: u64 = 1 << 24;
const MOST_TAPS: usize = 1 << 26;

impl Taps {
    fn new(elements: u64) -> Taps {
        let mut starts = Vec::with_capacity(elements as usize + 1);
        starts.push(0);
        Taps { starts, taps: Vec::new() }
    }

    fn end(&mut self) {
        self.starts.push(self.taps.len() as u32);
    }

    /// The taps of an element.
    #[inline(always)]
    pub(super) fn of(&self, element: usize) -> &[(u32, f32)] {
        &self.taps[self.starts[element] as usize..self.starts[element + 1] as usize]
    }

    /// How many taps there are.
    pub(super) fn len(&self) -> usize {
        self.taps.len()
    }

    /// The taps by the elements that they read, of which there are `size`.
    fn transposed(&self, size: u64) -> Taps {
        let mut starts = vec![0u32; size as usize + 1];
        for (from, _) in &self.taps {
            starts[*from as usize + 1] += 1;
        }
        for element in 0..size as usize {
            starts[element + 1] += starts[element];
        }
        let mut next = starts.clone();
        let mut taps = vec![(0, 0.0); self.taps.len()];
        for element in 0..self.starts.len() - 1 {
            for (from, weight) in self.of(element) {
                taps[next[*from as usize] as usize] = (element as u32, *weight);
                next[*from as usize] += 1;
            }
        }
        Taps { starts, taps }
    }
}

/// The taps along axis 0 (rows) or 1 (columns) of `size` elements that become `resized`; or of the gradient.
///
/// # Errors
/// UNIMPLEMENTED for very many, INVALID_ARGUMENT for something out of nothing.
pub(super) fn taps(method: &Method, axis: usize, size: u64, resized: u64, transposed: bool) -> Result<Taps> {
    if size > MOST || resized > MOST {
        return Err(Error::unimplemented(format!("an image whose side of {size} becomes {resized}")));
    }
    if size == 0 && resized > 0 {
        return Err(Error::invalid_argument("input image must be of non-zero size"));
    }
    let taps = match *method {
        Method::Nearest { align_corners, half_pixel_centers } => nearest(size, resized, align_corners, half_pixel_centers),
        Method::Bilinear { align_corners, half_pixel_centers } => bilinear(size, resized, align_corners, half_pixel_centers),
        Method::Bicubic { align_corners, half_pixel_centers } => bicubic(size, resized, align_corners, half_pixel_centers),
        Method::Area { align_corners } => area(size, resized, align_corners)?,
        Method::Translate { filter, antialias, rows, columns } => {
            translated(filter, antialias, if axis == 0 { rows } else { columns }, size, resized)?
        }
    };
    Ok(if transposed { taps.transposed(size) } else { taps })
}

fn nearest(size: u64, resized: u64, align_corners: bool, half_pixel_centers: bool) -> Taps {
    let pick = plimsoll_request::movement::Pick::Nearest { size: resized, align_corners, half_pixel_centers };
    let mut taps = Taps::new(resized);
    for at in 0..resized {
        taps.taps.push((pick.index(size, at) as u32, 1.0));
        taps.end();
    }
    taps
}

/// Where element `at` of the result lies among the elements of the image.
fn place(at: u64, scale: f32, half_pixel_centers: bool) -> f32 {
    if half_pixel_centers { (at as f32 + 0.5) * scale - 0.5 } else { at as f32 * scale }
}

fn bilinear(size: u64, resized: u64, align_corners: bool, half_pixel_centers: bool) -> Taps {
    let scale = scale(size, resized, align_corners);
    let mut taps = Taps::new(resized);
    for at in 0..resized {
        let place = place(at, scale, half_pixel_centers);
        let upper = (place.ceil() as i64).min(size as i64 - 1);
        let lower = (place.floor() as i64).max(0).min(upper);
        let weight = place - place.floor();
        taps.taps.extend([(lower as u32, 1.0 - weight), (upper as u32, weight)]);
        taps.end();
    }
    taps
}

/// Steps between two elements for which the cubic has values.
const STEPS: i64 = 1 << 10;

/// The cubic at `step` of [`STEPS`], and one further.
fn cubic(step: i64, a: f64) -> [f32; 2] {
    let mut x = (step as f64 / STEPS as f64) as f32 as f64;
    let near = (((a + 2.0) * x - (a + 3.0)) * x * x + 1.0) as f32;
    x = (x + 1.0) as f32 as f64;
    [near, (((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a) as f32]
}

fn bicubic(size: u64, resized: u64, align_corners: bool, half_pixel_centers: bool) -> Taps {
    let scale = scale(size, resized, align_corners);
    // The coefficient of Keys, or one that older versions had.
    let a = if half_pixel_centers { -0.5 } else { -0.75 };
    let mut taps = Taps::new(resized);
    for at in 0..resized {
        let place = place(at, scale, half_pixel_centers);
        let first = place.floor() as i64;
        let step = libm::rintf((place - place.floor()) * STEPS as f32) as i64;
        let ([near, far], [near_end, far_end]) = (cubic(step, a), cubic(STEPS - step, a));
        let mut weights = [far, near, near_end, far_end];
        let places = [-1, 0, 1, 2].map(|by| first + by);
        let bounded = places.map(|place| place.clamp(0, size as i64 - 1));
        if half_pixel_centers {
            for tap in 0..4 {
                weights[tap] = if bounded[tap] == places[tap] { weights[tap] } else { 0.0 };
            }
            let sum: f32 = weights.iter().sum();
            if sum.abs() >= LEAST {
                weights = weights.map(|weight| weight * (1.0 / sum));
            }
        }
        taps.taps.extend(bounded.iter().zip(weights).map(|(place, weight)| (*place as u32, weight)));
        taps.end();
    }
    taps
}

/// Sums of weights below this are not divided by.
const LEAST: f32 = 1000.0 * f32::MIN_POSITIVE;

fn area(size: u64, resized: u64, align_corners: bool) -> Result<Taps> {
    let scale = scale(size, resized, align_corners);
    let mut taps = Taps::new(resized);
    for at in 0..resized {
        let (first, last) = (at as f32 * scale, (at + 1) as f32 * scale);
        let range = first.floor() as i64..last.ceil() as i64;
        check_taps(taps.taps.len() + range.clone().count())?;
        for place in range {
            let (start, end) = (place as f32, (place + 1) as f32);
            let part = match (start < first, end > last) {
                (true, true) => scale,
                (true, false) => end - first,
                (false, true) => last - start,
                (false, false) => 1.0,
            };
            taps.taps.push((place.clamp(0, size as i64 - 1) as u32, part / scale));
        }
        taps.end();
    }
    Ok(taps)
}

fn check_taps(count: usize) -> Result<()> {
    if count > MOST_TAPS {
        return Err(Error::unimplemented(format!("an image resized with {count} weights along an axis")));
    }
    Ok(())
}

fn translated(filter: Filter, antialias: bool, placing: Placing, size: u64, resized: u64) -> Result<Taps> {
    let inverse = 1.0 / placing.scale;
    let translation = -inverse * placing.translation;
    let stretched = if antialias { inverse.max(1.0) } else { 1.0 };
    let radius = radius(filter) * stretched;
    let shrunk = 1.0 / stretched;
    let mut taps = Taps::new(resized);
    let bounded = |place: f32| (place as i64).clamp(0, size as i64 - 1);
    for at in 0..resized {
        let sample = (at as f32 + 0.5) * inverse + translation;
        // An image without columns: nothing is asked for.
        if (0.0..=size as f32).contains(&sample) && size > 0 {
            let range = bounded((sample - radius - 0.5).ceil())..bounded((sample + radius - 0.5).floor()) + 1;
            check_taps(taps.taps.len() + range.clone().count())?;
            let weight = |place: i64| weight(filter, ((place as f32 + 0.5 - sample) * shrunk).abs());
            let total: f32 = range.clone().map(weight).sum();
            if total.abs() >= LEAST {
                let inverse = 1.0 / total;
                taps.taps.extend(range.map(|place| (place as u32, weight(place) * inverse)));
            }
        }
        taps.end();
    }
    Ok(taps)
}

fn radius(filter: Filter) -> f32 {
    match filter {
        Filter::Lanczos1 | Filter::Box | Filter::Triangle => 1.0,
        Filter::Lanczos3 => 3.0,
        Filter::Lanczos5 => 5.0,
        Filter::Gaussian => 1.5,
        Filter::KeysCubic | Filter::MitchellCubic => 2.0,
    }
}

/// The weight at distance `x`, at least 0.
fn weight(filter: Filter, x: f32) -> f32 {
    let radius = radius(filter);
    match filter {
        Filter::Lanczos1 | Filter::Lanczos3 | Filter::Lanczos5 => {
            if x > radius {
                0.0
            } else if x <= 1e-3 {
                1.0
            } else {
                radius * libm::sinf(PI * x) * libm::sinf(PI * x / radius) / (PI * PI * x * x)
            }
        }
        Filter::Gaussian => {
            let sigma = radius / 3.0;
            if x >= radius { 0.0 } else { libm::expf(-x * x / (2.0 * sigma * sigma)) }
        }
        Filter::Box => {
            if x < 0.5 {
                1.0
            } else if x == 0.5 {
                0.5
            } else {
                0.0
            }
        }
        Filter::Triangle => (1.0 - x).max(0.0),
        _ if x >= radius => 0.0,
        Filter::KeysCubic if x >= 1.0 => ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0,
        Filter::KeysCubic => ((1.5 * x - 2.5) * x) * x + 1.0,
        Filter::MitchellCubic if x >= 1.0 => (((-7.0 / 18.0) * x + 2.0) * x - 10.0 / 3.0) * x + 16.0 / 9.0,
        Filter::MitchellCubic => (((7.0 / 6.0) * x - 2.0) * x) * x + 8.0 / 9.0,
    }
}
