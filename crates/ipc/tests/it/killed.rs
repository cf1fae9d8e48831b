//! A server whose process is killed.

use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};

use quictun_ipc::{
    Channel, ChannelError, Client, Message, Server, WaitPolicy, accept, connect, sockets,
};

use crate::pair::PATIENCE;

/// Says to the new process that it is the server; the test that plays it plays nothing without.
const PART: &str = "QUICTUN_IPC_SERVER";

/// Takes calls and answers none, until it is killed.
#[test]
fn silent_server() {
    if std::env::var_os(PART).is_none() {
        return;
    }
    let socket = std::io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .expect("a descriptor");
    let channel = accept(socket, PATIENCE).expect("a client");
    let (server, mut executor) = Server::new(channel, WaitPolicy::Interrupt);
    executor
        .spawner()
        .spawn(1, async move { while server.recv().await.is_ok() {} });
    executor.run();
}

/// This program once more, with [`silent_server`].
fn start() -> (Channel, Child) {
    let (here, there) = sockets().expect("sockets");
    let child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "killed::silent_server", "--test-threads=1"])
        .env(PART, "")
        .stdin(Stdio::from(there))
        .stdout(Stdio::null())
        .spawn()
        .expect("this program once more");
    (connect(here, 0, 1, PATIENCE).expect("a server"), child)
}

/// Without a patience: the kernel tells of the end, and who sleeps in tokio's loop hears of it.
#[test]
fn a_call_in_tokio_hears_that_the_server_is_killed() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .expect("a runtime");
    for round in 0..10 {
        let (channel, mut child) = start();
        let (client, mut executor) = Client::new(channel, WaitPolicy::Hybrid);
        executor.spawner().spawn(1, async move {
            let answer = client.call(Message::new(0)).await;
            assert_eq!(answer, Err(ChannelError::Died), "round {round}");
        });
        let local = tokio::task::LocalSet::new();
        let killer = local.spawn_local(async move {
            // The executor is asleep by then, as a rule.
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            child.kill().expect("to kill it");
            child
        });
        let (ended, child) = local.block_on(&runtime, async {
            let ended = tokio::time::timeout(PATIENCE, executor.run_in_tokio()).await;
            (ended, killer.await)
        });
        ended
            .expect("it does not wait for ever")
            .expect("it is connected");
        let mut child = child.expect("it does not panic");
        child.wait().expect("it is dead");
    }
}
