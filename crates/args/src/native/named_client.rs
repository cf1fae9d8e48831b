//! A `[[client]]` table, of the server's file or of a client that has joined.

use std::path::Path;
use std::str::FromStr;

use quictun_trust::settings::{ClientProof, NamedClient, Pin};

use super::file::ClientTable;
use super::limits;
use crate::fault::Fault;
use crate::file::Texts;
use crate::layers::{Layers, check_readable};

pub(super) fn named_client(
    layers: &Layers<'_>,
    path: &Path,
    table: &ClientTable,
    has_ca: bool,
    checked: Option<&Path>,
) -> Result<NamedClient, Fault> {
    let what = format!("{}: client {:?}", path.display(), table.name);
    let mut proofs = Vec::new();
    let Texts(keys) = &table.key;
    for key in keys {
        proofs.push(ClientProof::Pin(
            Pin::from_str(key).map_err(|error| Fault::usage(&what, error))?,
        ));
    }
    if let Some(psk_file) = &table.psk_file {
        check_readable(layers.inputs().files, &what, psk_file)?;
        proofs.push(ClientProof::PskFile(psk_file.clone()));
    }
    if table.certificate {
        if !has_ca {
            return Err(Fault::usage(
                what,
                "certificate = true needs the certificate authorities of clients: add ca",
            ));
        }
        proofs.push(ClientProof::CertificateName);
    }
    if proofs.is_empty() {
        return Err(Fault::usage(
            what,
            "has no way to prove who it is: add key, psk_file or certificate = true",
        ));
    }
    Ok(NamedClient {
        name: table.name.clone(),
        proofs,
        allow: rules_of(TARGET_RULE, &table.name, &table.allow, checked)?,
        listen: rules_of(LISTEN_RULE, &table.name, &table.listen, checked)?,
        limits: limits::of(&what, table)?,
        names_sources: table.proxy_protocol,
    })
}

/// The name of a target rule in errors.
pub(super) const TARGET_RULE: &str = "rule";

/// The name of a rule for listening in errors.
pub(super) const LISTEN_RULE: &str = "rule for listening";

pub(super) fn rules_of<R: FromStr<Err: std::fmt::Display>>(
    kind: &str,
    client: &str,
    texts: &[String],
    checked: Option<&Path>,
) -> Result<Vec<R>, Fault> {
    let file = checked.map_or(String::new(), |path| format!("{}: ", path.display()));
    let rule = |text: &String| {
        let rule: Result<R, _> = text.parse();
        let what = || format!("{file}the {kind} {text:?} of the client {client:?} has no meaning");
        rule.map_err(|error| Fault::usage(what(), error))
    };
    texts.iter().map(rule).collect()
}
