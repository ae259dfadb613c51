//! What a cluster of etcd says about itself, and what of it endangers locks.

use std::time::Duration;

use super::{Diagnosis, FULL, Severity};
use crate::client::Client;
use crate::engine::{Condition, Member, Survey};

/// The quota of a server that is not told another one.
const QUOTA: u64 = 2 << 30;

/// A version as numbers, such as 3.4.23.
type Version = (u32, u32, u32);

/// Adds what is known; what the user may not ask is not known.
pub(super) async fn examine(client: &Client, watchdog: Duration, report: &mut Diagnosis) {
    if report.engine != "etcd" {
        return;
    }
    let Ok(survey) = client.survey().await else { return };
    let is_secure = report.server.as_ref().is_some_and(|url| url.starts_with("etcds:"));
    report.fact("TLS", if is_secure { "yes" } else { "no" });
    judge(&survey, watchdog, report);
}

fn judge(survey: &Survey, watchdog: Duration, report: &mut Diagnosis) {
    let Survey { members, shortest_lease, tells_password_to } = survey;
    match members {
        Some(members) => {
            versions(members, report);
            members_of(members, report);
            database(members, report);
        }
        None => {
            for name in ["server", "members", "database"] {
                report.not_known(name, "root");
            }
        }
    }
    if let Some(shortest) = shortest_lease {
        lease(*shortest, watchdog, report);
    }
    if let Some(host) = tells_password_to {
        report.find(
            Severity::Danger,
            "password-in-clear",
            format!("the password is sent to {host} as it is: any machine in between can read it, and then use all locks of the user"),
            "connect to the members with TLS, or through a tunnel that ends on this machine",
        );
    }
}

fn conditions(members: &[Member]) -> impl Iterator<Item = &Condition> {
    members.iter().filter_map(|member| member.condition.as_ref().ok())
}

/// How many members vote.
fn voters(members: &[Member]) -> usize {
    members.iter().filter(|member| !member.is_learner).count()
}

fn versions(members: &[Member], report: &mut Diagnosis) {
    let mut versions: Vec<_> = conditions(members)
        .map(|condition| condition.version.as_str())
        .filter(|version| !version.is_empty())
        .collect();
    versions.sort_by_key(|version| numbers(version));
    versions.dedup();
    let Some(oldest) = versions.first() else { return report.not_known("server", "root") };
    report.fact("server", format!("etcd {}", versions.join(", ")));
    holes(oldest, voters(members), report);
}

fn numbers(version: &str) -> Version {
    let mut parts = version.splitn(3, '.').map(|part| {
        let digits = part.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
        digits.parse().unwrap_or(0)
    });
    let mut next = || parts.next().unwrap_or(0);
    (next(), next(), next())
}

/// Whether a version has what was mended in these releases of 3.4 and 3.5.
fn is_before(version: Version, mended: [u32; 2]) -> bool {
    match version {
        (3, 4, patch) => patch < mended[0],
        (3, 5, patch) => patch < mended[1],
        _ => version < (3, 4, 0),
    }
}

/// The known holes of a version.
fn holes(text: &str, voters: usize, report: &mut Diagnosis) {
    let version = numbers(text);
    let mut find = |severity, code, what: &str, since: &str| {
        report.find(severity, code, format!("etcd {text} {what}"), format!("update etcd to {since}"));
    };
    if version < (3, 4, 0) {
        find(
            Severity::Warning,
            "old-server",
            "is older than what this library was tested with",
            "3.4.31, 3.5.13 or later",
        );
    }
    // etcd-io/etcd#15247, mended by #16822
    if is_before(version, [31, 13]) {
        let (severity, when) = if voters > 1 {
            (Severity::Danger, "when another one has replaced it")
        } else {
            (Severity::Warning, "as soon as there are several members")
        };
        let what = format!(
            "lets a leader whose disk or processor is stuck end leases that are renewed, {when}: then a second owner gets the locks"
        );
        find(severity, "lease-revocation", &what, "3.4.31, 3.5.13 or later");
    }
    // etcd-io/etcd#13908
    if is_before(version, [0, 3]) && version >= (3, 5, 0) {
        let what = "may lose data when it is killed, so that members have different locks";
        find(Severity::Danger, "data-inconsistency", what, "3.5.13 or later");
    }
    // etcd-io/etcd#14423, #14424
    if voters == 1 && is_before(version, [21, 5]) {
        let what = "may lose what it has confirmed if its only member crashes: a second owner gets the locks";
        find(Severity::Danger, "lost-writes", what, "3.4.31, 3.5.13 or later, or have three members");
    }
}

