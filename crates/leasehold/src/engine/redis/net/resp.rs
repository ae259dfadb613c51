//! The protocol of the server, RESP3: commands out, frames in.

use std::fmt::Display;
use std::io::{self, Write as _};

use super::stream::Stream;
use crate::error::ServerError;

/// A value that a server sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Nil,
    Okay,
    Int(i64),
    /// Any other text, whatever its type.
    Text(Vec<u8>),
    /// A list, a set, or the keys and values of a map.
    Array(Vec<Value>),
    /// An error, with its text.
    Error(String),
}

/// One incoming frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// The reply to the oldest command that has none.
    Reply(Value),
    /// A push, which is no reply.
    Push(Vec<Value>),
}

/// Why there is no frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The bytes are not of this protocol, or the frame is longer than any reply that we request.
    Garbled,
    /// At least so many bytes have yet to arrive.
    Missing(usize),
}

/// How deep lists may be nested. No request here has a reply deeper than two.
const DEEPEST: usize = 8;

/// How many bytes a frame may have. The longest reply is the queue of a fair lock, 64 bytes or so for each waiter: this is a
/// quarter of a million of them. The memory of a frame is a small multiple of its length.
const LONGEST: usize = 16 * 1024 * 1024;

/// How many bytes a line may have: an error, a number, or a length.
const LONGEST_LINE: usize = 64 * 1024;

/// Takes the first frame off `bytes`, unless a part of it has yet to arrive.
pub(crate) fn take(bytes: &mut &[u8]) -> Result<Frame, Stop> {
    let mut rest = *bytes;
    let is_push = rest.first() == Some(&b'>');
    let frame = match value(&mut rest, DEEPEST)? {
        Value::Array(parts) if is_push => Frame::Push(parts),
        _ if is_push => return Err(Stop::Garbled),
        value => Frame::Reply(value),
    };
    *bytes = rest;
    Ok(frame)
}

fn value(rest: &mut &[u8], depth: usize) -> Result<Value, Stop> {
    let (kind, line) = line(rest)?;
    Ok(match kind {
        b'+' if line == b"OK" => Value::Okay,
        b'+' | b',' | b'(' => Value::Text(line.to_vec()),
        b'-' => Value::Error(String::from_utf8_lossy(line).into_owned()),
        b':' => Value::Int(parsed(line)?),
        b'#' => Value::Int(i64::from(line == b"t")),
        b'_' => Value::Nil,
        b'$' | b'=' | b'!' => {
            let Some(length) = length(line)? else { return Ok(Value::Nil) };
            let Some(after) = rest.get(length + 2..) else {
                return Err(Stop::Missing(length + 2 - rest.len()));
            };
            let text = &rest[..length];
            *rest = after;
            match kind {
                b'!' => Value::Error(String::from_utf8_lossy(text).into_owned()),
                // The type of the text precedes it: three letters and a colon.
                b'=' => Value::Text(text.get(4..).ok_or(Stop::Garbled)?.to_vec()),
                _ => Value::Text(text.to_vec()),
            }
        }
        b'*' | b'~' | b'>' | b'%' => {
            let Some(parts) = length(line)? else { return Ok(Value::Nil) };
            values(rest, if kind == b'%' { parts * 2 } else { parts }, depth)?
        }
        _ => return Err(Stop::Garbled),
    })
}

/// How many bytes a value has at least.
const SHORTEST: usize = 3;

fn values(rest: &mut &[u8], count: usize, depth: usize) -> Result<Value, Stop> {
    let depth = depth.checked_sub(1).ok_or(Stop::Garbled)?;
    // A count may be too large, so the capacity is limited by the bytes that are there.
    let mut values = Vec::with_capacity(count.min(rest.len() / SHORTEST));
    while values.len() < count {
        match value(rest, depth) {
            Ok(value) => values.push(value),
            Err(Stop::Missing(bytes)) => {
                return Err(Stop::Missing(bytes + (count - values.len() - 1) * SHORTEST));
            }
            Err(Stop::Garbled) => return Err(Stop::Garbled),
        }
    }
    Ok(Value::Array(values))
}

