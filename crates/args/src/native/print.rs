//! `quictun config print`: every value in force, and the layer it comes from.
//!
//! The output is a configuration file itself: reading it gives the same settings.

use quictun_control::put;
use quictun_link::units::Rate;
use quictun_trust::limits::timestamp;
use quictun_trust::settings::{ClientProof, NamedClient, ServerIdentity};
use quictun_tunnel::settings::{ClientSettings, ForwardTo, TransportSettings};
use toml::Value;

use super::enrolled::EnrolledClient;
use super::flags::{ALLOW, CONTROL_FLAGS, FORWARD, LISTEN_FOR, PROXY, SERVER_TO_DIAL, STATE_DIR};
use super::servers;
use super::settings::{DEFAULT_CLIENT, Server};
use crate::control::{LOG_LEVEL, short_level};
use crate::layers::{Layers, Origin};
use crate::options::{Arity, Flag};
use crate::outbound_proxy::{ProxyAddress, VIA};
use crate::transport::{CONNECTIONS, WORKERS};

pub(super) fn server(layers: &Layers<'_>, server: &Server) -> String {
    let settings = &server.settings;
    let state_dir = match &settings.identity {
        ServerIdentity::State(dir) => Some(dir.display().to_string()),
        ServerIdentity::Files(_) => None,
    };
    let mut out = "# quictun server: what holds, and where it comes from\n".to_owned();
    tables(&mut out, layers, &settings.transport, state_dir.as_deref());
    let is_enrolled = |client: &&NamedClient| {
        let mut enrolled = server.enrolled.iter();
        enrolled.any(|enrolled| enrolled.name == client.name)
    };
    let clients = settings.access.clients().iter();
    for client in clients.filter(|client| !is_enrolled(client)) {
        named_client(&mut out, layers, client);
    }
    // Clients that have joined stay in their own files.
    for EnrolledClient { name, path } in &server.enrolled {
        let path = path.display();
        put!(
            out,
            "\n# client {name:?} has joined by an invitation: {path}\n"
        );
    }
    out
}

pub(super) fn client(layers: &Layers<'_>, settings: &ClientSettings) -> String {
    let mut out = "# quictun client: what holds, and where it comes from\n".to_owned();
    tables(&mut out, layers, &settings.transport, None);
    server_tables(&mut out, layers);
    for forward in &settings.forwards {
        let (flag, (key, to)): (&dyn Flag, _) = match &forward.to {
            ForwardTo::Target(target) => (&FORWARD, ("target", Value::from(target.to_string()))),
            ForwardTo::Proxy => (&PROXY, ("proxy", Value::from(true))),
            ForwardTo::Source(_) | ForwardTo::Destination => continue,
        };
        let origin = origin(flag, layers.setting(flag).origin);
        out.push_str("\n[[forward]]\n");
        line(
            &mut out,
            "listen",
            &Value::from(forward.listen.to_string()),
            &origin,
        );
        line(&mut out, key, &to, &origin);
    }
    out
}

/// Prints the servers if they are tables.
fn server_tables(out: &mut String, layers: &Layers<'_>) {
    let Some((path, tables)) = layers.tables(&SERVER_TO_DIAL) else {
        return;
    };
    let origin = format!("file {}", path.display());
    for table in tables {
        out.push_str("\n[[server]]\n");
        for key in servers::KEYS {
            let Some(items) = table.get(key) else {
                continue;
            };
            let value = match items.as_slice() {
                [only] => Value::from(only.clone()),
                several => Value::from(several.to_vec()),
            };
            line(out, key, &value, &origin);
        }
    }
}

