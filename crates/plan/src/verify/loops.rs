//! Loops lie one behind the other or in each other. One of several queues is the same in all of them: it goes round equally often
//! everywhere. It begins where all of them have come to it, and no iteration begins anywhere before the one before it is over
//! everywhere.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use plimsoll_base::Result;
use plimsoll_device::{Command, Partner, Wait, Work};

use super::{Checked, Slot, wrong};
use crate::frames::MOST_DEPTH;

/// The part of a loop that a queue has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub queue: usize,
    /// The number of its first command, and those of the commands of its body. Behind these is its end.
    pub first: usize,
    pub body: Range<usize>,
}

impl Member {
    /// The command that ends it.
    pub fn end(&self) -> Slot {
        (self.queue, self.body.end)
    }

    /// Whether a command is in its body.
    pub fn has(&self, slot: Slot) -> bool {
        slot.0 == self.queue && self.body.contains(&slot.1)
    }

    fn partner(&self) -> Partner {
        Partner { queue: self.queue as u32, first: self.first as u32, body: self.body.len() as u32 }
    }
}

/// The loops of a plan, each with what its queues have of it, by queue.
#[derive(Debug, Default)]
pub(super) struct Loops {
    all: Vec<Vec<Member>>,
    first: HashMap<Slot, usize>,
    end: HashMap<Slot, usize>,
}

impl Loops {
    pub fn get(&self, number: usize) -> &[Member] {
        &self.all[number]
    }

    /// The loop that begins with a command.
    pub fn beginning(&self, slot: Slot) -> Option<usize> {
        self.first.get(&slot).copied()
    }

    /// The loop that ends with a command.
    fn ending(&self, slot: Slot) -> Option<usize> {
        self.end.get(&slot).copied()
    }
}

/// A loop of a queue, as it is read.
struct Found {
    member: Member,
    with: Vec<Partner>,
    /// The loop of the queue around it.
    around: Option<usize>,
}

