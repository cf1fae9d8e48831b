//! An upgrade of the Debian package, with systemd as the first process: the services go on in the new version, and
//! applications notice only a pause.
//!
//! The package has this build's program, and the scripts and units of `packaging`. The other version has the program of
//! another build. `QUICTUN_E2E_TAKE_OVERS` sets the number of upgrades.

#![allow(clippy::print_stdout, reason = "figures for people who run one test")]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use quictun_skip::skipped;
use quictun_testbed::application::{Application, served_within, through_echo};
use quictun_testbed::connection::Endpoint;
use quictun_testbed::isolation::isolated;
use quictun_testbed::program::{self, Program, installed, run};
use quictun_testbed::transfer::{EndlessSource, Transfer};
use quictun_testbed::tunnel::Home;
use quictun_testbed::{binaries, deadline, environment};

use crate::hand_over::{Heartbeat, SOME, SOON};
use crate::other_builds::other_build;

const SERVICES: [&str; 2] = ["quictun-server", "quictun-client"];

/// The number of upgrades, if the environment does not say otherwise.
const UPGRADES: u64 = 2;

const SERVER: &str = "127.0.0.1:7500";
const FORWARDS: [&str; 2] = ["127.0.0.1:9001", "127.0.0.1:9002"];
const VISITORS: &str = "127.0.0.1:9003";

fn packaging() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging")
}

fn write_executable(path: &Path, content: &[u8]) -> Result<()> {
    fs::write(path, content)?;
    Ok(fs::set_permissions(path, Permissions::from_mode(0o755))?)
}

/// Makes a package of this program in `directory`.
fn package(directory: &Path, version: &str, program: &[u8]) -> Result<()> {
    let tree = directory.join(version);
    let units = "usr/lib/systemd/system";
    let (users, files) = ("usr/lib/sysusers.d", "usr/lib/tmpfiles.d");
    for new in ["DEBIAN", "usr/bin", units, users, files] {
        fs::create_dir_all(tree.join(new))?;
    }
    let control = format!(
        "Package: quictun\nVersion: {version}\nArchitecture: all\n\
         Maintainer: A. Packager <packages@example.net>\nDescription: carries TCP over QUIC\n"
    );
    fs::write(tree.join("DEBIAN/control"), control)?;
    for script in ["postinst", "prerm", "postrm"] {
        let text = fs::read(packaging().join("debian").join(script))?;
        write_executable(&tree.join("DEBIAN").join(script), &text)?;
    }
    for entry in fs::read_dir(packaging().join("systemd"))? {
        let entry = entry?;
        let unit = fs::read_to_string(entry.path())?.replace("/usr/local/bin/", "/usr/bin/");
        fs::write(tree.join(units).join(entry.file_name()), unit)?;
    }
    for (kind, to) in [("sysusers", users), ("tmpfiles", files)] {
        let from = packaging().join(format!("{kind}.conf"));
        fs::copy(from, tree.join(to).join("quictun.conf"))?;
    }
    write_executable(&tree.join("usr/bin/quictun"), program)?;
    let mut build = Command::new(installed("dpkg-deb", "dpkg")?);
    build.args(["--build", "--root-owner-group", "-Znone"]);
    build
        .arg(&tree)
        .arg(directory.join(format!("{version}.deb")));
    run(&mut build)?;
    Ok(fs::remove_dir_all(tree)?)
}

/// Makes packages of two builds.
fn packages(directory: &Path) -> Result<()> {
    package(directory, "1", &fs::read(binaries::path("quictun")?)?)?;
    package(directory, "2", &other_build()?)
}

/// A Debian that shares the network of the test, and a directory.
struct Debian {
    _systemd: Program,
    /// The root directory, as the test sees it.
    root: PathBuf,
    /// The process id of systemd, as the test sees it.
    first: String,
}

