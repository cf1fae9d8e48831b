use super::*;
use crate::report::ServerId;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// Measurements of servers with these round-trip times in milliseconds. 0 means that the server does not answer.
fn round_trips<const N: usize>(ms: [u64; N]) -> [Measurements; N] {
    ms.map(|ms| Measurements {
        rtt: (ms > 0).then(|| Duration::from_millis(ms)),
        ..Measurements::default()
    })
}

/// Runs a choice that is judged ten times a second.
struct Run {
    choice: Choice,
    start: Instant,
    now: Instant,
}

impl Run {
    /// Creates a run whose first judgement chooses the fastest of these servers.
    fn new<const N: usize>(ms: [u64; N]) -> Self {
        let start = Instant::now();
        let mut run = Self {
            choice: Choice::default(),
            start,
            now: start,
        };
        let first = run.judge(&round_trips(ms)).expect("one of them answers");
        assert_eq!(
            (first.from, first.reason),
            (None, ChoiceReason::FirstAnswer)
        );
        run
    }

    fn judge(&mut self, measured: &[Measurements]) -> Option<Switch> {
        self.choice.judge(self.now, measured)
    }

    /// Lets `time` pass with these measurements. Returns the switches and their times.
    fn pass(
        &mut self,
        time: Duration,
        measured: &[Measurements],
    ) -> Vec<(Duration, usize, ChoiceReason)> {
        let end = self.now + time;
        let mut switches = Vec::new();
        while self.now < end {
            self.now += 100 * MS;
            if let Some(switch) = self.judge(measured) {
                switches.push((self.now - self.start, switch.to, switch.reason));
            }
        }
        switches
    }
}

#[test]
fn the_fastest_is_chosen_first_and_of_equals_the_one_that_was_written_first() {
    assert_eq!(Run::new([40, 20, 30]).choice.chosen(), Some(1));
    assert_eq!(Run::new([20, 20]).choice.chosen(), Some(0));
    assert_eq!(Run::new([0, 200]).choice.chosen(), Some(1));
    let mut choice = Choice::default();
    assert_eq!(choice.judge(Instant::now(), &round_trips([0, 0])), None);
    assert_eq!(choice.chosen(), None);
}

#[test]
fn flows_leave_a_server_that_does_not_answer_at_once_and_for_the_fastest_other() {
    let mut run = Run::new([20, 300, 100]);
    let switch = run.judge(&round_trips([0, 300, 100])).expect("a switch");
    let expected = Switch {
        from: Some(0),
        to: 2,
        reason: ChoiceReason::NoAnswer,
    };
    assert_eq!(switch, expected);
    // This holds right after another switch, too.
    let again = run.judge(&round_trips([0, 300, 0])).expect("a switch");
    assert_eq!((again.to, again.reason), (1, ChoiceReason::NoAnswer));
    // No server answers: the choice stays, and that server takes flows again as soon as it answers.
    assert_eq!(run.judge(&round_trips([0, 0, 0])), None);
    assert_eq!(run.choice.chosen(), Some(1));
}

#[test]
fn a_server_that_comes_back_is_used_again_if_it_is_faster_or_was_written_before() {
    let mut run = Run::new([20, 20]);
    run.judge(&round_trips([0, 20])).expect("a switch");
    let back = run.pass(60 * SECOND, &round_trips([20, 20]));
    assert_eq!(back, [(10_100 * MS, 0, ChoiceReason::ListedFirst)]);

    let mut run = Run::new([50, 20]);
    run.judge(&round_trips([50, 0])).expect("a switch");
    let back = run.pass(60 * SECOND, &round_trips([50, 20]));
    assert_eq!(back, [(3100 * MS, 1, ChoiceReason::Faster)]);
}

#[test]
fn the_second_of_two_equals_is_left_alone_when_it_comes_back() {
    let mut run = Run::new([20, 20]);
    run.pass(SECOND, &round_trips([20, 0]));
    assert_eq!(run.pass(60 * SECOND, &round_trips([20, 20])), []);
}

#[test]
fn a_server_that_slows_to_three_times_is_left_for_one_that_is_then_faster() {
    for (far, moves) in [(40, true), (45, true), (58, false), (70, false)] {
        let mut run = Run::new([20, far]);
        assert_eq!(run.pass(60 * SECOND, &round_trips([20, far])), []);
        let switches = run.pass(60 * SECOND, &round_trips([60, far]));
        assert_eq!(switches.len(), usize::from(moves), "{far} ms: {switches:?}");
    }
}

