//! The connection for messages, kept alive as long as the client lives and in step with who waits.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::connection::{Connection, Ended, Settings, Trouble};
use super::hints::Hints;
use super::reader::Push;
use super::reconnect::Reconnect;
use super::resp::Value;
use super::scripts::Call;
use crate::time;

/// How many channels go into one request.
const CHUNK: usize = 500;
/// After so long without a word the connection is asked whether it is still there.
const SILENCE: Duration = Duration::from_secs(5);

/// Runs until the client is gone. The connection is opened when somebody waits for the first time.
pub(super) async fn run(settings: Settings, hints: Arc<Hints>) {
    let mut reconnect = Reconnect::default();
    // Whether anything can have been announced while somebody waited and nobody listened.
    let mut gap = false;
    loop {
        while hints.is_idle() {
            hints.wanted.notified().await;
        }
        let told = Arc::clone(&hints);
        // What was said before this connection is not said of its server.
        let demoted = settings.demotions.subscribe();
        match settings.open(Box::new(move |push| deliver(push, &told))).await {
            Ok((connection, ended)) => {
                reconnect.opened();
                hints.link_up();
                let trouble = serve(&connection, ended, demoted, &hints, gap).await;
                tracing::debug!(?trouble, "the connection for messages is replaced");
            }
            Err(failure) => reconnect.failed("messages", &failure),
        }
        gap = true;
        hints.link_down();
        tokio::time::sleep(reconnect.pause()).await;
    }
}

/// Works on one connection until it breaks, or its server is found to be a replica.
async fn serve(
    connection: &Connection,
    mut ended: Ended,
    mut demoted: watch::Receiver<u64>,
    hints: &Hints,
    gap: bool,
) -> Trouble {
    let served = async {
        follow(connection, hints).await?;
        if gap {
            hints.wake_all();
        }
        loop {
            tokio::select! {
                () = hints.wanted.notified() => follow(connection, hints).await?,
                () = time::sleep_until_or_forever(hints.next_idle()) => follow(connection, hints).await?,
                _ = &mut ended => return Ok(()),
                _ = demoted.changed() => return Ok(()),
                () = tokio::time::sleep(SILENCE) => drop(connection.send(Call::command("PING")).await?),
            }
        }
    };
    let ended: Result<(), Trouble> = served.await;
    ended.err().unwrap_or_else(|| Trouble::Broken(crate::error::Failure::Unavailable("closed".into())))
}

/// Subscribes and unsubscribes until the subscriptions are those of the lines.
async fn follow(connection: &Connection, hints: &Hints) -> Result<(), Trouble> {
    loop {
        let changes = hints.take_changes();
        if changes.subscribe.is_empty() && changes.unsubscribe.is_empty() {
            return Ok(());
        }
        for channels in changes.unsubscribe.chunks(CHUNK) {
            match connection.listen(false, channels).await {
                // Messages for nobody do no harm.
                Ok(()) | Err(Trouble::Refused(_)) => {}
                Err(trouble) => return Err(trouble),
            }
        }
        for channels in changes.subscribe.chunks(CHUNK) {
            match connection.listen(true, channels).await {
                Ok(()) => hints.subscribed(channels),
                Err(Trouble::Refused(failure)) => {
                    tracing::debug!(%failure, "SUBSCRIBE refused");
                    hints.denied();
                }
                Err(trouble) => return Err(trouble),
            }
        }
    }
}

fn deliver(push: &Push, hints: &Hints) {
    if let [Value::Text(kind), Value::Text(channel), Value::Text(payload)] = push.as_slice()
        && kind == b"message"
    {
        hints.message(&String::from_utf8_lossy(channel), payload);
    }
}
