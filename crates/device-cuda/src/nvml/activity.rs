//! Recent activity on cards, by process.

use super::Nvml;
use super::raw::{Handle, Utilization};

/// Activity on a card since the last look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// The card.
    pub uuid: String,
    /// The processes that used its multiprocessors, its memory's bus or its video units, by pid. None where the driver does not say.
    pub processes: Option<Vec<u32>>,
    /// Percent of the time just now in which anything ran, whichever process it was of. None where the driver does not say.
    pub utilisation: Option<u32>,
    /// The time of the youngest sample by the driver's clock, to be given to the next look.
    pub at: u64,
}

impl Nvml {
    /// Activity on the cards since the looks before, of which `since` has the times. A card that is new there begins now: activity
    /// before that time is left out.
    pub fn activity(&self, since: &[Activity]) -> Vec<Activity> {
        let cards = (0..self.count().unwrap_or(0)).filter_map(|index| self.handle(index).ok());
        cards.map(|card| self.activity_on(card, since)).collect()
    }

    fn activity_on(&self, card: Handle, since: &[Activity]) -> Activity {
        let uuid = self.text(card, |functions| functions.uuid).unwrap_or_default();
        let before = since.iter().find(|activity| activity.uuid == uuid);
        let samples = self.samples(card, before.map_or(0, |activity| activity.at)).ok();
        let youngest = samples.iter().flatten().map(|sample| sample.at).max().unwrap_or(0);
        let at = youngest.max(before.map_or(0, |activity| activity.at));
        let processes = samples.map(|samples| {
            let is_new = |at: u64| before.is_some_and(|before| at > before.at);
            let busy = samples.iter().filter(|sample| is_new(sample.at));
            let busy =
                busy.filter(|sample| [sample.multiprocessors, sample.memory, sample.encoder, sample.decoder].iter().any(|&part| part > 0));
            let mut pids: Vec<u32> = busy.map(|sample| sample.pid).collect();
            pids.sort_unstable();
            pids.dedup();
            pids
        });
        let utilisation = self.get::<Utilization>(card, |functions| functions.utilization).ok();
        Activity { uuid, processes, utilisation: utilisation.map(|percent| percent.gpu), at }
    }
}
