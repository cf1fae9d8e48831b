//! Lists of hosts and name servers that other programs replace while confined processes run.

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use quictun_testbed::application::{Application, served_within};
use quictun_testbed::connection::DirectionEnd;
use quictun_testbed::isolation::isolated;
use quictun_testbed::machine;
use quictun_testbed::payload::Payload;
use quictun_testbed::tunnel::{Client, Home, Server};

use crate::srv;

const SOON: Duration = Duration::from_secs(30);
const SOME: Payload = Payload {
    seed: 817,
    bytes: 10_000,
};

const HOSTS: &str = "/etc/hosts";
const NAME_SERVERS: &str = "/etc/resolv.conf";
/// No process listens at this address.
const OLD: &str = "nameserver 127.0.0.99\n";
const NEW: &str = "nameserver 127.0.0.1\n";

/// A way in which a program replaces a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Replaced {
    Hosts,
    NameServers,
    /// The list is a symbolic link, which then points into another directory.
    Link,
    /// The list is a symbolic link, and the directory of its target is replaced.
    Directory,
}

/// Puts a file in the place of another one, as all of these programs do.
fn replace(path: &str, text: &str) -> Result<()> {
    let new = format!("{path}.new");
    fs::write(&new, text)?;
    Ok(fs::rename(new, path)?)
}

fn link(target: &Path) -> Result<()> {
    let new = format!("{NAME_SERVERS}.new");
    symlink(target, &new)?;
    Ok(fs::rename(new, NAME_SERVERS)?)
}

/// Makes a directory in `/run` with a list of name servers.
fn directory(name: &str, text: &str) -> Result<std::path::PathBuf> {
    let directory = Path::new("/run").join(name);
    fs::create_dir_all(&directory)?;
    fs::write(directory.join("resolv.conf"), text)?;
    Ok(directory)
}

impl Replaced {
    fn prepare(self) -> Result<()> {
        replace(HOSTS, "127.0.0.1 localhost\n")?;
        match self {
            Self::Hosts | Self::NameServers => replace(NAME_SERVERS, OLD),
            Self::Link | Self::Directory => link(&directory("old", OLD)?.join("resolv.conf")),
        }
    }

    fn replace(self) -> Result<()> {
        match self {
            Self::Hosts => replace(HOSTS, "127.0.0.1 localhost target.test server.test\n"),
            Self::NameServers => replace(NAME_SERVERS, NEW),
            Self::Link => link(&directory("new", NEW)?.join("resolv.conf")),
            Self::Directory => {
                fs::rename("/run/old", "/run/older")?;
                directory("old", NEW).map(drop)
            }
        }
    }
}

/// Gives this test's namespaces an `/etc` and a `/run` of their own, and a name server.
fn set_up(home: &Home) -> Result<()> {
    let own = home.path().join("etc");
    fs::create_dir(&own)?;
    fs::write(own.join("nsswitch.conf"), "hosts: files dns\n")?;
    // Without it, the loader finds the same libraries, but takes longer.
    fs::copy("/etc/ld.so.cache", own.join("ld.so.cache")).ok();
    machine::run(&format!("mount --bind {} /etc", own.display()))?;
    machine::run("mount -t tmpfs -o mode=755 tmpfs /run")?;
    let socket = UdpSocket::bind("127.0.0.1:53")?;
    std::thread::spawn(move || {
        let mut question = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut question) {
            if let Some(answer) = srv::answer(&question[..length], &[Vec::new(), Vec::new()]) {
                // An error means that the resolver has gone, and needs no answer.
                socket.send_to(&answer, from).ok();
            }
        }
    });
    Ok(())
}

/// Returns whether this namespace has a single user, which cannot become another one.
fn has_one_user() -> Result<bool> {
    let map = fs::read_to_string("/proc/self/uid_map")?;
    Ok(map.split_whitespace().nth(2) == Some("1"))
}

// SECURITY-MODEL: reads no file of `/etc` that is only for root.
#[test]
fn confined_processes_of_root_find_names_in_lists_that_were_replaced() -> Result<()> {
    isolated(|| {
        let home = Home::new()?;
        set_up(&home)?;
        let echo = Application::echo()?;
        let by_name = format!("tcp:target.test:{}", echo.endpoint().port()?);
        for replaced in [
            Replaced::Hosts,
            Replaced::NameServers,
            Replaced::Link,
            Replaced::Directory,
        ] {
            if replaced == Replaced::Directory && has_one_user()? {
                // Its user may have secrets in `/run`.
                continue;
            }
            replaced.prepare()?;
            let server = Server::start(&["--listen-on", "127.0.0.1:7500"])?;
            let at_server = Client::start("127.0.0.1:7500", &["--token-source", &by_name])?;
            let at_client = Client::start("server.test:7500", &["--token-source", &echo.target()])?;
            let end = at_server.forward.ending()?;
            ensure!(
                matches!(end, DirectionEnd::Reset { .. }),
                "{replaced:?}: {end:?}"
            );
            replaced.replace()?;
            for client in [&at_server, &at_client] {
                served_within(&client.forward, SOME, SOON)
                    .with_context(|| format!("{replaced:?}: {:#?}", client.program.lines()))?;
            }
            drop(server);
            fs::remove_dir_all("/run/old").ok();
        }
        Ok(())
    })
}