/// The first letter and the rest of its line.
fn line<'a>(rest: &mut &'a [u8]) -> Result<(u8, &'a [u8]), Stop> {
    let Some(end) = rest.iter().take(LONGEST_LINE).position(|byte| *byte == b'\n') else {
        return Err(if rest.len() < LONGEST_LINE { Stop::Missing(1) } else { Stop::Garbled });
    };
    let (line, after) = rest.split_at(end + 1);
    let [kind, line @ .., b'\r', b'\n'] = line else { return Err(Stop::Garbled) };
    *rest = after;
    Ok((*kind, line))
}

/// A length or a count; none if the value is null. A frame that could not be complete within the longest length is an error at
/// once.
fn length(line: &[u8]) -> Result<Option<usize>, Stop> {
    match usize::try_from(parsed(line)?) {
        Ok(length) if length > LONGEST => Err(Stop::Garbled),
        Ok(length) => Ok(Some(length)),
        Err(_) => Ok(None),
    }
}

fn parsed(line: &[u8]) -> Result<i64, Stop> {
    std::str::from_utf8(line).ok().and_then(|text| text.parse().ok()).ok_or(Stop::Garbled)
}

/// The failure of a connection that the server has closed.
pub(super) const CLOSED: &str = "the server has closed the connection";

/// The failure of a connection that the server has closed without reading everything.
pub(super) const RESET: &str = "the server has reset the connection";

/// The first byte of a TLS alert, by which a server that wants TLS refuses everything else.
const TLS_ALERT: u8 = 0x15;

/// How much is read at once.
const CHUNK: usize = 16 * 1024;

/// A reply that is longer than this may take the response time-out for each such part of it.
const PART: usize = 64 * 1024;

/// The input of a socket: the complete frames, and the bytes of an incomplete one.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    pub(crate) frames: Vec<Frame>,
    /// A frame is complete, or a long one has grown by [`PART`]. Bytes alone are no sign of life: there may be no end to them.
    pub(crate) progress: bool,
    received: Vec<u8>,
    filled: usize,
    /// How much of the incomplete frame was there at the last such progress.
    seen: usize,
    /// How many bytes there have to be before it can be complete.
    needed: usize,
}

impl Reader {
    /// Reads once, and adds the frames that are complete now; false if there was nothing to read.
    pub(crate) fn read(&mut self, stream: &Stream) -> Result<bool, ServerError> {
        if self.filled == self.received.len() {
            self.received.resize((self.filled * 2).max(CHUNK), 0);
        }
        match stream.try_read(&mut self.received[self.filled..]) {
            Ok(0) => return Err(ServerError::Unavailable(CLOSED.into())),
            Ok(length) => self.filled += length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(failure_of(&error)),
        }
        let mut rest = &self.received[..self.filled];
        if rest.first() == Some(&TLS_ALERT) {
            let text = "that port wants TLS: write rediss:// in place of redis://";
            return Err(ServerError::Denied(text.into()));
        }
        // A long frame is not parsed again for each piece of it.
        while rest.len() >= self.needed {
            match take(&mut rest) {
                Ok(frame) => {
                    self.frames.push(frame);
                    self.needed = 0;
                }
                Err(Stop::Missing(bytes)) if rest.len() + bytes <= LONGEST => {
                    self.needed = rest.len() + bytes;
                }
                Err(_) => {
                    let text =
                        "no Redis server listens there, or it sent more than was requested: check the port";
                    return Err(ServerError::Denied(text.into()));
                }
            }
        }
        let used = self.filled - rest.len();
        self.received.copy_within(used..self.filled, 0);
        self.filled -= used;
        self.progress = used > 0 || self.filled >= self.seen + PART;
        if self.progress {
            self.seen = self.filled;
        }
        if self.filled == 0 && self.received.len() > CHUNK {
            // The capacity that one long frame needed is not kept for ever.
            self.received = Vec::new();
        }
        Ok(true)
    }
}

