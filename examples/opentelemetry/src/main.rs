//! Two buyers of one coupon, and the spans of it on the standard output.

use std::error::Error;
use std::time::Duration;

use leasehold::Client;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (subscriber, provider) =
        opentelemetry_example::exporting(opentelemetry_stdout::SpanExporter::default());
    tracing::subscriber::set_global_default(subscriber)?;
    let url = std::env::var("LEASEHOLD_URL").unwrap_or_else(|_| "memory:".into());
    let client = Client::connect(url).await?;
    let (ann, bob) = tokio::join!(buy(&client, "Ann"), buy(&client, "Bob"));
    ann.and(bob)?;
    provider.shutdown()?;
    Ok(())
}

#[tracing::instrument(skip(client))]
async fn buy(client: &Client, buyer: &str) -> Result<(), leasehold::Error> {
    let purchase = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        Ok(())
    };
    client.lock("coupon:42").acquire().wait(Duration::from_secs(2)).run(purchase).await
}
