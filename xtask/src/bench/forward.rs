//! The options of the harness as the words of its command line.

use super::plan::Options;

/// The words that the harness parses as these options. Words may contain spaces.
pub(crate) fn words(options: &Options) -> Vec<String> {
    // Destructured as a whole, so that an option that is not passed on does not compile.
    let Options {
        quick,
        only,
        engines,
        contenders,
        rounds,
        turns,
        seconds,
        warm_up,
        out,
        rust,
        old,
        drivers,
    } = options;
    let given = |name: &str, value: Option<String>| value.map(|value| format!("--{name}={value}"));
    let list = |names: &[String]| (!names.is_empty()).then(|| names.join(","));
    let words = [
        quick.then(|| "--quick".into()),
        given("only", list(only)),
        given("engines", list(engines)),
        given("contenders", list(contenders)),
        given("rounds", rounds.map(|rounds| rounds.to_string())),
        given("turns", turns.map(|turns| turns.to_string())),
        given("seconds", seconds.map(|seconds| seconds.to_string())),
        given("warm-up", warm_up.map(|seconds| seconds.to_string())),
        given("out", Some(out.display().to_string())),
        given("rust", rust.as_ref().map(|folder| folder.display().to_string())),
        given("old", old.as_ref().map(|folder| folder.display().to_string())),
        given("drivers", Some(drivers.display().to_string())),
    ];
    words.into_iter().flatten().collect()
}
