//! The attribute of Leasehold that runs a function under a lock.
//!
//! Use it as `leasehold::locked`, with the feature `macros` of `leasehold`: what it generates names that crate.

mod duration;
mod expand;
mod function;
mod kind;
mod length;
mod lock_name;
mod options;
mod returns;

use proc_macro::TokenStream;

/// Runs a function under a lock: acquired before its body begins, and released when the body is done.
///
/// ```
/// use leasehold::{Client, Error};
///
/// struct Shop {
///     locks: Client,
/// }
///
/// impl Shop {
///     /// One coupon for one user at a time, whichever process the requests reach.
///     #[leasehold::locked("coupon:{id}", client = self.locks, wait = "2s", lease = "5s")]
///     async fn issue(&self, id: u32, user: &str) -> Result<String, Error> {
///         Ok(format!("coupon {id} for {user}"))
///     }
/// }
///
/// /// On one machine only; the others skip it.
/// #[leasehold::locked("report:{day}", skip_if_busy)]
/// async fn report(client: &Client, day: &str) -> Result<Option<String>, Error> {
///     Ok(Some(format!("written for {day}")))
/// }
///
/// # #[tokio::main] async fn main() -> Result<(), Error> {
/// let client = Client::connect("memory:").await?;
/// let shop = Shop { locks: client.clone() };
/// assert_eq!(shop.issue(42, "ann").await?, "coupon 42 for ann");
///
/// let held = client.lock("report:friday").acquire().await?;
/// assert_eq!(report(&client, "friday").await?, None);
/// # drop(held);
/// # Ok(())
/// # }
/// ```
///
/// # The name
///
/// The first argument is the name of the lock, a format string. `{id}` is a parameter, or a variable of a parameter's pattern;
/// `{order.id}` and `{self.region}` are fields. Format specs such as `{id:04}` and `{id:?}` and the escapes `{{` and `}}` are those
/// of [`format!`]. The name is made once, before the lock is waited for, so the body may move or change its parameters. A
/// name that is not that of a parameter is an error of the compiler.
///
/// # Options
///
/// | Option | Meaning | Without it |
/// |---|---|---|
/// | `client = self.locks` | the client: an expression that is a `Client`, or a reference to one | the parameter `client`, or else `self.client` |
/// | `kind = fair` | `plain`, `fair`, `read`, `write`, `fenced`, or `leased_semaphore(3)`: at most three bodies at once | `plain` |
/// | `wait = "2s"` | how long to wait for the lock | as long as it takes |
/// | `lease = "5s"` | the lock is held for this long and no longer | renewed while the body runs |
/// | `min_hold = "1s"` | the lock stays taken for at least this long | released when the body is done |
/// | `max_hold = "1m"` | the hold ends after this long, even if the body has not | no end |
/// | `skip_if_busy` | one attempt: `Ok(None)` if another owner holds the lock | the lock is waited for |
/// | `guard = hold` | `hold` is a `leasehold::HoldView` in the body, to ask whether the lock is still held | |
///
/// A time is `500ms`, `2s`, `1m30s` or `2h` in quotes, and is checked when the program is compiled; or an expression that
/// is a [`Duration`](std::time::Duration), which is checked when the lock is acquired. Each call of a function under
/// `leased_semaphore(n)` sets the number of permits if none is set, which takes one more request.
///
/// # The function
///
/// It returns `Result<T, E>`, with `E: From<leasehold::Error>`: the error of the acquire or of a loss becomes an `E`. The body is
/// written for the type that the function declares, so `?`, `return` and completion in an editor work as without the
/// attribute. With `skip_if_busy` that type is `Result<Option<T>, E>`, and the body returns `Ok(Some(…))`.
///
/// - The body of an `async fn` is **dropped at an `.await` when the lock is lost**, and the loss is returned. The future is
///   `Send` if that of the body is.
/// - A plain `fn` blocks its thread, and is for plain threads and `spawn_blocking`. Its body cannot be ended from outside: it runs
///   on after a loss, which is returned after it. Long work should ask its `guard` between its steps.
/// - Parameters that the body uses, or whose name begins with `_`, are dropped before the lock is released.
/// - Which error is returned if there are several, and what happens if the body panics, is said at `leasehold::Acquire::run`.
///
/// Methods, generic functions, patterns as parameters and implementations of traits with `async fn` work. `const` and
/// `unsafe` functions are refused, and so are functions that return a future themselves: those that `#[async_trait]` makes.
#[proc_macro_attribute]
pub fn locked(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand::locked(arguments.into(), &item.into()).into()
}
