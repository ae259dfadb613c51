//! The service under load: processes that are killed, callers that hang up, and a store that is not there yet.

mod http;
mod process;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold_servers::server::{Flavour, Server};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use self::process::Process;

const COUPONS: usize = 100;
const USERS: usize = 1000;
/// How many users call at the same time, so that their connections fit into the usual limit of open files.
const AT_ONCE: usize = 300;
/// One process is killed when this many callers have a coupon.
const KILLED_AFTER: usize = 30;
/// Many times as long as the test takes.
const LIMIT: Duration = Duration::from_secs(60);

/// The users and what they share.
struct Load {
    services: [SocketAddr; 2],
    callers: Semaphore,
    won: AtomicUsize,
    time_to_kill: Notify,
}

/// What a user has at the end.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Reply {
    Coupon,
    SoldOut,
    /// The user hung up before the reply.
    Unknown,
}

impl Load {
    /// Calls until there is a final reply, at the other service if one does not reply. Each tenth user hangs up instead.
    async fn user(&self, number: usize) -> Reply {
        let _caller = self.callers.acquire().await.expect("it is never closed");
        let path = path(number);
        let mut service = number % 2;
        if number.is_multiple_of(10) {
            // At different moments: before the request is looked at, in the queue, under the lock, after the reply.
            let patience = Duration::from_millis(number as u64 / 10 % 20 * 20);
            // The process may be dead already: there is no reply in either case.
            let _ = http::hang_up(self.services[service], &path, patience).await;
            return Reply::Unknown;
        }
        loop {
            match http::post(self.services[service], &path).await {
                Ok(200) => {
                    if self.won.fetch_add(1, Ordering::SeqCst) + 1 == KILLED_AFTER {
                        self.time_to_kill.notify_one();
                    }
                    return Reply::Coupon;
                }
                Ok(410) => return Reply::SoldOut,
                Ok(503) | Err(_) => sleep(Duration::from_millis(20)).await,
                Ok(status) => panic!("user {number} got {status}"),
            }
            service = 1 - service;
        }
    }
}

fn path(number: usize) -> String {
    format!("/campaigns/spring/coupons/user-{number}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exactly_all_coupons_are_issued_while_callers_hang_up_and_a_process_is_killed() {
    let server = Server::start(Flavour::Redis);
    let [mut killed, survivor] = [(), ()].map(|()| Process::start(&server.url(), COUPONS));
    let load = Arc::new(Load {
        services: [killed.address(), survivor.address()],
        callers: Semaphore::new(AT_ONCE),
        won: AtomicUsize::new(0),
        time_to_kill: Notify::new(),
    });
    let mut users = JoinSet::new();
    for number in 0..USERS {
        let load = Arc::clone(&load);
        users.spawn(async move { (number, load.user(number).await) });
    }
    timeout(LIMIT, load.time_to_kill.notified()).await.expect("coupons are issued");
    killed.kill();
    let replies = timeout(LIMIT, users.join_all()).await.expect("every user gets a reply");

    let list = server.cli(&["LRANGE", "winners:spring", "0", "-1"]);
    let list: Vec<_> = list.elements().iter().filter_map(|user| user.as_str()).collect();
    assert_eq!(list.len(), COUPONS, "{list:?}");
    let winners: BTreeSet<_> = list.into_iter().collect();
    assert_eq!(winners.len(), COUPONS, "{winners:?}");
    for (number, reply) in replies {
        let has_won = winners.contains(&*format!("user-{number}"));
        let expected = if has_won { Reply::Coupon } else { Reply::SoldOut };
        assert!(reply == expected || reply == Reply::Unknown, "user {number}: {reply:?}, {winners:?}");
    }
    assert_eq!(survivor.terminate(), "ended, with 0 locks still held\n");
}

#[tokio::test]
async fn the_service_starts_without_redis_and_is_ready_when_there_is_one() {
    let mut server = Server::start(Flavour::Redis);
    server.kill();
    let service = Process::start(&server.url(), COUPONS);
    assert_eq!(http::get(service.address(), "/ready").await.unwrap(), 503);
    server.restart();
    let becomes_ready = async {
        while http::get(service.address(), "/ready").await.unwrap() != 200 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(LIMIT, becomes_ready).await.expect("the service connects");
    assert_eq!(http::post(service.address(), &path(1)).await.unwrap(), 200);
}

#[tokio::test]
async fn a_user_who_calls_again_keeps_one_coupon() {
    let server = Server::start(Flavour::Redis);
    let service = Process::start(&server.url(), 1);
    for (user, status) in [(1, 200), (1, 200), (2, 410)] {
        assert_eq!(http::post(service.address(), &path(user)).await.unwrap(), status);
    }
    assert_eq!(server.cli(&["LRANGE", "winners:spring", "0", "-1"]).elements().len(), 1);
}
