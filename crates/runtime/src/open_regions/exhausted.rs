//! A request that could not be granted, with everything that helps to see why.

use std::fmt;
use std::sync::Arc;

use plimsoll_base::{Bytes, Error, Shortage};

use super::dump::Dump;

/// How many holders an error names.
const NAMED_HOLDERS: usize = 5;

/// An allocation that failed. It becomes an [`Error`] with RESOURCE_EXHAUSTED; the dump is here only.
#[derive(Clone, Debug)]
pub struct Exhausted {
    /// The device.
    pub device: Arc<str>,
    /// The node that asked.
    pub node: Arc<str>,
    /// Bytes asked for.
    pub asked: Bytes,
    /// Whether it waited for memory, in vain.
    pub waited: bool,
    /// The error of the line or the system when the arena asked it for more.
    pub refused: Option<Error>,
    /// The arena at that moment.
    pub dump: Box<Dump>,
}

impl Exhausted {
    /// Bytes that are not in use: free in regions, or not asked for yet under the limit.
    pub fn free(&self) -> Bytes {
        self.dump.stats.bytes_limit - self.dump.stats.bytes_in_use
    }

    fn remedy(&self) -> String {
        let limit = self.dump.stats.bytes_limit;
        if self.asked > limit {
            return format!("raise the limit of the arena to more than {} bytes, or ask for less: a smaller batch", self.asked.0);
        }
        if let Some(remedy) = self.refused.as_ref().and_then(Error::remedy) {
            return remedy.to_string();
        }
        if self.free() >= self.asked {
            let advice = "there is enough in all, but not in one piece: raise the limit, or take everything at once instead of letting the arena grow";
            return advice.to_string();
        }
        let least = self.dump.stats.bytes_in_use + self.asked;
        format!("raise the limit of the arena to at least {} bytes, or let go of one of the holders, or use a smaller batch", least.0)
    }
}

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Dump { name, stats, .. } = &*self.dump;
        write!(f, "{} asks arena {name} for {} ({} bytes)", self.node, self.asked, self.asked.0)?;
        if self.waited {
            write!(f, " and waited in vain")?;
        }
        write!(f, "; {} of a limit of {} ({} bytes) are in use", stats.bytes_in_use, stats.bytes_limit, stats.bytes_limit.0)?;
        let holders = self.dump.holders();
        for (index, holder) in holders.iter().take(NAMED_HOLDERS).enumerate() {
            write!(f, "{}{}: {}", if index == 0 { " (" } else { ", " }, holder.name, holder.bytes)?;
        }
        match holders.len() {
            0 => {}
            1..=NAMED_HOLDERS => write!(f, ")")?,
            more => write!(f, ", and {} more)", more - NAMED_HOLDERS)?,
        }
        write!(f, ", {} are free, {} of them in regions with at most ", self.free(), self.dump.free())?;
        write!(f, "{} in one piece (fragmentation {:.2})", self.dump.largest_free(), self.dump.fragmentation())?;
        if let Some(refused) = &self.refused {
            write!(f, "; there was no more: {}", refused.message())?;
        }
        Ok(())
    }
}

impl std::error::Error for Exhausted {}

impl From<Exhausted> for Error {
    /// RESOURCE_EXHAUSTED with the node, the device, bytes asked, free and allowed, the holders and their bytes, and a remedy.
    fn from(exhausted: Exhausted) -> Error {
        let stats = &exhausted.dump.stats;
        let holders =
            exhausted.dump.holders().into_iter().take(NAMED_HOLDERS).map(|holder| (holder.name.to_string(), holder.bytes)).collect();
        let (used, limit) = (stats.bytes_in_use, Some(stats.bytes_limit));
        let shortage = Shortage { requested: exhausted.asked, used, limit, holders };
        let error = Error::no_room(exhausted.to_string(), shortage).on_device(&*exhausted.device).with_remedy(exhausted.remedy());
        error.at_node(&*exhausted.node)
    }
}
