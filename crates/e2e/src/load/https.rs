//! Compares the throughput of the server's HTTPS proxy with that of programs that end TLS and pass the bytes on: stunnel,
//! and the stream module of nginx.
//!
//! All of them are on the far machine with the application, and use one thread. One stunnel on the near machine begins
//! TLS for every connection, with the same version and cipher. So each comparison has the same client. A connection to the
//! proxy begins with CONNECT.
//!
//! The two flows of a comparison take turns of a tenth of a second, as in [`kinds`](super::kinds).

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use clap::Args;
use quictun_testbed::connection::{Connection, Endpoint};
use quictun_testbed::deadline;
use quictun_testbed::machine::Machine;
use quictun_testbed::program::{Program, installed};
use quictun_testbed::tunnel::{Home, START};
use quictun_trust::identity;

use super::carriers::native_tunnel::free_port;
use super::carriers::rates::serve;
use super::machines::{LinkKind, LinkedMachines};
use super::measured::{MeasuredApplication, Transfer, take_turns};
use super::pairs;
use super::report::LoadReport;

/// The size of the measurement.
#[derive(Args, Clone, Copy, Debug)]
pub struct HttpsOptions {
    /// Number of pairs to measure for each program and direction.
    #[arg(long, default_value_t = 10)]
    pub pairs: usize,
    /// Seconds that each measurement takes, without its warm-up.
    #[arg(long, default_value_t = 3.0)]
    pub seconds: f64,
    /// Minimum ratio of the proxy to the others that the intervals may reach.
    #[arg(long, default_value_t = 1.0)]
    pub least: f64,
}

/// The cipher of all connections.
const CIPHER: &str = "TLS_AES_128_GCM_SHA256";

/// The client whose login the proxy's connections have.
const USER: &str = "default";

/// The path of Debian's libnginx-mod-stream.
const STREAM_MODULE: &str = "/usr/lib/nginx/modules/ngx_stream_module.so";

/// The programs that are compared, with the indexes of their places.
const PROXY: usize = 0;
const RIVALS: [(&str, usize); 2] = [("stunnel", 1), ("nginx", 2)];

/// Compares the proxy with each rival. Needs stunnel, and nginx with its stream module.
///
/// # Errors
///
/// Fails if a program is missing or does not work.
pub fn run(link: &LinkKind, load: &HttpsOptions) -> Result<LoadReport> {
    let time = Duration::try_from_secs_f64(load.seconds)?;
    let machines = LinkedMachines::new(link)?;
    let site = HttpsSite::start(&machines)?;
    let title = format!("HTTPS proxy beside others, {} pairs each", load.pairs);
    let mut report = LoadReport::new(title);
    for is_upload in [true, false] {
        let direction = if is_upload { "up" } else { "down" };
        for (rival, place) in RIVALS {
            let mut found = Vec::new();
            for number in 0..load.pairs {
                let both = [
                    site.transfer(PROXY, is_upload)?,
                    site.transfer(place, is_upload)?,
                ];
                let [proxy, other] = take_turns(both, number % 2, time)?;
                found.push((proxy, other));
            }
            let (prefix, names) = (format!("{direction}, {rival}: "), ["proxy", rival]);
            pairs::add_to(&mut report, &prefix, names, "Mbit/s", &found, load.least)?;
        }
    }
    site.end()?;
    machines.end()?;
    Ok(report)
}

/// The programs on both machines.
struct HttpsSite<'a> {
    near: &'a Machine,
    application: MeasuredApplication,
    /// The request for the application at the proxy.
    request: String,
    /// The places on the near machine where TLS to each program begins.
    entrances: Vec<Endpoint>,
    programs: Vec<Program>,
    _home: Home,
}

