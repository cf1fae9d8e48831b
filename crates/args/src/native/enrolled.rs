//! Clients that have joined by an invitation: a file for each in the state directory.

use std::path::{Path, PathBuf};

use quictun_trust::enrolment::{Directory, is_pending};
use quictun_trust::settings::{ClientProof, NamedClient};
use serde::Deserialize;

use super::file::ClientTable;
use super::settings::named_client;
use crate::fault::Fault;
use crate::file;
use crate::inputs::Inputs;
use crate::layers::Layers;

/// A client that has joined, and the file that says so.
#[derive(Clone, Debug)]
pub struct Enrolled {
    /// The client's name.
    pub name: String,
    /// The file.
    pub path: PathBuf,
}

impl Enrolled {
    /// The warning that the configuration has another client of this name.
    pub(super) fn left_out(&self) -> String {
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

/// Reads the clients that have joined, and leaves out pending invitations.
pub(super) fn read(
    layers: &Layers<'_>,
    state: &Path,
    has_ca: bool,
    checked: Option<&Path>,
) -> Result<Vec<(Enrolled, NamedClient)>, Fault> {
    let files = layers.inputs().files;
    let directory = Directory::of(state);
    let what = directory.path().display().to_string();
    let unreadable =
        |error| Fault::failure(what, format!("cannot read the clients there: {error}"));
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
            clients.push((Enrolled { name, path }, client));
        }
    }
    Ok(clients)
}

/// The tables of one file; `None`: an invitation is pending there, or it has gone since the directory was read: revoked,
/// or expired and removed.
fn tables(path: &Path, inputs: &Inputs<'_>) -> Result<Option<Vec<ClientTable>>, Fault> {
    let read: Option<ClientFile> = file::parse_unless(path, inputs, is_pending)?;
    Ok(read.map(|file| file.client))
}

/// How a client that has joined is known, for a list of all.
pub fn keys_of(client: &NamedClient) -> Vec<String> {
    let pins = client.proofs.iter().filter_map(|proof| match proof {
        ClientProof::Pin(pin) => Some(pin.to_string()),
        ClientProof::CertificateName | ClientProof::PskFile(_) => None,
    });
    pins.collect()
}