fn members_of(members: &[Member], report: &mut Diagnosis) {
    let voters = voters(members);
    let down = members.iter().filter(|member| !member.is_learner && member.condition.is_err()).count();
    let down_too = if down > 0 { format!(", {down} of them without reply") } else { String::new() };
    report.fact("members", format!("{voters}{down_too}"));
    let leader = members.iter().find(|member| member.is_leader);
    report.fact("leader", leader.map_or("none", |leader| leader.name.as_str()));
    if voters == 1 {
        report.find(
            Severity::Warning,
            "single-member",
            "there is one member: while it is down no lock is acquired or renewed, and with its disk all locks are lost",
            "run three members, or five",
        );
    } else if voters.is_multiple_of(2) {
        report.find(
            Severity::Note,
            "even-members",
            format!("{voters} members go on without {} of them, as {} do", (voters - 1) / 2, voters - 1),
            "run three members, or five",
        );
    }
    let spare = ((voters - 1) / 2).saturating_sub(down);
    for member in members.iter().filter(|member| !member.is_learner) {
        let Err(why) = &member.condition else { continue };
        report.find(
            Severity::Warning,
            "member-down",
            format!("the member {} does not reply to this machine ({why}): the cluster goes on without {spare} more", member.name),
            "start the member, or check the network to it; if it is gone for good: etcdctl member remove",
        );
    }
    let has = |what: &str| {
        conditions(members).any(|condition| condition.errors.iter().any(|error| error.contains(what)))
    };
    if has("no leader") {
        report.find(
            Severity::Warning,
            "no-leader",
            "a member knows no leader: clients that are connected to it lose their locks when their leases are over",
            "check the network between the members (etcdctl endpoint status --cluster)",
        );
    }
    if has("CORRUPT") {
        report.find(
            Severity::Danger,
            "alarm-corrupt",
            "the members have different data: which owner holds a lock depends on which member is asked",
            "replace the member that differs (etcdctl endpoint hashkv --cluster), then etcdctl alarm disarm",
        );
    }
    if has("NOSPACE") {
        report.find(
            Severity::Danger,
            FULL,
            "the database is full: no lock is acquired, and no client can connect",
            "etcdctl compact, etcdctl defrag, then etcdctl alarm disarm; set --auto-compaction-retention and a greater --quota-backend-bytes",
        );
    }
}

fn database(members: &[Member], report: &mut Diagnosis) {
    let Some(fullest) = conditions(members).max_by_key(|condition| condition.size) else { return };
    let Condition { size, quota, .. } = fullest;
    let (limit, which) = quota.map_or((QUOTA, "default quota"), |quota| (quota, "quota"));
    let (is, of) = (mebibytes(*size), mebibytes(limit));
    report.fact("database", format!("{is} of the {which} of {of}"));
    let is_full = report.findings.iter().any(|finding| finding.code == FULL);
    if *size > limit / 5 * 4 && !is_full {
        report.find(
            Severity::Warning,
            "quota",
            format!("the database has {is} of the {which} of {of}: when it is full no lock is acquired"),
            "set --auto-compaction-retention, then etcdctl defrag; or set a greater --quota-backend-bytes",
        );
    }
}

fn mebibytes(bytes: u64) -> String {
    format!("{}.{} MiB", bytes >> 20, (bytes >> 10) % 1024 * 10 / 1024)
}

