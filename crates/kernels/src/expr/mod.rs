//! Elementwise operations as expressions: any chain of them runs as one kernel, tile by tile.

mod chain;
mod compile;
mod complex;
mod elementwise;
mod function;
mod layout;
mod ops;
mod program;
#[cfg(test)]
mod tests;
mod widen;

pub(crate) use chain::{Chain, Change, Changes, Functions, Link, Links, change};
pub use elementwise::{elementwise, elementwise_on};
pub(crate) use layout::elements;
pub use program::{Bases, TileProgram};
