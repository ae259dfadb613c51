//! The rights that a user needs: the line of `docs/wire.md`, and the errors when one of them is missing.

use std::time::Duration;

use leasehold::{AcquireError, ChangeError, Client, Loss, Owner, ServerError};
use leasehold_testkit::proxy::{Proxy, Which};
use leasehold_testkit::server::{Flavour, Server};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::{SECOND, alone, keys, soon, until};

const WIRE: &str = include_str!("../../../../docs/wire.md");

/// The words of the documented line: `ACL SETUSER worker on >secret …`.
fn documented() -> Vec<&'static str> {
    let line = WIRE.lines().map(str::trim).find(|line| line.starts_with("ACL SETUSER ")).expect("the line");
    line.split_whitespace().collect()
}

/// Commands that are used where they are allowed and not needed where they are not.
const OPTIONAL: [&str; 9] = [
    "+publish",
    "+subscribe",
    "+unsubscribe",
    "+ping",
    "+client|info",
    "+client|kill",
    "+client|setname",
    "+command|info",
    "+pubsub|numsub",
];

/// Creates the documented user under another name and without some of the words.
fn make_user(server: &Server, name: &str, without: &[&str]) -> String {
    let mut words = documented();
    words[2] = name;
    words.retain(|word| !without.contains(word));
    assert_eq!(server.cli(&words), "OK", "{words:?}");
    server.url().replace("redis://", &format!("redis://{name}:secret@"))
}

/// Uses every operation of a lock, under names that no other call uses. Returns the operation that failed.
async fn do_everything(url: String, name: &str) -> Result<(), String> {
    let told = |what: &'static str| move |error: &dyn std::fmt::Debug| format!("{what}: {error:?}");
    let connect = Client::connect(url).label("some worker").watchdog(SECOND * 2);
    let client = connect.clone().await.map_err(|error| told("connect")(&error))?;
    let other = connect.await.map_err(|error| told("connect")(&error))?;
    let lock = client.lock(format!("lock:{name}"));
    let guard = lock.acquire().await.map_err(|error| told("acquire")(&error))?;
    let inner = guard.reenter().await.map_err(|error| told("re-enter")(&error))?;
    inner.release().await.map_err(|error| told("release of one")(&error))?;
    drop(guard.reenter().await.map_err(|error| told("re-enter")(&error))?);
    let held = lock.holder().await.map_err(|error| told("question")(&error))?;
    lock.waiters().await.map_err(|error| told("waiters")(&error))?;
    let waiter = tokio::spawn(lock.acquire().into_future());
    // Renewed more than once, and waited for.
    sleep(SECOND * 5 / 2).await;
    if !guard.is_held() || waiter.is_finished() || held.is_none_or(|held| held.holds != 2 && held.holds != 1)
    {
        return Err("renewal".into());
    }
    guard.extend(SECOND).await.map_err(|error| told("extend")(&error))?;
    guard.release().await.map_err(|error| told("release")(&error))?;
    let guard = soon("the waiter", waiter).await.expect("no panic").map_err(|error| told("wait")(&error))?;
    let stolen = other.lock(format!("lock:{name}")).acquire().steal();
    let stolen = stolen.await.map_err(|error| told("steal")(&error))?;
    if soon("the loss", guard.lost()).await != Loss::TakenOver {
        return Err("the loss by theft".into());
    }
    if !lock.force_unlock().await.map_err(|error| told("force_unlock")(&error))? {
        return Err("force_unlock".into());
    }
    drop((guard, stolen));
    let fenced = client.fenced_lock(format!("lock:{name}"));
    let token = fenced.acquire().await.map_err(|error| told("acquire with a token")(&error))?.token();
    if fenced.last_token().await.map_err(|error| told("the last token")(&error))? != token {
        return Err("the last token".into());
    }
    let written = client.fenced_write(format!("lock:{name}:value"), token, "some value").await;
    written.map_err(|error| told("a guarded write")(&error))?;
    do_everything_by_setnx(&client, &format!("lock:{name}:setnx")).await?;
    read_and_write(&client, &format!("lock:rw:{name}")).await?;
    queue_up(&client, &other, &format!("lock:fair:{name}")).await?;
    take_values(&client, &format!("lock:{name}:group")).await?;
    do_everything_that_counts(&client, &format!("lock:{name}:count")).await?;
    drop(lock.acquire().await.map_err(|error| told("acquire again")(&error))?);
    // The drop is executed when the next reply arrives.
    match lock.is_locked().await {
        Ok(false) => Ok(()),
        other => Err(format!("after a drop: {other:?}")),
    }
}

