//! The certificates that are trusted.

use std::sync::Arc;

use rustls::RootCertStore;
use tokio::sync::{OnceCell, oneshot};

use super::config::{certificates, of_file};
use super::options::TlsOptions;
use crate::env;
use crate::error::ServerError;

/// Those of the file in the URL, which is read each time; otherwise those of the system.
pub(super) async fn of(options: &TlsOptions) -> Result<Arc<RootCertStore>, ServerError> {
    let Some(path) = &options.ca else { return of_system().await };
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(certificates("ca", path)?);
    if added == 0 {
        return Err(of_file("ca", path, "has no certificate in it that can be used"));
    }
    Ok(Arc::new(roots))
}

/// Those of the system. They are hundreds of files, so a process reads them once, on another thread than that of the connections.
async fn of_system() -> Result<Arc<RootCertStore>, ServerError> {
    static ROOTS: OnceCell<Arc<RootCertStore>> = OnceCell::const_new();
    let load = async || {
        let (done, loaded) = oneshot::channel();
        let load = move || drop(done.send(rustls_native_certs::load_native_certs()));
        env::start_thread("leasehold-roots", load).map_err(|error| missing(&error))?;
        let loaded = loaded.await.map_err(|error| missing(&error))?;
        let mut roots = RootCertStore::empty();
        let (added, _) = roots.add_parsable_certificates(loaded.certs);
        match loaded.errors.first() {
            Some(error) if added == 0 => Err(missing(error)),
            None if added == 0 => Err(missing(&"there are none")),
            // One of many that cannot be read is probably not the one that is needed.
            _ => Ok(Arc::new(roots)),
        }
    };
    ROOTS.get_or_try_init(load).await.cloned()
}

/// They may be installed while this runs.
fn missing(error: &impl std::fmt::Display) -> ServerError {
    ServerError::Unavailable(format!(
        "the certificates that this system trusts cannot be read: {error}: install ca-certificates, or write ca=PATH"
    ))
}
