#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| quictun_wire::check::handover(bytes));
