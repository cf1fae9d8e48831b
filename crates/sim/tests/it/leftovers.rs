//! Flows that end between two connections leave nothing at the server.

use quictun_sim::engine::CarrierChoice;
use quictun_sim::{Script, SimulatedDial, WriteStep};

use crate::carriers::pair;
use crate::tunnel_pair::{MS, SECOND, wire};

// The answer to OPEN is lost with its connection. The client asks again on the next one if its application has not
// spoken, and ends the flow if it has.
#[test]
fn a_flow_whose_answer_is_lost_leaves_none_at_the_server() {
    for speaks in [false, true] {
        let mut pair = pair(1, CarrierChoice::Tls, &wire(20 * MS));
        pair.connect();
        let greets = [
            WriteStep::Send(100),
            WriteStep::ReceivedEnd,
            WriteStep::Finish,
        ];
        let host = pair.network.host(pair.server);
        let greets = Script::server(1).write(greets);
        host.serve("greets", SimulatedDial::connects(), greets);
        let speech = WriteStep::Send(if speaks { 100 } else { 0 });
        let wait = WriteStep::Wait(20 * SECOND);
        let script = Script::client(1).write([speech, wait, WriteStep::Finish]);
        let app = pair.network.open(pair.client, "greets", script);
        pair.network.run_for(12 * MS);
        pair.network.silence_tcp(pair.client);
        pair.network.run_for(19 * SECOND);
        let open = pair.network.host(pair.server).engine().flow_resources();
        assert_eq!(open.flows, usize::from(!speaks), "{open:?}");
        pair.network
            .run_until(60 * SECOND, |network| network.outcome(app).is_over());
        pair.check_nothing_left();
    }
}
