//! Many processes that reserve, wait, give back and are killed at random: the line of a card holds, and all comes back.
//!
//! Beside the ledger the cards' memory is there for real: each byte of a card is a byte of a file that only one process can lock at
//! a time. A member with granted bytes must find as many free bytes.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant};

use plimsoll_base::Bytes;
use plimsoll_machine::{Denied, Identity, Machine, Member, Wait};

use super::child::Player;
use super::{Folder, open};

pub const CAPACITIES: [u64; 2] = [64, 48];

/// Numbers that look random (xorshift).
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % most
    }
}

/// The cards' memory.
struct Memory {
    file: File,
    taken: [Vec<u64>; 2],
}

impl Memory {
    fn new(path: &Path) -> Memory {
        let file = File::options().create(true).truncate(false).read(true).write(true).open(path).unwrap();
        Memory { file, taken: Default::default() }
    }

    fn lock(&self, card: usize, byte: u64, kind: i32) -> bool {
        // SAFETY: numbers only, for which zero is a value.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        (lock.l_type, lock.l_start, lock.l_len) = (kind as i16, (card as u64 * 1000 + byte) as i64, 1);
        // SAFETY: the structure is what the command reads.
        unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_OFD_SETLK, &lock) == 0 }
    }

    /// Takes bytes that were granted.
    fn take(&mut self, card: usize, count: u64) {
        let begin = Instant::now();
        let mut missing = count;
        while missing > 0 {
            for byte in 0..CAPACITIES[card] {
                if missing > 0 && !self.taken[card].contains(&byte) && self.lock(card, byte, libc::F_WRLCK) {
                    self.taken[card].push(byte);
                    missing -= 1;
                }
            }
            // A process that dies gives its locks back one after the other.
            assert!(
                missing == 0 || begin.elapsed() < Duration::from_secs(5),
                "{missing} bytes of {count} granted on card {card} do not exist"
            );
        }
    }

    fn give_back(&mut self, card: usize, count: u64) {
        for _ in 0..count.min(self.taken[card].len() as u64) {
            let byte = self.taken[card].pop().unwrap();
            assert!(self.lock(card, byte, libc::F_UNLCK));
        }
    }
}

fn check(machine: &Machine) -> usize {
    let seen = machine.look().unwrap();
    for card in &seen.cards {
        assert!(card.reserved <= card.card.capacity, "{seen:?}");
    }
    seen.entries.len()
}

/// One of the processes.
pub fn worker(state: &Path, seed: u64, time: Duration) {
    let machine = open(state, &CAPACITIES);
    let mut memory = Memory::new(&state.parent().unwrap().join("memory"));
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut member: Option<Member> = None;
    let begin = Instant::now();
    while begin.elapsed() < time {
        let Some(place) = &member else {
            member = Some(machine.join(&Identity::this_process(seed.to_string())).unwrap());
            continue;
        };
        let card = dice.below(2) as usize;
        let mut request = vec![(card, Bytes(1 + dice.below(CAPACITIES[card] / 3)))];
        if dice.below(4) == 0 {
            request.push((1 - card, Bytes(1 + dice.below(10))));
        }
        let result = match dice.below(10) {
            0 => {
                (0..2).for_each(|card| memory.give_back(card, u64::MAX));
                member = None;
                continue;
            }
            1..4 => {
                let bytes = dice.below(20);
                memory.give_back(card, bytes);
                place.release(&[(card, Bytes(bytes))]).unwrap();
                assert_eq!(place.reserved(card).0, memory.taken[card].len() as u64);
                continue;
            }
            4..8 => place.reserve(&request),
            _ => {
                let wait = Wait { priority: dice.below(3) as i32, timeout: Some(Duration::from_millis(dice.below(60))) };
                place.reserve_waiting(&request, &wait, &mut |_| true)
            }
        };
        match result {
            Ok(()) => request.iter().for_each(|&(card, bytes)| memory.take(card, bytes.0)),
            Err(Denied::Full(_)) => {}
            Err(Denied::Broken(error)) => panic!("{error}"),
        }
        check(&machine);
    }
    // Some end without a word.
    (0..2).for_each(|card| memory.give_back(card, u64::MAX));
    if dice.below(2) == 0 {
        std::mem::forget(member);
    }
}

/// How many processes, and for how long: a few for two seconds unless PLIMSOLL_STRESS_SECONDS says more.
pub fn extent() -> (u64, Duration) {
    let seconds = std::env::var("PLIMSOLL_STRESS_SECONDS").ok().and_then(|text| text.parse::<u64>().ok());
    seconds.map_or((8, Duration::from_secs(2)), |seconds| (64, Duration::from_secs(seconds)))
}

#[test]
fn the_line_holds_under_kill_and_all_comes_back() {
    let (count, time) = extent();
    let folder = Folder::new("stress");
    holds(&folder.machine(&CAPACITIES), count, time, &|role, _| Player::new(role, &folder.state()));
}

/// So many processes for that long; `play` starts one in a role, and is told how many were started before.
pub fn holds(machine: &Machine, count: u64, time: Duration, play: &dyn Fn(&str, u64) -> Player) {
    let begin = Instant::now();
    let mut seeds = 0;
    let mut start = || {
        seeds += 1;
        let left = time.saturating_sub(begin.elapsed()).as_millis();
        play(&format!("stress {seeds} {left}"), seeds)
    };
    let mut players: Vec<Player> = (0..count).map(|_| start()).collect();
    let mut dice = Dice(7);
    let (mut killed, mut looks, mut most) = (0, 0, 0);
    while begin.elapsed() < time {
        std::thread::sleep(Duration::from_millis(dice.below(20)));
        most = check(machine).max(most);
        looks += 1;
        let victim = dice.below(count) as usize;
        assert_ne!(players[victim].ended(), Some(false), "a process failed");
        if dice.below(3) == 0 {
            std::mem::replace(&mut players[victim], start()).kill();
            killed += 1;
        }
    }
    players.into_iter().for_each(Player::ends_well);
    let seen = machine.look().unwrap();
    assert!(seen.entries.is_empty() && seen.cards.iter().all(|card| card.reserved == Bytes::ZERO), "{seen:?}");
    println!("{count} processes, {killed} killed, {looks} looks, at most {most} members at once");
    assert!(killed > 0 && most > 1);
}
