//! Grants whose futures are polled late, beside a steal or a `force_unlock` of the same client.

use std::sync::Arc;
use std::time::Duration;

use super::ask::Ask;
use super::faults::Fault;
use super::history::Who;
use super::manner::Manner;
use super::servers::Servers;
use super::thing::{Kind, Thing};
use super::world::World;
use crate::dice::Dice;
use crate::proxy::Which;

const TURNS: usize = 200;
/// From this turn on connections are cut, too. The operations that fail by that excuse many losses.
const CALM: usize = 150;

pub(super) async fn play(world: Arc<World>, servers: &Servers, mut dice: Dice) {
    let kinds = [
        Kind::Plain,
        Kind::Fenced,
        Kind::Spin,
        Kind::Fair,
        Kind::SetNx,
        Kind::Group,
        Kind::Write,
        Kind::Multi,
    ];
    for turn in 0..TURNS {
        let kind = dice.one_of(&kinds);
        let wanted = if kind == Kind::Multi { Thing::of_parts(kind, 0b11) } else { Thing::new(kind, 0) };
        // A multi lock cannot be stolen, but one of its locks can.
        let taken = if kind == Kind::Multi { Thing::new(Kind::Plain, 0) } else { wanted };
        let (first, second) = (late(&mut dice), late(&mut dice));
        let [holder, thief] = [0, 1].map(|task| Who { client: 0, task });
        let ask = Ask::new(wanted, Duration::ZERO);
        let asked = {
            let world = Arc::clone(&world);
            tokio::spawn(async move { drop(world.acquire(holder, &ask, None, first).await) })
        };
        let by_force = dice.one_in(2);
        let taking = {
            let world = Arc::clone(&world);
            let steal = Ask { steal: true, ..Ask::new(taken, Duration::ZERO) };
            tokio::spawn(async move {
                if by_force {
                    world.force(thief, taken, second).await;
                } else {
                    drop(world.acquire(thief, &steal, None, second).await);
                }
            })
        };
        if turn >= CALM && dice.one_in(4) {
            tokio::time::sleep(dice.between(Duration::ZERO, Duration::from_millis(2))).await;
            world.history.fault("fault of client 0: its connections are cut".to_owned());
            Fault::Cut(Which::Command).begin(&servers.proxies[0]);
        }
        drop(tokio::join!(asked, taking));
        world.connected(0).await;
        world.checker.quiet(&world.observer).await;
        for grant in world.checker.all() {
            world.let_go(holder, &grant);
        }
    }
}

fn late(dice: &mut Dice) -> Manner {
    if dice.one_in(2) {
        Manner::Whole
    } else {
        Manner::PollLate(dice.between(Duration::ZERO, Duration::from_millis(4)))
    }
}
