//! A server that refuses this client: logged once, not at every attempt.
//!
//! In TLS 1.3 a client finishes its handshake before the server has checked its certificate. A refusal therefore
//! appears as the end of a connection that seemed established, again and again while the client dials. One line reports
//! the refusal, and another one reports when a flow gets through.

use std::sync::atomic::{AtomicBool, Ordering};

use quictun_engine::LossReason;

/// Records whether the server currently refuses this client. All workers share it.
#[derive(Debug, Default)]
pub(crate) struct RefusalFlag(AtomicBool);

impl RefusalFlag {
    /// Marks the refusal. Returns true on the first call since the last [`RefusalFlag::clear`].
    pub(crate) fn set(&self) -> bool {
        // Relaxed, as below: the flag guards no other memory.
        !self.0.swap(true, Ordering::Relaxed)
    }

    /// Clears the refusal. Returns true if it was set.
    pub(crate) fn clear(&self) -> bool {
        self.is_set() && self.0.swap(false, Ordering::Relaxed)
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Returns why the server refuses this client and what to do about it, if the connection ended by a refusal.
pub(crate) fn cause(reason: &LossReason) -> Option<&'static str> {
    match reason {
        LossReason::NotAuthorized => Some(
            "the server does not know this client: its secret (--psk-file) or certificate is missing, or not the one that a [[client]] table there names",
        ),
        LossReason::Revoked => Some(
            "the server's configuration was changed and no longer names this client's secret or key: ask its administrator",
        ),
        LossReason::Expired => {
            Some("this client's access to the server has expired: ask the server's administrator")
        }
        LossReason::Protocol(error) => of_alert(error.alert()?),
        _ => None,
    }
}

/// Maps the alerts of RFC 8446 section 6.2 that concern certificates.
fn of_alert(number: u8) -> Option<&'static str> {
    match number {
        42 | 43 | 46 | 49 | 51 => Some("the server does not accept this client's certificate"),
        44 => Some("this client's certificate was revoked"),
        45 => {
            Some("by the server's clock, this client's certificate has expired or is not valid yet")
        }
        48 => Some("no authority that the server trusts signed this client's certificate"),
        116 => Some(
            "the server asks for a certificate: give --cert-file and --key-file (quictun: --cert and --key)",
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use quictun_engine::ProtocolError;
    use quictun_wire::code::CloseCode;

    use super::*;

    fn alert(number: u8) -> LossReason {
        let text = "aborted by peer: invalid peer certificate: UnknownIssuer";
        ProtocolError::by_peer(0x100 + u64::from(number), text.to_owned()).into()
    }

    #[test]
    fn alerts_about_certificates_and_the_code_for_unknown_clients_are_refusals() {
        for (number, part) in [
            (42, "does not accept"),
            (45, "expired"),
            (48, "no authority"),
            (116, "--cert-file"),
        ] {
            let cause = cause(&alert(number)).unwrap_or_default();
            assert!(cause.contains(part), "{number}: {cause}");
        }
        assert!(
            cause(&LossReason::NotAuthorized).is_some_and(|cause| cause.contains("[[client]]"))
        );
    }

    #[test]
    fn nothing_else_is_a_refusal() {
        let busy = LossReason::ClosedByPeer(CloseCode::TooManyConnections.to_u64());
        for reason in [alert(120), busy, LossReason::TimedOut, LossReason::Reset] {
            assert_eq!(cause(&reason), None, "{reason}");
        }
        let violation = ProtocolError::by_peer(0xa, "aborted by peer: error 48".to_owned());
        assert_eq!(cause(&violation.into()), None);
    }

    #[test]
    fn a_refusal_and_its_end_are_reported_once_each() {
        let refused = RefusalFlag::default();
        assert!(!refused.clear() && refused.set() && !refused.set());
        assert!(refused.clear() && !refused.clear() && refused.set());
    }
}
