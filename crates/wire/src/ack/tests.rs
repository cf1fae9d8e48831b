use super::*;

#[test]
fn bytes_of_the_original() {
    assert_eq!(Ack::Ok.to_byte(), 1);
    assert_eq!(Ack::CannotParseToken.to_byte(), 2);
    assert_eq!(Ack::CannotReachApplication.to_byte(), 3);
    for ack in [Ack::Ok, Ack::CannotParseToken, Ack::CannotReachApplication] {
        assert_eq!(Ack::from_byte(ack.to_byte()), Some(ack));
    }
}

// PROTOCOL ACK-1.
#[test]
fn understands_the_failure_of_v0_0_1_and_never_sends_it() {
    assert_eq!(Ack::from_byte(0), Some(Ack::Failed));
    assert_eq!(Ack::Failed.to_byte(), 3);
}

// PROTOCOL ACK-2.
#[test]
fn every_other_byte_is_no_ack() {
    for byte in 4..=u8::MAX {
        assert_eq!(Ack::from_byte(byte), None);
    }
}
