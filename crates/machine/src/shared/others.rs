//! The members that other users' ledgers name, read as if an adversary had written them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};

use plimsoll_base::{Bytes, Error, Result};

use super::{MOST_MEMBERS, Settings, Shared, beneath, proof};
use crate::file::{Inner, damage, offset};
use crate::mark::Mark;
use crate::record::{OnCard, Record, SLOT};
use crate::transaction::SeenMember;
use crate::users::UserId;
use crate::{Guarantee, History, LastUse, lease};

/// How many entries the folder of the users' folders may have.
const MOST_USERS: usize = 4096;

/// The latest arrival that is believed: more are never counted.
const LAST_ARRIVAL: u64 = 1 << 48;

/// A user's folder, opened.
struct Home {
    user: UserId,
    folder: File,
}

impl Shared {
    /// The folders of all other users.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED with the user that made more entries than are looked at.
    fn homes(&self, doubts: &mut Vec<String>) -> Result<Vec<Home>> {
        let path = self.users();
        let broken = |error: io::Error| super::refused("cannot be read", &path, &error);
        let users = File::open(&path).map_err(broken)?;
        let mut homes = Vec::new();
        for (count, entry) in fs::read_dir(&path).map_err(broken)?.enumerate() {
            if count >= MOST_USERS {
                return Err(self.crowded());
            }
            let name = entry.map_err(broken)?.file_name();
            let Some((name, number)) = name.to_str().and_then(|name| Some((name, name.parse().ok()?))) else { continue };
            let user = UserId(number);
            if user == self.user || name != number.to_string() {
                continue;
            }
            let opened = beneath::open(&users, name, libc::O_DIRECTORY).and_then(|folder| Ok((folder.metadata()?, folder)));
            match opened {
                Ok((facts, folder)) if self.numbers.may_own(user, facts.uid()) => homes.push(Home { user, folder }),
                Ok((facts, _)) => {
                    let owner = self.numbers.name(facts.uid());
                    doubts
                        .push(format!("user {owner} has taken the place of user {} in the machine's ledger: it is not read", user.name()));
                }
                Err(error) if beneath::is_own_trouble(&error) => return Err(broken(error)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => doubts.push(format!("the ledger of user {} is not read: {error}", user.name())),
            }
        }
        homes.sort_by_key(|home| home.user);
        Ok(homes)
    }

    fn crowded(&self) -> Error {
        let mut owners: BTreeMap<u32, usize> = BTreeMap::new();
        for entry in fs::read_dir(self.users()).into_iter().flatten().flatten().take(4 * MOST_USERS) {
            *owners.entry(fs::symlink_metadata(entry.path()).map_or(0, |facts| facts.uid())).or_default() += 1;
        }
        let most = owners.into_iter().max_by_key(|(_, count)| *count).map_or(0, |(owner, _)| owner);
        let name = self.numbers.name(most);
        let message = format!("{} has more than {MOST_USERS} entries, most of them made by user {name}", self.users().display());
        Error::resource_exhausted(message).with_remedy("let an administrator remove them")
    }

    /// The ledgers that other users have of the same cards and the folders of their proofs, for watches. Those that cannot be opened
    /// are left out.
    pub(crate) fn watched(&self, inner: &Inner) -> Vec<File> {
        let homes = self.homes(&mut Vec::new()).unwrap_or_default();
        let names = [inner.name(), format!("{}{}", inner.name(), lease::LEASES)];
        homes.iter().flat_map(|home| names.iter().filter_map(|name| beneath::open(&home.folder, name, 0).ok())).collect()
    }

    /// The members of other users. `doubts` gets the flaws of their ledgers.
    ///
    /// # Errors
    /// Where this process or the machine is in trouble; never for the contents of a ledger.
    pub(crate) fn others(&self, inner: &Inner, doubts: &mut Vec<String>) -> Result<Vec<SeenMember>> {
        let settings = self.settings()?;
        let mut members = Vec::new();
        for home in self.homes(doubts)? {
            match self.members_of(&home, inner, &settings, doubts) {
                Ok(seen) => members.extend(seen),
                Err(Trouble::Own(error)) => return Err(super::refused("cannot be read", &self.users(), &error)),
                Err(Trouble::Theirs(why)) => {
                    let name = home.user.name();
                    // Its own members show in the kernel's list of locks, wherever the file is.
                    let lives = mark_of(&home, &self.users(), inner).is_ok_and(Mark::is_held);
                    doubts.push(match lives {
                        true => format!("the ledger of user {name} {why}, and programs use it: it counts as all of every card"),
                        false => format!("the ledger of user {name} {why}: it counts for nothing"),
                    });
                    if lives {
                        members.push(everything(inner, home.user, 0, &format!("(a ledger that {why})")));
                    }
                }
            }
        }
        Ok(members)
    }

    fn members_of(&self, home: &Home, inner: &Inner, settings: &Settings, doubts: &mut Vec<String>) -> Result<Vec<SeenMember>, Trouble> {
        let name = inner.name();
        let file = match beneath::open(&home.folder, &name, 0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            opened => opened?,
        };
        let facts = file.metadata()?;
        if !facts.is_file() || !self.numbers.may_own(home.user, facts.uid()) {
            return Err(Trouble::Theirs("is not a file of that user".into()));
        }
        if facts.len() == 0 {
            return Ok(Vec::new());
        }
        damage(&file, None).map_err(Trouble::Theirs)?;
        let leases = match beneath::open(&home.folder, &format!("{name}{}", lease::LEASES), libc::O_DIRECTORY) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            opened => opened?,
        };
        let length = facts.len().min(offset(MOST_MEMBERS));
        let mut pages = vec![0; length.saturating_sub(offset(0)) as usize];
        file.read_exact_at(&mut pages, offset(0)).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => Trouble::Theirs("was cut short".into()),
            _ => error.into(),
        })?;
        let mut members = Vec::new();
        for (slot, page) in (0..).zip(pages.chunks_exact(SLOT)) {
            if !proof::is_held(&leases, slot).map_err(Trouble::Own)? {
                continue;
            }
            match SeenMember::decode(slot, home.user, page) {
                Some(mut seen) => {
                    bound(&mut seen, inner, settings, doubts);
                    members.push(seen);
                }
                None => {
                    doubts.push(format!(
                        "slot {slot} of user {} is in use and cannot be read: it counts as all of every card",
                        home.user.name()
                    ));
                    members.push(everything(inner, home.user, slot, "(a slot that cannot be read)"));
                }
            }
        }
        Ok(members)
    }
}

