//! Many users at the same moment.

use std::collections::BTreeSet;
use std::sync::Arc;

use gathering::{Gatherings, PLACES};
use leasehold::Client;
use tokio::task::JoinSet;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exactly_five_of_a_hundred_users_join_each_gathering() {
    let gatherings = Arc::new(Gatherings::new(Client::connect("memory:").await.unwrap()));
    let mut users = JoinSet::new();
    for (id, user) in (1..=2).flat_map(|id| (0..100).map(move |user| (id, user))) {
        let gatherings = Arc::clone(&gatherings);
        users.spawn(async move {
            let user = format!("user {user}");
            gatherings.join(id, &user).await.unwrap().then_some((id, user))
        });
    }
    let joined: BTreeSet<_> = users.join_all().await.into_iter().flatten().collect();
    for id in 1..=2 {
        let guests = gatherings.guests(id).await;
        assert_eq!(guests.len(), PLACES);
        let listed: BTreeSet<_> = guests.into_iter().map(|user| (id, user)).collect();
        assert_eq!(listed, joined.iter().filter(|(joined, _)| *joined == id).cloned().collect());
    }
}
