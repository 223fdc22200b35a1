//! The view for people: cards, members, waiters and their reasons, and processes by name.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use plimsoll_base::Bytes;

use super::decide::Verdict;
use super::file::Inner;
use super::transaction::{Scene, SeenMember};
use super::{CardInfo, Guarantee, History, LastUse, Locked, UserId};

/// A machine's cards, with all holders, waiters and processes, at one instant.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// As many as [`super::Machine::cards`], in the same order.
    pub cards: Vec<CardUsage>,
    /// All members, those that only wait included.
    pub entries: Vec<Entry>,
    /// The process that keeps the ledger locked, where one does: nothing is granted until it goes on or ends.
    pub locked: Option<Locked>,
    /// Flaws of other users' ledgers, as sentences.
    pub doubts: Vec<String>,
}

/// How much of a card is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardUsage {
    /// The card.
    pub card: CardInfo,
    /// Held by members.
    pub reserved: Bytes,
    /// The bytes of theirs that members use.
    pub used: Bytes,
    /// Used by programs that are not in the ledger, as this process was told.
    pub outside: Bytes,
    /// Neither.
    pub free: Bytes,
}

/// A member, as others see it.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The process that joined, or one that inherited its place where that has ended.
    pub pid: u32,
    /// The user on whose behalf it acts.
    pub uid: u32,
    /// That user, where users share the ledger: the owner of the file, whatever its contents.
    pub user: Option<UserId>,
    /// Its program and arguments.
    pub program: String,
    /// The member's name; may be empty.
    pub name: String,
    /// When it joined, by the clock of that time.
    pub started: SystemTime,
    /// The guarantee for others.
    pub guarantee: Guarantee,
    /// Its part in each card on which it has one.
    pub shares: Vec<Share>,
    /// Its use of the bytes it held, over time.
    pub history: History,
    /// When it last used its cards, where the process that joined observes that.
    pub last_use: LastUse,
    /// Its request, if it waits.
    pub waiting: Option<Waiting>,
}

/// A member's part in a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The card's number.
    pub card: usize,
    /// Held.
    pub reserved: Bytes,
    /// Used of it, as the member says.
    pub used: Bytes,
    /// The most used at once.
    pub peak: Bytes,
}

/// A member's place in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Higher comes first.
    pub priority: i32,
    /// How many wait before it.
    pub ahead: usize,
    /// The bytes that it asks for on top of those it holds, by card.
    pub asked: Vec<(usize, Bytes)>,
    /// On how many of these cards it wants them; 0 for all.
    pub some: usize,
    /// The card that stands in its way; none if it has been granted and is about to take it.
    pub card: Option<usize>,
    /// The process that comes first, where the bytes are free but set aside.
    pub behind: Option<u32>,
    /// That process's user, where users share the ledger.
    pub behind_user: Option<UserId>,
}

impl Snapshot {
    pub(super) fn of(inner: &Inner, members: &[SeenMember], locked: Option<Locked>, mut doubts: Vec<String>) -> Snapshot {
        let scene = Scene::of(inner, members);
        let verdicts = scene.verdicts();
        let mut entries: Vec<Entry> = members.iter().map(|seen| entry(inner, seen)).collect();
        for (place, (&index, verdict)) in scene.order.iter().zip(&verdicts).enumerate() {
            let Some(position) = members[index].record.waiting else { continue };
            let asked = &scene.queue[place].asked;
            let before = match *verdict {
                Verdict::Behind { place, .. } => Some(&members[scene.order[place]]),
                _ => None,
            };
            entries[index].waiting = Some(Waiting {
                priority: position.priority,
                ahead: place,
                asked: (0..asked.len()).filter(|&card| asked[card] > 0).map(|card| (card, Bytes(asked[card]))).collect(),
                some: position.some.into(),
                card: match *verdict {
                    Verdict::Granted => None,
                    Verdict::Short { card } | Verdict::Behind { card, .. } => Some(card),
                },
                behind: before.map(|seen| seen.record.pid),
                behind_user: before.filter(|_| inner.shared.is_some()).map(|seen| seen.user),
            });
        }
        let card = |number: usize| {
            let share = |of: fn(&Share) -> Bytes| {
                entries.iter().flat_map(|entry| &entry.shares).filter(|share| share.card == number).map(of).sum::<Bytes>()
            };
            let (card, outside) = (inner.cards[number].clone(), inner.outside(number));
            let (reserved, used) = (share(|share| share.reserved), share(|share| share.used));
            CardUsage { free: card.capacity - outside - reserved, card, reserved, used, outside }
        };
        let cards: Vec<CardUsage> = (0..inner.cards.len()).map(card).collect();
        for (number, usage) in cards.iter().enumerate().filter(|(_, usage)| inner.shared.is_some() && usage.reserved > usage.card.capacity)
        {
            let claims = |entry: &&Entry| entry.shares.iter().any(|share| share.card == number && share.reserved > Bytes::ZERO);
            let users: BTreeSet<UserId> = entries.iter().filter(claims).filter_map(|entry| entry.user).collect();
            let users = users.into_iter().map(UserId::name).collect::<Vec<_>>().join(", ");
            let card = &usage.card;
            doubts.push(format!(
                "{} of {} are claimed, which has {}: a ledger of these users is wrong: {users}",
                usage.reserved, card.name, card.capacity
            ));
        }
        Snapshot { cards, entries, locked, doubts }
    }

