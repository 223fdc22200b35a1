//! The pieces of a running command, for all threads to take.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use plimsoll_device::Bell;

/// One command at a time. The pieces not taken yet are the last `remaining` ones of the command; whoever lowers that number
/// has the pieces between, and until they are [`done`](Offer::done) the command is not over, so nothing it needs goes away.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Offer {
    remaining: AtomicU32,
    command: AtomicU32,
    done: AtomicU32,
    /// How many slices of scratch were handed out.
    slices: AtomicU32,
    owner_sleeps: AtomicBool,
}

impl Offer {
    /// Puts up the `chunks` pieces of `command`. Only for the owner, when the last offer is over.
    pub fn open(&self, command: u32, chunks: u32) {
        self.command.store(command, Ordering::Relaxed);
        self.done.store(0, Ordering::Relaxed);
        self.slices.store(0, Ordering::Relaxed);
        self.remaining.store(chunks, Ordering::SeqCst);
    }

    /// Whether there are pieces to take.
    pub fn is_open(&self) -> bool {
        self.remaining.load(Ordering::SeqCst) > 0
    }

    /// Takes some pieces: a share of what is left, so that threads come to the end together. `chunks` tells how many pieces a
    /// command has. Returns the command and its pieces.
    pub fn take(&self, threads: u32, chunks: impl FnOnce(u32) -> u32) -> Option<(u32, Range<u32>)> {
        let share = |remaining: u32| (remaining / (2 * threads)).max(1);
        let lower = |remaining: u32| remaining.checked_sub(if remaining == 0 { 1 } else { share(remaining) });
        let before = self.remaining.fetch_update(Ordering::SeqCst, Ordering::Acquire, lower).ok()?;
        let command = self.command.load(Ordering::Relaxed);
        let first = chunks(command) - before;
        Some((command, first..first + share(before)))
    }

    /// A slice of scratch for one who has taken pieces: every call gives another, so there are no more than pieces.
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
        self.remaining.swap(0, Ordering::SeqCst)
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
        let (offer, bell) = (Offer::default(), Bell::new());
        for (command, chunks) in [(3, 1), (4, 2), (5, 100), (6, 7)] {
            offer.open(command, chunks);
            let counts: Vec<AtomicU32> = (0..chunks).map(|_| AtomicU32::new(0)).collect();
            std::thread::scope(|scope| {
                let work = || {
                    while let Some((taken, range)) = offer.take(2, |_| chunks) {
                        assert_eq!(taken, command);
                        for piece in range.clone() {
                            counts[piece as usize].fetch_add(1, Ordering::SeqCst);
                        }
                        offer.done(range.len() as u32, chunks, &bell);
                    }
                };
                scope.spawn(work);
                work();
                offer.sleep(chunks, &bell);
            });
            assert!(counts.iter().all(|count| count.load(Ordering::SeqCst) == 1));
            assert!(offer.is_over(chunks) && !offer.is_open());
        }
    }

    #[test]
    fn what_is_withdrawn_is_taken_by_nobody() {
        let (offer, bell) = (Offer::default(), Bell::new());
        offer.open(0, 10);
        let (_, range) = offer.take(1, |_| 10).unwrap();
        assert_eq!(range, 0..5);
        assert_eq!((offer.withdraw(), offer.take(1, |_| 10)), (5, None));
        offer.done(10, 10, &bell);
        assert!(offer.is_over(10));
    }
}
