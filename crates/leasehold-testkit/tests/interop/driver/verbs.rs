//! The commands for a thread. Times are milliseconds; -1 is none.

use std::collections::HashMap;
use std::fmt::Display;
use std::time::Duration;

use leasehold::{
    AcquireError, ChangeError, Client, InvalidRequestError, Latch, LeasedPermits, LeasedSemaphore, Owner,
    PermitId, QueryError, ReleaseError, Semaphore, SemaphorePermits, WaitError,
};
use leasehold_testkit::driver;
use leasehold_testkit::peer::Answer;
use tokio::time::sleep;

use super::primitive::{Held, Primitive};
use super::{across, turns};

/// A thread in Java's sense: an owner, and its holds.
pub(super) struct Thread {
    client: Client,
    owner: Owner,
    port: u16,
    held: HashMap<String, Vec<Held>>,
    permits: HashMap<String, Vec<SemaphorePermits>>,
}

/// The outcome of a command that failed.
pub(super) struct Failed(Answer);

impl From<AcquireError> for Failed {
    fn from(error: AcquireError) -> Self {
        let refused = matches!(
            error,
            AcquireError::Invalid {
                cause: InvalidRequestError::NotReentrant | InvalidRequestError::OnlyReads,
                ..
            } | AcquireError::Lost { .. }
        );
        Self::new(refused, &error)
    }
}

impl From<ReleaseError> for Failed {
    fn from(error: ReleaseError) -> Self {
        Self::new(matches!(error, ReleaseError::NotHeld { .. } | ReleaseError::NotOwner { .. }), &error)
    }
}

impl From<ChangeError> for Failed {
    fn from(error: ChangeError) -> Self {
        Self::new(matches!(error, ChangeError::NotAcquired { .. }), &error)
    }
}

impl From<QueryError> for Failed {
    fn from(error: QueryError) -> Self {
        Self::new(false, &error)
    }
}

impl From<WaitError> for Failed {
    fn from(error: WaitError) -> Self {
        Self::new(false, &error)
    }
}

impl Failed {
    fn new(refused: bool, error: &impl Display) -> Self {
        let text = error.to_string();
        Self(if refused { Answer::Refused(text) } else { Answer::Error(text) })
    }
}

/// The words after a verb.
struct Words<'a>(Vec<&'a str>);

impl<'a> Words<'a> {
    fn text(&self, index: usize) -> &'a str {
        self.0[index]
    }

    fn number<T: std::str::FromStr>(&self, index: usize) -> T {
        self.0[index].parse().unwrap_or_else(|_| panic!("not a number: {}", self.0[index]))
    }

    fn time(&self, index: usize) -> Option<Duration> {
        u64::try_from(self.number::<i64>(index)).ok().map(Duration::from_millis)
    }

    fn ids(&self, index: usize) -> Vec<PermitId> {
        self.0[index].split(',').map(|id| id.parse().expect("an id")).collect()
    }
}

impl driver::Thread for Thread {
    async fn run(&mut self, command: &str) -> Answer {
        match self.done(command).await {
            Ok(result) => Answer::Ok(result),
            Err(Failed(answer)) => answer,
        }
    }
}

impl Thread {
    pub(super) fn new(client: Client, owner: Owner, port: u16) -> Self {
        Self { client, owner, port, held: HashMap::new(), permits: HashMap::new() }
    }

    async fn done(&mut self, command: &str) -> Result<String, Failed> {
        let words = Words(command.split(' ').collect());
        Ok(match words.text(0) {
            "owner" => format!("{}:{}", self.client.id(), self.owner),
            "sleep" => {
                sleep(words.time(1).expect("a time")).await;
                "slept".into()
            }
            "loop" => {
                let (kind, name, topic) = (words.text(1), words.text(2), words.text(3));
                turns::take(&self.client, self.port, [kind, name, topic], words.number(4), words.number(5))
                    .await
            }
            "turns" => {
                across::take(&self.client, self.port, [words.text(1), words.text(2)], words.number(3)).await
            }
            "turn-after-loss" => {
                across::after_loss(&self.client, self.port, [words.text(1), words.text(2)]).await
            }
            verb => {
                let (kind, name) = (words.text(1), words.text(2));
                let rest = Words(words.0[3..].to_vec());
                match kind {
                    "semaphore" => self.semaphore(verb, name, &rest).await?,
                    "permits" => permits(verb, &self.client.leased_semaphore(name), &rest).await?,
                    "latch" => latch(verb, &self.client.latch(name), &rest).await?,
                    _ => self.lock(verb, kind, name, &rest).await?,
                }
            }
        })
    }

    async fn lock(
        &mut self,
        verb: &str,
        kind: &str,
        name: &str,
        words: &Words<'_>,
    ) -> Result<String, Failed> {
        let primitive = Primitive::new(&self.client, kind, name);
        let (wait, lease) = match verb {
            "lock" | "token" => (None, None),
            "lease" => (None, words.time(0)),
            "try" => (Some(Duration::ZERO), None),
            "wait" | "wait-token" => (words.time(0), words.time(1)),
            "unlock" => {
                let held = self.held.get_mut(&format!("{kind} {name}")).and_then(Vec::pop);
                match (held, primitive.lock()) {
                    (Some(held), _) => held.release().await?,
                    (None, Some(lock)) => lock.as_owner(&self.owner).release().await.map(drop)?,
                    (None, None) => return Err(Failed(Answer::Refused("this owner has none".into()))),
                }
                return Ok("released".into());
            }
            _ => return self.question(verb, &primitive).await,
        };
        let entered = primitive.enter(&self.owner, wait, lease).await;
        let held = match entered {
            Err(error) if error.is_contended() => return Ok("false".into()),
            entered => entered?,
        };
        let result = match (verb, &held) {
            ("token" | "wait-token", Held::Fenced(guard)) => guard.token().to_string(),
            ("lock" | "lease", _) => "held".into(),
            _ => "true".into(),
        };
        self.held.entry(format!("{kind} {name}")).or_default().push(held);
        Ok(result)
    }

