//! The user of a URL, and the source of its password.

use std::fmt;
use std::path::PathBuf;

use super::{Credentials, Provider};
use crate::error::ServerError;
use crate::url::UrlError;
use crate::url::parts::malformed;

/// The user of a URL, and the source of its password.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Login {
    user: Option<String>,
    password: Password,
}

#[derive(Clone, Default, PartialEq, Eq)]
enum Password {
    #[default]
    None,
    Text(String),
    /// The content of a file, without the end of its line. It is read for each connection.
    File(PathBuf),
    /// The value of an environment variable.
    Variable(String),
}

impl Login {
    pub(crate) fn new(user: Option<String>, password: Option<String>) -> Self {
        Self { user, password: password.map_or(Password::None, Password::Text) }
    }

    /// Sets an option of a URL: `user`, `pass` or `password`, `password_file`, `password_env`.
    pub(crate) fn set(&mut self, key: &str, value: &str) -> Result<(), UrlError> {
        if key == "user" {
            self.user = (!value.is_empty()).then(|| value.to_owned());
            return Ok(());
        }
        let password = match key {
            _ if value.is_empty() => Password::None,
            "password_file" => Password::File(value.into()),
            "password_env" => Password::Variable(value.to_owned()),
            _ => Password::Text(value.to_owned()),
        };
        if std::mem::replace(&mut self.password, password) != Password::None {
            return Err(malformed(format!("the URL has two passwords, one of them by `{key}`: remove one")));
        }
        Ok(())
    }

    /// The credentials for a connection: the provider's, if there is one.
    pub(crate) async fn credentials(&self, provider: Option<&Provider>) -> Result<Credentials, ServerError> {
        if let Some(provider) = provider {
            return provider.credentials().await.map_err(|error| {
                ServerError::Unavailable(format!("the program's own source of credentials failed: {error}"))
            });
        }
        let password = match &self.password {
            Password::None => None,
            Password::Text(password) => Some(password.clone()),
            Password::File(path) => {
                let text = std::fs::read_to_string(path).map_err(|error| {
                    let path = path.display();
                    ServerError::Unavailable(format!(
                        "the file {path} of the password cannot be read: {error}"
                    ))
                })?;
                Some(text.trim_end_matches(['\r', '\n']).to_owned())
            }
            Password::Variable(name) => Some(std::env::var(name).map_err(|_| {
                ServerError::Denied(format!("the environment variable {name}, for the password, is not set"))
            })?),
        };
        Ok(Credentials { user: self.user.clone(), password, renew_after: None })
    }
}

impl fmt::Debug for Login {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(login: &Login) -> Result<Option<String>, ServerError> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(login.credentials(None)).map(|credentials| credentials.password)
    }

    #[test]
    fn a_password_comes_from_the_url_a_file_or_the_environment() {
        let path = std::env::temp_dir().join(format!("leasehold-password-{}", std::process::id()));
        let mut file = Login::default();
        file.set("password_file", path.to_str().unwrap()).unwrap();
        let error = read(&file).unwrap_err().to_string();
        assert!(error.contains("of the password cannot be read"), "{error}");
        for (content, password) in [("one\n", "one"), (" two \r\n", " two ")] {
            std::fs::write(&path, content).unwrap();
            assert_eq!(read(&file).unwrap().as_deref(), Some(password), "it is read each time");
        }
        std::fs::remove_file(&path).unwrap();

        let mut variable = Login::default();
        variable.set("password_env", "CARGO_PKG_NAME").unwrap();
        assert_eq!(read(&variable).unwrap().as_deref(), Some("leasehold"));
        let mut unset = Login::default();
        unset.set("password_env", "LEASEHOLD_NO_SUCH_VARIABLE").unwrap();
        assert!(
            read(&unset)
                .unwrap_err()
                .to_string()
                .contains("LEASEHOLD_NO_SUCH_VARIABLE, for the password, is not set")
        );

        assert_eq!(read(&Login::new(None, Some("text".into()))).unwrap().as_deref(), Some("text"));
        assert_eq!(read(&Login::default()).unwrap(), None);
    }

    #[test]
    fn two_passwords_are_refused_and_none_is_shown() {
        let mut login = Login::new(Some("me".into()), Some("secret".into()));
        let error = login.set("password_file", "/other").unwrap_err().to_string();
        assert!(error.contains("two passwords") && !error.contains("secret"), "{error}");
        let shown =
            format!("{:?} {:?}", Login::new(None, Some("secret".into())), Credentials::password("secret"));
        assert!(!shown.contains("secret"), "{shown}");
    }
}
