//! Arithmetic: elementwise operations, products, reductions.

use crate::OpRules;
use crate::fusion::Fusion;

pub mod add_n;
pub mod arg_reduction;
pub mod batch_matmul;
pub mod binary;
pub mod bincount;
pub mod bucketize;
pub mod cast;
pub mod compare;
pub mod complex;
mod contraction;
pub mod einsum;
pub mod histogram;
pub mod logic;
pub mod matmul;
mod product;
pub mod range;
pub mod reduction;
pub mod scan;
pub mod segment;
pub mod select;
pub mod sorted_segment;
pub mod sparse_matmul;
pub mod unary;
pub mod unary_grad;

/// The fusions of this family, in the order in which they are tried.
pub const FUSIONS: &[&[Fusion]] = &[batch_matmul::FUSIONS, reduction::FUSIONS];

/// The rules of this family.
pub const RULES: &[&[OpRules]] = &[
    add_n::RULES,
    arg_reduction::RULES,
    batch_matmul::RULES,
    binary::RULES,
    bincount::RULES,
    bucketize::RULES,
    cast::RULES,
    compare::RULES,
    complex::RULES,
    einsum::RULES,
    histogram::RULES,
    logic::RULES,
    matmul::RULES,
    range::RULES,
    reduction::RULES,
    scan::RULES,
    segment::RULES,
    select::RULES,
    sorted_segment::RULES,
    sorted_segment::GRADIENTS,
    sparse_matmul::RULES,
    unary::RULES,
    unary_grad::RULES,
];
