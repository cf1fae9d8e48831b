use super::*;
use crate::client_duty::ClientDuty;

/// How a process with one worker ends that is made so.
fn end_of(make: impl FnOnce() -> Result<Parts<ClientDuty>> + Send + 'static) -> anyhow::Error {
    let (_workers, requests) = control::requests();
    let launch = Launch {
        side: Side::Client,
        transport: TransportSettings::default(),
        control: ControlSettings::default(),
        server: None,
        server_known: Vec::new(),
        plugins: Vec::new(),
        requests,
        http: None,
        lines: LineBudget::default(),
        log_files: LogFiles::default(),
        listen: Vec::new(),
        reload: None,
        announce: Box::new(|| {}),
    };
    let mailboxes = post(1, 1 << 30).expect("a mailbox").mailboxes;
    let ended = launch.run(mailboxes, vec![make]);
    ended.expect_err("there is no worker")
}

#[test]
fn a_panic_is_told_from_what_the_world_refuses() {
    let error = end_of(|| panic!("as a bug would"));
    assert_eq!(Crash::of(error.as_ref()), Some(Crash::Panic), "{error:#}");
    let error = end_of(|| Err(io::Error::from(io::ErrorKind::AddrInUse).into()));
    assert_eq!(Crash::of(error.as_ref()), None, "{error:#}");
}
