//! Findings about the way to a server: its address, QUIC, TLS over TCP, and the size of packets.

use std::time::Duration;

use quictun_tunnel::outbound_proxy::OutboundProxy;
use quictun_tunnel::reach::{
    self, ANSWER_TIMEOUT, ANSWER_TIMEOUT_OF_PROXY, Answer, Reach, ReachError, ReachRequest,
};

use super::finding::{Finding, Severity};
use crate::exit::ProgramError;

const AREA: &str = "server";

/// Consequence of a way that is closed, if no other is open.
const NO_WAY: &str = "clients cannot connect in this way, nor in the other";

/// Tries all ways to a server.
pub(super) fn findings(request: &ReachRequest) -> Result<Vec<Finding>, ProgramError> {
    match reach::run(request) {
        Ok(reach) => Ok(of(request, &reach)),
        Err(ReachError::Resolve { cause }) => {
            let host = &request.server.host;
            let finding = Finding::ok(AREA, "address", cause)
                .with_severity(Severity::Bad, "clients cannot connect")
                .remedy(format!(
                    "is the name spelt right? `getent hosts {host}` shows what this machine knows of it"
                ));
            Ok(vec![finding])
        }
        Err(error) => Err(anyhow::Error::from(error).into()),
    }
}

fn of(request: &ReachRequest, reach: &Reach) -> Vec<Finding> {
    let mut findings = vec![address(request, reach)];
    let proxy = request.proxy();
    findings.extend(proxy.map(self::proxy));
    findings.push(quic(request.server.port, reach));
    let port = request.tls_port.unwrap_or(request.server.port);
    findings.push(tls(port, reach, proxy));
    if reach.quic.is_server() {
        findings.push(packets(reach));
    }
    findings
}

fn address(request: &ReachRequest, reach: &Reach) -> Finding {
    let addresses = reach.addresses.iter().map(ToString::to_string);
    let addresses = addresses.collect::<Vec<_>>().join(", ");
    if !addresses.is_empty() {
        return Finding::ok(AREA, "address", addresses);
    }
    let host = &request.server.host;
    let found = format!("this machine does not resolve {host}: the proxy has to");
    Finding::ok(AREA, "address", found)
}

fn proxy(proxy: &OutboundProxy) -> Finding {
    let found = format!("{proxy} (from {}): TLS leads through it", proxy.named_by);
    Finding::ok(AREA, "proxy", found)
}

fn quic(port: u16, reach: &Reach) -> Finding {
    let matters = if reach.tls.is_server() {
        "clients use TLS over TCP, and try QUIC again from time to time"
    } else {
        NO_WAY
    };
    let remedy = match &reach.quic {
        Answer::Silent if reach.tls.is_server() => format!(
            "a firewall of this network or of the server drops UDP: have UDP port {port} passed"
        ),
        Answer::Refused => "start the server there, or name the port of its --listen".to_owned(),
        other => of_both(other),
    };
    let way = TriedCarrier {
        what: "UDP (QUIC)",
        port,
        through: "",
        limit: ANSWER_TIMEOUT,
    };
    way.finding(&reach.quic, &reach.tls, matters, remedy)
}

fn tls(port: u16, reach: &Reach, proxy: Option<&OutboundProxy>) -> Finding {
    let matters = if reach.quic.is_server() {
        "clients on networks without UDP cannot connect"
    } else {
        NO_WAY
    };
    let remedy = match &reach.tls {
        Answer::Silent if reach.quic.is_server() => format!(
            "a firewall of this network or of the server drops TCP: have TCP port {port} passed"
        ),
        Answer::Refused => {
            "let the server listen there (--listen-tls), or name its port with --tls-port"
                .to_owned()
        }
        other => of_both(other),
    };
    let (through, limit) = match proxy {
        Some(_) => (" through the proxy", ANSWER_TIMEOUT_OF_PROXY),
        None => ("", ANSWER_TIMEOUT),
    };
    let way = TriedCarrier {
        what: "TCP (TLS)",
        port,
        through,
        limit,
    };
    way.finding(&reach.tls, &reach.quic, matters, remedy)
}

/// Returns the remedy for an answer that means the same for both ways.
fn of_both(answer: &Answer) -> String {
    match answer {
        Answer::Failed(_) => {
            "name the host and port of a `quictun server`; if these are right, another program on the way answers in its place"
        }
        Answer::OutboundProxy(_) => "change that and try again; --via none tries the way without a proxy",
        Answer::Unresolved(_) => "leave it to the proxy, or have this machine's resolver know the name",
        Answer::NoRoute(_) => "is this machine online? `ip route` shows its routes",
        Answer::Silent | Answer::Refused | Answer::Server { .. } => {
            "does the server run at this address, and do firewalls pass UDP or TCP to it?"
        }
    }
    .to_owned()
}

