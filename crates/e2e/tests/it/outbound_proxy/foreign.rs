//! Proxies that people run: squid, tinyproxy and dante, with and without a login.

use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use quictun_testbed::application::{Application, through_echo};
use quictun_testbed::deadline;
use quictun_testbed::isolation::isolated;
use quictun_testbed::machine::{self, Machine};
use quictun_testbed::payload::Payload;
use quictun_testbed::program::{Program, installed};

use super::test_proxy::LOGIN;
use super::{Behind, SOON, url};

/// Time in which a proxy starts, on a busy machine.
const START: Duration = Duration::from_mins(1);

/// The ports of the proxies, on the test's own host.
const PORT: u16 = 3128;

/// The digests of the password of [`LOGIN`]: for squid's helper, and for the system's users, as which dante knows them.
const DIGEST_APR1: &str = "$apr1$quictun0$383tFGErG3uevMldy15CT/";
const DIGEST_SHA512: &str = "$6$quictun$sMGF6VlgiOwtSBI3pMwzbYSBnLOrZU7zJm4BgYfPwU259Aio6kiDewNLHKVF8rAc1lGrTKpkagH.QgW9/RY6Q/";

/// Carries a flow through a proxy that `start` starts in a directory, without a login and with one, and has it refuse a
/// wrong one.
fn carries(scheme: &str, start: impl Fn(&Path, &Behind, bool) -> Result<Program>) -> Result<()> {
    let behind = Behind::new()?;
    let echo = behind.machines.far.within(Application::echo)?;
    let via = url(scheme, (Ipv4Addr::LOCALHOST, PORT).into());
    let server = behind.server().to_string();
    let carries = |flags: &[&str]| {
        let client = behind.client(&server, &echo.target(), flags)?;
        through_echo(&client.forward, Payload::new(6, 2_000_000))
    };
    let directory = tempfile::tempdir()?;
    let start = |protected| {
        let proxy = start(directory.path(), &behind, protected)?;
        let serves = || TcpStream::connect((Ipv4Addr::LOCALHOST, PORT)).is_ok();
        deadline::until("the proxy's port", START, serves)?;
        anyhow::Ok(proxy)
    };
    let mut proxy = start(false)?;
    carries(&["--via", &via])?;
    proxy.kill()?;
    let _proxy = start(true)?;
    let right = behind.credentials(LOGIN)?.display().to_string();
    carries(&["--via", &via, "--via-credentials", &right])?;
    fs::write(&right, "ann:wrong\n")?;
    let flags = [
        "--carrier",
        "tls",
        "--via",
        &via,
        "--via-credentials",
        &right,
    ];
    let mut wrong = behind.client(&server, &echo.target(), &flags)?;
    wrong
        .program
        .wait_for("refuses this user and password", SOON)?;
    let mut none = behind.client(&server, &echo.target(), &flags[..4])?;
    let line = none
        .program
        .wait_for("cannot connect to server endpoint", SOON)?;
    ensure!(line.contains("wants a user and a password"), "{line}");
    Ok(())
}

fn command(program: &Path, arguments: &[&str]) -> Command {
    let mut command = Machine::here().command(program);
    command.args(arguments);
    command
}

#[test]
fn squid_leads_to_the_server() -> Result<()> {
    isolated(|| {
        let squid = installed("squid", "squid")?;
        carries("http", |directory, _, protected| {
            let users = directory.join("users");
            fs::write(&users, format!("ann:{DIGEST_APR1}\n"))?;
            machine::run(&format!("chmod -R a+rX {}", directory.display()))?;
            // The pinger needs UDP, also on this machine.
            let mut text = format!(
                "http_port 127.0.0.1:{PORT}\npid_filename none\ncache deny all\naccess_log none\ncache_store_log none\n\
                 cache_log /dev/null\nshutdown_lifetime 0 seconds\nmax_filedescriptors 1024\nnetdb_filename none\npinger_enable off\n"
            );
            let users = users.display();
            text += &if protected {
                [
                    &format!("auth_param basic program /usr/lib/squid/basic_ncsa_auth {users}"),
                    "acl known proxy_auth REQUIRED",
                    "http_access allow known",
                    "http_access deny all\n",
                ]
                .join("\n")
            } else {
                "http_access allow all\n".to_owned()
            };
            let file = directory.join("squid.conf");
            fs::write(&file, text)?;
            let file = file.display().to_string();
            let squid = Program::start(
                "squid",
                &mut command(&squid, &["-N", "-d", "1", "-f", &file]),
            )?;
            Ok(squid)
        })
    })
}

#[test]
fn tinyproxy_leads_to_the_server() -> Result<()> {
    isolated(|| {
        let tinyproxy = installed("tinyproxy", "tinyproxy")?;
        carries("http", |directory, _, protected| {
            let mut text = format!("Port {PORT}\nListen 127.0.0.1\nTimeout 600\nLogLevel Info\n");
            if protected {
                text += &["BasicAuth ", &LOGIN.replace(':', " "), "\n"].concat();
            }
            let file = directory.join("tinyproxy.conf");
            fs::write(&file, text)?;
            let file = file.display().to_string();
            let tinyproxy =
                Program::start("tinyproxy", &mut command(&tinyproxy, &["-d", "-c", &file]))?;
            Ok(tinyproxy)
        })
    })
}

#[test]
fn dante_leads_to_the_server() -> Result<()> {
    isolated(|| {
        let danted = installed("danted", "dante-server")?;
        carries("socks5h", |directory, behind, protected| {
            let users = [
                (
                    "passwd",
                    format!(
                        "ann:x:4242:4242::/:/bin/false\n{}",
                        fs::read_to_string("/etc/passwd")?
                    ),
                ),
                (
                    "shadow",
                    format!("ann:{DIGEST_SHA512}:19000:0:99999:7:::\n"),
                ),
            ];
            if protected {
                for (name, text) in users {
                    let file = directory.join(name);
                    fs::write(&file, text)?;
                    machine::run(&format!("mount --bind {} /etc/{name}", file.display()))?;
                }
            }
            let method = if protected { "username" } else { "none" };
            let device = device_to(behind)?;
            let text = format!(
                "logoutput: stdout\ninternal: 127.0.0.1 port = {PORT}\nexternal: {device}\nclientmethod: none\n\
                 socksmethod: {method}\nuser.privileged: root\nuser.unprivileged: root\n\
                 client pass {{\n from: 0.0.0.0/0 to: 0.0.0.0/0\n}}\nsocks pass {{\n from: 0.0.0.0/0 to: 0.0.0.0/0\n}}\n"
            );
            let file = directory.join("danted.conf");
            fs::write(&file, text)?;
            let file = file.display().to_string();
            let danted =
                Program::start("danted", &mut command(&danted, &["-f", &file, "-N", "1"]))?;
            Ok(danted)
        })
    })
}

/// Returns the device of the test's own host that leads to the server.
fn device_to(behind: &Behind) -> Result<String> {
    let route = machine::run(&format!("ip route get {}", behind.server().ip()))?;
    let mut words = route
        .split_whitespace()
        .skip_while(|word| *word != "dev")
        .skip(1);
    Ok(words.next().unwrap_or_default().to_owned())
}
