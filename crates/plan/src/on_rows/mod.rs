//! Works of loops on rows of lists.
//!
//! An iteration of a loop reads rows of lists and writes rows into others, which its index names. A work that reads such a row reads it in
//! the list, and one that makes such a row makes it there ([`OnRows`](plimsoll_request::on_rows::OnRows)): there is no copy between, and no
//! value for it. No arena grows by that, and none gets smaller.
//!
//! [`found`]: the works of a body that can be so. [`apply`]: what becomes of them.

mod apply;
mod found;

use plimsoll_base::Result;
use plimsoll_graph::id::Id;

use self::found::Found;
use crate::Request;
use crate::lir::{Lir, RegionId};
use crate::order::taken;

/// The plan's own region is at hand, and the works of all are in order. They with works on rows; none where there are none.
///
/// Each body keeps the bytes and the predicted seconds that it took with its copies. They decide which schedule fits a line and which
/// is faster, and no bound below those schedules knows of rows. So a lower line never gives a faster plan by its rows.
///
/// # Errors
/// INTERNAL where a work that is made so does not hold.
pub(crate) fn on_rows(request: &Request<'_>, lir: &Lir) -> Result<Option<Lir>> {
    if !lir.works.values().any(|work| found::put(work).is_some() || found::take(work).is_some()) {
        return Ok(None);
    }
    let (mut whole, mut is_changed) = (lir.clone(), false);
    whole.each_region(|lir| {
        is_changed |= of_region(request, lir)?;
        Ok(())
    })?;
    Ok(is_changed.then_some(whole))
}

/// Changes works of the region at hand, where that is the body of a loop on one device and has the room for them. Whether it did. On
/// several devices one could wait for another's work that has its copies with it.
fn of_region(request: &Request<'_>, lir: &mut Lir) -> Result<bool> {
    if lir.here() == RegionId::from_index(0) || !lir.region().partners.is_empty() {
        return Ok(false);
    }
    let Some(changed) = Found::new(request, lir).applied()? else { return Ok(false) };
    let needed = taken(&changed, request.devices);
    if needed.iter().any(|(device, bytes)| *bytes > lir.region().takes(*device)) {
        return Ok(false);
    }
    *lir = changed;
    Ok(true)
}
