//! A member's part as a machine of its own: the ledger for programs that inherited a place.
//!
//! Such a ledger is a file beside the one around it. It has the same cards, each as large as the member's part of it. It belongs to
//! one member. The next owner of the slot removes it, and processes that still use it then are told so.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use std::os::unix::fs::FileExt;

use plimsoll_base::{Bytes, Error, Result};

use super::file::{Inner, offset};
use super::lease::LEASES;
use super::record::{Record, SLOT, decode_use};
use super::transaction::SeenMember;
use super::{CardInfo, Machine, Member, PATIENCE, decide};

impl Member {
    /// The data that a program that inherits the place needs to reserve inside of it: see [`Machine::under`].
    pub fn token(&self) -> String {
        let record = &self.state().record;
        format!("{}@{}", place(self.slot, record), self.inner.name())
    }

    /// As [`Member::inside`], where something was reserved inside; none otherwise.
    ///
    /// # Errors
    /// Where that ledger cannot be used.
    pub fn used_inside(&self) -> Result<Option<Machine>> {
        if self.inner.nested_path(self.slot).exists() { self.inside().map(Some) } else { Ok(None) }
    }

    /// The ledger of the programs that reserve inside of this member's part. Bytes that it takes later are not in it.
    ///
    /// # Errors
    /// Where one of the ledgers cannot be used.
    pub fn inside(&self) -> Result<Machine> {
        let record = self.state().record.clone();
        let held: Vec<u64> = record.cards.iter().map(|on| on.reserved).collect();
        self.inner.nested(self.slot, &record, &held)
    }
}

impl Machine {
    /// The ledger inside of the place that a token names, with the same cards each as large as the held part. None where the token
    /// is about other cards.
    ///
    /// # Errors
    /// FAILED_PRECONDITION where that place has no member any more; otherwise where the ledger cannot be used.
    pub fn under(&self, token: &str) -> Result<Option<Machine>> {
        let Some((named, name)) = token.split_once('@') else {
            return Err(Error::invalid_argument(format!("'{token}' names no lease")).with_remedy("do not set PLIMSOLL_LEASE by hand"));
        };
        if name != self.0.name() {
            return Ok(None);
        }
        let holder = self.0.holder(named)?;
        let decide::Request { held, .. } = super::transaction::request(&self.0, &holder.record);
        self.0.nested(holder.slot, &holder.record, &held).map(Some)
    }
}

/// Why there is no ledger inside of a place.
pub(super) fn ended() -> Error {
    Error::failed_precondition("the lease under which this program was started has ended")
        .with_remedy("start it under a lease of its own, or without the variable PLIMSOLL_LEASE")
}

impl Inner {
    /// The member that a token names.
    ///
    /// # Errors
    /// FAILED_PRECONDITION where it is gone; otherwise where the ledger cannot be used.
    pub(super) fn holder(&self, named: &str) -> Result<SeenMember> {
        let (members, _) = self.look(&mut Vec::new())?;
        members.into_iter().find(|seen| seen.user == self.user && place(seen.slot, &seen.record) == named).ok_or_else(ended)
    }
}

/// A member of a ledger, apart from those that had the slot before.
fn place(slot: u32, record: &Record) -> String {
    format!("{slot}.{}.{}", record.pid, record.started)
}

/// Where in the first page the peaks of those stand whose slots others have now, a number for each card.
const PEAKS_AT: u64 = 512;

impl Machine {
    /// The most that a present or past member of this ledger used of a card, if the ledger is inside of a place; 0 elsewhere.
    pub fn peak(&self, card: usize) -> Bytes {
        let inner = &self.0;
        if !inner.nested || card >= inner.cards.len() {
            return Bytes::ZERO;
        }
        let mut peak = inner.peaks_before()[card];
        let mut page = [0; SLOT];
        for slot in 0.. {
            if inner.file.read_exact_at(&mut page, offset(slot)).is_err() {
                break;
            }
            peak = peak.max(peaks(inner, &page)[card]);
        }
        Bytes(peak)
    }
}

/// The peaks in a slot, for each card that is known here.
fn peaks(inner: &Inner, page: &[u8]) -> Vec<u64> {
    let mut out = vec![0; inner.cards.len()];
    let Some(record) = Record::decode(page) else { return out };
    for (on, usage) in record.cards.iter().zip(decode_use(page, record.cards.len())) {
        if let Some(card) = inner.card_of(on.card) {
            out[card] = usage.peak;
        }
    }
    out
}

impl Inner {
    fn peaks_before(&self) -> Vec<u64> {
        self.words(PEAKS_AT)
    }

    /// In a transaction, inside of a place: keeps the peaks of the member that had a slot before.
    pub(super) fn keep_peaks(&self, slot: u32) {
        let mut page = [0; SLOT];
        if !self.nested || self.file.read_exact_at(&mut page, offset(slot)).is_err() {
            return;
        }
        let peaks = self.peaks_before().into_iter().zip(peaks(self, &page)).map(|(before, peak)| before.max(peak));
        let bytes: Vec<u8> = peaks.flat_map(u64::to_le_bytes).collect();
        // It is only shown.
        let _ = self.put(&self.file, &bytes, PEAKS_AT);
    }

    /// The name of the ledger among those of its folder.
    pub(super) fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// The file of the ledger inside of a slot.
    pub(super) fn nested_path(&self, slot: u32) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(format!(".{slot}"));
        path.into()
    }

    /// Removes the files inside of a slot whose member is gone.
    pub(super) fn remove_nested(&self, slot: u32) {
        let mut leases = self.nested_path(slot).into_os_string();
        let _ = fs::remove_file(&leases);
        leases.push(LEASES);
        let _ = fs::remove_dir_all(leases);
    }

    fn nested(&self, slot: u32, holder: &Record, held: &[u64]) -> Result<Machine> {
        let card = |(card, held): (&CardInfo, &u64)| CardInfo { capacity: Bytes(*held), ..card.clone() };
        let cards = self.cards.iter().zip(held).map(card).collect();
        self.nested_of(slot, holder, cards, self.hashes().to_vec())
    }

    pub(super) fn nested_of(&self, slot: u32, holder: &Record, cards: Vec<CardInfo>, hashes: Vec<u64>) -> Result<Machine> {
        let key = format!("{}.{}", self.name(), place(slot, holder));
        Ok(Machine(Arc::new(Inner::at(self.nested_path(slot), key, cards, hashes, PATIENCE, None, true)?)))
    }
}
