#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| turnstate_fuzz::arguments(data));
