//! Device names: the fact sheet's section 3 and table D, as data, and properties of all names.

use plimsoll_base::{Code, Error, Result};
use plimsoll_device::DeviceName;
use proptest::prelude::*;

/// The parts between commas.
fn parts(name: &DeviceName) -> String {
    let number = |number: Option<u32>| number.map_or("-".into(), |number| number.to_string());
    let word = |word: &Option<String>| word.clone().unwrap_or("-".into());
    [word(&name.job), number(name.replica), number(name.task), word(&name.kind), number(name.index)].join(",")
}

fn answer(ask: &str, arguments: &[&str]) -> Result<String> {
    let name = |position: usize| DeviceName::parse(arguments[position]);
    let yes = |yes: bool| Ok(if yes { "yes" } else { "no" }.to_string());
    let merged = |merge: &dyn Fn(&mut DeviceName, &DeviceName) -> Result<()>| {
        let (mut one, other) = (name(0)?, name(1)?);
        let before = one.clone();
        let result = merge(&mut one, &other);
        assert!(result.is_ok() || one == before, "a merge that fails changes nothing: {before} and {other}");
        result.map(|()| one.to_string())
    };
    match ask {
        "build" => {
            let number = |position: usize| arguments[position].parse().expect("a number");
            Ok(DeviceName::full(arguments[0], number(1), number(2), arguments[3], number(4)).to_string())
        }
        "parse" => name(0).map(|name| parts(&name)),
        "parse_local" => DeviceName::parse_local(arguments[0]).map(|name| parts(&name)),
        "parse_either" => arguments[0].parse().map(|name| parts(&name)),
        "print" => name(0).map(|name| name.to_string()),
        "same_space" => yes(name(0)?.same_address_space(&name(1)?)),
        "compatible" => {
            assert_eq!(name(0)?.is_compatible(&name(1)?), name(1)?.is_compatible(&name(0)?));
            yes(name(0)?.is_compatible(&name(1)?))
        }
        "satisfies" => yes(name(0)?.satisfies(&name(1)?)),
        "local_part" => name(0).map(|name| name.local_part().to_string()),
        "split" => Ok(name(0)?.split().map_or("none".into(), |(task, device)| format!("{task} {device}"))),
        "registered" => Ok(Some(name(0)?.registered().join(" ")).filter(|names| !names.is_empty()).unwrap_or("none".into())),
        "merge" => merged(&|one, other| one.merge(other, false)),
        "soft_merge" => merged(&|one, other| one.merge(other, true)),
        "merge_override" => merged(&DeviceName::merge_override),
        "merge_unset" => merged(&|one, other| {
            one.merge_unset(other);
            Ok(())
        }),
        "ensure" => merged(&|one, other| {
            one.overlay(other);
            Ok(())
        }),
        "canonicalize" => DeviceName::canonicalize(arguments[0], &name(1)?).map(|name| name.to_string()),
        "python" => DeviceName::parse_python(arguments[0]).map(|name| name.to_string()),
        "scope" => {
            let mut outer = DeviceName::parse_python(arguments[0])?;
            outer.overlay(&DeviceName::parse_python(arguments[1])?);
            Ok(outer.to_string())
        }
        _ => panic!("nobody can be asked '{ask}'"),
    }
}

#[test]
fn the_table_of_names() {
    let (mut cases, mut wrong) = (0, Vec::new());
    for line in include_str!("data/names.txt").lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        let fields: Vec<&str> = line.split('|').map(str::trim).collect();
        let (id, ask, arguments, expected) = (fields[0], fields[1], &fields[2..fields.len() - 1], fields[fields.len() - 1]);
        cases += 1;
        let fine = match (answer(ask, arguments), expected.strip_prefix("error ")) {
            (Err(error), Some(fragment)) => error.code() == Code::InvalidArgument && error.message().contains(fragment),
            (Ok(given), None) => given == expected,
            (given, _) => {
                wrong.push(format!("{id}: {ask} {arguments:?}: {given:?}, not {expected}"));
                continue;
            }
        };
        if !fine {
            wrong
                .push(format!("{id}: {ask} {arguments:?}: {:?}, not {expected}", answer(ask, arguments).map_err(|e: Error| e.to_string())));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(cases > 100, "{cases} cases");
}

fn any_name() -> impl Strategy<Value = DeviceName> {
    use proptest::option::of;
    let kind = proptest::sample::select(vec!["CPU", "GPU", "gpu", "My_1"]).prop_map(String::from);
    let job = proptest::sample::select(vec!["a", "b_2"]).prop_map(String::from);
    (of(job), of(0..3u32), of(0..3u32), of(kind), of(0..3u32)).prop_map(|(job, replica, task, kind, index)| DeviceName {
        job,
        replica,
        task,
        kind,
        index,
    })
}

proptest! {
    /// D19: a printed name is read back.
    #[test]
    fn printing_and_parsing_are_inverse(name in any_name()) {
        prop_assert_eq!(DeviceName::parse(&name.to_string()).unwrap(), name);
    }

    /// A merge that is not soft succeeds for compatible names alone, and its result satisfies both.
    #[test]
    fn merging_adds_constraints(a in any_name(), b in any_name()) {
        let mut merged = a.clone();
        let result = merged.merge(&b, false);
        prop_assert_eq!(result.is_ok(), a.is_compatible(&b));
        if result.is_ok() {
            prop_assert!(merged.satisfies(&a) && merged.satisfies(&b));
        }
    }

    /// Where names are compatible all ways of merging agree; a soft merge fails only for jobs, replicas and tasks.
    #[test]
    fn ways_of_merging_agree(a in any_name(), b in any_name()) {
        let [mut hard, mut soft, mut over, mut unset] = [(); 4].map(|()| a.clone());
        let results = (hard.merge(&b, false).is_ok(), soft.merge(&b, true).is_ok(), over.merge_override(&b).is_ok());
        unset.merge_unset(&b);
        prop_assert_eq!(results.1, results.2);
        prop_assert!(unset.satisfies(&a));
        if results.0 {
            prop_assert!(results.1);
            prop_assert!(hard == soft && hard == over && hard == unset);
        }
        if results.2 {
            prop_assert!(over.satisfies(&b));
        }
    }

    /// Nothing that is written panics.
    #[test]
    fn any_text_is_a_name_or_an_error(text in "[/:*a-z0-9A-Z_ -]{0,20}|\\PC{0,10}") {
        let _ = DeviceName::parse_full_or_local(&text);
        let _ = DeviceName::parse_python(&text);
    }
}
