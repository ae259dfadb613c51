//! The file names of locks.

use sha1_smol::Sha1;

/// The longest encoded name that is used as it is: file systems allow 255 bytes, and suffixes follow.
const LONGEST: usize = 200;
/// How much of a longer name is kept before its hash.
const KEPT: usize = 160;

/// The file name of a lock, without its suffix: letters, digits, `_`, `-` and `.` as they are, every other byte and a
/// leading dot as `%XX`. A name that would be too long is cut, and its SHA-1 is appended: two names with one hash would
/// share a lock, which is safe.
pub(super) fn encode(name: &str) -> String {
    let mut encoded = Vec::with_capacity(name.len() * 2);
    append(&mut encoded, name);
    // Only ASCII was appended.
    String::from_utf8(encoded).unwrap_or_default()
}

/// Appends the file name of a lock.
pub(super) fn append(to: &mut Vec<u8>, name: &str) {
    let begin = to.len();
    for (at, byte) in name.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' => to.push(byte),
            b'.' if at > 0 => to.push(b'.'),
            _ => {
                let digit = |half: u8| b"0123456789ABCDEF"[usize::from(half)];
                to.extend([b'%', digit(byte >> 4), digit(byte & 15)]);
            }
        }
    }
    if to.len() - begin > LONGEST {
        to.truncate(begin + KEPT);
        // No half of an encoded byte.
        if let Some(at) = to[begin + KEPT - 2..].iter().position(|byte| *byte == b'%') {
            to.truncate(begin + KEPT - 2 + at);
        }
        to.push(b'-');
        to.extend(Sha1::from(name).digest().to_string().bytes());
    }
}

/// The name that has this file name; none if no name has it, or if it was cut.
pub(super) fn decode(file: &[u8]) -> Option<String> {
    let mut bytes = Vec::with_capacity(file.len());
    let mut rest = file;
    while let Some((first, others)) = rest.split_first() {
        rest = others;
        if *first == b'%' {
            let (digits, others) = rest.split_at_checked(2)?;
            bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
            rest = others;
        } else {
            bytes.push(*first);
        }
    }
    String::from_utf8(bytes).ok().filter(|name| encode(name).as_bytes() == file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_one_file_name_that_a_shell_can_use() {
        for (name, file) in [
            ("nightly-report", "nightly-report"),
            ("coupon:42", "coupon%3A42"),
            ("a.b_c-D9", "a.b_c-D9"),
            ("..", "%2E."),
            (".hidden", "%2Ehidden"),
            ("a/b", "a%2Fb"),
            ("100%", "100%25"),
            ("line\nbreak\0", "line%0Abreak%00"),
            ("좌석", "%EC%A2%8C%EC%84%9D"),
        ] {
            assert_eq!(encode(name), file);
            assert_eq!(decode(file.as_bytes()).as_deref(), Some(name));
        }
    }

    #[test]
    fn a_file_name_that_no_name_has_is_not_decoded() {
        for file in ["a:b", "a%2", "a%zz", "a%2f", "%61", ".a", "%FF"] {
            assert_eq!(decode(file.as_bytes()), None, "{file}");
        }
        assert_eq!(decode(encode(&"x".repeat(500)).as_bytes()), None);
    }

    #[test]
    fn a_long_name_is_cut_and_stays_distinct() {
        for letter in ["x", "/", "좌"] {
            let [one, two] = ["1", "2"].map(|last| encode(&format!("{}{last}", letter.repeat(500))));
            assert_ne!(one, two);
            assert!(one.len() <= LONGEST + 1, "{one}");
            let kept = one.rsplit_once('-').unwrap().0;
            assert_eq!(
                kept.len() - kept.matches('%').count() * 3,
                if letter == "x" { KEPT } else { 0 },
                "{one}"
            );
        }
        assert_eq!(encode(&"x".repeat(LONGEST)), "x".repeat(LONGEST));
    }
}
