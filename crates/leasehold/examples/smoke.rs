//! s
use std::time::{Duration, Instant};
#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap();
    let client = leasehold::Client::connect(&url).watchdog(Duration::from_secs(1)).await?;
    let lock = client.lock("a");
    let t = Instant::now();
    for _ in 0..2000 {
        lock.acquire().await?.release().await?;
    }
    println!("pair {:?}", t.elapsed() / 2000);
    let g = lock.acquire().await?;
    println!("{:?} {:?}", g, lock.holder().await?);
    let l2 = client.lock("a");
    let w = tokio::spawn(async move {
        let t = Instant::now();
        let g = l2.acquire().await;
        println!("waiter got {:?} after {:?}", g, t.elapsed());
    });
    tokio::time::sleep(Duration::from_secs(3)).await;
    println!("held {} {:?}", g.is_held(), lock.remain_time_to_live().await?);
    let t = Instant::now();
    g.release().await?;
    w.await?;
    println!("handoff {:?}", t.elapsed());
    let t = Instant::now();
    let mut v = vec![];
    for i in 0..64 {
        let l = lock.clone();
        v.push(tokio::spawn(async move {
            for _ in 0..50 {
                let g = l.acquire().await.unwrap();
                g.release().await.unwrap();
            }
            i
        }));
    }
    for x in v {
        x.await?;
    }
    println!("3200 contended {:?}", t.elapsed());
    println!("{:?}", lock.holder().await?);
    Ok(())
}
