//! Encodes the outcome of an enrolment: a number, followed by one rule on each line after [`ENROLLED`] or [`BEFORE`].

use std::io;

use zeroize::Zeroizing;

use crate::enrolment::{Enrolled, Refused};

const ENROLLED: u8 = 0;
const UNKNOWN: u8 = 1;
const USED: u8 = 2;
const WRONG: u8 = 3;
const LATE: u8 = 4;
const CHANGED: u8 = 5;
const BEFORE: u8 = 6;

/// Encodes an outcome. A refusal that the file system caused becomes an error, like the errors of other requests.
pub(super) fn encode(outcome: Result<Enrolled, Refused>) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut answer = vec![ENROLLED];
    match outcome {
        Ok(Enrolled { allow, before }) => {
            answer[0] = if before { BEFORE } else { ENROLLED };
            answer.extend(allow.join("\n").into_bytes());
        }
        Err(Refused::Unknown) => answer[0] = UNKNOWN,
        Err(Refused::Used) => answer[0] = USED,
        Err(Refused::Wrong) => answer[0] = WRONG,
        Err(Refused::Late) => answer[0] = LATE,
        Err(Refused::Changed) => answer[0] = CHANGED,
        Err(Refused::Store(error)) => return Err(error),
        // Only the main process returns these: the keeper sees neither connections nor a running server.
        Err(Refused::NoKey | Refused::NotInForce) => return Err(io::ErrorKind::InvalidData.into()),
    }
    Ok(Zeroizing::new(answer))
}

pub(super) fn decode(answer: &[u8]) -> Result<Enrolled, Refused> {
    let invalid = || Refused::Store(io::ErrorKind::InvalidData.into());
    let (outcome, rules) = answer.split_first().ok_or_else(invalid)?;
    Err(match *outcome {
        ENROLLED | BEFORE => {
            let rules = std::str::from_utf8(rules).map_err(|_| invalid())?;
            return Ok(Enrolled {
                allow: rules.lines().map(str::to_owned).collect(),
                before: *outcome == BEFORE,
            });
        }
        UNKNOWN => Refused::Unknown,
        USED => Refused::Used,
        WRONG => Refused::Wrong,
        LATE => Refused::Late,
        CHANGED => Refused::Changed,
        _ => invalid(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::record::number;
    use super::*;

    #[test]
    fn what_the_keeper_has_decided_arrives() {
        for (allow, before) in [
            (vec![], true),
            (vec!["a:1".to_owned(), "unix:/x y".to_owned()], false),
        ] {
            let enrolled = Enrolled { allow, before };
            let sent = encode(Ok(enrolled.clone())).expect("an answer");
            assert_eq!(decode(&sent).expect("enrolled"), enrolled);
        }
        for refused in [
            Refused::Unknown,
            Refused::Used,
            Refused::Wrong,
            Refused::Late,
            Refused::Changed,
        ] {
            let text = refused.to_string();
            let sent = encode(Err(refused)).expect("an answer");
            assert_eq!(decode(&sent).expect_err("refused").to_string(), text);
        }
        let full = Refused::Store(io::Error::from_raw_os_error(28));
        assert_eq!(number(&encode(Err(full)).expect_err("the disk")), 28);
        for nonsense in [&[][..], &[9], &[ENROLLED, 0xff]] {
            assert!(matches!(decode(nonsense), Err(Refused::Store(_))));
        }
    }
}
