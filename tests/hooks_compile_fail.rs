//! What is not `Send` is refused where it is written, not where it is used.

#[test]
fn what_is_not_send_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail_hooks/*.rs");
}
