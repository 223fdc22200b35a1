use super::*;

const GIB: u64 = 1 << 30;

fn card(name: &str, bytes: u64, total: u64) -> Card {
    Card { name: name.into(), model: "T4".into(), uuid: format!("GPU-{name}"), bytes: Bytes(bytes), total: Bytes(total) }
}

/// The changes to an environment: `NAME=value` in order, `-NAME` for one that is removed.
fn becomes(cards: &[Card], environment: &[(&str, &str)]) -> (Vec<String>, usize) {
    let variable = |name: &str| environment.iter().find(|(other, _)| *other == name).map(|(_, value)| OsString::from(value));
    let told = told(cards, &Overheads::STATED, &variable);
    let set = told.set.iter().filter(|(name, _)| name != LIMITS).map(|(name, value)| format!("{name}={}", value.to_string_lossy()));
    (set.chain(told.removed.iter().map(|name| format!("-{name}"))).collect(), told.warnings.len())
}

#[test]
fn a_share_is_told_to_each_framework() {
    let told = told(&[card("0", 2 * GIB, 4 * GIB)], &Overheads::STATED, &|_| None);
    let get = |name: &str| told.set.iter().find(|(other, _)| other == name).map(|(_, value)| value.to_str().unwrap());
    assert_eq!(get("XLA_PYTHON_CLIENT_MEM_FRACTION"), Some("0.3750"), "2 GiB without 512 MiB, of 4 GiB");
    assert_eq!((get("XLA_CLIENT_MEM_FRACTION"), get("XLA_PYTHON_CLIENT_PREALLOCATE")), (None, Some("false")));
    assert_eq!(get("TF_FORCE_GPU_ALLOW_GROWTH"), Some("true"));
    assert!(!told.set.iter().any(|(name, _)| name.starts_with("PYTORCH")), "its versions end where they do not know an option");
    let limits: serde_json::Value = serde_json::from_str(get(LIMITS).unwrap()).unwrap();
    let expected = json!([{
        "name": "0", "model": "T4", "uuid": "GPU-0", "bytes": 2 * GIB, "total": 4 * GIB,
        "pytorch": 3 * GIB / 2, "tensorflow": 3 * GIB / 2, "jax": 3 * GIB / 2,
    }]);
    assert_eq!((&limits["cards"], told.removed.len(), told.warnings.len()), (&expected, 0, 0));
}

#[test]
fn a_whole_card_is_the_programs() {
    assert_eq!(becomes(&[card("0", GIB, GIB)], &[("TF_GPU_ALLOCATOR", "cuda_malloc_async")]), (vec![], 0));
    assert_eq!(becomes(&[], &[]), (vec![], 0));
    // Of two, the smaller share is told.
    let (set, _) = becomes(&[card("0", GIB, GIB), card("1", 2 * GIB, 8 * GIB)], &[]);
    assert!(set.contains(&"XLA_PYTHON_CLIENT_MEM_FRACTION=0.1875".into()), "{set:?}");
}

