//! Functions that must not compile, and what the compiler says about each.
//!
//! `TRYBUILD=overwrite cargo test -p leasehold-macros --test refused` writes the expected errors anew.

#[test]
fn own_376_mistakes_are_errors_that_point_at_them() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/refused/*.rs");
}