/// Some arguments of a command, written as they are sent.
#[derive(Debug, Clone, Default)]
pub(crate) struct BulkStrings {
    bytes: Vec<u8>,
    count: usize,
}

impl BulkStrings {
    pub(crate) fn push(&mut self, argument: impl Display) {
        // Its length is not known before it is written. Most are numbers and owners.
        let mut short = [0; 64];
        let mut room = &mut short[..];
        let (written, left) = (write!(room, "{argument}"), room.len());
        match written {
            Ok(()) => self.push_bytes(&short[..short.len() - left]),
            Err(_) => self.push_bytes(argument.to_string().as_bytes()),
        }
    }

    pub(crate) fn push_bytes(&mut self, bytes: &[u8]) {
        if self.count == 0 {
            // Mostly enough for all that follow.
            self.bytes.reserve(bytes.len() + INITIAL_CAPACITY);
        }
        bulk_string(&mut self.bytes, bytes);
        self.count += 1;
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Appends them to `out`.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.bytes);
    }

    /// The strings themselves, for the few callers that need them one by one.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Vec<u8>> {
        let mut rest = self.bytes.as_slice();
        std::iter::from_fn(move || match take(&mut rest) {
            Ok(Frame::Reply(Value::Text(string))) => Some(string),
            _ => None,
        })
    }
}

/// The initial capacity for strings.
const INITIAL_CAPACITY: usize = 128;

/// Writes the header of a command of so many strings …
pub(crate) fn begin(out: &mut Vec<u8>, strings: usize) {
    out.extend_from_slice(Header::new(b'*', strings).bytes());
}

/// … and one of them.
pub(crate) fn bulk_string(out: &mut Vec<u8>, string: &[u8]) {
    out.extend_from_slice(Header::new(b'$', string.len()).bytes());
    out.extend_from_slice(string);
    out.extend_from_slice(b"\r\n");
}

/// The same for a number.
pub(crate) fn number(out: &mut Vec<u8>, number: usize) {
    bulk_string(out, Header::new(b'$', number).number());
}

/// The header of a length. There is one for every string, and formatting them would take most of the time.
struct Header {
    digits: [u8; 23],
    first: usize,
}

impl Header {
    fn new(kind: u8, mut number: usize) -> Self {
        let mut header = Self { digits: *b"                     \r\n", first: 21 };
        loop {
            header.push(b'0' + u8::try_from(number % 10).unwrap_or_default());
            number /= 10;
            if number == 0 {
                header.push(kind);
                return header;
            }
        }
    }

    fn push(&mut self, byte: u8) {
        self.first -= 1;
        self.digits[self.first] = byte;
    }

    fn bytes(&self) -> &[u8] {
        &self.digits[self.first..]
    }

    /// The digits, without the bytes before and after them.
    fn number(&self) -> &[u8] {
        &self.digits[self.first + 1..self.digits.len() - 2]
    }
}

