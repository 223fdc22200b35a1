//! Values of a filter at the points.

use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::Result;
use plimsoll_device::{Args, Cost, CpuKernel, Fault, Prepared};

use super::Shape;
use super::transform::Filter;
use crate::cut::Cut;
use crate::packing::{Order, Packing, packing};
use crate::simd::Isa;

struct Filters {
    shape: Arc<Shape>,
    /// How the filter lies.
    order: Order,
    packing: Packing<f32>,
    /// Of panels times blocks of terms.
    cut: Cut,
    blocks: usize,
}

impl std::fmt::Debug for Filters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Filters").field("cut", &self.cut).finish()
    }
}

pub(super) fn prepare(isa: Isa, shape: &Arc<Shape>, order: Order) -> Result<Prepared> {
    let (lanes, taps) = (shape.code.lanes, shape.taps * shape.taps);
    let blocks = shape.terms.div_ceil(lanes);
    let width = shape.panels.iter().map(|panel| shape.width(panel)).max().unwrap_or(0);
    let cut = Cut::new(shape.panels.len() * blocks, (4 * shape.planes() * lanes * width) as u64, 1);
    let (read, written) = ((taps * shape.terms * shape.columns) as f64, shape.values() as f64);
    // Each number that is written takes about four operations.
    let cost = Cost { flops: 4.0 * written, bytes: 4.0 * (read + written) };
    let per_worker = if shape.is_gradient { (4 * taps * lanes * lanes + 64) as u64 } else { 0 };
    let kernel = Filters { shape: Arc::clone(shape), order, packing: packing::<f32>(isa), cut, blocks };
    Ok(Prepared { chunks: cut.pieces(), scratch: 0, per_worker, cost, in_place: Vec::new(), kernel: Arc::new(kernel) })
}

impl Shape {
    /// A vector of channels of a filter, whose taps are so far apart.
    fn filter(&self, (from, tap): (*const f32, isize), count: usize, to: *mut f32, to_point: usize) -> Filter {
        let taps = self.taps;
        Filter { from, row: tap * taps as isize, column: tap, rows: taps, columns: taps, count, to, to_point }
    }
}

impl CpuKernel for Filters {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        let (filter, values) = (args.pointers[0].cast::<f32>().cast_const(), args.pointers[1].cast::<f32>());
        for unit in self.cut.units(chunks) {
            // SAFETY: the arguments are the caller's promise; a unit's values are written by this call only.
            unsafe { self.block(unit / self.blocks, unit % self.blocks, filter, values, args.worker.cast()) };
        }
        Ok(())
    }
}

impl Filters {
    /// The values of a panel and a block of terms.
    unsafe fn block(&self, panel: usize, block: usize, filter: *const f32, values: *mut f32, scratch: *mut f32) {
        let shape = &*self.shape;
        let (lanes, panel) = (shape.code.lanes, &shape.panels[panel]);
        let (width, taps) = (shape.width(panel), shape.taps * shape.taps);
        let terms = block * lanes..((block + 1) * lanes).min(shape.terms);
        let to = |term: usize, vector: usize| values.wrapping_add(shape.panel_start(panel) + term * width + vector * lanes);
        let to_point = shape.terms * width;
        for vector in 0..panel.vectors {
            let count = if vector + 1 == panel.vectors { panel.last } else { lanes };
            let column = panel.column + vector * lanes;
            if !shape.is_gradient {
                // Where the panel's first column is, and from term to term.
                let (start, row) = match self.order {
                    Order::Rows => (panel.column, shape.columns),
                    Order::Panels => (taps * shape.terms * panel.column, width - lanes + panel.last),
                };
                for term in terms.clone() {
                    let from = filter.wrapping_add(start + term * row + vector * lanes);
                    let tap = (shape.terms * row) as isize;
                    let values = shape.filter((from, tap), count, to(term, vector), to_point);
                    // SAFETY: the filter has these columns of this term, and the values room for whole vectors.
                    unsafe { (shape.transforms.filter)(&values) };
                }
                continue;
            }
            // The filter lies as rows of terms, and is seen in reverse.
            let square = lanes * lanes;
            for tap in 0..taps {
                let from = filter.wrapping_add((tap * shape.columns + column) * shape.terms + terms.start);
                // SAFETY: `count` rows of the filter with so many terms; scratch has room for a square of every tap.
                unsafe { (self.packing.transpose)(from, shape.terms, count, terms.len(), scratch.add(tap * square), lanes) };
            }
            for (number, term) in terms.clone().enumerate() {
                let from = scratch.wrapping_add((taps - 1) * square + number * lanes);
                let values = shape.filter((from, -(square as isize)), lanes, to(term, vector), to_point);
                // SAFETY: the squares have been filled, with zeros for columns that are not there.
                unsafe { (shape.transforms.filter)(&values) };
            }
        }
    }
}