#[test]
fn a_short_advantage_changes_nothing() {
    let mut run = Run::new([20, 30]);
    for _ in 0..20 {
        assert_eq!(run.pass(2900 * MS, &round_trips([60, 30])), []);
        assert_eq!(run.pass(100 * MS, &round_trips([30, 30])), []);
    }
    let switch = run.pass(3100 * MS, &round_trips([60, 30]));
    assert_eq!(switch.len(), 1, "one more judgement suffices: {switch:?}");
}

#[test]
fn fluctuating_measurements_do_not_move_flows_back_and_forth() {
    let mut run = Run::new([30, 30]);
    let mut switches = Vec::new();
    for round in 0..60 {
        let measured = if round % 2 == 0 { [60, 30] } else { [30, 60] };
        switches.extend(run.pass(4 * SECOND, &round_trips(measured)));
    }
    // For four minutes, the two servers take turns of four seconds as the faster one.
    assert!((2..=24).contains(&switches.len()), "{switches:?}");
    let times = switches.iter().map(|(at, _, _)| *at);
    let mut gaps = times.clone().zip(times.skip(1));
    assert!(gaps.all(|(one, next)| next >= one + HOLD));

    // Noise of a tenth, and imperceptible differences, cause no switch.
    let mut run = Run::new([2, 3]);
    for measured in [[4, 1], [2, 1], [1, 4], [5, 3]]
        .into_iter()
        .cycle()
        .take(40)
    {
        assert_eq!(run.pass(5 * SECOND, &round_trips(measured)), []);
    }
    let mut run = Run::new([100, 105]);
    for measured in [[110, 100], [120, 100], [100, 110]]
        .into_iter()
        .cycle()
        .take(40)
    {
        assert_eq!(run.pass(5 * SECOND, &round_trips(measured)), []);
    }
}

#[test]
fn bandwidth_counts_if_it_is_known_of_both_servers() {
    let measured = |near: Option<u64>, far: Option<u64>| {
        let [mut one, mut other] = round_trips([20, 40]);
        (one.bandwidth, other.bandwidth) = (near, far);
        [one, other]
    };
    let slow = Some(200_000);
    let mut run = Run::new([20, 40]);
    assert_eq!(run.pass(60 * SECOND, &measured(slow, None)), []);
    assert_eq!(run.pass(60 * SECOND, &measured(slow, slow)), []);
    let moved = run.pass(60 * SECOND, &measured(slow, Some(10_000_000)));
    assert_eq!(moved.len(), 1, "164 ms against 3 ms: {moved:?}");
    assert_eq!(moved[0].1, 1);
}

#[test]
fn a_judgement_is_scheduled_only_while_a_challenger_is_timed() {
    let mut run = Run::new([20, 40]);
    assert_eq!(run.choice.next_timeout(), None);
    run.judge(&round_trips([60, 40]));
    let due = run.choice.next_timeout().expect("a challenger");
    assert_eq!(due - run.now, BETTER_FOR);
    run.now = due;
    assert!(run.judge(&round_trips([60, 40])).is_some());
    assert_eq!(run.choice.next_timeout(), None);
    // The next switch may not follow before the hold time has passed.
    run.judge(&round_trips([40, 90]));
    let next = run.choice.next_timeout().expect("a challenger");
    assert_eq!(next - run.now, HOLD);
}

#[test]
fn nothing_is_due_while_no_server_answers_and_a_pending_switch_begins_anew_after_that() {
    let mut run = Run::new([40, 40]);
    let faster = round_trips([40, 10]);
    assert_eq!(run.pass(SECOND, &faster), []);
    assert!(run.choice.next_timeout().is_some(), "a switch is pending");
    assert_eq!(run.judge(&round_trips([0, 0])), None);
    assert_eq!(run.choice.next_timeout(), None);
    run.now += 60 * SECOND;
    assert_eq!(run.judge(&faster), None, "it must be faster for 3 s again");
    assert!(run.choice.next_timeout().is_some_and(|due| due > run.now));
}

/// Adds SRV records to the last servers: one service, with these priorities, in the order of their weights. The first
/// servers do not belong to it.
fn with_records<const N: usize>(
    mut measured: [Measurements; N],
    priorities: &[u16],
) -> [Measurements; N] {
    let first = N - priorities.len();
    for (order, priority) in priorities.iter().enumerate() {
        measured[first + order].rank = Some(Rank {
            service: ServerId(first),
            priority: *priority,
            order,
        });
    }
    measured
}

/// Creates a run in which no server was chosen yet.
fn begin() -> Run {
    let start = Instant::now();
    Run {
        choice: Choice::default(),
        start,
        now: start,
    }
}

#[test]
fn of_a_service_the_first_by_priority_and_weight_is_chosen_although_another_is_faster() {
    let mut run = begin();
    let measured = with_records(round_trips([90, 80, 10]), &[1, 1, 2]);
    let first = run.judge(&measured).expect("all answer");
    assert_eq!((first.to, first.reason), (0, ChoiceReason::FirstRecord));
}

