//! What costs say of real cards: their library's seconds, or a table of their model; never a processor's table.

use std::collections::BTreeMap;

use plimsoll_base::Bytes;
use plimsoll_device::{
    Caches, CardLink, CardPart, Class, Cost, CostTable, Costs, DeviceKind, DeviceName, DeviceSpec, InstructionSet, Load, ModelledLink,
    Rates, RealCard, Step, Variant,
};

const LINK: f64 = 5e10;

/// A part of a card with that number. Its processor's instructions have a committed table.
fn card(number: u32, peers: &[u32]) -> DeviceSpec {
    let link = CardLink { bandwidth: LINK, peers: peers.to_vec() };
    let real = Some(RealCard { model: "Some card".into(), multiprocessors: 100, link });
    DeviceSpec {
        name: DeviceName::local("GPU", number),
        kind: DeviceKind::Gpu,
        flops: 5e13,
        bandwidth: 4e12,
        card: Some(CardPart { card: number, priority: 0, modelled: None, real }),
        ..host()
    }
}

fn host() -> DeviceSpec {
    DeviceSpec::cpu(0, None, 1, InstructionSet::Avx512)
}

fn step(seconds: Option<f64>) -> Step {
    let (cost, load) = (Cost { flops: 1e9, bytes: 1e6 }, Load { class: Class::Product, issued: 1e9, elementwise: 0.0 });
    Step { args: None, chunks: 1, scratch: 0, per_worker: 0, in_place: Vec::new(), cost, load, seconds }
}

fn table(card: Option<&str>) -> CostTable {
    CostTable {
        processor: "made up".into(),
        card: card.map(str::to_string),
        instructions: InstructionSet::Avx512,
        caches: Caches::default(),
        threads: 1,
        command: 0.0,
        rates: BTreeMap::from([(Class::Other, Rates { call: 0.25, ..Rates::default() })]),
    }
}

#[test]
fn a_real_card_has_the_seconds_of_its_library_or_of_a_table_for_its_model() {
    let (spec, committed) = (card(0, &[]), Costs::committed());
    assert!(committed.table(&spec).is_none() && committed.predicts(&spec) && committed.table(&host()).is_some());
    assert_eq!(committed.step_seconds(&spec, &step(Some(3e-6))), 3e-6);
    // A library that says nothing: by the figures of the card.
    let by_figures = committed.step_seconds(&spec, &step(None));
    assert!((2e-5..2.1e-5).contains(&by_figures), "{by_figures}");
    // Tables of processors and of other cards say nothing of it, and its own nothing of processors.
    let costs = |cards: &[Option<&str>]| Costs::of(cards.iter().map(|card| table(*card)).collect()).unwrap();
    assert_eq!(costs(&[None, Some("Another card")]).step_seconds(&spec, &step(Some(3e-6))), 3e-6);
    assert_eq!(costs(&[None, Some("Some card")]).step_seconds(&spec, &step(Some(3e-6))), 0.25);
    assert!(costs(&[Some("Some card")]).table(&host()).is_none());
    // Files keep it.
    let json = costs(&[Some("Some card")]).to_json().unwrap();
    assert_eq!(Costs::from_json(&json).unwrap().tables(), [table(Some("Some card"))]);
}

/// A simulated card is priced as before, whatever a step says: on the virtual clock, or as its processor.
#[test]
fn simulated_cards_are_priced_as_processors_or_by_their_clock() {
    let committed = Costs::committed();
    let part = CardPart { card: 0, priority: 0, modelled: None, real: None };
    let acted = DeviceSpec { kind: DeviceKind::Gpu, card: Some(part.clone()), ..host() };
    assert_eq!(committed.step_seconds(&acted, &step(None)), committed.step_seconds(&host(), &step(None)));
    let modelled = Some(ModelledLink { latency: 0.0, bandwidth: 1e10, peers: Vec::new() });
    let timed = DeviceSpec { flops: 1e12, bandwidth: 1e12, card: Some(CardPart { modelled, ..part }), ..acted };
    assert!((committed.step_seconds(&timed, &step(Some(1.0))) - 1e-3).abs() < 1e-6);
}

