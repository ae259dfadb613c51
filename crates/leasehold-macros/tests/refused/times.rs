use leasehold::{Client, Error, locked};

#[locked("n", wait = "2 seconds")]
async fn no_time(client: &Client) -> Result<(), Error> {
    Ok(())
}

#[locked("n", lease = "5min")]
async fn unknown_unit(client: &Client) -> Result<(), Error> {
    Ok(())
}

#[locked("n", wait = 2)]
async fn number(client: &Client) -> Result<(), Error> {
    Ok(())
}

#[locked("n", lease = "0s")]
async fn no_lease(client: &Client) -> Result<(), Error> {
    Ok(())
}

#[locked("n", max_hold = "10ms")]
async fn short_max_hold(client: &Client) -> Result<(), Error> {
    Ok(())
}

#[locked("n", lease = "40000d")]
async fn long_lease(client: &Client) -> Result<(), Error> {
    Ok(())
}

#[locked("n", lease = "5s", min_hold = "10s")]
async fn min_hold_past_lease(client: &Client) -> Result<(), Error> {
    Ok(())
}

#[locked("n", min_hold = "1m", max_hold = "59s")]
async fn min_hold_past_max_hold(client: &Client) -> Result<(), Error> {
    Ok(())
}

fn main() {}
