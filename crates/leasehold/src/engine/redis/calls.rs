//! Which script is called for what, with which keys and arguments.

use std::time::Duration;

use super::resp::Value;

use super::scripts::{
    ABANDON, ACQUIRE, ACQUIRE_ALL, COUNT, COUNT_LEASED, Call, FAIR_ABANDON, FAIR_ACQUIRE, FAIR_BEAT,
    FAIR_FORCE, FAIR_RELEASE, FENCED_WRITE, FORCE, GIVE_LEASED, GIVE_PERMITS, KEEP_PERMITS, LATCH, LEASED,
    QUERY, QUEUE, RELEASE, RENEW, RENEW_LEASED, SEMAPHORE, SETNX_ACQUIRE, SETNX_QUERY, SETNX_RENEW, Script,
    TAKE_LEASED, TAKE_PERMITS, TOKEN,
};
use super::{group_calls, keys, rw_calls};
use crate::engine::{Adjust, Change, Claim, Kind, Spot, Target};
use crate::lease::{COUNTED, PERMANENT};
use crate::name::Name;
use crate::owner::OwnerId;

/// Takes or re-enters.
pub(super) fn acquire(claim: &Claim, length: Duration) -> Call {
    let Spot { target, owner, amount } = &claim.spot;
    match target.kind {
        Kind::Lock | Kind::Spin => {
            let call = Call::new(&ACQUIRE).key(target.name.as_str());
            let call = if claim.fenced { call.key(&keys::token(target)) } else { call };
            call.arg(owner).arg(whole(length)).arg(claim.held).arg(u8::from(claim.steal))
        }
        Kind::Fair => {
            let call = fair(&FAIR_ACQUIRE, target);
            let call = if claim.fenced { call.key(&keys::token(target)) } else { call };
            let wait = claim.queue.map_or(0, |queue| queue.wait.as_millis());
            call.arg(owner).arg(whole(length)).arg(claim.held).arg(u8::from(claim.steal)).arg(wait)
        }
        Kind::SetNx if claim.fenced || claim.steal => {
            let call = Call::new(&SETNX_ACQUIRE).key(target.name.as_str());
            let call = if claim.fenced { call.key(&keys::token(target)) } else { call };
            call.arg(owner).arg(whole(length)).arg(u8::from(claim.steal))
        }
        Kind::SetNx => {
            let call = Call::command("SET").key(target.name.as_str());
            call.arg(owner).arg("NX").arg("PX").arg(whole(length))
        }
        Kind::Read => rw_calls::read(claim, length),
        Kind::Write => rw_calls::write(claim, length),
        Kind::Group => group_calls::acquire(claim, length),
        Kind::Semaphore => counter(&TAKE_PERMITS, target).arg(owner).arg(whole(length)).arg(amount),
        Kind::Permits => ids(leased(&TAKE_LEASED, target), claim.spot).arg(lease(Some(length))),
        Kind::Latch => unreachable!("a latch is not held"),
    }
}

/// Takes several plain locks of one owner, or none.
pub(super) fn acquire_all(claims: &[Claim], length: Duration) -> Call {
    let locks = claims.iter().map(|claim| claim.spot.target.name.as_str().to_owned());
    let tokens = claims.iter().filter(|claim| claim.fenced).map(|claim| keys::token(&claim.spot.target));
    let call = locks.chain(tokens).fold(Call::new(&ACQUIRE_ALL), |call, key| call.key(&key));
    call.arg(claims.len()).arg(claims[0].spot.owner).arg(whole(length))
}

/// A script about a fair lock.
fn fair(script: &'static Script, target: &Target) -> Call {
    keys::queue(target).iter().fold(Call::new(script).key(target.name.as_str()), |call, key| call.key(key))
}

