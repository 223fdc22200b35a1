//! Grants of requests: a pure function of cards, holders and the queue.
//!
//! **The rule.** Requests are looked at in the order of the queue. One is granted if its bytes are free on all its cards and not
//! *set aside*. A waiting request sets its bytes aside on each of its cards. A later request passes it only if it fits beside those
//! bytes: it cannot delay the earlier one, whichever holder gives back, and when.
//!
//! **Some of several.** A request may want its bytes on some of its cards only, so many of them, whichever they are: it takes the
//! emptiest. While it waits its bytes are set aside on all of them, since any may be the one that becomes free.
//!
//! **Growth.** A request may be granted only after other waiters have given back: they hold bytes that it needs, or that a waiter
//! before it needs. Such a request does not bind members that hold bytes: if they had to wait behind it, all would wait for ever.
//! So if the waiters could end one after another in any order, the queue does not stop ([`deadlocked`] says when they cannot).

/// A card: its bytes, and those held, by waiters as well.
#[derive(Clone, Copy, Debug)]
pub(super) struct Card {
    pub(super) room: u64,
    pub(super) taken: u64,
}

/// A waiter, or the last to ask: bytes held and asked in addition, for each card.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) held: Vec<u64>,
    pub(super) asked: Vec<u64>,
    /// On how many of the cards of which bytes are asked they are wanted; 0 for all.
    pub(super) some: usize,
}

/// The verdict on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It may be taken now.
    Granted,
    /// Its bytes are not free on this card.
    Short { card: usize },
    /// They are free on all its cards, but on this one set aside for the request at that place of the queue.
    Behind { card: usize, place: usize },
}

impl Request {
    fn holds(&self) -> bool {
        self.held.iter().any(|&bytes| bytes > 0)
    }

    /// The cards of which bytes are asked.
    fn cards(&self) -> impl Iterator<Item = usize> {
        (0..self.asked.len()).filter(|&card| self.asked[card] > 0)
    }

    /// Whether its cards with that property are enough.
    fn enough(&self, has: impl Fn(usize) -> bool) -> bool {
        match self.some {
            0 => self.cards().all(has),
            some => self.cards().filter(|&card| has(card)).count() >= some,
        }
    }
}

/// The verdict on each request of the queue, first to last. All that are granted may be taken, in any order.
pub(super) fn verdicts(cards: &[Card], queue: &[Request]) -> Vec<Verdict> {
    decide(cards, queue).into_iter().map(|(verdict, _)| verdict).collect()
}

/// As [`verdicts`], each with the cards that it is granted.
pub(super) fn decide(cards: &[Card], queue: &[Request]) -> Vec<(Verdict, Vec<usize>)> {
    let count = cards.len();
    let mut free: Vec<u64> = cards.iter().map(|card| card.room.saturating_sub(card.taken)).collect();
    let mut held_by_waiting = vec![0u64; count];
    for request in queue {
        add(&mut held_by_waiting, &request.held);
    }
    // Bytes set aside for all later requests, and for those only whose members hold nothing.
    let (mut aside, mut aside_for_new) = (vec![0u64; count], vec![0u64; count]);
    let mut out: Vec<(Verdict, Vec<usize>)> = Vec::with_capacity(queue.len());
    for (place, request) in queue.iter().enumerate() {
        let holds = request.holds();
        let bound = |card: usize| aside[card].saturating_add(if holds { 0 } else { aside_for_new[card] });
        let fits = |card: usize| request.asked[card] <= free[card];
        let passes = |card: usize| request.asked[card].saturating_add(bound(card)) <= free[card];
        let verdict = if !request.enough(fits) {
            Verdict::Short { card: request.cards().find(|&card| !fits(card)).unwrap_or(0) }
        } else if !request.enough(passes) {
            let card = request.cards().find(|&card| fits(card) && !passes(card)).unwrap_or(0);
            let waits_for = |before: &usize| out[*before].0 != Verdict::Granted && queue[*before].asked[card] > 0;
            Verdict::Behind { card, place: (0..place).find(waits_for).unwrap_or(0) }
        } else {
            Verdict::Granted
        };
        let mut granted = Vec::new();
        match verdict {
            Verdict::Granted => {
                granted = request.cards().filter(|&card| passes(card)).collect();
                if request.some > 0 {
                    granted.sort_by_key(|&card| (std::cmp::Reverse(free[card]), card));
                    granted.truncate(request.some);
                }
                for &card in &granted {
                    free[card] -= request.asked[card];
                }
                for (waiting, held) in held_by_waiting.iter_mut().zip(&request.held) {
                    *waiting = waiting.saturating_sub(*held);
                }
            }
            _ => {
                // When all members that do not wait have ended.
                let free_then = |card: usize| cards[card].room.saturating_sub(held_by_waiting[card]);
                let aside_then = |card: usize| if holds { 0 } else { aside_for_new[card] };
                let needs_none_that_waits = request.enough(|card| request.asked[card].saturating_add(aside_then(card)) <= free_then(card));
                add(if needs_none_that_waits { &mut aside } else { &mut aside_for_new }, &request.asked);
            }
        }
        out.push((verdict, granted));
    }
    out
}

