//! One item: its declaration, its members, and the traits that it implements.

use super::foreign;
use crate::html;

/// What a page says about its item.
pub(super) struct Item {
    /// One line for the item and for each of its fields, variants, methods and implementations.
    pub(super) lines: Vec<String>,
    /// Names in signatures that are perhaps of a dependency, each with its line.
    pub(super) foreign: Vec<(String, String)>,
}

/// Reads the page `page` of an item, such as `test/struct.Host.html`.
///
/// # Errors
///
/// When the page is not as rustdoc makes it.
pub(super) fn read(page: &str, html: &str) -> Result<Item, String> {
    let (_, html) = html.split_once("id=\"main-content\"").ok_or_else(|| format!("{page} has no content"))?;
    let heading = html.split("<pre").next().unwrap_or_default();
    let (declaration, html) = html::between(html, "<pre class=\"rust item-decl\"><code>", "</code></pre>")
        .ok_or_else(|| format!("{page} has no declaration"))?;
    let (folder, file) = page.rsplit_once('/').unwrap_or(("", page));
    let (kind, name) = file.trim_end_matches(".html").split_once('.').ok_or("a page without a kind")?;
    let module = if folder.is_empty() { String::new() } else { format!("{}::", folder.replace('/', "::")) };
    let mut item = Item { lines: Vec::new(), foreign: Vec::new() };
    let path = format!("leasehold::{module}{name}");
    let depth = page.matches('/').count();
    // An item that is re-exported has its source in another crate, which rustdoc may not show. Procedural macros always have.
    if !heading.contains("/src/leasehold") && !matches!(kind, "attr" | "derive" | "macro") {
        item.foreign.push((name.to_owned(), path.clone()));
    }

    let declaration = html::without(declaration, "<summary", "</summary>");
    for part in parts(kind, &html::text(&declaration)) {
        item.lines.push(format!("{path}: {part}"));
    }
    for name in foreign::in_declaration(&declaration, depth) {
        item.foreign.push((name, path.clone()));
    }
    // Headings of documentation have no class.
    for section in
        html.split("<h2 id=\"").skip(1).filter(|section| section.contains("class=\"section-header\""))
    {
        item.section(&path, section, depth);
    }
    Ok(item)
}

impl Item {
    /// Adds the members below a heading, and the traits.
    fn section(&mut self, path: &str, section: &str, depth: usize) {
        let title = section.split('"').next().unwrap_or_default();
        let (own, traits) =
            (title == "implementations" || title.ends_with("-methods"), title == "trait-implementations");
        let autos = title == "synthetic-implementations";
        if !own && !traits && !autos || title.starts_with("deref-") {
            return;
        }
        let mut of = String::new();
        for member in section.split("<section id=\"").skip(1) {
            let id = member.split('"').next().unwrap_or_default();
            let Some((header, _)) = html::between(member, "class=\"code-header\">", "</h") else { continue };
            let header = html::without(header, "<a href=\"#\" class=\"tooltip\"", "</a>");
            // Long signatures are wrapped.
            let text = html::text(&header).replace("( ", "(").replace(", )", ")");
            let is_impl = id.starts_with("impl-");
            if is_impl {
                of.clone_from(&text);
            }
            let shown = match (is_impl, own) {
                (true, true) => None,
                // A detail of the compiler.
                (true, false) if id.starts_with("impl-StructuralPartialEq-") => None,
                (true, false) if autos && !id.starts_with("impl-Send-") && !id.starts_with("impl-Sync-") => {
                    None
                }
                (true, false) => Some(format!("{path}: {text}")),
                (false, true) => Some(format!("{path}: {of}: {text}")),
                // The methods of a trait follow from the trait, its types do not.
                (false, false) => id.starts_with("associated").then(|| format!("{path}: {of}: {text}")),
            };
            if let Some(line) = shown {
                let names = foreign::in_signature(&header, depth);
                self.foreign.extend(names.into_iter().map(|name| (name, line.clone())));
                self.lines.push(line);
            }
        }
    }
}

