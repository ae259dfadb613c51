//! The Rust half: counts a number in Redis up, under the lock that the Java half uses. See `README.md`.

use std::env;
use std::error::Error;

use leasehold::Client;
use redis::AsyncCommands as _;

/// The lock, which is Redisson's `getLock` of the same name.
const LOCK: &str = "count-lock";
/// The number. It is read and then written, so two programs at once would lose some turns.
const COUNT: &str = "count";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("LEASEHOLD_URL").unwrap_or_else(|_| "redis://127.0.0.1".into());
    let turns: u32 = env::args().nth(1).as_deref().unwrap_or("1000").parse()?;
    let client = Client::connect(&url).await?;
    let redis = redis::Client::open(url)?.get_multiplexed_async_connection().await?;

    let lock = client.lock(LOCK);
    for _ in 0..turns {
        let turn = async {
            let mut redis = redis.clone();
            let count: Option<u64> = redis.get(COUNT).await?;
            redis.set::<_, _, ()>(COUNT, count.unwrap_or(0) + 1).await?;
            Ok::<_, Box<dyn Error>>(())
        };
        lock.acquire().run(turn).await?;
    }
    println!("Rust: {turns} turns are done");
    Ok(())
}
