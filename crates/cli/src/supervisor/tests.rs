//! Tests of pairs that die in every way, in virtual time.

use super::*;

const COMMAND: PairPurpose = PairPurpose::Command { one_process: false };
const BOTH: [PairPurpose; 2] = [PairPurpose::Host, COMMAND];

/// A supervisor, with the current virtual time.
struct TestSupervisor {
    supervisor: Supervisor,
    start: Instant,
    now: Instant,
}

impl TestSupervisor {
    fn new(serves: PairPurpose) -> Self {
        let now = Instant::now();
        Self {
            supervisor: Supervisor::new(serves, now),
            start: now,
            now,
        }
    }

    /// Returns a supervisor whose pair has lived long enough to count as sound.
    fn settled(serves: PairPurpose) -> Self {
        let mut supervisor = Self::new(serves);
        supervisor.pass(60_000);
        supervisor
    }

    fn pass(&mut self, milliseconds: u64) {
        self.now += Duration::from_millis(milliseconds);
    }

    fn ended(&mut self, netstackd: Option<u8>, client: Option<u8>) {
        let ended = ExitCodes { netstackd, client };
        self.supervisor.ended(ended, self.now);
    }

    /// Returns all steps up to one that waits or ends.
    fn steps(&mut self) -> Vec<SupervisorStep> {
        let mut steps = Vec::new();
        while !matches!(
            steps.last(),
            Some(SupervisorStep::Wait(_) | SupervisorStep::End(_))
        ) {
            steps.push(self.supervisor.next(self.now));
        }
        steps
    }

    /// Returns the step that waits for so many milliseconds from now.
    fn wait(&self, milliseconds: u64) -> SupervisorStep {
        SupervisorStep::Wait(Some(self.now + Duration::from_millis(milliseconds)))
    }
}

fn end(code: u8, asked: bool) -> SupervisorStep {
    SupervisorStep::End(SupervisorEnd { code, asked })
}

const TERM_CLIENT: SupervisorStep = SupervisorStep::Signal(PairMember::Client, Signal::TERM);
const FOREVER: SupervisorStep = SupervisorStep::Wait(None);

#[test]
fn a_healthy_pair_is_left_alone() {
    for serves in BOTH {
        let mut supervisor = TestSupervisor::new(serves);
        assert_eq!(supervisor.steps(), [FOREVER]);
        supervisor.pass(3_600_000);
        assert_eq!(supervisor.steps(), [FOREVER]);
    }
}

#[test]
fn a_client_that_dies_is_replaced_at_once_when_it_has_lived() {
    for serves in BOTH {
        let mut supervisor = TestSupervisor::settled(serves);
        supervisor.ended(None, Some(137));
        let wait = supervisor.wait(300);
        assert_eq!(supervisor.steps(), [wait], "the stack has time for resets");
        supervisor.pass(1);
        supervisor.ended(Some(0), Some(137));
        let tell = SupervisorStep::Tell(PairMember::Client);
        assert_eq!(
            supervisor.steps(),
            [SupervisorStep::Reset, tell, SupervisorStep::Start, FOREVER]
        );
        // The processes of the new pair run.
        supervisor.ended(None, None);
        assert_eq!(supervisor.steps(), [FOREVER]);
    }
}

#[test]
fn a_stack_that_dies_takes_its_client_with_it() {
    for serves in BOTH {
        let mut supervisor = TestSupervisor::settled(serves);
        supervisor.ended(Some(137), None);
        let wait = supervisor.wait(300);
        assert_eq!(supervisor.steps(), [TERM_CLIENT, wait]);
        supervisor.pass(299);
        let wait = supervisor.wait(1);
        assert_eq!(supervisor.steps(), [wait]);
        supervisor.pass(1);
        let kill = SupervisorStep::Signal(PairMember::Client, Signal::KILL);
        assert_eq!(
            supervisor.steps(),
            [kill, FOREVER],
            "the client is killed once"
        );
        supervisor.ended(Some(137), Some(137));
        let tell = SupervisorStep::Tell(PairMember::Netstackd);
        assert_eq!(
            supervisor.steps(),
            [SupervisorStep::Reset, tell, SupervisorStep::Start, FOREVER]
        );
    }
}

#[test]
fn a_stack_that_outlives_its_client_is_killed() {
    let mut supervisor = TestSupervisor::settled(PairPurpose::Host);
    supervisor.ended(None, Some(101));
    supervisor.pass(300);
    let kill = SupervisorStep::Signal(PairMember::Netstackd, Signal::KILL);
    assert_eq!(supervisor.steps(), [kill, FOREVER]);
    supervisor.ended(Some(137), Some(101));
    assert_eq!(
        supervisor.steps()[1],
        SupervisorStep::Tell(PairMember::Client)
    );
}

