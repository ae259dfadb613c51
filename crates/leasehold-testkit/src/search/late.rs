//! Grants whose futures are polled late, beside a steal or a `force_unlock` of the same client.

use std::sync::Arc;
use std::time::Duration;

use super::faults::Fault;
use super::history::Who;
use super::polling::Polling;
use super::request::Request;
use super::resource::{Kind, Resource};
use super::round::Round;
use super::servers::Servers;
use crate::dice::Dice;
use crate::proxy::Which;

const TURNS: usize = 200;
/// From this turn on connections are cut, too. The operations that fail by that excuse many losses.
const CALM: usize = 150;

pub(super) async fn play(round: Arc<Round>, servers: &Servers, mut dice: Dice) {
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
        let wanted =
            if kind == Kind::Multi { Resource::of_parts(kind, 0b11) } else { Resource::new(kind, 0) };
        // A multi lock cannot be stolen, but one of its locks can.
        let taken = if kind == Kind::Multi { Resource::new(Kind::Plain, 0) } else { wanted };
        let (first, second) = (late(&mut dice), late(&mut dice));
        let [holder, thief] = [0, 1].map(|task| Who { client: 0, task });
        let request = Request::new(wanted, Duration::ZERO);
        let acquiring = {
            let round = Arc::clone(&round);
            tokio::spawn(async move { drop(round.acquire(holder, &request, None, first).await) })
        };
        let by_force = dice.one_in(2);
        let taking = {
            let round = Arc::clone(&round);
            let steal = Request { steal: true, ..Request::new(taken, Duration::ZERO) };
            tokio::spawn(async move {
                if by_force {
                    round.force(thief, taken, second).await;
                } else {
                    drop(round.acquire(thief, &steal, None, second).await);
                }
            })
        };
        if turn >= CALM && dice.one_in(4) {
            tokio::time::sleep(dice.between(Duration::ZERO, Duration::from_millis(2))).await;
            round.history.fault("fault of client 0: its connections are cut".to_owned());
            Fault::Cut(Which::Command).begin(&servers.proxies[0]);
        }
        drop(tokio::join!(acquiring, taking));
        round.connected(0).await;
        round.checker.quiet(&round.observer).await;
        for grant in round.checker.all() {
            round.let_go(holder, &grant);
        }
    }
}

fn late(dice: &mut Dice) -> Polling {
    if dice.one_in(2) {
        Polling::Whole
    } else {
        Polling::PollLate(dice.between(Duration::ZERO, Duration::from_millis(4)))
    }
}
