//! The server: runs one measurement at a time, as the client plans it.

use std::io::{self, Read as _};
use std::net::{SocketAddr, TcpStream};

use quictun_trust::identity;
use rustix::event::PollFlags;

use crate::error::{PerfError, chain};
use crate::hello::{self, Response};
use crate::plan::{Plan, Transport};
use crate::ports::{OPENING_TIMEOUT, Server, listen};
use crate::report::EndReport;
use crate::session::Session;
use crate::stop::{Stop, WakeReason};
use crate::{quic, trust};

pub use crate::ports::ServerOptions;

/// A measurement that the server has finished.
#[derive(Clone, Debug)]
pub struct FinishedMeasurement {
    /// Address of the client.
    pub peer: SocketAddr,
    /// The plan that the client sent.
    pub plan: Plan,
    /// Traffic that passed this end, as bytes of a stream or as transactions, or the reason for the failure.
    pub outcome: Result<EndReport, String>,
}

/// Serves until `stop` is raised. It calls `ready` with the address, and `served` after every measurement.
pub fn run(
    options: &ServerOptions,
    stop: &Stop,
    ready: &mut dyn FnMut(SocketAddr),
    served: &mut dyn FnMut(FinishedMeasurement),
) -> Result<(), PerfError> {
    let (listener, udp) = listen(options)?;
    let address = listener
        .local_addr()
        .map_err(PerfError::io("cannot read the local address"))?;
    let identity = identity::ephemeral()?;
    let server = Server {
        options,
        listener,
        udp,
        crypto: trust::server_config(&identity)?,
        pin: identity.pin.to_string(),
        stop,
    };
    ready(address);
    while !stop.is_raised() {
        let woken = stop.wait_for(&server.listener, PollFlags::IN, None);
        if woken.map_err(PerfError::io("cannot wait for clients"))? != WakeReason::Ready {
            continue;
        }
        if let Some((socket, peer)) = server.accept()
            && let Some((plan, outcome)) = serve(&server, socket)
        {
            served(FinishedMeasurement {
                peer,
                plan,
                outcome,
            });
        }
    }
    Ok(())
}

fn serve(server: &Server<'_>, mut socket: TcpStream) -> Option<(Plan, Result<EndReport, String>)> {
    let mut begin = || -> io::Result<Option<Plan>> {
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(OPENING_TIMEOUT))?;
        socket.set_write_timeout(Some(OPENING_TIMEOUT))?;
        let mut opening = [0; 8];
        socket.read_exact(&mut opening)?;
        if opening != hello::CONTROL {
            return Ok(None);
        }
        hello::receive(&mut socket).map(Some)
    };
    // An opening that is not a client's is not reported. A client whose opening fails sees the connection close.
    let plan = begin().ok().flatten()?;
    if let Err(why) = admit(server, &plan) {
        // The refusal is reported below. If it cannot be sent, the client has closed the connection.
        hello::send(&mut socket, &Response::Refused(why.clone())).ok();
        return Some((plan, Err(why)));
    }
    server.forget_datagrams();
    let outcome = Session::new(server, &plan, &socket).and_then(Session::run);
    let tally = outcome.and_then(|measured| {
        if measured.cut {
            return Err(PerfError::Cut);
        }
        Ok(EndReport::new(measured.bytes, measured.seconds))
    });
    Some((plan, tally.map_err(|error| chain(&error))))
}

fn admit(server: &Server<'_>, plan: &Plan) -> Result<(), String> {
    plan.check().map_err(|error| error.to_string())?;
    if plan.transport == Transport::Quic {
        quic::congestion(plan).map_err(|error| error.to_string())?;
    }
    match server.options.only {
        Some(only) if only != plan.transport => Err(format!(
            "this server was started with --transport {}",
            only.word()
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::sync::mpsc::channel;

    use super::*;
    use crate::hello::{Done, ServerResult};
    use crate::pattern::Pattern;
    use crate::plan::{Amount, Mode};

    const LENGTH: usize = 10;

    /// Raises the stop even if the test panics; otherwise the scope would never stop waiting for the server's thread.
    struct RaiseOnDrop<'a>(&'a Stop);

    impl Drop for RaiseOnDrop<'_> {
        fn drop(&mut self) {
            self.0.raise();
        }
    }

    /// Sends one request and reports that it is done, while the data connection is still open.
    fn ask_once(address: SocketAddr, plan: &Plan) -> ServerResult {
        let mut control = TcpStream::connect(address).expect("connect for control");
        control.write_all(&hello::CONTROL).expect("send opening");
        hello::send(&mut control, plan).expect("send plan");
        let ready = match hello::receive(&mut control).expect("receive answer") {
            Response::Ready(ready) => ready,
            Response::Refused(why) => panic!("refused: {why}"),
        };
        let mut data = TcpStream::connect(address).expect("connect for data");
        let preamble = hello::preamble(ready.cookie, 0);
        let mut pattern = Pattern::new(ready.cookie);
        let request = pattern.at(0, LENGTH);
        data.write_all(&preamble).expect("send preamble");
        data.write_all(request).expect("send request");
        data.read_exact(&mut [0; LENGTH]).expect("read answer");
        hello::send(&mut control, &Done).expect("send end");
        hello::receive(&mut control).expect("receive outcome")
    }

    #[test]
    fn a_client_that_is_done_may_close_its_connection_later() {
        let options = ServerOptions {
            listen: ([127, 0, 0, 1], 0).into(),
            only: None,
            event_loop: None,
        };
        let end = Stop::new().expect("new stop");
        std::thread::scope(|scope| {
            let _ending = RaiseOnDrop(&end);
            let (ready, address) = channel();
            scope.spawn(|| {
                let mut ready = move |address| ready.send(address).expect("send address");
                run(&options, &end, &mut ready, &mut |_| {})
            });
            let address = address.recv().expect("server address");
            for (count, cut) in [(1, false), (2, true)] {
                let plan = Plan {
                    amount: Amount::Count(count),
                    request: LENGTH as u64,
                    response: LENGTH as u64,
                    ..Plan::new(Transport::Tcp, Mode::Rr)
                };
                let measured = ask_once(address, &plan).measured.expect("measured");
                assert_eq!(measured.cut, cut, "1 of {count} asked");
            }
        });
    }
}
