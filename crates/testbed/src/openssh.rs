//! OpenSSH with temporary keys, which uses nothing of the user's configuration.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::Result;

use crate::application::Application;
use crate::machine::Machine;
use crate::program::{command, installed, run};
use crate::tunnel::Home;

/// Temporary keys, and ssh clients and servers that use them.
#[derive(Debug)]
pub struct SshKeys {
    home: Home,
    sshd: PathBuf,
    user: String,
}

impl SshKeys {
    /// Makes a key for the host and one for the user.
    ///
    /// # Errors
    ///
    /// Fails if the programs of OpenSSH are not installed or fail.
    pub fn new() -> Result<Self> {
        let sshd = installed("sshd", "openssh-server")?;
        let keygen = installed("ssh-keygen", "openssh-client")?;
        let home = Home::new()?;
        for key in ["host", "user"] {
            run(command(&keygen)
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(home.path().join(key)))?;
        }
        let user = run(command("id").arg("-un"))?.trim().to_owned();
        if user == "root" {
            // As root, sshd drops its privileges in this directory, which a service manager would have created.
            std::fs::create_dir_all("/run/sshd")?;
        }
        Ok(Self { home, sshd, user })
    }

    /// Returns the argument of ssh that names the present user at `host`.
    pub fn user_at(&self, host: &str) -> String {
        format!("{}@{host}", self.user)
    }

    /// Returns a command that runs `ssh` or `scp` on `machine`, with these keys.
    pub fn client(&self, machine: &Machine, program: &str) -> Command {
        let mut client = machine.command(program);
        client.args(self.options());
        client
    }

    /// Returns options that make ssh and scp use these keys and none of the user's configuration.
    pub fn options(&self) -> Vec<String> {
        let user = self.home.path().join("user").display().to_string();
        let options = [
            "-oBatchMode=yes",
            "-oStrictHostKeyChecking=no",
            "-oUserKnownHostsFile=/dev/null",
            "-oLogLevel=ERROR",
            "-Fnone",
            "-i",
            &user,
        ];
        options.map(str::to_owned).to_vec()
    }

    /// Returns the directory of the keys, which may hold other files beside them.
    pub fn home(&self) -> &Home {
        &self.home
    }

    /// Runs one `sshd -i` per connection, as inetd would: sshd itself needs no port.
    ///
    /// # Errors
    ///
    /// Fails if the address cannot be listened on.
    pub fn sshd(&self, address: SocketAddr) -> Result<Application> {
        let path = |name: &str| self.home.path().join(name).display().to_string();
        let options = [
            format!("HostKey={}", path("host")),
            format!("AuthorizedKeysFile={}", path("user.pub")),
            "StrictModes=no".to_owned(),
            "UsePAM=no".to_owned(),
            "PermitRootLogin=yes".to_owned(),
            // bash reads ~/.bashrc for commands of ssh, and that of the user may take any time.
            format!("SetEnv=HOME={}", self.home.path().display()),
            "Subsystem=sftp internal-sftp".to_owned(),
        ];
        let sshd = self.sshd.clone();
        Application::tcp_on(address, move |connection| {
            let output: OwnedFd = connection.try_clone()?.into();
            let input: OwnedFd = connection.into();
            let mut serve = command(&sshd);
            serve
                .args(["-i", "-f", "/dev/null"])
                .args(options.iter().flat_map(|option| ["-o", option]));
            serve
                .stdin(Stdio::from(input))
                .stdout(Stdio::from(output))
                .stderr(Stdio::null())
                .status()?;
            Ok(())
        })
    }
}
