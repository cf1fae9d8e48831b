//! The codes in resets, stops and answers, as seen by a QUIC client without a tunnel.

use quictun_sim::engine::Ending;
use quictun_sim::{Script, SimulatedDial, config};
use quictun_wire::code::FlowCode;
use quinn_proto::VarInt;

use crate::guests::Guests as _;
use crate::open::with_bare;
use crate::tunnel_pair::{MS, PROTOCOLS, SECOND, request, wire};

// PROTOCOL ACK-3, OPEN-3.
#[test]
fn a_refusal_is_sent_once_and_the_rest_is_stopped() {
    for protocols in PROTOCOLS {
        let (mut pair, bare) = with_bare(protocols);
        let host = pair.network.host(pair.server);
        host.serve("refused", SimulatedDial::refused(), Script::echo());
        let stream = pair.network.bare(bare).open();
        let mut bytes = request(protocols, "refused");
        bytes.extend_from_slice(b"discarded payload");
        pair.network.bare(bare).write(stream, &bytes);
        pair.network.run_for(5 * SECOND);
        let code = FlowCode::Refused.to_u64();
        let answer = pair.network.bare(bare).read(stream);
        if protocols == config::COMPAT {
            assert_eq!(answer, (vec![3], Some(Ok(()))));
        } else {
            assert_eq!(answer, (vec![], Some(Err(code))));
        }
        let connection = pair.network.bare(bare).connection();
        let stopped = connection.send_stream(stream).stopped();
        assert_eq!(stopped, Ok(VarInt::from_u64(code).ok()));
    }
}

// PROTOCOL CODE-1, CODE-2.
#[test]
fn a_code_is_answered_with_itself_unless_it_is_unknown_or_must_not_be_sent() {
    let lost = FlowCode::ConnectionLost.to_u64();
    let reset = FlowCode::AppReset.to_u64();
    let limit = FlowCode::Limit.to_u64();
    for protocols in PROTOCOLS {
        for (sent, answered) in [(limit, limit), (4711, reset), (lost, reset)] {
            let (mut pair, bare) = with_bare(protocols);
            let host = pair.network.host(pair.server);
            host.serve("echo", SimulatedDial::connects(), Script::echo());
            let stream = pair.network.bare(bare).open();
            let bytes = request(protocols, "echo");
            pair.network.bare(bare).write(stream, &bytes);
            pair.network.run_for(SECOND);
            let code = VarInt::from_u64(sent).expect("a small number");
            let connection = pair.network.bare(bare).connection();
            assert_eq!(connection.send_stream(stream).reset(code), Ok(()));
            pair.network.run_for(SECOND);
            let (_, ended) = pair.network.bare(bare).read(stream);
            assert_eq!(ended, Some(Err(answered)), "answer to {sent}");
        }
    }
}

// PROTOCOL OPEN-6.
#[test]
fn a_dial_is_given_up_when_the_client_resets_the_stream() {
    for protocols in PROTOCOLS {
        let (mut pair, bare) = with_bare(protocols);
        let host = pair.network.host(pair.server);
        host.serve("never", SimulatedDial::Never, Script::echo());
        let stream = pair.network.bare(bare).open();
        let bytes = request(protocols, "never");
        pair.network.bare(bare).write(stream, &bytes);
        pair.network.run_for(100 * MS);
        let connection = pair.network.bare(bare).connection();
        let reset = connection.send_stream(stream).reset(VarInt::from_u32(1));
        assert_eq!(reset, Ok(()));
        pair.network.run_for(100 * MS);
        let endings: Vec<Ending> = pair
            .closed(pair.server)
            .iter()
            .map(|summary| summary.ending)
            .collect();
        assert_eq!(endings, [Ending::Abandoned(FlowCode::AppReset)]);
    }
}

// PROTOCOL ALPN-2.
#[test]
fn a_client_of_another_protocol_is_told_so_in_the_handshake() {
    let (mut pair, _) = with_bare(config::NATIVE);
    let server = pair.server;
    let stranger = pair.network.add_bare("stranger", &[b"h3"], server);
    let link = wire(10 * MS);
    pair.network.link(stranger, server, link.clone(), link);
    pair.network.run_for(SECOND);
    let lost = pair.network.bare(stranger).lost().map(str::to_owned);
    // TLS alert 120, no_application_protocol (RFC 9001 section 4.8).
    assert!(
        lost.as_ref().is_some_and(|lost| lost.contains("120")),
        "{lost:?}"
    );
}
