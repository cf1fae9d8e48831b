//! The version of this program, its commit, and the target that it was built for.

/// The answer to `quictun-client --version`, after the name. It is one line, because scripts take its second word.
pub(crate) const WITH_COMMIT: &str =
    concat!(env!("CARGO_PKG_VERSION"), " (", env!("QUICTUN_COMMIT"), ")",);

/// The answer to `quictun --version`, after the name.
pub(crate) const LONG: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (",
    env!("QUICTUN_COMMIT"),
    ")\n",
    "protocols: quictun/1 and that of quic-tun, over QUIC 1 and TLS 1.3\n",
    "ciphers: aws-lc-rs and ring, the faster one by measurement at start\n",
    "made for: ",
    env!("QUICTUN_TARGET"),
    ", profile ",
    env!("QUICTUN_PROFILE"),
);