/// A declaration without its body, then each field or variant. The methods of a trait have lines of their own.
fn parts(kind: &str, declaration: &str) -> Vec<String> {
    let Some((head, body)) =
        declaration.split_once('{').filter(|_| matches!(kind, "struct" | "enum" | "trait" | "union"))
    else {
        return vec![declaration.to_owned()];
    };
    let mut parts = vec![head.trim().to_owned()];
    if kind == "trait" {
        return parts;
    }
    let (mut depth, mut part) = (0_u32, String::new());
    for character in body.trim_end().trim_end_matches('}').chars() {
        match character {
            '(' | '{' | '[' => depth += 1,
            ')' | '}' | ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        // A comma between two types, as in `Result<A, B>`, is followed by no name.
        if character == ',' && depth == 0 && part.matches('<').count() == part.matches('>').count() {
            parts.push(part.trim().to_owned());
            part.clear();
        } else {
            part.push(character);
        }
    }
    parts.extend(Some(part.trim().to_owned()).filter(|part| !part.is_empty()));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = r##"<section id="main-content"><a class="src" href="../../src/leasehold/e.rs.html"></a><pre class="rust item-decl"><code><div class="code-attribute">#[non_exhaustive]</div>pub enum E {
        A,<summary><span>Show 2 variants</span></summary>
        B { <span>x: <a href="https://doc.rust-lang.org/1/u8.html">u8</a></span>, y: Map&lt;K, V&gt; },
    }</code></pre><h2 id="implementations" class="section-header"></h2>
    <section id="impl-E" class="impl"><h3 class="code-header">impl <a href="enum.E.html">E</a></h3></section>
    <section id="method.m" class="method"><h4 class="code-header">pub fn <a href="#method.m" class="fn">m</a>() -&gt; <a href="https://docs.rs/tokio/1/Sender.html">Sender</a> <a href="#" class="tooltip" x="">ⓘ</a></h4></section>
    <h2 id="trait-implementations" class="section-header"></h2>
    <section id="impl-Debug-for-E" class="impl"><h3 class="code-header">impl Debug for E</h3></section>
    <section id="method.fmt" class="method trait-impl"><h4 class="code-header">fn fmt(&amp;self)</h4></section>
    <section id="associatedtype.Output" class="x"><h4 class="code-header">type Output = u8</h4></section>
    <h2 id="synthetic-implementations" class="section-header"></h2>
    <section id="impl-Send-for-E" class="impl"><h3 class="code-header">impl Send for E</h3></section>
    <section id="impl-Unpin-for-E" class="impl"><h3 class="code-header">impl Unpin for E</h3></section>
    <h2 id="blanket-implementations" class="section-header"></h2>
    <section id="impl-From-for-T" class="impl"><h3 class="code-header">impl From for T</h3></section>"##;

    #[test]
    fn a_page_has_a_line_for_each_member() {
        let item = read("test/enum.E.html", PAGE).unwrap();
        assert_eq!(
            item.lines,
            [
                "leasehold::test::E: #[non_exhaustive] pub enum E",
                "leasehold::test::E: A",
                "leasehold::test::E: B { x: u8, y: Map<K, V> }",
                "leasehold::test::E: impl E: pub fn m() -> Sender",
                "leasehold::test::E: impl Debug for E",
                "leasehold::test::E: impl Debug for E: type Output = u8",
                "leasehold::test::E: impl Send for E",
            ]
        );
        assert!(item.foreign.iter().any(|(name, line)| name == "Sender" && line.contains("pub fn m")));
        assert!(item.foreign.iter().all(|(name, _)| name != "E"));
        let other = read("enum.E.html", &PAGE.replace("/src/leasehold/", "/src/tokio/")).unwrap();
        assert!(other.foreign.iter().any(|(name, _)| name == "E"));
    }
}
