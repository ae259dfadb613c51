//! TLS for every engine that has servers.

mod options;

pub(crate) use self::options::TlsOptions;
#[cfg(test)]
pub(crate) use self::options::Verify;
