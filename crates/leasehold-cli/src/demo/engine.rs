//! The engine of a demo.

use std::env;

use leasehold::Client;

use super::directory::Directory;
use crate::error::Error;
use crate::options::DemoOptions;
use crate::url::Url;

/// Where one demo keeps its locks and its counts.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) client: Client,
    /// The URL for all processes of the demo.
    pub(crate) url: Url,
    /// The URL for the user.
    pub(crate) shown: Url,
    /// It is removed when this is dropped.
    _directory: Option<Directory>,
}

impl Engine {
    /// The engine that the options select.
    ///
    /// Also where child processes do the work: an error in the URL is reported once, not by each of them.
    pub(crate) async fn open(options: &DemoOptions) -> Result<Self, Error> {
        let Some(given) = Url::given(options.url.as_ref())? else {
            return Self::without_server(options).await;
        };
        let client = Client::connect(given.secret()).await?;
        if !(given.is_memory() || given.is_file() || given.is_plain_server()) {
            return Err(Error::NoSeats(given.clone()));
        }
        if options.processes > 1 && given.is_memory() {
            return Err(Error::MemoryIsNotShared { processes: options.processes });
        }
        match given.directory() {
            Some(parent) => {
                let directory = Directory::create_in(&parent).map_err(Error::Directory)?;
                Self::on_files(directory, Some(given.clone())).await
            }
            None => Ok(Self { client, url: given.clone(), shown: given.clone(), _directory: None }),
        }
    }

    async fn without_server(options: &DemoOptions) -> Result<Self, Error> {
        if options.processes > 1 {
            let directory = Directory::create_in(&env::temp_dir()).map_err(Error::Directory)?;
            return Self::on_files(directory, None).await;
        }
        let url = Url::from("memory:".to_owned());
        let client = Client::connect(url.secret()).await?;
        Ok(Self { client, shown: url.clone(), url, _directory: None })
    }

    async fn on_files(directory: Directory, shown: Option<Url>) -> Result<Self, Error> {
        let url = directory.url();
        let client = Client::connect(url.secret()).await?;
        Ok(Self { client, shown: shown.unwrap_or_else(|| url.clone()), url, _directory: Some(directory) })
    }
}
