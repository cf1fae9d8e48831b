//! The faults of a run with random applications, and when they begin.

use std::time::Duration;

use quictun_sim::{PathFilter, Random};

use crate::endings::EndHost;
use crate::schedules::SurvivingFlows;
use crate::tunnel_pair::MS;

/// Period in which faults begin.
pub(crate) const FAULTS_WITHIN: Duration = Duration::from_secs(40);

/// Maximum time that both sides need to reconnect: attempts that time out, and the waits between them.
pub(crate) const RECONNECT: Duration = Duration::from_secs(45);

/// A fault that a run injects.
#[derive(Clone, Copy, Debug)]
pub(crate) enum InjectedFault {
    /// The QUIC library of a side gives up a connection.
    Break(EndHost),
    /// A side forgets a connection. With `mute`, it does not even send stateless resets.
    Forget { side: EndHost, mute: bool },
    /// A host sleeps with all its applications; datagrams for it are lost.
    Sleep(EndHost, Duration),
    /// A process is stopped; datagrams for it are queued.
    Stop(EndHost, Duration),
    /// The client gets another address.
    Move,
    /// The client gets another port.
    Rebind,
    /// The link delivers nothing in one or both directions for a while.
    BlackHole {
        up: bool,
        down: bool,
        time: Duration,
    },
    /// The client is asked to reconnect.
    Reconnect,
    /// A middlebox treats UDP and TCP like this from now on.
    Filter(PathFilter),
    /// A middlebox resets all TCP connections of the client.
    CutTcp,
    /// A middlebox forgets all TCP connections of the client, without a reset.
    SilenceTcp,
    /// Another process takes over from that of a host, which takes this time, or one of both dies.
    HandOver {
        side: EndHost,
        takes: Duration,
        end: HandOverEnd,
    },
}

/// The end of a hand-over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandOverEnd {
    /// The new process commits, and the old one closes its connections.
    Committed,
    /// The new process dies or refuses before the old one has let go: the old one goes on.
    RolledBack,
    /// The old process dies with its connections, and the new one has everything that it needs.
    OldDied,
    /// No process goes on: the old one dies before it has sent everything, or the new one dies once the old one has let go.
    /// Another process starts.
    BothDied { released: bool },
}

impl HandOverEnd {
    /// Draws a step, and the process that dies at it. Most deaths leave a process that goes on.
    fn random_death(random: &mut Random) -> Self {
        match random.within(0, 8) {
            0..=3 => Self::RolledBack,
            4..=6 => Self::OldDied,
            _ => Self::BothDied {
                released: random.chance(1, 2),
            },
        }
    }

    /// Returns whether flows are lost.
    pub(crate) fn is_fatal(self) -> bool {
        matches!(self, Self::BothDied { .. })
    }
}

impl InjectedFault {
    pub(crate) fn lasts(self) -> Duration {
        match self {
            Self::Sleep(_, time) | Self::Stop(_, time) | Self::BlackHole { time, .. } => time,
            _ => Duration::ZERO,
        }
    }

    /// Returns a random fault that takes at most `most`.
    fn random(random: &mut Random, most: Duration) -> Self {
        let side = random.pick(&[EndHost::Client, EndHost::Client, EndHost::Server]);
        let ms = u64::try_from(most.as_millis()).expect("fits");
        let time = Duration::from_millis(random.magnitude(1, ms));
        match random.within(0, 14) {
            0 | 1 => Self::Break(side),
            2 => Self::Forget { side, mute: true },
            3 => Self::Forget { side, mute: false },
            4 | 5 => Self::Sleep(side, time),
            6 => Self::Stop(side, time),
            7 => Self::Move,
            8 => Self::Rebind,
            9 | 10 => Self::Reconnect,
            11 => Self::BlackHole {
                up: true,
                down: false,
                time,
            },
            12 => Self::BlackHole {
                up: false,
                down: true,
                time,
            },
            _ => Self::BlackHole {
                up: true,
                down: true,
                time,
            },
        }
    }
}

/// Returns hand-overs of a host, some of which closely follow the previous one.
pub(crate) fn random_hand_overs(
    random: &mut Random,
    side: EndHost,
) -> Vec<(Duration, InjectedFault)> {
    let mut at = Duration::ZERO;
    let count = random.within(1, 6);
    let next = |_| {
        let most = random.pick(&[50 * MS, 2000 * MS, 20_000 * MS]);
        at += random.time(Duration::ZERO, most);
        let end = if random.chance(2, 3) {
            HandOverEnd::Committed
        } else {
            HandOverEnd::RolledBack
        };
        let takes = Duration::ZERO;
        (at, InjectedFault::HandOver { side, takes, end })
    };
    (0..count).map(next).collect()
}

/// Returns hand-overs of a host, in each of which a process dies.
pub(crate) fn random_deaths(random: &mut Random, side: EndHost) -> Vec<(Duration, InjectedFault)> {
    let mut hand_overs = random_hand_overs(random, side);
    for (_, fault) in &mut hand_overs {
        if let InjectedFault::HandOver { takes, end, .. } = fault {
            *takes = Duration::from_millis(random.magnitude(1, 5000));
            *end = HandOverEnd::random_death(random);
            if *end == (HandOverEnd::BothDied { released: true }) {
                // The old process sends its last packets before that.
                *takes = Duration::ZERO;
            }
        }
    }
    hand_overs
}

/// Returns faults in the order of their times. Together they leave enough of `ttl`, unless some flows need not be kept.
pub(crate) fn random_faults(
    random: &mut Random,
    ttl: Duration,
    surviving: SurvivingFlows,
) -> Vec<(Duration, InjectedFault)> {
    let count = random.within(1, 7);
    let most = ttl.saturating_sub(FAULTS_WITHIN + RECONNECT) / u32::try_from(count).expect("small");
    let mut faults = Vec::new();
    let mut last = Duration::ZERO;
    for _ in 0..count {
        // Many faults follow closely on the previous one.
        let at = if random.chance(1, 3) {
            last + random.time(Duration::ZERO, 300 * MS)
        } else {
            random.time(Duration::ZERO, FAULTS_WITHIN)
        };
        last = at;
        faults.push((at, InjectedFault::random(random, most)));
    }
    if surviving == SurvivingFlows::Some {
        let fault = InjectedFault::BlackHole {
            up: true,
            down: random.chance(3, 4),
            time: ttl + random.time(Duration::ZERO, 2 * RECONNECT),
        };
        faults.push((random.time(Duration::ZERO, FAULTS_WITHIN), fault));
    }
    faults.sort_by_key(|(at, _)| *at);
    faults
}