    async fn question(&self, verb: &str, primitive: &Primitive) -> Result<String, Failed> {
        let lock =
            primitive.lock().ok_or(Failed(Answer::Unsupported("several locks are not queried".into())))?;
        Ok(match verb {
            "force" => lock.force_unlock().await?.to_string(),
            "locked" => lock.is_locked().await?.to_string(),
            "held" => lock.is_held_by(&self.owner).await?.to_string(),
            "count" => lock.hold_count(&self.owner).await?.to_string(),
            "ttl" => lock.ttl().await?.map_or("-2".into(), |left| left.as_millis().to_string()),
            "last-token" => lock.last_token().await?.to_string(),
            _ => panic!("no such verb for a lock: {verb}"),
        })
    }

    async fn semaphore(&mut self, verb: &str, name: &str, words: &Words<'_>) -> Result<String, Failed> {
        let semaphore: Semaphore = self.client.semaphore(name);
        let taken = match verb {
            "set" => return Ok(semaphore.try_set_permits(words.number(0)).await?.to_string()),
            "add" => {
                semaphore.add_permits(words.number(0)).await?;
                return Ok("added".into());
            }
            "release" => {
                let number = words.number(0);
                let own = self.permits.entry(name.into()).or_default();
                // Permits that were acquired here are released by their guard; bare numbers are for other permits.
                match own.iter().position(|permits| permits.count() == number) {
                    Some(index) => own.remove(index).release().await?,
                    None => semaphore.release(number).await?,
                }
                return Ok("released".into());
            }
            "drain" => return Ok(semaphore.drain().await?.to_string()),
            "available" => return Ok(semaphore.available().await?.to_string()),
            "delete" => return Ok(semaphore.delete().await?.to_string()),
            "acquire" => semaphore.acquire(words.number(0)).await,
            "try" => semaphore.acquire(words.number(0)).wait(Duration::ZERO).await,
            "wait" => semaphore.acquire(words.number(0)).wait(words.time(1).expect("a time")).await,
            _ => panic!("no such verb for a semaphore: {verb}"),
        };
        match taken {
            Err(error) if error.is_contended() => Ok("false".into()),
            taken => {
                self.permits.entry(name.into()).or_default().push(taken?);
                Ok(if verb == "acquire" { "held" } else { "true" }.into())
            }
        }
    }
}

async fn permits(verb: &str, semaphore: &LeasedSemaphore, words: &Words<'_>) -> Result<String, Failed> {
    Ok(match verb {
        "set" => semaphore.try_set_permits(words.number(0)).await?.to_string(),
        "resize" => {
            semaphore.set_permits(words.number(0)).await?;
            "set".into()
        }
        "add" => {
            semaphore.add_permits(words.number(0)).await?;
            "added".into()
        }
        "acquire" => take_permits(semaphore, words.number(0), None, words.time(1)).await?,
        "wait" => take_permits(semaphore, words.number(0), words.time(1), words.time(2)).await?,
        "release" | "release-one" => {
            semaphore.release(words.ids(0)).await?;
            "released".into()
        }
        "lease" => match semaphore.lease_of(words.ids(0)[0]).await? {
            None => return Err(Failed(Answer::Refused("it is not taken".into()))),
            Some(Duration::MAX) => "-1".into(),
            Some(left) => left.as_millis().to_string(),
        },
        "update" => match words.time(1) {
            Some(lease) => semaphore.update_lease(words.ids(0)[0], lease).await?.to_string(),
            None => semaphore.make_permanent(words.ids(0)[0]).await?.to_string(),
        },
        "available" => semaphore.available().await?.to_string(),
        "acquired" => semaphore.acquired().await?.to_string(),
        "permits" => semaphore.total().await?.to_string(),
        "delete" => semaphore.delete().await?.to_string(),
        _ => panic!("no such verb for permits: {verb}"),
    })
}

/// As in Java: by ids, without renewals.
async fn take_permits(
    semaphore: &LeasedSemaphore,
    number: u32,
    wait: Option<Duration>,
    lease: Option<Duration>,
) -> Result<String, Failed> {
    let mut acquire = semaphore.acquire(number);
    if let Some(wait) = wait {
        acquire = acquire.wait(wait);
    }
    let taken = match lease {
        Some(lease) => acquire.lease(lease).await.map(LeasedPermits::forget),
        None => acquire.permanent().await,
    };
    let ids = match taken {
        Err(error) if error.is_contended() => return Ok("none".into()),
        taken => taken?,
    };
    Ok(ids.iter().map(PermitId::to_string).collect::<Vec<_>>().join(","))
}

async fn latch(verb: &str, latch: &Latch, words: &Words<'_>) -> Result<String, Failed> {
    Ok(match verb {
        "set" => latch.try_set_count(words.number(0)).await?.to_string(),
        "down" => {
            latch.count_down().await?;
            "counted".into()
        }
        "count" => latch.count().await?.to_string(),
        "await" => {
            latch.opened().await?;
            "open".into()
        }
        "wait" => match latch.opened().wait(words.time(0).expect("a time")).await {
            Err(WaitError::Timeout { .. }) => "false".into(),
            awaited => {
                awaited?;
                "true".into()
            }
        },
        "delete" => latch.delete().await?.to_string(),
        _ => panic!("no such verb for a latch: {verb}"),
    })
}
