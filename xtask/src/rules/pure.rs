//! Rule: pure code uses no clock, socket, file, thread or randomness.

use super::{is_pure, refused};
use crate::tidy::{Finding, Tree};

/// The names that pure code must not mention, with the reason.
const IMPURE: &[(&str, &str)] = &[
    ("async tokio", "pure code does not wait"),
    (
        "TcpStream TcpListener UdpSocket",
        "pure code has no sockets",
    ),
    (
        "UnixStream UnixListener UnixDatagram",
        "pure code has no sockets",
    ),
    ("fs File OpenOptions", "pure code has no files"),
    (
        "thread::spawn thread::scope thread::Builder",
        "pure code has no threads",
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
