//! `WireGuard` in user space on two machines: it needs no module of the kernel.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result};
use quictun_testbed::deadline;
use quictun_testbed::machine::Machine;
use quictun_testbed::program::{Program, command, installed, run};
use quictun_testbed::tunnel::START;
use quictun_testbed::work::Work;

use crate::load::machines::LinkedMachines;

/// A device on one of two machines.
#[derive(Debug)]
pub struct WireGuard<'a> {
    machine: &'a Machine,
    name: &'static str,
    wg: PathBuf,
    program: Program,
}

impl<'a> WireGuard<'a> {
    /// The address of the near device.
    pub const NEAR: &'static str = "10.77.0.1";

    /// The address of the far device.
    pub const FAR: &'static str = "10.77.0.2";

    /// The port of the far device.
    pub const PORT: u16 = 51820;

    /// Starts the program `wireguard` on both machines. The near device reaches the far one at `endpoint`. Hides `/run`,
    /// where the programs put their sockets.
    ///
    /// # Errors
    ///
    /// Fails if a program does not start, or if `wg` is missing.
    pub fn pair(
        machines: &'a LinkedMachines,
        wireguard: &Path,
        endpoint: SocketAddr,
    ) -> Result<[Self; 2]> {
        machines.near.run("mount -t tmpfs tmpfs /run")?;
        let near = Self::start(&machines.near, wireguard, "wgnear", Self::NEAR)?;
        let far = Self::start(&machines.far, wireguard, "wgfar", Self::FAR)?;
        let [near_keys, far_keys] = [keys(&near.wg)?, keys(&near.wg)?];
        let peer = |public: &str, address| {
            format!("[Peer]\nPublicKey = {public}\nAllowedIPs = {address}/32\n")
        };
        let of_far = peer(&near_keys[1], Self::NEAR);
        far.configure(
            &far_keys[0],
            &format!("ListenPort = {}\n{of_far}", Self::PORT),
        )?;
        let of_near = peer(&far_keys[1], Self::FAR);
        near.configure(&near_keys[0], &format!("{of_near}Endpoint = {endpoint}\n"))?;
        Ok([near, far])
    }

    fn start(
        machine: &'a Machine,
        wireguard: &Path,
        name: &'static str,
        address: &str,
    ) -> Result<Self> {
        let wg = installed("wg", "wireguard-tools")?;
        let mut command = machine.command(wireguard);
        command.args(["-f", name]).env("LOG_LEVEL", "error");
        let program = Program::start(name, &mut command)?;
        let socket = format!("/run/wireguard/{name}.sock");
        deadline::until("the device", START, || fs::exists(&socket).unwrap_or(false))?;
        machine.run(&format!("ip addr add {address}/24 dev {name}"))?;
        machine.run(&format!("ip link set {name} up"))?;
        Ok(Self {
            machine,
            name,
            wg,
            program,
        })
    }

    /// Sets the key, the port, and the only peer.
    fn configure(&self, key: &str, more: &str) -> Result<()> {
        let file = tempfile::NamedTempFile::new()?;
        fs::write(
            file.path(),
            format!("[Interface]\nPrivateKey = {key}\n{more}"),
        )?;
        let mut command = self.machine.command(&self.wg);
        run(command.args(["setconf", self.name]).arg(file.path())).map(drop)
    }

    /// Returns the time of the last handshake with the peer, seconds.
    ///
    /// # Errors
    ///
    /// Fails if the device is gone.
    pub fn handshake(&self) -> Result<u64> {
        let mut command = self.machine.command(&self.wg);
        let shown = run(command.args(["show", self.name, "latest-handshakes"]))?;
        let time = shown.split_whitespace().nth(1);
        Ok(time.context("no peer")?.parse()?)
    }

    /// Returns the work of the program.
    ///
    /// # Errors
    ///
    /// Fails if it has ended.
    pub fn work(&self) -> Result<Work> {
        self.program.work()
    }
}

/// Returns a private key and its public key.
fn keys(wg: &Path) -> Result<[String; 2]> {
    let private = run(command(wg).arg("genkey"))?;
    let file = tempfile::NamedTempFile::new()?;
    fs::write(file.path(), &private)?;
    let mut public = command(wg);
    public
        .arg("pubkey")
        .stdin(Stdio::from(fs::File::open(file.path())?));
    let public = String::from_utf8(public.output()?.stdout)?;
    Ok([private, public].map(|key| key.trim().to_owned()))
}
