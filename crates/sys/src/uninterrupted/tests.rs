use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::os::unix::thread::JoinHandleExt as _;

use rustix::event::PollFlags;

use super::*;

/// Time limit of the interrupted calls: many signals long.
const LIMIT: Duration = Duration::from_millis(300);

/// Time after which a call counts as endless, also on a busy machine.
const ENDLESS: Duration = Duration::from_secs(30);

extern "C" fn ignore(_: libc::c_int) {}

/// Runs `call` in a thread of its own, and interrupts it with signals until it has returned.
fn under_signals<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
    let handler: extern "C" fn(libc::c_int) = ignore;
    // SAFETY: the handler does nothing, so it may run at any time.
    unsafe { libc::signal(libc::SIGUSR1, handler as libc::sighandler_t) };
    let calling = std::thread::spawn(call);
    let start = Instant::now();
    while !calling.is_finished() {
        let lasts = start.elapsed();
        assert!(lasts < ENDLESS, "signals extend the call without end");
        // SAFETY: the thread was not joined yet, so its handle is valid.
        unsafe { libc::pthread_kill(calling.as_pthread_t(), libc::SIGUSR1) };
        std::thread::park_timeout(Duration::from_millis(1));
    }
    calling.join().expect("the call returns")
}

#[test]
fn signals_neither_shorten_nor_extend_a_pause() {
    let start = Instant::now();
    under_signals(move || pause_until(start + LIMIT)).expect("a pause");
    assert!(start.elapsed() >= LIMIT);
}

#[test]
fn signals_neither_shorten_nor_extend_the_limit_of_a_poll() {
    let (near, mut far) = UnixStream::pair().expect("a pair of sockets");
    let wait = move |near: &UnixStream, limit| {
        let mut fds = [PollFd::new(near, PollFlags::IN)];
        poll_until(&mut fds, Instant::now() + limit).expect("a poll")
    };
    let start = Instant::now();
    let near = under_signals(move || {
        assert!(!wait(&near, LIMIT), "nothing was sent");
        near
    });
    assert!(start.elapsed() >= LIMIT);
    let sending = std::thread::spawn(move || {
        std::thread::park_timeout(LIMIT);
        far.write_all(b"x").map(|()| far)
    });
    under_signals(move || assert!(wait(&near, ENDLESS), "a byte was sent"));
    sending.join().expect("it returns").expect("sent");
}
