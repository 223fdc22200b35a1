//! The passes, in order, and what is checked and printed between them.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use plimsoll_base::{Bytes, Code, Error, Result};

use crate::fit::Fitting;
use crate::infer::{Pruned, prune_and_infer};
use crate::lir::Lir;
use crate::lir::text::Text;
use crate::lir::verify::verify;
use crate::{Plan, Request, fit, fuse, hazard, lower, order, pack, patch, select, soften, transfer};

/// A step from the graph to the plan. The first makes the LIR and the last the plan; those between change the LIR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pass {
    /// Nodes become works.
    Lower,
    /// Works that their device cannot compute go to the host.
    Soften,
    /// Works are rewritten as their operations know it.
    Patch,
    /// Values are copied to the devices that read them.
    Transfer,
    /// Works become one work.
    Fuse,
    /// Requests get their variants.
    Select,
    /// Writers of variables wait for readers.
    Hazard,
    /// Works are put in order.
    Order,
    /// What is too big runs in part again, where lines ask for it.
    Fit,
    /// Values get addresses.
    Pack,
}

impl Pass {
    /// All passes, in order.
    pub const ALL: &'static [Pass] = &[
        Pass::Lower,
        Pass::Soften,
        Pass::Patch,
        Pass::Transfer,
        Pass::Fuse,
        Pass::Select,
        Pass::Hazard,
        Pass::Order,
        Pass::Fit,
        Pass::Pack,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Pass::Lower => "lower",
            Pass::Soften => "soften",
            Pass::Patch => "patch",
            Pass::Transfer => "transfer",
            Pass::Fuse => "fuse",
            Pass::Select => "select",
            Pass::Hazard => "hazard",
            Pass::Order => "order",
            Pass::Fit => "fit",
            Pass::Pack => "pack",
        }
    }
}

impl fmt::Display for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Pass {
    type Err = Error;

    /// # Errors
    /// INVALID_ARGUMENT with all names, and the one that may have been meant.
    fn from_str(name: &str) -> Result<Pass> {
        let names = || Pass::ALL.iter().map(|pass| pass.name());
        Pass::ALL.iter().copied().find(|pass| pass.name() == name).ok_or_else(|| {
            let all = names().collect::<Vec<_>>().join(", ");
            Error::invalid_argument(format!("there is no pass '{}'; the passes are {all}", name.escape_debug())).suggesting(name, names())
        })
    }
}

/// Says with an error that planning has to end.
pub type Check<'a> = dyn Fn() -> Result<()> + 'a;

/// Changes an LIR. Passes that ask libraries look between two works whether to go on: an answer may take seconds.
type Change = fn(&Request<'_>, &mut Lir, &Check<'_>) -> Result<()>;

/// The passes between the first and the last.
const CHANGES: &[(Pass, Change)] = &[
    (Pass::Soften, soften::soften),
    (Pass::Patch, patch::patch),
    (Pass::Transfer, |request, lir, _| transfer::transfer(request, lir)),
    (Pass::Fuse, fuse::fuse),
    (Pass::Select, select::select),
    (Pass::Hazard, |request, lir, _| hazard::hazard(request, lir)),
    (Pass::Order, |request, lir, _| order::order(request, lir)),
];

/// Makes the plan of a request. Limits are not looked at: see [`crate::check_limits`].
///
/// # Errors
/// TensorFlow's errors for feeds, fetches and targets that make no sense and for unfed placeholders. The errors of an operation's
/// rules for its inputs. UNIMPLEMENTED for operations that have no rules or kernels here, and for shapes that are known only when
/// the graph runs. The same for a request that its device cannot compute, where the host may not or cannot. Each names the node.
pub fn plan(request: &Request<'_>) -> Result<Plan> {
    plan_until(request, &go_on)
}

/// As [`plan`], asking before each pass whether to go on, and between two works for which libraries are asked.
///
/// # Errors
/// As [`plan`]; the error of `check`.
pub fn plan_until(request: &Request<'_>, check: &Check<'_>) -> Result<Plan> {
    let known = request.lines.searches.as_ref().and_then(|searches| searches.take_ordered(request));
    let ordered = match known {
        Some(ordered) => Arc::unwrap_or_clone(ordered),
        None => lir_at_until(request, Pass::Order, check)?,
    };
    let floors = fit::floors(request, &ordered)?;
    packed(request, Cow::Owned(ordered), &floors, check)
}

/// The plan of an attempt to place a run, and its works in order. Nothing is found out about what its devices need at least. `fused` is
/// the LIR after [`Pass::Fuse`], where that is known; `pruned` is [`prune`] of the run, with any placement.
///
/// # Errors
/// As [`plan`].
pub(crate) fn attempted(
    request: &Request<'_>,
    pruned: impl FnOnce() -> Result<Arc<Pruned>>,
    fused: Option<Lir>,
) -> Result<(Plan, Arc<Lir>)> {
    let ordered = match fused {
        Some(mut fused) => {
            go_through(request, &mut fused, |pass| pass > Pass::Fuse, &go_on)?;
            fused
        }
        None => lir_from(request, &*pruned()?, Pass::Order)?,
    };
    Ok((packed(request, Cow::Borrowed(&ordered), &[], &go_on)?, Arc::new(ordered)))
}

