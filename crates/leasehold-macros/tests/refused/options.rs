use leasehold::{Client, Error, locked};

#[locked]
async fn no_name(client: &Client) -> Result<(), Error> {
    Ok(())
}

#[locked(wait = "2s")]
async fn name_not_first(client: &Client) -> Result<(), Error> {
    Ok(())
}

#[locked("n", timeout = "2s")]
async fn unknown_option(client: &Client) -> Result<(), Error> {
    Ok(())
}

#[locked("n", wait = "2s", lease = "5s", wait = "3s")]
async fn twice(client: &Client) -> Result<(), Error> {
    Ok(())
}

#[locked("n", wait)]
async fn no_value(client: &Client) -> Result<(), Error> {
    Ok(())
}

#[locked("n", skip_if_busy = true)]
async fn a_value(client: &Client) -> Result<Option<()>, Error> {
    Ok(None)
}

#[locked("n", wait = "2s", skip_if_busy)]
async fn waits_and_does_not(client: &Client) -> Result<Option<()>, Error> {
    Ok(None)
}

#[locked("n", kind = mutex)]
async fn unknown_kind(client: &Client) -> Result<(), Error> {
    Ok(())
}

#[locked("n", kind = fair(2))]
async fn permits_of_a_lock(client: &Client) -> Result<(), Error> {
    Ok(())
}

#[locked("n", kind = leased_semaphore)]
async fn no_permits(client: &Client) -> Result<(), Error> {
    Ok(())
}

#[locked("n", kind = leased_semaphore(0))]
async fn zero_permits(client: &Client) -> Result<(), Error> {
    Ok(())
}

#[locked("n", kind = leased_semaphore(2), max_hold = "1m")]
async fn max_hold_of_permits(client: &Client) -> Result<(), Error> {
    Ok(())
}

#[locked("n")]
async fn no_client() -> Result<(), Error> {
    Ok(())
}

fn main() {}
