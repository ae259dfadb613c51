//! Many tasks of one client acquire one lock, which is forced again and again.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::history::Who;
use super::polling::Polling;
use super::request::Request;
use super::resource::{Kind, NAMES, Resource};
use super::round::Round;
use crate::dice::Dice;

const TASKS: usize = 8;
/// For so long a task blocks its worker after it has dropped a guard, so that the next holder is polled late.
const MOMENT: Duration = Duration::from_micros(500);
const LENGTH: Duration = Duration::from_millis(400);

pub(super) async fn play(round: Arc<Round>, mut dice: Dice) {
    for resource in
        (0..NAMES).flat_map(|name| [Resource::new(Kind::Plain, name), Resource::new(Kind::SetNx, name)])
    {
        storm(&round, resource, &mut dice).await;
    }
}

async fn storm(round: &Arc<Round>, resource: Resource, dice: &mut Dice) {
    let end = Instant::now() + LENGTH;
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        tasks.spawn(contend(Arc::clone(round), Who { client: 0, task }, resource, end, dice.fork()));
    }
    let by = Who { client: usize::from(dice.one_in(2)), task: TASKS };
    let pause = dice.between(Duration::from_millis(1), Duration::from_millis(5));
    while Instant::now() < end {
        round.force(by, resource, Polling::Whole).await;
        sleep(pause).await;
    }
    tasks.join_all().await;
}

async fn contend(round: Arc<Round>, who: Who, resource: Resource, end: Instant, mut dice: Dice) {
    // Without a limit, whose end would end a loop that does nothing else.
    let request = Request { wait: None, ..Request::new(resource, Duration::ZERO) };
    while Instant::now() < end {
        let Ok(grant) = round.acquire(who, &request, None, Polling::Whole).await else { continue };
        if dice.one_in(2) {
            tokio::task::yield_now().await;
        }
        if dice.one_in(2) {
            round.let_go(who, &grant);
            std::thread::sleep(MOMENT);
        } else {
            round.release(who, &grant, Polling::Whole).await;
        }
    }
}
