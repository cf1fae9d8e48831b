use domain::base::iana::Rcode;
use domain::base::{MessageBuilder, Ttl};
use domain::rdata::{A, Cname};

use super::*;

const ID: u16 = 0x7174;

fn service(text: &str) -> ServiceName {
    ServiceName::parse(text).expect("a service")
}

fn name(text: &str) -> Name<Vec<u8>> {
    Name::from_str(text).expect("a name")
}

/// One record of an answer: owner, seconds, priority, weight, port, target.
type RecordLine<'a> = (&'a str, u32, u16, u16, u16, &'a str);

/// Builds an answer to the question of `example.com` with these records.
fn answer(rcode: Rcode, lines: &[RecordLine<'_>]) -> Vec<u8> {
    let mut message = MessageBuilder::new_vec();
    message.header_mut().set_id(ID);
    message.header_mut().set_qr(true);
    message.header_mut().set_rcode(rcode);
    let mut question = message.question();
    let asked = name("_quictun._udp.example.com");
    question
        .push((&asked, Rtype::SRV, Class::IN))
        .expect("room");
    let mut answer = question.answer();
    for &(owner, ttl, priority, weight, port, target) in lines {
        let srv = Srv::new(priority, weight, port, name(target));
        let record = (name(owner), Class::IN, Ttl::from_secs(ttl), srv);
        answer.push(record).expect("room");
    }
    answer.finish()
}

fn read(message: &[u8]) -> Result<SrvAnswer, NotAnAnswer> {
    service("example.com").answer(ID, message)
}

const OWNER: &str = "_quictun._udp.example.com";

#[test]
fn a_domain_and_a_full_name_give_the_name_to_query_and_the_name_in_certificates() {
    for (text, owner, domain) in [
        ("example.com", OWNER, "example.com"),
        ("Example.COM.", OWNER, "example.com"),
        (OWNER, OWNER, "example.com"),
        (
            "_proxy._udp.example.com",
            "_proxy._udp.example.com",
            "example.com",
        ),
        ("localhost", "_quictun._udp.localhost", "localhost"),
    ] {
        let service = service(text);
        assert_eq!(
            (service.owner(), service.domain()),
            (owner, domain),
            "{text}"
        );
    }
    assert_eq!(service("Example.COM.").to_string(), "srv:Example.COM");
    let long = format!("{}.{}", "a.".repeat(96) + "a", "b".repeat(45));
    assert_eq!(long.len(), MAX_NAME - SERVICE.len());
    assert!(ServiceName::parse(&long).is_ok());
    let longer = format!("{long}b");
    for (text, error) in [
        ("", ServiceNameError::NoName),
        ("a..b", ServiceNameError::NoName),
        ("-a.b", ServiceNameError::NoName),
        ("a b", ServiceNameError::NoName),
        ("192.0.2.1", ServiceNameError::NoName),
        (&"a".repeat(64), ServiceNameError::NoName),
        (&longer, ServiceNameError::NoName),
        ("_quictun._udp._x.example.com", ServiceNameError::NoName),
        ("_quictun._udp.", ServiceNameError::NotUdp),
        ("_quictun._tcp.example.com", ServiceNameError::NotUdp),
        ("_quictun", ServiceNameError::NotUdp),
        ("example.com:7500", ServiceNameError::Port),
        ("[::1]", ServiceNameError::Port),
    ] {
        assert_eq!(ServiceName::parse(text), Err(error), "{text:?}");
    }
}

#[test]
fn records_over_tcp_name_the_tcp_ports_of_the_same_hosts() {
    let over_tcp = service("Example.COM").over_tcp();
    assert_eq!(over_tcp.owner(), "_quictun._tcp.example.com");
    assert_eq!(
        service("_proxy._udp.a.b").over_tcp().owner(),
        "_proxy._tcp.a.b"
    );
    let record = |priority, port, target: &str| SrvRecord {
        priority,
        weight: 0,
        port,
        target: target.to_owned(),
        tls_port: None,
    };
    let mut records = vec![
        record(1, 7500, "a"),
        record(1, 7501, "b"),
        record(1, 7502, "c"),
    ];
    let tcp = [
        record(20, 8443, "a"),
        record(10, 443, "a"),
        record(10, 7501, "b"),
        record(1, 1, "d"),
    ];
    add_tls_ports(&mut records, &tcp);
    let ports: Vec<_> = records.iter().map(|record| record.tls_port).collect();
    assert_eq!(ports, [Some(443), None, None]);
    add_tls_ports(&mut records, &[]);
    assert!(records.iter().all(|record| record.tls_port.is_none()));
}

#[test]
fn the_question_is_the_one_that_any_resolver_understands() {
    let question = service("a.b").question(ID);
    let expected = b"\x71\x74\x01\x00\0\x01\0\0\0\0\0\x01\x08_quictun\x04_udp\x01a\x01b\0\0\x21\0\x01\0\0\x29\x04\xd0\0\0\0\0\0\0";
    assert_eq!(question, expected);
    let plain = service("a.b").plain_question(ID);
    let expected =
        b"\x71\x74\x01\x00\0\x01\0\0\0\0\0\0\x08_quictun\x04_udp\x01a\x01b\0\0\x21\0\x01";
    assert_eq!(plain, expected);
}

#[test]
fn a_name_server_that_cannot_parse_the_question_need_not_repeat_it() {
    let header = |number: u16, rcode: Rcode| {
        let mut message = MessageBuilder::new_vec();
        message.header_mut().set_id(number);
        message.header_mut().set_qr(true);
        message.header_mut().set_rcode(rcode);
        message.finish()
    };
    assert_eq!(read(&header(ID, Rcode::FORMERR)), Ok(SrvAnswer::Failed(1)));
    for other in [header(ID + 1, Rcode::FORMERR), header(ID, Rcode::SERVFAIL)] {
        assert_eq!(read(&other), Err(NotAnAnswer));
    }
}

#[test]
fn records_are_read_with_the_least_of_their_times() {
    let message = answer(
        Rcode::NOERROR,
        &[
            (OWNER, 300, 10, 60, 7500, "One.Example.Net"),
            (OWNER, 60, 20, 0, 7501, "two.example.net"),
            // Port 0 cannot be dialled.
            (OWNER, 900, 10, 60, 0, "portless.example.net"),
            (OWNER, 900, 10, 60, 7500, "a\\032b.example.net"),
            // A record of another name.
            (
                "_quictun._udp.example.org",
                900,
                10,
                60,
                7500,
                "three.example.net",
            ),
        ],
    );
    let record = |priority, weight, port, target: &str| SrvRecord {
        tls_port: None,
        priority,
        weight,
        port,
        target: target.to_owned(),
    };
    let records = vec![
        record(10, 60, 7500, "one.example.net"),
        record(20, 0, 7501, "two.example.net"),
    ];
    assert_eq!(
        read(&message),
        Ok(SrvAnswer::Records { records, ttl_s: 60 })
    );
}

#[test]
fn an_alias_leads_to_the_records_of_another_name() {
    let mut message = MessageBuilder::new_vec();
    message.header_mut().set_id(ID);
    message.header_mut().set_qr(true);
    let mut question = message.question();
    question
        .push((&name("_QUICTUN._udp.example.com"), Rtype::SRV, Class::IN))
        .expect("room");
    let mut answer = question.answer();
    let alias = Cname::new(name("tunnels.example.net"));
    answer
        .push((name(OWNER), Class::IN, Ttl::from_secs(30), alias))
        .expect("room");
    let srv = Srv::new(1, 2, 3, name("one.example.net"));
    let owner = name("tunnels.example.net");
    answer
        .push((owner, Class::IN, Ttl::from_secs(90), srv))
        .expect("room");
    // A record of another type.
    let address = A::from_octets(192, 0, 2, 1);
    answer
        .push((name(OWNER), Class::IN, Ttl::from_secs(90), address))
        .expect("room");
    let Ok(SrvAnswer::Records { records, ttl_s }) = read(&answer.finish()) else {
        panic!("no records");
    };
    assert_eq!((records.len(), records[0].port, ttl_s), (1, 3, 30));
}

#[test]
fn an_absent_name_record_and_service_are_distinguished() {
    let none = (OWNER, 60, 0, 0, 0, ".");
    let one = (OWNER, 60, 1, 0, 7500, "one.example.net");
    let useless = (OWNER, 60, 1, 0, 0, "one.example.net");
    for (rcode, lines, expected) in [
        (Rcode::NXDOMAIN, vec![], SrvAnswer::NoName),
        (Rcode::NOERROR, vec![], SrvAnswer::NoRecord),
        (Rcode::NOERROR, vec![useless], SrvAnswer::NoRecord),
        (Rcode::NOERROR, vec![none], SrvAnswer::NotAvailable),
        (Rcode::SERVFAIL, vec![one], SrvAnswer::Failed(2)),
        (Rcode::REFUSED, vec![], SrvAnswer::Failed(5)),
    ] {
        assert_eq!(
            read(&answer(rcode, &lines)),
            Ok(expected),
            "{rcode} {lines:?}"
        );
    }
    let both = read(&answer(Rcode::NOERROR, &[none, one]));
    assert!(matches!(both, Ok(SrvAnswer::Records { records, .. }) if records.len() == 1));
    let mut cut = answer(Rcode::NOERROR, &[]);
    cut[2] |= 2;
    assert_eq!(read(&cut), Ok(SrvAnswer::Truncated));
}

#[test]
fn only_an_answer_to_the_same_question_counts() {
    let good = answer(
        Rcode::NOERROR,
        &[(OWNER, 60, 1, 0, 7500, "one.example.net")],
    );
    assert!(read(&good).is_ok());
    let changed = |at: usize, bit: u8| {
        let mut message = good.clone();
        message[at] ^= bit;
        read(&message)
    };
    // Another number, a question, two questions, another name, another type, another class.
    for (at, bit) in [(1, 1), (2, 0x80), (5, 3), (13, 1), (40, 1), (42, 2)] {
        assert_eq!(changed(at, bit), Err(NotAnAnswer), "{at}");
    }
    for cut in 0..good.len() {
        assert_eq!(read(&good[..cut]), Err(NotAnAnswer), "{cut} bytes");
    }
}

#[test]
fn no_more_records_are_looked_at_than_the_limit() {
    for (given, expected) in [(RECORDS_MAX, RECORDS_MAX), (RECORDS_MAX + 1, RECORDS_MAX)] {
        let lines = vec![(OWNER, 60, 1, 0, 7500, "one.example.net"); given];
        let Ok(SrvAnswer::Records { records, .. }) = read(&answer(Rcode::NOERROR, &lines)) else {
            panic!("no records");
        };
        assert_eq!(records.len(), expected);
    }
}

#[test]
fn names_that_lead_in_a_circle_end() {
    let mut message = answer(Rcode::NOERROR, &[]);
    message[7] = 1;
    let at = u8::try_from(message.len()).expect("a short message");
    // The record's name is a pointer to itself.
    message.extend_from_slice(&[
        0xc0, at, 0, 33, 0, 1, 0, 0, 0, 60, 0, 7, 0, 0, 0, 0, 0, 1, 0,
    ]);
    assert_eq!(read(&message), Err(NotAnAnswer));
}
