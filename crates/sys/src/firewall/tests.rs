use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use super::*;
use crate::network::Network;
use crate::network::tests::namespaces;

const MARK: u32 = 0x7174_0000;

fn cidr(text: &str) -> IpNet {
    text.parse().expect("a network")
}

/// Returns whether a datagram to this port of this host passes the filter.
fn passes(port: u16) -> io::Result<bool> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    match socket.send_to(b"x", (IpAddr::from([127, 0, 0, 1]), port)) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(false),
        Err(error) => Err(error),
    }
}

#[test]
fn a_table_decides_until_it_is_replaced_or_removed() {
    let test = "firewall::tests::a_table_decides_until_it_is_replaced_or_removed";
    let Some((network, _)) = namespaces(test) else {
        return;
    };
    network
        .within(|| {
            Network::open()?.set_up("lo")?;
            assert!(!Firewall::remove("test")?);
            for closed in [9, 10] {
                let mut table = Firewall::new("test");
                table.chain("pass", Hook::Postrouting, 0);
                let of = [Statement::Protocol(17), Statement::Port(closed)];
                table.rule("pass", &[of[0], of[1], Statement::Drop]);
                table.install()?;
                assert_eq!((passes(9)?, passes(10)?), (closed != 9, closed != 10));
            }
            // A refused table changes nothing.
            let mut wrong = Firewall::new("test");
            wrong.chain("pass", Hook::Postrouting, 0);
            wrong.rule("another", &[Statement::Drop]);
            assert!(wrong.install().is_err());
            assert_eq!((passes(9)?, passes(10)?), (true, false));
            assert!(Firewall::remove("test")?);
            assert_eq!((passes(9)?, passes(10)?), (true, true));
            Ok(())
        })
        .expect("a table");
}

#[test]
fn the_kernel_accepts_every_statement_in_every_chain_that_allows_it() {
    let test = "firewall::tests::the_kernel_accepts_every_statement_in_every_chain_that_allows_it";
    let Some((network, _)) = namespaces(test) else {
        return;
    };
    network
        .within(|| {
            let mut table = Firewall::new("test");
            let pairs: Vec<(SocketAddr, SocketAddr)> = (1..=2500)
                .map(|port| {
                    let v4 = port % 2 == 0;
                    let there: IpAddr = if v4 {
                        [192, 0, 2, 1].into()
                    } else {
                        [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1].into()
                    };
                    ((there, 22).into(), (there, port).into())
                })
                .collect();
            let sets = [false, true].map(|v6| table.connections(v6, &pairs));
            let all = [
                Statement::Through("lo"),
                Statement::To(cidr("0.0.0.0/0")),
                Statement::To(cidr("10.0.0.0/9")),
                Statement::To(cidr("2001:db8::/33")),
                Statement::ToThisHost,
                Statement::SourcePort(1),
                Statement::Port(2),
                Statement::NeighbourDiscovery,
                Statement::Begins,
                Statement::Continues,
                Statement::IsNew,
                Statement::Marked(MARK),
                Statement::ConnectionMarked(MARK),
                Statement::In(sets[0]),
                Statement::In(sets[1]),
                Statement::Mark(MARK),
                Statement::MarkConnection(MARK),
                Statement::Accept,
                Statement::Drop,
            ];
            for (name, hook) in [
                ("arrive", Hook::Prerouting),
                ("leave", Hook::Output),
                ("pass", Hook::Postrouting),
            ] {
                table.chain(name, hook, -150);
                let device = usize::from(hook == Hook::Prerouting);
                for part in &all[device..] {
                    table.rule(name, &[Statement::Protocol(6), *part]);
                }
            }
            table.rule("arrive", &[Statement::From("lo"), Statement::Accept]);
            table.install()?;
            assert!(Firewall::remove("test")?);
            Ok(())
        })
        .expect("a table");
}
