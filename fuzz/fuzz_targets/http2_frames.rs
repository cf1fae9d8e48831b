#![no_main]

use std::time::Instant;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| quictun_http2::check::http2_frames(
    Instant::now(),
    bytes
));
