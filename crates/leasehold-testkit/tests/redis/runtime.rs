//! Runtimes without some of the usual drivers.

use leasehold::Client;
use leasehold_testkit::server::{Flavour, Server};

use crate::SECOND;

/// The sockets are on the client's own thread, so the runtime's I/O driver is not needed.
#[test]
fn locks_work_on_a_runtime_without_an_io_driver() {
    let server = Server::start(Flavour::Redis);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let client = Client::connect(server.url()).await.unwrap();
        let lock = client.lock("n");
        let guard = lock.acquire().await.unwrap();
        let waiter = tokio::spawn(lock.acquire().wait(SECOND * 10).into_future());
        while !guard.is_held() || lock.try_acquire().await.unwrap().is_some() {}
        guard.release().await.unwrap();
        waiter.await.unwrap().unwrap().release().await.unwrap();
    });
    assert_eq!(crate::keys(&server), [""; 0]);
}