/// The plan of works in order.
fn packed(request: &Request<'_>, ordered: Cow<'_, Lir>, floors: &[Bytes], check: &Check<'_>) -> Result<Plan> {
    let (lir, fitting) = fitted(request, ordered, check)?;
    check()?;
    let plan = pack::pack(request, lir, floors, fitting)?;
    if cfg!(debug_assertions) {
        check_plan(request, &prune(request)?, &plan)?;
    }
    Ok(plan)
}

/// The text of what there is after a pass: of the LIR, after the last of the plan. For people and tests.
///
/// # Errors
/// As [`plan`].
pub fn text_after(request: &Request<'_>, pass: Pass) -> Result<String> {
    match pass {
        Pass::Pack => Ok(plan(request)?.to_string()),
        Pass::Fit => Ok(text(request, &fitted(request, Cow::Owned(lir_of(request)?), &go_on)?.0)),
        _ => Ok(text(request, &lir_after(request, &prune(request)?, pass, &go_on)?)),
    }
}

/// The LIR of a plan: its works in order.
pub(crate) fn lir_of(request: &Request<'_>) -> Result<Lir> {
    lir_at(request, Pass::Order)
}

/// The LIR after a pass.
pub(crate) fn lir_at(request: &Request<'_>, last: Pass) -> Result<Lir> {
    lir_at_until(request, last, &go_on)
}

fn lir_at_until(request: &Request<'_>, last: Pass, check: &Check<'_>) -> Result<Lir> {
    lir_after(request, &prune(request)?, last, check)
}

/// The LIR after a pass, and after a later one.
pub(crate) fn lirs_at(request: &Request<'_>, pruned: &Pruned, first: Pass, last: Pass) -> Result<[Lir; 2]> {
    let before = lir_from(request, pruned, first)?;
    let mut behind = before.clone();
    go_through(request, &mut behind, |pass| pass > first && pass <= last, &go_on)?;
    Ok([before, behind])
}

/// The LIR after a pass, of what the run needs.
pub(crate) fn lir_from(request: &Request<'_>, pruned: &Pruned, last: Pass) -> Result<Lir> {
    lir_after(request, pruned, last, &go_on)
}

/// What a run needs of the graph. The placement is not looked at.
pub(crate) fn prune(request: &Request<'_>) -> Result<Pruned> {
    if request.libraries.len() != request.devices.len() {
        let (libraries, devices) = (request.libraries.len(), request.devices.len());
        return Err(Error::invalid_argument(format!("{libraries} libraries for {devices} devices")));
    }
    prune_and_infer(request)
}

/// The LIR after a pass.
fn lir_after(request: &Request<'_>, pruned: &Pruned, last: Pass, check: &Check<'_>) -> Result<Lir> {
    check()?;
    let mut lir = lower::lower(request, pruned)?;
    check_lir(request, &lir, Pass::Lower)?;
    go_through(request, &mut lir, |pass| pass <= last, check)?;
    Ok(lir)
}

/// Changes a LIR by some of the passes behind lowering.
fn go_through(request: &Request<'_>, lir: &mut Lir, passes: impl Fn(Pass) -> bool, check: &Check<'_>) -> Result<()> {
    for (pass, change) in CHANGES.iter().filter(|(pass, _)| passes(*pass)) {
        check()?;
        lir.each_region(|lir| change(request, lir, check))?;
        check_lir(request, lir, *pass)?;
    }
    Ok(())
}

/// An ordered LIR, made to fit.
fn fitted(request: &Request<'_>, lir: Cow<'_, Lir>, check: &Check<'_>) -> Result<(Lir, Option<Fitting>)> {
    check()?;
    let (lir, fitting) = fit::fit(request, lir)?;
    check_lir(request, &lir, Pass::Fit)?;
    Ok((lir, fitting))
}

fn go_on() -> Result<()> {
    Ok(())
}

fn check_lir(request: &Request<'_>, lir: &Lir, after: Pass) -> Result<()> {
    if cfg!(debug_assertions) { verify(request, lir, after) } else { Ok(()) }
}

/// A plan of ours passes the checks of a plan from a file.
fn check_plan(request: &Request<'_>, pruned: &Pruned, plan: &Plan) -> Result<()> {
    match crate::verify::verify(request, pruned, plan) {
        // The arguments of kernels of other libraries may be unknown.
        Err(error) if error.code() == Code::Unimplemented => Ok(()),
        Err(error) => Err(Error::internal(format!("a plan does not hold: {error}\n{plan}"))),
        Ok(()) => Ok(()),
    }
}

pub(crate) fn text(request: &Request<'_>, lir: &Lir) -> String {
    Text { lir, graph: request.graph, devices: request.devices }.to_string()
}
