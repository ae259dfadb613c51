//! What the members say about themselves, for a diagnosis.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use super::connection::{Account, Connection};
use super::link::Link;
use super::messages::{self, AskMembers, AskStatus, Grant, Granted, Members, Status};
use super::{Cluster, address, calls};
use crate::credentials::Login;
use crate::engine::remote::store::StoreError;
use crate::engine::{Condition, Member, Survey};
use crate::error::ServerError;
use crate::race;

impl Cluster {
    /// Asks each member. Writes nothing but a lease, which it revokes.
    pub(super) async fn survey(&self) -> Result<Survey, StoreError> {
        let link = self.link()?;
        let members = match link.call(calls::MEMBERS, AskMembers {}).await {
            Ok(Members { members }) => Some(self.conditions(&link, members).await?),
            Err(StoreError::Refused(ServerError::Denied(_))) => None,
            Err(error) => return Err(error),
        };
        let shortest_lease = shortest_lease(&link).await?;
        Ok(Survey { members, shortest_lease, tells_password_to: self.tells_password_to() })
    }

    /// Asks each member at the addresses of the URL, and at those that the cluster knows.
    async fn conditions(
        &self,
        link: &Link,
        members: Vec<messages::Member>,
    ) -> Result<Vec<Member>, StoreError> {
        let mut statuses = BTreeMap::new();
        let mut keep = |status: Status| {
            let member = status.header.as_ref().map_or(0, |header| header.member);
            statuses.insert(member, status);
        };
        match link.call(calls::STATUS, AskStatus {}).await {
            Ok(status) => keep(status),
            Err(StoreError::Refused(_)) => {}
            Err(error) => return Err(error),
        }
        let mut addresses: BTreeSet<_> =
            self.address.members.iter().map(address::Member::to_string).collect();
        addresses.extend(members.iter().flat_map(|member| self.known(member)).map(str::to_owned));
        let asked = addresses.iter().map(|address| Box::pin(self.status(address)));
        let replies = race::all(asked).await;
        let mut failures = BTreeMap::new();
        for (address, reply) in addresses.into_iter().zip(replies) {
            match reply {
                Ok(status) => keep(status),
                Err(error) => drop(failures.insert(address, error)),
            }
        }
        let leader = statuses.values().map(|status| status.leader).max().unwrap_or_default();
        let member = |member: &messages::Member| {
            let condition = match statuses.get(&member.id) {
                Some(status) => Ok(condition(status)),
                None if member.name.is_empty() => Err("it was never started".into()),
                // One that refuses is there, and one without TLS is not asked if the URL has TLS, or the other way round.
                None => match self.known(member).find_map(|address| failures.get(address)) {
                    Some(ServerError::Denied(_)) | None => Ok(Condition::default()),
                    Some(error) => Err(error.to_string()),
                },
            };
            let name = if member.name.is_empty() { format!("{:x}", member.id) } else { member.name.clone() };
            Member { name, is_learner: member.is_learner, is_leader: member.id == leader, condition }
        };
        Ok(members.iter().map(member).collect())
    }

    /// The status of the member at an address. It needs no login, and a password goes to the addresses of the URL only.
    async fn status(&self, address: &str) -> Result<Status, ServerError> {
        let member = address::Member::parse(address)
            .map_err(|_| ServerError::Unavailable(format!("{address} is no address")))?;
        let anonymous = Account { login: Login::default(), provider: None };
        let (connect, reply) = (self.limits.connect, self.limits.reply);
        let connection =
            Connection::open(&member, self.address.tls.as_ref(), anonymous, connect, reply).await?;
        connection.call(calls::STATUS, AskStatus {}).await.map_err(calls::Failure::into_error)
    }

    fn tells_password_to(&self) -> Option<String> {
        let Account { login, provider } = &self.account;
        let has_login = provider.is_some() || *login != Login::default();
        let is_plain = self.address.tls.is_none();
        let far =
            self.address.members.iter().map(address::Member::to_string).find(|member| !is_loopback(member));
        far.filter(|_| has_login && is_plain)
    }

    /// The addresses that a member is known by, as far as they are with TLS if the URL is, and without it if the URL is not.
    fn known<'a>(&self, member: &'a messages::Member) -> impl Iterator<Item = &'a str> + use<'a> {
        let scheme = if self.address.tls.is_some() { "https://" } else { "http://" };
        member.urls.iter().filter_map(move |url| url.strip_prefix(scheme))
    }
}

fn condition(status: &Status) -> Condition {
    let bytes = |bytes: i64| u64::try_from(bytes).unwrap_or_default();
    Condition {
        version: status.version.clone(),
        size: bytes(status.size),
        quota: Some(bytes(status.quota)).filter(|quota| *quota > 0),
        errors: status.errors.clone(),
    }
}

/// Whether what is sent to `host:port` stays on this machine.
fn is_loopback(member: &str) -> bool {
    let host = member.rsplit_once(':').map_or(member, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// What the server grants if the shortest lease is asked for: one and a half times its election time-out, in whole seconds. Not
/// known if it grants none.
async fn shortest_lease(link: &Link) -> Result<Option<Duration>, StoreError> {
    let Granted { id, ttl } = match link.call(calls::GRANT, Grant { ttl: 1 }).await {
        Ok(granted) => granted,
        Err(StoreError::Refused(_)) => return Ok(None),
        Err(error) => return Err(error),
    };
    // Without a reply it runs out by itself.
    link.revoke(id).await;
    Ok(Some(Duration::from_secs(ttl.max(0).unsigned_abs())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_to_this_machine_goes_over_no_network() {
        for (member, expected) in [
            ("localhost:2379", true),
            ("127.0.0.9:2379", true),
            ("[::1]:2379", true),
            ("localhost.example:2379", false),
            ("192.0.2.1:2379", false),
            ("[2001:db8::1]:2379", false),
        ] {
            assert_eq!(is_loopback(member), expected, "{member}");
        }
    }
}
