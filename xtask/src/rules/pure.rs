//! Code that is a function of its input has no clock, socket, file, thread or randomness.

use super::{is_pure, refused};
use crate::tidy::{Finding, Tree};

/// What code that is a function of its input cannot mention, with the reason.
const IMPURE: &[(&str, &str)] = &[
    ("async tokio", "it is called, it does not wait"),
    ("TcpStream TcpListener UdpSocket", "it has no sockets"),
    ("UnixStream UnixListener UnixDatagram", "it has no sockets"),
    ("fs File OpenOptions", "it has no files"),
    (
        "thread::spawn thread::scope thread::Builder",
        "it has no threads",
    ),
    (
        "Instant::now SystemTime::now .elapsed()",
        "time is an argument",
    ),
    (
        "getrandom OsRng thread_rng rand::rng",
        "randomness has a seed",
    ),
    (
        "rand::fill SystemRandom RandomState",
        "randomness has a seed",
    ),
];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let pure: Vec<_> = tree.products().filter(|source| is_pure(source)).collect();
    let refused = pure.iter().flat_map(|source| {
        IMPURE
            .iter()
            .flat_map(|(needles, why)| refused("pure", source, &source.product, needles, why))
    });
    refused.collect()
}