/// The same for a lock by `SET … NX`.
async fn do_everything_by_setnx(client: &Client, name: &str) -> Result<(), String> {
    let told = |what: &'static str| move |error: &dyn std::fmt::Debug| format!("setnx, {what}: {error:?}");
    let lock = client.setnx_lock(name);
    let guard = lock.acquire().await.map_err(|error| told("acquire")(&error))?;
    if lock.try_acquire().await.map_err(|error| told("busy")(&error))?.is_some() {
        return Err("setnx: two at once".into());
    }
    guard.extend(SECOND * 3).await.map_err(|error| told("extend")(&error))?;
    guard.release().await.map_err(|error| told("release")(&error))?;
    let guard = lock.acquire().fenced().await.map_err(|error| told("acquire with a token")(&error))?;
    let stolen = lock.acquire().steal().await.map_err(|error| told("steal")(&error))?;
    drop(guard);
    stolen.release().await.map(drop).map_err(|error| told("release")(&error))
}

/// Uses every operation of a read-write lock, but for tokens.
async fn read_and_write(client: &Client, name: &str) -> Result<(), String> {
    let told = |what: &'static str| move |error: &dyn std::fmt::Debug| format!("{what}: {error:?}");
    let lock = client.rw_lock(name).prefer_writers();
    let guard = lock.read().acquire().await.map_err(|error| told("read")(&error))?;
    let inner = guard.reenter().await.map_err(|error| told("re-enter to read")(&error))?;
    let writer = tokio::spawn(lock.write().acquire().into_future());
    // Waits, and sets its waiting-writer flag, which blocks new readers.
    let barred = async {
        while lock.read().try_acquire().await.map_err(|error| told("try to read")(&error))?.is_some()
            && !writer.is_finished()
        {}
        Ok::<_, String>(())
    };
    soon("the writer's mark", barred).await?;
    let read = lock.read().is_locked().await.map_err(|error| told("question")(&error))?;
    if !read || writer.is_finished() {
        return Err("reading".into());
    }
    inner.release().await.map_err(|error| told("release of a reader")(&error))?;
    let upgraded = guard.try_upgrade().await.map_err(|error| told("upgrade")(&error))?;
    let guard = upgraded.downgrade().await.map_err(|error| told("downgrade")(&error))?;
    drop(guard);
    if !lock.read().force_unlock().await.map_err(|error| told("force_unlock")(&error))? {
        return Err("force_unlock".into());
    }
    let written =
        soon("the writer", writer).await.expect("no panic").map_err(|error| told("wait")(&error))?;
    drop(written);
    match lock.write().is_locked().await {
        Ok(false) => Ok(()),
        other => Err(format!("after a drop: {other:?}")),
    }
}

/// Uses every operation of a fair lock, but for tokens.
async fn queue_up(client: &Client, other: &Client, name: &str) -> Result<(), String> {
    let told = |what: &'static str| move |error: &dyn std::fmt::Debug| format!("fair, {what}: {error:?}");
    let (lock, elsewhere) = (client.fair_lock(name), other.fair_lock(name));
    let guard = lock.acquire().await.map_err(|error| told("acquire")(&error))?;
    let waiters = [0, 1, 2].map(|_| tokio::spawn(elsewhere.acquire().into_future()));
    let begun = tokio::time::Instant::now();
    while lock.queue().await.map_err(|error| told("queue")(&error))?.len() != 3 {
        if begun.elapsed() > SECOND * 5 {
            return Err("fair, the queue".into());
        }
        sleep(Duration::from_millis(10)).await;
    }
    // The first gives up, the waiters behind it move up; a heartbeat or two passes.
    waiters[0].abort();
    sleep(SECOND * 2).await;
    if lock.queue().await.map_err(|error| told("queue")(&error))?.len() != 2 {
        return Err("fair, a waiter that gives up".into());
    }
    guard.release().await.map_err(|error| told("release")(&error))?;
    let [_, second, third] = waiters;
    for waiter in [second, third] {
        let served =
            soon("its turn", waiter).await.expect("no panic").map_err(|error| told("wait")(&error))?;
        drop(served);
    }
    let stolen = lock.acquire().steal().await.map_err(|error| told("steal")(&error))?;
    if !lock.force_unlock().await.map_err(|error| told("force_unlock")(&error))? {
        return Err("fair, force_unlock".into());
    }
    drop(stolen);
    Ok(())
}

