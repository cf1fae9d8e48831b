#![no_main]

#[path = "../../crates/shmq/tests/it/check.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::queues(bytes));