/// Gives back one of `from` counts.
pub(super) fn release(spot: &Spot, from: u32, length: Duration) -> Call {
    let Spot { target, owner, .. } = spot;
    match target.kind {
        Kind::Lock | Kind::Spin => Call::new(&RELEASE)
            .key(target.name.as_str())
            .arg(owner)
            .arg(from)
            .arg(whole(length))
            .arg(keys::channel(target)),
        Kind::Fair => {
            fair(&FAIR_RELEASE, target).arg(owner).arg(from).arg(whole(length)).arg(keys::channel(target))
        }
        Kind::SetNx => Call::compare_and_delete(target.name.as_str(), owner, keys::channel(target)),
        Kind::Read | Kind::Write => rw_calls::release(spot, from, length),
        Kind::Group => group_calls::release(spot, from, length),
        Kind::Semaphore => give(spot),
        Kind::Permits => ids(leased(&GIVE_LEASED, target), spot),
        Kind::Latch => unreachable!("a latch is not held"),
    }
}

/// What the answer to a release says: how many counts are left, if there were any.
pub(super) fn counts_left(kind: Kind, answer: i64) -> Option<u32> {
    match kind {
        _ if answer <= FREED => Some(0),
        // One was deleted and not announced, or none was.
        Kind::SetNx => (answer == 1).then_some(0),
        _ => u32::try_from(answer).ok(),
    }
}

/// The answer when it was announced that something is free and nobody listens; one less for each who does.
const FREED: i64 = -2;

/// What a script would have answered that freed a lock, where that was announced by a command of its own.
pub(super) fn freed(listeners: i64) -> Value {
    Value::Int(FREED - listeners)
}

/// How many listen where this has announced that something is free; nothing if there was nothing to announce.
pub(super) fn listeners(answer: &Value) -> Option<usize> {
    match answer {
        Value::Int(answer) => FREED.checked_sub(*answer).and_then(|listeners| listeners.try_into().ok()),
        _ => None,
    }
}

/// The same for a hold that was given back: what is left of one that was broken is freed without a word of it.
pub(super) fn heard_by(kind: Kind, answer: &Value) -> Option<usize> {
    let was_broken = matches!(kind, Kind::Group | Kind::Permits) && *answer == Value::Int(-1);
    listeners(answer).or(was_broken.then_some(0))
}

/// Sees to it that there are at most `count`.
pub(super) fn abandon(spot: &Spot, count: u32) -> Call {
    let Spot { target, owner, .. } = spot;
    match target.kind {
        Kind::Lock | Kind::Spin => {
            Call::new(&ABANDON).key(target.name.as_str()).arg(owner).arg(count).arg(keys::channel(target))
        }
        Kind::Fair => fair(&FAIR_ABANDON, target).arg(owner).arg(count).arg(keys::channel(target)),
        // It is entered once or not at all, so whoever gives back, gives back everything.
        Kind::SetNx => Call::compare_and_delete(target.name.as_str(), owner, keys::channel(target)),
        Kind::Read | Kind::Write => rw_calls::abandon(spot, count),
        Kind::Group => group_calls::abandon(spot, count),
        Kind::Semaphore => give(spot),
        Kind::Permits => ids(leased(&GIVE_LEASED, target), spot),
        Kind::Latch => unreachable!("a latch is not held"),
    }
}

/// Renews holds of one kind, or only looks at those with no time.
pub(super) fn renew<'a>(kind: Kind, holds: impl IntoIterator<Item = (&'a Spot, Duration)>) -> Call {
    match kind {
        Kind::Lock | Kind::Spin | Kind::Fair => by_owner(&RENEW, holds),
        Kind::SetNx => by_owner(&SETNX_RENEW, holds),
        Kind::Read | Kind::Write => rw_calls::renew(kind, holds),
        Kind::Group => group_calls::renew(holds),
        Kind::Semaphore => holds.into_iter().fold(Call::new(&KEEP_PERMITS), |call, (spot, length)| {
            let call = call.key(spot.target.name.as_str()).key(&keys::record(&spot.target));
            call.arg(spot.owner).arg(whole(length))
        }),
        Kind::Permits => holds.into_iter().fold(Call::new(&RENEW_LEASED), |call, (spot, length)| {
            ids(call.key(&keys::permits(&spot.target)), spot).arg(length.as_millis())
        }),
        Kind::Latch => unreachable!("a latch is not held"),
    }
}