/// Every operation on values of a group.
async fn take_values(client: &Client, name: &str) -> Result<(), String> {
    let told = |error: &dyn std::error::Error| format!("values: {error}");
    let lock = client.group_lock(name, ["a", "b"]);
    let guard = lock.acquire().await.map_err(|error| told(&error))?;
    guard.extend(SECOND * 3).await.map_err(|error| told(&error))?;
    if !lock.is_locked().await.map_err(|error| told(&error))? {
        return Err("values: free".into());
    }
    guard.release().await.map_err(|error| told(&error))?;
    let _guard = lock.acquire().fenced().await.map_err(|error| told(&error))?;
    match lock.force_unlock().await {
        Ok(true) => Ok(()),
        other => Err(format!("values: {other:?}")),
    }
}

/// Every operation of semaphores and latches.
async fn do_everything_that_counts(client: &Client, name: &str) -> Result<(), String> {
    let told = |error: &dyn std::error::Error| format!("counters: {error}");
    let semaphore = client.semaphore(format!("{name}:n"));
    semaphore.try_set_permits(3).await.map_err(|error| told(&error))?;
    let permits = semaphore.acquire(2).await.map_err(|error| told(&error))?;
    permits.release().await.map_err(|error| told(&error))?;
    semaphore.add_permits(1).await.map_err(|error| told(&error))?;
    semaphore.release(1).await.map_err(|error| told(&error))?;
    if semaphore.available().await.map_err(|error| told(&error))? != 5 {
        return Err("counters: not exact".into());
    }
    semaphore.delete().await.map_err(|error| told(&error))?;

    let leased = client.leased_semaphore(format!("{name}:m"));
    leased.set_permits(2).await.map_err(|error| told(&error))?;
    let permit = leased.acquire(1).await.map_err(|error| told(&error))?;
    permit.extend(SECOND * 3).await.map_err(|error| told(&error))?;
    permit.release().await.map_err(|error| told(&error))?;
    let ids = leased.acquire(2).permanent().await.map_err(|error| told(&error))?;
    leased.release(ids).await.map_err(|error| told(&error))?;
    if leased.total().await.map_err(|error| told(&error))? != 2 {
        return Err("counters: not exact".into());
    }
    leased.delete().await.map_err(|error| told(&error))?;

    let latch = client.latch(format!("{name}:l"));
    latch.try_set_count(1).await.map_err(|error| told(&error))?;
    latch.count_down().await.map_err(|error| told(&error))?;
    soon("the latch", latch.opened().into_future()).await.map_err(|error| told(&error))
}

#[tokio::test]
async fn the_acl_rule_in_wire_md_is_sufficient_and_contains_no_superfluous_word() {
    let _alone = alone().await;
    for flavour in Flavour::ALL {
        let server = Server::start(flavour);
        do_everything(make_user(&server, "worker", &[]), "whole").await.unwrap();

        // A user without the right to load scripts can run those that the server has, so this server has none.
        let ignorant = Server::start(flavour);
        assert!(do_everything(make_user(&ignorant, "worker", &["+eval"]), "ignorant").await.is_err());

        let mut runs = JoinSet::new();
        let spare: Vec<_> = OPTIONAL.iter().map(|word| vec![*word]).chain([OPTIONAL.to_vec()]).collect();
        let commands: Vec<_> = documented().into_iter().filter(|word| word.starts_with('+')).collect();
        let needed = commands.iter().filter(|word| **word != "+eval" && !OPTIONAL.contains(word));
        let needed = needed.map(|word| vec![*word]);
        let without = spare.into_iter().map(|words| (words, true)).chain(needed.map(|words| (words, false)));
        for (n, (words, works)) in without.enumerate() {
            let name = format!("worker{n}");
            let url = make_user(&server, &name, &words);
            runs.spawn(async move { (do_everything(url, &name).await, words, works) });
        }
        for (done, words, works) in runs.join_all().await {
            assert_eq!(done.is_ok(), works, "{flavour:?} without {words:?}: {done:?}");
        }
    }
}