    /// The holders of bytes of a card, with their part in it, most first.
    pub fn holders(&self, card: usize) -> Vec<(&Entry, Share)> {
        let part = |entry: &Entry| entry.shares.iter().find(|share| share.card == card && share.reserved > Bytes::ZERO).copied();
        let mut holders: Vec<(&Entry, Share)> = self.entries.iter().filter_map(|entry| Some((entry, part(entry)?))).collect();
        holders.sort_by_key(|(entry, share)| (std::cmp::Reverse(share.reserved), entry.pid));
        holders
    }

    /// The waiters, in order.
    pub fn waiters(&self) -> Vec<&Entry> {
        let place = |entry: &Entry| entry.waiting.as_ref().map(|waiting| waiting.ahead);
        let mut waiters: Vec<&Entry> = self.entries.iter().filter(|entry| entry.waiting.is_some()).collect();
        waiters.sort_by_key(|entry| place(entry));
        waiters
    }

    /// Why a member waits, in words; none where it does not.
    pub fn why(&self, entry: &Entry) -> Option<String> {
        let waiting = entry.waiting.as_ref()?;
        let Some(number) = waiting.card else { return Some("its turn has come".into()) };
        let card = &self.cards[number];
        let asked = waiting.asked.iter().find(|(card, _)| *card == number).map_or(Bytes::ZERO, |(_, bytes)| *bytes);
        let needs = format!("{asked} of {}, of which {} are free", card.card.name, card.free);
        Some(match waiting.behind {
            Some(pid) => {
                let user = waiting.behind_user.map_or_else(String::new, |user| format!(" of {}", user.name()));
                format!("waits behind pid {pid}{user} for {needs}")
            }
            None => format!("waits for {needs}"),
        })
    }
}

/// A member's part in each card on which it has one.
pub(super) fn shares(inner: &Inner, seen: &SeenMember) -> Vec<Share> {
    let record = &seen.record;
    let share = |(on, usage): (&super::record::OnCard, &super::record::Use)| {
        let share = Share { card: inner.card_of(on.card)?, reserved: Bytes(on.reserved), used: Bytes(usage.used), peak: Bytes(usage.peak) };
        [share.reserved, share.used, share.peak].iter().any(|&bytes| bytes > Bytes::ZERO).then_some(share)
    };
    let mut shares: Vec<Share> = record.cards.iter().zip(&seen.uses).filter_map(share).collect();
    shares.sort_by_key(|share| share.card);
    shares
}

fn entry(inner: &Inner, seen: &SeenMember) -> Entry {
    let record = &seen.record;
    Entry {
        pid: record.pid,
        uid: record.uid,
        user: inner.shared.as_ref().map(|_| seen.user),
        program: record.program.clone(),
        name: record.name.clone(),
        started: UNIX_EPOCH.checked_add(Duration::from_secs(record.started)).unwrap_or(UNIX_EPOCH),
        guarantee: record.guarantee,
        shares: shares(inner, seen),
        history: seen.history.clone(),
        last_use: seen.last_use,
        waiting: None,
    }
}
