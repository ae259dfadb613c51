//! `leasehold doctor`: what is there, and what endangers locks.

use std::process::ExitCode;

use leasehold::{Client, ConnectError, Diagnosis, Severity};
use serde_json::{Value, json};

use crate::config;
use crate::error::Error;
use crate::options::DoctorOptions;
use crate::output::{print, print_json};
use crate::run::RunError;
use crate::url::Url;

/// The widest line.
const COLUMNS: usize = 80;

/// Examines an engine, prints the report, and returns the exit code: 1 if locks are in danger.
///
/// # Errors
///
/// A URL that is malformed or not given, and a server that cannot be reached.
pub async fn run(options: &DoctorOptions) -> Result<ExitCode, Error> {
    let given = Url::given(options.url.as_ref().or(options.url_option.as_ref()))?;
    let settings = config::settings(options.config.as_deref()).map_err(RunError::from)?;
    let mut settings = config::with_url(settings, given);
    settings.namespace = options.namespace.clone().or(settings.namespace);
    settings.watchdog = options.lease.or(settings.watchdog);
    let url = settings.full_url().map(Url::from).ok_or(Error::NothingToExamine)?;
    let connect = settings.connect().unwrap_or_else(|_| Client::connect(url.secret()));
    let connect = if options.allow_unverified_tls { connect.allow_unverified_tls() } else { connect };
    let client = connect.label("leasehold-doctor").anonymous().await.map_err(|error| match error {
        ConnectError::Url(_) | ConnectError::Invalid(_) => Error::Connect(error),
        other => Error::Unreachable(other.into()),
    })?;
    let diagnosis = client.diagnose().await.map_err(|error| Error::Unreachable(error.into()))?;
    if options.json {
        print_json(&object(&diagnosis))?;
    } else {
        print(text(&diagnosis))?;
    }
    let is_danger = diagnosis.worst() == Some(Severity::Danger);
    Ok(if is_danger { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn object(diagnosis: &Diagnosis) -> Value {
    let facts = diagnosis
        .facts
        .iter()
        .map(|fact| json!({ "name": fact.name, "value": fact.value, "missing": fact.missing }));
    let findings = diagnosis.findings.iter().map(|finding| {
        json!({
            "severity": finding.severity.to_string(),
            "code": finding.code,
            "meaning": finding.meaning,
            "advice": finding.advice,
        })
    });
    json!({
        "engine": diagnosis.engine,
        "server": diagnosis.server,
        "facts": facts.collect::<Vec<_>>(),
        "findings": findings.collect::<Vec<_>>(),
    })
}

fn text(diagnosis: &Diagnosis) -> String {
    let mut lines =
        vec![format!("{} ({})", diagnosis.server.as_deref().unwrap_or("this process"), diagnosis.engine)];
    for fact in &diagnosis.facts {
        let value = match (&fact.value, fact.missing) {
            (Some(value), _) => value.clone(),
            (None, Some(right)) => format!("not known: the user has no right {right}"),
            (None, None) => "not known".into(),
        };
        lines.push(wrapped(&format!("  {}: ", fact.name), "      ", &value));
    }
    for finding in &diagnosis.findings {
        lines.push(String::new());
        lines.push(format!("{} [{}]", finding.severity.to_string().to_uppercase(), finding.code));
        lines.push(wrapped("  ", "  ", &finding.meaning));
        lines.push(wrapped("  Change: ", "    ", &finding.advice));
    }
    lines.push(String::new());
    lines.push(match diagnosis.worst() {
        Some(Severity::Danger) => "Locks are in danger.".into(),
        Some(_) => "Nothing endangers locks by itself.".into(),
        None => "Nothing was found that endangers locks.".into(),
    });
    lines.join("\n")
}

/// A text in lines that fit, the first one behind `first` and the others behind `rest`. A word that is too long has a line of
/// its own.
fn wrapped(first: &str, rest: &str, text: &str) -> String {
    let mut lines = vec![first.to_owned()];
    let mut is_new = true;
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is one from the beginning");
        if !is_new && line.chars().count() + 1 + word.chars().count() > COLUMNS {
            lines.push(format!("{rest}{word}"));
        } else {
            if !is_new {
                line.push(' ');
            }
            line.push_str(word);
        }
        is_new = false;
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_broken_between_words() {
        let long = "x".repeat(90);
        let text = wrapped("a: ", "   ", &format!("one {} two {long} three", "y".repeat(70)));
        let expected = format!("a: one {}\n   two\n   {long}\n   three", "y".repeat(70));
        assert_eq!(text, expected);
        assert_eq!(wrapped("a: ", " ", ""), "a: ");
    }
}
