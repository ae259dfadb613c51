//! Lazy clients, pings and the status where there is no server to wait for.

use std::fs;
use std::time::Duration;

use leasehold::{Client, ConnectError, PingError, ServerError, Status};
use leasehold_testkit::bench::{Backend as _, Files};
use leasehold_testkit::waits::on_a_thread;

#[test]
fn a_lazy_client_without_a_server_is_connected_at_once() {
    let files = Files::new();
    for (url, server) in [("memory:", None), (files.url(), Some(files.url()))] {
        let client = Client::connect(url).lazy().unwrap();
        let Status { connected, server: of, last_error, .. } = client.status();
        assert_eq!((connected, of.as_deref(), last_error), (true, server, None), "{url}");
        client.lock("n").try_acquire().block().unwrap().expect("a free lock").release().block().unwrap();
        client.ping().block().unwrap();
    }
}

/// On a runtime of its own: if the client waited for a task there, neither would go on, and no limit would end that.
#[tokio::test]
async fn a_lazy_client_is_made_on_a_runtime_of_one_thread() {
    let files = Files::new();
    for url in ["memory:", files.url(), "sim:lazy", "example:lazy"].map(str::to_owned) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let using = async {
            let client = Client::connect(url).lazy().unwrap();
            client.lock("n").acquire().await.unwrap().release().await.unwrap();
        };
        let used = on_a_thread(move || runtime.block_on(using));
        tokio::time::timeout(Duration::from_secs(15), used).await.expect("it is made without waiting");
    }
}

#[tokio::test(start_paused = true)]
async fn the_status_of_memory_counts_from_the_making_of_the_client() {
    let client = Client::connect("memory:").await.unwrap();
    tokio::time::sleep(Duration::from_secs(7)).await;
    let status = client.status();
    assert_eq!((status.connected, status.server), (true, None));
    assert_eq!(status.lasting, Duration::from_secs(7));
    assert_eq!(client.ping().await, Ok(Duration::ZERO));
}

#[test]
fn a_lazy_client_of_a_directory_that_cannot_be_made_is_refused() {
    let files = Files::new();
    fs::create_dir(files.path()).unwrap();
    let file = files.path().join("a file");
    fs::write(&file, "").unwrap();
    for path in [file.clone(), file.join("below")] {
        let url = format!("file://{}", path.display()).replace(' ', "%20");
        let error = Client::connect(&url).lazy().unwrap_err();
        assert!(matches!(error, ConnectError::Server { cause: ServerError::Denied(_), .. }), "{error:?}");
        assert_eq!(error.server(), Some(&*url));
    }
}

/// Root may write everywhere, so a directory that may not be written is not among these.
#[tokio::test]
async fn own_319_a_ping_of_files_checks_the_directory() {
    let files = Files::new();
    let client = Client::connect(files.url()).await.unwrap();
    client.ping().await.unwrap();
    let elsewhere = files.path().with_extension("elsewhere");
    fs::rename(files.path(), &elsewhere).unwrap();
    let missing = client.ping().await.unwrap_err();
    fs::write(files.path(), "").unwrap();
    let no_directory = client.ping().await.unwrap_err();
    fs::remove_file(files.path()).unwrap();
    fs::rename(&elsewhere, files.path()).unwrap();
    client.ping().await.unwrap();
    for (error, why) in [(missing, "No such file"), (no_directory, "is not a directory")] {
        let PingError::Server { cause: ServerError::Denied(text), .. } = &error else { panic!("{error:?}") };
        assert!(text.contains(why), "{text}");
        assert_eq!(error.server(), Some(files.url()));
    }
}