impl<'a> HttpsSite<'a> {
    fn start(machines: &'a LinkedMachines) -> Result<Self> {
        let home = Home::new()?;
        identity::generate(home.path(), "rival")?;
        let (application, target) = serve(machines)?;
        let address = |port| SocketAddr::new(machines.address, port);
        let mut exits = Vec::new();
        for _ in 0..3 {
            exits.push(address(free_port(&machines.far)?));
        }
        let server = start_server(machines, &home, exits[PROXY], target)?;
        let secret = fs::read_to_string(home.path().join("state/client.psk"))?;
        let login = BASE64_STANDARD.encode(format!("{USER}:{}", secret.trim()));
        let request =
            format!("CONNECT {target} HTTP/1.1\r\nProxy-Authorization: Basic {login}\r\n\r\n");
        let server_conf = service("cert = rival.crt\nkey = rival.key", exits[1], target);
        let mut programs = vec![
            server,
            start_stunnel(&machines.far, &home, "server.conf", &server_conf)?,
            start_nginx(&machines.far, &home, exits[2], target)?,
        ];
        let mut entrances = Vec::new();
        let mut client_conf = String::new();
        for exit in exits {
            let entrance = (Ipv4Addr::LOCALHOST, free_port(&machines.near)?).into();
            entrances.push(Endpoint::Tcp(entrance));
            client_conf += &service("client = yes", entrance, exit);
        }
        let client = start_stunnel(&machines.near, &home, "client.conf", &client_conf)?;
        programs.push(client);
        let site = Self {
            near: &machines.near,
            application,
            request,
            entrances,
            programs,
            _home: home,
        };
        for place in 0..site.entrances.len() {
            let serves = || site.transfer(place, false).is_ok();
            deadline::until("a program to serve", START, serves)?;
        }
        Ok(site)
    }

    /// Opens a connection to the application through one of the programs.
    fn connect(&self, place: usize) -> Result<Connection> {
        let mut connection = self.near.within(|| self.entrances[place].connect())?;
        if place == PROXY {
            connection.write_all(self.request.as_bytes())?;
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                connection.read_exact(&mut byte)?;
                head.extend(byte);
            }
            let head = String::from_utf8(head)?;
            ensure!(head.starts_with("HTTP/1.1 200 "), "{head}");
        }
        Ok(connection)
    }

    fn transfer(&self, place: usize, is_upload: bool) -> Result<Transfer> {
        let connection = self.connect(place)?;
        if is_upload {
            Transfer::upload(connection, &self.application)
        } else {
            Transfer::download(connection)
        }
    }

    /// Ends the programs; checks that all of them still run.
    fn end(mut self) -> Result<()> {
        for program in &mut self.programs {
            if let Some(status) = program.ended()? {
                bail!("a program ended: {status}\n{}", program.lines().join("\n"));
            }
            program.silence();
        }
        Ok(())
    }
}

fn start_server(
    machines: &LinkedMachines,
    home: &Home,
    listen: SocketAddr,
    target: SocketAddr,
) -> Result<Program> {
    let mut command = home.command(&machines.far, "quictun")?;
    command.args(["server", "--https-proxy", "--http", "off", "--workers", "1"]);
    command.args([
        "--listen",
        &listen.to_string(),
        "--allow",
        &target.to_string(),
    ]);
    let mut server = Program::start("server", &mut command)?;
    server.wait_for("Server endpoint start up successful", START)?;
    Ok(server)
}

/// Returns a service of stunnel, which passes connections to `from` on to `to`.
fn service(settings: &str, from: SocketAddr, to: SocketAddr) -> String {
    let name = from.port();
    format!(
        "[{name}]\n{settings}\naccept = {from}\nconnect = {to}\nsslVersion = TLSv1.3\nciphersuites = {CIPHER}\n"
    )
}

fn start_stunnel(machine: &Machine, home: &Home, file: &str, services: &str) -> Result<Program> {
    let global = "foreground = yes\npid =\nsyslog = no\ndebug = warning\n";
    // Otherwise small writes would wait for acknowledgements.
    let options = "socket = l:TCP_NODELAY=1\nsocket = r:TCP_NODELAY=1\n";
    fs::write(home.path().join(file), [global, options, services].concat())?;
    let mut stunnel = machine.command(installed("stunnel", "stunnel4")?);
    home.settle(&mut stunnel);
    Program::start("stunnel", stunnel.arg(file))
}

fn start_nginx(
    machine: &Machine,
    home: &Home,
    from: SocketAddr,
    to: SocketAddr,
) -> Result<Program> {
    let conf = format!(
        "load_module {STREAM_MODULE};
daemon off;
user root;
pid nginx.pid;
worker_processes 1;
error_log stderr;
events {{}}
stream {{
    server {{
        listen {from} ssl;
        ssl_certificate rival.crt;
        ssl_certificate_key rival.key;
        ssl_protocols TLSv1.3;
        ssl_conf_command Ciphersuites {CIPHER};
        tcp_nodelay on;
        proxy_pass {to};
    }}
}}
"
    );
    fs::write(home.path().join("nginx.conf"), conf)?;
    let mut nginx = machine.command(installed("nginx", "nginx libnginx-mod-stream")?);
    home.settle(&mut nginx);
    nginx
        .arg("-p")
        .arg(home.path())
        .args(["-c", "nginx.conf", "-e", "stderr"]);
    Program::start("nginx", &mut nginx).context("starting nginx")
}
