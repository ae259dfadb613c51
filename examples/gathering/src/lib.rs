//! A gathering has five places, and a hundred users join it at the same moment. Five get in.
//!
//! ```text
//! cargo run -p gathering
//! LEASEHOLD_URL=redis://127.0.0.1 cargo run -p gathering
//! ```
//!
//! Joining is [`Gatherings::join`]: ten lines that read the guests, count them, and write them back, as every service with a
//! database does. The attribute above them lets one caller in at a time for each gathering, on all machines that use the same
//! server; users of different gatherings do not wait for each other. The table of guests is in memory here, which is why one
//! process is enough to see it.

mod guests;

use leasehold::{Client, Error};

use self::guests::Guests;

/// How many users a gathering has places for.
pub const PLACES: usize = 5;

/// Gatherings that users can join.
#[derive(Debug)]
pub struct Gatherings {
    client: Client,
    guests: Guests,
}

impl Gatherings {
    /// Gatherings without guests, whose locks are made by `client`.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client, guests: Guests::default() }
    }

    /// Joins a gathering, and returns whether there was a place.
    ///
    /// # Errors
    ///
    /// When the users before this one took longer than two seconds, or there is no server.
    #[leasehold::locked("gathering:{id}", wait = "2s")]
    pub async fn join(&self, id: u32, user: &str) -> Result<bool, Error> {
        let mut guests = self.guests.read(id).await;
        if guests.len() == PLACES {
            return Ok(false);
        }
        guests.push(user.to_owned());
        self.guests.write(id, guests).await;
        Ok(true)
    }

    /// The guests of a gathering.
    pub async fn guests(&self, id: u32) -> Vec<String> {
        self.guests.read(id).await
    }
}
