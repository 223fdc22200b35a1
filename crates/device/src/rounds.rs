//! Loops of several queues, as a device meets them in a program: which waits mean an iteration, and when one begins.
//!
//! A queue counts the iterations of the outermost loop that it shares, with those of the shared loops in it. All partners count the
//! same ([`crate::Run::turn`]): their loops lie in each other in the same way, and go round equally often.

use plimsoll_base::{Error, Result};

use crate::{Command, Partner, Wait, Work};

/// A wait as a device looks at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Awaited {
    /// The wait.
    pub wait: Wait,
    /// Of a command in a loop of several queues: where the outermost one begins and ends in the queue that is waited for.
    pub within: Option<(u32, u32)>,
}

impl Awaited {
    /// Whether a queue that has finished so many commands, in its turn `theirs`, has come so far. `turn` is that of the queue that waits.
    pub fn is_reached(&self, finished: u32, theirs: u32, turn: u32) -> bool {
        match self.within {
            None => finished >= self.wait.commands,
            // Turns count from the beginning of the loop on: before it they are those of another one.
            Some((first, last)) => {
                finished > last || finished > first && (theirs > turn || theirs == turn && finished >= self.wait.commands)
            }
        }
    }
}

/// What a command does to its queue's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    /// Nothing.
    Stays,
    /// It begins a loop of several queues that lies in no other: turns count from 0 on.
    Begins,
    /// It ends the body of a loop of several queues: where it goes back, the next turn begins.
    Ends,
}

impl Round {
    /// The turn behind a command.
    pub fn turn(self, now: u32, goes_back: bool) -> u32 {
        match self {
            Round::Stays => now,
            Round::Begins => 0,
            Round::Ends => now.wrapping_add(u32::from(goes_back)),
        }
    }
}

/// The loops around a command, while a program is prepared from its first command on.
#[derive(Debug, Default)]
pub struct Rounds {
    at: u32,
    /// For each open loop: the number of its end, and whether other queues have it.
    open: Vec<(u64, bool)>,
    /// Of the outermost loop of several queues.
    partners: Vec<Partner>,
}

impl Rounds {
    /// The next command: what it does to the turn, and its waits.
    ///
    /// # Errors
    /// INTERNAL where loops do not lie in each other as [`crate::Program`] says, or a wait means no command of its loop.
    pub fn next(&mut self, command: &Command) -> Result<(Round, Vec<Awaited>)> {
        let at = self.at;
        self.at = at.checked_add(1).ok_or_else(|| Error::internal("a program of that many commands"))?;
        let waits = command.waits.iter().map(|wait| self.awaited(*wait)).collect::<Result<_>>()?;
        let round = match &command.work {
            Work::Loop { body, with } => {
                let round = self.begin(with)?;
                self.open.push((u64::from(at) + 1 + u64::from(*body), !with.is_empty()));
                round
            }
            Work::Again { .. } => {
                let open = self.open.pop().filter(|(end, _)| *end == u64::from(at));
                let (_, is_shared) = open.ok_or_else(|| Error::internal("the end of a loop without its beginning"))?;
                if is_shared && !self.open.iter().any(|(_, is_shared)| *is_shared) {
                    self.partners.clear();
                }
                if is_shared { Round::Ends } else { Round::Stays }
            }
            _ => Round::Stays,
        };
        Ok((round, waits))
    }

    fn begin(&mut self, with: &[Partner]) -> Result<Round> {
        if with.is_empty() {
            return Ok(Round::Stays);
        }
        if !self.partners.is_empty() {
            let is_around = |partner: &Partner| self.partners.iter().any(|around| around.queue == partner.queue);
            if with.len() != self.partners.len() || !with.iter().all(is_around) {
                return Err(Error::internal("a loop of other queues in a loop of several"));
            }
            return Ok(Round::Stays);
        }
        if !self.open.is_empty() {
            return Err(Error::internal("a loop of several queues in a loop of one"));
        }
        self.partners.extend_from_slice(with);
        Ok(Round::Begins)
    }

