//! The protocol of Redis: how commands are written and values are read, and a blocking connection.

mod connection;

use std::{fmt, io, str};

pub use connection::Connection;

/// A value as a server sends it.
///
/// It compares with a `&str` and with an `i64`, so that a test reads
/// `assert_eq!(server.cli(&["GET", "k"]), "v")`.
#[derive(Clone, PartialEq, Eq)]
pub enum Value {
    /// Nothing, in whichever of its spellings.
    Nil,
    /// An integer, or a boolean as 0 or 1.
    Int(i64),
    /// A simple string, a double or a big number, as the server wrote it.
    Text(String),
    /// A string of bytes.
    Bulk(Vec<u8>),
    /// An error.
    Error(String),
    /// An array or a set, or a map as keys and values in turn.
    Array(Vec<Value>),
    /// A push: a value that is no reply, on a connection with RESP3.
    Push(Vec<Value>),
}

impl Value {
    /// The text of a string, if it is one.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Bulk(bytes) => str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    /// The elements of an array or a push; of anything else, none.
    #[must_use]
    pub fn elements(&self) -> &[Value] {
        match self {
            Self::Array(elements) | Self::Push(elements) => elements,
            _ => &[],
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Bulk(text.into())
    }
}

impl PartialEq<&str> for Value {
    fn eq(&self, text: &&str) -> bool {
        match self {
            Self::Text(own) => own == text,
            Self::Bulk(own) => own == text.as_bytes(),
            _ => false,
        }
    }
}

impl PartialEq<i64> for Value {
    fn eq(&self, number: &i64) -> bool {
        matches!(self, Self::Int(own) if own == number)
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nil => f.write_str("nil"),
            Self::Int(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(text),
            Self::Bulk(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
            Self::Error(text) => write!(f, "error: {text}"),
            Self::Array(elements) => f.debug_list().entries(elements).finish(),
            Self::Push(elements) => {
                f.write_str("push ").and_then(|()| f.debug_list().entries(elements).finish())
            }
        }
    }
}

/// A command in the one spelling that clients use, an array of strings.
pub fn encode(command: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", command.len()).into_bytes();
    for word in command {
        let word = word.as_ref();
        bytes.extend(format!("${}\r\n", word.len()).bytes());
        bytes.extend(word);
        bytes.extend(b"\r\n");
    }
    bytes
}

/// The value at the front of `bytes` and the length it takes there, or `None` while its end is missing.
///
/// It reads RESP2 and RESP3. An attribute belongs to the value that follows it, and is skipped.
///
/// # Errors
///
/// When `bytes` are neither.
pub fn parse(bytes: &[u8]) -> io::Result<Option<(Value, usize)>> {
    let mut reader = Reader { bytes, at: 0 };
    match reader.value() {
        Ok(value) => Ok(Some((value, reader.at))),
        Err(Stop::Incomplete) => Ok(None),
        Err(Stop::Malformed(line)) => {
            Err(io::Error::new(io::ErrorKind::InvalidData, format!("not the protocol of Redis: {line}")))
        }
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

enum Stop {
    Incomplete,
    Malformed(String),
}

impl<'a> Reader<'a> {
    fn value(&mut self) -> Result<Value, Stop> {
        let line = self.line()?;
        let malformed = || Stop::Malformed(line.escape_ascii().to_string());
        let (kind, rest) = line.split_first().ok_or_else(malformed)?;
        let text = || String::from_utf8_lossy(rest).into_owned();
        let number = || str::from_utf8(rest).ok().and_then(|text| text.parse().ok()).ok_or_else(malformed);
        // -1 as a length is nil in RESP2.
        let length = || match number()? {
            -1 => Ok(None),
            length => usize::try_from(length).map(Some).map_err(|_| malformed()),
        };
        Ok(match kind {
            b'+' | b',' | b'(' => Value::Text(text()),
            b'-' => Value::Error(text()),
            b':' => Value::Int(number()?),
            b'#' => Value::Int(i64::from(rest == b"t")),
            b'_' => Value::Nil,
            b'$' => {
                length()?.map_or(Ok(Value::Nil), |length| Ok(Value::Bulk(self.take(length)?.to_vec())))?
            }
            b'!' => Value::Error(String::from_utf8_lossy(self.take(length()?.unwrap_or(0))?).into_owned()),
            b'=' => {
                // Three letters and a colon give the type of the text that follows.
                let text = self.take(length()?.unwrap_or(0))?;
                Value::Bulk(text.get(4..).ok_or_else(malformed)?.to_vec())
            }
            b'*' | b'~' => {
                length()?.map_or(Ok(Value::Nil), |length| self.values(length).map(Value::Array))?
            }
            b'>' => Value::Push(self.values(length()?.unwrap_or(0))?),
            b'%' => Value::Array(self.values(length()?.unwrap_or(0) * 2)?),
            b'|' => {
                self.values(length()?.unwrap_or(0) * 2)?;
                self.value()?
            }
            _ => return Err(malformed()),
        })
    }

    fn values(&mut self, count: usize) -> Result<Vec<Value>, Stop> {
        (0..count).map(|_| self.value()).collect()
    }

    fn line(&mut self) -> Result<&'a [u8], Stop> {
        let rest = &self.bytes[self.at..];
        let length = rest.windows(2).position(|end| end == b"\r\n").ok_or(Stop::Incomplete)?;
        self.at += length + 2;
        Ok(&rest[..length])
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Stop> {
        let taken = self.bytes.get(self.at..self.at + length + 2).ok_or(Stop::Incomplete)?;
        self.at += taken.len();
        Ok(&taken[..length])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One of everything.
    const SAMPLES: &[(&[u8], &str)] = &[
        (b"+OK\r\n", "OK"),
        (b"-ERR no\r\n", "error: ERR no"),
        (b":-3\r\n", "-3"),
        (b"$4\r\na\r\nb\r\n", r#""a\r\nb""#),
        (b"$0\r\n\r\n", r#""""#),
        (b"$-1\r\n", "nil"),
        (b"*-1\r\n", "nil"),
        (b"*2\r\n:1\r\n*1\r\n+a\r\n", "[1, [a]]"),
        (b"*0\r\n", "[]"),
        (b"_\r\n", "nil"),
        (b"#t\r\n", "1"),
        (b"#f\r\n", "0"),
        (b",1.5\r\n", "1.5"),
        (b",inf\r\n", "inf"),
        (b"(3492890328409238509324850943850943825024385\r\n", "3492890328409238509324850943850943825024385"),
        (b"!5\r\nERR x\r\n", "error: ERR x"),
        (b"=7\r\ntxt:abc\r\n", r#""abc""#),
        (b"~2\r\n:1\r\n:2\r\n", "[1, 2]"),
        (b"%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n_\r\n", "[a, 1, b, [nil]]"),
        (b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\np\r\n", r#"push ["message", "c", "p"]"#),
        (b"|1\r\n+ttl\r\n:3\r\n:7\r\n", "7"),
    ];

    #[test]
    fn a_value_of_every_type_is_parsed_to_its_end_and_no_further() {
        for (bytes, expected) in SAMPLES {
            let followed = [bytes, b"+next\r\n".as_slice()].concat();
            let (value, length) = parse(&followed).unwrap().unwrap();
            assert_eq!((format!("{value:?}").as_str(), length), (*expected, bytes.len()));
        }
    }

    #[test]
    fn an_incomplete_value_is_not_parsed_yet() {
        for (bytes, _) in SAMPLES {
            for end in 0..bytes.len() {
                assert_eq!(parse(&bytes[..end]).unwrap(), None, "{}", bytes[..end].escape_ascii());
            }
        }
    }

    #[test]
    fn bytes_that_are_not_resp_are_refused() {
        for bytes in [b"\r\n".as_slice(), b"GET a\r\n", b":one\r\n", b"$-2\r\n", b"=2\r\nab\r\n"] {
            assert_eq!(parse(bytes).unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
    }

    #[test]
    fn a_command_is_encoded_as_an_array_of_strings() {
        assert_eq!(encode(&["GET", "kéy"]), b"*2\r\n$3\r\nGET\r\n$4\r\nk\xc3\xa9y\r\n");
    }

    #[test]
    fn values_compare_with_text_and_numbers() {
        assert_eq!(Value::Bulk(b"v".to_vec()), "v");
        assert_eq!(Value::Text("OK".into()), "OK");
        assert_eq!(Value::Int(3), 3);
        assert_ne!(Value::Error("v".into()), "v");
        assert_ne!(Value::Nil, 0);
    }
}
