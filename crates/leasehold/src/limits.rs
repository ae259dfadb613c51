//! The limits that a request is checked against before anything is sent.

use std::time::Duration;

/// The most bytes a name may have, namespace included: 64 KiB.
pub const LONGEST_NAME: usize = 64 * 1024;
/// The most values of a group that one lock may have. A server handles all of them in one step, and no other client
/// meanwhile: that takes some hundredths of a second for a thousand.
pub const MOST_VALUES: usize = 10_000;
/// The shortest lease: below it the safety margin would be more than a tenth of the time.
pub const SHORTEST_LEASE: Duration = Duration::from_millis(20);
/// The longest lease: a hundred years.
pub const LONGEST_LEASE: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
