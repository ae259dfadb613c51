//! Pins what the compiler says about ignored values. Each refusal stands beside the same code accepted, so that it
//! cannot be refused for another reason.

/// A guard that is not kept would release the lock on the spot.
///
/// ```
/// #![deny(unused_must_use)]
/// # let client = leasehold::Client::connect("memory:").block().unwrap();
/// let _guard = client.lock("a").acquire().block().unwrap();
/// ```
/// ```compile_fail
/// #![deny(unused_must_use)]
/// # let client = leasehold::Client::connect("memory:").block().unwrap();
/// client.lock("a").acquire().block().unwrap();
/// ```
struct Guard;

/// Nothing happens before `.await` or `.block()`.
///
/// ```
/// #![deny(unused_must_use)]
/// # let client = leasehold::Client::connect("memory:").block().unwrap();
/// let _ = client.lock("a").acquire();
/// let _ = client.lock("a").try_acquire();
/// let _ = client.lock("a").is_locked();
/// ```
/// ```compile_fail
/// #![deny(unused_must_use)]
/// # let client = leasehold::Client::connect("memory:").block().unwrap();
/// client.lock("a").acquire();
/// ```
/// ```compile_fail
/// #![deny(unused_must_use)]
/// # let client = leasehold::Client::connect("memory:").block().unwrap();
/// client.lock("a").try_acquire();
/// ```
/// ```compile_fail
/// #![deny(unused_must_use)]
/// # let client = leasehold::Client::connect("memory:").block().unwrap();
/// client.lock("a").is_locked();
/// ```
/// ```compile_fail
/// #![deny(unused_must_use)]
/// leasehold::Client::connect("memory:");
/// ```
struct Operations;

/// A lock is released once: `release` takes the guard away, and there is no second one.
///
/// ```
/// # let client = leasehold::Client::connect("memory:").block().unwrap();
/// let guard = client.lock("a").acquire().block().unwrap();
/// guard.release().block().unwrap();
/// ```
/// ```compile_fail
/// # let client = leasehold::Client::connect("memory:").block().unwrap();
/// let guard = client.lock("a").acquire().block().unwrap();
/// guard.release().block().unwrap();
/// guard.release().block().unwrap();
/// ```
/// ```compile_fail
/// # let client = leasehold::Client::connect("memory:").block().unwrap();
/// let guard = client.lock("a").acquire().block().unwrap();
/// let _twin = guard.clone();
/// ```
struct Once;
