//! The differences between two policies, in words for a log.

use std::collections::BTreeSet;

use quictun_wire::target::Family;

use super::registry::{ConfiguredClient, Registry};
use super::{Mode, Policy};

impl Policy {
    /// Returns one sentence for each client that `new` adds, removes or changes, in the order of their names.
    ///
    /// Secrets are compared, and never shown.
    pub fn changes(&self, new: &Self) -> Vec<String> {
        let header_targets =
            |policy: &Self| policy.header_targets.texts().map(str::to_owned).collect();
        let header_targets = difference(
            "proxy_protocol",
            &header_targets(self),
            &header_targets(new),
        );
        let family = (self.dial_family, new.dial_family);
        let (Mode::Named(old), Mode::Named(new)) = (&self.mode, &new.mode) else {
            return Vec::new();
        };
        let names: BTreeSet<&String> = old.configured.keys().chain(new.configured.keys()).collect();
        let mut changes: Vec<String> = header_targets.into_iter().collect();
        if family.0 != family.1 {
            changes.push(format!("ip = {}", ip_setting(family.1)));
        }
        if old.anchors != new.anchors {
            changes.push("ca: the certificate authorities are others".to_owned());
        }
        changes.extend(
            names
                .into_iter()
                .filter_map(|name| of_client(old, new, name)),
        );
        changes
    }
}

/// Returns the value of `--ip` for a family.
fn ip_setting(family: Family) -> &'static str {
    match family {
        Family::Any => "auto",
        Family::V4 => "4",
        Family::V6 => "6",
    }
}

fn of_client(old: &Registry, new: &Registry, name: &str) -> Option<String> {
    match (old.configured.get(name), new.configured.get(name)) {
        (None, Some(_)) => Some(format!("client {name:?}: added")),
        (Some(_), None) => Some(format!("client {name:?}: removed")),
        (Some(old), Some(new)) => {
            let parts = parts(old, new);
            (!parts.is_empty()).then(|| format!("client {name:?}: {}", parts.join("; ")))
        }
        (None, None) => None,
    }
}

fn parts(old: &ConfiguredClient, new: &ConfiguredClient) -> Vec<String> {
    let pins =
        |configured: &ConfiguredClient| configured.pins.iter().map(ToString::to_string).collect();
    let mut parts = Vec::new();
    parts.extend(difference("key", &pins(old), &pins(new)));
    if old.secrets != new.secrets {
        parts.push("psk_file: another secret".to_owned());
    }
    if old.certificate != new.certificate {
        parts.push(format!("certificate = {}", new.certificate));
    }
    parts.extend(difference("allow", &old.allow, &new.allow));
    parts.extend(difference("listen", &old.listen, &new.listen));
    let descriptions = |configured: &ConfiguredClient| {
        configured
            .client
            .limits
            .descriptions()
            .into_iter()
            .collect()
    };
    parts.extend(difference("limits", &descriptions(old), &descriptions(new)));
    if old.client.names_sources != new.client.names_sources {
        parts.push(format!("proxy_protocol = {}", new.client.names_sources));
    }
    parts
}

/// Formats `key -OLD +NEW` if the sets differ.
fn difference(key: &str, old: &BTreeSet<String>, new: &BTreeSet<String>) -> Option<String> {
    let mut text = key.to_owned();
    for item in old.difference(new) {
        text.push_str(" -");
        text.push_str(item);
    }
    for item in new.difference(old) {
        text.push_str(" +");
        text.push_str(item);
    }
    (text.len() > key.len()).then_some(text)
}
