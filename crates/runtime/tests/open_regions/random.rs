//! The policy of the arena against an arena that scans lists, over random requests.

use proptest::prelude::*;

use crate::model;

/// Chunks that a request merged although they were not safe, and another request again: each waits once.
#[test]
fn a_chunk_merged_twice_waits_once() {
    const STEPS: [u8; 154] = [
        204, 12, 128, 0, 24, 0, 0, 8, 0, 0, 8, 0, 0, 152, 0, 0, 96, 187, 141, 32, 187, 73, 173, 0, 0, 0, 186, 0, 221, 0, 0, 48, 68, 97,
        104, 106, 0, 157, 0, 0, 157, 0, 0, 0, 0, 1, 32, 227, 9, 88, 36, 0, 80, 169, 9, 157, 0, 0, 96, 60, 49, 80, 140, 25, 168, 107, 0,
        157, 0, 0, 48, 103, 9, 222, 0, 0, 216, 87, 0, 0, 84, 225, 136, 122, 0, 184, 123, 0, 37, 0, 34, 168, 82, 0, 53, 100, 161, 13, 0, 0,
        141, 0, 0, 224, 2, 55, 8, 2, 0, 248, 54, 0, 88, 188, 0, 0, 7, 0, 133, 214, 40, 120, 106, 0, 232, 29, 0, 48, 102, 17, 136, 69, 0,
        125, 0, 0, 40, 83, 0, 192, 14, 0, 24, 0, 0, 8, 0, 0, 56, 0, 0, 208, 3, 149,
    ];
    model::drive(&STEPS);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_policy_does_what_a_scan_does(bytes in prop::collection::vec(any::<u8>(), 4..700)) {
        model::drive(&bytes);
    }
}
