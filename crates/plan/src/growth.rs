//! Planning in N: the peaks of a signature whose feeds have open dimensions, for the sizes that these may be.

use std::collections::BTreeMap;
use std::fmt;

use plimsoll_base::{Bytes, Code, Error, Result};
use plimsoll_graph::{PartialShape, Shape};

use crate::asked::Unfilled;
use crate::footprint::Footprint;
use crate::need::Need;
use crate::request::{Feed, Signature};

/// A signature with dimensions that are N, one number for all of them.
#[derive(Clone, Debug, PartialEq)]
pub struct SignatureInN {
    /// The feeds whose shapes are whole, the fetches and the targets.
    pub whole: Signature,
    /// The feeds whose open dimensions are N.
    pub sized: Vec<Unfilled>,
}

impl SignatureInN {
    /// The signature at one N.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for a feed of unknown rank; as [`Shape::bytes`].
    pub fn at(&self, n: u64) -> Result<Signature> {
        let mut signature = self.whole.clone();
        for Unfilled { name, data_type, shape } in &self.sized {
            let Some(dims) = &shape.0 else { return Err(Error::invalid_argument(format!("the rank of '{name}' is unknown"))) };
            let shape = Shape::new(dims.iter().map(|dim| dim.unwrap_or(n)).collect::<Vec<u64>>());
            shape.bytes(*data_type)?;
            signature.feeds.push(Feed { tensor: name.clone(), data_type: *data_type, shape, value: None });
        }
        Ok(signature)
    }
}

/// The peaks of some sizes: of each, the least with which it and all smaller ones of them run. So no peak falls as N grows, where a
/// kernel needs more for less.
#[derive(Clone, Debug)]
pub struct Growth {
    /// In ascending order: N and its doubles, the largest that fits and the next one.
    pub sizes: Vec<(u64, Footprint)>,
    /// The largest N that fits. None where even the smallest does not, and where no line is met.
    pub largest: Option<u64>,
    /// Smaller N that were tried and do not fit, in ascending order: a number that is divided well may take less than a smaller one.
    pub gaps: Vec<u64>,
    /// The graph takes multiples of this N only, as far as was looked.
    pub step: u64,
    /// Why the next N has no plan, where that is no matter of a line.
    pub ends: Option<(u64, Error)>,
}

/// No larger N is tried.
pub const MOST: u64 = 1 << 32;

/// Without a line that is met, sizes up to this one are planned.
const SHOWN: u64 = 256;

/// The smallest N that a graph takes is among these, or it takes none.
const FIRST: u64 = 16;

impl Growth {
    /// Plans sizes: 1, 2, 4 and so on until a line is met, then between the last two and above, see [`largest`]. `at` gives the footprint of
    /// one N.
    ///
    /// # Errors
    /// That of N = 1, where the graph takes no N up to 16.
    pub fn search(at: impl FnMut(u64) -> Result<Footprint>) -> Result<Growth> {
        let mut growth = Growth::planned(at)?;
        for index in 1..growth.sizes.len() {
            let (smaller, rest) = growth.sizes.split_at_mut(index);
            rest[0].1.raise_to(&smaller[index - 1].1);
        }
        Ok(growth)
    }

    fn planned(mut at: impl FnMut(u64) -> Result<Footprint>) -> Result<Growth> {
        let (step, first) = smallest(&mut at)?;
        let mut growth = Growth { sizes: vec![(step, first)], largest: None, gaps: Vec::new(), step, ends: None };
        let mut fits = growth.sizes[0].1.check().is_ok();
        if !fits {
            return Ok(growth);
        }
        let mut most = step;
        while fits && (most < SHOWN || growth.meets_lines()) {
            let Some(n) = most.checked_mul(2).filter(|n| *n <= MOST) else { return Ok(growth) };
            fits = growth.plan(n, &mut at);
            most = if fits { n } else { most };
        }
        if fits {
            return Ok(growth);
        }
        let found = largest((most / step, 2 * most / step), MOST / step, |size| growth.plan(size * step, &mut at));
        let largest = found.size * step;
        growth.largest = Some(largest);
        growth.gaps = found.gaps.iter().map(|size| size * step).collect();
        let gaps = &growth.gaps;
        growth.sizes.retain(|(n, _)| {
            let is_shown = (n / step).is_power_of_two() || *n == largest || *n == largest + step;
            is_shown && !gaps.contains(n)
        });
        growth.sizes.sort_by_key(|(n, _)| *n);
        Ok(growth)
    }

