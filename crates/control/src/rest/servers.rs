//! The servers of a client in `/v1/status`: the server that new flows go to, and the reason.

use quictun_engine::report::{ChoiceReason, QuicState, ServerReport, TransfersOverTls};

use super::clock::seconds;
use super::object::object;
use super::sample::Sample;
use super::server_names::{ServerName, ServerRecord};
use super::state::RestState;

object! {
    pub(super) struct Server,
    fn server(name: &ServerName, known: &ServerSummary, beside: &[ServerRecord]) {
        name: String = name.name.clone(),
        tls_address: Option<String> = name.tls_address.clone(),
        service: Option<String> = service(name),
        priority: Option<u16> = name.record.as_ref().map(|record| record.priority),
        weight: Option<u16> = name.record.as_ref().map(|record| record.weight),
        why: String = known.why(name, beside),
        used_by_workers: usize = known.used_by,
        ready_connections: usize = known.ready,
        flows: usize = known.flows,
        flows_opened: u64 = known.flows_opened,
        rtt_seconds: Option<f64> = known.rtt.map(seconds),
        path_bytes_per_second: Option<u64> = known.bandwidth,
        quic: &'static str = known.quic.unwrap_or(QuicState::Unknown).name(),
        quic_tried_in_seconds: Option<f64> = known.probe_in.map(seconds),
        transfers_over_tls: Option<String> = known.transfers.map(measurement),
    }
}

/// The state of one server, summed over all workers.
#[derive(Debug, Default)]
struct ServerSummary {
    /// True if the client has no other server.
    only: bool,
    used_by: usize,
    chosen: Option<ChoiceReason>,
    ready: usize,
    unready: usize,
    flows: usize,
    flows_opened: u64,
    rtt: Option<std::time::Duration>,
    bandwidth: Option<u64>,
    failure: Option<String>,
    quic: Option<QuicState>,
    probe_in: Option<std::time::Duration>,
    transfers: Option<TransfersOverTls>,
    draining: bool,
}

pub(super) fn servers(state: &RestState, sample: &Sample) -> Vec<Server> {
    let names = state.facts.servers.all();
    let of = |(index, name): &(usize, ServerName)| {
        let snapshots = sample.collected.snapshots.iter();
        let mut known = ServerSummary {
            only: names.len() == 1 && name.record.is_none(),
            ..ServerSummary::default()
        };
        for report in snapshots.filter_map(|snapshot| snapshot.servers.get(*index)) {
            known.add(report);
        }
        known
    };
    let all: Vec<ServerSummary> = names.iter().map(of).collect();
    let answer = |(name, known): (&(usize, ServerName), &ServerSummary)| {
        let record = name.1.record.clone();
        record.filter(|_| known.ready > 0)
    };
    let answering: Vec<ServerRecord> = names.iter().zip(&all).filter_map(answer).collect();
    let each = names.iter().zip(&all);
    let shown = each.filter(|((_, name), known)| name.is_current() || known.is_needed());
    shown
        .map(|((_, name), known)| server(name, known, &answering))
        .collect()
}

fn service(name: &ServerName) -> Option<String> {
    let named = name.record.as_ref().map(|record| record.service.clone());
    named.or_else(|| name.withdrawn_from.clone())
}

/// Describes the measurement by which TLS carries transfers.
fn measurement(found: TransfersOverTls) -> String {
    let TransfersOverTls { reason, quic, tls } = found;
    let [quic, tls] = [quic, tls].map(|bytes_per_s| bytes_per_s / 125_000);
    format!("{} ({tls} against {quic} Mbit/s)", reason.text())
}

impl ServerSummary {
    fn add(&mut self, report: &ServerReport) {
        self.used_by += usize::from(report.chosen.is_some());
        self.chosen = self.chosen.or(report.chosen);
        self.ready += report.ready;
        self.unready += report.unready;
        self.flows += report.flows;
        self.flows_opened += report.flows_opened;
        self.rtt = self.rtt.into_iter().chain(report.rtt).min();
        self.bandwidth = self.bandwidth.max(report.bandwidth);
        // Workers may have found out at different times.
        if self.quic != Some(QuicState::Blocked) {
            self.quic = Some(report.quic);
        }
        self.probe_in = self.probe_in.into_iter().chain(report.probe_in).min();
        self.transfers = self.transfers.or(report.transfers);
        self.draining |= report.draining;
        if let Some(failure) = &report.failure {
            self.failure = Some(failure.to_string());
        }
    }

    /// Returns whether the server has flows, or gets new ones because no other server answers.
    fn is_needed(&self) -> bool {
        self.flows > 0 || self.used_by > 0
    }

    /// Returns the state of a server in words. `answering` has the records of servers that answer.
    fn why(&self, name: &ServerName, answering: &[ServerRecord]) -> String {
        let state = self.state(name, answering);
        // The connections of a server that was withdrawn answer, but take no new flows: they are not ready.
        let answers = self.unready == 0 && self.failure.is_none();
        let gone = match (&name.withdrawn_from, name.removed) {
            (Some(_), _) => "withdrawn from the records",
            (None, true) => "removed from the configuration",
            (None, false) => return state,
        };
        match self.used_by {
            0 if answers => format!("{gone}: keeps its flows"),
            _ => format!("{gone}: {state}"),
        }
    }

