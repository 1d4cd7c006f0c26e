//! Any driver, any answers, an abort anywhere: the invariants hold.

use proptest::prelude::*;

use crate::chance::play;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn the_invariants_hold_for_any_driver(
        lag in prop_oneof![2 => Just(0_u8), 1 => 2..12_u8],
        tape in prop::collection::vec(any::<u8>(), 0..600),
    ) {
        play(&[&[lag], &tape[..]].concat());
    }
}
