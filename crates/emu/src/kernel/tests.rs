use super::*;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use quictun_link::{Codel, overhead};
use quictun_skip::skipped;

use crate::{Offload, WorldOptions};

fn config() -> LinkConfig {
    LinkConfig {
        rate: Some(12_500_000),
        overhead: overhead::ETHERNET,
        queue: Queue::Packets(100),
        mtu: 1500,
        ..LinkConfig::default()
    }
}

#[test]
fn a_rate_needs_only_a_token_bucket() {
    let found = disciplines(&config(), 7).expect("supported");
    let bucket = TokenBucket {
        rate: 12_500_000,
        overhead: 24,
        burst: 12_500,
        limit: 153_800,
    };
    let expected = Disciplines {
        netem: None,
        bucket: Some(bucket),
    };
    assert_eq!(found, expected);
}

#[test]
fn delay_and_loss_need_netem() {
    let delay = Duration::from_millis(20);
    let config = LinkConfig {
        delay,
        loss: 0.01,
        ..LinkConfig::default()
    };
    let found = disciplines(&config, 7).expect("supported");
    assert_eq!(found.bucket, None);
    let netem = found.netem.expect("netem is used");
    assert_eq!((netem.delay, netem.loss, netem.seed), (delay, 0.01, 7));
}

#[test]
fn unsupported_settings_are_named_in_the_error() {
    let codel = LinkConfig {
        codel: Some(Codel::default()),
        ..config()
    };
    let bare = LinkConfig {
        overhead: overhead::NONE,
        ..config()
    };
    for (config, word) in [(codel, "CoDel"), (bare, "14 bytes")] {
        let error = disciplines(&config, 1).expect_err("not supported");
        assert!(error.to_string().contains(word), "{error}");
    }
}

#[test]
fn a_kernel_link_counts_its_packets() {
    let test = "kernel::tests::a_kernel_link_counts_its_packets";
    if !crate::world::tests::permitted(test) {
        return;
    }
    let world = World::build(&WorldOptions {
        offload: Offload::None,
        ..WorldOptions::default()
    })
    .expect("build world");
    let link = match KernelLink::start(&world, [&config(), &config()], 1) {
        Err(KernelError::Missing(kind, ..)) => {
            return skipped(test, format_args!("this kernel has no {kind}"));
        }
        link => link.expect("start link"),
    };
    let sent = vec![7; 100_000];
    for address in world.far_addresses() {
        let listener = world.far().within(|| TcpListener::bind((address, 0)));
        let listener = listener.expect("bind");
        let port = listener.local_addr().expect("local address").port();
        let near = world.near().within(|| TcpStream::connect((address, port)));
        let mut near = near.expect("connect");
        let bytes = sent.clone();
        let sending = std::thread::spawn(move || near.write_all(&bytes));
        let mut came = Vec::new();
        let (mut far, _) = listener.accept().expect("accept");
        far.read_to_end(&mut came).expect("receive");
        sending.join().expect("no panic").expect("send");
        assert_eq!(came, sent);
    }
    let audit = link.audit(&world).expect("read counters");
    let [up] = &audit.up[..] else {
        panic!("{audit}");
    };
    assert!(up.bytes > 200_000 && up.packets > 136, "{audit}");
    assert_eq!(audit.down.len(), 1, "{audit}");
}