#[test]
fn settings_of_the_user_count_where_they_are_smaller() {
    let ours = "TF_FORCE_GPU_ALLOW_GROWTH=true";
    let no = "XLA_PYTHON_CLIENT_PREALLOCATE=false";
    let old = "XLA_PYTHON_CLIENT_MEM_FRACTION=0.3750";
    for (environment, set, warnings) in [
        (("XLA_CLIENT_MEM_FRACTION", "0.2"), vec![ours, no], 0),
        (("XLA_CLIENT_MEM_FRACTION", ".9"), vec![ours, no, "XLA_CLIENT_MEM_FRACTION=0.3750"], 1),
        (("XLA_CLIENT_MEM_FRACTION", "much"), vec![ours, no, "XLA_CLIENT_MEM_FRACTION=0.3750"], 1),
        (("XLA_CLIENT_MEM_FRACTION", ""), vec![ours, no, old], 0),
        (("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.375"), vec![ours, no], 0),
        (("XLA_PYTHON_CLIENT_MEM_FRACTION", "NaN"), vec![ours, no, old], 1),
        (("XLA_PYTHON_CLIENT_PREALLOCATE", "true"), vec![ours, old], 0),
        (("TF_FORCE_GPU_ALLOW_GROWTH", "false"), vec![no, old], 0),
        (("TF_GPU_ALLOCATOR", "cuda_malloc_async"), vec![ours, no, old, "-TF_GPU_ALLOCATOR"], 1),
        (("TF_GPU_ALLOCATOR", "memory_guard"), vec![ours, no, old], 0),
        (("TF_FORCE_UNIFIED_MEMORY", "1"), vec![ours, no, old, "-TF_FORCE_UNIFIED_MEMORY"], 1),
        (("TF_FORCE_UNIFIED_MEMORY", "false"), vec![ours, no, old], 0),
        (("TF_DEVICE_MIN_SYS_MEMORY_IN_MB", "10"), vec![ours, no, old, "-TF_DEVICE_MIN_SYS_MEMORY_IN_MB"], 1),
        (("PYTORCH_NO_CUDA_MEMORY_CACHING", ""), vec![ours, no, old, "-PYTORCH_NO_CUDA_MEMORY_CACHING"], 1),
        (("XLA_PYTHON_CLIENT_ALLOCATOR", "Platform"), vec![ours, no, old, "-XLA_PYTHON_CLIENT_ALLOCATOR"], 1),
        (("XLA_PYTHON_CLIENT_ALLOCATOR", "BFC"), vec![ours, no, old], 0),
        (("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64"), vec![ours, no, old], 0),
        (("PYTORCH_ALLOC_CONF", "per_process_memory_fraction:0.3"), vec![ours, no, old], 0),
        (
            ("PYTORCH_ALLOC_CONF", "roundup_power2_divisions:[256:1,>:2], per_process_memory_fraction : 0.9,max_split_size_mb:64"),
            vec![
                ours,
                no,
                old,
                "PYTORCH_ALLOC_CONF=roundup_power2_divisions:[256:1,>:2],per_process_memory_fraction:0.3750,max_split_size_mb:64",
            ],
            1,
        ),
    ] {
        assert_eq!(becomes(&[card("0", 2 * GIB, 4 * GIB)], &[environment]), (set.into_iter().map(String::from).collect(), warnings));
    }
    let both = becomes(&[card("0", 2 * GIB, 4 * GIB)], &[("XLA_CLIENT_MEM_FRACTION", "0.9"), ("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.1")]);
    assert_eq!(both.0.last().unwrap(), "XLA_CLIENT_MEM_FRACTION=0.3750", "JAX says itself that both are too many");
    let inside = becomes(&[card("0", GIB, 4 * GIB)], &[("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.3750"), (LIMITS, "{}")]);
    assert!(inside.0.contains(&"XLA_PYTHON_CLIENT_MEM_FRACTION=0.1250".into()) && inside.1 == 0, "{inside:?}");
}

#[test]
fn a_fraction_is_rounded_down_and_never_none() {
    for (limit, total, told) in [(4, 10, 0.4), (10, 10, 1.0), (11, 10, 1.0), (39999, 100_000, 0.3999), (1, 1 << 40, 0.0001), (0, 0, 0.0001)]
    {
        assert_eq!(fraction(Bytes(limit), Bytes(total)), told, "{limit} of {total}");
    }
}

#[test]
fn a_folder_is_in_front_of_python_path_once() {
    for (before, after) in [(None, "/h"), (Some(""), "/h"), (Some("/a::/b c"), "/h:/a::/b c"), (Some("/a:/h:/b"), "/h:/a:/b")] {
        assert_eq!(python_path(OsStr::new("/h"), before.map(OsString::from)), OsString::from(after), "{before:?}");
    }
}
