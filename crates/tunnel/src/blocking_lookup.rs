//! Name resolution with a deadline in the calling thread, for a program that dials one server and ends.

use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use crate::settings::HostPort;
use crate::zone;

/// Resolves the server's name. The system's resolver may take much longer than `limit` and cannot be stopped: its thread
/// ends with the process.
pub(crate) fn resolve<A: Iterator<Item = SocketAddr>>(
    server: &HostPort,
    limit: Duration,
    lookup: impl FnOnce(&str, u16) -> io::Result<A> + Send + 'static,
) -> Result<Vec<SocketAddr>, String> {
    let HostPort { host, port } = server.clone();
    let (answer, answered) = sync_channel(1);
    let look = move || {
        let found = lookup(&host, port).map(Iterator::collect);
        // An error means that the caller has stopped to wait, and has reported that.
        if answer.send(found).is_err() {}
    };
    let host = &server.host;
    let failed = |error: io::Error| format!("{host} does not resolve: {error}");
    thread::Builder::new().spawn(look).map_err(failed)?;
    match answered.recv_timeout(limit) {
        Ok(found) => zone::with_zones(host, found.map_err(failed)?),
        Err(_) => Err(format!(
            "no answer for {host} in {} s: is the DNS server reachable?",
            limit.as_secs_f64().round()
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::vec::IntoIter;

    use super::*;

    fn server() -> HostPort {
        HostPort {
            host: "vpn.example.net".to_owned(),
            port: 7500,
        }
    }

    #[test]
    fn a_resolver_that_hangs_is_not_waited_for() {
        // The look-up hangs until the test ends.
        let (end, ended) = sync_channel::<()>(0);
        let hang = move |_: &str, _| {
            // The channel closes, an error, when the test ends.
            let _closed = ended.recv();
            Ok(Vec::new().into_iter())
        };
        let found = resolve(&server(), Duration::ZERO, hang);
        let why = found.expect_err("it hangs");
        assert!(why.starts_with("no answer for vpn.example.net"), "{why}");
        drop(end);
    }

    #[test]
    fn a_timely_answer_of_the_resolver_counts() {
        let address: SocketAddr = ([192, 0, 2, 1], 7500).into();
        let limit = Duration::from_mins(1);
        let good = move |_: &str, _| Ok(vec![address].into_iter());
        assert_eq!(resolve(&server(), limit, good), Ok(vec![address]));
        let bad = |_: &str, _| Err::<IntoIter<SocketAddr>, _>(io::Error::other("no such name"));
        let why = resolve(&server(), limit, bad).expect_err("refused");
        assert_eq!(why, "vpn.example.net does not resolve: no such name");
    }
}
