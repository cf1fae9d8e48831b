//! The names, numbers and first bytes that are sent over a wire or stored in shared memory. Peers of another version
//! read them.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use quictun_wire::ack::Ack;
use quictun_wire::bond::{BondGrant, BondRequest, SERVER_NUMBERS};
use quictun_wire::code::{CloseCode, FlowCode, ListenCode};
use quictun_wire::control::{FlowEnd, Frame, Seen};
use quictun_wire::join::{Grant, Join};
use quictun_wire::listening::{Incoming, IncomingPeer, Listen, ListenAck, ListenAddress};
use quictun_wire::moving::{Move, MoveAck};
use quictun_wire::open::{Open, OpenAck};
use quictun_wire::{alpn, token};

use super::{golden, json, shape};
use crate::programs::QUICTUN;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a text");
        text
    })
}

#[test]
fn golden_wire() {
    let mut text = String::new();
    let mut line = |line: String| writeln!(text, "{line}").expect("a line");
    for name in [alpn::NATIVE, alpn::COMPAT, alpn::PERF] {
        line(format!("alpn {}", String::from_utf8_lossy(name)));
    }
    for code in FlowCode::ALL {
        let ack = code.compat_ack().to_byte();
        line(format!(
            "flow code {:#04x} {} ack {ack:#04x}",
            code.to_u64(),
            code.label()
        ));
    }
    for code in CloseCode::ALL {
        line(format!(
            "close code {:#04x} {}",
            code.to_u64(),
            code.label()
        ));
    }
    for ack in [
        Ack::Ok,
        Ack::CannotParseToken,
        Ack::CannotReachApplication,
        Ack::Failed,
    ] {
        line(format!("ack {:#04x} {ack:?}", ack.to_byte()));
    }
    let block = token::pack("tcp:h:1").expect("a short token");
    let used = hex(&block[..8]);
    line(format!(
        "token block of {} bytes, {used} and zeros",
        block.len()
    ));
    let plain = Open {
        target: "tcp:h:1".to_owned(),
        ..Open::default()
    };
    let proven = Open {
        proof: Some([0xaa; 32]),
        ..plain.clone()
    };
    let numbered = Open {
        number: Some(300),
        ..plain.clone()
    };
    let sourced = Open {
        source: Some(SocketAddr::from(([192, 0, 2, 1], 40_000))),
        ..plain.clone()
    };
    for open in [plain, proven, numbered, sourced] {
        let mut bytes = Vec::new();
        open.encode(&mut bytes).expect("a short target");
        line(format!("OPEN {}", hex(&bytes)));
    }
    let mut bytes = Vec::new();
    OpenAck { bonded: false }.encode(&mut bytes);
    line(format!("OPEN_ACK {}", hex(&bytes)));
    let mut bytes = Vec::new();
    OpenAck { bonded: true }.encode(&mut bytes);
    line(format!("OPEN_ACK {}", hex(&bytes)));
    let mut bytes = Vec::new();
    let moved = Move {
        flow: 300,
        leg: 1,
        next: 70_000,
    };
    moved.encode(&mut bytes);
    line(format!("MOVE {}", hex(&bytes)));
    let mut bytes = Vec::new();
    MoveAck { next: 70_000 }.encode(&mut bytes);
    line(format!("MOVE_ACK {}", hex(&bytes)));
    for number in [None, Some(SERVER_NUMBERS)] {
        let mut bytes = Vec::new();
        let peer = IncomingPeer::Unix;
        Incoming {
            id: 0,
            peer,
            number,
        }
        .encode(&mut bytes);
        line(format!("INCOMING {}", hex(&bytes)));
    }
    for (name, frame) in control_frames() {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        line(format!("{name} {}", hex(&bytes)));
    }
    golden("wire", &text);
}

