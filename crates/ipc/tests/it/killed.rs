//! A server or a client whose process is killed.

use std::cell::{Cell, RefCell};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;

use quictun_ipc::{
    Channel, ChannelError, Client, Message, Server, WaitPolicy, accept, connect, sockets,
};

use crate::pair::PATIENCE;

/// Says to a new process of this program which part of a test it is.
const PART: &str = "QUICTUN_IPC_PART";

/// How often each side is killed. More with `QUICTUN_IPC_KILLS`.
const KILLS: u64 = 20;

/// Calls under way.
const UNDER_WAY: u64 = 32;

/// Takes calls and answers none, until it is killed.
fn serve_nothing(channel: Channel) {
    let (server, mut executor) = Server::new(channel, WaitPolicy::Interrupt);
    executor
        .spawner()
        .spawn(1, async move { while server.recv().await.is_ok() {} });
    executor.run();
}

/// Answers all that it is asked; tells `each` how many it has answered.
fn serve(channel: Channel, each: impl Fn(u64) + 'static) -> Vec<ChannelError> {
    let (server, mut executor) = Server::new(channel, WaitPolicy::Hybrid);
    let errors = Rc::new(RefCell::default());
    let kept = Rc::clone(&errors);
    executor.spawner().spawn(1, async move {
        let mut answered = 0;
        let why = loop {
            let request = match server.recv().await {
                Ok(request) => request,
                Err(why) => break why,
            };
            answered += 1;
            each(answered);
            let answer = Message::new(0).with_arg(request.message().arg() + 1);
            if let Err(why) = server.reply(request, answer).await {
                break why;
            }
        };
        kept.replace(vec![why]);
    });
    executor.run();
    errors.take()
}

/// Calls, many at a time; tells `each` how many answers there were. How each of them ended.
fn call(channel: Channel, each: impl Fn(u64) + 'static) -> Vec<ChannelError> {
    let (client, mut executor) = Client::new(channel, WaitPolicy::Hybrid);
    let errors = Rc::new(RefCell::new(Vec::new()));
    let each = Rc::new(each);
    let answered = Rc::new(Cell::new(0));
    for number in 0..UNDER_WAY {
        let (client, errors) = (client.clone(), Rc::clone(&errors));
        let (each, answered) = (Rc::clone(&each), Rc::clone(&answered));
        executor.spawner().spawn(1, async move {
            let why = loop {
                match client.call(Message::new(0).with_arg(number)).await {
                    Ok(answer) => assert_eq!(answer.arg(), number + 1),
                    Err(why) => break why,
                }
                answered.set(answered.get() + 1);
                each(answered.get());
            };
            errors.borrow_mut().push(why);
        });
    }
    drop(client);
    executor.run();
    errors.take()
}

/// The part that this process was started for, and its socket to the process that did: a test that starts others asks for
/// it first.
fn given() -> Option<(String, OwnedFd)> {
    let part = std::env::var(PART).ok()?;
    let socket = std::io::stdin().as_fd().try_clone_to_owned();
    Some((part, socket.expect("a descriptor")))
}

/// This program once more, with `test` alone, as `part` of it.
fn start(test: &str, part: &str) -> (OwnedFd, Child) {
    let (here, there) = sockets().expect("sockets");
    let child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", test, "--test-threads=1"])
        .env(PART, part)
        .stdin(Stdio::from(there))
        .stdout(Stdio::null())
        .spawn()
        .expect("this program once more");
    (here, child)
}

fn descriptors() -> usize {
    let all = std::fs::read_dir("/proc/self/fd");
    all.expect("descriptors").count()
}

/// Every call ends with the error, wherever the other stopped, and so does a server's wait; nothing stays behind.
#[test]
fn whoever_is_killed_the_other_hears_of_it() {
    let test = "killed::whoever_is_killed_the_other_hears_of_it";
    if let Some((part, socket)) = given() {
        if part == "server" {
            serve(accept(socket, PATIENCE).expect("a client"), |_| ());
        } else {
            call(connect(socket, 0, 1, PATIENCE).expect("a server"), |_| ());
        }
        return;
    }
    let kills = std::env::var("QUICTUN_IPC_KILLS").ok();
    let kills = kills.and_then(|n| n.parse().ok()).unwrap_or(KILLS);
    let mut most = 0;
    for round in 0..kills {
        for part in ["server", "client"] {
            let (socket, child) = start(test, part);
            let child = Rc::new(RefCell::new(child));
            let victim = Rc::clone(&child);
            // Some 40 000 answers, spread by a prime.
            let until = 1 + round * 7919 % 40_009;
            let each = move |done| {
                if done == until {
                    victim.borrow_mut().kill().expect("to kill it");
                }
            };
            let errors = if part == "server" {
                let channel = connect(socket, 0, 1, PATIENCE).expect("a server");
                let errors = call(channel, each);
                assert_eq!(errors.len() as u64, UNDER_WAY, "round {round}");
                errors
            } else {
                let channel = accept(socket, PATIENCE).expect("a client");
                serve(channel, each)
            };
            let died = errors.iter().all(|why| *why == ChannelError::Died);
            assert!(
                !errors.is_empty() && died,
                "round {round}, {part}: {errors:?}"
            );
            child.borrow_mut().wait().expect("it is dead");
        }
        // Other tests have some open meanwhile.
        if round == 3 {
            most = descriptors() + 60;
        }
    }
    assert!(kills < 100 || descriptors() <= most, "descriptors leak");
}

/// Without a patience: the kernel tells of the end, and who sleeps in tokio's loop hears of it.
#[test]
fn a_call_in_tokio_hears_that_the_server_is_killed() {
    let test = "killed::a_call_in_tokio_hears_that_the_server_is_killed";
    if let Some((_, socket)) = given() {
        return serve_nothing(accept(socket, PATIENCE).expect("a client"));
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .expect("a runtime");
    for round in 0..10 {
        let (socket, mut child) = start(test, "server");
        let channel = connect(socket, 0, 1, PATIENCE).expect("a server");
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
