use super::*;
use crate::client_worker::ClientWorker;
use crate::failure::Failure;

/// Runs a process with one worker from this maker, and returns its failure.
fn end_of(make: fn() -> Result<WorkerParts<ClientWorker>>) -> Failure {
    let transport = TransportSettings::default();
    let socket = udp_port::bind(([127, 0, 0, 1], 0).into(), false).expect("a socket");
    let launch = Launch {
        control: ControlSettings::default(),
        log: quictun_control::log::LogGuard::default(),
        one_process: false,
        answers_for_others: false,
        data_path: DataPath {
            ports: vec![open_udp(socket, &transport).expect("a socket")],
            path_mtu: udp_port::path_mtu(None),
            memory: MemoryBudget::open(transport.memory_budget),
            settings: transport,
        },
        duties: Duties {
            of_side: SideDuties::Client(Sources::default()),
            handover: None,
            commitment: None,
            http: None,
            facts: ProcessFacts::default(),
            reload: None,
            network: None,
            lines: LineBudget::default(),
            announce: Box::new(|| {}),
        },
    };
    let confined = launch.confine().expect("it starts");
    let ended = confined.run(|| move |_: WorkerInputs| make());
    let ended = ended.expect("it starts").expect_err("the worker fails");
    Failure::of_workers(ended)
}

#[test]
fn a_panic_is_a_crash_and_an_error_of_the_system_is_not() {
    let error = end_of(|| panic!("as a bug would"));
    assert!(matches!(error, Failure::Crashed(_)), "{error:?}");
    let error = end_of(|| Err(io::Error::from(io::ErrorKind::AddrInUse).into()));
    assert!(matches!(error, Failure::Other(_)), "{error:?}");
}

#[test]
fn a_keeper_is_started_only_where_files_can_be_taken_away() {
    let support = |landlock, seccomp| KernelSupport { landlock, seccomp };
    for (confine, support, needs) in [
        (true, support(Some(1), true), true),
        (true, support(None, true), true),
        (true, support(Some(1), false), true),
        (true, support(None, false), false),
        (false, support(Some(1), true), false),
    ] {
        assert_eq!(needs_keeper(confine, support), needs, "{support:?}");
    }
}