impl Debian {
    /// Boots it. Returns `None` and skips the test if the machine does not allow that.
    fn boot(test: &str, shared: &Path) -> Result<Option<Self>> {
        installed("systemd-analyze", "systemd")?;
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/packages/boot.sh");
        let mut command = program::command("unshare");
        command.args(["--fork", "--pid", "--mount", "--uts", "--ipc", "--cgroup"]);
        command.args(["--kill-child", "sh"]).arg(script).arg(shared);
        let mut systemd = Program::start("systemd", &mut command)?;
        let parent = systemd.pid().to_string();
        let first = deadline::wait("systemd", SOON, || {
            let children = program::output(Command::new("pgrep").args(["-P", &parent]))?;
            let first = String::from_utf8_lossy(&children.stdout).trim().to_owned();
            let name = fs::read_to_string(format!("/proc/{first}/comm")).unwrap_or_default();
            let is_up = name.trim() == "systemd";
            Ok((is_up || systemd.ended()?.is_some()).then_some(first))
        })?;
        if let Some(status) = systemd.ended()? {
            let why = systemd.lines();
            skipped(
                test,
                format_args!("systemd does not start, {status}: {why:?}"),
            );
            return Ok(None);
        }
        let debian = Self {
            _systemd: systemd,
            root: format!("/proc/{first}/root").into(),
            first,
        };
        deadline::until("systemd's answer", SOON, || {
            debian.run("systemctl is-system-running --wait").is_ok()
        })?;
        Ok(Some(debian))
    }

    /// Runs a command line, split at white space.
    fn run(&self, line: &str) -> Result<String> {
        self.run_words(&line.split_whitespace().collect::<Vec<_>>())
    }

    /// Runs a command line in a shell.
    fn run_script(&self, script: &str) -> Result<String> {
        self.run_words(&["sh", "-c", script])
    }

    fn run_words(&self, words: &[&str]) -> Result<String> {
        let mut command = Command::new("nsenter");
        command.args([
            "--target",
            &self.first,
            "--mount",
            "--pid",
            "--uts",
            "--ipc",
        ]);
        command.args(["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"]);
        command.arg("DEBIAN_FRONTEND=noninteractive");
        run(command.args(words)).with_context(|| words.join(" "))
    }

    /// Writes a file that the services may read.
    fn configure(&self, name: &str, text: &str) -> Result<()> {
        fs::write(self.root.join("etc/quictun").join(name), text)?;
        self.run(&format!("chown root:quictun /etc/quictun/{name}"))?;
        self.run(&format!("chmod 640 /etc/quictun/{name}"))?;
        Ok(())
    }

    /// Starts a service that writes its log into a file.
    fn start(&self, service: &str) -> Result<()> {
        let directory = self
            .root
            .join(format!("etc/systemd/system/{service}.service.d"));
        fs::create_dir_all(&directory)?;
        let text = format!(
            "[Service]\nStandardOutput=append:/{service}.log\nStandardError=append:/{service}.log\n"
        );
        fs::write(directory.join("log.conf"), text)?;
        self.run("systemctl daemon-reload")?;
        let started = self.run(&format!("systemctl start {service}"));
        started.with_context(|| self.log(service).unwrap_or_default())?;
        Ok(())
    }

    fn log(&self, service: &str) -> Result<String> {
        Ok(fs::read_to_string(
            self.root.join(format!("{service}.log")),
        )?)
    }

    /// Returns the main processes of the services.
    fn processes(&self) -> Result<[String; 2]> {
        let [server, client] = SERVICES.map(|service| {
            self.run(&format!("systemctl is-active {service}"))?;
            self.run(&format!("systemctl show -p MainPID --value {service}"))
        });
        Ok([server?, client?])
    }
}

/// A server and a client as services, with a forward to a source, one to an echo, and a reverse one to the echo.
struct Services {
    source: EndlessSource,
    echo: Application,
}

impl Services {
    fn start(debian: &Debian) -> Result<Self> {
        let (source, echo) = (EndlessSource::new()?, Application::echo()?);
        debian.configure("a.psk", "0123456789abcdef0123\n")?;
        let server = format!(
            "listen = \"{SERVER}\"\n[[client]]\nname = \"a\"\npsk_file = \"/etc/quictun/a.psk\"\n\
             allow = [\"127.0.0.1:*\"]\nlisten = [\"127.0.0.1:*\"]\n"
        );
        debian.configure("server.toml", &server)?;
        debian.start(SERVICES[0])?;
        let log = debian.log(SERVICES[0])?;
        let pin = log.split("sha256:").nth(1).context("no pin")?;
        let pin: String = pin
            .chars()
            .take_while(|&c| c != '"' && !c.is_whitespace())
            .collect();
        let forward = |listen, target: &Application| {
            let target = target.target();
            format!("[[forward]]\nlisten = \"{listen}\"\ntarget = \"{target}\"\n")
        };
        let client = [
            format!("server = \"{SERVER}\"\npin = [\"sha256:{pin}\"]\n"),
            "psk_file = \"/etc/quictun/a.psk\"\n".to_owned(),
            format!("reverse = [\"{VISITORS}={}\"]\n", echo.target()),
            forward(FORWARDS[0], &source.application),
            forward(FORWARDS[1], &echo),
        ];
        debian.configure("client.toml", &client.concat())?;
        debian.start(SERVICES[1])?;
        Ok(Self { source, echo })
    }