fn control_frames() -> Vec<(&'static str, Frame)> {
    let hello = |proof, join, bond| {
        let reverse = false;
        let frame = Frame::Hello {
            proof,
            join,
            bond,
            reverse,
        };
        ("HELLO", frame)
    };
    let hello_ack = |grant, bond| {
        let reverse = false;
        let frame = Frame::HelloAck {
            grant,
            bond,
            reverse,
        };
        ("HELLO_ACK", frame)
    };
    let listen = Listen {
        id: 0,
        wait: true,
        holder: [0xff; 16],
        address: "tcp:127.0.0.1:0".to_owned(),
    };
    let listens = |result| ("LISTEN_ACK", Frame::ListenAck(ListenAck { id: 0, result }));
    let bound = ListenAddress::parse("tcp:127.0.0.1:8000").expect("an address");
    let reverse = Frame::Hello {
        proof: None,
        join: None,
        bond: None,
        reverse: true,
    };
    let join = Join {
        name: "laptop".to_owned(),
        signature: [0xbb; 64],
    };
    let again = BondRequest::Resume {
        id: [0xcc; 16],
        ticket: [0xdd; 32],
    };
    let bond = BondGrant {
        id: [0xcc; 16],
        secret: [0xee; 32],
        route: 1,
        ttl_s: 1800,
    };
    let gone = || {
        vec![FlowEnd {
            flow: 4,
            code: 0x0d,
        }]
    };
    vec![
        hello(None, None, None),
        hello(Some([0xaa; 32]), None, None),
        hello(None, Some(join), None),
        hello(None, None, Some(BondRequest::New)),
        hello(None, None, Some(again)),
        hello_ack(None, None),
        hello_ack(
            Some(Grant::new("laptop", ["127.0.0.1:22".to_owned()])),
            None,
        ),
        hello_ack(None, Some(bond)),
        ("SEEN", Frame::Seen(vec![Seen { flow: 4, next: 300 }])),
        ("GONE", Frame::Gone(gone())),
        ("HOLD", Frame::Hold(vec![4, 8])),
        ("GO", Frame::Go(vec![4, 8])),
        ("ENDED", Frame::Ended(gone())),
        ("HELLO", reverse),
        ("LISTEN", Frame::Listen(listen)),
        listens(Ok(bound)),
        listens(Err(ListenCode::Taken)),
        ("UNLISTEN", Frame::Unlisten(vec![0, 1])),
    ]
}

#[test]
fn golden_shared_memory() {
    let (ours, theirs) = quictun_ipc::sockets().expect("a pair");
    let patience = Duration::from_secs(20);
    let offering = std::thread::spawn(move || quictun_ipc::connect(ours, 4096, 0x1234, patience));
    let mut offer = [0; 64];
    let peeked = rustix::net::recv(&theirs, &mut offer[..], rustix::net::RecvFlags::PEEK);
    let (length, _) = peeked.expect("an offer");
    let channel = quictun_ipc::accept(theirs, patience).expect("a channel");
    offering.join().expect("no panic").expect("a channel");
    let memory: OwnedFd = channel
        .memory()
        .as_fd()
        .try_clone_to_owned()
        .expect("a descriptor");
    let mut header = [0; 64];
    std::fs::File::from(memory)
        .read_exact_at(&mut header, 0)
        .expect("a header");
    let mut text = format!("offer {}\n", hex(&offer[..length]));
    for word in header.as_chunks::<8>().0 {
        writeln!(text, "header {}", hex(word)).expect("a line");
    }
    golden("shared-memory", &text);
}

#[test]
fn golden_perf_hello() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let client = Command::new(QUICTUN)
        .args(["perf", "client", "--connect", &address])
        .stderr(Stdio::piped())
        .spawn()
        .expect("quictun");
    let (mut stream, _) = listener.accept().expect("a connection");
    let mut head = [0; 12];
    stream.read_exact(&mut head).expect("a hello");
    let (hello, length) = head.split_at(8);
    let length = u32::from_be_bytes(length.try_into().expect("four bytes"));
    let mut plan = vec![0; length as usize];
    stream.read_exact(&mut plan).expect("a plan");
    let refusal = br#"{"Refused":"not today"}"#;
    stream
        .write_all(&[&[0, 0, 0, 23][..], refusal].concat())
        .expect("an answer");
    let output = client.wait_with_output().expect("an end");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("not today"), "{said}");
    let plan = shape(&json(&String::from_utf8(plan).expect("text")));
    golden(
        "perf-hello",
        &format!("{}\n{plan}", String::from_utf8_lossy(hello)),
    );
}
