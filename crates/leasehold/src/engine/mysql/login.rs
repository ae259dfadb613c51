//! The login: the greeting of the server, and the reply that proves the password without sending it.

use sha2::{Digest, Sha256};

use super::packets::{Malformed, Reader, put_text};
use crate::error::ServerError;

/// What the server says first.
#[derive(Debug)]
pub(super) struct Greeting {
    /// The id of the connection.
    pub(super) id: u32,
    pub(super) version: String,
    pub(super) plugin: String,
    pub(super) nonce: Vec<u8>,
}

const LONG_PASSWORD: u32 = 1;
const CONNECT_WITH_DB: u32 = 1 << 3;
const PROTOCOL_41: u32 = 1 << 9;
const TRANSACTIONS: u32 = 1 << 13;
const SECURE_CONNECTION: u32 = 1 << 15;
const PLUGIN_AUTH: u32 = 1 << 19;
/// `utf8mb4_general_ci`, which both servers have.
const CHARACTER_SET: u8 = 45;
const LONGEST_PACKET: u32 = 1 << 24;

pub(super) const NATIVE: &str = "mysql_native_password";
pub(super) const SHA2: &str = "caching_sha2_password";

impl Greeting {
    pub(super) fn parse(packet: &[u8]) -> Result<Self, Malformed> {
        const VERSION: u8 = 10;
        let mut reader = Reader::new(packet);
        if reader.byte()? != VERSION {
            return Err(Malformed);
        }
        let version = String::from_utf8_lossy(reader.until_nul()).into_owned();
        let id = u32::try_from(reader.number(4)?).map_err(|_| Malformed)?;
        let mut nonce = reader.bytes(8)?.to_vec();
        reader.byte()?;
        let low = reader.number(2)?;
        reader.bytes(3)?;
        let capabilities = low | reader.number(2)? << 16;
        if capabilities & u64::from(PROTOCOL_41 | SECURE_CONNECTION | PLUGIN_AUTH)
            != u64::from(PROTOCOL_41 | SECURE_CONNECTION | PLUGIN_AUTH)
        {
            return Err(Malformed);
        }
        let length = usize::from(reader.byte()?);
        reader.bytes(10)?;
        nonce.extend_from_slice(reader.bytes(length.saturating_sub(8).max(13))?);
        // It ends with a NUL.
        nonce.truncate(20);
        let plugin = String::from_utf8_lossy(reader.until_nul()).into_owned();
        Ok(Self { id, version, plugin, nonce })
    }

    pub(super) fn is_mariadb(&self) -> bool {
        self.version.contains("MariaDB")
    }
}

/// The reply to a greeting.
pub(super) fn reply(user: &str, proof: &[u8], plugin: &str, database: Option<&str>) -> Vec<u8> {
    let mut capabilities = LONG_PASSWORD | PROTOCOL_41 | TRANSACTIONS | SECURE_CONNECTION | PLUGIN_AUTH;
    if database.is_some() {
        capabilities |= CONNECT_WITH_DB;
    }
    let mut payload = capabilities.to_le_bytes().to_vec();
    payload.extend_from_slice(&LONGEST_PACKET.to_le_bytes());
    payload.push(CHARACTER_SET);
    payload.resize(payload.len() + 23, 0);
    put_with_nul(&mut payload, user);
    put_text(&mut payload, proof);
    if let Some(database) = database {
        put_with_nul(&mut payload, database);
    }
    put_with_nul(&mut payload, plugin);
    payload
}

fn put_with_nul(into: &mut Vec<u8>, text: &str) {
    into.extend(text.bytes().filter(|byte| *byte != 0));
    into.push(0);
}

/// What proves a password to a plugin, without telling it to others who read along; `None` for a plugin that is not known.
pub(super) fn proof(plugin: &str, password: &str, nonce: &[u8]) -> Option<Vec<u8>> {
    match plugin {
        NATIVE | SHA2 if password.is_empty() => Some(Vec::new()),
        NATIVE => {
            let sha1 = |parts: &[&[u8]]| {
                let mut hash = sha1_smol::Sha1::new();
                for part in parts {
                    hash.update(part);
                }
                hash.digest().bytes()
            };
            let once = sha1(&[password.as_bytes()]);
            Some(xor(&once, &sha1(&[nonce, &sha1(&[&once])])))
        }
        SHA2 => {
            let once = Sha256::digest(password.as_bytes());
            let twice = Sha256::digest(once);
            let mixed = Sha256::new().chain_update(twice).chain_update(nonce).finalize();
            Some(xor(&once, &mixed))
        }
        _ => None,
    }
}

fn xor(one: &[u8], other: &[u8]) -> Vec<u8> {
    one.iter().zip(other).map(|(one, other)| one ^ other).collect()
}

/// The error for a plugin that is not known.
pub(super) fn unknown(plugin: &str) -> ServerError {
    ServerError::Denied(format!(
        "the server wants the password by `{plugin}`, which is not supported: use a user with {NATIVE} or {SHA2}"
    ))
}

/// The error for a server that wants to read the password itself.
pub(super) fn wants_password() -> ServerError {
    ServerError::Denied(format!(
        "the server wants the password itself ({SHA2}), which is not sent without TLS: log this user in once by a client with \
         TLS, after which the server knows it until it restarts, or use a user with {NATIVE}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        use std::fmt::Write as _;
        bytes.iter().fold(String::new(), |mut text, byte| {
            write!(text, "{byte:02x}").unwrap();
            text
        })
    }

    /// The expected values were computed by another program, from the descriptions of the plugins.
    #[test]
    fn a_password_is_proved_without_being_sent() {
        let nonce: Vec<u8> = (1..=20).collect();
        let proved = |plugin| proof(plugin, "secret", &nonce).map(|proof| hex(&proof));
        assert_eq!(proved(NATIVE).unwrap(), "b32bb3a583e1340c0a1108d58b1be49781ad8c2f");
        assert_eq!(proved(SHA2).unwrap(), "746ebe205d56a0707acb3e796e834e0dd7b1d61743b26bd5202c7a623230c7c9");
        assert_eq!(proof(NATIVE, "", &nonce), Some(Vec::new()));
        assert_eq!(proved("mysql_clear_password"), None);
    }

    #[test]
    fn a_greeting_is_read_and_no_part_of_it_taken_for_the_whole() {
        let mut packet = b"\x0a5.5.5-10.11.19-MariaDB\0\x07\0\0\0abcdefgh\0".to_vec();
        packet.extend_from_slice(&[0xff, 0xf7, 45, 2, 0, 0xff, 0x81, 21]);
        packet.extend_from_slice(&[0; 10]);
        packet.extend_from_slice(b"ijklmnopqrst\0mysql_native_password\0");
        let greeting = Greeting::parse(&packet).unwrap();
        assert_eq!((greeting.id, greeting.plugin.as_str(), greeting.is_mariadb()), (7, NATIVE, true));
        assert_eq!(greeting.nonce, b"abcdefghijklmnopqrst");
        for length in 0..packet.len() - NATIVE.len() - 1 {
            assert!(Greeting::parse(&packet[..length]).is_err(), "{length}");
        }
    }
}
