//! The parts of packets: the protocol of MySQL's clients, as far as locks need it.

use std::collections::VecDeque;

use crate::error::ServerError;

/// The first byte of a packet that ends a part of a reply, of one that says that all is well, and of an error.
const END: u8 = 0xfe;
const OK: u8 = 0x00;
const ERROR: u8 = 0xff;
/// A packet of this length would have a second part. No reply to a request of this library is so long.
const LONGEST: usize = 0xff_ffff;
/// The first byte of a length that follows in two, three or eight bytes; and of a value that is NULL.
const TWO: u8 = 0xfc;
const THREE: u8 = 0xfd;
const EIGHT: u8 = 0xfe;
const NULL: u8 = 0xfb;

/// A value of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    Null,
    Number(u64),
    Text(Vec<u8>),
}

/// An error in place of a reply: nothing is wrong with the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SqlError {
    pub(super) code: u16,
    pub(super) text: String,
}

/// The bytes of a packet that are still to be read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a>(&'a [u8]);

/// A packet that is not as the protocol says.
#[derive(Debug)]
pub(super) struct Malformed;

impl From<Malformed> for ServerError {
    fn from(_: Malformed) -> Self {
        Self::Unavailable("the server does not speak the protocol of MySQL: is it another port?".into())
    }
}

type Read<T> = Result<T, Malformed>;

impl<'a> Reader<'a> {
    pub(super) fn new(packet: &'a [u8]) -> Self {
        Self(packet)
    }

    pub(super) fn bytes(&mut self, length: usize) -> Read<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(bytes)
    }

    /// An unsigned number of so many bytes, the lowest first.
    pub(super) fn number(&mut self, length: usize) -> Read<u64> {
        Ok(self.bytes(length)?.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    pub(super) fn byte(&mut self) -> Read<u8> {
        Ok(self.bytes(1)?[0])
    }

    /// The bytes before the next NUL, or all if there is none.
    pub(super) fn until_nul(&mut self) -> &'a [u8] {
        let end = self.0.iter().position(|byte| *byte == 0);
        let text = &self.0[..end.unwrap_or(self.0.len())];
        self.0 = &self.0[end.map_or(self.0.len(), |end| end + 1)..];
        text
    }

    pub(super) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    /// A number whose first byte says how long it is.
    pub(super) fn length(&mut self) -> Read<u64> {
        match self.byte()? {
            TWO => self.number(2),
            THREE => self.number(3),
            EIGHT => self.number(8),
            NULL | ERROR => Err(Malformed),
            small => Ok(small.into()),
        }
    }

    /// A text behind its length.
    pub(super) fn text(&mut self) -> Read<&'a [u8]> {
        let length = usize::try_from(self.length()?).map_err(|_| Malformed)?;
        self.bytes(length)
    }
}

/// Takes the first packet from what was received, if it is complete, and its number.
pub(super) fn next(received: &mut VecDeque<u8>) -> Read<Option<(u8, Vec<u8>)>> {
    if received.len() < 4 {
        return Ok(None);
    }
    let length = usize::from(received[0]) | usize::from(received[1]) << 8 | usize::from(received[2]) << 16;
    if length == LONGEST {
        return Err(Malformed);
    }
    if received.len() < 4 + length {
        return Ok(None);
    }
    let number = received[3];
    received.drain(..4);
    Ok(Some((number, received.drain(..length).collect())))
}

/// Adds a packet to what is to be sent.
pub(super) fn put(into: &mut Vec<u8>, number: u8, payload: &[u8]) {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_le_bytes();
    into.extend_from_slice(&length[..3]);
    into.push(number);
    into.extend_from_slice(payload);
}

/// Adds a text behind its length.
pub(super) fn put_text(into: &mut Vec<u8>, text: &[u8]) {
    let length = text.len() as u64;
    match u8::try_from(length) {
        Ok(short) if short < NULL => into.push(short),
        _ => {
            into.push(EIGHT);
            into.extend_from_slice(&length.to_le_bytes());
        }
    }
    into.extend_from_slice(text);
}

/// What a packet is that may be an error.
pub(super) fn checked(packet: &[u8]) -> Read<Result<Reader<'_>, SqlError>> {
    let mut reader = Reader::new(packet);
    if packet.first() != Some(&ERROR) {
        return Ok(Ok(reader));
    }
    reader.byte()?;
    let code = u16::try_from(reader.number(2)?).map_err(|_| Malformed)?;
    let text = reader.rest();
    // Before the login there is no state before the text.
    let text = if text.first() == Some(&b'#') { text.get(6..).unwrap_or_default() } else { text };
    Ok(Err(SqlError { code, text: String::from_utf8_lossy(text).into_owned() }))
}

pub(super) fn is_ok(packet: &[u8]) -> bool {
    packet.first() == Some(&OK)
}

