//! `quictun invite NAME --proxy`: makes a client that logs in at the server's HTTPS proxy by its name and a password, and
//! says how programs use it.

use std::fs::OpenOptions;
use std::io::Write as _;

use anyhow::Context as _;
use quictun_trust::enrolment::Directory;
use quictun_trust::settings::{RuleHosts, TargetRule};
use serde::Serialize;

use super::{InviteRequest, failed, server_address};
use crate::exit::{self, ProgramError, say};
use quictun_args::fault::Fault;
use quictun_args::native::settings::Server;

/// The new login, as `--json` prints it.
#[derive(Debug, Serialize)]
struct LoginReport {
    name: String,
    /// The address of the proxy with the login.
    url: String,
    /// `HOST:PORT` of the proxy.
    proxy: String,
    /// The file for browsers.
    pac_file: String,
    allow: Vec<String>,
}

pub(super) fn make(
    server: &Server,
    clients: &Directory,
    invite: &InviteRequest,
    now_s: u64,
    json: bool,
) -> Result<(), ProgramError> {
    let name = &invite.name;
    if server
        .settings
        .listen_tls
        .as_ref()
        .is_some_and(Vec::is_empty)
    {
        let fault = Fault::usage(
            "--proxy",
            "the server has no TCP port, which the HTTPS proxy needs",
        );
        return Err(fault
            .next("take listen_tls = \"off\" out of the server's file")
            .into());
    }
    let proxy = proxy_address(&server_address(server, invite)?, invite.tls_port);
    let pac_file = format!("{name}.pac");
    // All that may fail comes before the password, which is printed once.
    write_new(&pac_file, &pac(&proxy, &invite.allow))?;
    let login = clients.add_login(name, &invite.allow, &invite.limits, now_s);
    let login = login.map_err(|error| {
        // The first error says why. A file that stays does no harm.
        let _stays = std::fs::remove_file(&pac_file);
        failed(error)
    })?;
    let made = LoginReport {
        url: format!("https://{name}:{}@{proxy}", *login.password),
        name: name.clone(),
        proxy,
        pac_file,
        allow: invite.allow.clone(),
    };
    if json {
        let text = exit::json(&made).context("cannot write JSON")?;
        return Ok(exit::print(&text)?);
    }
    exit::print(&format!("{}\n", made.url))?;
    explain(&made, login.replaced);
    warn(server);
    Ok(())
}

/// Writes a file that does not exist yet, not even as a link.
fn write_new(path: &str, content: &str) -> Result<(), ProgramError> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).open(path);
    let written = file.and_then(|mut file| file.write_all(content.as_bytes()));
    Ok(written.map_err(|error| {
        let fault = Fault::usage(path, format!("cannot be written: {error}"));
        fault.next("move a file of this name away, or run the command elsewhere")
    })?)
}

fn explain(made: &LoginReport, replaced: bool) {
    let LoginReport {
        name,
        url,
        proxy,
        pac_file,
        ..
    } = made;
    if replaced {
        say(&format!(
            "The earlier code for {name} is worth nothing now."
        ));
    }
    say(
        "Anyone who has this address can use the server as this client. The server knows it after a reload:",
    );
    say("  systemctl reload quictun-server");
    say(&format!(
        "Programs then reach {} through it:",
        made.allow.join(", ")
    ));
    say(&format!("  curl       curl --proxy {url} https://TARGET/"));
    say(&format!(
        "  git        git config --global http.proxy {url}"
    ));
    say(&format!("  others     export https_proxy={url}"));
    say(&format!(
        "  Chromium   chromium --proxy-server=https://{proxy}  (asks for the user {name} and the password)"
    ));
    say(&format!(
        "  Firefox    Settings, Network Settings, Automatic proxy configuration URL: {pac_file}"
    ));
}

/// Says which settings of the server are missing for programs to use it.
fn warn(server: &Server) {
    if !server.settings.https_proxy {
        say(
            "The server's file does not have https_proxy = true: without that, or --https-proxy, it serves no programs.",
        );
    }
    if server.settings.certificate.is_none() {
        say(&format!(
            "No authority has signed the server's certificate: give programs {}, or set [https] in the server's file.",
            server.state_dir.join("server.crt").display()
        ));
    }
}

/// Returns the address of the proxy: that of the server, with its TCP port if that is another one.
fn proxy_address(server: &str, tls_port: Option<u16>) -> String {
    match (server.rsplit_once(':'), tls_port) {
        (Some((host, _)), Some(port)) => format!("{host}:{port}"),
        _ => server.to_owned(),
    }
}

/// Returns a script for browsers that leads connections to the hosts of the rules to the proxy.
fn pac(proxy: &str, allow: &[String]) -> String {
    let rules: Vec<TargetRule> = allow.iter().filter_map(|rule| rule.parse().ok()).collect();
    let tests: Vec<String> = rules
        .iter()
        .filter_map(|rule| test(rule.hosts()?))
        .collect();
    let tests = if tests.is_empty() {
        "false".to_owned()
    } else {
        tests.join(" ||\n        ")
    };
    format!(
        "// Leads a browser to the hosts that it may reach through a server of quictun.\n\
         function FindProxyForURL(url, host) {{\n    \
             if ({tests}) {{\n        \
                 return \"HTTPS {proxy}\";\n    \
             }}\n    \
             return \"DIRECT\";\n\
         }}\n"
    )
}

/// Returns the test whether a rule names `host`, or `None` if scripts have no test for that. Only addresses are compared
/// with networks: the test of a name would look it up on the browser's machine.
fn test(hosts: RuleHosts<'_>) -> Option<String> {
    match hosts {
        RuleHosts::Any => Some("true".to_owned()),
        RuleHosts::Name(name) => Some(format!("host == \"{name}\"")),
        RuleHosts::Network(std::net::IpAddr::V4(base), len) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
            let mask = std::net::Ipv4Addr::from(mask);
            Some(format!(
                "/^[0-9.]+$/.test(host) && isInNet(host, \"{base}\", \"{mask}\")"
            ))
        }
        RuleHosts::Network(std::net::IpAddr::V6(base), 128) => {
            Some(format!("host == \"{base}\" || host == \"[{base}]\""))
        }
        RuleHosts::Network(std::net::IpAddr::V6(_), _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_names_the_hosts_of_the_rules_and_leads_other_connections_past_the_proxy() {
        let rules = [
            "Db.example:5432",
            "10.0.0.0/8:*",
            "[2001:db8::1]:443",
            "unix:/run/x",
        ];
        let script = pac("proxy.example:443", &rules.map(str::to_owned));
        let expected = r#"// Leads a browser to the hosts that it may reach through a server of quictun.
function FindProxyForURL(url, host) {
    if (host == "db.example" ||
        /^[0-9.]+$/.test(host) && isInNet(host, "10.0.0.0", "255.0.0.0") ||
        host == "2001:db8::1" || host == "[2001:db8::1]") {
        return "HTTPS proxy.example:443";
    }
    return "DIRECT";
}
"#;
        assert_eq!(script, expected);
        let all = pac("[2001:db8::9]:7500", &["*:443".to_owned()]);
        assert!(
            all.contains("if (true) {\n        return \"HTTPS [2001:db8::9]:7500\";"),
            "{all}"
        );
    }

    #[test]
    fn the_proxy_is_at_the_tcp_port() {
        assert_eq!(proxy_address("vpn.example:7500", None), "vpn.example:7500");
        assert_eq!(proxy_address("[::1]:7500", Some(443)), "[::1]:443");
    }
}
