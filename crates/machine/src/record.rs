//! The record in a slot.
//!
//! A slot is one page. Its first [`LAST_USE_AT`] bytes are the record (checksum, length, fields, little-endian), written in
//! transactions. The rest the member writes whenever it likes: four words, its history, and for each card used and peak.
//!
//! Versions differ in the fields behind the cards of a record: a reader ignores those that it does not know.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{Guarantee, LastUse, MAX_CARDS, history};

/// Bytes of a slot.
pub(super) const SLOT: usize = 4096;

/// Where in a slot the numbers of use stand.
pub(super) const USAGE_AT: usize = SLOT - 16 * MAX_CARDS;

/// Where in a slot the history stands.
pub(super) const HISTORY_AT: usize = USAGE_AT - history::SIZE;

/// Where in a slot the member says, outside of transactions, which of its places in the queue it has given up: the number of its
/// arrival and one, 0 for none.
pub(super) const GIVEN_UP_AT: usize = HISTORY_AT - 8;

/// Where in a slot the number of the file stands by which programs share the slot; 0 for none. Written outside of transactions: it
/// counts only once the process that wrote it is gone.
pub(super) const LEASE_AT: usize = GIVEN_UP_AT - 8;

/// The place in a slot of two words: seconds since 1970 when the member's cards, and their memory, were last used; 0 for an unknown
/// time. Written outside of transactions.
pub(super) const LAST_USE_AT: usize = LEASE_AT - 16;

/// How much of a name and of a command line is kept.
const NAME: usize = 128;
const PROGRAM: usize = 512;

/// A member, as it says itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) pid: u32,
    pub(super) uid: u32,
    /// Seconds since 1970 by the clock of that time: shown, never compared.
    pub(super) started: u64,
    pub(super) guarantee: Guarantee,
    pub(super) name: String,
    pub(super) program: String,
    /// The member's part in each card it knows, in an order that stays the same.
    pub(super) cards: Vec<OnCard>,
    /// Set while the member waits for the error of `asked`.
    pub(super) waiting: Option<Place>,
}

/// A member on a card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OnCard {
    /// The card: [`key_hash`] of its key.
    pub(super) card: u64,
    pub(super) reserved: u64,
    /// The bytes that it waits for on top of that.
    pub(super) asked: u64,
}

/// A place in the queue: higher priority first, then the lower number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) priority: i32,
    pub(super) arrival: u64,
    /// Whether it knows that it is near the front, and looks out for itself.
    pub(super) near: bool,
    /// On how many of the cards of which it asks bytes it wants them; 0 for all.
    pub(super) some: u8,
}

/// A member's use of a card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Use {
    pub(super) used: u64,
    pub(super) peak: u64,
}

/// FNV-1a over a card's key.
pub(super) fn key_hash(key: &str) -> u64 {
    key.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// As [`key_hash`], eight bytes at a time.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(0x706c_696d_736f_6c6c, |hash, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29)
    })
}

/// The text, cut at a character so that it has at most `most` bytes.
fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    &text[..end]
}

impl Record {
    /// Takes it out of the queue.
    pub(super) fn waits_no_longer(&mut self) {
        self.waiting = None;
        self.cards.iter_mut().for_each(|on| on.asked = 0);
    }

