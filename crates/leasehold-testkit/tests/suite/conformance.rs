//! The conformance suite on every engine, and the check that `docs/behaviours.md` matches it.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_testkit::conformance::{CASES, Case};

leasehold_testkit::conformance! { memory, paused, leasehold_testkit::bench::Memory::new() }
leasehold_testkit::conformance! { sim, paused, leasehold_testkit::bench::Sim::new() }
leasehold_testkit::conformance! { sim_sessions, paused, leasehold_testkit::bench::Sim::sessions() }
leasehold_testkit::conformance! { sim_connections, paused, leasehold_testkit::bench::Sim::connections() }
leasehold_testkit::conformance! { etcd, real_time, leasehold_testkit::bench::Etcd::shared() }
leasehold_testkit::conformance! { example, paused, leasehold_testkit::bench::Example::new() }
leasehold_testkit::conformance! { file, real_time, leasehold_testkit::bench::Files::new() }
leasehold_testkit::conformance! { mysql, real_time, leasehold_testkit::bench::Mysql::shared() }
leasehold_testkit::conformance! { redis, real_time, leasehold_testkit::bench::SharedServer::redis() }
leasehold_testkit::conformance! { sentinel, real_time, leasehold_testkit::bench::SharedServer::sentinel() }
leasehold_testkit::conformance! { tls, real_time, leasehold_testkit::bench::SharedServer::secure() }
leasehold_testkit::conformance! { valkey, real_time, leasehold_testkit::bench::SharedServer::valkey() }

const BEHAVIOURS: &str = include_str!("../../../../docs/behaviours.md");

#[test]
fn every_row_of_behaviours_md_has_a_case_or_a_reason_and_every_case_has_a_row() {
    assert_eq!(complaints(BEHAVIOURS, CASES), [""; 0]);
}

/// A row that is covered by another test names it as `` `test` in `file` ``.
#[test]
fn every_other_test_named_in_behaviours_md_exists() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = 0;
    for (before, after) in BEHAVIOURS.lines().filter_map(|line| line.split_once("` in `")) {
        let test = before.rsplit('`').next().unwrap();
        let file = after.split('`').next().unwrap();
        let text = std::fs::read_to_string(root.join(file)).unwrap();
        assert!(text.contains(&format!("fn {test}(")), "{file} has no {test}");
        assert!(has_id(test), "{test} does not begin with the id of a row");
        found += 1;
    }
    assert!(found > 0, "the page names some");
}

#[test]
fn the_check_of_behaviours_md_finds_every_kind_of_mismatch() {
    let case = |name, ids| Case { name, ids };
    let cases = [case("a_1_right", &["A-1"]), case("a_2_other", &["A-2"])];
    let page = "| id | behaviour | shown by |\n|---|---|---|\n| A-1 | It works. | `a_1_right` |\n";
    for (rest, complaint) in [
        ("| A-2 | It works. | `a_2_other` |", None),
        ("", Some("A-2: `a_2_other` lists this id, and there is no such row")),
        (
            "| A-2 | It works. | — because |",
            Some("A-2: `a_2_other` lists this id, and the row does not name it"),
        ),
        ("| A-2 | It works. | `a_2_other`, `a_1_right` |", Some("A-2: `a_1_right` does not list this id")),
        ("| A-2 | It works. | `a_2_other`, `gone` |", Some("A-2: there is no case `gone`")),
        ("| A-2 | It works. | `a_2_other` |\n| A-3 | It may. | |", Some("A-3: neither a case nor a reason")),
        (
            "| A-2 | It works. | `a_2_other` |\n| A-3 | It may. | — |",
            Some("A-3: neither a case nor a reason"),
        ),
        (
            "| A-2 | It works. | `a_2_other` |\n| A-3 | It may. | right |",
            Some("A-3: neither a case nor a reason"),
        ),
        ("| A-2 | It works. | `a_2_other` |\n| A-1 | It may. | `a_1_right` |", Some("A-1: there twice")),
        ("| A-2 | It works. | `a_2_other` |\n| A-3 | | — because |", Some("A-3: no behaviour")),
        ("| A-2 | It works. | `a_2_other` |\n| A-3 | It may. |", Some("A-3: not three columns")),
    ] {
        assert_eq!(complaints(&format!("{page}{rest}"), &cases), Vec::from_iter(complaint), "{rest}");
    }
    let twice = [cases[0], case("a_1_right", &["A-1"])];
    assert_eq!(complaints(page, &twice), ["`a_1_right` is in the list twice"]);
    let misnamed = [case("right", &["A-1"])];
    let page = page.replace("a_1_right", "right");
    assert_eq!(complaints(&page, &misnamed), ["`right` does not begin with `a_1_`"]);
}

