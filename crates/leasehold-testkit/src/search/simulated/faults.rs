//! The faults of an episode, and when they happen.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::super::resource::{Kind, NAMES, Resource};
use super::super::round::{CLIENTS, Round};
use super::SimulatedNetwork;
use crate::dice::Dice;

/// A fault of the server or of the network.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// It cannot be reached.
    Outage,
    /// One of its parts cannot be reached: the one with this name.
    OutageOf(Resource),
    /// All connections break.
    Cut,
    /// So many replies are lost.
    LoseReplies(u64),
    /// So many messages that a lock is free are lost.
    LoseMessages(u64),
    /// Latency increases.
    Slow(Duration),
    /// Requests and replies on a connection overtake those about other names.
    Reorder,
    /// It refuses all requests.
    Deny,
    /// It removes this hold.
    LoseHold(Resource),
    /// It restarts and has lost all data.
    Restart,
}

impl Fault {
    fn any(dice: &mut Dice) -> Self {
        let resource = |dice: &mut Dice, kinds| {
            let number = dice.index(NAMES as usize);
            Resource::new(dice.one_of(kinds), u32::try_from(number).expect("some names"))
        };
        match dice.roll(15) {
            0 | 1 => Self::Outage,
            2 | 3 => Self::OutageOf(resource(dice, Kind::ALL)),
            4..7 => Self::Cut,
            7 | 8 => Self::LoseReplies(1 + dice.roll(3)),
            9 => Self::LoseMessages(1 + dice.roll(3)),
            10 => Self::Slow(dice.between(Duration::from_millis(10), Duration::from_millis(200))),
            11 => Self::Deny,
            12 => Self::LoseHold(resource(dice, &[Kind::Plain, Kind::SetNx, Kind::Write])),
            13 => Self::Reorder,
            _ => Self::Restart,
        }
    }

    fn begin(self, round: &Round, network: &SimulatedNetwork) {
        let server = network.server();
        match self {
            Self::Outage => server.outage(),
            Self::OutageOf(resource) => server.outage_of(&resource.name()),
            Self::Cut => server.cut(),
            Self::LoseReplies(number) => (0..number).for_each(|_| server.lose_reply()),
            Self::LoseMessages(number) => (0..number).for_each(|_| server.lose_message()),
            Self::Slow(latency) => server.latency(latency),
            Self::Reorder => server.reorder(),
            Self::Deny => server.deny(),
            Self::LoseHold(resource) => {
                round.checker.forgotten(Some(resource));
                server.lose_hold(&resource.name());
            }
            Self::Restart => {
                round.checker.forgotten(None);
                server.restart_empty();
            }
        }
        if matches!(self, Self::Outage | Self::OutageOf(_) | Self::LoseReplies(_) | Self::Deny) {
            network.begin_disruption();
        }
    }
}

/// Whether waiters may have to poll to find that a lock is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Messages {
    /// Every message arrived.
    Whole,
    /// Some did not.
    Lost,
}

/// Injects faults until then.
pub(super) async fn play(
    round: &Arc<Round>,
    network: &SimulatedNetwork,
    watchdog: Duration,
    end: Instant,
    [first, second]: [Dice; 2],
) -> Messages {
    let server = server(round, network, watchdog, end, first);
    tokio::join!(server, machines(round, network, watchdog, end, second)).0
}

/// Stops machines and changes the speed of their clocks.
async fn machines(
    round: &Round,
    network: &SimulatedNetwork,
    watchdog: Duration,
    end: Instant,
    mut dice: Dice,
) {
    for client in 0..CLIENTS {
        // Within the margin of every lease.
        let fast = i32::try_from(dice.roll(17)).expect("a small number") - 8;
        round.history.fault(format!("the clock of client {client} is {fast} thousandths fast"));
        network.clock_runs(client, fast);
    }
    loop {
        let pause = dice.between(Duration::from_millis(10), watchdog);
        let longest = if dice.one_in(2) { watchdog * 2 } else { watchdog / 5 };
        let lasts = dice.between(Duration::ZERO, longest);
        let client = dice.index(CLIENTS);
        if Instant::now() + pause >= end {
            return;
        }
        sleep(pause).await;
        round.history.fault(format!("client {client} is stopped for {lasts:.0?}"));
        network.stop(client);
        sleep(lasts.min(end.saturating_duration_since(Instant::now()))).await;
        network.resume(client);
        round.history.note(format!("client {client} goes on"));
    }
}

/// Injects faults on the server and the network.
async fn server(
    round: &Arc<Round>,
    network: &SimulatedNetwork,
    watchdog: Duration,
    end: Instant,
    mut dice: Dice,
) -> Messages {
    let mut messages = Messages::Whole;
    loop {
        let pause = dice.between(Duration::from_millis(10), watchdog / 2);
        let longest = if dice.one_in(4) { watchdog * 3 / 2 } else { watchdog / 5 };
        let lasts = dice.between(Duration::ZERO, longest);
        let fault = Fault::any(&mut dice);
        if Instant::now() + pause >= end {
            return messages;
        }
        sleep(pause).await;
        if matches!(fault, Fault::LoseMessages(_) | Fault::LoseHold(_) | Fault::Restart) {
            messages = Messages::Lost;
        }
        round.history.fault(format!("fault of the server: {fault:?} for {lasts:.0?}"));
        fault.begin(round, network);
        if matches!(fault, Fault::Restart) {
            round.create().await;
        }
        sleep(lasts.min(end.saturating_duration_since(Instant::now()))).await;
        network.clear();
        round.history.note("the server is healed".to_owned());
    }
}