#[test]
fn pairs_that_die_at_the_start_are_replaced_ever_later() {
    for serves in BOTH {
        let mut supervisor = TestSupervisor::new(serves);
        for pause in [50, 100, 200, 400, 500, 500] {
            supervisor.ended(Some(0), Some(101));
            let wait = supervisor.wait(pause);
            let tell = SupervisorStep::Tell(PairMember::Client);
            assert_eq!(
                supervisor.steps(),
                [SupervisorStep::Reset, tell, wait],
                "{pause}"
            );
            supervisor.pass(pause - 1);
            assert_eq!(supervisor.steps(), [supervisor.wait(1)]);
            supervisor.pass(1);
            assert_eq!(supervisor.steps(), [SupervisorStep::Start, FOREVER]);
        }
        assert_eq!(
            supervisor.now - supervisor.start,
            Duration::from_millis(1750)
        );
        supervisor.pass(1000);
        supervisor.ended(Some(0), Some(101));
        assert_eq!(
            supervisor.steps()[2],
            SupervisorStep::Start,
            "the last pair was sound"
        );
    }
}

#[test]
fn exit_codes_decide_which_of_two_processes_died_first() {
    for (netstackd, client, first) in [
        (0, 137, PairMember::Client),
        (1, 137, PairMember::Client),
        (0, 101, PairMember::Client),
        (137, 137, PairMember::Client),
        (137, 101, PairMember::Netstackd),
        (101, 101, PairMember::Netstackd),
    ] {
        for serves in BOTH {
            let mut supervisor = TestSupervisor::settled(serves);
            supervisor.ended(Some(netstackd), Some(client));
            let steps = supervisor.steps();
            assert_eq!(
                steps[..2],
                [SupervisorStep::Reset, SupervisorStep::Tell(first)],
                "{netstackd} {client}"
            );
        }
    }
}

#[test]
fn a_stack_that_exits_with_success_has_lost_its_client() {
    for serves in BOTH {
        let mut supervisor = TestSupervisor::settled(serves);
        supervisor.ended(Some(0), None);
        let wait = supervisor.wait(300);
        assert_eq!(supervisor.steps(), [wait], "the client is about to end");
        supervisor.ended(Some(0), Some(101));
        assert_eq!(
            supervisor.steps()[1],
            SupervisorStep::Tell(PairMember::Client)
        );

        let mut supervisor = TestSupervisor::settled(serves);
        supervisor.ended(Some(0), None);
        supervisor.pass(300);
        let kill = SupervisorStep::Signal(PairMember::Client, Signal::KILL);
        assert_eq!(supervisor.steps(), [kill, FOREVER]);
        supervisor.ended(Some(0), Some(137));
        assert_eq!(
            supervisor.steps()[1],
            SupervisorStep::Tell(PairMember::Client)
        );

        let mut supervisor = TestSupervisor::settled(serves);
        supervisor.ended(Some(0), None);
        supervisor.ended(Some(0), Some(1));
        let last = match serves {
            PairPurpose::Host => end(1, false),
            PairPurpose::Command { .. } => SupervisorStep::ReleaseDevice,
        };
        assert_eq!(supervisor.steps()[1], last, "the client ended on purpose");
    }
}

#[test]
fn a_client_that_exits_with_success_ends_the_host_but_not_the_command() {
    for code in [0, 1, 2] {
        let mut supervisor = TestSupervisor::settled(PairPurpose::Host);
        supervisor.ended(None, Some(code));
        supervisor.ended(Some(0), Some(code));
        assert_eq!(
            supervisor.steps(),
            [SupervisorStep::Reset, end(code, code == 0)]
        );

        let mut supervisor = TestSupervisor::settled(COMMAND);
        supervisor.ended(None, Some(code));
        supervisor.ended(Some(0), Some(code));
        assert_eq!(supervisor.supervisor.unserved, Some(code));
        assert_eq!(
            supervisor.steps(),
            [
                SupervisorStep::Reset,
                SupervisorStep::ReleaseDevice,
                FOREVER
            ]
        );
        supervisor.supervisor.command_ended(7);
        assert_eq!(supervisor.steps(), [end(7, false)]);
    }
}

