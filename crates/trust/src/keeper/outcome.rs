//! Encodes the outcome of an enrolment: a number. After [`ENROLLED`] or [`ALREADY_STORED`] follow the limits of the
//! client as its file has them, and each of its rules on a line.

use std::io;

use zeroize::Zeroizing;

use crate::enrolment::{Enrolment, JoinRefusal, limit_lines};

const ENROLLED: u8 = 0;
const UNKNOWN: u8 = 1;
const USED: u8 = 2;
const WRONG: u8 = 3;
const LATE: u8 = 4;
const CHANGED: u8 = 5;
const ALREADY_STORED: u8 = 6;

/// Encodes an outcome. A refusal that the file system caused becomes an error, like the errors of other requests.
pub(super) fn encode(outcome: Result<Enrolment, JoinRefusal>) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut answer = vec![ENROLLED];
    match outcome {
        Ok(Enrolment {
            allow,
            limits,
            already_stored,
        }) => {
            answer[0] = if already_stored {
                ALREADY_STORED
            } else {
                ENROLLED
            };
            answer.extend(limit_lines::lines(&limits).into_bytes());
            answer.extend(limit_lines::NEXT.as_bytes());
            for rule in allow {
                answer.push(b'\n');
                answer.extend(rule.into_bytes());
            }
        }
        Err(JoinRefusal::Unknown) => answer[0] = UNKNOWN,
        Err(JoinRefusal::Used) => answer[0] = USED,
        Err(JoinRefusal::Wrong) => answer[0] = WRONG,
        Err(JoinRefusal::Late) => answer[0] = LATE,
        Err(JoinRefusal::Changed) => answer[0] = CHANGED,
        Err(JoinRefusal::Store(error)) => return Err(error),
        // Only the main process returns these: the keeper sees neither connections nor a running server.
        Err(JoinRefusal::NoKey | JoinRefusal::NotInForce) => {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
    Ok(Zeroizing::new(answer))
}

pub(super) fn decode(answer: &[u8]) -> Result<Enrolment, JoinRefusal> {
    let invalid = || JoinRefusal::Store(io::ErrorKind::InvalidData.into());
    let (outcome, rules) = answer.split_first().ok_or_else(invalid)?;
    Err(match *outcome {
        ENROLLED | ALREADY_STORED => {
            let text = std::str::from_utf8(rules).map_err(|_| invalid())?;
            let (limits, rules) = limit_lines::split(text).ok_or_else(invalid)?;
            return Ok(Enrolment {
                limits,
                allow: rules.lines().skip(1).map(str::to_owned).collect(),
                already_stored: *outcome == ALREADY_STORED,
            });
        }
        UNKNOWN => JoinRefusal::Unknown,
        USED => JoinRefusal::Used,
        WRONG => JoinRefusal::Wrong,
        LATE => JoinRefusal::Late,
        CHANGED => JoinRefusal::Changed,
        _ => invalid(),
    })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::super::record::number;
    use super::*;
    use crate::settings::ClientLimits;

    #[test]
    fn an_outcome_is_decoded_as_it_was_encoded() {
        let limits = ClientLimits {
            rate_up: Some(1000),
            quota: Some(1),
            expires: Some(SystemTime::UNIX_EPOCH + Duration::from_hours(24)),
            ..ClientLimits::default()
        };
        for (allow, limits, already_stored) in [
            (vec![], ClientLimits::default(), true),
            (
                vec!["a:1".to_owned(), "unix:/x y".to_owned()],
                limits,
                false,
            ),
        ] {
            let enrolled = Enrolment {
                allow,
                limits,
                already_stored,
            };
            let sent = encode(Ok(enrolled.clone())).expect("an answer");
            assert_eq!(decode(&sent).expect("enrolled"), enrolled);
        }
        for refused in [
            JoinRefusal::Unknown,
            JoinRefusal::Used,
            JoinRefusal::Wrong,
            JoinRefusal::Late,
            JoinRefusal::Changed,
        ] {
            let text = refused.to_string();
            let sent = encode(Err(refused)).expect("an answer");
            assert_eq!(decode(&sent).expect_err("refused").to_string(), text);
        }
        let full = JoinRefusal::Store(io::Error::from_raw_os_error(28));
        assert_eq!(number(&encode(Err(full)).expect_err("the disk")), 28);
        let no_rules = [&[ENROLLED][..], b"quota = 1\n"].concat();
        let twice = [&[ENROLLED][..], b"quota = 1\nquota = 1\nallow = ["].concat();
        let words = [&[ENROLLED][..], b"quota = x\nallow = ["].concat();
        let nonsense = [&[][..], &[9], &[ENROLLED], &[ENROLLED, 0xff]];
        for nonsense in nonsense
            .into_iter()
            .chain([&no_rules[..], &twice[..], &words[..]])
        {
            assert!(matches!(decode(nonsense), Err(JoinRefusal::Store(_))));
        }
    }
}
