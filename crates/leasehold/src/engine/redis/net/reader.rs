//! What has come on a connection and is not handed out yet.

use std::io;

use super::pipeline::{Sink, unavailable};
use super::request::RawReply;
use super::resp::{self, Frame, LONGEST, Stop, Value};
use super::stream::Stream;
use crate::error::Failure;

/// How much is read at once.
const CHUNK: usize = 16 * 1024;

/// A reply that is longer than this may take the response time-out for each such part of it.
const PART: usize = 64 * 1024;

/// Something that nobody asked for.
pub(crate) type Push = Vec<Value>;

/// The bytes of a frame that is not whole yet, and lists that are filled and emptied again and again.
pub(crate) struct Reader {
    received: Vec<u8>,
    filled: usize,
    /// A frame is whole, or a long one has grown by [`PART`]. Bytes alone are no sign of life: there may be no end to them.
    pub(crate) progress: bool,
    /// How much of the frame that is not whole yet was there at the last such progress.
    seen: usize,
    /// How much there has to be before it can be whole.
    needed: usize,
    pub(crate) frames: Vec<Frame>,
    pub(crate) answers: Vec<(Sink, RawReply)>,
    pub(crate) pushes: Vec<Push>,
}

impl Reader {
    pub(crate) fn new() -> Self {
        let (frames, answers, pushes) = Default::default();
        Self {
            received: vec![0; CHUNK],
            filled: 0,
            progress: false,
            seen: 0,
            needed: 0,
            frames,
            answers,
            pushes,
        }
    }

    /// Reads once, and adds the frames that are whole now; false if there was nothing to read.
    pub(crate) fn read(&mut self, stream: &Stream) -> Result<bool, Failure> {
        match stream.try_read(&mut self.received[self.filled..]) {
            Ok(0) => return Err(Failure::Unavailable("the server has closed the connection".into())),
            Ok(length) => self.filled += length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(unavailable(&error)),
        }
        let mut rest = &self.received[..self.filled];
        // A long frame is not looked at for each piece of it.
        while rest.len() >= self.needed {
            match resp::take(&mut rest) {
                Ok(frame) => {
                    self.frames.push(frame);
                    self.needed = 0;
                }
                Err(Stop::Missing(bytes)) if rest.len() + bytes <= LONGEST => {
                    self.needed = rest.len() + bytes;
                }
                Err(_) => {
                    let text = "what answers there is no Redis server, or says more than it was asked for";
                    return Err(Failure::Denied(text.into()));
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
        if self.filled == self.received.len() {
            self.received.resize(self.filled * 2, 0);
        } else if self.filled == 0 && self.received.len() > CHUNK {
            // What one long frame needed is not kept for ever.
            self.received = vec![0; CHUNK];
        }
        Ok(true)
    }
}
