//! The list of differences from Redisson, and the page that documents them for users.

use std::collections::BTreeSet;

const LIST: &str = include_str!("../../../../interop/differences.toml");
const PAGE: &str = include_str!("../../../../docs/redisson.md");

#[test]
fn redisson_md_lists_every_difference_and_no_other() {
    let listed: BTreeSet<_> =
        LIST.lines().filter_map(|line| line.strip_prefix("id = \"")?.strip_suffix('"')).collect();
    let (_, told) = PAGE.split_once("## Where the behaviour differs").unwrap();
    let (told, _) = told.split_once("## Versions").unwrap();
    let told: Vec<_> = told.lines().filter_map(last_cell).collect();

    assert!(!listed.is_empty());
    assert_eq!(told.iter().copied().collect::<BTreeSet<_>>(), listed);
    assert_eq!(told.len(), listed.len(), "one of them is listed twice");
}

/// The last cell of a row of a table, if it is an id in back quotes.
fn last_cell(line: &str) -> Option<&str> {
    let (_, cell) = line.strip_suffix(" |")?.rsplit_once("| ")?;
    cell.strip_prefix('`')?.strip_suffix('`')
}
