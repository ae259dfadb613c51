//! A connection to the server: one call at a time, or several in one go, whose replies follow in the same order.
//!
//! A call that is dropped leaves the connection out of step: then the connection has to be dropped, too.

use std::collections::{BTreeMap, VecDeque};
use std::io;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::address::Address;
use super::login::{self, Greeting, SHA2};
use super::packets::{self, Malformed, SqlError, Value};
use crate::credentials::{Credentials, Provider};
use crate::error::ServerError;

/// A connection whose user is logged in.
#[derive(Debug)]
pub(super) struct Connection {
    socket: TcpStream,
    received: VecDeque<u8>,
    /// By their text.
    statements: BTreeMap<String, u32>,
    /// No call is running, nor has one been dropped.
    is_idle: bool,
    /// Its id on the server.
    pub(super) id: u32,
    pub(super) is_mariadb: bool,
}

/// A statement, and the texts in place of its question marks.
#[derive(Debug, Clone)]
pub(super) struct Call<'a> {
    sql: &'a str,
    texts: Vec<&'a [u8]>,
}

impl<'a> Call<'a> {
    pub(super) fn new(sql: &'a str, texts: impl IntoIterator<Item = &'a str>) -> Self {
        Self { sql, texts: texts.into_iter().map(str::as_bytes).collect() }
    }
}

/// The rows of a reply, or an error in their place.
pub(super) type Rows = Result<Vec<Vec<Value>>, SqlError>;

/// How often a release is repeated after an interruption.
const TRIES: usize = 3;

const QUIT: u8 = 0x01;
const PING: u8 = 0x0e;
const PREPARE: u8 = 0x16;

impl Connection {
    /// Connects, and logs in.
    pub(super) async fn open(address: &Address, provider: Option<&Provider>) -> Result<Self, ServerError> {
        let Credentials { user, password, .. } = address.login.credentials(provider).await?;
        let socket = TcpStream::connect((address.host.as_str(), address.port)).await;
        let socket = socket.map_err(|error| lost(&error))?;
        socket.set_nodelay(true).map_err(|error| lost(&error))?;
        let (received, statements) = (VecDeque::new(), BTreeMap::new());
        let mut connection = Self { socket, received, statements, is_idle: false, id: 0, is_mariadb: false };
        let (_, packet) = connection.packet().await?;
        packets::checked(&packet)?.map_err(refused)?;
        let greeting = Greeting::parse(&packet)?;
        (connection.id, connection.is_mariadb) = (greeting.id, greeting.is_mariadb());
        let (user, password) = (user.unwrap_or_default(), password.unwrap_or_default());
        connection.log_in(&greeting, &user, &password, address.database.as_deref()).await?;
        connection.is_idle = true;
        Ok(connection)
    }

    async fn log_in(
        &mut self,
        greeting: &Greeting,
        user: &str,
        password: &str,
        database: Option<&str>,
    ) -> Result<(), ServerError> {
        const SWITCH: u8 = 0xfe;
        const MORE: u8 = 0x01;
        const FAST: u8 = 0x03;
        // A server whose default is not known here may let this user use another plugin.
        let (plugin, proof) = match login::proof(&greeting.plugin, password, &greeting.nonce) {
            Some(proof) => (greeting.plugin.as_str(), proof),
            None => (SHA2, Vec::new()),
        };
        self.send(1, &login::reply(user, &proof, plugin, database)).await?;
        loop {
            let (number, packet) = self.packet().await?;
            let mut reader = packets::checked(&packet)?.map_err(refused)?;
            match reader.byte()? {
                0 => return Ok(()),
                SWITCH => {
                    let plugin = String::from_utf8_lossy(reader.until_nul()).into_owned();
                    let nonce = reader.rest();
                    let nonce = nonce.strip_suffix(&[0]).unwrap_or(nonce);
                    let proof = login::proof(&plugin, password, nonce);
                    let proof = proof.ok_or_else(|| login::unknown(&plugin))?;
                    self.send(number.wrapping_add(1), &proof).await?;
                }
                // The server knows the password, and says so before it says that all is well.
                MORE if reader.byte()? == FAST => {}
                MORE => return Err(login::wants_password()),
                _ => return Err(Malformed.into()),
            }
        }
    }