/// One way to a server, for people.
struct TriedCarrier {
    what: &'static str,
    port: u16,
    /// The addition for a way that does not lead to the server directly.
    through: &'static str,
    /// Time limit of the answer.
    limit: Duration,
}

impl TriedCarrier {
    /// Returns the finding of this way, with its consequence and its remedy. `other` is the answer in the other way.
    fn finding(&self, answer: &Answer, other: &Answer, matters: &str, remedy: String) -> Finding {
        let Self {
            what,
            port,
            through,
            limit,
        } = self;
        let found = match answer {
            Answer::Server { after, .. } => format!(
                "port {port} passes{through}: the server answers in {} ms",
                after.as_millis()
            ),
            Answer::Failed(why) => {
                format!("port {port} answers{through}, but not as quictun: {why}")
            }
            Answer::OutboundProxy(why) | Answer::Unresolved(why) => why.clone(),
            Answer::Refused => format!("port {port} is closed: the host refuses"),
            Answer::Silent => format!(
                "port {port} is silent{through}: no answer in {} s",
                limit.as_secs()
            ),
            Answer::NoRoute(why) => format!("cannot send to {why}"),
        };
        let finding = Finding::ok(AREA, what, found);
        match (answer.is_server(), other.is_server()) {
            (true, _) => finding,
            (false, true) => finding
                .with_severity(Severity::Note, matters)
                .remedy(remedy),
            (false, false) => finding.with_severity(Severity::Bad, matters).remedy(remedy),
        }
    }
}

fn packets(reach: &Reach) -> Finding {
    match reach.largest {
        Some(largest) => Finding::ok(
            AREA,
            "packets (MTU)",
            format!(
                "up to {} bytes pass to the server, {} of them for QUIC",
                largest.packet, largest.payload
            ),
        ),
        None => Finding::ok(AREA, "packets (MTU)", "unknown: no probe is answered").with_severity(
            Severity::Note,
            "only this check needs the answers: a client finds the size by itself",
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use quictun_tunnel::reach::LargestPacket;
    use quictun_tunnel::settings::HostPort;

    use super::*;

    fn answers() -> Answer {
        Answer::Server {
            remote: ([192, 0, 2, 1], 7500).into(),
            after: Duration::from_millis(23),
        }
    }

    fn findings(quic: Answer, tls: Answer) -> Vec<Finding> {
        let request = ReachRequest {
            server: HostPort {
                host: "vpn.example.net".to_owned(),
                port: 7500,
            },
            tls_port: Some(443),
            outbound_proxy: None,
        };
        let largest = quic.is_server().then_some(LargestPacket {
            packet: 1500,
            payload: 1472,
        });
        let addresses = vec![[192, 0, 2, 1].into()];
        of(
            &request,
            &Reach {
                addresses,
                quic,
                tls,
                largest,
            },
        )
    }

    fn states(findings: &[Finding]) -> Vec<Severity> {
        findings.iter().map(|finding| finding.state).collect()
    }

    #[test]
    fn each_way_has_one_line_with_its_port() {
        let found = findings(answers(), answers());
        let texts: Vec<&str> = found.iter().map(|finding| finding.found.as_str()).collect();
        let expected = [
            "192.0.2.1",
            "port 7500 passes: the server answers in 23 ms",
            "port 443 passes: the server answers in 23 ms",
            "up to 1500 bytes pass to the server, 1472 of them for QUIC",
        ];
        assert_eq!(texts, expected);
        assert_eq!(states(&found), [Severity::Ok; 4]);
    }

    #[test]
    fn one_closed_way_is_a_note_and_two_are_bad() {
        let failed = || Answer::Failed("no protocol in common".to_owned());
        let closed = [
            Answer::Silent,
            Answer::Refused,
            failed(),
            Answer::NoRoute("here".to_owned()),
        ];
        for answer in closed {
            let by_tls = findings(answer.clone(), answers());
            assert_eq!(
                states(&by_tls),
                [Severity::Ok, Severity::Note, Severity::Ok]
            );
            let by_quic = findings(answers(), answer.clone());
            let expected = [Severity::Ok, Severity::Ok, Severity::Note, Severity::Ok];
            assert_eq!(states(&by_quic), expected);
            let none = findings(answer.clone(), answer);
            assert_eq!(states(&none), [Severity::Ok, Severity::Bad, Severity::Bad]);
            for finding in by_tls.iter().chain(&by_quic).chain(&none) {
                let is_complete = finding.matters.is_some() && finding.remedy.is_some();
                assert_eq!(is_complete, finding.state != Severity::Ok, "{finding}");
            }
        }
    }
}
