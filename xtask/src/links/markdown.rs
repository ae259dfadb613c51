//! The links and headings of a Markdown file.

use std::collections::{BTreeMap, BTreeSet};

/// What one file links to, and what can be linked to in it.
#[derive(Default)]
pub(super) struct Document {
    /// The targets of inline links and of definitions.
    pub(super) links: Vec<String>,
    /// Labels that are used and not defined.
    pub(super) undefined: Vec<String>,
    /// The ids of the headings, as repositories and rustdoc make them.
    pub(super) headings: BTreeSet<String>,
}

impl Document {
    pub(super) fn read(text: &str) -> Self {
        let mut document = Self::default();
        let (mut definitions, mut used) = (BTreeSet::new(), BTreeSet::new());
        let mut times = BTreeMap::<String, u32>::new();
        let mut in_code = false;
        let mut prose = String::new();
        for line in text.lines() {
            if line.trim_start().starts_with("```") {
                in_code = !in_code;
            } else if in_code {
            } else if let Some((label, target)) = definition(line) {
                definitions.insert(label.to_lowercase());
                document.links.push(target.to_owned());
            } else {
                if let Some((marks, title)) = line.split_once(' ')
                    && !marks.is_empty()
                    && marks.bytes().all(|byte| byte == b'#')
                {
                    let id = id(title);
                    let earlier = times.entry(id.clone()).or_default();
                    document.headings.insert(if *earlier == 0 { id } else { format!("{id}-{earlier}") });
                    *earlier += 1;
                }
                prose.push_str(line);
                prose.push('\n');
            }
        }
        let prose = without_code(&prose);
        for rest in prose.split("](").skip(1) {
            document.links.extend(rest.split_once(')').map(|(target, _)| target.to_owned()));
        }
        for rest in prose.split("][").skip(1) {
            used.extend(rest.split_once(']').map(|(label, _)| label.replace('\n', " ").to_lowercase()));
        }
        document.undefined = used.difference(&definitions).cloned().collect();
        document
    }
}

/// The label and the target of a line such as `[wire]: docs/wire.md`.
fn definition(line: &str) -> Option<(&str, &str)> {
    let (label, target) = line.strip_prefix('[')?.split_once("]: ")?;
    Some((label, target.trim()))
}

/// The text without what is between backticks; a code span may end on a later line.
fn without_code(text: &str) -> String {
    text.split('`').step_by(2).collect()
}

/// The id of a heading: its letters and digits in lower case, with hyphens for spaces.
fn id(title: &str) -> String {
    let kept = title.trim().chars().filter(|&c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect::<String>().to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_labels_and_headings_are_found_outside_of_code() {
        let text = "# A jump of `the` server's clock\n[a](b.md#c), [d][e], [f][g]\n```text\n[no](no.md)\n```\n\
                    `[no](no.md)`\n## More\n## More\n[e]: h.md\n";
        let document = Document::read(text);
        assert_eq!(document.links, ["h.md", "b.md#c"]);
        assert_eq!(document.undefined, ["g"]);
        let headings: Vec<_> = document.headings.iter().map(String::as_str).collect();
        assert_eq!(headings, ["a-jump-of-the-servers-clock", "more", "more-1"]);
    }
}
