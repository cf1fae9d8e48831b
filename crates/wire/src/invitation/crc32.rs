//! CRC-32 (ISO-HDLC, as in zip and Ethernet). It detects typing errors and gives no protection against an attacker.

const POLYNOMIAL: u32 = 0xedb8_8320;

pub(super) fn checksum(bytes: &[u8]) -> u32 {
    let mut rest = u32::MAX;
    for byte in bytes {
        rest ^= u32::from(*byte);
        for _ in 0..8 {
            let carry = rest & 1;
            rest >>= 1;
            if carry == 1 {
                rest ^= POLYNOMIAL;
            }
        }
    }
    !rest
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_check_value_of_the_standard_holds() {
        assert_eq!(super::checksum(b"123456789"), 0xcbf4_3926);
    }
}