fn mark_of(home: &Home, users: &std::path::Path, inner: &Inner) -> io::Result<Mark> {
    let (own, around) = (home.folder.metadata()?, fs::metadata(users)?);
    Ok(Mark::made_of(&own, &around, home.user.0.to_string().as_bytes(), &inner.name()))
}

/// Why a user's ledger is not read.
enum Trouble {
    Own(io::Error),
    Theirs(String),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Trouble {
        match beneath::is_own_trouble(&error) {
            true => Trouble::Own(error),
            false => Trouble::Theirs(format!("cannot be read ({error})")),
        }
    }
}

/// Keeps the claims of a record within possible values.
fn bound(seen: &mut SeenMember, inner: &Inner, settings: &Settings, doubts: &mut Vec<String>) {
    let record = &mut seen.record;
    let name = || seen.user.name();
    record.uid = seen.user.0;
    for text in [&mut record.name, &mut record.program] {
        *text = text.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    }
    let mut known = Vec::new();
    for (on, usage) in record.cards.iter_mut().zip(&mut seen.uses) {
        let Some(card) = inner.card_of(on.card).map(|card| &inner.cards[card]) else { continue };
        let most = card.capacity.0;
        if on.reserved > most {
            doubts.push(format!(
                "pid {} of user {} claims {} of {}, which has {}",
                record.pid,
                name(),
                Bytes(on.reserved),
                card.name,
                card.capacity
            ));
        }
        if known.contains(&on.card) {
            doubts.push(format!("pid {} of user {} names {} twice", record.pid, name(), card.name));
            *on = OnCard { reserved: most, ..*on };
        }
        known.push(on.card);
        (on.reserved, on.asked) = (on.reserved.min(most), on.asked.min(most));
        (usage.used, usage.peak) = (usage.used.min(most), usage.peak.min(most));
    }
    if let Some(place) = &mut record.waiting {
        place.priority = settings.of(seen.user).clamp(place.priority);
        place.arrival = place.arrival.min(LAST_ARRIVAL);
    }
}

/// A member that holds all of every card: one of which nothing is known but that it lives.
fn everything(inner: &Inner, user: UserId, slot: u32, what: &str) -> SeenMember {
    let cards: Vec<OnCard> =
        inner.hashes().iter().zip(&inner.cards).map(|(&card, info)| OnCard { card, reserved: info.capacity.0, asked: 0 }).collect();
    let uses = vec![Default::default(); cards.len()];
    let record = Record {
        pid: 0,
        uid: user.0,
        started: 0,
        guarantee: Guarantee::Watched,
        name: String::new(),
        program: what.into(),
        cards,
        waiting: None,
    };
    SeenMember { user, slot, record, uses, history: History::default(), last_use: LastUse::default() }
}