#[test]
fn a_command_that_ends_ends_all_in_every_state() {
    let serving: fn(&mut TestSupervisor) = |_| ();
    let ending: fn(&mut TestSupervisor) = |supervisor| supervisor.ended(None, Some(137));
    let paused: fn(&mut TestSupervisor) = |supervisor| supervisor.ended(Some(0), Some(137));
    for reach in [serving, ending, paused] {
        let mut supervisor = TestSupervisor::new(COMMAND);
        reach(&mut supervisor);
        supervisor.steps();
        assert_eq!(supervisor.supervisor.unserved, None);
        supervisor.supervisor.command_ended(3);
        assert_eq!(supervisor.steps(), [end(3, false)]);
    }
}

#[test]
fn a_host_passes_signals_on_and_ends_with_its_client() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut supervisor = TestSupervisor::settled(PairPurpose::Host);
        supervisor.supervisor.signal(signal);
        let pass_on = SupervisorStep::Signal(PairMember::Client, signal);
        assert_eq!(supervisor.steps(), [pass_on, FOREVER]);
        // While the client drains, nothing ends it earlier, not even the end of its stack.
        supervisor.ended(Some(0), None);
        assert_eq!(supervisor.steps(), [FOREVER]);
        supervisor.supervisor.signal(signal);
        assert_eq!(supervisor.steps(), [pass_on, FOREVER]);
        supervisor.ended(Some(0), Some(130));
        assert_eq!(supervisor.steps(), [SupervisorStep::Reset, end(130, true)]);
    }
}

#[test]
fn a_host_is_not_started_again_when_it_was_asked_to_end_meanwhile() {
    let mut supervisor = TestSupervisor::settled(PairPurpose::Host);
    supervisor.ended(Some(137), None);
    supervisor.supervisor.signal(Signal::INT);
    let pass_on = SupervisorStep::Signal(PairMember::Client, Signal::INT);
    let wait = supervisor.wait(300);
    assert_eq!(supervisor.steps(), [TERM_CLIENT, pass_on, wait]);
    supervisor.ended(Some(137), Some(101));
    assert_eq!(supervisor.steps(), [SupervisorStep::Reset, end(101, true)]);

    let mut supervisor = TestSupervisor::new(PairPurpose::Host);
    supervisor.ended(Some(137), Some(101));
    supervisor.steps();
    supervisor.supervisor.signal(Signal::TERM);
    assert_eq!(
        supervisor.steps(),
        [end(143, true)],
        "a signal between pairs"
    );
}

#[test]
fn a_hangup_reaches_the_client_and_ends_nothing() {
    let mut supervisor = TestSupervisor::new(PairPurpose::Host);
    supervisor.supervisor.signal(Signal::HUP);
    let pass_on = SupervisorStep::Signal(PairMember::Client, Signal::HUP);
    assert_eq!(supervisor.steps(), [pass_on, FOREVER]);
    supervisor.ended(Some(0), Some(137));
    let wait = supervisor.wait(50);
    assert_eq!(supervisor.steps()[2], wait);
    supervisor.supervisor.signal(Signal::HUP);
    assert_eq!(supervisor.steps(), [wait], "no client runs");
}

#[test]
fn a_signal_ends_a_command_once_the_pair_has_ended() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let code = 128 + u8::try_from(signal.as_raw()).expect("a small number");
        let mut supervisor = TestSupervisor::settled(COMMAND);
        supervisor.supervisor.signal(signal);
        assert_eq!(supervisor.steps(), [end(code, true)]);

        let mut supervisor = TestSupervisor::settled(COMMAND);
        supervisor.ended(Some(137), None);
        supervisor.supervisor.signal(signal);
        let wait = supervisor.wait(300);
        assert_eq!(supervisor.steps(), [TERM_CLIENT, wait]);
        supervisor.ended(Some(137), Some(101));
        let tell = SupervisorStep::Tell(PairMember::Netstackd);
        assert_eq!(
            supervisor.steps(),
            [SupervisorStep::Reset, tell, end(code, true)]
        );
    }
}

#[test]
fn a_client_without_a_stack_is_not_replaced() {
    for code in [0, 101, 137] {
        let mut supervisor = TestSupervisor::settled(PairPurpose::Command { one_process: true });
        supervisor.ended(None, Some(code));
        assert_eq!(supervisor.steps(), [FOREVER]);
        assert_eq!(supervisor.supervisor.unserved, Some(code));
        supervisor.supervisor.command_ended(0);
        assert_eq!(supervisor.steps(), [end(0, false)]);
    }
}
