//! Members behind proxies.

use std::process::Stdio;
use std::time::Duration;

use leasehold_testkit::proxy::{Proxy, Which};
use leasehold_testkit::server::Etcd;
use tokio::task::block_in_place;
use tokio::time::{Instant, sleep};

use crate::PATIENCE;

/// Members that reach each other by proxies, and that each client reaches by proxies of its own.
pub(super) struct Cluster {
    pub(super) members: Vec<Etcd>,
    /// The proxy by which the other members reach each of them.
    peers: Vec<Proxy>,
    /// The proxies of each client, one for each member.
    clients: Vec<Vec<Proxy>>,
}

impl Cluster {
    pub(super) fn start<const MEMBERS: usize>(clients: usize) -> Self {
        let mut peers = Vec::new();
        let members = Etcd::cluster_by::<MEMBERS>(|port| {
            peers.push(Proxy::start_opaque(port));
            peers.last().map_or(port, Proxy::port)
        });
        // Those of members that did not get their ports are of no use.
        let peers = peers.split_off(peers.len() - MEMBERS);
        let of_client = |_| members.iter().map(|member| Proxy::start_opaque(member.port())).collect();
        Self { clients: (0..clients).map(of_client).collect(), peers, members: members.into() }
    }

    /// The address for a client, which tries its own member first.
    pub(super) fn url(&self, client: usize) -> String {
        let hosts = self.clients[client].iter().map(|proxy| format!("127.0.0.1:{}", proxy.port()));
        let mut hosts: Vec<_> = hosts.collect();
        let first = client % hosts.len();
        hosts.rotate_left(first);
        format!("etcd://{}", hosts.join(","))
    }

    /// Does something to all connections of a client.
    pub(super) fn network(&self, client: usize, change: impl Fn(&Proxy)) {
        self.clients[client].iter().for_each(change);
    }

    /// The number of the leader.
    pub(super) async fn leader(&self) -> usize {
        let begun = Instant::now();
        loop {
            if let Some(leader) = self.members.iter().position(Etcd::is_leader) {
                return leader;
            }
            assert!(begun.elapsed() < PATIENCE, "no leader");
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until each member writes.
    pub(super) async fn serves(&self) {
        let writes = |member: &Etcd| {
            let mut write = member.etcdctl(&["--command-timeout=1s", "put", "any", ""]);
            write.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
        };
        let begun = Instant::now();
        while !block_in_place(|| self.members.iter().all(writes)) {
            assert!(begun.elapsed() < PATIENCE, "the members do not write");
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// The queue of the lock, and the leases.
    pub(super) fn state(&self) -> String {
        format!("{:?}, {}", self.members[0].keys("n/"), self.members[0].ctl(&["lease", "list"]))
    }

    /// Keeps a member and the others from each other, until this is healed.
    pub(super) fn isolate(&self, member: usize) {
        let process = self.members[member].pid().expect("it runs");
        for (number, proxy) in self.peers.iter().enumerate() {
            if number == member {
                proxy.blackhole(Which::All);
            } else {
                proxy.hold_process(process);
            }
        }
    }

    pub(super) fn heal(&self) {
        self.peers.iter().for_each(Proxy::heal);
    }
}
