//! The pieces of a running command, for all threads to take.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use plimsoll_device::Bell;

/// One command at a time. Every thread has a part of its pieces, which it takes from one end; when that is empty it takes from the
/// other end of others' parts. So whenever a command runs, a thread finds much of its data in its own cache: commands that work on
/// the same memory are cut alike. The ends change with every command: a command begins with the data that the last one used last,
/// which the cache still has. A thread that takes pieces has them alone. Until they are [`done`](Offer::done) the command is not
/// over, so its memory stays.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Offer {
    command: AtomicU32,
    done: AtomicU32,
    /// How many slices of scratch were handed out.
    slices: AtomicU32,
    owner_sleeps: AtomicBool,
    /// Whether threads take their parts from the end.
    is_backward: AtomicBool,
    parts: Box<[Part]>,
}

/// The pieces of a part that are not taken yet: the first in the upper half, the one after the last in the lower.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Part(AtomicU64);

fn pack(pieces: &Range<u32>) -> u64 {
    u64::from(pieces.start) << 32 | u64::from(pieces.end)
}

fn unpack(word: u64) -> Range<u32> {
    (word >> 32) as u32..word as u32
}

impl Part {
    fn pieces(&self) -> Range<u32> {
        unpack(self.0.load(Ordering::SeqCst))
    }

    /// Takes half of the rest, so that threads come to the end together.
    fn take(&self, from_front: bool) -> Option<Range<u32>> {
        let split = |word: u64| {
            let Range { start, end } = unpack(word);
            let count = (end.saturating_sub(start) / 2).max(1);
            if from_front { (start..start + count, start + count..end) } else { (end - count..end, start..end - count) }
        };
        let lower = |word: u64| (!unpack(word).is_empty()).then(|| pack(&split(word).1));
        self.0.fetch_update(Ordering::SeqCst, Ordering::Acquire, lower).ok().map(|before| split(before).0)
    }
}

impl Offer {
    /// An offer to that many threads.
    pub fn new(threads: u32) -> Offer {
        Offer {
            command: AtomicU32::new(0),
            done: AtomicU32::new(0),
            slices: AtomicU32::new(0),
            owner_sleeps: AtomicBool::new(false),
            is_backward: AtomicBool::new(true),
            parts: (0..threads.max(1)).map(|_| Part::default()).collect(),
        }
    }

    /// Puts up the `chunks` pieces of `command`. Only for the owner, when the last offer is over.
    pub fn open(&self, command: u32, chunks: u32) {
        self.command.store(command, Ordering::Relaxed);
        self.done.store(0, Ordering::Relaxed);
        self.slices.store(0, Ordering::Relaxed);
        self.is_backward.store(!self.is_backward(), Ordering::Relaxed);
        let count = self.parts.len() as u64;
        let border = |part: u64| (u64::from(chunks) * part).div_ceil(count) as u32;
        for (part, number) in self.parts.iter().zip(0..) {
            part.0.store(pack(&(border(number)..border(number + 1))), Ordering::SeqCst);
        }
    }

    /// Whether there are pieces to take.
    pub fn is_open(&self) -> bool {
        self.parts.iter().any(|part| !part.pieces().is_empty())
    }

    /// Whether threads take their parts from the end: the pieces that they take are best done in that order, too.
    pub fn is_backward(&self) -> bool {
        self.is_backward.load(Ordering::Relaxed)
    }

    /// Takes some pieces for thread `thread`. Returns the command and its pieces.
    pub fn take(&self, thread: u32) -> Option<(u32, Range<u32>)> {
        let (own, count) = (thread as usize % self.parts.len(), self.parts.len());
        let is_backward = self.is_backward();
        let pieces = (0..count).find_map(|turn| self.parts[(own + turn) % count].take((turn == 0) != is_backward))?;
        Some((self.command.load(Ordering::Relaxed), pieces))
    }

    /// A slice of scratch for a thread that has taken pieces: every call gives another, so there are no more than pieces.
    pub fn slice(&self) -> u32 {
        self.slices.fetch_add(1, Ordering::Relaxed)
    }