    /// Plans one N. Returns whether it fits.
    fn plan(&mut self, n: u64, at: &mut impl FnMut(u64) -> Result<Footprint>) -> bool {
        match at(n) {
            Ok(footprint) => {
                let fits = footprint.check().is_ok();
                self.sizes.push((n, footprint));
                fits
            }
            Err(error) => {
                self.ends = Some((n, error));
                false
            }
        }
    }

    /// Whether a device with a line takes more for more: it is met at last. Plans that are made to fit may take the same for two sizes.
    fn meets_lines(&self) -> bool {
        let [(_, first), .., (_, last)] = &self.sizes[..] else { return true };
        let mut pairs = first.needs().iter().zip(last.needs());
        pairs.any(|(first, last)| last.peak > first.peak && last.limit.is_some())
    }

    /// Whether the smallest N fits.
    pub fn fits(&self) -> bool {
        self.sizes.first().is_some_and(|(_, footprint)| footprint.check().is_ok())
    }

    /// What is to be said of smaller N that do not fit.
    pub fn said_of_gaps(&self) -> Option<String> {
        said_of_gaps("N", &self.gaps)
    }

    /// The footprint at one of the sizes.
    pub fn at(&self, n: u64) -> Option<&Footprint> {
        self.sizes.iter().find(|(size, _)| *size == n).map(|(_, footprint)| footprint)
    }

    /// At most three of the sizes, in ascending order: the smallest, one in the middle and the largest that fits; of a model whose
    /// smallest N does not fit, that.
    pub fn three(&self) -> Vec<u64> {
        let fitting: Vec<u64> = self.sizes.iter().filter(|(_, footprint)| footprint.check().is_ok()).map(|(n, _)| *n).collect();
        let [first, .., last] = fitting[..] else { return self.sizes.first().map(|(n, _)| *n).into_iter().collect() };
        let mut three = vec![first, fitting[fitting.len() / 2], last];
        three.dedup();
        three
    }

    /// What a device takes for one N more, between the last two sizes that are one another's double. Sizes that come near a line do not
    /// count: their plans may be made to fit it.
    pub fn slope(&self, device: usize) -> Option<f64> {
        let peak = |n: u64| self.at(n).map(|footprint| footprint.needs()[device].peak.0);
        let is_near = |need: &Need| need.limit.is_some_and(|limit| limit >= need.peak && (limit - need.peak).0 < limit.0 / 8);
        let mut doubles = self.sizes.iter().rev().filter(|(n, _)| n % 2 == 0 && peak(n / 2).is_some());
        let (last, _) = doubles.find(|(_, footprint)| !is_near(&footprint.needs()[device]))?;
        Some((peak(*last)? as f64 - peak(last / 2)? as f64) / (last / 2) as f64)
    }
}

/// What is to be said of sizes that do not fit though larger ones do.
pub fn said_of_gaps(what: &str, gaps: &[u64]) -> Option<String> {
    let (last, first) = gaps.split_last()?;
    let first: Vec<String> = first.iter().map(u64::to_string).collect();
    Some(match first.is_empty() {
        true => format!("{what} = {last}, though smaller, does not fit"),
        false => format!("{what} = {} and {last}, though smaller, do not fit", first.join(", ")),
    })
}

/// What [`largest`] finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Largest {
    /// The largest size that was tried and fits.
    pub size: u64,
    /// Smaller ones that were tried and do not fit, in ascending order.
    pub gaps: Vec<u64>,
}