fn by_owner<'a>(script: &'static Script, holds: impl IntoIterator<Item = (&'a Spot, Duration)>) -> Call {
    holds.into_iter().fold(Call::new(script), |call, (spot, length)| {
        call.key(spot.target.name.as_str()).arg(spot.owner).arg(length.as_millis())
    })
}

/// Tells who holds it: of several, `owner` if it is one of them.
pub(super) fn query(target: &Target, owner: Option<OwnerId>) -> Call {
    match target.kind {
        Kind::Lock | Kind::Spin | Kind::Fair => Call::new(&QUERY).key(target.name.as_str()),
        Kind::SetNx => Call::new(&SETNX_QUERY).key(target.name.as_str()),
        Kind::Read | Kind::Write => rw_calls::query(target, owner),
        Kind::Group => group_calls::query(target, owner),
        Kind::Semaphore | Kind::Permits | Kind::Latch => unreachable!("there is no one holder"),
    }
}

/// Frees it, whoever holds it.
pub(super) fn force(target: &Target) -> Call {
    match target.kind {
        Kind::Lock | Kind::Spin | Kind::SetNx => {
            Call::new(&FORCE).key(target.name.as_str()).arg(keys::channel(target))
        }
        Kind::Fair => fair(&FAIR_FORCE, target).arg(keys::channel(target)),
        Kind::Read | Kind::Write => rw_calls::force(target),
        Kind::Group => group_calls::force(target),
        Kind::Semaphore | Kind::Permits | Kind::Latch => unreachable!("there is no one holder"),
    }
}

/// Says of waiters, grouped by their locks, that they live.
pub(super) fn beat(waiters: &[(Target, Vec<(OwnerId, Duration)>)]) -> Call {
    waiters.iter().fold(Call::new(&FAIR_BEAT), |call, (target, waiters)| {
        let call = keys::queue(target).iter().fold(call.key(target.name.as_str()), |call, key| call.key(key));
        let call = call.arg(keys::channel(target)).arg(waiters.len());
        waiters.iter().fold(call, |call, (owner, wait)| call.arg(owner).arg(wait.as_millis()))
    })
}

/// Since when the server is up, among other things.
pub(super) fn uptime() -> Call {
    Call::command("INFO").arg("server")
}

/// Who stands in the queue.
pub(super) fn queue(target: &Target) -> Call {
    let [queue, ..] = keys::queue(target);
    Call::new(&QUEUE).key(&queue)
}

/// The last token that was minted.
pub(super) fn token(target: &Target) -> Call {
    Call::new(&TOKEN).key(&keys::token(target))
}

/// Writes a value unless a greater token has.
pub(super) fn fenced_write(key: &Name, token: u64, value: &[u8]) -> Call {
    Call::new(&FENCED_WRITE).key(key.as_str()).key(&keys::fence(key)).arg(token).bytes(value)
}

/// Changes or tells a count.
pub(super) fn adjust(target: &Target, change: &Change) -> Call {
    let question = || match target.kind {
        Kind::Permits => leased(&COUNT_LEASED, target),
        _ => Call::new(&COUNT).key(target.name.as_str()),
    };
    let script = match target.kind {
        Kind::Semaphore => &SEMAPHORE,
        Kind::Permits => &LEASED,
        Kind::Latch => &LATCH,
        _ => unreachable!("a lock has no counter"),
    };
    let call = Call::new(script).key(target.name.as_str()).key(&keys::requests(target));
    let call = match target.kind {
        Kind::Semaphore => call.key(&keys::record(target)),
        Kind::Permits => call.key(&keys::permits(target)),
        _ => call,
    };
    let call = call.arg(change.request).arg(COUNTED.as_millis()).arg(keys::channel(target));
    match &change.adjust {
        Adjust::TrySet { count, ttl: None } => call.arg("set").arg(count),
        Adjust::TrySet { count, ttl: Some(ttl) } => call.arg("set").arg(count).arg(whole(*ttl)),
        Adjust::Set(count) => call.arg("reset").arg(count),
        Adjust::Add(permits) => call.arg("add").arg(permits),
        Adjust::Give { count, create: true } => call.arg("give").arg(count),
        Adjust::Give { count, create: false } => call.arg("give to one that exists").arg(count),
        Adjust::GiveIds(ids) => ids.iter().fold(call.arg("give"), Call::arg),
        Adjust::SetLease(id, length) => call.arg("lease").arg(id).arg(lease(*length)),
        Adjust::Drain => call.arg("drain"),
        Adjust::CountDown => call.arg("count down"),
        Adjust::Delete => call.arg("delete"),
        Adjust::Count => question().arg("free"),
        Adjust::Taken => question().arg("taken"),
        Adjust::Total => question().arg("total"),
        Adjust::LeaseOf(id) => question().arg("lease").arg(id),
    }
}

