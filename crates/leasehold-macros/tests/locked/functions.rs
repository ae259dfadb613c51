//! The forms of functions that the attribute takes.

use std::fmt::{Debug, Display};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use leasehold::{Client, Error};

use crate::clients;

struct Service {
    client: Client,
    issued: Vec<String>,
}

impl Service {
    /// Without a parameter `client`, the field of that name is the client.
    #[leasehold::locked("count")]
    async fn count(&self) -> Result<usize, Error> {
        Ok(self.issued.len())
    }

    #[leasehold::locked("issue:{user}")]
    async fn issue(&mut self, user: &str) -> Result<&str, Error> {
        self.issued.push(user.to_owned());
        Ok(self.issued.last().map_or("", String::as_str))
    }

    #[leasehold::locked("issue:{user}")]
    fn issue_blocking(&mut self, user: &str) -> Result<usize, Error> {
        self.issued.push(user.to_owned());
        Ok(self.issued.len())
    }

    #[leasehold::locked("arc")]
    async fn shared(self: Arc<Self>) -> Result<Vec<String>, Error> {
        Ok(self.issued.clone())
    }

    #[leasehold::locked("end", client = self.client)]
    async fn end(self) -> Result<Vec<String>, Error> {
        Ok(self.issued)
    }
}

#[tokio::test]
async fn methods_use_the_client_of_their_receiver_and_may_change_it() {
    let client = Client::connect("memory:").await.unwrap();
    let mut service = Service { client, issued: Vec::new() };
    assert_eq!(service.issue("ann").await, Ok("ann"));
    assert_eq!(service.count().await, Ok(1));
    service = tokio::task::spawn_blocking(move || {
        assert_eq!(service.issue_blocking("bob"), Ok(2));
        service
    })
    .await
    .unwrap();
    assert_eq!(service.end().await.unwrap(), ["ann", "bob"]);
    let client = Client::connect("memory:").await.unwrap();
    assert_eq!(Arc::new(Service { client, issued: Vec::new() }).shared().await.unwrap(), [""; 0]);
}

trait Job {
    async fn work(&self, times: u32) -> Result<u32, Error>;
    fn client(&self) -> &Client;

    #[leasehold::locked("provided:{times}", client = self.client())]
    async fn provided(&self, times: u32) -> Result<u32, Error> {
        Ok(times * 3)
    }
}

impl Job for Service {
    #[leasehold::locked("job:{times}")]
    async fn work(&self, times: u32) -> Result<u32, Error> {
        Ok(times * 2)
    }

    fn client(&self) -> &Client {
        &self.client
    }
}

#[tokio::test]
async fn methods_of_traits_may_run_under_a_lock() {
    let service = Service { client: Client::connect("memory:").await.unwrap(), issued: Vec::new() };
    assert_eq!((service.work(2).await, service.provided(2).await), (Ok(4), Ok(6)));
}