/// The largest size that fits, where one that fits and a larger one that does not are known; none above `most` is tried. It goes between
/// these two until they are next to each other. A size may take less than a smaller one, so it then tries the next multiples of powers of two
/// above, up to an eighth of the size: they are divided into parts best. From one that fits it goes on in the same way.
pub fn largest((inside, outside): (u64, u64), most: u64, mut fits: impl FnMut(u64) -> bool) -> Largest {
    let mut tried = BTreeMap::from([(inside, true), (outside, false)]);
    let mut size = inside;
    loop {
        let above = tried.range(size + 1..).next().map(|(above, _)| *above);
        let mut above = above.unwrap_or_else(|| (size + size / 8 + 1).min(most.saturating_add(1)));
        while above > size + 1 {
            let middle = size + (above - size) / 2;
            let is_inside = fits(middle);
            tried.insert(middle, is_inside);
            if is_inside { size = middle } else { above = middle }
        }
        let powers = (1..64).rev().map(|power| 1u64 << power).filter(|power| *power <= size / 8);
        let next = powers.flat_map(|power| [1, 2].map(|count| (size / power + count).saturating_mul(power)));
        let mut next: Vec<u64> = next.filter(|next| *next <= most && !tried.contains_key(next)).collect();
        next.dedup();
        let better = next.into_iter().find(|next| *tried.entry(*next).or_insert_with(|| fits(*next)));
        match better {
            Some(better) => size = better,
            None => break,
        }
    }
    let gaps = tried.range(..size).filter(|(_, fits)| !**fits).map(|(size, _)| *size).collect();
    Largest { size, gaps }
}

/// The smallest N that the graph takes, with its footprint.
fn smallest(at: &mut impl FnMut(u64) -> Result<Footprint>) -> Result<(u64, Footprint)> {
    let first = match at(1) {
        Ok(footprint) => return Ok((1, footprint)),
        Err(error) if error.code() == Code::InvalidArgument => error,
        Err(error) => return Err(error),
    };
    (2..=FIRST).find_map(|n| at(n).ok().map(|footprint| (n, footprint))).ok_or(first)
}

/// `[N,224,224,3]`.
pub fn shape_in_n(shape: &PartialShape) -> String {
    match &shape.0 {
        Some(dims) => {
            let dims: Vec<String> = dims.iter().map(|dim| dim.map_or("N".to_string(), |dim| dim.to_string())).collect();
            format!("[{}]", dims.join(","))
        }
        None => "[...]".to_string(),
    }
}

