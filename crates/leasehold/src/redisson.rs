//! Runs what the page for those who come from Redisson shows.

#[doc = include_str!("../../../docs/redisson.md")]
struct Page;
