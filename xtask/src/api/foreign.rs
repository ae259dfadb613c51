//! Types of dependencies in signatures.
//!
//! Rustdoc links the types of the standard library and our own public ones. What is not linked is a generic parameter,
//! a private item of ours (such as a sealed trait), or of a crate whose documentation was not built.

use crate::html;

const STANDARD: &str = "https://doc.rust-lang.org/";

/// Our own traits in signatures that only the library can name. By name alone they cannot be told from others.
const SEALED: &[&str] = &["Granted", "Guarded"];

/// The traits of other crates that one of our types is meant to implement: the features `serde` and `stream` are about nothing
/// else.
const IMPLEMENTED: &[&str] = &["Deserialize", "Stream"];

/// The names in a signature that may be those of a dependency. `depth` is how many folders below the crate the page is.
pub(super) fn in_signature(signature: &str, depth: usize) -> Vec<String> {
    let mut names = linked(signature, depth);
    names.extend(unlinked(signature).into_iter().map(|(name, _)| name));
    names
}

/// The same in a declaration, where the first name of a line is that of the item or of a variant.
pub(super) fn in_declaration(declaration: &str, depth: usize) -> Vec<String> {
    let mut names = linked(declaration, depth);
    for line in declaration.lines() {
        names.extend(unlinked(line).into_iter().filter(|(_, is_first)| !is_first).map(|(name, _)| name));
    }
    names
}

/// The texts of links that lead neither to the standard library nor into the library.
fn linked(signature: &str, depth: usize) -> Vec<String> {
    let outside = "../".repeat(depth + 1);
    let links = signature.split("<a ").skip(1).filter_map(|link| link.split_once("</a>"));
    links
        .filter(|(link, _)| {
            html::attributes(&format!(" {link}"), "href").first().is_some_and(|address| {
                let other_crate =
                    address.strip_prefix(&*outside).is_some_and(|rest| !rest.starts_with("leasehold"));
                other_crate || address.starts_with("http") && !address.starts_with(STANDARD)
            })
        })
        .map(|(link, _)| html::text(&format!("<a {link}")))
        .filter(|name| !IMPLEMENTED.contains(&&**name))
        .collect()
}

/// The names outside of links that begin like types and are longer than a generic parameter, and whether each is the
/// first name of all. The name of an associated type, as in `Item = …`, is none.
fn unlinked(signature: &str) -> Vec<(String, bool)> {
    let text = html::text(&html::without(signature, "<a ", "</a>"));
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    let mut names: Vec<(String, bool)> = Vec::new();
    let mut rest = &*text;
    let mut is_first = true;
    while let Some(start) = rest.find(is_word) {
        // What follows a colon is the type of a field.
        is_first &= !rest[..start].contains(':');
        let word = &rest[start..];
        let end = word.find(|character| !is_word(character)).unwrap_or(word.len());
        rest = &word[end..];
        let word = &word[..end];
        if word.starts_with(char::is_uppercase) {
            let is_known =
                [SEALED, IMPLEMENTED].concat().contains(&word) || word.len() == 1 || word == "Self";
            if !is_known && !rest.trim_start().starts_with('=') {
                names.push((word.to_owned(), is_first));
            }
            is_first = false;
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_dependencies_are_found_with_and_without_a_link() {
        let own = "pub fn <a href=\"#m\">m</a>&lt;F: <a href=\"https://doc.rust-lang.org/1/Fn.html\">Fn</a>&gt;(&amp;Self) -&gt; \
                   impl Iterator&lt;Item = <a href=\"../struct.Guard.html\">Guard</a>&gt;";
        assert_eq!(in_signature(own, 1), ["Iterator"]);
        assert_eq!(
            in_signature("fn x() -&gt; <a href=\"../tokio/struct.Sleep.html\">Sleep</a>", 0),
            ["Sleep"]
        );
        assert_eq!(
            in_signature("fn x() -&gt; <a href=\"../leasehold/struct.Guard.html\">Guard</a>", 0),
            [""; 0]
        );
        assert_eq!(in_signature("fn x(sender: Sender&lt;u8&gt;)", 0), ["Sender"]);
    }

    #[test]
    fn what_a_declaration_declares_is_no_dependency() {
        assert_eq!(in_declaration("pub enum Error {\n    Io(TlsError),\n    Other,\n}", 0), ["TlsError"]);
        assert_eq!(in_declaration("pub struct Report {\n    pub left: Sleep,\n}", 0), ["Sleep"]);
    }
}
