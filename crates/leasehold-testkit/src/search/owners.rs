//! Owners of guards that were released, beside the hand-over from task to task.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::ask::Ask;
use super::held::Held;
use super::history::Who;
use super::manner::Manner;
use super::thing::{Kind, Thing};
use super::world::{Former, World};
use crate::dice::Dice;

const TASKS: usize = 6;
const LENGTH: Duration = Duration::from_secs(1);

pub(super) async fn play(world: Arc<World>, mut dice: Dice) {
    let end = Instant::now() + LENGTH;
    let thing = Thing::new(dice.one_of(&[Kind::Plain, Kind::Plain, Kind::SetNx]), 0);
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        tasks.spawn(work(Arc::clone(&world), Who { client: 0, task }, thing, end, dice.fork()));
    }
    tasks.join_all().await;
}

async fn work(world: Arc<World>, who: Who, thing: Thing, end: Instant, mut dice: Dice) {
    let ask = Ask::new(thing, Duration::from_secs(1));
    while Instant::now() < end {
        let Ok(grant) = world.acquire(who, &ask, None, Manner::Whole).await else { continue };
        let owner = grant.look(Held::owner).flatten();
        sleep(dice.between(Duration::ZERO, Duration::from_millis(2))).await;
        let is_settled = world.release(who, &grant, Manner::Whole).await;
        let Some(owner) = owner.filter(|_| dice.one_in(2)) else { continue };
        let former = Former { owner, identity: grant.identity, is_settled };
        if dice.one_in(2) {
            world.release_as_former(who, thing, &former).await;
        } else {
            let again = Ask { owner: Some(former.owner), ..Ask::new(thing, Duration::ZERO) };
            if let Ok(grant) = world.acquire(who, &again, Some(former.identity), Manner::Whole).await {
                world.release(who, &grant, Manner::Whole).await;
            }
        }
    }
}