    fn awaited(&self, wait: Wait) -> Result<Awaited> {
        if self.partners.is_empty() {
            return Ok(Awaited { wait, within: None });
        }
        let partner = self.partners.iter().find(|partner| partner.queue == wait.queue);
        let range = partner.and_then(|Partner { first, body, .. }| Some((*first, first.checked_add(1)?.checked_add(*body)?)));
        let within = range.filter(|(first, last)| (first + 1..=*last).contains(&wait.commands));
        within.map_or_else(
            || Err(Error::internal("a command in a loop waits for none of it")),
            |within| Ok(Awaited { wait, within: Some(within) }),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(work: Work, waits: &[(u32, u32)]) -> Command {
        let waits = waits.iter().map(|&(queue, commands)| Wait { queue, commands }).collect();
        Command { work, args: vec![], scratch: None, worker_scratch: None, guard: None, waits, label: "test".into() }
    }

    fn begin(body: u32, with: &[(u32, u32, u32)]) -> Command {
        let with = with.iter().map(|&(queue, first, body)| Partner { queue, first, body }).collect();
        command(Work::Loop { body, with }, &[])
    }

    fn read(commands: &[Command]) -> Result<Vec<(Round, Vec<Awaited>)>> {
        let mut rounds = Rounds::default();
        commands.iter().map(|command| rounds.next(command)).collect()
    }

    #[test]
    fn waits_in_a_loop_of_several_queues_mean_the_iteration() {
        let copy = |waits: &[(u32, u32)]| command(Work::Copy, waits);
        let end = |body, waits: &[(u32, u32)]| command(Work::Again { body }, waits);
        let program = [
            copy(&[(1, 3)]),
            begin(3, &[(1, 4, 6)]),
            begin(0, &[(1, 6, 1)]),
            end(0, &[(1, 8)]),
            copy(&[(1, 5)]),
            end(3, &[(1, 11)]),
            copy(&[(1, 12)]),
        ];
        let read = read(&program).unwrap();
        let rounds: Vec<Round> = read.iter().map(|(round, _)| *round).collect();
        assert_eq!(rounds, [Round::Stays, Round::Begins, Round::Stays, Round::Ends, Round::Stays, Round::Ends, Round::Stays]);
        let within: Vec<Option<(u32, u32)>> = read.iter().flat_map(|(_, waits)| waits).map(|wait| wait.within).collect();
        assert_eq!(within, [None, Some((4, 11)), Some((4, 11)), Some((4, 11)), None]);
    }

    #[test]
    fn a_wait_is_over_in_its_iteration() {
        let outside = Awaited { wait: Wait { queue: 0, commands: 6 }, within: None };
        assert!(outside.is_reached(6, 0, 9) && !outside.is_reached(5, 9, 0));
        let within = Awaited { within: Some((4, 9)), ..outside };
        // (finished, their turn): not there yet, there, before the iteration, behind it, behind the loop, before the loop.
        let cases = [(5, 2, false), (6, 2, true), (9, 1, false), (5, 3, true), (10, 0, true), (4, 7, false)];
        cases.iter().for_each(|&(finished, theirs, is)| assert_eq!(within.is_reached(finished, theirs, 2), is, "{finished} {theirs}"));
    }

    #[test]
    fn loops_that_contradict_each_other_are_errors() {
        let end = |body| command(Work::Again { body }, &[]);
        let wrong = [
            vec![end(0)],
            vec![begin(1, &[]), end(0)],
            vec![begin(2, &[]), begin(0, &[(1, 0, 0)])],
            vec![begin(2, &[(1, 0, 2)]), begin(0, &[(2, 1, 0)])],
            vec![begin(1, &[(1, 0, 1)]), command(Work::Copy, &[(2, 1)])],
            vec![begin(1, &[(1, 3, 1)]), command(Work::Copy, &[(1, 3)])],
            vec![begin(1, &[(1, 3, 1)]), command(Work::Copy, &[(1, 6)])],
            vec![begin(1, &[(1, u32::MAX, u32::MAX)]), command(Work::Copy, &[(1, 6)])],
        ];
        for program in wrong {
            assert_eq!(read(&program).unwrap_err().code(), plimsoll_base::Code::Internal, "{program:?}");
        }
    }
}