impl Checked<'_> {
    /// # Errors
    /// INVALID_ARGUMENT where a loop has no end, an end no loop, or a loop reaches out of another. The same where queues differ in a loop
    /// of several, where a command in a loop waits for what is not in it, or another queue for a part of it.
    pub(super) fn loops(&self) -> Result<Loops> {
        let found = (0..self.queues.len()).map(|queue| self.of_queue(queue)).collect::<Result<Vec<_>>>()?;
        let mut loops = Loops::default();
        // By queue and number there: the loop.
        let mut numbers: Vec<Vec<usize>> = found.iter().map(|of_queue| vec![usize::MAX; of_queue.len()]).collect();
        // Those around others come first in their queues.
        for (queue, of_queue) in found.iter().enumerate() {
            for (index, one) in of_queue.iter().enumerate() {
                if numbers[queue][index] != usize::MAX {
                    continue;
                }
                let number = loops.all.len();
                let at = |error| self.at((queue, one.member.first), error);
                let members = self.members(&found, (queue, one)).map_err(at)?;
                let around = |queue: usize, index: usize| found[queue][index].around.map(|around| numbers[queue][around]);
                let outer = around(queue, index);
                if members.len() > 1 && outer.is_some_and(|outer| loops.all[outer].len() != members.len()) {
                    return Err(at(wrong("a loop of several queues in one of others")));
                }
                if members.iter().any(|(queue, index)| around(*queue, *index) != outer) {
                    return Err(at(wrong("its partners are in other loops")));
                }
                members.iter().for_each(|(queue, index)| numbers[*queue][*index] = number);
                let members: Vec<Member> = members.into_iter().map(|(queue, index)| found[queue][index].member.clone()).collect();
                loops.first.extend(members.iter().map(|member| ((member.queue, member.first), number)));
                loops.end.extend(members.iter().map(|member| (member.end(), number)));
                loops.all.push(members);
            }
        }
        self.waits_of_loops(&found, &numbers, &loops)?;
        Ok(loops)
    }

    /// The loops of a queue, by their first commands.
    fn of_queue(&self, queue: usize) -> Result<Vec<Found>> {
        let mut found: Vec<Found> = Vec::new();
        let mut open: Vec<usize> = Vec::new();
        for (number, command) in self.queues[queue].program.commands.iter().enumerate() {
            let at = |error| self.at((queue, number), error);
            match &command.work {
                Work::Loop { .. } if open.len() == MOST_DEPTH => {
                    return Err(at(wrong(format!("loops more than {MOST_DEPTH} deep in each other"))));
                }
                Work::Loop { with, .. } if !with.is_empty() && command.guard.is_some() => {
                    return Err(at(wrong("a loop of several queues has a guard")));
                }
                Work::Loop { body, with } => {
                    let member = Member { queue, first: number, body: number + 1..number + 1 + *body as usize };
                    found.push(Found { member, with: with.clone(), around: open.last().copied() });
                    open.push(found.len() - 1);
                }
                &Work::Again { body } => {
                    let begun = open.pop().map(|index| &found[index].member);
                    let ends = |member: &&Member| member.body.len() == body as usize && member.body.end == number;
                    if begun.filter(ends).is_none() || command.guard.is_some() {
                        return Err(at(wrong("it ends a loop that does not begin so many commands before")));
                    }
                }
                _ => {}
            }
        }
        match open.pop() {
            Some(index) => Err(self.at((queue, found[index].member.first), wrong("it begins a loop without an end"))),
            None => Ok(found),
        }
    }

    /// The queues that have a loop, with its number in each: all say the same of each other.
    fn members(&self, found: &[Vec<Found>], (queue, one): (usize, &Found)) -> Result<Vec<(usize, usize)>> {
        let differs = || wrong("a loop of several queues that say different things of it");
        let index_of = |partner: &Partner| {
            let of_queue = found.get(partner.queue as usize)?;
            let index = of_queue.binary_search_by_key(&(partner.first as usize), |other| other.member.first).ok()?;
            (of_queue[index].member.partner() == *partner).then_some((partner.queue as usize, index))
        };
        if one.with.len() >= found.len().max(1) {
            return Err(differs());
        }
        let all = |of: &Found| {
            let mut all: Vec<Partner> = of.with.iter().copied().chain([of.member.partner()]).collect();
            all.sort_by_key(|partner| (partner.queue, partner.first, partner.body));
            all
        };
        let mine = all(one);
        if mine.windows(2).any(|pair| pair[0].queue == pair[1].queue) {
            return Err(differs());
        }
        let members = mine.iter().map(index_of).collect::<Option<Vec<_>>>().ok_or_else(differs)?;
        let is_same = |&(other, index): &(usize, usize)| other == queue || all(&found[other][index]) == mine;
        if members.iter().all(is_same) { Ok(members) } else { Err(differs()) }
    }

    /// In a loop of several queues a command waits for its partners in it. Its beginning and its end wait for all of them. In a loop of one
    /// queue none waits.
    fn waits_of_loops(&self, found: &[Vec<Found>], numbers: &[Vec<usize>], loops: &Loops) -> Result<()> {
        for (queue, of_queue) in found.iter().enumerate() {
            let mut begins = of_queue.iter().zip(&numbers[queue]).peekable();
            // The loops around the command at hand, the outermost first.
            let mut open: Vec<(usize, &Member)> = Vec::new();
            for (number, command) in self.queues[queue].program.commands.iter().enumerate() {
                while open.last().is_some_and(|(_, member)| member.body.end < number) {
                    open.pop();
                }
                let slot = (queue, number);
                self.waits_within(command, &open, found, (numbers, loops)).map_err(|error| self.at(slot, error))?;
                if let Some((found, number)) = begins.next_if(|(found, _)| found.member.first == number) {
                    open.push((*number, &found.member));
                    let come = |other: &Member| Wait { queue: other.queue as u32, commands: other.first as u32 };
                    let mut others = loops.get(*number).iter().filter(|other| other.queue != queue && other.first > 0);
                    if !others.all(|other| command.waits.contains(&come(other))) {
                        return Err(self.at(slot, wrong("a loop of several queues begins where not all of them have come to it")));
                    }
                }
                let Some(ended) = loops.ending(slot) else { continue };
                let through = |other: &Member| Wait { queue: other.queue as u32, commands: other.body.end as u32 };
                let mut others = loops.get(ended).iter().filter(|other| other.queue != queue);
                if !others.all(|other| command.waits.contains(&through(other))) {
                    return Err(self.at(slot, wrong("it ends an iteration that is not over in other queues")));
                }
            }
        }
        Ok(())
    }

    fn waits_within(
        &self,
        command: &Command,
        open: &[(usize, &Member)],
        found: &[Vec<Found>],
        (numbers, loops): (&[Vec<usize>], &Loops),
    ) -> Result<()> {
        let is_shared = |(number, _): &(usize, &Member)| loops.get(*number).len() > 1;
        if !command.waits.is_empty() && !open.iter().all(is_shared) {
            return Err(wrong("it waits for another queue in every iteration of a loop"));
        }
        for wait in &command.waits {
            let Some(theirs) = found.get(wait.queue as usize) else { continue };
            let at = wait.commands as usize;
            // The last of those that begin before that has all others around it, where it has that.
            let before = theirs.partition_point(|other| other.member.first < at);
            let mut inner = before.checked_sub(1);
            let mut within: Vec<usize> = Vec::new();
            while let Some(index) = inner {
                if theirs[index].member.body.end >= at {
                    within.push(numbers[wait.queue as usize][index]);
                }
                inner = theirs[index].around;
            }
            if within.iter().any(|number| !open.iter().any(|(other, _)| other == number)) {
                return Err(wrong("it waits for a part of a loop"));
            }
            if within.is_empty() && !open.is_empty() {
                return Err(wrong("it waits in a loop for what is not in it"));
            }
        }
        Ok(())
    }
}

