//! A flow joins an application to a stream whose far end echoes. Flow control allows only a few bytes in each turn, so
//! the flow waits for the stream. The application's FIN comes back after its last byte, and the flow is over.
//!
//! ```sh
//! cargo run -p quictun-flow --example echo
//! ```

#![expect(clippy::print_stdout, reason = "the example prints what happens")]

mod memory;

use std::error::Error;

use quictun_flow::{Ending, Flow, Inlet, ReadBuffer};

use memory::{App, Echo};

/// Length of the longest packet of the peer. A QUIC library knows it.
const PACKET_MAX: usize = 1200;

fn main() -> Result<(), Box<dyn Error>> {
    let text = b"hello, world";
    let mut stream = Echo::default();
    let mut flow = Flow::new(App::sends(text), Inlet::new());
    // One buffer is enough for all flows of a thread.
    let mut buffer = ReadBuffer::default();
    while flow.ending().is_none() {
        // The stream becomes writable. The number limits the bytes that this flow may send before others have a turn.
        let mut budget = 64 * 1024;
        let pumped = flow.pump_to_tunnel(&mut stream, &mut buffer, &mut budget);
        println!("{} bytes sent: {pumped:?}", flow.bytes_to_tunnel());
        // The stream becomes readable.
        flow.inlet().handle_readable(PACKET_MAX);
        let drained = flow.pump_to_app(&mut stream);
        println!("{} bytes received: {drained:?}", flow.bytes_to_app());
    }
    let app = flow.socket();
    println!("the application received {:?}", app.received());
    if flow.ending() != Some(Ending::Finished) || app.received().as_bytes() != text {
        return Err("the bytes did not come back".into());
    }
    Ok(())
}
