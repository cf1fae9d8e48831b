//! The codes in resets, stops and answers, as seen by a QUIC client without a tunnel.

use quictun_sim::engine::Ending;
use quictun_sim::{Dial, Script, config};
use quictun_wire::code::FlowCode;
use quinn_proto::VarInt;

use crate::guests::Guests as _;
use crate::open::with_bare;
use crate::world::{MS, PROTOCOLS, SECOND, request, wire};

// PROTOCOL ACK-3, OPEN-3.
#[test]
fn a_refusal_is_said_once_and_the_rest_is_stopped() {
    for protocols in PROTOCOLS {
        let (mut world, bare) = with_bare(protocols);
        let host = world.network.host(world.server);
        host.serve("refused", Dial::refused(), Script::echo());
        let stream = world.network.bare(bare).open();
        let mut bytes = request(protocols, "refused");
        bytes.extend_from_slice(b"discarded payload");
        world.network.bare(bare).write(stream, &bytes);
        world.network.run_for(5 * SECOND);
        let code = FlowCode::Refused.to_u64();
        let answer = world.network.bare(bare).read(stream);
        if protocols == config::COMPAT {
            assert_eq!(answer, (vec![3], Some(Ok(()))));
        } else {
            assert_eq!(answer, (vec![], Some(Err(code))));
        }
        let connection = world.network.bare(bare).connection();
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
            let (mut world, bare) = with_bare(protocols);
            let host = world.network.host(world.server);
            host.serve("echo", Dial::connects(), Script::echo());
            let stream = world.network.bare(bare).open();
            let bytes = request(protocols, "echo");
            world.network.bare(bare).write(stream, &bytes);
            world.network.run_for(SECOND);
            let code = VarInt::from_u64(sent).expect("a small number");
            let connection = world.network.bare(bare).connection();
            assert_eq!(connection.send_stream(stream).reset(code), Ok(()));
            world.network.run_for(SECOND);
            let (_, ended) = world.network.bare(bare).read(stream);
            assert_eq!(ended, Some(Err(answered)), "answer to {sent}");
        }
    }
}

// PROTOCOL OPEN-6.
#[test]
fn a_dial_is_given_up_when_the_client_resets_the_stream() {
    for protocols in PROTOCOLS {
        let (mut world, bare) = with_bare(protocols);
        let host = world.network.host(world.server);
        host.serve("never", Dial::Never, Script::echo());
        let stream = world.network.bare(bare).open();
        let bytes = request(protocols, "never");
        world.network.bare(bare).write(stream, &bytes);
        world.network.run_for(100 * MS);
        let connection = world.network.bare(bare).connection();
        let reset = connection.send_stream(stream).reset(VarInt::from_u32(1));
        assert_eq!(reset, Ok(()));
        world.network.run_for(100 * MS);
        let endings: Vec<Ending> = world
            .closed(world.server)
            .iter()
            .map(|summary| summary.ending)
            .collect();
        assert_eq!(endings, [Ending::Abandoned(FlowCode::AppReset)]);
    }
}

// PROTOCOL ALPN-2.
#[test]
fn a_client_of_another_protocol_is_told_so_in_the_handshake() {
    let (mut world, _) = with_bare(config::NATIVE);
    let server = world.server;
    let stranger = world.network.add_bare("stranger", &[b"h3"], server);
    let link = wire(10 * MS);
    world.network.link(stranger, server, link.clone(), link);
    world.network.run_for(SECOND);
    let lost = world.network.bare(stranger).lost().map(str::to_owned);
    // TLS alert 120, no_application_protocol (RFC 9001 section 4.8).
    assert!(
        lost.as_ref().is_some_and(|lost| lost.contains("120")),
        "{lost:?}"
    );
}