    /// Makes several calls at once, and returns their replies in the same order.
    ///
    /// # Errors
    ///
    /// When the connection is of no use any more.
    pub(super) async fn run(&mut self, calls: &[Call<'_>]) -> Result<Vec<Rows>, ServerError> {
        self.is_idle = false;
        let mut statements = Vec::with_capacity(calls.len());
        for call in calls {
            statements.push(self.prepare(call.sql).await?);
        }
        let mut bytes = Vec::new();
        for (call, statement) in calls.iter().zip(&statements) {
            if let Ok(statement) = statement {
                packets::put(&mut bytes, 0, &packets::execute(*statement, &call.texts));
            }
        }
        self.write(&bytes).await?;
        let mut replies = Vec::with_capacity(calls.len());
        for statement in statements {
            replies.push(match statement {
                Ok(_) => self.rows().await?,
                Err(error) => Err(error),
            });
        }
        self.is_idle = true;
        Ok(replies)
    }

    /// Makes one call.
    pub(super) async fn one(&mut self, call: Call<'_>) -> Result<Rows, ServerError> {
        let reply = self.run(std::slice::from_ref(&call)).await?;
        reply.into_iter().next().ok_or_else(|| Malformed.into())
    }

    /// Releases locks after an interruption: what was interrupted may have been carried out or not, the release of them included.
    ///
    /// # Errors
    ///
    /// When it is interrupted again and again. Then the connection has to be dropped, which frees them.
    pub(super) async fn release_after(
        &mut self,
        interruption: &SqlError,
        release: Call<'_>,
    ) -> Result<(), ServerError> {
        for _ in 0..TRIES {
            if self.one(release.clone()).await?.is_ok() {
                return Ok(());
            }
        }
        Err(refused(interruption.clone()))
    }

    /// A round trip, after which the server waits for the next call as long as after any other.
    pub(super) async fn ping(&mut self) -> Result<(), ServerError> {
        self.is_idle = false;
        self.send(0, &[PING]).await?;
        let (_, packet) = self.packet().await?;
        self.is_idle = true;
        packets::checked(&packet)?.map(drop).map_err(refused)
    }

    /// Resolves when the server has ended the connection, while no call is running.
    pub(super) async fn ended(&mut self) -> ServerError {
        loop {
            if let Err(error) = self.socket.readable().await {
                return lost(&error);
            }
            let mut bytes = [0; 512];
            match self.socket.try_read(&mut bytes) {
                Ok(0) => return closed(),
                Ok(length) => {
                    // Nothing was asked for: this is why the connection ends.
                    self.received.extend(&bytes[..length]);
                    let packet = packets::next(&mut self.received).ok().flatten();
                    let error = packet.and_then(|(_, packet)| packets::checked(&packet).ok()?.err());
                    return error.map_or_else(closed, refused);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return lost(&error),
            }
        }
    }

    /// The id of a statement, which is prepared if it is not yet.
    pub(super) async fn prepare(&mut self, sql: &str) -> Result<Result<u32, SqlError>, ServerError> {
        if let Some(id) = self.statements.get(sql) {
            return Ok(Ok(*id));
        }
        let mut payload = vec![PREPARE];
        payload.extend_from_slice(sql.as_bytes());
        self.send(0, &payload).await?;
        let (_, packet) = self.packet().await?;
        if let Err(error) = packets::checked(&packet)? {
            return Ok(Err(error));
        }
        let (id, columns, parameters) = packets::prepared(&packet)?;
        for described in [parameters, columns].into_iter().filter(|described| *described > 0) {
            for _ in 0..=described {
                // A statement that is interrupted ends with an error wherever it is.
                let (_, packet) = self.packet().await?;
                if let Err(error) = packets::checked(&packet)? {
                    return Ok(Err(error));
                }
            }
        }
        self.statements.insert(sql.to_owned(), id);
        Ok(Ok(id))
    }

    /// The rows of the next reply.
    async fn rows(&mut self) -> Result<Rows, ServerError> {
        let (_, packet) = self.packet().await?;
        let count = match packets::checked(&packet)? {
            Err(error) => return Ok(Err(error)),
            Ok(_) if packets::is_ok(&packet) => return Ok(Ok(Vec::new())),
            Ok(mut reader) => reader.length()?,
        };
        let mut columns = Vec::new();
        for _ in 0..count {
            let (_, packet) = self.packet().await?;
            if let Err(error) = packets::checked(&packet)? {
                return Ok(Err(error));
            }
            columns.push(packets::column(&packet)?);
        }
        let (_, end) = self.packet().await?;
        if let Err(error) = packets::checked(&end)? {
            return Ok(Err(error));
        }
        if !packets::is_end(&end) {
            return Err(Malformed.into());
        }
        let mut rows = Vec::new();
        loop {
            let (_, packet) = self.packet().await?;
            if packets::is_end(&packet) {
                return Ok(Ok(rows));
            }
            if let Err(error) = packets::checked(&packet)? {
                return Ok(Err(error));
            }
            rows.push(packets::row(&packet, &columns)?);
        }
    }

    /// The next packet, and its number.
    async fn packet(&mut self) -> Result<(u8, Vec<u8>), ServerError> {
        loop {
            if let Some(packet) = packets::next(&mut self.received)? {
                return Ok(packet);
            }
            let mut bytes = [0; 4096];
            match self.socket.read(&mut bytes).await {
                Ok(0) => return Err(closed()),
                Ok(length) => self.received.extend(&bytes[..length]),
                Err(error) => return Err(lost(&error)),
            }
        }
    }

    async fn send(&mut self, number: u8, payload: &[u8]) -> Result<(), ServerError> {
        let mut bytes = Vec::new();
        packets::put(&mut bytes, number, payload);
        self.write(&bytes).await
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), ServerError> {
        self.socket.write_all(bytes).await.map_err(|error| lost(&error))
    }
}

impl Drop for Connection {
    /// Says goodbye, if there is room for it. Not while a call is running: the server would not notice that its client is gone.
    fn drop(&mut self) {
        if self.is_idle {
            let mut bytes = Vec::new();
            packets::put(&mut bytes, 0, &[QUIT]);
            // An error means that it is closed already.
            let _ = self.socket.try_write(&bytes);
        }
    }
}

/// The only number of a reply.
pub(super) fn number(rows: &Rows) -> Option<u64> {
    match rows.as_ref().ok()?.first()?.first()? {
        Value::Number(number) => Some(*number),
        _ => None,
    }
}

/// What an error of the server means for a caller: that of a login, and every other that is not of one lock.
pub(super) fn refused(SqlError { code, text }: SqlError) -> ServerError {
    const ACCESS: [u16; 8] = [1044, 1045, 1049, 1130, 1142, 1227, 1251, 1698];
    if ACCESS.contains(&code) { ServerError::Denied(text) } else { ServerError::Unavailable(text) }
}

fn closed() -> ServerError {
    ServerError::Unavailable("the server has closed the connection".into())
}

fn lost(error: &io::Error) -> ServerError {
    ServerError::Unavailable(error.to_string())
}

/// A server whose replies are written down.
#[cfg(test)]
pub(super) mod script {
    use tokio::net::TcpListener;

    use super::*;

    /// The packets that reply to one command.
    pub(in super::super) type Reply = &'static [&'static [u8]];

    pub(in super::super) const INTERRUPTED: Reply = &[b"\xff\x25\x05#70100Query execution was interrupted"];
    pub(in super::super) const PREPARED: Reply = &[b"\0\x01\0\0\0\0\0\0\0\0\0\0"];
    pub(in super::super) const ONE: Reply = &[b"\x01", COLUMN, END_OF_PART, b"\0\0\x01\0\0\0", END_OF_PART];
    pub(in super::super) const NULL: Reply = &[b"\x01", COLUMN, END_OF_PART, b"\0\x04", END_OF_PART];
    const COLUMN: &[u8] = b"\0\0\0\0\0\0\x0c\x3f\0\x01\0\0\0\x03";
    const END_OF_PART: &[u8] = b"\xfe\0\0\x02\0";

    /// A connection to a server that gives these replies, whatever the commands are, and then ends it.
    pub(in super::super) async fn connection(replies: &'static [Reply]) -> Connection {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        tokio::spawn(async move {
            let mut received = VecDeque::new();
            for reply in replies {
                while packets::next(&mut received).unwrap().is_none() {
                    let mut bytes = [0; 512];
                    match server.read(&mut bytes).await {
                        Ok(length) if length > 0 => received.extend(&bytes[..length]),
                        _ => return,
                    }
                }
                let mut bytes = Vec::new();
                for packet in *reply {
                    packets::put(&mut bytes, 1, packet);
                }
                server.write_all(&bytes).await.unwrap();
            }
        });
        let (received, statements) = (VecDeque::new(), BTreeMap::new());
        Connection { socket, received, statements, is_idle: true, id: 7, is_mariadb: true }
    }
}