#[tokio::test]
async fn lock_names_outside_the_acl_rule_are_denied() {
    let server = Server::start(Flavour::Redis);
    let client = Client::connect(make_user(&server, "worker", &[])).await.unwrap();
    for name in ["n", "other:lock:n", "locks:n"] {
        let error = client.lock(name).acquire().await.unwrap_err();
        assert!(matches!(error, AcquireError::Server { cause: ServerError::Denied(_), .. }), "{error:?}");
    }
    // A name with a hash tag of its own follows the same rule.
    client.lock("lock:{x}").acquire().await.unwrap().release().await.unwrap();
    assert_eq!(keys(&server), [""; 0]);
    client.fenced_lock("lock:{x}").acquire().await.unwrap().release().await.unwrap();
    assert_eq!(keys(&server), ["redisson_lock_token:lock:{x}"]);
    client.setnx_lock("lock:{x}").acquire().await.unwrap().release().await.unwrap();
    assert_eq!(keys(&server), ["redisson_lock_token:lock:{x}"]);
}

/// The administrator has to learn which right is missing, also from servers that do not report it by themselves.
#[tokio::test]
async fn a_denied_request_names_the_missing_acl_right() {
    for flavour in Flavour::ALL {
        let server = Server::start(flavour);
        let client = async |word: &str| {
            let name = word.trim_start_matches(['+', '~']).replace([':', '{', '*'], "");
            Client::connect(make_user(&server, &name, &[word])).await.unwrap()
        };
        let fair = client("+zrangebyscore").await.fair_lock("lock:a").acquire().await.map(drop);
        let read = client("+hset").await.rw_lock("lock:b").read().acquire().await.map(drop);
        let group = client("+hlen").await.group_lock("lock:c", ["a"]).acquire().await.map(drop);
        let counter = client("+get").await.semaphore("lock:d").acquire(1).await.map(drop);
        let leased = client("+time").await.leased_semaphore("lock:e").acquire(1).await.map(drop);
        let denied = [fair, read, group, counter, leased].map(|outcome| match outcome {
            Err(AcquireError::Server { cause: ServerError::Denied(text), .. }) => text,
            other => panic!("{flavour:?}: {other:?}"),
        });
        for (text, command) in denied.iter().zip(["zrangebyscore", "hset", "hlen", "get", "time"]) {
            assert!(text.contains(command), "{flavour:?}: {text} does not name {command}");
        }
        let latch = client("+decr").await.latch("lock:f").count_down().await.map(drop);
        let semaphore = client("+incrby").await.semaphore("lock:g").release(1).await;
        let record = client("~leasehold_permits:{lock:*").await.semaphore("lock:g").release(1).await;
        let requests = client("~leasehold_requests:{lock:*").await.semaphore("lock:g").release(1).await;
        let denied = [latch, semaphore, record, requests].map(|outcome| match outcome {
            Err(ChangeError::Server { cause: ServerError::Denied(text), .. }) => text,
            other => panic!("{flavour:?}: {other:?}"),
        });
        let missing = ["decr", "incrby", "leasehold_permits:{lock:g}", "leasehold_requests:{lock:g}"];
        for (text, missing) in denied.iter().zip(missing) {
            assert!(text.contains(missing), "{flavour:?}: {text} does not name {missing}");
        }
        assert_eq!(keys(&server), [""; 0], "{flavour:?}");
    }
}

#[tokio::test]
async fn an_acquire_without_a_reply_is_undone_with_and_without_the_right_to_kill_connections() {
    let server = Server::start(Flavour::Redis);
    for without in [[].as_slice(), &["+client|kill"], &["+client|info"], &["+client|info", "+client|kill"]] {
        let proxy = Proxy::start(server.port());
        let url = make_user(&server, "worker", without);
        let url = url.replace(&format!(":{}", server.port()), &format!(":{}", proxy.port()));
        let client = Client::connect(url).await.unwrap();
        for _ in 0..5 {
            proxy.lose_reply_once(Which::Command);
            let error = client.lock("lock:n").try_acquire().await.unwrap_err();
            assert!(error.is_unavailable(), "{error:?}");
            until(&format!("it is undone without {without:?}"), || keys(&server).is_empty()).await;
            while client.lock("lock:m").is_locked().await.is_err() {
                sleep(Duration::from_millis(5)).await;
            }
        }
    }
}

