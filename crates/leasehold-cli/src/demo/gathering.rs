//! The gathering that the users join.

/// The name of one gathering: every phase of every run has its own, so that no two disturb each other.
#[derive(Debug, Clone)]
pub struct Gathering(String);

impl Gathering {
    /// The gathering of one phase of the run that `id` names.
    #[must_use]
    pub fn new(id: &str, phase: super::Phase) -> Self {
        Self(format!("leasehold-demo:{id}:{}", phase.option()))
    }

    /// The name of its lock.
    #[must_use]
    pub fn lock(&self) -> &str {
        &self.0
    }

    /// The name of the file with its count.
    pub(crate) fn file(&self) -> String {
        format!("{}.seats", self.0.replace(':', "-"))
    }

    /// The key of its count.
    pub(crate) fn seats(&self) -> String {
        format!("{}:seats", self.0)
    }
}

impl From<String> for Gathering {
    fn from(name: String) -> Self {
        Self(name)
    }
}