impl fmt::Display for Growth {
    /// A line for each N, then the largest that fits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((smallest, first)) = self.sizes.first() else { return Ok(()) };
        let short = |name: &str| name.rsplit("device:").next().unwrap_or_default().to_string();
        let widths: Vec<usize> = first.needs().iter().map(|need| short(&need.name).len().max(12)).collect();
        write!(f, "{:>10}", "N")?;
        first.needs().iter().zip(&widths).try_for_each(|(need, width)| write!(f, "  {:>width$}", short(&need.name)))?;
        for (n, footprint) in &self.sizes {
            write!(f, "\n{n:>10}")?;
            for (need, width) in footprint.needs().iter().zip(&widths) {
                write!(f, "  {:>width$}", need.peak.to_string())?;
            }
            let over = |need: &Need| need.limit.filter(|limit| *limit < need.peak).map(|limit| (short(&need.name), need.peak - limit));
            let lacks: Vec<String> =
                footprint.needs().iter().filter_map(over).map(|(name, bytes)| format!("{name} lacks {bytes}")).collect();
            match footprint.check() {
                Err(error) if lacks.is_empty() => write!(f, "  {}", error.message())?,
                _ if lacks.is_empty() => {}
                _ => write!(f, "  {}", lacks.join(", "))?,
            }
        }
        for (index, need) in first.needs().iter().enumerate() {
            if let Some(slope) = self.slope(index).filter(|slope| *slope > 0.0) {
                write!(f, "\n{}: about {} for each N more", short(&need.name), Bytes(slope as u64))?;
            }
        }
        if self.step > 1 {
            write!(f, "\nN is taken in steps of {}: the graph refuses smaller ones", self.step)?;
        }
        if let Some((n, error)) = &self.ends {
            write!(f, "\nN = {n} has no plan: {}", error.message())?;
        }
        match self.largest {
            Some(largest) => {
                write!(f, "\nthe largest N that fits is {largest}")?;
                self.said_of_gaps().map_or(Ok(()), |said| write!(f, "; {said}"))
            }
            None if self.fits() => write!(f, "\nevery N here fits"),
            None => {
                write!(f, "\nN = {smallest} does not fit; the smallest limit that is enough for it is {} bytes", first.minimum_limit().0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_size_may_be_above_one_that_does_not_fit() {
        let found = |most: u64, fits: &dyn Fn(u64) -> bool| {
            let inside = (0..).map(|power| 1u64 << power).take_while(|size| fits(*size)).last().unwrap();
            largest((inside, 2 * inside), most, fits)
        };
        for size in [1, 2, 3, 77, 672, 1023, 100_000] {
            assert_eq!(found(1 << 32, &|other| other <= size), Largest { size, gaps: Vec::new() });
        }
        // Sizes that 32 or 16 divides take less.
        assert_eq!(found(1 << 32, &|size| size <= 554 || (size <= 672 && size % 32 == 0)).size, 672);
        assert_eq!(found(1 << 32, &|size| size <= 600 || (size <= 688 && size % 16 == 0)).size, 688);
        // Beyond a power of two that does not fit.
        let odd = found(1 << 32, &|size| size <= 500 || (size <= 576 && size % 32 == 0 && size != 512));
        assert_eq!((odd.size, odd.gaps.contains(&512)), (576, true));
        let gap = found(1 << 32, &|size| size != 640 && size <= 672);
        assert_eq!((gap.size, gap.gaps), (672, vec![640]));
        assert!(found(1 << 10, &|size| size <= 1000 || size > 1024).size <= 1024);
        assert_eq!(said_of_gaps("N", &[]), None);
        assert_eq!(said_of_gaps("N", &[640]).unwrap(), "N = 640, though smaller, does not fit");
        assert_eq!(said_of_gaps("N", &[1, 2, 3]).unwrap(), "N = 1, 2 and 3, though smaller, do not fit");
    }

    #[test]
    fn no_peak_falls_as_n_grows() {
        let options = plimsoll_cards::Options::new().limit("CPU:0", "4KiB").limit("CPU:1", "64KiB");
        let mut options = options.intra_op(1);
        options.device_count.insert("CPU".to_string(), 2);
        let specs = options.resolve_on(1, plimsoll_device::InstructionSet::Baseline).unwrap();
        // The first device takes less for 4 than for 2, and the second the most for 2.
        let peaks = |n: u64| [100 * n - if n == 4 { 250 } else { 0 }, if n == 2 { 900 } else { 10 * n }];
        let growth = Growth::search(|n| Ok(Footprint::of_peaks(&specs, &peaks(n)))).unwrap();
        let said = |n: u64| growth.at(n).unwrap().needs().iter().map(|need| (need.peak.0, need.parts.total().0)).collect::<Vec<_>>();
        assert_eq!(
            [1, 2, 4, 8].map(said),
            [[(100, 100), (10, 10)], [(200, 200), (900, 900)], [(200, 200), (900, 900)], [(800, 800), (900, 900)]]
        );
        assert_eq!(growth.largest, Some(40));
        assert_eq!(growth.three(), [1, 8, 40]);
        let three = |each: u64| Growth::search(|n| Ok(Footprint::of_peaks(&specs, &[n * each, 1]))).unwrap().three();
        assert_eq!([8192, 4096, 2048, 1365].map(three), [vec![1], vec![1], vec![1, 2], vec![1, 2, 3]]);
        assert!(growth.sizes.windows(2).all(|pair| {
            let needs = pair[0].1.needs().iter().zip(pair[1].1.needs());
            needs.into_iter().all(|(smaller, larger)| smaller.peak <= larger.peak)
        }));
    }
}
