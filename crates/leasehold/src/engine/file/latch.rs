//! A count that goes down to zero.

use crate::engine::Adjust;

/// The count in the content of a table, if one is set. The error: it is something else.
pub(super) fn parse(content: &str) -> Result<Option<u32>, ()> {
    if content.is_empty() {
        return Ok(None);
    }
    let count = content.strip_prefix("latch ").ok_or(())?;
    count.trim_end().parse().map(Some).map_err(drop)
}

pub(super) fn format(count: Option<u32>) -> String {
    count.map_or_else(String::new, |count| format!("latch {count}\n"))
}

/// Carries out a change or a query.
pub(super) fn adjust(count: &mut Option<u32>, adjust: &Adjust) -> i64 {
    match adjust {
        Adjust::TrySet { count: first, .. } if count.is_none() => {
            *count = Some(*first);
            1
        }
        Adjust::CountDown => {
            *count = count.and_then(|count| count.checked_sub(1)).filter(|left| *left > 0);
            count.unwrap_or(0).into()
        }
        Adjust::Delete => count.take().is_some().into(),
        Adjust::Count => count.unwrap_or(0).into(),
        Adjust::Exists => count.is_some().into(),
        _ => 0,
    }
}
