//! Tests of pairs that die in every way, in virtual time.

use super::*;

const COMMAND: For = For::Command { one_process: false };
const BOTH: [For; 2] = [For::Host, COMMAND];

/// A supervisor, with the current virtual time.
struct Scene {
    supervisor: Supervisor,
    start: Instant,
    now: Instant,
}

impl Scene {
    fn new(serves: For) -> Self {
        let now = Instant::now();
        Self {
            supervisor: Supervisor::new(serves, now),
            start: now,
            now,
        }
    }

    /// Returns a scene whose pair has lived long enough to count as sound.
    fn settled(serves: For) -> Self {
        let mut scene = Self::new(serves);
        scene.pass(60_000);
        scene
    }

    fn pass(&mut self, milliseconds: u64) {
        self.now += Duration::from_millis(milliseconds);
    }

    fn ended(&mut self, netstackd: Option<u8>, client: Option<u8>) {
        let ended = Ended { netstackd, client };
        self.supervisor.ended(ended, self.now);
    }

    /// Returns all steps up to one that waits or ends.
    fn steps(&mut self) -> Vec<Step> {
        let mut steps = Vec::new();
        while !matches!(steps.last(), Some(Step::Wait(_) | Step::End(_))) {
            steps.push(self.supervisor.next(self.now));
        }
        steps
    }

    /// Returns the step that waits for so many milliseconds from now.
    fn wait(&self, milliseconds: u64) -> Step {
        Step::Wait(Some(self.now + Duration::from_millis(milliseconds)))
    }
}

fn end(code: u8, asked: bool) -> Step {
    Step::End(End { code, asked })
}

const TERM_CLIENT: Step = Step::Signal(Role::Client, Signal::TERM);
const FOREVER: Step = Step::Wait(None);

#[test]
fn a_pair_in_order_is_left_alone() {
    for serves in BOTH {
        let mut scene = Scene::new(serves);
        assert_eq!(scene.steps(), [FOREVER]);
        scene.pass(3_600_000);
        assert_eq!(scene.steps(), [FOREVER]);
    }
}

#[test]
fn a_client_that_dies_is_replaced_at_once_when_it_has_lived() {
    for serves in BOTH {
        let mut scene = Scene::settled(serves);
        scene.ended(None, Some(137));
        let wait = scene.wait(300);
        assert_eq!(scene.steps(), [wait], "the stack has time for resets");
        scene.pass(1);
        scene.ended(Some(0), Some(137));
        let tell = Step::Tell(Role::Client);
        assert_eq!(scene.steps(), [Step::Reset, tell, Step::Start, FOREVER]);
        // The processes of the new pair run.
        scene.ended(None, None);
        assert_eq!(scene.steps(), [FOREVER]);
    }
}

#[test]
fn a_stack_that_dies_takes_its_client_with_it() {
    for serves in BOTH {
        let mut scene = Scene::settled(serves);
        scene.ended(Some(137), None);
        let wait = scene.wait(300);
        assert_eq!(scene.steps(), [TERM_CLIENT, wait]);
        scene.pass(299);
        let wait = scene.wait(1);
        assert_eq!(scene.steps(), [wait]);
        scene.pass(1);
        let kill = Step::Signal(Role::Client, Signal::KILL);
        assert_eq!(scene.steps(), [kill, FOREVER], "the client is killed once");
        scene.ended(Some(137), Some(137));
        let tell = Step::Tell(Role::Netstackd);
        assert_eq!(scene.steps(), [Step::Reset, tell, Step::Start, FOREVER]);
    }
}

#[test]
fn a_stack_that_outlives_its_client_is_killed() {
    let mut scene = Scene::settled(For::Host);
    scene.ended(None, Some(101));
    scene.pass(300);
    let kill = Step::Signal(Role::Netstackd, Signal::KILL);
    assert_eq!(scene.steps(), [kill, FOREVER]);
    scene.ended(Some(137), Some(101));
    assert_eq!(scene.steps()[1], Step::Tell(Role::Client));
}

#[test]
fn pairs_that_die_at_the_start_are_replaced_ever_later() {
    for serves in BOTH {
        let mut scene = Scene::new(serves);
        for pause in [50, 100, 200, 400, 500, 500] {
            scene.ended(Some(0), Some(101));
            let wait = scene.wait(pause);
            let tell = Step::Tell(Role::Client);
            assert_eq!(scene.steps(), [Step::Reset, tell, wait], "{pause}");
            scene.pass(pause - 1);
            assert_eq!(scene.steps(), [scene.wait(1)]);
            scene.pass(1);
            assert_eq!(scene.steps(), [Step::Start, FOREVER]);
        }
        assert_eq!(scene.now - scene.start, Duration::from_millis(1750));
        scene.pass(1000);
        scene.ended(Some(0), Some(101));
        assert_eq!(scene.steps()[2], Step::Start, "the last pair was sound");
    }
}

#[test]
fn where_both_died_at_once_their_codes_say_which_was_first() {
    for (netstackd, client, first) in [
        (0, 137, Role::Client),
        (1, 137, Role::Client),
        (0, 101, Role::Client),
        (137, 137, Role::Client),
        (137, 101, Role::Netstackd),
        (101, 101, Role::Netstackd),
    ] {
        for serves in BOTH {
            let mut scene = Scene::settled(serves);
            scene.ended(Some(netstackd), Some(client));
            let steps = scene.steps();
            assert_eq!(
                steps[..2],
                [Step::Reset, Step::Tell(first)],
                "{netstackd} {client}"
            );
        }
    }
}

