//! The fact sheet's table of device names, by its numbers, as data.

use plimsoll_base::Code;
use proptest::prelude::*;

use crate::DeviceName;

fn name(text: &str) -> DeviceName {
    DeviceName::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

fn fails(id: &str, text: &str) {
    let error = DeviceName::parse(text).expect_err(id);
    assert_eq!(error.code(), Code::InvalidArgument, "{id}");
    assert!(error.message().contains(&format!("'{text}'")), "{id}: {error}");
}

fn parts(job: Option<&str>, replica: Option<u32>, task: Option<u32>, kind: Option<&str>, index: Option<u32>) -> DeviceName {
    DeviceName { job: job.map(Into::into), replica, task, kind: kind.map(Into::into), index }
}

#[test]
fn building_and_parsing() {
    assert_eq!(DeviceName::full("hello", 1, 2, "CPU", 3).to_string(), "/job:hello/replica:1/task:2/device:CPU:3", "D1");
    for (id, text) in [
        ("D2", "foobar"),
        ("D4", "/job:123/replica:1/task:2/gpu:"),
        ("D5", "/job:foo/replica:-1/task:2/device:GPU:3"),
        ("D6", "/job:foo/replica:1/task:-2/device:GPU:3"),
        ("D7", "/job:foo/replica:1/task:2/bar:3"),
        ("D40", "CPU:0"),
        ("3.1 trailing slash", "/job:foo/"),
        ("3.1 legacy without an index", "/gpu"),
        ("3.1 empty index", "/device:GPU:"),
        ("3.1 number too large", "/task:4294967296"),
        ("3.1 letter case of the legacy form", "/Gpu:0"),
        ("3.1 sign", "/task:+1"),
        ("3.1 something after", "/device:GPU:0:1"),
        ("3.1 empty type", "/device:"),
        ("3.1 empty parts", "//"),
        ("3.1 not ASCII", "/job:ä"),
    ] {
        fails(id, text);
    }
    let d10 = parts(None, Some(4), None, Some("GPU"), None);
    for (id, text, expected) in [
        ("D9", "/job:foo_bar/replica:1/task:2/device:GPU:3", parts(Some("foo_bar"), Some(1), Some(2), Some("GPU"), Some(3))),
        ("D10", "/job:*/replica:4/gpu:*", d10.clone()),
        ("D11", "/job:*/device:GPU/replica:4", d10.clone()),
        ("D12", "/job:*/replica:4/device:myspecialdevice:13", parts(None, Some(4), None, Some("myspecialdevice"), Some(13))),
        ("D14", "/gpu:*/job:*/replica:4", d10),
        ("3.1 nothing", "", DeviceName::default()),
        ("3.1 slash", "/", DeviceName::default()),
        ("3.1 the last one counts", "/task:1/gpu:0/task:2/cpu:1", parts(None, None, Some(2), Some("CPU"), Some(1))),
        ("3.1 a star clears", "/job:a/gpu:1/job:*/device:*", DeviceName::default()),
        ("3.1 index alone", "/device:*:3", parts(None, None, None, None, Some(3))),
    ] {
        assert_eq!(name(text), expected, "{id}");
    }
    assert_eq!(name("/device:*:3").to_string(), "/device:*:3");
}

#[test]
fn local_names() {
    assert_eq!(DeviceName::parse_local("CPU:0").unwrap(), parts(None, None, None, Some("CPU"), Some(0)));
    for text in ["CPU", "CPU:", ":0", "CPU:*", "CPU:0/task:1", "/CPU:0", "CPU:0:1", ""] {
        assert!(DeviceName::parse_local(text).is_err(), "{text}");
    }
    assert_eq!(name("/job:foo/replica:1/task:2/cpu:3").local_part().to_string(), "/device:CPU:3", "D17");
    let split = |text| name(text).split();
    assert_eq!(split("/job:foo/cpu:1/task:2/replica:1"), Some(("/job:foo/replica:1/task:2".into(), "CPU:1".into())), "D26");
    assert_eq!(split("/job:foo/task:2/replica:1"), None, "D27");
    let mapped = name("/job:foo/replica:10/task:0/device:GPU:1").registered();
    assert_eq!(mapped, ["/job:foo/replica:10/task:0/device:GPU:1", "/job:foo/replica:10/task:0/gpu:1"], "D35");
    assert!(name("/job:foo/replica:10/device:GPU:1").registered().is_empty(), "D35");
}

#[test]
fn relations() {
    let own = name("/job:foo/replica:1/task:2/cpu:3");
    for (id, other, same) in [
        ("D15", "/job:foo/replica:1/task:2/device:GPU:4", true),
        ("D16", "/job:foo/replica:1/task:3/device:GPU:4", false),
        ("D16", "/job:foo/replica:10/task:2/device:GPU:4", false),
        ("D16", "/job:bar/replica:1/task:2/device:GPU:4", false),
        ("3.3", "/job:foo/replica:1", false),
    ] {
        assert_eq!(own.same_address_space(&name(other)), same, "{id}");
    }
    assert!(!DeviceName::default().same_address_space(&DeviceName::default()));
    assert!(!name("/job:work/replica:1/task:3/device:GPU:*").is_compatible(&name("/device:CPU:*")), "D20");
    assert!(name("/job:work/replica:1/task:3").is_compatible(&name("/device:CPU:*")), "D21");
    for (id, device, pattern, satisfied) in [
        ("D22", "/job:work/replica:1/task:2/device:GPU:3", "/job:*/replica:*/gpu:*", true),
        ("D24", "/job:work/replica:1/task:2/device:GPU:3", "/job:work/replica:1/gpu:*", true),
        ("D25", "/job:*/replica:1/task:2", "/cpu:*", false),
        ("D39", "/job:localhost/replica:0/task:0/device:GPU:0", "/device:gpu:0", false),
        ("D39", "/job:localhost/replica:0/task:0/device:GPU:0", "/gpu:0", true),
    ] {
        assert_eq!(name(device).satisfies(&name(pattern)), satisfied, "{id}");
    }
}

#[test]
fn merging() {
    for (id, one, other, soft, result) in [
        ("D29", "/job:foo/replica:0", "/replica:0/task:1", false, Ok("/job:foo/replica:0/task:1")),
        ("D30", "/job:foo", "/job:bar", false, Err("incompatible jobs")),
        ("D30", "/job:foo", "/job:bar", true, Err("incompatible jobs")),
        ("D30", "/replica:0", "/replica:1", true, Err("incompatible replicas")),
        ("D30", "/task:0", "/task:1", true, Err("incompatible tasks")),
        ("D30", "/gpu:*", "/cpu:*", false, Err("incompatible types")),
        ("D30", "/gpu:0", "/gpu:1", false, Err("incompatible ids")),
        ("D31", "/gpu:*", "/cpu:1", true, Ok("")),
        ("D32", "/gpu:1", "/gpu:2", true, Ok("/device:GPU:*")),
        ("3.4", "/gpu:1", "/task:2/cpu:2", true, Ok("/task:2")),
        ("3.4", "/device:*:1", "/task:2/cpu:2", true, Ok("/task:2/device:CPU:*")),
        ("3.4", "/gpu:*", "/gpu:2", false, Ok("/device:GPU:2")),
    ] {
        let mut merged = name(one);
        match (merged.merge(&name(other), soft), result) {
            (Ok(()), Ok(expected)) => assert_eq!(merged.to_string(), expected, "{id}"),
            (Err(error), Err(expected)) => {
                assert!(error.code() == Code::InvalidArgument && error.message().contains(expected), "{id}: {error}");
                assert_eq!(merged, name(one), "{id}");
            }
            (got, _) => panic!("{id}: {got:?}"),
        }
    }
    for (one, other) in [("/gpu:0", "/gpu:1"), ("/gpu:1", "/gpu:0")] {
        let mut merged = name(one);
        merged.merge_unset(&name(other));
        assert_eq!(merged, name(one), "D34");
    }
    for (one, other, result) in [
        ("/gpu:0", "/gpu:1", "/device:GPU:1"),
        ("/gpu:0", "/task:1/cpu:*", "/task:1/device:CPU:*"),
        ("/gpu:*", "/task:1", "/task:1/device:GPU:*"),
    ] {
        let mut merged = name(one);
        merged.merge_override(&name(other)).unwrap();
        assert_eq!(merged.to_string(), result);
    }
    assert!(name("/job:a").merge_override(&name("/job:b")).is_err());
    let mut outer = name("/job:ps/task:1/gpu:0");
    outer.overlay(&name("/task:2/gpu:*"));
    assert_eq!(outer.to_string(), "/job:ps/task:2/device:GPU:0");
}

#[test]
fn canonical_names() {
    let base = name("/job:foo/replica:10/task:0/device:CPU:0");
    for (id, text, full) in [
        ("D36", "CPU:0", "/job:foo/replica:10/task:0/device:CPU:0"),
        ("D37", "/job:foo/task:0/replica:10/cpu:1", "/job:foo/replica:10/task:0/device:CPU:1"),
    ] {
        assert_eq!(DeviceName::canonicalize(text, &base).unwrap().to_string(), full, "{id}");
    }
    assert!(DeviceName::canonicalize("CPU:0", &name("/job:foo")).is_err());
    assert!(DeviceName::canonicalize("junk", &base).is_err());
}

#[test]
fn as_python_writes_them() {
    for (text, printed) in [
        ("/gpu:0", "/device:GPU:0"),
        ("gpu:0", "/device:GPU:0"),
        ("/GPU:*", "/device:GPU:*"),
        ("/device:X:3", "/device:X:3"),
        ("/device:gpu:1", "/device:GPU:1"),
        ("/cpu", "/device:CPU:*"),
        ("/job:1/task:2", "/job:1/task:2"),
        ("", ""),
    ] {
        assert_eq!(DeviceName::parse_python(text).unwrap().to_string(), printed, "{text}");
    }
    for text in ["/gpu:0/cpu:0", "/foo:1", "/device:GPU", "/task:x", "/gpu:0:1"] {
        assert!(DeviceName::parse_python(text).is_err(), "{text}");
    }
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
    /// D19: what is printed is read back.
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

    /// Nothing that is written panics.
    #[test]
    fn any_text_is_a_name_or_an_error(text in "[/:*a-z0-9A-Z_ -]{0,20}|\\PC{0,10}") {
        let _ = DeviceName::parse_full_or_local(&text);
        let _ = DeviceName::parse_python(&text);
    }
}
