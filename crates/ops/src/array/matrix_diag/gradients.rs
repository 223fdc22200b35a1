//! Gradients of the movement of diagonals: the opposite movement.

use plimsoll_base::Result;
use plimsoll_graph::{AttrValue, NodeId, Output};

use crate::GraphBuilder;
use crate::gradient::{Grad, from_one};

/// The version at the end of the operation's name, and its alignment.
fn version(g: &Grad<'_>) -> (&'static str, Vec<(&'static str, AttrValue)>) {
    let version = match g.op_name() {
        name if name.ends_with("V3") => "V3",
        name if name.ends_with("V2") => "V2",
        _ => "",
    };
    let align = g.attrs().get("align").filter(|_| version == "V3").cloned();
    (version, align.map(|align| ("align", align)).into_iter().collect())
}

/// The diagonals of a tensor of the operation's type; of all versions but the first, those that `k` names.
fn part_of(g: &mut Grad<'_>, matrices: Output, k: usize) -> Result<Output> {
    let (version, align) = version(g);
    if version.is_empty() {
        return g.op("MatrixDiagPart", &[matrices]);
    }
    let zero = g.number(matrices, 0.0)?;
    g.op_with(&format!("MatrixDiagPart{version}"), &[matrices, g.input(k), zero], &align)
}

fn set_in(g: &mut Grad<'_>, matrices: Output, diagonals: Output, k: usize) -> Result<Output> {
    let (version, align) = version(g);
    let k = if version.is_empty() { vec![] } else { vec![g.input(k)] };
    g.op_with(&format!("MatrixSetDiag{version}"), &[&[matrices, diagonals], &k[..]].concat(), &align)
}

fn alone(g: &Grad<'_>, first: Output) -> Vec<Option<Output>> {
    let mut all = vec![None; g.input_count()];
    all[0] = Some(first);
    all
}

pub(super) fn diag(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, gradient| {
        let taken = part_of(g, gradient, 1)?;
        Ok(alone(g, taken))
    })
}

pub(super) fn part(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, gradient| {
        let zeros = g.zeros_like(g.input(0))?;
        let set = set_in(g, zeros, gradient, 1)?;
        Ok(alone(g, set))
    })
}

pub(super) fn set(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, gradient| {
        let zeros = g.zeros_like(g.input(1))?;
        let kept = set_in(g, gradient, zeros, 2)?;
        let mut all = alone(g, kept);
        all[1] = Some(part_of(g, gradient, 2)?);
        Ok(all)
    })
}
