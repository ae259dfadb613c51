//! The faults.

use std::time::Duration;

use leasehold_testkit::dice::Dice;
use leasehold_testkit::proxy::{Proxy, Which};
use tokio::task::block_in_place;
use tokio::time::sleep;

use super::cluster::Cluster;

/// Which member a fault concerns.
#[derive(Debug, Clone, Copy)]
pub(super) enum Member {
    Leader,
    Follower,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Fault {
    /// Nothing passes between a client and the members.
    Silence,
    /// Nothing that a client sends arrives.
    NoRequests,
    /// Nothing that members send to a client arrives.
    NoReplies,
    /// The connections of a client are silent, and new ones are not.
    HalfOpen,
    /// The streams of a client are lost.
    Cut,
    /// A client finds no member.
    Refused,
    Pause(Member),
    /// It is killed, and started again.
    Kill(Member),
    /// A member and the others do not reach each other; its clients reach it.
    Isolation(Member),
    NewLeader,
    Compaction,
    Defragmentation,
}

impl Fault {
    /// Those that one member may have.
    pub(super) const OF_ONE: [Self; 10] = [
        Self::Silence,
        Self::NoRequests,
        Self::NoReplies,
        Self::HalfOpen,
        Self::Cut,
        Self::Refused,
        Self::Pause(Member::Leader),
        Self::Kill(Member::Leader),
        Self::Compaction,
        Self::Defragmentation,
    ];

    /// Those of several members, and of their clients.
    pub(super) const OF_SEVERAL: [Self; 11] = [
        Self::Silence,
        Self::HalfOpen,
        Self::Pause(Member::Leader),
        Self::Pause(Member::Follower),
        Self::Kill(Member::Leader),
        Self::Kill(Member::Follower),
        Self::Isolation(Member::Leader),
        Self::Isolation(Member::Follower),
        Self::NewLeader,
        Self::Compaction,
        Self::Defragmentation,
    ];

    /// Begins, lasts for about as long as a lease, or for more than that, and ends.
    pub(super) async fn play(self, cluster: &mut Cluster, client: usize, dice: &mut Dice) {
        let last = sleep(dice.between(Duration::from_millis(900), Duration::from_millis(2500)));
        match self {
            Self::Silence => silence(cluster, client, last, |proxy| proxy.blackhole(Which::All)).await,
            Self::NoRequests => silence(cluster, client, last, |proxy| proxy.hold_requests(Which::All)).await,
            Self::NoReplies => silence(cluster, client, last, |proxy| proxy.hold_replies(Which::All)).await,
            Self::HalfOpen => silence(cluster, client, last, |proxy| proxy.half_open(Which::All)).await,
            Self::Refused => silence(cluster, client, last, Proxy::refuse).await,
            Self::Cut => cluster.network(client, |proxy| proxy.cut(Which::All)),
            Self::Pause(member) => {
                let member = one(member, cluster, dice).await;
                cluster.members[member].pause();
                last.await;
                cluster.members[member].resume();
            }
            Self::Kill(member) => {
                let member = one(member, cluster, dice).await;
                cluster.members[member].kill();
                last.await;
                block_in_place(|| cluster.members[member].restart());
            }
            Self::Isolation(member) => {
                let member = one(member, cluster, dice).await;
                cluster.isolate(member);
                last.await;
                cluster.heal();
            }
            Self::NewLeader => {
                let leader = cluster.leader().await;
                let next = (leader + 1 + dice.index(2)) % 3;
                block_in_place(|| cluster.members[leader].move_leader(&cluster.members[next]));
            }
            Self::Compaction => block_in_place(|| cluster.members[0].compact()),
            Self::Defragmentation => {
                let defragment = |member: &_| drop(leasehold_testkit::server::Etcd::ctl(member, &["defrag"]));
                block_in_place(|| cluster.members.iter().for_each(defragment));
            }
        }
    }
}

async fn silence(cluster: &Cluster, client: usize, last: impl Future<Output = ()>, begin: impl Fn(&Proxy)) {
    cluster.network(client, begin);
    last.await;
    cluster.network(client, Proxy::heal);
}

/// The number of such a member.
async fn one(member: Member, cluster: &Cluster, dice: &mut Dice) -> usize {
    let leader = cluster.leader().await;
    match member {
        Member::Leader => leader,
        Member::Follower => (leader + 1 + dice.index(2)) % 3,
    }
}
