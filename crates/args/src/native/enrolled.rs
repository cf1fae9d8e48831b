//! Clients that have joined by an invitation. Each has a file in the state directory.

use std::path::{Path, PathBuf};

use quictun_trust::enrolment::{Directory, is_pending};
use quictun_trust::settings::{ClientProof, NamedClient};
use serde::Deserialize;

use super::file::ClientTable;
use super::named_client::named_client;
use crate::fault::{Fault, STATE_REMEDY};
use crate::file;
use crate::inputs::Inputs;
use crate::layers::Layers;

/// A client that has joined, and its file.
#[derive(Clone, Debug)]
pub struct EnrolledClient {
    /// The client's name at this server.
    pub name: String,
    /// Path of the client's file.
    pub path: PathBuf,
}

impl EnrolledClient {
    /// Returns the warning that this client is left out, because the configuration has another client of the same name.
    pub(super) fn omission_warning(&self) -> String {
        let Self { name, path } = self;
        let path = path.display();
        format!(
            "client {name:?} is left out as {path} has it, because the configuration names it too: run `quictun invite {name} --revoke`, or take it out of the configuration"
        )
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClientFile {
    client: Vec<ClientTable>,
}

/// Reads the clients that have joined. Leaves out pending invitations.
pub(super) fn read(
    layers: &Layers<'_>,
    state: &Path,
    has_ca: bool,
    checked: Option<&Path>,
) -> Result<Vec<(EnrolledClient, NamedClient)>, Fault> {
    let files = layers.inputs().files;
    let directory = Directory::of(state);
    let what = directory.path().display().to_string();
    let unreadable = |error| {
        let fault = Fault::failure(what, format!("cannot read the clients there: {error}"));
        fault.next(STATE_REMEDY)
    };
    let mut clients = Vec::new();
    for name in files.clients(&directory).map_err(unreadable)? {
        let Some(path) = directory.file_of(&name) else {
            continue;
        };
        let Some(tables) = tables(&path, layers.inputs())? else {
            continue;
        };
        for table in &tables {
            let client = named_client(layers, &path, table, has_ca, checked)?;
            let (name, path) = (client.name.clone(), path.clone());
            clients.push((EnrolledClient { name, path }, client));
        }
    }
    Ok(clients)
}

/// Reads the tables of one file. Returns `None` if the file is a pending invitation, or has disappeared since the
/// directory was read: the client was revoked, or its invitation expired and was removed.
fn tables(path: &Path, inputs: &Inputs<'_>) -> Result<Option<Vec<ClientTable>>, Fault> {
    let read: Option<ClientFile> = file::parse_client_unless(path, inputs, is_pending)?;
    Ok(read.map(|file| file.client))
}

/// Returns the public keys (pins) of a client that has joined, for a list of all clients.
pub fn keys_of(client: &NamedClient) -> Vec<String> {
    let pins = client.proofs.iter().filter_map(|proof| match proof {
        ClientProof::Pin(pin) => Some(pin.to_string()),
        ClientProof::CertificateName | ClientProof::PskFile(_) => None,
    });
    pins.collect()
}
