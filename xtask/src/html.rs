//! The little of HTML that is needed to read pages of rustdoc.

/// The text between two marks, and what follows the second.
pub(crate) fn between<'a>(html: &'a str, start: &str, end: &str) -> Option<(&'a str, &'a str)> {
    html.split_once(start)?.1.split_once(end)
}

/// The values of an attribute of any element, such as `href`, in their order.
pub(crate) fn attributes<'a>(html: &'a str, name: &str) -> Vec<&'a str> {
    let start = format!(" {name}=\"");
    html.split(&*start).skip(1).filter_map(|rest| rest.split_once('"')).map(|(value, _)| value).collect()
}

/// The HTML without the elements that begin with `start` and end with `end`.
pub(crate) fn without(html: &str, start: &str, end: &str) -> String {
    let mut parts = html.split(start);
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        kept.push_str(part.split_once(end).map_or("", |(_, rest)| rest));
    }
    kept
}

/// The text without tags, with single spaces.
pub(crate) fn text(html: &str) -> String {
    // Blocks begin a line of their own: without it, words beside their border would become one.
    let html = html.replace("<div", " <div").replace("</div>", " ");
    let mut text = String::new();
    for part in html.split('<') {
        text.push_str(if text.is_empty() && !html.starts_with('<') {
            part
        } else {
            part.split_once('>').map_or(part, |(_, shown)| shown)
        });
    }
    for (entity, shown) in
        [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&nbsp;", " "), ("&amp;", "&")]
    {
        text = text.replace(entity, shown);
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_no_tags_and_no_entities() {
        assert_eq!(
            text("fn <a href=\"#x\">x</a>(&amp;self)<div>where\n  T: Send</div>"),
            "fn x(&self) where T: Send"
        );
        assert_eq!(text("<a>impl</a>&lt;T&gt;"), "impl<T>");
    }

    #[test]
    fn elements_are_left_out_and_attributes_are_found() {
        assert_eq!(without("a<i>b</i>c<i>d</i>", "<i>", "</i>"), "ac");
        assert_eq!(attributes("<a href=\"x\"><a id=\"y\" href=\"z\">", "href"), ["x", "z"]);
        assert_eq!(between("a<b>c</b>d", "<b>", "</b>"), Some(("c", "d")));
    }
}
