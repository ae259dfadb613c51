//! Ten workers that contend for three locks, and their metrics on <http://127.0.0.1:9464/metrics>.

use std::error::Error;
use std::time::Duration;

use leasehold::Client;
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let metrics = prometheus_example::install()?;
    let url = std::env::var("LEASEHOLD_URL").unwrap_or_else(|_| "memory:".into());
    let client = Client::connect(url).label("prometheus-example").await?;
    for worker in 0..10 {
        tokio::spawn(work(client.clone(), worker));
    }
    let listener = TcpListener::bind(std::env::var("LISTEN").as_deref().unwrap_or("127.0.0.1:9464")).await?;
    println!("http://{}/metrics", listener.local_addr()?);
    prometheus_example::serve(listener, metrics).await?;
    Ok(())
}

async fn work(client: Client, worker: u64) {
    let lock = client.lock(format!("stock:{}", worker % 3));
    loop {
        let work = async {
            tokio::time::sleep(Duration::from_millis(20 + 10 * worker)).await;
            Ok::<_, leasehold::Error>(())
        };
        // A time-out is counted, and the next try begins after a pause.
        if let Err(error) = lock.acquire().wait(Duration::from_millis(250)).run(work).await {
            println!("worker {worker}: {error}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}