/// The server grants no lease that is shorter than one and a half times its election time-out.
fn lease(shortest: Duration, watchdog: Duration, report: &mut Diagnosis) {
    report.fact("shortest lease", format!("{shortest:?}"));
    let what = if watchdog < shortest {
        format!(
            "the server grants no lease shorter than {shortest:?}, so the locks of a client that is gone stay taken for so long, and \
             not for {watchdog:?}"
        )
    } else if watchdog < shortest * 2 {
        // A third of the lease may be over when the leader is lost, and an election takes up to two election time-outs.
        format!(
            "an election of another leader may take {:?}, and the lease of {watchdog:?} may be over by then: the locks are lost",
            shortest * 4 / 3
        )
    } else {
        return;
    };
    report.find(
        Severity::Warning,
        "election-timeout",
        what,
        format!("give a watchdog of {:?} or more (`ConnectOptions::watchdog`, --lease), or the members a shorter --election-timeout", shortest * 2),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Diagnosis {
        Diagnosis { engine: "etcd", server: None, facts: Vec::new(), findings: Vec::new() }
    }

    fn found(report: &Diagnosis) -> Vec<(&str, Severity)> {
        report.findings.iter().map(|finding| (finding.code, finding.severity)).collect()
    }

    fn member(name: &str, condition: Condition) -> Member {
        let (name, is_leader) = (name.to_owned(), name == "a");
        Member { name, is_learner: false, is_leader, condition: Ok(condition) }
    }

    fn of_version(version: &str) -> Condition {
        Condition { version: version.into(), ..Condition::default() }
    }

    #[test]
    fn the_holes_of_a_version_are_known() {
        use Severity::{Danger, Warning};
        let (revoked, lost) = (("lease-revocation", Danger), ("lost-writes", Danger));
        let one = ("lease-revocation", Warning);
        for (version, of_three, of_one) in [
            ("3.3.27", &[("old-server", Warning), revoked][..], &[("old-server", Warning), one, lost][..]),
            ("3.4.20", &[revoked], &[one, lost]),
            ("3.4.30", &[revoked], &[one]),
            ("3.4.31", &[], &[]),
            (
                "3.5.0",
                &[revoked, ("data-inconsistency", Danger)],
                &[one, ("data-inconsistency", Danger), lost],
            ),
            (
                "3.5.2",
                &[revoked, ("data-inconsistency", Danger)],
                &[one, ("data-inconsistency", Danger), lost],
            ),
            ("3.5.3", &[revoked], &[one, lost]),
            ("3.5.12", &[revoked], &[one]),
            ("3.5.13", &[], &[]),
            ("3.6.0-rc.1", &[], &[]),
            ("4.0.0", &[], &[]),
        ] {
            for (voters, expected) in [(3, of_three), (1, of_one)] {
                let mut report = report();
                holes(version, voters, &mut report);
                assert_eq!(found(&report), expected, "{version} with {voters} members");
            }
        }
    }

    #[test]
    fn a_cluster_is_judged_by_its_oldest_member() {
        let mut report = report();
        let members = [of_version("3.5.21"), of_version("3.5.9"), Condition::default()];
        versions(
            &["a", "b", "c"]
                .map(|name| member(name, members[usize::from(name.as_bytes()[0] - b'a')].clone())),
            &mut report,
        );
        assert_eq!(found(&report), [("lease-revocation", Severity::Danger)]);
        assert_eq!(report.facts[0].value.as_deref(), Some("etcd 3.5.9, 3.5.21"));
    }

    #[test]
    fn nothing_is_found_in_three_members_of_a_mended_version() {
        let mut report = report();
        let members = ["a", "b", "c"].map(|name| member(name, of_version("3.5.13"))).to_vec();
        let shortest_lease = Some(Duration::from_secs(2));
        let survey = Survey { members: Some(members), shortest_lease, tells_password_to: None };
        judge(&survey, Duration::from_secs(30), &mut report);
        assert_eq!(found(&report), []);
    }

    #[test]
    fn what_members_say_is_judged() {
        let with = |error: &str| Condition { errors: vec![error.into()], ..Condition::default() };
        let full = |size, quota| Condition { size, quota, ..Condition::default() };
        for (condition, expected) in [
            (with("memberID:1 alarm:CORRUPT "), vec![("alarm-corrupt", Severity::Danger)]),
            (with("memberID:1 alarm:NOSPACE "), vec![("alarm-nospace", Severity::Danger)]),
            (with("etcdserver: no leader"), vec![("no-leader", Severity::Warning)]),
            (full(QUOTA / 5 * 4, None), vec![]),
            (full(QUOTA, None), vec![("quota", Severity::Warning)]),
            (full(QUOTA, Some(QUOTA * 4)), vec![]),
            (full(900, Some(1000)), vec![("quota", Severity::Warning)]),
        ] {
            let mut report = report();
            let members = [Condition::default(), Condition::default(), condition.clone()];
            let members = members.map(|condition| member("a", condition));
            members_of(&members, &mut report);
            database(&members, &mut report);
            assert_eq!(found(&report), expected, "{condition:?}");
        }
    }

    #[test]
    fn an_even_number_of_members_is_noted_and_learners_are_not_counted() {
        let mut learner = member("d", Condition::default());
        learner.is_learner = true;
        let all = ["a", "b", "c"].map(|name| member(name, Condition::default()));
        let mut report = report();
        members_of(&[&all[..], &[learner]].concat(), &mut report);
        assert_eq!(found(&report), []);
        members_of(&all[..2], &mut report);
        assert_eq!(found(&report), [("even-members", Severity::Note)]);
    }

    #[test]
    fn the_lease_is_judged_by_what_the_server_grants() {
        let warned = vec![("election-timeout", Severity::Warning)];
        for (shortest, watchdog, expected) in
            [(2, 30, vec![]), (2, 4, vec![]), (2, 3, warned.clone()), (15, 10, warned)]
        {
            let mut report = report();
            lease(Duration::from_secs(shortest), Duration::from_secs(watchdog), &mut report);
            assert_eq!(found(&report), expected);
        }
    }
}
