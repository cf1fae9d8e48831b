#![no_main]

use std::sync::LazyLock;
use std::time::Instant;

/// Time is virtual and starts at an arbitrary instant.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    quictun_netstack::check::packets(*START, bytes.iter().copied());
});