/// What the error of a socket means.
pub(super) fn failure_of(error: &io::Error) -> ServerError {
    if let Some(failure) = error.get_ref().and_then(|inner| inner.downcast_ref::<ServerError>()) {
        return failure.clone();
    }
    match error.kind() {
        // The peer has closed it: whether that is found by a read or by a write is chance.
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => ServerError::Unavailable(RESET.into()),
        _ => ServerError::Unavailable(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_to_a_closed_connection_fails_like_a_read() {
        for kind in [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset] {
            assert_eq!(failure_of(&kind.into()), ServerError::Unavailable(RESET.into()));
        }
    }

    fn text(text: &str) -> Value {
        Value::Text(text.into())
    }

    #[test]
    fn every_value_is_parsed_once_complete() {
        let frames = [
            ("+OK\r\n", Frame::Reply(Value::Okay)),
            ("+PONG\r\n", Frame::Reply(text("PONG"))),
            (":-2\r\n", Frame::Reply(Value::Int(-2))),
            ("$5\r\na\r\nb \r\n", Frame::Reply(text("a\r\nb "))),
            ("$0\r\n\r\n", Frame::Reply(text(""))),
            ("$-1\r\n", Frame::Reply(Value::Nil)),
            ("*-1\r\n", Frame::Reply(Value::Nil)),
            ("_\r\n", Frame::Reply(Value::Nil)),
            ("#t\r\n", Frame::Reply(Value::Int(1))),
            ("=7\r\ntxt:a b\r\n", Frame::Reply(text("a b"))),
            ("-NOPERM not you\r\n", Frame::Reply(Value::Error("NOPERM not you".into()))),
            ("!4\r\nERR \r\n", Frame::Reply(Value::Error("ERR ".into()))),
            ("*2\r\n:1\r\n*1\r\n_\r\n", {
                Frame::Reply(Value::Array(vec![Value::Int(1), Value::Array(vec![Value::Nil])]))
            }),
            ("%1\r\n+a\r\n:1\r\n", Frame::Reply(Value::Array(vec![text("a"), Value::Int(1)]))),
            (">2\r\n$7\r\nmessage\r\n$1\r\n0\r\n", Frame::Push(vec![text("message"), text("0")])),
        ];
        for (sent, expected) in frames {
            for length in 0..sent.len() {
                let Err(Stop::Missing(bytes)) = take(&mut &sent.as_bytes()[..length]) else {
                    panic!("{length} of {sent:?}");
                };
                assert!((1..=sent.len() - length).contains(&bytes), "{bytes} after {length} of {sent:?}");
            }
            let both = format!("{sent}:7\r\n");
            let mut rest = both.as_bytes();
            assert_eq!(take(&mut rest), Ok(expected), "{sent:?}");
            assert_eq!(take(&mut rest), Ok(Frame::Reply(Value::Int(7))), "behind {sent:?}");
        }
    }

    #[test]
    fn input_that_is_not_resp_is_an_error() {
        let deep = "*1\r\n".repeat(100_000);
        for sent in ["HTTP/1.1 400 Bad Request\r\n", ":x\r\n", ":1\n", "\n", "=2\r\nab\r\n", deep.as_str()] {
            assert_eq!(take(&mut sent.as_bytes()), Err(Stop::Garbled), "{sent:.20}");
        }
        // The count is accepted, but no memory is reserved for it.
        assert_eq!(take(&mut &b"*9999999\r\n:1\r\n"[..]), Err(Stop::Missing(9_999_998 * SHORTEST - 2)));
    }

    #[test]
    fn a_value_longer_than_any_expected_reply_is_an_error() {
        let endless = format!("+{}", "a".repeat(LONGEST_LINE));
        for sent in ["$16777217\r\na", "*16777217\r\n:1\r\n", "%9223372036854775807\r\n", &endless] {
            assert_eq!(take(&mut sent.as_bytes()), Err(Stop::Garbled), "{sent:.20}");
        }
    }

    #[test]
    fn command_words_are_encoded_with_their_lengths() {
        let mut strings = BulkStrings::default();
        strings.push("lock");
        strings.push(30_000);
        strings.push_bytes(b"\r\n\0");
        strings.push("");
        strings.push("long ".repeat(20));
        let mut out = Vec::new();
        begin(&mut out, strings.len());
        strings.write(&mut out);
        assert_eq!(
            strings.iter().collect::<Vec<_>>(),
            [&b"lock"[..], b"30000", b"\r\n\0", b"", "long ".repeat(20).as_bytes()]
        );
        assert!(
            out.starts_with(b"*5\r\n$4\r\nlock\r\n$5\r\n30000\r\n$3\r\n\r\n\0\r\n$0\r\n\r\n$100\r\nlong ")
        );
    }
}
