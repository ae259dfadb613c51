//! Tasks that take turns in a critical section that detects two holders at once. `Loop.java` does the same.

use std::sync::Arc;
use std::time::Duration;

use leasehold::{Client, Owner};
use leasehold_testkit::resp::{Connection, Value};
use tokio::task::{JoinSet, yield_now};

use super::primitive::Primitive;

/// Runs `turns` turns in each of `tasks` tasks, or turns until there is `:stop`. Returns how many there were.
pub(super) async fn take(client: &Client, port: u16, what: [&str; 3], tasks: usize, turns: i64) -> String {
    let [kind, name, topic] = what;
    let primitive = Arc::new(Primitive::new(client, kind, name));
    let mut running = JoinSet::new();
    for _ in 0..tasks {
        let (primitive, id) = (Arc::clone(&primitive), client.id());
        let log =
            TurnLog { connection: Connection::open(port).expect("the server listens"), topic: topic.into() };
        running.spawn(taking(primitive, log, id, kind == "read", turns));
    }
    running.join_all().await.into_iter().sum::<i64>().to_string()
}

async fn taking(primitive: Arc<Primitive>, mut log: TurnLog, id: String, reads: bool, turns: i64) -> i64 {
    let lease = matches!(*primitive, Primitive::Permits(_)).then_some(Duration::from_secs(60));
    let mut taken = 0;
    while if turns < 0 { log.call(&["EXISTS"], "stop", &[]) == 0 } else { taken < turns } {
        // A unique owner, as a plain acquire would draw it; it identifies the hold.
        let owner = Owner::unique();
        let me = format!("{id}:{owner}");
        let held = primitive.enter(&owner, None, lease).await.expect("it is granted in the end");
        if reads {
            log.read(&me).await;
        } else {
            log.write(&me).await;
        }
        // Both ways to release.
        if taken % 2 == 0 {
            held.release().await.expect("it was held all the time");
        } else {
            drop(held);
        }
        taken += 1;
    }
    taken
}

/// Records the turns.
struct TurnLog {
    connection: Connection,
    topic: String,
}

impl TurnLog {
    /// The words of a command, with the key of this topic between them.
    fn call(&mut self, command: &[&str], what: &str, rest: &[&str]) -> Value {
        let key = format!("{}:{what}", self.topic);
        let command = [command, &[key.as_str()], rest].concat();
        self.connection.call(&command).expect("the server answers")
    }

    async fn write(&mut self, me: &str) {
        self.call(&["SET"], "inside", &[me]);
        let seen = self.call(&["GET"], "value", &[]);
        let seen: u64 = seen.as_str().map_or(0, |seen| seen.parse().expect("a number"));
        yield_now().await;
        self.call(&["SET"], "value", &[&(seen + 1).to_string()]);
        self.call(&["RPUSH"], "log", &[&format!("rust {me} {seen}")]);
        let last = self.call(&["GET"], "inside", &[]);
        if last != me {
            self.violated(&format!("{me} writes, and {last:?} is inside"));
        }
        let readers = self.call(&["GET"], "readers", &[]);
        if readers != Value::Nil && readers != "0" {
            self.violated(&format!("{me} writes, and {readers:?} read"));
        }
    }

    async fn read(&mut self, me: &str) {
        self.call(&["INCR"], "readers", &[]);
        let first = self.call(&["GET"], "value", &[]);
        self.call(&["RPUSH"], "reads", &[&format!("rust {me}")]);
        yield_now().await;
        let second = self.call(&["GET"], "value", &[]);
        self.call(&["DECR"], "readers", &[]);
        if first != second {
            self.violated(&format!("{me} reads {first:?} and then {second:?}"));
        }
    }

    fn violated(&mut self, how: &str) {
        self.call(&["RPUSH"], "violations", &[how]);
    }
}
