//! A load whose outcomes are counted, and the figures that a scrape shows of it.

use std::net::SocketAddr;
use std::time::Duration;

use leasehold::Client;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const URL: &str = "memory:scraped";
const MS: Duration = Duration::from_millis(1);

/// What was seen by the callers.
#[derive(Debug, Default)]
struct Truth {
    granted: u64,
    busy: u64,
    timed_out: u64,
    cancelled: u64,
    expired: u64,
    max_hold: u64,
    forced: u64,
    taken_over: u64,
}

/// In memory the time is that of the runtime, which jumps: every wait is as long as it says.
async fn load(client: &Client, other: &Client) -> Truth {
    let mut truth = Truth::default();
    let lock = client.lock("stock:7");
    // 3 waits of 50 ms and 2 of 300 ms behind a holder that has the lock at once.
    for (waits, length) in [(3, 50 * MS), (2, 300 * MS)] {
        for _ in 0..waits {
            let held = lock.acquire().await.expect("it is free");
            let (release, waiter) = tokio::join!(
                async {
                    tokio::time::sleep(length).await;
                    held.release().await
                },
                lock.acquire(),
            );
            release.expect("it is held");
            waiter.expect("it is free now").release().await.expect("it is held");
            truth.granted += 2;
        }
    }
    let held = lock.acquire().await.expect("it is free");
    truth.granted += 1;
    for _ in 0..4 {
        assert!(lock.try_acquire().await.expect("a reply").is_none());
        truth.busy += 1;
    }
    for _ in 0..5 {
        lock.acquire().wait(30 * MS).await.expect_err("it is held");
        truth.timed_out += 1;
    }
    for _ in 0..2 {
        tokio::time::timeout(10 * MS, lock.acquire().into_future()).await.expect_err("it is held");
        truth.cancelled += 1;
    }
    held.release().await.expect("it is held");
    for _ in 0..2 {
        let guard = lock.acquire().lease(100 * MS).await.expect("it is free");
        guard.lost().await;
        (truth.granted, truth.expired) = (truth.granted + 1, truth.expired + 1);
    }
    for _ in 0..3 {
        let guard = lock.acquire().max_hold(100 * MS).await.expect("it is free");
        guard.lost().await;
        (truth.granted, truth.max_hold) = (truth.granted + 1, truth.max_hold + 1);
    }
    let guard = lock.acquire().await.expect("it is free");
    assert!(lock.force_unlock().await.expect("a reply"));
    guard.lost().await;
    (truth.granted, truth.forced) = (truth.granted + 1, truth.forced + 1);
    let guard = lock.acquire().await.expect("it is free");
    let thief = other.lock("stock:7").acquire().steal().await.expect("it may be taken over");
    guard.lost().await;
    (truth.granted, truth.taken_over) = (truth.granted + 1, truth.taken_over + 1);
    thief.release().await.expect("it is held");
    truth
}

async fn scrape(address: SocketAddr) -> String {
    let mut connection = TcpStream::connect(address).await.expect("it listens");
    let request = "GET /metrics HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n";
    connection.write_all(request.as_bytes()).await.expect("it is sent");
    let mut reply = String::new();
    connection.read_to_string(&mut reply).await.expect("a text");
    assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
    reply
}

/// The value of the one series of this name with these labels; zero if there is none.
fn value(scraped: &str, name: &str, labels: &[(&str, &str)]) -> f64 {
    let start = format!("{name}{{client=\"shop\"");
    let labels: Vec<_> = labels.iter().map(|(key, value)| format!("{key}=\"{value}\"")).collect();
    let mut series = scraped
        .lines()
        .filter(|line| line.starts_with(&start) && labels.iter().all(|label| line.contains(label.as_str())));
    let found = series.next().map_or(0.0, |line| {
        line.rsplit(' ').next().and_then(|number| number.parse().ok()).expect("a number")
    });
    assert_eq!(series.next(), None, "{name} {labels:?}: more than one");
    found
}

#[tokio::test(start_paused = true)]
#[expect(clippy::float_cmp, clippy::cast_precision_loss, reason = "these are small whole numbers")]
async fn a_scrape_shows_what_the_callers_have_seen() {
    let metrics = prometheus_example::install().expect("there is no recorder yet");
    let client = Client::connect(URL).label("shop").await.expect("it needs no server");
    let other = Client::connect(URL).label("thief").await.expect("it needs no server");
    let truth = load(&client, &other).await;
    let waiting = tokio::spawn({
        let held = client.lock("a").acquire().await.expect("it is free");
        let lock = client.lock("a");
        async move { (lock.acquire().await, held) }
    });
    tokio::time::sleep(MS).await;

    tokio::time::resume();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let server = tokio::spawn(prometheus_example::serve(listener, metrics));
    let scraped = scrape(address).await;
    server.abort();
    waiting.abort();

    let figure = |name: &str, labels: &[(&str, &str)]| value(&scraped, name, labels);
    for (outcome, seen) in [
        // One more is held at the scrape.
        ("granted", truth.granted + 1),
        ("busy", truth.busy),
        ("timed_out", truth.timed_out),
        ("cancelled", truth.cancelled),
        ("failed", 0),
    ] {
        let shown = figure("leasehold_acquires_total", &[("kind", "lock"), ("outcome", outcome)]);
        assert_eq!(shown, seen as f64, "{outcome}: {truth:?}\n{scraped}");
    }
    for (cause, seen) in [
        ("expired", truth.expired),
        ("max_hold", truth.max_hold),
        ("force_unlocked", truth.forced),
        ("taken_over", truth.taken_over),
        ("gone", 0),
        ("unreachable", 0),
    ] {
        let shown = figure("leasehold_losses_total", &[("kind", "lock"), ("cause", cause)]);
        assert_eq!(shown, seen as f64, "{cause}: {truth:?}\n{scraped}");
    }
    // Each bucket has all shorter waits, too.
    let at_once = truth.granted + 1 - 5;
    for (outcome, bound, seen) in [
        ("granted", "0.001", at_once),
        ("granted", "0.025", at_once),
        ("granted", "0.1", at_once + 3),
        ("granted", "0.5", at_once + 5),
        ("granted", "+Inf", at_once + 5),
        ("timed_out", "0.025", 0),
        ("timed_out", "0.1", truth.timed_out),
        ("timed_out", "+Inf", truth.timed_out),
    ] {
        let labels = [("kind", "lock"), ("outcome", outcome), ("le", bound)];
        let shown = figure("leasehold_wait_seconds_bucket", &labels);
        assert_eq!(shown, seen as f64, "{outcome} within {bound} s: {truth:?}\n{scraped}");
    }
    assert_eq!(
        figure("leasehold_hold_seconds_count", &[("kind", "lock")]),
        truth.granted as f64,
        "{scraped}"
    );
    assert_eq!((figure("leasehold_held", &[]), figure("leasehold_waiters", &[])), (1.0, 1.0), "{scraped}");
}
