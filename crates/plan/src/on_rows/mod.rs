//! Works of loops on rows of lists.
//!
//! An iteration of a loop reads rows of lists and writes rows into others, which its index names. A work that reads such a row reads it in
//! the list, and one that makes such a row makes it there ([`OnRows`](plimsoll_request::on_rows::OnRows)): there is no copy between, and no
//! value for it. No arena may grow by that.
//!
//! [`found`]: the works of a body that can be so. [`apply`]: what becomes of them.

mod apply;
mod found;

use plimsoll_base::{Bytes, Result};
use plimsoll_graph::id::Id;

use self::found::Found;
use crate::Request;
use crate::lir::{Lir, RegionId, WorkKind};
use crate::order::taken;
use crate::prepare::prepare;

/// The plan's own region is at hand, and the works of all are in order. They with works on rows; none where there are none. `arenas` says
/// what the arena of each device takes.
///
/// # Errors
/// INTERNAL where a work that is made so does not hold.
pub(crate) fn on_rows(request: &Request<'_>, lir: &Lir, arenas: &dyn Fn(&Lir) -> Vec<Bytes>) -> Result<Option<Lir>> {
    if !lir.works.values().any(|work| found::put(work).is_some() || found::take(work).is_some()) {
        return Ok(None);
    }
    let (mut whole, mut is_changed) = (lir.clone(), false);
    whole.each_region(|lir| {
        is_changed |= of_region(request, lir)?;
        if is_changed {
            prepare_loops(request, lir)?;
            lir.region_mut().arena = taken(lir, request.devices);
        }
        Ok(())
    })?;
    let takes_no_more = || arenas(&whole).iter().zip(arenas(lir)).all(|(now, before)| *now <= before);
    Ok((is_changed && takes_no_more()).then_some(whole))
}

/// Changes works of the region at hand, where that is the body of a loop and takes no more memory thereby. Whether it did.
fn of_region(request: &Request<'_>, lir: &mut Lir) -> Result<bool> {
    if lir.here() == RegionId::from_index(0) {
        return Ok(false);
    }
    let Some(changed) = Found::new(request, lir).applied()? else { return Ok(false) };
    let arena = taken(&changed, request.devices);
    if arena.iter().any(|(device, bytes)| *bytes > lir.region().takes(*device)) {
        return Ok(false);
    }
    *lir = changed;
    Ok(true)
}

/// Finds out anew what the loops of the region at hand take.
fn prepare_loops(request: &Request<'_>, lir: &mut Lir) -> Result<()> {
    for id in lir.ids() {
        if matches!(lir.works[id].kind, WorkKind::Loop { .. }) {
            lir.works[id].prepared = Some(prepare(request, lir, &lir.works[id])?);
        }
    }
    Ok(())
}