    /// Says that `pieces` pieces that were taken are done. The offer may be over thereafter.
    pub fn done(&self, pieces: u32, chunks: u32, bell: &Bell) {
        let done = self.done.fetch_add(pieces, Ordering::SeqCst) + pieces;
        if done == chunks && self.owner_sleeps.load(Ordering::SeqCst) {
            bell.ring();
        }
    }

    /// Takes all that is left, to leave it undone. Returns how many pieces that were.
    pub fn withdraw(&self) -> u32 {
        self.parts.iter().map(|part| unpack(part.0.swap(0, Ordering::SeqCst)).len() as u32).sum()
    }

    /// Whether all `chunks` pieces are done.
    pub fn is_over(&self, chunks: u32) -> bool {
        self.done.load(Ordering::SeqCst) == chunks
    }

    /// Sleeps until all `chunks` pieces are done. Only for the owner.
    pub fn sleep(&self, chunks: u32, bell: &Bell) {
        self.owner_sleeps.store(true, Ordering::SeqCst);
        loop {
            let ticket = bell.ticket();
            if self.is_over(chunks) {
                break;
            }
            bell.wait(ticket);
        }
        self.owner_sleeps.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_piece_is_taken_once() {
        for threads in [1, 2, 3] {
            let (offer, bell) = (Offer::new(threads), Bell::new());
            for (command, chunks) in [(3, 1), (4, 2), (5, 100), (6, 7)] {
                offer.open(command, chunks);
                let counts: Vec<AtomicU32> = (0..chunks).map(|_| AtomicU32::new(0)).collect();
                std::thread::scope(|scope| {
                    let work = |thread| {
                        while let Some((taken, range)) = offer.take(thread) {
                            assert_eq!(taken, command);
                            for piece in range.clone() {
                                counts[piece as usize].fetch_add(1, Ordering::SeqCst);
                            }
                            offer.done(range.len() as u32, chunks, &bell);
                        }
                    };
                    (1..threads).for_each(|thread| drop(scope.spawn(move || work(thread))));
                    work(0);
                    offer.sleep(chunks, &bell);
                });
                assert!(counts.iter().all(|count| count.load(Ordering::SeqCst) == 1));
                assert!(offer.is_over(chunks) && !offer.is_open());
            }
        }
    }

    #[test]
    fn a_thread_takes_its_own_part_first() {
        let offer = Offer::new(2);
        offer.open(0, 9);
        let taken: Vec<Range<u32>> = (0..10).map_while(|_| offer.take(1).map(|(_, pieces)| pieces)).collect();
        assert_eq!(taken, [5..7, 7..8, 8..9, 3..5, 2..3, 1..2, 0..1]);
        offer.open(1, 1);
        assert_eq!((offer.take(1), offer.take(0)), (Some((1, 0..1)), None));
    }

    #[test]
    fn a_command_begins_where_the_last_one_ended() {
        let offer = Offer::new(2);
        let taken = |command| {
            offer.open(command, 8);
            let taken: Vec<Range<u32>> = (0..8).map_while(|_| offer.take(0).map(|(_, pieces)| pieces)).collect();
            (offer.is_backward(), taken)
        };
        // Of the other thread's part what that would come to last.
        let forward = (false, vec![0..2, 2..3, 3..4, 6..8, 5..6, 4..5]);
        let backward = (true, vec![2..4, 1..2, 0..1, 4..6, 6..7, 7..8]);
        assert_eq!((taken(0), taken(1), taken(2)), (forward.clone(), backward, forward));
    }

    #[test]
    fn a_withdrawn_piece_is_not_taken() {
        let (offer, bell) = (Offer::new(2), Bell::new());
        offer.open(0, 10);
        let (_, range) = offer.take(0).unwrap();
        assert_eq!(range, 0..2);
        assert_eq!((offer.withdraw(), offer.take(0), offer.take(1)), (8, None, None));
        offer.done(10, 10, &bell);
        assert!(offer.is_over(10));
    }
}