    fn state(&self, name: &ServerName, answering: &[ServerRecord]) -> String {
        let record = name.record.as_ref();
        let stands_back = record.is_some_and(|this| {
            let mut others = answering.iter();
            others.any(|it| it.service == this.service && it.priority < this.priority)
        });
        match (self.ready, &self.failure, self.chosen) {
            (0, Some(failure), _) => format!("cannot be used: {failure}"),
            (0, None, _) if self.unready > 0 => "does not answer".to_owned(),
            (0, None, _) => "is being connected to".to_owned(),
            (_, _, Some(_)) if self.draining => {
                "in use: it shuts down, but no other answers".to_owned()
            }
            (_, _, None) if self.draining => "shuts down: keeps its flows".to_owned(),
            (_, _, Some(_)) if self.quic == Some(QuicState::Blocked) => {
                "in use by TLS over TCP: QUIC does not pass".to_owned()
            }
            (_, _, Some(_)) if self.only => "in use".to_owned(),
            (_, _, Some(why)) => format!("in use: {}", why.text()),
            (_, _, None) if stands_back => {
                "stands by: one with a lower priority number answers".to_owned()
            }
            (_, _, None) => "stands by: another serves as well".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use quictun_engine::LossReason;
    use quictun_engine::report::ServerId;

    use super::*;

    fn report(
        chosen: Option<ChoiceReason>,
        ready: usize,
        failure: Option<LossReason>,
    ) -> ServerReport {
        ServerReport {
            server: ServerId(0),
            chosen,
            ready,
            unready: 0,
            flows: 1,
            flows_opened: 10,
            rtt: (ready > 0).then_some(Duration::from_millis(20)),
            bandwidth: None,
            failure,
            quic: QuicState::Works,
            probe_in: None,
            transfers: None,
            draining: false,
        }
    }

    fn why(reports: &[ServerReport]) -> String {
        let mut known = ServerSummary::default();
        for report in reports {
            known.add(report);
        }
        known.why(&ServerName::default(), &[])
    }

    #[test]
    fn a_server_with_a_lower_ranked_record_says_so() {
        let record = |service: &str, priority| ServerRecord {
            service: service.to_owned(),
            priority,
            weight: 0,
        };
        let name = ServerName {
            name: "b.example:7500".to_owned(),
            record: Some(record("srv:example", 20)),
            ..ServerName::default()
        };
        let mut known = ServerSummary::default();
        known.add(&report(None, 1, None));
        let behind = "stands by: one with a lower priority number answers";
        let beside = "stands by: another serves as well";
        for (other, expected) in [
            (record("srv:example", 19), behind),
            (record("srv:example", 20), beside),
            (record("srv:another", 19), beside),
        ] {
            assert_eq!(known.why(&name, &[other]), expected);
        }
        known.add(&report(Some(ChoiceReason::Priority), 1, None));
        let used = known.why(&name, &[record("srv:example", 19)]);
        assert_eq!(used, "in use: its priority comes first");
    }

    #[test]
    fn a_server_that_no_record_names_any_more_says_so() {
        let left = ServerName {
            withdrawn_from: Some("srv:example".to_owned()),
            ..ServerName::default()
        };
        let why = |report: ServerReport| {
            let mut known = ServerSummary::default();
            known.add(&report);
            known.why(&left, &[])
        };
        assert_eq!(
            why(report(None, 0, None)),
            "withdrawn from the records: keeps its flows"
        );
        assert_eq!(
            why(report(Some(ChoiceReason::FirstRecord), 1, None)),
            "withdrawn from the records: in use: first by priority and weight"
        );
        let lost = why(report(None, 0, Some(LossReason::TimedOut)));
        assert_eq!(
            lost,
            "withdrawn from the records: cannot be used: timed out"
        );
    }

    #[test]
    fn a_server_states_its_condition_and_why_it_is_used() {
        let used = report(Some(ChoiceReason::Faster), 1, None);
        let both = [used, report(None, 1, None)];
        assert_eq!(why(&both), "in use: it is faster");
        let beside = why(&[report(None, 2, None)]);
        assert_eq!(beside, "stands by: another serves as well");
        let lost = why(&[report(None, 0, Some(LossReason::TimedOut))]);
        assert!(lost.starts_with("cannot be used: "), "{lost}");
        assert_eq!(why(&[report(None, 0, None)]), "is being connected to");
        let drains = |chosen| ServerReport {
            draining: true,
            ..report(chosen, 1, None)
        };
        assert_eq!(why(&[drains(None)]), "shuts down: keeps its flows");
        let last = why(&[drains(Some(ChoiceReason::FirstAnswer))]);
        assert_eq!(last, "in use: it shuts down, but no other answers");
        let silent = ServerReport {
            unready: 1,
            ..report(Some(ChoiceReason::FirstAnswer), 0, None)
        };
        assert_eq!(why(&[silent]), "does not answer");
    }

    #[test]
    fn server_reports_of_the_workers_are_added_up() {
        let mut known = ServerSummary::default();
        known.add(&report(Some(ChoiceReason::FirstAnswer), 1, None));
        known.add(&report(None, 2, None));
        let sums = (known.used_by, known.ready, known.flows, known.flows_opened);
        assert_eq!(sums, (1, 3, 2, 20));
        assert_eq!(known.rtt, Some(Duration::from_millis(20)));
    }
}
