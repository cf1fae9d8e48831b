//! The limit on open descriptors. A tunnel needs two for each flow, and the usual soft limit is 1024.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Number of descriptors that this process may have open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NofileLimit {
    /// The soft limit before the call.
    pub before: u64,
    /// The limit now in force; `u64::MAX` if there is none.
    pub now: u64,
}

/// Raises the soft limit on open descriptors to the hard limit. If the system refuses, the old limit stays in force.
pub fn raise_nofile_limit() -> io::Result<NofileLimit> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // `None` means that there is no limit.
    let (before, now) = (current.unwrap_or(u64::MAX), maximum.unwrap_or(u64::MAX));
    if before != now {
        setrlimit(
            Resource::Nofile,
            Rlimit {
                current: maximum,
                maximum,
            },
        )?;
    }
    Ok(NofileLimit { before, now })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_becomes_the_hard_limit() {
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        let lowered = current.unwrap_or(u64::MAX).min(512);
        setrlimit(
            Resource::Nofile,
            Rlimit {
                current: Some(lowered),
                maximum,
            },
        )
        .expect("lowering is always allowed");
        let limit = raise_nofile_limit().expect("up to the hard limit is always allowed");
        assert_eq!(
            limit,
            NofileLimit {
                before: lowered,
                now: maximum.unwrap_or(u64::MAX)
            }
        );
        assert_eq!(getrlimit(Resource::Nofile).current, maximum);
    }
}
