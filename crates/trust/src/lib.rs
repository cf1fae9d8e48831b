//! Who may do what: peers, by certificate, secret and rule; clients, each a fair share; and this process itself.
//!
//! # Order of use
//!
//! [`identity`] and [`psk`] read keys and secrets. [`tls`] makes configurations that decide which peers may connect;
//! [`access::Policy`] decides what a client may reach, before and after name look-up; [`shares`] keeps clients fair.
//! [`logins`] knows who may use a client's proxy. [`enrolment`] lets clients join that have been invited.
//! Once everything listens, [`confinement`] gives up the rights of the process; files that are opened later come
//! from the [`keeper`], which was forked before.
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
pub mod settings;
pub mod shares;
pub mod tls;

/// An error and its causes in one line.
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
