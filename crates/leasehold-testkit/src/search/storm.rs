//! Many tasks of one client acquire one lock, which is forced again and again.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::ask::Ask;
use super::history::Who;
use super::manner::Manner;
use super::thing::{Kind, NAMES, Thing};
use super::world::World;
use crate::dice::Dice;

const TASKS: usize = 8;
/// For so long a task blocks its worker after it has dropped a guard, so that the next holder is polled late.
const MOMENT: Duration = Duration::from_micros(500);
const LENGTH: Duration = Duration::from_millis(400);

pub(super) async fn play(world: Arc<World>, mut dice: Dice) {
    for thing in (0..NAMES).flat_map(|name| [Thing::new(Kind::Plain, name), Thing::new(Kind::SetNx, name)]) {
        storm(&world, thing, &mut dice).await;
    }
}

async fn storm(world: &Arc<World>, thing: Thing, dice: &mut Dice) {
    let end = Instant::now() + LENGTH;
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        tasks.spawn(contend(Arc::clone(world), Who { client: 0, task }, thing, end, dice.fork()));
    }
    let by = Who { client: usize::from(dice.one_in(2)), task: TASKS };
    let pause = dice.between(Duration::from_millis(1), Duration::from_millis(5));
    while Instant::now() < end {
        world.force(by, thing, Manner::Whole).await;
        sleep(pause).await;
    }
    tasks.join_all().await;
}

async fn contend(world: Arc<World>, who: Who, thing: Thing, end: Instant, mut dice: Dice) {
    // Without a limit, whose end would end a loop that does nothing else.
    let ask = Ask { wait: None, ..Ask::new(thing, Duration::ZERO) };
    while Instant::now() < end {
        let Ok(grant) = world.acquire(who, &ask, None, Manner::Whole).await else { continue };
        if dice.one_in(2) {
            tokio::task::yield_now().await;
        }
        if dice.one_in(2) {
            world.let_go(who, &grant);
            std::thread::sleep(MOMENT);
        } else {
            world.release(who, &grant, Manner::Whole).await;
        }
    }
}
