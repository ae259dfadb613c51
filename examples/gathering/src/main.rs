//! A hundred users join one gathering.

use std::error::Error;
use std::sync::Arc;

use gathering::Gatherings;
use leasehold::Config;
use tokio::task::JoinSet;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut defaults = Config::default();
    defaults.url = Some("memory:".into());
    let client = Config::from_env()?.or(defaults).connect()?.await?;

    let gatherings = Arc::new(Gatherings::new(client));
    let mut users = JoinSet::new();
    for user in 1..=100 {
        let gatherings = Arc::clone(&gatherings);
        users.spawn(async move { gatherings.join(7, &format!("user {user}")).await });
    }
    let mut joined = 0;
    while let Some(user) = users.join_next().await {
        joined += u32::from(user??);
    }
    println!("{joined} of 100 users joined: {}", gatherings.guests(7).await.join(", "));
    Ok(())
}