/// Undos that are repeated because a dead connection may still act do not roll back a later hold of the owner.
#[tokio::test]
async fn a_repeated_undo_does_not_end_the_next_hold_of_its_owner() {
    let server = Server::start(Flavour::Redis);
    for without in [[].as_slice(), &["+client|kill"], &["+client|info"]] {
        let proxy = Proxy::start(server.port());
        let url = make_user(&server, "worker", without);
        let url = url.replace(&format!(":{}", server.port()), &format!(":{}", proxy.port()));
        let client = Client::connect(url).await.unwrap();
        let (lock, owner) = (client.lock("lock:n"), Owner::number(7));
        proxy.lose_reply_once(Which::Command);
        assert!(lock.try_acquire().as_owner(&owner).await.unwrap_err().is_unavailable());
        let guard = loop {
            match lock.acquire().as_owner(&owner).await {
                Ok(guard) => break guard,
                Err(error) => assert!(error.is_unavailable(), "{error:?}"),
            }
            sleep(Duration::from_millis(1)).await;
        };
        // Longer than the pause between two undos.
        sleep(SECOND).await;
        assert!(guard.is_held(), "without {without:?}");
        assert_eq!(keys(&server), ["lock:n"], "without {without:?}: the guard reports that it is held");
        guard.release().await.unwrap();
    }
}

/// The words of the documented user that only looks at locks.
fn looker(name: &str, without: &str) -> Vec<String> {
    let line =
        WIRE.lines().map(str::trim).find(|line| line.starts_with("ACL SETUSER looker ")).expect("the line");
    let words = line.replace("looker", name);
    words.split_whitespace().filter(|word| *word != without).map(str::to_owned).collect()
}

#[tokio::test]
async fn own_460_looking_at_locks_needs_the_documented_rights_and_a_missing_one_is_an_error() {
    for flavour in Flavour::ALL {
        let server = Server::start(flavour);
        let url = make_user(&server, "worker", &[]);
        let client = Client::connect(&*url).label("web-3").await.unwrap();
        let _lock = client.lock("lock:a").acquire().await.unwrap();
        let _read = client.rw_lock("lock:b").read().acquire().await.unwrap();
        let _write = client.rw_lock("lock:c").write().acquire().await.unwrap();
        let _group = client.group_lock("lock:d", ["1"]).acquire().await.unwrap();
        let _setnx = client.setnx_lock("lock:e").acquire().await.unwrap();
        server.cli(&["HSET", "other", "name", "Ann"]);
        let all = ["lock:a", "lock:b", "lock:c", "lock:d", "lock:e"];
        let names = async |client: &Client, pattern: &str| {
            let listing = client.list(pattern).setnx().await?;
            let known = listing.locks.iter().all(|lock| lock.holder.client.is_some());
            let names: Vec<_> = listing.locks.into_iter().map(|lock| lock.name).collect();
            Ok::<_, leasehold::QueryError>((names, listing.is_complete, known))
        };

        // What a client of locks may do is not enough, and the error says what is missing.
        let error = names(&client, "lock:*").await.unwrap_err();
        assert!(error.to_string().contains("scan"), "{flavour:?}: {error}");
        let more = WIRE.lines().map(str::trim).find(|line| line.starts_with("ACL SETUSER worker +"));
        assert_eq!(server.cli(&more.expect("the line").split(' ').collect::<Vec<_>>()), "OK");
        let found = names(&client, "lock:*").await.unwrap();
        assert_eq!(found, (all.map(str::to_owned).to_vec(), true, true), "{flavour:?}");

        assert_eq!(server.cli(&looker("looker", "")), "OK");
        let url = server.url();
        let connect = |name: &str| {
            Client::connect(url.replace("redis://", &format!("redis://{name}:secret@"))).anonymous()
        };
        let looks = connect("looker").await.unwrap();
        assert_eq!(names(&looks, "lock:*").await.unwrap(), found, "{flavour:?}");
        let (some, is_complete, _) = names(&looks, "*").await.unwrap();
        assert_eq!((some, is_complete), (found.0.clone(), false), "{flavour:?}: keys that may not be read");
        names(&looks, "other").await.expect_err("nothing may be read");
        assert_eq!(looks.find("lock:a").await.unwrap().unwrap().name, "lock:a");
        assert!(looks.lock("lock:z").acquire().await.is_err(), "{flavour:?}: it only looks");

        for word in looker("", "") {
            // Only a hash with many fields needs the first.
            if !word.starts_with('+') || ["+hrandfield", "+eval"].contains(&word.as_str()) {
                continue;
            }
            let name = word.replace('+', "without-");
            assert_eq!(server.cli(&looker(&name, &word)), "OK");
            let found_without = names(&connect(&name).await.unwrap(), "lock:*").await;
            assert_ne!(found_without.ok().as_ref(), Some(&found), "{flavour:?}: {word} is superfluous");
        }
    }
}
