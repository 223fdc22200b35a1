//! Whether a plan stays under the lines; and if not, by how much, who takes most, and what would help.

use plimsoll_base::{Error, Result};

use crate::plan::{DevicePlan, Plan};

/// Whether every device's peak stays under its line.
///
/// # Errors
/// RESOURCE_EXHAUSTED for the first device where it does not: the least limit, the shortfall, the three largest holders by
/// node, and what would help.
pub fn check_limits(plan: &Plan) -> Result<()> {
    plan.devices.iter().try_for_each(check)
}

fn check(device: &DevicePlan) -> Result<()> {
    let needed = device.peak.total();
    let Some(limit) = device.limit.filter(|limit| needed > *limit) else { return Ok(()) };
    let shortfall = needed - limit;
    let holders: Vec<String> = device.holders.iter().take(3).map(|holder| format!("{} ({})", holder.name, holder.bytes)).collect();
    Err(Error::resource_exhausted(format!(
        "the plan needs {} ({} bytes) and the limit is {limit} ({} bytes): {} bytes short; at the peak {} take most",
        needed,
        needed.0,
        limit.0,
        shortfall.0,
        if holders.is_empty() { "no values".to_string() } else { holders.join(", ") }
    ))
    .on_device(&device.name)
    .with_remedy(format!("raise the limit to {} bytes, feed a smaller batch, or move nodes to another device", needed.0)))
}