/// Whether the name of a test begins with the id of a row, such as `lk_08_`.
fn has_id(test: &str) -> bool {
    BEHAVIOURS.lines().filter_map(row).any(|(id, _)| test.starts_with(&prefix(id)))
}

fn prefix(id: &str) -> String {
    format!("{}_", id.to_ascii_lowercase().replace('-', "_"))
}

/// The mismatches between the rows of a page and a list of cases.
fn complaints(page: &str, cases: &[Case]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut rows: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let known: BTreeMap<_, _> = cases.iter().map(|case| (case.name, case.ids)).collect();

    for (id, cells) in page.lines().filter_map(row) {
        let [behaviour, shown_by] = cells[..] else {
            wrong.push(format!("{id}: not three columns"));
            continue;
        };
        if behaviour.is_empty() {
            wrong.push(format!("{id}: no behaviour"));
        }
        let named = case_names(shown_by).unwrap_or_default();
        let reason = shown_by.strip_prefix("— ").is_some_and(|reason| !reason.trim().is_empty());
        if named.is_empty() && !reason {
            wrong.push(format!("{id}: neither a case nor a reason"));
        }
        for name in &named {
            match known.get(name) {
                None => wrong.push(format!("{id}: there is no case `{name}`")),
                Some(ids) if !ids.contains(&id) => {
                    wrong.push(format!("{id}: `{name}` does not list this id"));
                }
                Some(_) => {}
            }
        }
        if rows.insert(id, named).is_some() {
            wrong.push(format!("{id}: there twice"));
        }
    }

    let mut seen = BTreeSet::new();
    for case in cases {
        if !seen.insert(case.name) {
            wrong.push(format!("`{}` is in the list twice", case.name));
        }
        if let Some(first) =
            case.ids.first().map(|id| prefix(id)).filter(|first| !case.name.starts_with(first))
        {
            wrong.push(format!("`{}` does not begin with `{first}`", case.name));
        }
        for id in case.ids {
            match rows.get(id) {
                None => wrong.push(format!("{id}: `{}` lists this id, and there is no such row", case.name)),
                Some(named) if !named.contains(case.name) => {
                    wrong.push(format!("{id}: `{}` lists this id, and the row does not name it", case.name));
                }
                Some(_) => {}
            }
        }
    }
    wrong
}

/// The id and the other cells of a table row that has an id.
fn row(line: &str) -> Option<(&str, Vec<&str>)> {
    let mut cells = line.strip_prefix('|')?.strip_suffix('|')?.split('|').map(str::trim);
    let id = cells.next()?;
    let (group, number) = id.split_once('-')?;
    let is_id = !group.is_empty()
        && group.bytes().all(|byte| byte.is_ascii_uppercase())
        && !number.is_empty()
        && number.bytes().all(|byte| byte.is_ascii_digit());
    is_id.then(|| (id, cells.collect()))
}

/// The names in a cell that is a list of names, each in back quotes, and nothing else.
fn case_names(cell: &str) -> Option<BTreeSet<&str>> {
    cell.split(", ").map(|name| name.strip_prefix('`')?.strip_suffix('`')).collect()
}
