//! The clients of this process, for engines inside it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{ClientInfo, Identity};
use crate::client_id::ClientId;
use crate::mutex::Mutex;

static CLIENTS: Mutex<BTreeMap<ClientId, Arc<ClientInfo>>> = Mutex::new(BTreeMap::new());

/// A client that other clients of the process can find, as long as this lives.
#[derive(Debug)]
pub(crate) struct InProcess(ClientId);

impl InProcess {
    pub(crate) fn register(identity: &Identity) -> Self {
        CLIENTS.lock().insert(identity.id, Arc::new(identity.info.clone()));
        Self(identity.id)
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        CLIENTS.lock().remove(&self.0);
    }
}

/// What is known of a client, if it is one of this process.
pub(crate) fn in_process(client: ClientId) -> Option<Arc<ClientInfo>> {
    CLIENTS.lock().get(&client).cloned()
}
