//! Elementwise operations as expressions: any chain of them is one request.

mod bessel;
mod fresnel;
mod functions;
mod gamma;
mod ir;
mod mask;
mod primitives;
mod split;
mod uses;
mod written;

pub use bessel::{
    bessel_i0, bessel_i0e, bessel_i1, bessel_i1e, bessel_j0, bessel_j1, bessel_k0, bessel_k0e, bessel_k1, bessel_k1e, bessel_y0, bessel_y1,
    dawson, expint, spence,
};
pub use fresnel::{fresnel_cos, fresnel_sin};
pub use functions::{digamma, erfinv, floor_mod, ndtri, polygamma, zeta};
pub use gamma::{igamma, igamma_grad_a, igammac};
pub use ir::{Expr, ExprBuilder, Instr, Reg, Scalar};
pub use mask::Masked;
pub use primitives::{BinaryOp, UnaryOp};
pub use split::{Part, PartOperand};
pub use uses::Uses;
