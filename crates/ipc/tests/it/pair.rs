//! A client in this thread and a server in another thread.

use std::thread::JoinHandle;
use std::time::Duration;

use quictun_ipc::{
    Channel, Client, Executor, Message, Server, WaitPolicy, accept, connect, sockets,
};

pub(crate) const SILENCE_LIMIT: Duration = Duration::from_mins(1);

pub(crate) const ARENA: u32 = 1 << 20;

pub(crate) fn channels() -> (Channel, Channel) {
    let (here, there) = sockets().expect("sockets");
    let server = std::thread::spawn(move || accept(there, SILENCE_LIMIT).expect("a client"));
    let client = connect(here, ARENA, 1, SILENCE_LIMIT).expect("a server");
    (client, server.join().expect("the thread"))
}

/// Starts a server that answers with `arg + 1` and the bytes in reverse order. It also reverses the bytes of the
/// buffer.
pub(crate) fn start(policy: WaitPolicy) -> (Client, Executor, JoinHandle<quictun_ipc::Counters>) {
    let (here, there) = channels();
    let server = std::thread::spawn(move || {
        let (server, mut executor) = Server::new(there, policy);
        let counted = server.clone();
        executor.spawner().spawn(1, async move {
            while let Ok(request) = server.recv().await {
                let mut bytes = request.message().bytes().to_vec();
                bytes.reverse();
                if let Some(buffer) = request.buffer() {
                    server.with_channel(|channel| {
                        let mut bytes = vec![0; buffer.len() as usize];
                        channel.read(buffer, 0, &mut bytes);
                        bytes.reverse();
                        channel.answer(buffer, 0, &bytes);
                    });
                }
                let answer = Message::new(request.message().op())
                    .with_arg(request.message().arg().wrapping_add(1))
                    .with_bytes(&bytes)
                    .expect("fits inline");
                if server.reply(request, answer).await.is_err() {
                    break;
                }
            }
        });
        executor.run();
        counted.counters()
    });
    let (client, executor) = Client::new(here, policy);
    (client, executor, server)
}
