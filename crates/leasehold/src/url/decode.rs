//! Percent-encoding.

/// The bytes of a percent-encoded text, if it is one.
pub(crate) fn decode_bytes(part: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.bytes();
    while let Some(byte) = rest.next() {
        let mut digit = || char::from(rest.next()?).to_digit(16);
        bytes.push(if byte == b'%' { u8::try_from(digit()? * 16 + digit()?).ok()? } else { byte });
    }
    Some(bytes)
}
