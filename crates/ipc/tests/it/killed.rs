//! A server or a client whose process is killed.

use std::cell::{Cell, RefCell};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;

use quictun_ipc::{
    Channel, ChannelError, Client, Message, Server, WaitPolicy, accept, connect, sockets,
};

use crate::pair::SILENCE_LIMIT;

/// Environment variable that gives a new process of this program its part in a test.
const PART: &str = "QUICTUN_IPC_PART";

/// Number of kills of each side. `QUICTUN_IPC_KILLS` overrides it.
const KILLS: u64 = 20;

/// Number of calls under way.
const UNDER_WAY: u64 = 32;

/// Receives calls and answers none, until the process is killed.
fn serve_nothing(channel: Channel) {
    let (server, mut executor) = Server::new(channel, WaitPolicy::Interrupt);
    executor
        .spawner()
        .spawn(1, async move { while server.recv().await.is_ok() {} });
    executor.run();
}

/// Answers all requests and passes the number of answers so far to `each`. Returns the error that ended it.
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

/// Makes many calls at a time and passes the number of answers so far to `each`. Returns the errors that ended the
/// coroutines.
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

/// Returns the part that this process was started for, and its socket to the process that started it. A test with
/// several processes calls this first.
fn given() -> Option<(String, OwnedFd)> {
    let part = std::env::var(PART).ok()?;
    let socket = std::io::stdin().as_fd().try_clone_to_owned();
    Some((part, socket.expect("a descriptor")))
}

/// Starts this program again with `test` alone, as the given `part` of it.
fn start(test: &str, part: &str) -> (OwnedFd, Child) {
    let (here, there) = sockets().expect("sockets");
    let child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", test, "--test-threads=1"])
        .env(PART, part)
        .stdin(Stdio::from(there))
        .stdout(Stdio::null())
        .spawn()
        .expect("start this program");
    (here, child)
}

fn descriptors() -> usize {
    let all = std::fs::read_dir("/proc/self/fd");
    all.expect("descriptors").count()
}

/// Every call fails with the error, wherever the peer stopped, and so does a server's receive. No descriptor leaks.
#[test]
fn the_death_of_either_process_is_detected() {
    let test = "killed::the_death_of_either_process_is_detected";
    if let Some((part, socket)) = given() {
        if part == "server" {
            serve(accept(socket, SILENCE_LIMIT).expect("a client"), |_| ());
        } else {
            call(
                connect(socket, 0, 1, SILENCE_LIMIT).expect("a server"),
                |_| (),
            );
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
            // The numbers of answers are spread over some 40 000 by a prime.
            let until = 1 + round * 7919 % 40_009;
            let each = move |done| {
                if done == until {
                    victim.borrow_mut().kill().expect("kill it");
                }
            };
            let errors = if part == "server" {
                let channel = connect(socket, 0, 1, SILENCE_LIMIT).expect("a server");
                let errors = call(channel, each);
                assert_eq!(errors.len() as u64, UNDER_WAY, "round {round}");
                errors
            } else {
                let channel = accept(socket, SILENCE_LIMIT).expect("a client");
                serve(channel, each)
            };
            let died = errors.iter().all(|why| *why == ChannelError::Died);
            assert!(
                !errors.is_empty() && died,
                "round {round}, {part}: {errors:?}"
            );
            child.borrow_mut().wait().expect("wait for it");
        }
        // Other tests have descriptors open at the same time.
        if round == 3 {
            most = descriptors() + 60;
        }
    }
    assert!(kills < 100 || descriptors() <= most, "descriptors leak");
}

/// Without a limit on silence: the kernel reports the death, and a task that sleeps in tokio's loop learns of it.
#[test]
fn a_call_in_tokio_fails_when_the_server_is_killed() {
    let test = "killed::a_call_in_tokio_fails_when_the_server_is_killed";
    if let Some((_, socket)) = given() {
        return serve_nothing(accept(socket, SILENCE_LIMIT).expect("a client"));
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .expect("a runtime");
    for round in 0..10 {
        let (socket, mut child) = start(test, "server");
        let channel = connect(socket, 0, 1, SILENCE_LIMIT).expect("a server");
        let (client, mut executor) = Client::new(channel, WaitPolicy::Hybrid);
        executor.spawner().spawn(1, async move {
            let answer = client.call(Message::new(0)).await;
            assert_eq!(answer, Err(ChannelError::Died), "round {round}");
        });
        let local = tokio::task::LocalSet::new();
        let killer = local.spawn_local(async move {
            // The executor is normally asleep by then.
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            child.kill().expect("kill it");
            child
        });
        let (ended, child) = local.block_on(&runtime, async {
            let ended = tokio::time::timeout(SILENCE_LIMIT, executor.run_in_tokio()).await;
            (ended, killer.await)
        });
        ended
            .expect("it ends before the deadline")
            .expect("it is connected");
        let mut child = child.expect("no panic");
        child.wait().expect("wait for it");
    }
}