    /// The bytes that stand at the beginning of the slot.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; 16];
        out.extend(self.pid.to_le_bytes());
        out.extend(self.uid.to_le_bytes());
        out.extend(self.started.to_le_bytes());
        out.push(oldest(self.guarantee));
        let place = self.waiting.unwrap_or(Place { priority: 0, arrival: 0, near: false, some: 0 });
        out.push(self.waiting.is_some().into());
        out.push(place.near.into());
        out.push(place.some);
        out.extend(place.priority.to_le_bytes());
        out.extend(place.arrival.to_le_bytes());
        for (text, most) in [(&self.name, NAME), (&self.program, PROGRAM)] {
            let text = cut(text, most);
            out.extend((text.len() as u16).to_le_bytes());
            out.extend(text.as_bytes());
        }
        out.push(self.cards.len() as u8);
        for on in &self.cards {
            for number in [on.card, on.reserved, on.asked] {
                out.extend(number.to_le_bytes());
            }
        }
        out.push(self.guarantee as u8);
        let length = out.len() as u64;
        out[8..16].copy_from_slice(&length.to_le_bytes());
        let sum = checksum(&out[8..]);
        out[..8].copy_from_slice(&sum.to_le_bytes());
        debug_assert!(out.len() <= LAST_USE_AT);
        out
    }

    /// The record of a slot; `None` where there is none that is whole.
    pub(super) fn decode(slot: &[u8]) -> Option<Record> {
        let mut reader = Reader(slot.get(..LAST_USE_AT)?);
        let sum = reader.u64()?;
        let length = usize::try_from(reader.u64()?).ok().filter(|length| (16..=LAST_USE_AT).contains(length))?;
        if sum != checksum(&slot[8..length]) {
            return None;
        }
        let mut reader = Reader(&slot[16..length]);
        let (pid, uid, started) = (reader.u32()?, reader.u32()?, reader.u64()?);
        let old = reader.u8()?;
        if !(1..=3).contains(&old) {
            return None;
        }
        let (waits, near, some) = (reader.u8()? != 0, reader.u8()? != 0, reader.u8()?);
        let place = Place { priority: reader.u32()? as i32, arrival: reader.u64()?, near, some };
        let (name, program) = (reader.text()?, reader.text()?);
        let count = usize::from(reader.u8()?);
        if count > MAX_CARDS {
            return None;
        }
        let on_card = |_| Some(OnCard { card: reader.u64()?, reserved: reader.u64()?, asked: reader.u64()? });
        let cards = (0..count).map(on_card).collect::<Option<_>>()?;
        let known = |byte: u8| Guarantee::ALL.into_iter().find(|guarantee| *guarantee as u8 == byte);
        let guarantee = reader.u8().and_then(known).or_else(|| known(old))?;
        Some(Record { pid, uid, started, guarantee, name, program, cards, waiting: waits.then_some(place) })
    }
}

/// The nearest guarantee that every version knows.
fn oldest(guarantee: Guarantee) -> u8 {
    let nearest = match guarantee {
        Guarantee::Held => Guarantee::Held,
        Guarantee::Framework | Guarantee::NotWatched => Guarantee::Framework,
        Guarantee::Watched | Guarantee::Shim | Guarantee::Mps | Guarantee::Kernel => Guarantee::Watched,
    };
    nearest as u8
}

/// The words about the last use, as they stand in a slot.
pub(super) fn encode_last_use(last: LastUse) -> Vec<u8> {
    let seconds = |time: Option<SystemTime>| time.and_then(|time| time.duration_since(UNIX_EPOCH).ok()).map_or(0, |since| since.as_secs());
    [last.card, last.memory].into_iter().flat_map(|time| seconds(time).to_le_bytes()).collect()
}

/// The last use in a slot.
pub(super) fn decode_last_use(slot: &[u8]) -> LastUse {
    let time = |at: usize| match word(slot, at) {
        0 => None,
        seconds => UNIX_EPOCH.checked_add(Duration::from_secs(seconds)),
    };
    LastUse { card: time(LAST_USE_AT), memory: time(LAST_USE_AT + 8) }
}

/// The numbers of use, as they stand in a slot.
pub(super) fn encode_use(uses: &[Use]) -> Vec<u8> {
    uses.iter().flat_map(|on| [on.used, on.peak]).flat_map(u64::to_le_bytes).collect()
}

/// The use in a slot, for `count` cards.
pub(super) fn decode_use(slot: &[u8], count: usize) -> Vec<Use> {
    let mut reader = Reader(slot.get(USAGE_AT..).unwrap_or_default());
    (0..count).map(|_| Use { used: reader.u64().unwrap_or(0), peak: reader.u64().unwrap_or(0) }).collect()
}

/// A word of a slot; 0 where the slot has none.
pub(super) fn word(slot: &[u8], at: usize) -> u64 {
    Reader(slot.get(at..).unwrap_or_default()).u64().unwrap_or(0)
}

