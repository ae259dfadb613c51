//! Free ports of the loopback interface.

use std::{
    hash::{BuildHasher as _, Hasher as _, RandomState},
    net::{Ipv4Addr, TcpListener},
};

/// Below those that the system assigns to outgoing connections.
///
/// So no client can have taken a port when its former listener opens it again.
const RANGE: std::ops::Range<u64> = 20_000..32_768;

/// A listener on a port that no other process listens on.
///
/// # Panics
///
/// When there is none.
#[must_use]
pub fn listen() -> TcpListener {
    (0..1000)
        .find_map(|_| {
            let random = RandomState::new().build_hasher().finish() % (RANGE.end - RANGE.start);
            let port = u16::try_from(RANGE.start + random).expect("the range ends before the ports do");
            TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()
        })
        .expect("one of a thousand ports is free")
}

/// A port that no process listens on at this moment.
///
/// # Panics
///
/// When there is none.
#[must_use]
pub fn free() -> u16 {
    of(&listen())
}

/// The port of a listener.
///
/// # Panics
///
/// When the system does not know it.
#[must_use]
pub fn of(listener: &TcpListener) -> u16 {
    listener.local_addr().expect("a listener has an address").port()
}
