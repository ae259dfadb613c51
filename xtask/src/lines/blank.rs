//! Rust without its comments.

/// The text with spaces instead of comments, and quotation marks instead of the contents of literals, line by line: the
/// result has code on the same lines as before, and brackets only in code.
pub(super) fn blank_comments(text: &str) -> String {
    let mut left = Vec::new();
    let text: Vec<char> = text.chars().collect();
    let mut at = 0;
    while at < text.len() {
        let (end, kind) = part(&text, at);
        left.extend(text[at..end].iter().map(|letter| match kind {
            _ if letter.is_whitespace() => *letter,
            Kind::Code => *letter,
            Kind::Literal => '"',
            Kind::Comment => ' ',
        }));
        at = end;
    }
    left.into_iter().collect()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Code,
    Literal,
    Comment,
}

/// The end and the kind of the comment, literal, name or single character that begins here.
fn part(text: &[char], at: usize) -> (usize, Kind) {
    let rest = &text[at..];
    let until = |length: Option<usize>| length.map_or(text.len(), |length| at + length);
    match rest {
        ['/', '/', ..] => (until(rest.iter().position(|letter| *letter == '\n')), Kind::Comment),
        ['/', '*', ..] => (until(block(rest)), Kind::Comment),
        ['"', ..] => (until(string(rest)), Kind::Literal),
        ['\'', '\\', _, tail @ ..] => {
            (until(tail.iter().position(|letter| *letter == '\'').map(|end| end + 4)), Kind::Literal)
        }
        ['\'', _, '\'', ..] => (at + 3, Kind::Literal),
        [first, ..] if is_of_name(*first) => {
            let length = rest.iter().position(|letter| !is_of_name(*letter)).unwrap_or(rest.len());
            if ["r", "br", "cr"].iter().any(|prefix| prefix.chars().eq(rest[..length].iter().copied()))
                && let Some(raw) = raw_string(&rest[length..])
            {
                return (at + length + raw, Kind::Literal);
            }
            (at + length, Kind::Code)
        }
        _ => (at + 1, Kind::Code),
    }
}

fn is_of_name(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// The length of a block comment, which may contain others.
fn block(text: &[char]) -> Option<usize> {
    let (mut depth, mut at) = (0, 0);
    loop {
        match text.get(at..at + 2)? {
            ['/', '*'] => (depth, at) = (depth + 1, at + 2),
            ['*', '/'] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return Some(at);
        }
    }
}

/// The length of a string.
fn string(text: &[char]) -> Option<usize> {
    let mut at = 1;
    loop {
        match text.get(at)? {
            '\\' => at += 2,
            '"' => return Some(at + 1),
            _ => at += 1,
        }
    }
}

/// The length of the rest of a raw string after its `r`; nothing if it is none.
fn raw_string(text: &[char]) -> Option<usize> {
    let hashes = text.iter().position(|letter| *letter != '#')?;
    if text[hashes] != '"' {
        return None;
    }
    let end: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
    let begin = hashes + 1;
    text[begin..].windows(end.len()).position(|part| part == end).map(|found| begin + found + end.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_blanked_and_code_stays() {
        assert_eq!(blank_comments("a // b\nc"), "a     \nc");
        assert_eq!(blank_comments("a /* b /* c */\n*/ d"), "a             \n   d");
        assert_eq!(blank_comments("x::<'a>('{', '\\'', b'}')"), "x::<'a>(\"\"\", \"\"\"\", b\"\"\")");
    }

    #[test]
    fn braces_and_comments_inside_a_literal_are_blanked() {
        for text in ["\"// {\"", "\"\\\"{\"", "r#\"{\"{\"#", "br\"{\\\"", "c\"{\""] {
            let left = blank_comments(&format!("{text} }} // end"));
            assert!(!left.contains('{') && left.contains("\" }  "), "{text} became {left}");
        }
        assert_eq!(blank_comments("r#type { }"), "r#type { }");
    }
}
