//! `GET_LOCK` of `MariaDB`, as in the named lock of many tutorials: the lock belongs to a session, so every task that waits
//! has a connection of its own. Statements are sent as text, which is one request each; a prepared statement that is used
//! once is two.

use std::process::ExitCode;

use bench_drivers::{Args, Contender, Error, drive};
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Opts, Pool, PoolConstraints, PoolOpts};

struct MariaDb(Pool);

struct Held {
    connection: Conn,
    name: String,
}

impl Contender for MariaDb {
    type Held = Held;

    async fn acquire(&self, name: &str) -> Result<Held, Error> {
        let mut connection = self.0.get_conn().await?;
        let got: Option<Option<u8>> =
            connection.query_first(format!("SELECT GET_LOCK('{name}', 60)")).await?;
        match got.flatten() {
            Some(1) => Ok(Held { connection, name: name.to_owned() }),
            _ => Err("GET_LOCK timed out".into()),
        }
    }

    async fn release(&self, mut held: Held) -> Result<(), Error> {
        let gone: Option<Option<u8>> =
            held.connection.query_first(format!("SELECT RELEASE_LOCK('{}')", held.name)).await?;
        match gone.flatten() {
            Some(1) => Ok(()),
            _ => Err("RELEASE_LOCK had nothing to release".into()),
        }
    }
}

async fn connect(args: &Args) -> Result<MariaDb, Error> {
    let tasks: usize = args.number("tasks")?;
    // A pool of exactly as many sessions as there are tasks. Skipping the reset for the next task saves a request.
    let constraints = PoolConstraints::new(tasks, tasks).ok_or("a pool needs connections")?;
    let options = mysql_async::OptsBuilder::from_opts(Opts::from_url(args.need("url")?)?)
        .pool_opts(PoolOpts::default().with_constraints(constraints).with_reset_connection(false));
    let pool = Pool::new(options);
    // They are opened before the clock runs.
    let mut open = Vec::new();
    for _ in 0..tasks {
        open.push(pool.get_conn().await?);
    }
    drop(open);
    Ok(MariaDb(pool))
}

fn main() -> ExitCode {
    drive(connect)
}