/// A script on a semaphore whose permits have a lease.
fn leased(script: &'static Script, target: &Target) -> Call {
    Call::new(script).key(target.name.as_str()).key(&keys::permits(target)).arg(keys::channel(target))
}

/// The ids of a hold, which the server derives as we do.
fn ids(call: Call, Spot { owner, amount, .. }: &Spot) -> Call {
    call.arg(format!("{:016x}", owner.client.first_half())).arg(owner.number).arg(amount)
}

/// The lease of a permit; none is minus one.
fn lease(length: Option<Duration>) -> String {
    let length = length.filter(|length| *length < PERMANENT);
    length.map_or_else(|| "-1".into(), |length| whole(length).to_string())
}

/// A script on a semaphore and the record of who has permits of it.
fn counter(script: &'static Script, target: &Target) -> Call {
    Call::new(script).key(target.name.as_str()).key(&keys::record(target))
}

/// Gives back all that is held.
fn give(Spot { target, owner, .. }: &Spot) -> Call {
    counter(&GIVE_PERMITS, target).arg(owner).arg(keys::channel(target))
}

/// In milliseconds, and never none: a key without a time to live would stay for ever.
pub(super) fn whole(length: Duration) -> u128 {
    length.as_millis().max(1)
}

#[cfg(test)]
mod tests {
    use leasehold_servers::server::{Flavour, Server};

    use super::super::{Address, Options, Redis};
    use super::*;
    use crate::client_id::ClientId;

    /// Records are renewed a few times a day: too seldom for a test that waits for it.
    #[tokio::test]
    async fn a_record_of_permits_that_is_overwritten_is_no_matter_of_the_others() {
        const SHORT: Duration = Duration::from_secs(30);
        const LONG: Duration = Duration::from_secs(60);
        for flavour in Flavour::ALL {
            let server = Server::start(flavour);
            let options = Options {
                label: String::new(),
                connect_timeout: SHORT,
                response_timeout: SHORT,
                linger: SHORT,
            };
            let redis = Redis::connect(Address::parse(&server.url()).unwrap(), options).await.unwrap();
            let client = ClientId::random();
            let spots = ["kept", "overwritten", "deleted", "ends soon", "kept, too"].map(|name| {
                let target = Target::new(Kind::Semaphore, Name::new("", name).unwrap());
                server.cli(&["SET", name, "3"]);
                let owner = OwnerId::fresh(client, 1);
                server.cli(&["HSET", &keys::record(&target), &owner.to_string(), "1"]);
                Spot { target, owner, amount: 1 }
            });
            let [kept, overwritten, deleted, ends_soon, _] = &spots;
            server.cli(&["SET", &keys::record(&overwritten.target), "something else"]);
            server.cli(&["DEL", deleted.target.name.as_str()]);
            server.cli(&["PEXPIRE", ends_soon.target.name.as_str(), "20000"]);

            let answer =
                redis.pipe().send(renew(Kind::Semaphore, spots.iter().map(|spot| (spot, LONG)))).await;
            let Ok(Value::Array(noted)) = answer else { panic!("{flavour:?}: {answer:?}") };
            assert_eq!(noted, [1, 0, 0, 1, 1].map(Value::Int), "{flavour:?}");
            let left = |spot: &Spot| match server.cli(&["PTTL", &keys::record(&spot.target)]) {
                leasehold_servers::resp::Value::Int(left) => left,
                other => panic!("{other:?}"),
            };
            assert!((50_000..=60_000).contains(&left(kept)));
            assert!((10_000..=20_000).contains(&left(ends_soon)), "no longer than its semaphore");
        }
    }
}
