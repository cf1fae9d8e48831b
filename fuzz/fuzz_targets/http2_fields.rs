#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| quictun_http2::check::http2_fields(bytes));
