//! Tests how connections end: the rows of docs/PROTOCOL.md section 7 that TCP can show, seen from both ends of a
//! tunnel.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;

use anyhow::{Result, ensure};
use quictun_testbed::application::Application;
use quictun_testbed::connection::{Connection, DirectionEnd, Endpoint};
use quictun_testbed::payload::Payload;

/// Starts the targets for [`end_all`]: one for each row at each host.
pub(crate) fn applications(hosts: &[&str]) -> Result<Vec<Application>> {
    let mut all = Vec::new();
    for host in hosts {
        for row in ROWS {
            all.push(Application::tcp_on(SocketAddr::new(host.parse()?, 0), row)?);
        }
    }
    Ok(all)
}

const REQUEST: Payload = Payload {
    seed: 92,
    bytes: 300_000,
};
const REPLY: Payload = Payload {
    seed: 93,
    bytes: 3_000_000,
};

/// The target's behaviour in each row.
const ROWS: [fn(Connection) -> Result<()>; 4] = [
    |mut connection| {
        REQUEST.read_to_end_of(&mut connection)?;
        REPLY.write_to(&mut connection)?;
        connection.finish()
    },
    |mut connection| {
        REPLY.write_to(&mut connection)?;
        connection.finish()?;
        REQUEST.read_to_end_of(&mut connection)
    },
    |mut connection| {
        connection.write_all(b"go")?;
        let ending = connection.ending();
        ensure!(ending.is_reset(), "the target saw {ending:?}");
        Ok(())
    },
    |mut connection| {
        connection.read_exact(&mut [0; 1])?;
        connection.write_all(&[7; 100_000])?;
        connection.reset()
    },
];

/// Follows each row's script on connections to all targets; `addresses` are separated by spaces.
pub(crate) fn end_all(addresses: &str) -> Result<()> {
    end_all_by(addresses, |address| Endpoint::parse(address)?.connect())
}

/// Like [`end_all`], with connections made by `connect`.
pub(crate) fn end_all_by(
    addresses: &str,
    connect: impl Fn(&str) -> Result<Connection>,
) -> Result<()> {
    for (row, address) in addresses.split(' ').enumerate() {
        let mut connection = connect(address)?;
        match row % ROWS.len() {
            0 => {
                REQUEST.write_to(&mut connection)?;
                connection.finish()?;
                REPLY.read_to_end_of(&mut connection)?;
            }
            1 => {
                REPLY.read_to_end_of(&mut connection)?;
                REQUEST.write_to(&mut connection)?;
                connection.finish()?;
            }
            2 => {
                connection.read_exact(&mut [0; 1])?;
                connection.reset()?;
            }
            _ => {
                connection.write_all(b"go")?;
                let ending = connection.ending();
                ensure!(
                    matches!(ending, DirectionEnd::Reset { bytes: 0..=100_000 }),
                    "the application saw {ending:?} instead of a reset"
                );
            }
        }
    }
    Ok(())
}