/// Takes numbers off the front of bytes.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*head)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take().map(u8::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Option<String> {
        let length = self.take().map(u16::from_le_bytes)?;
        let (text, rest) = self.0.split_at_checked(length.into())?;
        self.0 = rest;
        Some(std::str::from_utf8(text).ok()?.to_string())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn records() -> impl Strategy<Value = Record> {
        let card = (any::<u64>(), any::<u64>(), any::<u64>()).prop_map(|(card, reserved, asked)| OnCard { card, reserved, asked });
        let who = (any::<u32>(), any::<u32>(), any::<u64>(), prop::sample::select(&Guarantee::ALL), ".{0,200}", ".{0,600}");
        let waiting = prop::option::of((any::<i32>(), any::<u64>(), any::<bool>(), any::<u8>()));
        (who, prop::collection::vec(card, 0..=MAX_CARDS), waiting).prop_map(
            |((pid, uid, started, guarantee, name, program), cards, waiting)| Record {
                pid,
                uid,
                started,
                guarantee,
                name: cut(&name, NAME).to_string(),
                program: cut(&program, PROGRAM).to_string(),
                cards,
                waiting: waiting.map(|(priority, arrival, near, some)| Place { priority, arrival, near, some }),
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn records_go_both_ways_and_fit(record in records()) {
            let mut slot = record.encode();
            prop_assert!(slot.len() <= LAST_USE_AT);
            slot.resize(SLOT, 0xee);
            prop_assert_eq!(Record::decode(&slot), Some(record));
        }

        #[test]
        fn damage_is_seen(record in records(), at in any::<prop::sample::Index>(), flip in 1..=255u8) {
            let mut slot = record.encode();
            let at = at.index(slot.len());
            slot[at] ^= flip;
            slot.resize(SLOT, 0);
            prop_assert_eq!(Record::decode(&slot), None);
        }

        #[test]
        fn anything_may_stand_in_a_slot(bytes in prop::collection::vec(any::<u8>(), 0..SLOT), length in 0..5000u64) {
            let _ = Record::decode(&bytes);
            // Also where the checksum is right.
            let mut slot = bytes;
            slot.resize(SLOT, 0);
            slot[8..16].copy_from_slice(&length.to_le_bytes());
            let sum = checksum(&slot[8..(length as usize).clamp(8, SLOT)]);
            slot[..8].copy_from_slice(&sum.to_le_bytes());
            let _ = Record::decode(&slot);
            let _ = decode_use(&slot, MAX_CARDS + 1);
        }
    }

    #[test]
    fn what_a_version_does_not_know_is_left_out() {
        let cards = vec![OnCard { card: 1, reserved: 2, asked: 0 }];
        let (name, program) = (String::new(), "p".to_string());
        let record = Record { pid: 1, uid: 2, started: 3, guarantee: Guarantee::Shim, name, program, cards, waiting: None };
        // Without fields behind the cards, as versions before wrote it, and with more fields.
        let rewritten = |change: fn(&mut Vec<u8>)| {
            let mut bytes = record.encode();
            change(&mut bytes);
            let length = bytes.len() as u64;
            bytes[8..16].copy_from_slice(&length.to_le_bytes());
            let sum = checksum(&bytes[8..]);
            bytes[..8].copy_from_slice(&sum.to_le_bytes());
            bytes.resize(SLOT, 0);
            Record::decode(&bytes).map(|record| record.guarantee)
        };
        assert_eq!(rewritten(|bytes| bytes.truncate(bytes.len() - 1)), Some(Guarantee::Watched));
        assert_eq!(rewritten(|bytes| bytes.push(9)), Some(Guarantee::Shim));
        assert_eq!(rewritten(|bytes| *bytes.last_mut().unwrap() = 99), Some(Guarantee::Watched));
    }

    #[test]
    fn the_last_use_goes_both_ways() {
        let at = |seconds| UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
        let mut slot = vec![0; SLOT];
        assert_eq!(decode_last_use(&slot), LastUse::default());
        let last = LastUse { card: at(1_800_000_000), memory: at(7) };
        slot[LAST_USE_AT..LEASE_AT].copy_from_slice(&encode_last_use(last));
        assert_eq!(decode_last_use(&slot), last);
        let before = UNIX_EPOCH.checked_sub(Duration::from_secs(9));
        assert_eq!(encode_last_use(LastUse { card: before, memory: None }), [0; 16], "a clock that is wrong says nothing");
        slot.fill(0xff);
        let _ = decode_last_use(&slot);
        assert_eq!(decode_last_use(&[]), LastUse::default());
    }

    #[test]
    fn an_empty_slot_has_no_record() {
        assert_eq!(Record::decode(&[0; SLOT]), None);
        assert_eq!(Record::decode(&[]), None);
    }

    #[test]
    fn long_texts_are_cut_at_a_character() {
        assert_eq!((cut("abcé", 4), cut("abcé", 5), cut("", 3)), ("abc", "abcé", ""));
    }
}
