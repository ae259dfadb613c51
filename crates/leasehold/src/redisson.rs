//! Runs the examples of the page for users of Redisson.

#[doc = include_str!("../../../docs/redisson.md")]
struct Page;
