//! The pages of machines and leases.

use plimsoll_base::Bytes;
use plimsoll_page::listing::{Card, Holder, Lease, Listing, Use, Waiter};

use crate::sample::hostile;

fn gib(count: u64) -> Option<Bytes> {
    Some(Bytes(count << 30))
}

/// A machine with a card that two programs share, one that is not known well, and a waiter.
pub fn listing() -> Listing {
    let names = hostile();
    let holder = |at: usize, reserved: u64| Holder {
        pid: 100 + at as u32,
        name: names[at].clone(),
        reserved: gib(reserved),
        used: gib(1),
        peak: gib(2),
        guarantee: Some("shim".to_string()),
        history: Use { step: 0.5, shares: vec![0.0, 0.5, 1.0, 0.25] },
        ..Holder::default()
    };
    let shared = Card {
        label: "0".to_string(),
        name: names[3].clone(),
        facts: vec!["simulated".to_string()],
        total: gib(8),
        free: gib(2),
        holders: vec![holder(0, 4), holder(1, 2)],
        ..Card::default()
    };
    let waiter = Waiter { pid: 7, name: names[2].clone(), asked: "4 GiB of GPU 0".to_string(), why: names[4].clone() };
    Listing {
        cards: vec![shared, Card { label: "1".to_string(), ..Card::default() }],
        waiters: vec![waiter],
        devices: vec![("GPU:0".to_string(), "a card".to_string(), None)],
        notes: names,
    }
}

/// What a program took.
pub fn lease() -> Lease {
    Lease {
        command: hostile().join(" "),
        ended: "done".to_string(),
        waited: 0.25,
        ran: 75.0,
        facts: vec![("pid".to_string(), "12".to_string())],
        cards: vec![
            ("0".to_string(), "a card".to_string(), Bytes(2 << 30), gib(1)),
            ("1".to_string(), hostile()[0].clone(), Bytes(1 << 30), None),
        ],
        history: Use { step: 1.0, shares: vec![0.1, 0.5, 0.4] },
        notes: hostile(),
    }
}

#[test]
fn names_of_programs_are_text() {
    for page in [listing().html(), lease().html(), Listing::default().html(), Lease::default().html()] {
        for word in ["<script", "<img", "<svg onload", "\u{202e}", "\u{0}"] {
            assert!(!page.contains(word), "the page has {word}");
        }
        assert!(page.contains("script-src 'none'") && page.len() < 40_000, "{} bytes", page.len());
        // Quotes of names end no attribute.
        let inside = page.split('<').skip(1).map(|tag| tag.split_once('>').map_or(tag, |(tag, _)| tag));
        for tag in inside {
            assert!(tag.matches('"').count() % 2 == 0, "<{tag}>");
        }
    }
}

#[test]
fn a_listing_says_who_holds_what() {
    let page = listing().html();
    for text in [
        "8 GiB, 2 GiB free",
        ">101<",
        "4 GiB of GPU 0",
        "No program is known to hold anything of it",
        "GPU:0",
        "at most 100 % of its reservation",
    ] {
        assert!(page.contains(text), "the page lacks {text}");
    }
    assert!(Listing::default().html().contains("There are no cards"));
}

#[test]
fn a_lease_says_what_was_taken_and_when() {
    let page = lease().html();
    for text in ["2 GiB reserved, at most 1 GiB used", "1 GiB reserved, use not observed", "0.2 s", "1.2 min", "at most 50 % of 3 GiB"] {
        assert!(page.contains(text), "the page lacks {text}");
    }
}
