//! A client and a server in two processes. The program starts itself again as the server, which adds numbers.
//!
//! ```sh
//! cargo run -p quictun-ipc --example sum
//! ```

#![expect(clippy::print_stdout, reason = "the example prints the answers")]

use std::error::Error;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::time::Duration;

use quictun_ipc::{Client, Message, Server, WaitPolicy, accept, connect, sockets};

/// Limit for the handshake; the other process starts at once.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The argument with which the program starts itself again.
const SERVER: &str = "--server";

/// The operation: the sum of the inline bytes.
const SUM: u16 = 1;

fn main() -> Result<(), Box<dyn Error>> {
    if std::env::args().nth(1).as_deref() == Some(SERVER) {
        return serve();
    }
    let (here, there) = sockets()?;
    let mut server = Command::new(std::env::current_exe()?)
        .arg(SERVER)
        .stdin(Stdio::from(there))
        .spawn()?;
    let channel = connect(here, 0, 1, TIMEOUT)?;
    let (client, mut executor) = Client::new(channel, WaitPolicy::Hybrid);
    // The calls of several coroutines are under way at the same time and wake the server only once.
    for last in 1..=4 {
        let client = client.clone();
        executor.spawner().spawn(1, async move {
            let numbers: Vec<u8> = (1..=last).collect();
            let message = Message::new(SUM).with_bytes(&numbers).expect("fits inline");
            let answer = client.call(message).await.expect("the server answers");
            println!("the sum of {numbers:?} is {}", answer.arg());
            assert_eq!(
                answer.arg(),
                numbers.into_iter().map(u64::from).sum::<u64>()
            );
        });
    }
    executor.run();
    // The server detects the end of the channel and exits.
    drop((client, executor));
    assert!(server.wait()?.success(), "the server failed");
    Ok(())
}

/// Answers calls until the client is gone.
fn serve() -> Result<(), Box<dyn Error>> {
    let socket = std::io::stdin().as_fd().try_clone_to_owned()?;
    let channel = accept(socket, TIMEOUT)?;
    let (server, mut executor) = Server::new(channel, WaitPolicy::Hybrid);
    executor.spawner().spawn(1, async move {
        while let Ok(request) = server.recv().await {
            let sum = request
                .message()
                .bytes()
                .iter()
                .copied()
                .map(u64::from)
                .sum();
            let answer = Message::new(SUM).with_arg(sum);
            if server.reply(request, answer).await.is_err() {
                break;
            }
        }
    });
    executor.run();
    Ok(())
}