/// Whether it ends the columns or the rows of a reply.
pub(super) fn is_end(packet: &[u8]) -> bool {
    packet.first() == Some(&END) && packet.len() < 9
}

/// The statement that a reply to its preparation names: its id, and how many columns and parameters it has.
pub(super) fn prepared(packet: &[u8]) -> Read<(u32, u64, u64)> {
    let mut reader = Reader::new(packet);
    if reader.byte()? != OK {
        return Err(Malformed);
    }
    let id = u32::try_from(reader.number(4)?).map_err(|_| Malformed)?;
    Ok((id, reader.number(2)?, reader.number(2)?))
}

/// The type of a column, as its description says.
pub(super) fn column(packet: &[u8]) -> Read<u8> {
    let mut reader = Reader::new(packet);
    for _ in 0..6 {
        reader.text()?;
    }
    // The length of what follows, the character set and the width.
    reader.bytes(7)?;
    reader.byte()
}

/// The values of a row in columns of these types.
pub(super) fn row(packet: &[u8], columns: &[u8]) -> Read<Vec<Value>> {
    let mut reader = Reader::new(packet);
    if reader.byte()? != OK {
        return Err(Malformed);
    }
    let nulls = reader.bytes((columns.len() + 9) / 8)?;
    let value = |(number, column): (usize, &u8)| {
        let bit = number + 2;
        if nulls[bit / 8] >> (bit % 8) & 1 == 1 {
            return Ok(Value::Null);
        }
        Ok(match column {
            // From TINY to LONGLONG.
            1 => Value::Number(reader.number(1)?),
            2 | 13 => Value::Number(reader.number(2)?),
            3 | 9 => Value::Number(reader.number(4)?),
            8 => Value::Number(reader.number(8)?),
            6 => Value::Null,
            // DECIMAL, VARCHAR, and from NEWDECIMAL to STRING.
            0 | 15 | 245..=254 => Value::Text(reader.text()?.to_vec()),
            _ => return Err(Malformed),
        })
    };
    columns.iter().enumerate().map(value).collect()
}

/// The call of a prepared statement with these texts.
pub(super) fn execute(statement: u32, texts: &[&[u8]]) -> Vec<u8> {
    const EXECUTE: u8 = 0x17;
    const VAR_STRING: u8 = 0xfd;
    let mut payload = vec![EXECUTE];
    payload.extend_from_slice(&statement.to_le_bytes());
    // No cursor, once.
    payload.extend_from_slice(&[0, 1, 0, 0, 0]);
    if !texts.is_empty() {
        payload.resize(payload.len() + texts.len().div_ceil(8), 0);
        payload.push(1);
        payload.extend([VAR_STRING, 0].repeat(texts.len()));
        for text in texts {
            put_text(&mut payload, text);
        }
    }
    payload
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_taken_when_it_is_complete() {
        let mut sent = Vec::new();
        put(&mut sent, 0, b"one");
        put(&mut sent, 1, b"");
        let mut received = VecDeque::new();
        for (number, byte) in sent.iter().enumerate() {
            let is_complete = number == 7 || number == 11;
            assert_eq!(next(&mut received).unwrap().is_some(), is_complete && number != 11, "{number}");
            received.push_back(*byte);
        }
        assert_eq!(next(&mut received).unwrap(), Some((1, Vec::new())));
        assert_eq!(next(&mut received).unwrap(), None);
    }

    #[test]
    fn a_row_has_numbers_texts_and_nulls() {
        let packet = [0, 0b0001_0000, 1, 0xff, 0, 0, 0, 0, 0, 0, 0, 3, b'a', b'b', b'c'];
        let row = row(&packet, &[1, 8, 8, 253]).unwrap();
        let expected = [Value::Number(1), Value::Number(255), Value::Null, Value::Text(b"abc".to_vec())];
        assert_eq!(row, expected);
    }

    #[test]
    fn no_prefix_of_a_packet_is_read_as_the_whole() {
        let packet = [0, 0, 1, 5, 0, 0, 0, 0, 0, 0, 0];
        assert!(row(&packet, &[1, 8]).is_ok());
        for length in 0..packet.len() {
            assert!(row(&packet[..length], &[1, 8]).is_err(), "{length}");
        }
        assert!(checked(&[0xff, 1]).is_err() && column(b"\x03def").is_err() && prepared(&[0, 1]).is_err());
        assert!(next(&mut VecDeque::from([0xff, 0xff, 0xff, 0])).is_err());
    }

    #[test]
    fn an_error_has_its_code_and_its_text_with_and_without_a_state() {
        for packet in [&b"\xff\x15\x04#28000Access denied"[..], b"\xff\x15\x04Access denied"] {
            let error = checked(packet).unwrap().unwrap_err();
            assert_eq!(error, SqlError { code: 1045, text: "Access denied".into() });
        }
    }
}