/// What happens when the commands run in their order, and every loop has two iterations. What holds of two iterations, whatever they
/// begin with, holds of any number.
pub(super) enum Event {
    Command(Slot),
    /// The loop of this number has had its first iteration everywhere.
    Again(usize),
    /// It has had the second one.
    Over(usize),
    /// It has had an iteration of the second time that the loop around it goes through it.
    Through(usize),
}

/// The commands in an order in which they can run, with the iterations of loops.
pub(super) fn twice(slots: &[Slot], loops: &Loops) -> Vec<Event> {
    let mut events = Vec::with_capacity(slots.len());
    let mut begun: HashMap<usize, usize> = HashMap::new();
    let mut is_over = vec![false; loops.all.len()];
    for (at, &slot) in slots.iter().enumerate() {
        if let Some(number) = loops.beginning(slot) {
            begun.entry(number).or_insert(at);
        }
        let Some(number) = loops.ending(slot) else {
            events.push(Event::Command(slot));
            continue;
        };
        // The first end comes when all bodies are over.
        if std::mem::replace(&mut is_over[number], true) {
            continue;
        }
        let members = loops.get(number);
        let first = begun.get(&number).copied().unwrap_or(at);
        events.push(Event::Again(number));
        // Inner loops have ended by then: once more through each command is enough, since the first time went twice through them.
        let mut through: HashSet<usize> = HashSet::new();
        for slot in slots[first..at].iter().filter(|slot| members.iter().any(|member| member.has(**slot))) {
            match loops.ending(*slot) {
                None => events.push(Event::Command(*slot)),
                // At the first of its ends all of its bodies are over. The others may come behind what follows the loop in this queue.
                Some(inner) if through.insert(inner) => events.push(Event::Through(inner)),
                Some(_) => {}
            }
        }
        events.push(Event::Over(number));
    }
    events
}
