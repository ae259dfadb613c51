use leasehold::{Client, Error, locked};

#[locked("coupon:{di}")]
async fn unknown_parameter(client: &Client, id: u32) -> Result<u32, Error> {
    Ok(id)
}

#[locked("coupon:{self.id}")]
async fn no_receiver(client: &Client) -> Result<(), Error> {
    Ok(())
}

#[locked("coupon:{}")]
async fn no_parameter(client: &Client, id: u32) -> Result<u32, Error> {
    Ok(id)
}

#[locked("coupon:{id")]
async fn open(client: &Client, id: u32) -> Result<u32, Error> {
    Ok(id)
}

#[locked("coupon:id}")]
async fn closed(client: &Client, id: u32) -> Result<u32, Error> {
    Ok(id)
}

#[locked("coupon:{id.to_string()}")]
async fn call(client: &Client, id: u32) -> Result<u32, Error> {
    Ok(id)
}

#[locked("coupon:{id:width$}")]
async fn width(client: &Client, id: u32, width: usize) -> Result<usize, Error> {
    Ok(width)
}

#[locked("")]
async fn empty(client: &Client) -> Result<(), Error> {
    Ok(())
}

fn main() {}
