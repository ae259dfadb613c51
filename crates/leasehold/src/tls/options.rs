//! The TLS options of a URL, the same for every engine.

use std::path::PathBuf;

use crate::url::UrlError;
use crate::url::parts::malformed;

/// How a server is verified, and how this client identifies itself to it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TlsOptions {
    /// A file of certificates, which replace the roots of the system.
    pub(crate) ca: Option<PathBuf>,
    /// The files of the certificate and the key of this client.
    pub(crate) cert: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
    /// The name that the certificate of the server has to be for, if not the host.
    pub(crate) server_name: Option<String>,
    pub(crate) verify: Verify,
}

/// What is checked of the certificate of a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Verify {
    /// Who has signed it, and its name.
    #[default]
    Full,
    /// Who has signed it.
    Ca,
    /// Nothing: any server may claim to be the one. The program has to agree to this, not only the URL.
    None,
}

/// The keys of these options, for errors.
pub(crate) const KEYS: &str = "ca=PATH, cert=PATH, key=PATH, server_name=NAME, verify=full|ca";

impl TlsOptions {
    /// Sets the option of this key; false if it is none of TLS.
    pub(crate) fn set(&mut self, key: &str, value: &str) -> Result<bool, UrlError> {
        if !matches!(key, "ca" | "cert" | "key" | "server_name" | "verify") {
            return Ok(false);
        }
        if value.is_empty() {
            return Err(malformed(format!(
                "the URL option `{key}` has no value: TLS has the options {KEYS}"
            )));
        }
        match key {
            "ca" => self.ca = Some(value.into()),
            "cert" => self.cert = Some(value.into()),
            "key" => self.key = Some(value.into()),
            "server_name" => self.server_name = Some(value.to_owned()),
            _ => {
                self.verify = match value {
                    "full" => Verify::Full,
                    "ca" => Verify::Ca,
                    "none" => Verify::None,
                    _ => {
                        let text =
                            "the URL option `verify` is `full`, the default, `ca` (any name) or `none`";
                        return Err(malformed(text));
                    }
                };
            }
        }
        Ok(true)
    }

    /// Refuses what this build or this program does not allow, before anything is sent. `scheme` is that of the URL.
    pub(crate) fn permit(
        &self,
        scheme: &str,
        has_feature: bool,
        allow_unverified: bool,
    ) -> Result<(), UrlError> {
        if !has_feature {
            return Err(UrlError::NoTls { scheme: scheme.to_owned() });
        }
        if self.verify == Verify::None && !allow_unverified {
            return Err(UrlError::Unverified);
        }
        Ok(())
    }

    /// Refuses options that make sense only together.
    pub(crate) fn check(&self) -> Result<(), UrlError> {
        match (&self.cert, &self.key) {
            (Some(_), None) => {
                Err(malformed("the URL option `cert` needs `key`, the file of its private key"))
            }
            (None, Some(_)) => {
                Err(malformed("the URL option `key` needs `cert`, the file of its certificate"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(pairs: &[(&str, &str)]) -> Result<TlsOptions, UrlError> {
        let mut options = TlsOptions::default();
        for (key, value) in pairs {
            assert!(options.set(key, value)?, "{key}");
        }
        options.check()?;
        Ok(options)
    }

    #[test]
    fn all_options_are_understood() {
        let options =
            set(&[("ca", "/ca"), ("cert", "/c"), ("key", "/k"), ("server_name", "redis"), ("verify", "ca")]);
        let expected = TlsOptions {
            ca: Some("/ca".into()),
            cert: Some("/c".into()),
            key: Some("/k".into()),
            server_name: Some("redis".into()),
            verify: Verify::Ca,
        };
        assert_eq!(options, Ok(expected));
        assert_eq!(set(&[]).unwrap().verify, Verify::Full);
        assert_eq!(set(&[("verify", "none")]).unwrap().verify, Verify::None);
        assert_eq!(TlsOptions::default().set("db", "1"), Ok(false));
    }

    #[test]
    fn a_server_that_is_not_verified_needs_the_consent_of_the_program() {
        let [full, none] = [&[][..], &[("verify", "none")]].map(|pairs| set(pairs).unwrap());
        for (options, allowed, outcome) in [
            (&full, false, Ok(())),
            (&full, true, Ok(())),
            (&none, false, Err(UrlError::Unverified)),
            (&none, true, Ok(())),
        ] {
            assert_eq!(options.permit("rediss", true, allowed), outcome);
        }
        let error = none.permit("rediss", true, false).unwrap_err().to_string();
        assert!(
            error.contains("allow_unverified_tls") && error.contains("--allow-unverified-tls"),
            "{error}"
        );
    }

    #[test]
    fn a_build_without_tls_names_the_feature_that_is_missing() {
        let error = TlsOptions::default().permit("valkeys", false, true).unwrap_err().to_string();
        assert!(error.contains("`valkeys:`") && error.contains("the feature `tls`"), "{error}");
    }

    #[test]
    fn an_option_that_cannot_be_followed_is_refused() {
        for (pairs, mistake) in [
            (&[("verify", "no")][..], "`verify` is `full`"),
            (&[("ca", "")], "`ca` has no value"),
            (&[("cert", "/c")], "`cert` needs `key`"),
            (&[("key", "/k")], "`key` needs `cert`"),
        ] {
            let error = set(pairs).unwrap_err().to_string();
            assert!(error.contains(mistake), "{error}");
        }
    }
}