/// The waiters that can never be granted. That is so even if each member that does not wait gives everything back, and each granted
/// one does so afterwards.
pub(super) fn deadlocked(cards: &[Card], queue: &[Request]) -> Vec<bool> {
    let mut held = vec![0u64; cards.len()];
    for request in queue {
        add(&mut held, &request.held);
    }
    let mut free: Vec<u64> = cards.iter().zip(&held).map(|(card, held)| card.room.saturating_sub(*held)).collect();
    let mut stuck = vec![true; queue.len()];
    loop {
        let ends = |place: &usize| stuck[*place] && queue[*place].enough(|card| queue[*place].asked[card] <= free[card]);
        let Some(place) = (0..queue.len()).find(ends) else { return stuck };
        stuck[place] = false;
        add(&mut free, &queue[place].held);
    }
}

fn add(sum: &mut [u64], bytes: &[u64]) {
    for (sum, bytes) in sum.iter_mut().zip(bytes) {
        *sum = sum.saturating_add(*bytes);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Verdict::*;
    use super::*;

    fn request(held: &[u64], asked: &[u64]) -> Request {
        Request { held: held.to_vec(), asked: asked.to_vec(), some: 0 }
    }

    fn cards(all: &[(u64, u64)]) -> Vec<Card> {
        all.iter().map(|&(room, taken)| Card { room, taken }).collect()
    }

    #[test]
    fn the_rule_by_examples() {
        let new = |asked: &[u64]| request(&vec![0; asked.len()], asked);
        let some = |some: usize, asked: &[u64]| Request { some, ..new(asked) };
        // Room and taken bytes per card; the queue; the verdicts.
        type Example = (&'static str, &'static [(u64, u64)], Vec<Request>, Vec<Verdict>);
        let table: &[Example] = &[
            ("fits", &[(10, 6)], vec![new(&[4])], vec![Granted]),
            ("does not", &[(10, 7)], vec![new(&[4])], vec![Short { card: 0 }]),
            ("small behind large", &[(10, 6)], vec![new(&[5]), new(&[1])], vec![Short { card: 0 }, Behind { card: 0, place: 0 }]),
            ("small passes on another card", &[(10, 6), (10, 6)], vec![new(&[5, 0]), new(&[0, 4])], vec![Short { card: 0 }, Granted]),
            (
                "small passes where both fit beside",
                &[(10, 6), (10, 0)],
                vec![new(&[5, 6]), new(&[0, 4]), new(&[0, 1])],
                vec![Short { card: 0 }, Granted, Behind { card: 1, place: 0 }],
            ),
            ("all that fit in order", &[(10, 4)], vec![new(&[3]), new(&[3]), new(&[1])], vec![Granted, Granted, Short { card: 0 }]),
            (
                "a holder whose bytes the first needs grows past it",
                &[(10, 5)],
                vec![new(&[8]), request(&[5], &[2])],
                vec![Short { card: 0 }, Granted],
            ),
            (
                "a holder whose bytes the first does not need waits its turn",
                &[(10, 6)],
                vec![new(&[5]), request(&[2], &[1])],
                vec![Short { card: 0 }, Behind { card: 0, place: 0 }],
            ),
            ("any two of three", &[(10, 8), (10, 0), (10, 4)], vec![some(2, &[5, 5, 5]), new(&[1, 0, 0])], vec![Granted, Granted]),
            (
                "any two of which one is free: nothing is taken, and no card may become fuller than it needs",
                &[(10, 8), (10, 0), (10, 7)],
                vec![some(2, &[5, 5, 5]), new(&[0, 5, 0]), new(&[0, 1, 0]), new(&[1, 0, 0])],
                vec![Short { card: 0 }, Granted, Behind { card: 1, place: 0 }, Behind { card: 0, place: 0 }],
            ),
            ("no bytes are always free", &[(10, 12)], vec![new(&[1]), new(&[0])], vec![Short { card: 0 }, Granted]),
        ];
        for (name, all, queue, expected) in table {
            assert_eq!(&verdicts(&cards(all), queue), expected, "{name}");
        }
    }

    #[test]
    fn two_that_grow_into_each_other_are_deadlocked() {
        let all = cards(&[(10, 10)]);
        assert_eq!(deadlocked(&all, &[request(&[5], &[3])]), [false], "the other may still give back");
        let queue = [request(&[5], &[3]), request(&[5], &[3]), request(&[0], &[4]), request(&[0], &[0])];
        assert_eq!(deadlocked(&all, &queue), [true, true, true, false]);
        let queue = [request(&[4], &[3]), request(&[3], &[3]), request(&[0], &[10])];
        assert_eq!(deadlocked(&all, &queue), [false, false, false], "one after the other");
    }

    /// A machine of one or two cards, members that only hold, and the queue.
    #[derive(Clone, Debug)]
    struct World {
        room: Vec<u64>,
        running: Vec<Vec<u64>>,
        queue: Vec<Request>,
    }

    impl World {
        fn cards(&self) -> Vec<Card> {
            let held = |card: usize| {
                self.running.iter().map(|held| held[card]).sum::<u64>() + self.queue.iter().map(|request| request.held[card]).sum::<u64>()
            };
            self.room.iter().enumerate().map(|(card, &room)| Card { room, taken: held(card) }).collect()
        }

        fn verdicts(&self) -> Vec<Verdict> {
            verdicts(&self.cards(), &self.queue)
        }

        /// The bytes that each request of the queue takes now.
        fn taken(&self) -> Vec<Vec<u64>> {
            let of = |(request, (_, granted)): (&Request, (Verdict, Vec<usize>))| {
                (0..self.room.len()).map(|card| if granted.contains(&card) { request.asked[card] } else { 0 }).collect()
            };
            self.queue.iter().zip(decide(&self.cards(), &self.queue)).map(of).collect()
        }
    }

    /// Worlds in which no card holds more than it has room for.
    fn worlds() -> impl Strategy<Value = World> {
        (1..3usize).prop_flat_map(|count| {
            let bytes = move |most: u64| prop::collection::vec(0..=most, count);
            let running = prop::collection::vec(bytes(6), 0..4);
            let waiting = (prop_oneof![2 => Just(vec![0; count]), 1 => bytes(4)], bytes(8), 0..=count);
            (prop::collection::vec(4..16u64, count), running, prop::collection::vec(waiting, 0..5)).prop_map(|(room, running, waiting)| {
                let mut world = World { room, running: vec![], queue: vec![] };
                for held in running {
                    world.running.push(held);
                    if world.cards().iter().any(|card| card.taken > card.room) {
                        world.running.pop();
                    }
                }
                for (held, asked, some) in waiting {
                    // No more than there are.
                    let some = some.min(asked.iter().filter(|&&bytes| bytes > 0).count());
                    world.queue.push(Request { held, asked, some });
                    if world.cards().iter().any(|card| card.taken > card.room) {
                        world.queue.pop();
                    }
                }
                world
            })
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2000, ..ProptestConfig::default() })]

        #[test]
        fn what_is_granted_fits_together(world in worlds()) {
            let (taken, verdicts) = (world.taken(), world.verdicts());
            for ((request, taken), verdict) in world.queue.iter().zip(&taken).zip(&verdicts) {
                let cards = taken.iter().filter(|&&bytes| bytes > 0).count();
                let wanted = if request.some > 0 { request.some } else { request.cards().count() };
                prop_assert_eq!(cards, if *verdict == Granted { wanted } else { 0 });
            }
            for (card, facts) in world.cards().iter().enumerate() {
                let granted: u64 = taken.iter().map(|taken| taken[card]).sum();
                prop_assert!(facts.taken + granted <= facts.room);
            }
        }

        #[test]
        fn the_first_is_granted_exactly_if_it_fits(world in worlds()) {
            let Some(first) = world.queue.first() else { return Ok(()) };
            let cards = world.cards();
            let fits = first.enough(|card| cards[card].taken + first.asked[card] <= cards[card].room);
            prop_assert_eq!(world.verdicts()[0] == Granted, fits);
        }

        /// Any running member may end, with or without those that were granted behind. A waiter that does not need other waiters is
        /// granted just as soon.
        #[test]
        fn a_request_that_passes_delays_no_other(world in worlds()) {
            let (verdicts, taken) = (world.verdicts(), world.taken());
            let granted = |place: &usize| verdicts[*place] == Granted;
            let mut needing = vec![];
            for place in (0..world.queue.len()).filter(|place| !granted(place)) {
                let waits = |other: &usize| *other >= place || !granted(other);
                let held_by_waiting =
                    |card: usize| (0..world.queue.len()).filter(waits).map(|other| world.queue[other].held[card]).sum::<u64>();
                // Whether it can be granted before any waiter has ended.
                let own = &world.queue[place];
                let first = |card: usize| if own.holds() { 0 } else { needing.iter().map(|&other: &usize| world.queue[other].asked[card]).sum() };
                let alone = own.enough(|card| own.asked[card] + first(card) + held_by_waiting(card) <= world.room[card]);
                if !alone {
                    needing.push(place);
                }
                for ended in 0..1u32 << world.running.len() {
                    // The rest of the queue for the request at `place`, after the grants before it and `also` behind it.
                    let after = |also: bool| {
                        let mut later = world.clone();
                        later.queue.clear();
                        later.running =
                            (0..world.running.len()).filter(|index| ended & 1 << index == 0).map(|index| world.running[index].clone()).collect();
                        for (other, request) in world.queue.iter().enumerate() {
                            // Holders may pass a request that needs other waiters: that is the rule for growth.
                            let exempt = !alone && request.holds();
                            match granted(&other) && (other < place || (also && !exempt)) {
                                true => later.running.push(request.held.iter().zip(&taken[other]).map(|(held, asked)| held + asked).collect()),
                                false if other <= place => later.queue.push(request.clone()),
                                false => later.running.push(request.held.clone()),
                            }
                        }
                        let cards = later.cards();
                        let free = |card: usize| cards[card].room.saturating_sub(cards[card].taken);
                        world.queue[place].enough(|card| world.queue[place].asked[card] <= free(card))
                    };
                    prop_assert!(!after(false) || after(true), "{place} of {verdicts:?} is delayed when {ended:b} end");
                }
            }
        }

        /// When all running members have ended, a waiter goes on, unless the waiters are deadlocked; and one after another all do.
        #[test]
        fn the_queue_does_not_stop(mut world in worlds()) {
            world.running.clear();
            let stuck = deadlocked(&world.cards(), &world.queue);
            let mut names: Vec<usize> = (0..world.queue.len()).filter(|&place| !stuck[place]).collect();
            // Deadlocked waiters are told so, give up their requests, and run.
            for place in (0..stuck.len()).rev().filter(|&place| stuck[place]) {
                let gone = world.queue.remove(place);
                prop_assert!(gone.asked.iter().any(|&bytes| bytes > 0));
            }
            while !names.is_empty() {
                let verdicts = world.verdicts();
                let Some(place) = verdicts.iter().position(|verdict| *verdict == Granted) else {
                    return Err(TestCaseError::fail(format!("{world:?} stands still: {verdicts:?}")));
                };
                world.queue.remove(place);
                names.remove(place);
            }
        }
    }
}
