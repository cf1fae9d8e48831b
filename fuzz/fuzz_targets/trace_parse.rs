#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| quictun_link::check::trace_parse(bytes));
