use std::net::{IpAddr, Ipv4Addr};

use proptest::prelude::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SendFlags, getsockname, sendto};

use super::*;
use crate::netlink::Request;
use crate::network::tests::{ends, namespaces};
use crate::{NetNamespace, Network};

fn is_readable(watch: &RouteWatch) -> bool {
    let mut fds = [PollFd::new(watch, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).expect("poll") > 0
}

/// Runs `act`, and returns whether it was announced.
fn announces(
    watch: &mut RouteWatch,
    act: impl FnOnce(&mut Network) -> io::Result<()>,
) -> io::Result<bool> {
    act(&mut Network::open()?)?;
    // The kernel announces before it answers.
    let heard = is_readable(watch);
    let changed = watch.drain()?;
    assert_eq!(heard, changed);
    Ok(changed)
}

fn within(test: &str, act: impl FnOnce(&NetNamespace) -> io::Result<()> + Send) {
    if let Some((here, there)) = namespaces(&format!("route_watch::tests::{test}")) {
        here.within(|| act(&there)).expect("a network of its own");
    }
}

#[test]
fn a_change_of_devices_addresses_or_routes_is_heard_once() {
    let name = "a_change_of_devices_addresses_or_routes_is_heard_once";
    within(name, |there| {
        let watch = &mut RouteWatch::open()?;
        assert!(!announces(watch, |_| Ok(()))?, "nothing has happened");
        assert!(!announces(watch, |network| network.addresses().map(drop))?);
        let (near, far) = ends();
        let cable = |network: &mut Network| network.add_cable(near, far, there);
        assert!(announces(watch, cable)?, "a device");
        for (address, prefix) in [("100.64.9.1", 24), ("fd00:9::1", 64)] {
            let address = address.parse().expect("an address");
            Network::open()?.add_address("a0", address, prefix)?;
            // An IPv6 address is announced only after the kernel has checked for duplicates.
            let mut fds = [PollFd::new(&*watch, PollFlags::IN)];
            poll(&mut fds, None)?;
            assert!(watch.drain()?, "{address}");
        }
        assert!(announces(watch, |network| network.set_up("a0"))?, "on");
        for gateway in ["100.64.9.2", "fd00:9::2"] {
            let gateway = gateway.parse().expect("an address");
            let add = |network: &mut Network| network.add_default_route(gateway);
            assert!(announces(watch, add)?, "a route by {gateway}");
        }
        assert!(announces(watch, |network| network.remove("a0"))?, "gone");
        Ok(())
    });
}

#[test]
fn an_overflow_of_announcements_is_a_change() {
    within("an_overflow_of_announcements_is_a_change", |_| {
        let mut watch = RouteWatch::open()?;
        let mut network = Network::open()?;
        for number in 0..MOST {
            let [high, low] = u16::try_from(number).unwrap_or_default().to_be_bytes();
            let address = IpAddr::V4(Ipv4Addr::new(100, 64, high, low));
            network.add_address("lo", address, 32)?;
        }
        assert!(watch.drain()?);
        assert!(!watch.drain()?, "the loss was reported once");
        network.add_address("lo", Ipv4Addr::new(100, 65, 0, 1).into(), 32)?;
        assert!(watch.drain()?, "the watch works again");
        Ok(())
    });
}

#[test]
fn another_process_cannot_announce_a_change() {
    within("another_process_cannot_announce_a_change", |_| {
        let mut watch = RouteWatch::open()?;
        let own = SocketAddrNetlink::try_from(getsockname(&watch)?)?;
        let forged = Request::new(libc::RTM_NEWADDR, 0, &[0; 8]).finish(1);
        let stranger = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            None,
        )?;
        let to = SocketAddrNetlink::new(own.pid(), 0);
        sendto(&stranger, &forged, SendFlags::empty(), &to).expect_err("refused");
        assert!(!watch.drain()?);
        // A change that another socket requests from the kernel is announced.
        Network::open()?.add_address("lo", Ipv4Addr::new(100, 64, 0, 1).into(), 32)?;
        assert!(watch.drain()?);
        Ok(())
    });
}

proptest! {
    #[test]
    fn a_change_is_found_among_any_messages(
        kinds in proptest::collection::vec((any::<u16>(), 0_usize..9), 0..5),
        known in proptest::option::of((0..CHANGES.len(), any::<prop::sample::Index>())),
    ) {
        let mut kinds: Vec<_> = kinds.into_iter().filter(|(kind, _)| !CHANGES.contains(kind)).collect();
        if let Some((change, at)) = known {
            kinds.insert(at.index(kinds.len() + 1), (CHANGES[change], 4));
        }
        let encode = |(kind, length): (u16, usize)| {
            let mut bytes = Request::new(kind, 0, &[7; 8][..length]).finish(1);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        };
        let announced: Vec<u8> = kinds.into_iter().flat_map(encode).collect();
        prop_assert_eq!(tells_of_change(&announced), known.is_some());
        // A message whose end was cut may have announced a change.
        let cut = announced.len().saturating_sub(13);
        prop_assert!(announced.is_empty() || tells_of_change(&announced[..cut]));
    }

    #[test]
    fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(!tells_of_change(&[]));
        let _either = tells_of_change(&bytes);
    }
}