    /// Installs other versions, and reloads the last one.
    fn upgrade(self, debian: &Debian) -> Result<()> {
        let echo = Endpoint::parse(FORWARDS[1])?;
        let transfer = Transfer::start(&Endpoint::parse(FORWARDS[0])?)?;
        transfer.advance(1 << 20, SOON)?;
        let visitor = Endpoint::parse(VISITORS)?;
        served_within(&visitor, SOME, SOON)?;
        let mut hearts = [Heartbeat::new(&echo)?, Heartbeat::new(&visitor)?];
        let count = environment::number("QUICTUN_E2E_TAKE_OVERS", UPGRADES)?;
        for number in 0..count {
            let before = debian.processes()?;
            install_during(debian, &mut hearts, 2 - number % 2)?;
            let now = debian.processes()?;
            let replaced = before.iter().zip(&now).all(|(before, now)| before != now);
            ensure!(replaced, "{before:?} and {now:?}");
            transfer.advance(1 << 20, SOON)?;
            through_echo(&echo, SOME)?;
        }
        let before = debian.processes()?;
        for service in SERVICES {
            debian.run(&format!("systemctl reload {service}"))?;
        }
        ensure!(debian.processes()? == before, "the same build took over");
        refuse(debian, &mut hearts, 2 - count % 2)?;
        let longest = hearts.map(|heart| heart.longest);
        println!("{count} upgrades, longest pauses: {longest:?}");
        transfer.finish(&self.source)?;
        self.echo.outcome(SOON)
    }
}

/// Installs a version that refuses the configuration of each service: the previous one goes on, and the script says so.
fn refuse(debian: &Debian, hearts: &mut [Heartbeat], version: u64) -> Result<()> {
    let before = debian.processes()?;
    let [server, client] =
        ["server.toml", "client.toml"].map(|it| debian.root.join("etc/quictun").join(it));
    let (two, wrong) = (fs::read_to_string(&server)?, fs::read_to_string(&client)?);
    // The next process finds two clients with one secret. The command itself finds the wrong key.
    let second = two
        .split_once("[[client]]")
        .context("no client")?
        .1
        .replace("\"a\"", "\"b\"");
    fs::write(&server, format!("{two}[[client]]{second}"))?;
    fs::write(&client, format!("unknown = 1\n{wrong}"))?;
    let said = install_during(debian, hearts, version)?;
    for service in SERVICES {
        let says = format!("{service}.service: this version refuses its configuration");
        ensure!(said.contains(&says), "{said}");
    }
    ensure!(debian.processes()? == before, "a service has ended");
    fs::write(&server, two)?;
    Ok(fs::write(&client, wrong)?)
}

/// Installs a package while these applications exchange bytes. Returns what its scripts write.
fn install_during(debian: &Debian, hearts: &mut [Heartbeat], version: u64) -> Result<String> {
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let beating: Vec<_> = hearts
            .iter_mut()
            .map(|heart| {
                scope.spawn(|| {
                    while !is_done.load(Ordering::Relaxed) {
                        heart.beat_until(Instant::now() + Duration::from_millis(50))?;
                    }
                    anyhow::Ok(())
                })
            })
            .collect();
        let install = format!("dpkg --install /shared/{version}.deb 2>&1");
        let installed = debian.run_script(&install);
        is_done.store(true, Ordering::Relaxed);
        beating.into_iter().try_for_each(|beat| {
            beat.join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })?;
        installed
    })
}

#[test]
fn flows_outlive_upgrades_of_the_package() -> Result<()> {
    isolated(|| {
        let home = Home::new()?;
        packages(home.path())?;
        let Some(debian) = Debian::boot(
            "packages::flows_outlive_upgrades_of_the_package",
            home.path(),
        )?
        else {
            return Ok(());
        };
        debian.run("dpkg --install /shared/1.deb")?;
        let services = Services::start(&debian)?;
        let upgraded = services.upgrade(&debian);
        upgraded.with_context(|| {
            SERVICES
                .map(|service| debian.log(service).unwrap_or_default())
                .concat()
        })
    })
}
