//! Owners of guards that were released, beside the hand-over from task to task.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::held::Held;
use super::history::Who;
use super::polling::Polling;
use super::request::Request;
use super::resource::{Kind, Resource};
use super::round::{Former, Round};
use crate::dice::Dice;

const TASKS: usize = 6;
const LENGTH: Duration = Duration::from_secs(1);

pub(super) async fn play(round: Arc<Round>, mut dice: Dice) {
    let end = Instant::now() + LENGTH;
    let resource = Resource::new(dice.one_of(&[Kind::Plain, Kind::Plain, Kind::SetNx]), 0);
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        tasks.spawn(work(Arc::clone(&round), Who { client: 0, task }, resource, end, dice.fork()));
    }
    tasks.join_all().await;
}

async fn work(round: Arc<Round>, who: Who, resource: Resource, end: Instant, mut dice: Dice) {
    let request = Request::new(resource, Duration::from_secs(1));
    while Instant::now() < end {
        let Ok(grant) = round.acquire(who, &request, None, Polling::Whole).await else { continue };
        let owner = grant.with_guard(Held::owner).flatten();
        sleep(dice.between(Duration::ZERO, Duration::from_millis(2))).await;
        let is_settled = round.release(who, &grant, Polling::Whole).await;
        let Some(owner) = owner.filter(|_| dice.one_in(2)) else { continue };
        let former = Former { owner, identity: grant.identity, is_settled };
        if dice.one_in(2) {
            round.release_as_former(who, resource, &former).await;
        } else {
            let again = Request { owner: Some(former.owner), ..Request::new(resource, Duration::ZERO) };
            if let Ok(grant) = round.acquire(who, &again, Some(former.identity), Polling::Whole).await {
                round.release(who, &grant, Polling::Whole).await;
            }
        }
    }
}
