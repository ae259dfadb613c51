//! What the error of a wait that timed out tells of the holder.

use std::time::Duration;

use crate::client::Shared;
use crate::engine::{Query, QueryResult, Resource};
use crate::env;
use crate::error::AcquireError;
use crate::limits::LONGEST_LEASE;
use crate::owner::OwnerId;

/// How much later an error is reported because of this, at most; and at most a tenth of the wait.
const LIMIT: Duration = Duration::from_millis(100);

/// Adds the client of the holder, and how long its lease lasts, to the error of a wait that has timed out; whatever is not
/// known by then is left out.
pub(crate) async fn name_holder(
    shared: &Shared,
    resource: &Resource,
    mut error: AcquireError,
) -> AcquireError {
    if let AcquireError::Timeout { waited, holder: Some(holder), is_own: false, client, lease_left, .. } =
        &mut error
        && shared.engine.connection().is_none_or(|connection| connection.is_up)
    {
        let owner = holder.at(shared.id);
        // Both are sent before a reply is awaited.
        let of_client = shared.engine.inspect(&Query::Client(resource, owner.client));
        let of_lock = shared.engine.inspect(&Query::Holder(resource, Some(owner)));
        let replies = async { (of_client.await, of_lock.await) };
        if let Some((of_client, of_lock)) = env::within(LIMIT.min(*waited / 10), replies).await {
            *client = of_client.ok().and_then(|result| result.client);
            *lease_left = of_lock.ok().and_then(|result| lease_of(&result, owner));
        }
    }
    error
}

/// How long the lease of this owner lasts, if it still holds the lock and has a lease.
fn lease_of(result: &QueryResult, owner: OwnerId) -> Option<Duration> {
    let holding = result.holding.filter(|holding| holding.owner == Some(owner))?;
    (!holding.remaining.is_zero() && holding.remaining <= LONGEST_LEASE).then_some(holding.remaining)
}
