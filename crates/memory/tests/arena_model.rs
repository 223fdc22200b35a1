//! The policy of the arena against an arena that scans lists, over random requests.

mod model;

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_policy_does_what_a_scan_does(bytes in prop::collection::vec(any::<u8>(), 4..700)) {
        model::drive(&bytes);
    }
}
