//! Names on the wire, byte for byte as Redisson derives them.

use crate::name::Name;

const LOCK_CHANNEL: &str = "redisson_lock__channel:";

/// The channel on which a freed lock is announced.
pub(super) fn lock_channel(name: &Name) -> String {
    let name = name.as_str();
    if name.contains('{') { format!("{LOCK_CHANNEL}{name}") } else { format!("{LOCK_CHANNEL}{{{name}}}") }
}

/// The names a channel can belong to: `x` and `{x}` share one.
pub(super) fn names_of(channel: &str) -> impl Iterator<Item = &str> {
    let tagged = channel.strip_prefix(LOCK_CHANNEL);
    let bare = tagged.and_then(|tagged| tagged.strip_prefix('{')?.strip_suffix('}'));
    tagged.into_iter().chain(bare)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_and_back() {
        for (name, channel) in [
            ("foo", "redisson_lock__channel:{foo}"),
            ("a{b}c", "redisson_lock__channel:a{b}c"),
            ("{x}:y", "redisson_lock__channel:{x}:y"),
        ] {
            assert_eq!(lock_channel(&Name::new("", name).unwrap()), channel);
            assert!(names_of(channel).any(|candidate| candidate == name));
        }
        assert_eq!(names_of("something else").count(), 0);
    }
}
