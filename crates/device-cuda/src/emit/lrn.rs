//! Local response normalization: a thread for each element, which looks at its neighbours in order.

use plimsoll_base::{Error, Result};
use plimsoll_request::lrn::LrnSpec;

use super::write::{Index, Writer, computed, narrow, stored, widen};
use super::{Emitted, KernelArg, blocks};

/// `LRN`.
///
/// # Errors
/// UNIMPLEMENTED for types without a kernel.
pub(super) fn forward(spec: &LrnSpec) -> Result<Emitted> {
    let mut writer = begin(spec)?;
    writer.input("x", stored(spec.data_type)?, KernelArg::Argument(0));
    writer.output("q", stored(spec.data_type)?, KernelArg::Argument(1));
    each(&mut writer, spec);
    writer.line(format!("f32 y = {} * {};", widen(spec.data_type, "x[i]"), power(spec)));
    writer.line(format!("q[i] = {};\n  }}", narrow(spec.data_type, "y")));
    Ok(Emitted { kernels: vec![writer.finish("lrn", blocks(spec.rows * spec.channels))?], ..Emitted::default() })
}

/// `LRNGrad`: each element's share in the gradients of its neighbours, then the sums of the shares.
///
/// # Errors
/// As [`forward`].
pub(super) fn gradient(spec: &LrnSpec) -> Result<Emitted> {
    let (ctype, total) = (stored(spec.data_type)?, spec.rows * spec.channels);
    let mut writer = begin(spec)?;
    for (at, name) in ["dy", "x", "y"].into_iter().enumerate() {
        writer.input(name, ctype, KernelArg::Argument(at as u32));
    }
    writer.output("shares", "f32", KernelArg::Between(0));
    writer.output("direct", "f32", KernelArg::Between(1));
    each(&mut writer, spec);
    let value = |name: &str| widen(spec.data_type, format!("{name}[i]"));
    writer.line(format!("shares[i] = {} * {} / norm; direct[i] = {} * {};\n  }}", value("dy"), value("y"), value("dy"), power(spec)));
    let first = writer.finish("lrn_shares", blocks(total))?;

    let mut writer = begin(spec)?;
    writer.input("x", ctype, KernelArg::Argument(1));
    writer.input("shares", "f32", KernelArg::Between(0));
    writer.input("direct", "f32", KernelArg::Between(1));
    writer.output("q", ctype, KernelArg::Argument(3));
    writer.word("f32", "factor", (-2.0 * spec.alpha * spec.beta).to_bits());
    neighbours(&mut writer, spec, "shares[j]");
    writer.line(format!("f32 y = direct[i] + factor * {} * sum; q[i] = {};\n  }}", value("x"), narrow(spec.data_type, "y")));
    let then = writer.finish("lrn_grad", blocks(total))?;
    Ok(Emitted { kernels: vec![first, then], between: vec![4 * total; 2], ..Emitted::default() })
}

fn begin(spec: &LrnSpec) -> Result<Writer> {
    if computed(spec.data_type)? != "f32" {
        return Err(Error::unimplemented(format!("a kernel for a card: LRN of {}", spec.data_type)));
    }
    Ok(Writer::new(Index::of(spec.rows * spec.channels)))
}

/// The head of the loop over elements `i`: the norm of each.
fn each(writer: &mut Writer, spec: &LrnSpec) {
    writer.word("f32", "bias", spec.bias.to_bits());
    writer.word("f32", "alpha", spec.alpha.to_bits());
    writer.word("f32", "beta", spec.beta.to_bits());
    neighbours(writer, spec, &format!("{0} * {0}", widen(spec.data_type, "x[j]")));
    writer.line("f32 norm = bias + alpha * sum; (void)beta;");
}

/// The head of the loop over elements `i`: the `sum` of a term of each neighbour `j`.
fn neighbours(writer: &mut Writer, spec: &LrnSpec, term: &str) {
    writer.size("n", (spec.rows * spec.channels) as i64);
    writer.size("channels", spec.channels as i64);
    // Neighbours further away than the last channel are none.
    writer.size("radius", spec.depth_radius.min(spec.channels) as i64);
    writer.each("i", "n");
    let index = writer.index();
    writer.line(format!("{index} c = i % channels, first = c < radius ? i - c : i - radius;"));
    writer.line(format!("{index} last = channels - 1 - c < radius ? i + (channels - 1 - c) : i + radius; f32 sum = 0.0f;"));
    writer.line(format!("for ({index} j = first; j <= last; ++j) sum += {term};"));
}

/// `norm^-beta`, by roots where the processor takes roots.
fn power(spec: &LrnSpec) -> &'static str {
    match spec.beta {
        0.5 => "(1.0f / sqrtf(norm))",
        0.75 => "(1.0f / (sqrtf(norm) * sqrtf(sqrtf(norm))))",
        1.0 => "(1.0f / norm)",
        _ => "exp_f32(-beta * log_f32(norm))",
    }
}
