//! `quictun bench`: the arguments that its flags refuse.

use crate::test_inputs::TestInputs;

#[test]
fn settings_that_make_no_sense_are_refused() {
    for line in [
        "bench ipc --concurrency 0",
        "bench ipc --concurrency 5000",
        "bench ipc --policy maybe",
        "bench ipc --repeats 0",
        "bench ipc --only nothing",
        "bench ipc --idle-s 0",
        "bench ipc --json --csv",
        "bench ipc --peer async x hybrid",
        "bench netstack --only nothing",
        "bench netstack --connections 0",
        "bench netstack --bytes 65",
        "bench netstack --wire air",
        "bench netstack --serve 1 read async here tun batch 1 1",
    ] {
        assert!(TestInputs::default().native(line).is_err(), "{line}");
    }
}
