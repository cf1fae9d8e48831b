//! Encodes the outcome of an enrolment: a number. After [`ENROLLED`] or [`ALREADY_STORED`] follow the limits of the
//! client on one line, and each of its rules on a line.

use std::io;
use std::time::{Duration, SystemTime};

use zeroize::Zeroizing;

use crate::enrolment::{Enrolment, JoinRefusal};
use crate::settings::ClientLimits;

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
            answer.extend(limits_line(&limits).into_bytes());
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
            let mut lines = text.lines();
            let limits = lines.next().and_then(limits_of);
            return Ok(Enrolment {
                limits: limits.ok_or_else(invalid)?,
                allow: lines.map(str::to_owned).collect(),
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

/// Formats the limits as five numbers, with `-` for none. The time of expiry counts in seconds since 1970.
fn limits_line(limits: &ClientLimits) -> String {
    let since_1970 = |at: SystemTime| at.duration_since(SystemTime::UNIX_EPOCH).ok();
    let expires = limits.expires.map(|at| since_1970(at).unwrap_or_default());
    let numbers = [
        limits.max_flows,
        limits.rate_up,
        limits.rate_down,
        limits.quota,
        expires.map(|time| time.as_secs()),
    ];
    let shown = numbers.map(|number| number.map_or_else(|| "-".to_owned(), |it| it.to_string()));
    shown.join(" ")
}

fn limits_of(line: &str) -> Option<ClientLimits> {
    let mut numbers = [None; 5];
    let mut words = line.split(' ');
    for number in &mut numbers {
        *number = match words.next()? {
            "-" => None,
            word => Some(word.parse::<u64>().ok()?),
        };
    }
    let [max_flows, rate_up, rate_down, quota, expires] = numbers;
    let at = |seconds| SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
    let limits = ClientLimits {
        max_flows,
        rate_up,
        rate_down,
        quota,
        expires: match expires {
            None => None,
            Some(seconds) => Some(at(seconds)?),
        },
    };
    words.next().is_none().then_some(limits)
}

#[cfg(test)]
mod tests {
    use super::super::record::number;
    use super::*;

    #[test]
    fn an_outcome_is_decoded_as_it_was_encoded() {
        let limits = ClientLimits {
            rate_up: Some(u64::MAX),
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
        let short = [&[ENROLLED][..], b"- - - -"].concat();
        let long = [&[ENROLLED][..], b"- - - - - -"].concat();
        let words = [&[ENROLLED][..], b"- - - - x"].concat();
        let nonsense = [&[][..], &[9], &[ENROLLED], &[ENROLLED, 0xff]];
        for nonsense in nonsense
            .into_iter()
            .chain([&short[..], &long[..], &words[..]])
        {
            assert!(matches!(decode(nonsense), Err(JoinRefusal::Store(_))));
        }
    }
}
