//! A server at a link-local address, whose zone names the device to dial through.

use anyhow::{Result, ensure};
use quictun_testbed::application::{Application, through_echo};
use quictun_testbed::isolation::isolated;
use quictun_testbed::machine::{self, Machine};
use quictun_testbed::payload::Payload;
use quictun_testbed::program::Program;
use quictun_testbed::tunnel::{Client, Home, START};

use crate::native::{bare, between};

const SOME: Payload = Payload {
    seed: 58,
    bytes: 1 << 20,
};

// OPERATIONS, ports; the client is confined when it dials.
#[test]
fn a_link_local_server_is_dialled_through_its_device_and_a_port_alone_is_on_both_loopbacks()
-> Result<()> {
    isolated(|| {
        machine::run("ip -6 address add fe80::7/64 dev lo")?;
        let application = Application::echo()?;
        let target = bare(&application.target());
        let home = Home::new()?;
        let mut command = home.command(&Machine::here(), "quictun")?;
        command.args(["server", "--listen", "[::]:7500", "--http", "off"]);
        let mut server = Program::start("server", command.args(["--allow", &target]))?;
        let line = server.wait_for(": quictun client ", START)?;
        let pin = between(&line, "--pin ", ' ')?;
        let secret = home.path().join("state/client.psk");
        let client = |address: &str| -> Result<_> {
            let home = Home::new()?;
            let mut command = home.command(&Machine::here(), "quictun")?;
            command.args(["client", "--server", address, "--pin", &pin]);
            command.arg("--psk-file").arg(&secret);
            command.args(["--http", "off", "-L", &format!("2222={target}")]);
            Ok((home, command))
        };
        let (home, mut command) = client("[fe80::7%lo]:7500")?;
        let client_of_zone = Client::from_command(home, &mut command)?;
        let forwards = client_of_zone.forwards(2)?;
        let shown: Vec<_> = forwards.iter().map(ToString::to_string).collect();
        ensure!(
            shown[0].ends_with("127.0.0.1:2222") && shown[1].ends_with("[::1]:2222"),
            "{shown:?}"
        );
        for forward in &forwards {
            through_echo(forward, SOME)?;
        }
        drop(client_of_zone);
        let (_home, mut command) = client("[fe80::7]:7500")?;
        let refused = command.output()?;
        let said = String::from_utf8_lossy(&refused.stderr);
        ensure!(
            refused.status.code() == Some(2) && said.contains("[fe80::7%DEVICE]"),
            "{said}"
        );
        Ok(())
    })
}
