//! Two engines in one loop of mio: a client opens a flow across the loopback device, and the application behind the
//! server echoes what the client's application sends.
//!
//! ```sh
//! cargo run -p quictun-engine --example over_mio
//! ```

#![expect(clippy::print_stdout, reason = "the example prints the events")]

mod app;
mod peer;
mod setup;

use std::error::Error;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

use mio::{Events, Poll};
use quictun_engine::{ClientEvent, Engine, Event, FlowRequest, ServerEvent};

use app::App;
use peer::Peer;

fn main() -> Result<(), Box<dyn Error>> {
    let text = b"hello";
    let mut poll = Poll::new()?;
    let (server, client) = setup::engine_pair()?;
    let mut server = Peer::new(Engine::server(server)?, &poll)?;
    let mut client = Peer::new(Engine::client(client)?, &poll)?;
    let request = FlowRequest {
        token: "tcp:echo.example:7".to_owned(),
        ..FlowRequest::default()
    };
    // The flow waits for a connection.
    client.flow = client
        .engine
        .open_flow(Instant::now(), App::sends(text), request);
    let mut readiness = Events::with_capacity(8);
    loop {
        let now = Instant::now();
        server.turn(now)?;
        client.turn(now)?;
        let dues = [server.engine.next_timeout(), client.engine.next_timeout()];
        let due = dues.into_iter().flatten().min();
        let mut wait = due.map(|due| due.saturating_duration_since(now));
        while let Some(event) = server.engine.poll_event() {
            // The answer to an event is an input, so the next turn follows at once.
            wait = Some(Duration::ZERO);
            if let ServerEvent::Open(open) = event {
                println!("server: a client asks for {}", open.token);
                let dialed = Ok((App::echoes(), "echo".to_owned()));
                server.engine.handle_dialed(now, open.flow, dialed);
                server.flow = Some(open.flow);
            }
        }
        while let Some(event) = client.engine.poll_event() {
            wait = Some(Duration::ZERO);
            match event {
                ClientEvent::Resolve { server: id, tenant } => {
                    let resolved = Ok(vec![server.udp.local_addr()?]);
                    client.engine.handle_resolved(now, id, tenant, &resolved);
                }
                ClientEvent::Shared(Event::Connected { remote, .. }) => {
                    println!("client: connected to {remote}");
                }
                ClientEvent::Shared(Event::FlowClosed(summary)) => {
                    println!("client: {summary:?}");
                    assert_eq!(summary.bytes_to_app, text.len() as u64);
                    return Ok(());
                }
                _ => {}
            }
        }
        match poll.poll(&mut readiness, wait) {
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error.into()),
            _ => {}
        }
    }
}