/// Prints the options, table by table. Those without a table come first, as TOML requires.
fn tables(
    out: &mut String,
    layers: &Layers<'_>,
    transport: &TransportSettings,
    state_dir: Option<&str>,
) {
    for table in ["", "identity", "https", "transport", "control", "log"] {
        let keys = layers.options().filter_map(|option| {
            let key = option.spec().key;
            let (of, key) = key.rsplit_once('.').unwrap_or(("", key));
            (of == table && !key.is_empty()).then_some((option, key))
        });
        let mut heading = (!table.is_empty()).then(|| format!("\n[{table}]\n"));
        for (option, key) in keys {
            let setting = layers.setting(option);
            let mut items = setting.items;
            let mut origin = origin(option, setting.origin);
            let is = |other: &dyn Flag, text: &str| {
                std::ptr::eq(option.spec(), other.spec()) && items.iter().eq([text])
            };
            if is(&WORKERS, "auto") {
                put!(origin, ", here {}", transport.workers);
            } else if is(&CONNECTIONS, "auto") {
                put!(origin, ", here {}", transport.connections);
            } else if is(&STATE_DIR, "") {
                items = state_dir.map(str::to_owned).into_iter().collect();
            }
            // The level was parsed without an error before.
            let level = short_level(layers, CONTROL_FLAGS.verbosity).ok().flatten();
            if let Some((flag, word)) =
                level.filter(|_| std::ptr::eq(option.spec(), LOG_LEVEL.spec()))
            {
                items = vec![word.to_owned()];
                origin = self::origin(flag, layers.setting(flag).origin);
            }
            let is_tables = std::ptr::eq(option.spec(), SERVER_TO_DIAL.spec());
            if is_tables && layers.tables(option).is_some() {
                continue;
            }
            if std::ptr::eq(option.spec(), VIA.spec()) {
                // People show this output to others.
                items = items
                    .iter()
                    .map(|it| ProxyAddress::without_login(it))
                    .collect();
            }
            // The option is unset. Empty text would have the same effect, but would look as if it had been set.
            if items.iter().all(String::is_empty) {
                continue;
            }
            out.push_str(&heading.take().unwrap_or_default());
            line(out, key, &value(option, items), &origin);
        }
    }
}

fn named_client(out: &mut String, layers: &Layers<'_>, client: &NamedClient) {
    let mut rules = (&ALLOW, layers.setting(&ALLOW));
    if rules.1.items.is_empty() {
        rules = (&LISTEN_FOR, layers.setting(&LISTEN_FOR));
    }
    let (flag, setting) = rules;
    let origin = match layers.file_path() {
        Some(path) if client.name != DEFAULT_CLIENT || setting.items.is_empty() => {
            format!("file {}", path.display())
        }
        _ => origin(flag, setting.origin),
    };
    out.push_str("\n[[client]]\n");
    line(out, "name", &Value::from(client.name.clone()), &origin);
    let mut pins = Vec::new();
    for proof in &client.proofs {
        match proof {
            ClientProof::Pin(pin) => pins.push(Value::from(pin.to_string())),
            ClientProof::CertificateName => line(out, "certificate", &Value::from(true), &origin),
            ClientProof::PskFile(path) => line(
                out,
                "psk_file",
                &Value::from(path.display().to_string()),
                &origin,
            ),
        }
    }
    if !pins.is_empty() {
        line(out, "key", &Value::from(pins), &origin);
    }
    let rules: Vec<String> = client.allow.iter().map(ToString::to_string).collect();
    line(out, "allow", &Value::from(rules), &origin);
    if !client.listen.is_empty() {
        let rules: Vec<String> = client.listen.iter().map(ToString::to_string).collect();
        line(out, "listen", &Value::from(rules), &origin);
    }
    if client.names_sources {
        line(out, "proxy_protocol", &Value::from(true), &origin);
    }
    let limits = &client.limits;
    let rate = |bytes: u64| Value::from(Rate(bytes).to_string());
    let number = |number: u64| Value::from(i64::try_from(number).unwrap_or(i64::MAX));
    let shown = [
        ("max_flows", limits.max_flows.map(number)),
        ("rate_up", limits.rate_up.map(rate)),
        ("rate_down", limits.rate_down.map(rate)),
        ("quota", limits.quota.map(number)),
        (
            "expires",
            limits.expires.map(|at| Value::from(timestamp(at))),
        ),
    ];
    for (key, value) in shown {
        if let Some(value) = value {
            line(out, key, &value, &origin);
        }
    }
}

fn value(option: &dyn Flag, mut items: Vec<String>) -> Value {
    if option.spec().arity == Arity::List {
        return Value::from(items);
    }
    let text = items.pop().unwrap_or_default();
    match (text.parse::<i64>(), text.parse::<bool>()) {
        (Ok(number), _) => Value::from(number),
        (_, Ok(on)) => Value::from(on),
        _ => Value::from(text),
    }
}

fn origin(option: &dyn Flag, origin: Origin) -> String {
    match origin {
        Origin::Flag => format!("flag --{}", option.spec().name),
        Origin::Environment(variable) => format!("environment {variable}"),
        Origin::File(path, _) => format!("file {}", path.display()),
        Origin::Default => "default".to_owned(),
    }
}

fn line(out: &mut String, key: &str, value: &Value, origin: &str) {
    let assignment = format!("{key} = {value}");
    put!(out, "{assignment:<50} # {origin}\n");
}