#[test]
fn copies_take_the_link() {
    let costs = Costs::committed();
    let (one, other, peer) = (card(0, &[2]), card(1, &[]), card(2, &[0]));
    let seconds = |from: &DeviceSpec, to: &DeviceSpec, bytes: f64| costs.copy_seconds(from, to, bytes);
    let large = 1e9;
    // To the card the host's memory is the slower way, and pieces go by both at once; back they do not.
    let up = seconds(&host(), &one, large);
    assert!((large / CardLink::STAGING..1.01 * large / CardLink::STAGING).contains(&up), "{up}");
    let down = seconds(&one, &host(), large);
    let is_near = |seconds: f64, expected: f64| (seconds - expected).abs() < 1e-6;
    assert!(is_near(down, large / CardLink::STAGING + large / LINK + CardLink::TO_HOST), "{down}");
    assert!(is_near(seconds(&host(), &one, 0.0), CardLink::TO_CARD) && is_near(seconds(&one, &host(), 0.0), CardLink::TO_HOST));
    // Within a card by its memory, between peers by the link, between others by the host.
    let within = seconds(&one, &one, large);
    assert!((2.0 * large / 4e12..3.0 * large / 4e12).contains(&within), "{within}");
    assert!(is_near(seconds(&one, &peer, large), large / LINK + CardLink::TO_CARD));
    assert!(is_near(seconds(&one, &other, large), up + down));
    // A file is as slow as ever.
    let file = DeviceSpec::spill(0, Bytes(1 << 30), "/tmp");
    assert_eq!(costs.copy_seconds(&host(), &file, 0.0), costs.copy_seconds(&one, &file, 0.0));
}

#[test]
fn a_name_says_what_cards_were_priced_by() {
    let name = |devices: &[DeviceSpec], by: &str| {
        Costs::committed().with_cards(devices, |model| format!("{model} {by}")).fingerprint().to_string()
    };
    let plain = Costs::committed().fingerprint().to_string();
    assert_eq!(name(&[host()], "a"), plain);
    let (one, other) = (name(&[host(), card(0, &[])], "a"), name(&[host(), card(0, &[])], "b"));
    assert!(one.starts_with(&format!("{plain}-cards-")) && other.starts_with(&format!("{plain}-cards-")) && one != other, "{one} {other}");
    assert_eq!(name(&[card(0, &[]), card(1, &[])], "a"), one);
    // A table for the model says all.
    let costs = Costs::of(vec![table(Some("Some card"))]).unwrap();
    assert_eq!(costs.clone().with_cards(&[card(0, &[])], |_| panic!("not asked")).fingerprint(), costs.fingerprint());
}

#[test]
fn the_librarys_order_decides_bits_where_it_predicts_seconds() {
    let variant = |name: &str, seconds: Option<f64>| Variant {
        name: name.into(),
        numerics: name.into(),
        between: Vec::new(),
        laid_out: None,
        steps: vec![Step { load: Load { issued: if name == "slow" { 1e9 } else { 1.0 }, ..step(None).load }, ..step(seconds) }],
    };
    let costs = Costs::committed();
    let numerics =
        |seconds| costs.numerics(InstructionSet::Avx512, &[variant("slow", seconds), variant("fast", seconds)]).map(str::to_string);
    assert_eq!((numerics(None).as_deref(), numerics(Some(1.0)).as_deref()), (Some("fast"), Some("slow")));
    assert_eq!(variant("slow", Some(1.0)).without_seconds(), variant("slow", None));
}

/// A plan for a card runs on it, whatever was known of its link where the plan was made.
#[test]
fn predictions_are_no_difference_to_a_plan() {
    let (one, mut other) = (card(0, &[]), card(0, &[]));
    if let Some(real) = other.card.as_mut().and_then(|part| part.real.as_mut()) {
        real.link.bandwidth /= 2.0;
    }
    assert_ne!(one, other);
    assert_eq!((one.difference(&other), one.without_limits()), (None, other.without_limits()));
}
