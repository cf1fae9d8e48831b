//! Decides what each peer may do: authenticates peers by certificate and secret, judges flows by rules, and gives each
//! client a fair share. Also confines the process itself.
//!
//! # Order of use
//!
//! [`identity`] and [`psk`] read keys and secrets. [`tls`] makes configurations that decide which peers may connect.
//! [`access::Policy`] decides what a client may reach, before and after name look-up. [`shares`] divides resources
//! fairly between clients. [`public_certificate`] checks what programs without quictun see. [`logins`] checks the users of a client's proxy. [`enrolment`] lets invited clients join.
//! Once everything listens, [`confinement`] drops the rights of the process. The [`keeper`], which was forked before,
//! then opens the files that are needed later.
#![forbid(unsafe_code)]

pub mod access;
pub mod confinement;
pub mod descriptors;
pub mod enrolment;
pub mod identity;
pub mod keeper;
pub mod limits;
pub mod logins;
pub mod pin;
pub mod psk;
pub mod public_certificate;
pub mod settings;
pub mod shares;
pub mod tls;

/// Returns an error and its causes in one line.
pub fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text.push_str(": ");
        text.push_str(&next.to_string());
        cause = next.source();
    }
    text
}