#[test]
fn a_stack_that_ends_in_order_has_lost_its_client() {
    for serves in BOTH {
        let mut scene = Scene::settled(serves);
        scene.ended(Some(0), None);
        let wait = scene.wait(300);
        assert_eq!(scene.steps(), [wait], "the client is about to end");
        scene.ended(Some(0), Some(101));
        assert_eq!(scene.steps()[1], Step::Tell(Role::Client));

        let mut scene = Scene::settled(serves);
        scene.ended(Some(0), None);
        scene.pass(300);
        let kill = Step::Signal(Role::Client, Signal::KILL);
        assert_eq!(scene.steps(), [kill, FOREVER]);
        scene.ended(Some(0), Some(137));
        assert_eq!(scene.steps()[1], Step::Tell(Role::Client));

        let mut scene = Scene::settled(serves);
        scene.ended(Some(0), None);
        scene.ended(Some(0), Some(1));
        let last = match serves {
            For::Host => end(1, false),
            For::Command { .. } => Step::LetGo,
        };
        assert_eq!(scene.steps()[1], last, "the client ended on purpose");
    }
}

#[test]
fn a_client_that_means_to_end_ends_the_host_and_leaves_the_command() {
    for code in [0, 1, 2] {
        let mut scene = Scene::settled(For::Host);
        scene.ended(None, Some(code));
        scene.ended(Some(0), Some(code));
        assert_eq!(scene.steps(), [Step::Reset, end(code, code == 0)]);

        let mut scene = Scene::settled(COMMAND);
        scene.ended(None, Some(code));
        scene.ended(Some(0), Some(code));
        assert_eq!(scene.supervisor.unserved, Some(code));
        assert_eq!(scene.steps(), [Step::Reset, Step::LetGo, FOREVER]);
        scene.supervisor.command_ended(7);
        assert_eq!(scene.steps(), [end(7, false)]);
    }
}

#[test]
fn a_command_that_ends_ends_all_in_every_state() {
    let serving: fn(&mut Scene) = |_| ();
    let ending: fn(&mut Scene) = |scene| scene.ended(None, Some(137));
    let paused: fn(&mut Scene) = |scene| scene.ended(Some(0), Some(137));
    for reach in [serving, ending, paused] {
        let mut scene = Scene::new(COMMAND);
        reach(&mut scene);
        scene.steps();
        assert_eq!(scene.supervisor.unserved, None);
        scene.supervisor.command_ended(3);
        assert_eq!(scene.steps(), [end(3, false)]);
    }
}

#[test]
fn a_host_passes_signals_on_and_ends_with_its_client() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut scene = Scene::settled(For::Host);
        scene.supervisor.signal(signal);
        let pass_on = Step::Signal(Role::Client, signal);
        assert_eq!(scene.steps(), [pass_on, FOREVER]);
        // While the client drains, nothing ends it earlier, not even the end of its stack.
        scene.ended(Some(0), None);
        assert_eq!(scene.steps(), [FOREVER]);
        scene.supervisor.signal(signal);
        assert_eq!(scene.steps(), [pass_on, FOREVER]);
        scene.ended(Some(0), Some(130));
        assert_eq!(scene.steps(), [Step::Reset, end(130, true)]);
    }
}

#[test]
fn a_host_is_not_started_again_when_it_was_asked_to_end_meanwhile() {
    let mut scene = Scene::settled(For::Host);
    scene.ended(Some(137), None);
    scene.supervisor.signal(Signal::INT);
    let pass_on = Step::Signal(Role::Client, Signal::INT);
    let wait = scene.wait(300);
    assert_eq!(scene.steps(), [TERM_CLIENT, pass_on, wait]);
    scene.ended(Some(137), Some(101));
    assert_eq!(scene.steps(), [Step::Reset, end(101, true)]);

    let mut scene = Scene::new(For::Host);
    scene.ended(Some(137), Some(101));
    scene.steps();
    scene.supervisor.signal(Signal::TERM);
    assert_eq!(scene.steps(), [end(143, true)], "a signal between pairs");
}

#[test]
fn a_hangup_reaches_the_client_and_ends_nothing() {
    let mut scene = Scene::new(For::Host);
    scene.supervisor.signal(Signal::HUP);
    let pass_on = Step::Signal(Role::Client, Signal::HUP);
    assert_eq!(scene.steps(), [pass_on, FOREVER]);
    scene.ended(Some(0), Some(137));
    let wait = scene.wait(50);
    assert_eq!(scene.steps()[2], wait);
    scene.supervisor.signal(Signal::HUP);
    assert_eq!(scene.steps(), [wait], "no client runs");
}

#[test]
fn a_signal_ends_a_command_once_the_pair_has_ended() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let code = 128 + u8::try_from(signal.as_raw()).expect("a small number");
        let mut scene = Scene::settled(COMMAND);
        scene.supervisor.signal(signal);
        assert_eq!(scene.steps(), [end(code, true)]);

        let mut scene = Scene::settled(COMMAND);
        scene.ended(Some(137), None);
        scene.supervisor.signal(signal);
        let wait = scene.wait(300);
        assert_eq!(scene.steps(), [TERM_CLIENT, wait]);
        scene.ended(Some(137), Some(101));
        let tell = Step::Tell(Role::Netstackd);
        assert_eq!(scene.steps(), [Step::Reset, tell, end(code, true)]);
    }
}

#[test]
fn a_client_without_a_stack_is_not_replaced() {
    for code in [0, 101, 137] {
        let mut scene = Scene::settled(For::Command { one_process: true });
        scene.ended(None, Some(code));
        assert_eq!(scene.steps(), [FOREVER]);
        assert_eq!(scene.supervisor.unserved, Some(code));
        scene.supervisor.command_ended(0);
        assert_eq!(scene.steps(), [end(0, false)]);
    }
}