#[leasehold::locked("generic:{key}", guard = hold)]
async fn generic<'a, K, const N: usize>(
    client: &Client,
    key: K,
    values: &'a [u8; N],
    each: impl Fn(u8) -> u8,
) -> Result<(&'a u8, Vec<u8>), Error>
where
    K: Display + Debug,
{
    hold.check()?;
    Ok((&values[0], values.iter().map(|value| each(*value)).collect()))
}

#[leasehold::locked("shown")]
async fn shown(client: &Client, value: u8) -> Result<impl Display + use<>, Error> {
    if value == 0 {
        return Ok(String::from("none"));
    }
    Ok(value.to_string())
}

#[leasehold::locked("shown")]
fn shown_blocking(client: &Client, value: u8) -> Result<impl Display + use<>, Error> {
    Ok(value.to_string())
}

#[tokio::test]
async fn generic_functions_and_those_with_impl_trait_work() {
    let client = Client::connect("memory:").await.unwrap();
    assert_eq!(generic(&client, "k", &[1, 2], |value| value + 1).await.unwrap(), (&1, vec![2, 3]));
    assert_eq!(shown(&client, 0).await.unwrap().to_string(), "none");
    assert_eq!(shown(&client, 3).await.unwrap().to_string(), "3");
    let of_thread = client.clone();
    let shown = tokio::task::spawn_blocking(move || shown_blocking(&of_thread, 4).unwrap().to_string());
    assert_eq!(shown.await.unwrap(), "4");
}

type Boxed = Box<dyn Fn(u8) -> u8 + Send>;
type Fallible<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The type of the body is known at its first expression, so values are converted to it as in any function.
#[leasehold::locked("parse")]
async fn parse(client: &Client, text: &str) -> Fallible<Boxed> {
    if text.is_empty() {
        return Ok(Box::new(|value| value));
    }
    let number: u8 = text.parse()?;
    if number == 0 {
        return Err("zero".into());
    }
    Ok(Box::new(move |value| value * number))
}

#[leasehold::locked("parse")]
fn parse_blocking(client: &Client, text: &str) -> Fallible<Boxed> {
    let number: u8 = text.parse()?;
    Ok(Box::new(move |value| value * number))
}

#[tokio::test]
async fn returns_and_question_marks_have_the_declared_type() {
    let client = Client::connect("memory:").await.unwrap();
    assert_eq!(parse(&client, "").await.unwrap()(2), 2);
    assert_eq!(parse(&client, "3").await.unwrap()(2), 6);
    assert_eq!(parse(&client, "0").await.err().unwrap().to_string(), "zero");
    assert!(parse(&client, "300").await.err().unwrap().to_string().contains("too large"));
    let blocking =
        tokio::task::spawn_blocking(move || parse_blocking(&client, "x").err().unwrap().to_string());
    assert!(blocking.await.unwrap().contains("invalid digit"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_future_of_a_function_is_send_if_its_body_is() {
    let service = Service { client: Client::connect("memory:").await.unwrap(), issued: vec!["ann".into()] };
    assert_eq!(tokio::spawn(async move { service.count().await }).await.unwrap(), Ok(1));

    #[leasehold::locked("local")]
    async fn local(client: &Client, local: std::rc::Rc<u8>) -> Result<u8, Error> {
        Ok(*local)
    }
    let client = Client::connect("memory:").await.unwrap();
    assert_eq!(local(&client, std::rc::Rc::new(2)).await, Ok(2));
}

/// Attributes stay with the function: this one is expected to be deprecated.
#[leasehold::locked("old")]
#[deprecated(note = "on purpose")]
async fn old(client: &Client) -> Result<(), Error> {
    #![allow(non_snake_case)]
    let Unusual = ();
    Ok(Unusual)
}

#[tokio::test]
async fn attributes_are_kept() {
    let client = Client::connect("memory:").await.unwrap();
    #[expect(deprecated, reason = "that it is, is the test")]
    let done = old(&client).await;
    assert_eq!(done, Ok(()));
}

/// The variables that the attribute makes are others than those of the function.
#[tokio::test]
async fn names_of_the_function_do_not_collide_with_those_of_the_attribute() {
    #[leasehold::locked("{request}:{never}", client = given)]
    async fn collides(given: &Client, client: u8, request: u8, never: u8) -> Result<u8, Error> {
        Ok(client + request + never)
    }
    let client = Client::connect("memory:").await.unwrap();
    assert_eq!(collides(&client, 1, 2, 3).await, Ok(6));
}

/// Notes at its end whether the lock was still held.
struct Noting {
    other: Client,
    held_at_drop: Arc<AtomicBool>,
}

impl Drop for Noting {
    fn drop(&mut self) {
        // In memory it is done at once.
        let held = self.other.lock("n").is_locked().block().unwrap();
        self.held_at_drop.store(held, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn own_375_parameters_are_dropped_before_the_lock_is_released() {
    #[leasehold::locked("n")]
    async fn unused(client: &Client, _noting: Noting) -> Result<(), Error> {
        Ok(())
    }
    #[leasehold::locked("n")]
    async fn used_in_part(client: &Client, noting: (Noting, u8)) -> Result<u8, Error> {
        Ok(noting.1)
    }
    #[leasehold::locked("n")]
    fn blocking(client: &Client, _noting: Noting) -> Result<(), Error> {
        Ok(())
    }
    let (client, other) = clients("functions-drop").await;
    let held_at_drop = Arc::new(AtomicBool::new(false));
    let noting = || Noting { other: other.clone(), held_at_drop: Arc::clone(&held_at_drop) };
    unused(&client, noting()).await.unwrap();
    assert!(held_at_drop.swap(false, Ordering::SeqCst));
    used_in_part(&client, (noting(), 1)).await.unwrap();
    assert!(held_at_drop.swap(false, Ordering::SeqCst));
    let (of_thread, noting) = (client.clone(), noting());
    tokio::task::spawn_blocking(move || blocking(&of_thread, noting)).await.unwrap().unwrap();
    assert!(held_at_drop.load(Ordering::SeqCst));
}