#[test]
fn the_first_choice_waits_for_a_server_before_it_unless_that_has_failed() {
    let mut run = begin();
    let measured = with_records(round_trips([0, 20]), &[1, 2]);
    let waited = run.pass(60 * SECOND, &measured);
    assert_eq!(waited, [(1600 * MS, 1, ChoiceReason::FirstRecord)]);

    let mut run = begin();
    assert_eq!(run.judge(&measured), None);
    let due = run.choice.next_timeout();
    assert_eq!(due, Some(run.now + HEAD_START));
    let both = with_records(round_trips([300, 20]), &[1, 2]);
    assert_eq!(run.judge(&both).expect("a choice").to, 0);

    let mut run = begin();
    let mut failed = measured;
    failed[0].no_answer_expected = true;
    assert_eq!(run.judge(&failed).expect("at once").to, 1);
}

#[test]
fn a_higher_priority_number_is_used_only_while_no_lower_one_answers() {
    let mut run = begin();
    let all = with_records(round_trips([100, 5]), &[10, 20]);
    run.judge(&all).expect("a choice");
    assert_eq!(run.pass(60 * SECOND, &all), [], "priority first");
    let gone = with_records(round_trips([0, 5]), &[10, 20]);
    let switch = run.judge(&gone).expect("at once");
    assert_eq!((switch.to, switch.reason), (1, ChoiceReason::NoAnswer));
    let since = run.now - run.start;
    let back = run.pass(60 * SECOND, &all);
    assert_eq!(back, [(since + 10_100 * MS, 0, ChoiceReason::Priority)]);
}

#[test]
fn servers_of_one_priority_are_measured_against_each_other() {
    let mut run = begin();
    let all = with_records(round_trips([60, 20, 5]), &[10, 10, 20]);
    assert_eq!(run.judge(&all).expect("a choice").to, 0);
    let faster = run.pass(60 * SECOND, &all);
    assert_eq!(faster, [(3100 * MS, 1, ChoiceReason::Faster)]);
    let even = with_records(round_trips([20, 20, 5]), &[10, 10, 20]);
    let since = run.now - run.start;
    let before = run.pass(60 * SECOND, &even);
    assert_eq!(
        before,
        [(since + 10_100 * MS, 0, ChoiceReason::ListedFirst)]
    );
}

#[test]
fn when_a_server_goes_the_next_by_weight_takes_its_flows_and_not_the_fastest() {
    let mut run = begin();
    let all = with_records(round_trips([20, 40, 10]), &[10, 10, 10]);
    run.judge(&all).expect("a choice");
    let gone = with_records(round_trips([0, 40, 10]), &[10, 10, 10]);
    assert_eq!(run.judge(&gone).expect("a switch").to, 1);
}

#[test]
fn a_server_with_a_lower_priority_number_is_preferred_to_a_faster_one_elsewhere() {
    let mut run = begin();
    // Server 0 does not belong to the service. Of the others, server 2 has the lower priority number.
    let mut measured = with_records(round_trips([0, 30, 0]), &[20, 10]);
    measured[2].no_answer_expected = true;
    assert_eq!(run.judge(&measured).expect("a choice").to, 1);
    let mut back = with_records(round_trips([5, 30, 30]), &[20, 10]);
    let switches = run.pass(60 * SECOND, &back);
    let expected = [
        (10_100 * MS, 2, ChoiceReason::Priority),
        (20_100 * MS, 0, ChoiceReason::Faster),
    ];
    assert_eq!(switches, expected);
    // A backup is ignored while its service has better servers.
    back[0].rtt = Some(30 * MS);
    back[1].rtt = Some(MS);
    assert_eq!(run.pass(60 * SECOND, &back), []);
}

#[test]
fn an_empty_place_is_not_waited_for() {
    let mut run = begin();
    let mut measured = with_records(round_trips([0, 20]), &[2]);
    measured[0].no_answer_expected = true;
    assert_eq!(run.judge(&measured).expect("at once").to, 1);
}

#[test]
fn a_server_without_a_record_is_replaced_for_that_reason() {
    let mut run = begin();
    run.judge(&with_records(round_trips([20, 20]), &[1, 1]))
        .expect("a choice");
    let mut measured = with_records(round_trips([0, 20]), &[1, 1]);
    measured[0].rank = None;
    measured[0].unlisted = true;
    let switch = run.judge(&measured).expect("at once");
    assert_eq!(
        (switch.from, switch.to, switch.reason),
        (Some(0), 1, ChoiceReason::NoRecord)
    );
}
