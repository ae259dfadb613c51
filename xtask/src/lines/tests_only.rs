//! Rust without the items that are only compiled for tests.

/// The text with spaces instead of items under `#[cfg(test)]`, or under `#[cfg(all(test, …))]`; and the names of the modules
/// among them that are files of their own. Takes text without comments.
pub(super) fn blank_tests(text: &str) -> (String, Vec<String>) {
    let (mut left, mut modules) = (text.to_owned(), Vec::new());
    let mut from = 0;
    while let Some(begin) = left[from..].find("#[cfg(").map(|found| from + found) {
        let attribute = begin + group(&left[begin + 1..]) + 1;
        from = attribute;
        if is_for_tests(&left[begin..attribute]) {
            let end = attribute + item(&left[attribute..]);
            modules.extend(module(&left[attribute..end]));
            let blank = left[begin..end].chars().map(|letter| if letter == '\n' { '\n' } else { ' ' });
            let blank: String = blank.collect();
            from = begin + blank.len();
            left.replace_range(begin..end, &blank);
        }
    }
    (left, modules)
}

/// Whether this is an attribute of tests.
fn is_for_tests(attribute: &str) -> bool {
    let condition = attribute.trim_start_matches("#[cfg(").trim_end_matches(']').trim_end_matches(')');
    let all = condition.strip_prefix("all(").into_iter().flat_map(|terms| terms.split(','));
    condition == "test" || all.map(str::trim).any(|term| term == "test")
}

/// The name of a module whose text is in a file of its own.
fn module(item: &str) -> Option<String> {
    let (_, name) = item.strip_suffix(';')?.rsplit_once("mod ")?;
    Some(name.trim().to_owned())
}

/// The length of a group in brackets, which begins with the first of them.
fn group(text: &str) -> usize {
    let mut depth = 0;
    for (at, letter) in text.char_indices() {
        match letter {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + letter.len_utf8();
        }
    }
    text.len()
}

/// The length of the item that follows an attribute, with its other attributes.
fn item(text: &str) -> usize {
    let mut at = 0;
    while let Some(letter) = text[at..].chars().next() {
        match letter {
            ';' => return at + 1,
            '{' => {
                let end = at + group(&text[at..]);
                // A list of imports ends after the brackets.
                return end + usize::from(text[end..].starts_with(';'));
            }
            '(' | '[' => at += group(&text[at..]),
            _ => at += letter.len_utf8(),
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(text: &str) -> (Vec<String>, Vec<String>) {
        let (left, modules) = blank_tests(text);
        assert_eq!(left.lines().count(), text.lines().count());
        let lines = left.lines().map(str::trim).filter(|line| !line.is_empty());
        (lines.map(Into::into).collect(), modules)
    }

    #[test]
    fn test_code_is_removed_and_other_code_stays() {
        let text = "a();\n#[cfg(test)]\nmod tests {\n    fn b() {\n    }\n}\nc();\n";
        assert_eq!(left(text).0, ["a();", "c();"]);
        let text =
            "#[cfg(test)]\n#[path = \"\"]\nuse a::{b, c};\n#[cfg(test)]\nfn d(e: [u8; 3]) {\n}\nf();\n";
        assert_eq!(left(text).0, ["f();"]);
    }

    #[test]
    fn code_under_other_conditions_stays() {
        let text =
            "#[cfg(feature = \"\")]\nmod a;\n#[cfg(any(test, unix))]\nmod b;\n#[cfg(not(test))]\nmod c;\n";
        assert_eq!(left(text), (text.lines().map(Into::into).collect(), Vec::new()));
    }

    #[test]
    fn test_modules_in_separate_files_are_named() {
        let text = "#[cfg(test)]\nmod a;\n#[cfg(all(test, feature = \"\"))]\npub(crate) mod b;\nmod c;\n";
        assert_eq!(left(text), (vec!["mod c;".into()], vec!["a".into(), "b".into()]));
    }
}
