//! URLs that cannot work, and what their errors say.

use leasehold::Client;
use leasehold_testkit::server::Flavour;
use leasehold_testkit::watched::{PASSWORD, SENTINEL_PASSWORD, Watched};

use crate::{SECOND, alone};

/// The text of the error of this URL; `passes`: whether trying again may help.
async fn the_error(url: String, passes: bool) -> String {
    let begun = leasehold_testkit::healthy::Stopwatch::start();
    let error = Client::connect(url).await.expect_err("there is no primary by this URL");
    assert_eq!(error.is_unavailable(), passes, "{error}");
    let error = error.to_string();
    let took = begun.elapsed();
    assert!(took < SECOND * 3, "{error}, after {took:?}");
    assert!(!error.contains(PASSWORD) && !error.contains(SENTINEL_PASSWORD), "{error}");
    error
}

async fn each_mistake_has_an_error_of_its_own(flavour: Flavour) {
    let _alone = alone().await;
    let watched = Watched::start(flavour);
    let (url, free) = (watched.url(), leasehold_testkit::port::free());

    let error = the_error(url.replace("/main?", "/other?"), false).await;
    assert!(
        error.contains("the sentinels know no primary of that name: check the name in the URL"),
        "{error}"
    );

    let error = the_error(url.replace(SENTINEL_PASSWORD, "wrong"), false).await;
    assert!(error.contains("the user or the password is wrong"), "{error}");
    assert!(error.contains("no sentinel confirms where the primary is"), "{error}");

    let error = the_error(url.replace(&format!(":{PASSWORD}@"), ":wrong@"), false).await;
    assert!(error.contains("the user or the password is wrong") && !error.contains("no sentinel"), "{error}");

    let nowhere = format!("redis+sentinel://127.0.0.1:{free}/main");
    let error = the_error(nowhere, true).await;
    assert!(
        error.contains(&format!("127.0.0.1:{free}: ")) && error.contains("connection refused"),
        "{error}"
    );

    let server =
        format!("redis+sentinel://127.0.0.1:{}/main?sentinel_password={PASSWORD}", watched.servers[0].port());
    let error = the_error(server, false).await;
    assert!(error.contains("it is not a Sentinel"), "{error}");

    let sentinel = format!("redis://:{SENTINEL_PASSWORD}@127.0.0.1:{}", watched.sentinels[0].port());
    let error = the_error(sentinel, false).await;
    assert!(
        error.contains("it is a Sentinel") && error.contains("redis+sentinel://HOST:PORT/NAME"),
        "{error}"
    );
}

on_both! {
    each_mistake_has_an_error_of_its_own
}
