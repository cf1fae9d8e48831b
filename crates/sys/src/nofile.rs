//! The limit on open descriptors. A tunnel needs two for each flow, and the usual soft limit is 1024.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit on open descriptors to the hard limit, and returns it; `u64::MAX` if there is none. If the system
/// refuses, the old limit stays in force.
pub fn raise_nofile_limit() -> io::Result<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        setrlimit(
            Resource::Nofile,
            Rlimit {
                current: maximum,
                maximum,
            },
        )?;
    }
    // `None` means that there is no limit.
    Ok(maximum.unwrap_or(u64::MAX))
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
        assert_eq!(limit, maximum.unwrap_or(u64::MAX));
        assert_eq!(getrlimit(Resource::Nofile).current, maximum);
    }
}
