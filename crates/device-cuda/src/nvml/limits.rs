//! Limits that the driver keeps for a control group: NVML of driver r615 and later.
//!
//! The structures are those of NVML's header; the calls were not tried on a card.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use plimsoll_base::{Bytes, Error, Result};

use super::Nvml;
use super::raw::{Handle, NO_LIMIT, Trouble};

impl Nvml {
    /// Whether this driver's library has calls for such limits. Whether they are allowed here, only a call tells.
    pub fn has_memory_limits(&self) -> bool {
        self.has_limits()
    }

    /// Limits the memory of a card for the processes of a control group (its folder): so many bytes are its own, and more are
    /// refused. None takes the limit away, which must be done before the group is removed.
    ///
    /// # Errors
    /// FAILED_PRECONDITION with the driver's error: it needs root, cgroup v2, and a card that is not divided (MIG).
    pub fn limit_group(&self, uuid: &str, group: &Path, limit: Option<Bytes>) -> Result<()> {
        let (soft, hard) = limit.map_or((0, NO_LIMIT), |limit| (limit.0, limit.0));
        self.on(uuid, group, |card, group| self.set_limits(card, group, soft, hard))
    }

    /// The bytes of a card that the processes of a limited control group use.
    ///
    /// # Errors
    /// FAILED_PRECONDITION with the driver's error.
    pub fn used_by_group(&self, uuid: &str, group: &Path) -> Result<Bytes> {
        self.on(uuid, group, |card, group| self.limits(card, group)).map(|(_, _, used)| Bytes(used))
    }

    fn on<T>(&self, uuid: &str, group: &Path, call: impl FnOnce(Handle, &std::ffi::CStr) -> std::result::Result<T, Trouble>) -> Result<T> {
        let failed = |why: String| Error::failed_precondition(format!("memory limits of {}: {why}", group.display()));
        let path = CString::new(group.as_os_str().as_bytes()).map_err(|_| failed("its name has a zero in it".into()))?;
        let mut cards = (0..self.count().unwrap_or(0)).filter_map(|index| self.handle(index).ok());
        let card = cards.find(|card| self.text(*card, |functions| functions.uuid).is_ok_and(|name| name == uuid));
        let Some(card) = card else { return Err(failed(format!("there is no card {uuid}"))) };
        call(card, &path).map_err(|trouble| {
            failed(match trouble {
                Trouble::Missing => "this driver has none (r615 and later have)".into(),
                trouble => trouble.to_string(),
            })
        })
    }
}
