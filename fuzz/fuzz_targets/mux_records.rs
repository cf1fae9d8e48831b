#![no_main]

use std::time::Instant;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| quictun_mux::check::mux_records(Instant::now(), bytes));
