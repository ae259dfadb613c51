//! One request on a connection of its own.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The status of the reply.
pub(crate) async fn get(service: SocketAddr, path: &str) -> io::Result<u16> {
    reply(send("GET", service, path).await?).await
}

/// The status of the reply.
pub(crate) async fn post(service: SocketAddr, path: &str) -> io::Result<u16> {
    reply(send("POST", service, path).await?).await
}

/// Sends the request, and closes the connection after this long without a look at the reply.
pub(crate) async fn hang_up(service: SocketAddr, path: &str, patience: Duration) -> io::Result<()> {
    let connection = send("POST", service, path).await?;
    tokio::time::sleep(patience).await;
    drop(connection);
    Ok(())
}

async fn send(method: &str, service: SocketAddr, path: &str) -> io::Result<TcpStream> {
    let mut connection = TcpStream::connect(service).await?;
    let request = format!("{method} {path} HTTP/1.1\r\nhost: {service}\r\nconnection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).await?;
    Ok(connection)
}

async fn reply(mut connection: TcpStream) -> io::Result<u16> {
    let mut reply = Vec::new();
    connection.read_to_end(&mut reply).await?;
    let status = reply.split(|byte| *byte == b' ').nth(1).and_then(|status| std::str::from_utf8(status).ok());
    status.and_then(|status| status.parse().ok()).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}
