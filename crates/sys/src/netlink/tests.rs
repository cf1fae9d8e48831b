use super::*;
use proptest::prelude::*;

fn answer(code: i32, flags: u16, text: Option<&str>) -> Vec<u8> {
    let mut request = Request::new(ERROR, 0, &code.to_ne_bytes()).raw(&[0; HEADER]);
    if let Some(text) = text {
        request = request.with_text(EXPLANATION, text);
    }
    request.bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
    request.finish(7)
}

fn judged(bytes: &[u8]) -> io::Result<()> {
    let message = messages(bytes).next().expect("one message")?;
    assert_eq!(message.sequence, 7);
    verdict(&message)
}

#[test]
fn an_acknowledgement_is_success_and_a_refusal_keeps_its_text() {
    judged(&answer(0, 0, None)).expect("a yes");
    let bare = judged(&answer(-libc::EPERM, 0, None)).expect_err("a no");
    assert_eq!(bare.raw_os_error(), Some(libc::EPERM));
    let told = judged(&answer(
        -libc::EINVAL,
        EXPLAINED,
        Some("Invalid link address"),
    ))
    .expect_err("a no");
    assert_eq!(told.kind(), io::ErrorKind::InvalidInput);
    assert!(
        told.to_string().starts_with("Invalid link address ("),
        "{told}"
    );
}

#[test]
fn a_message_longer_than_its_buffer_is_malformed() {
    let bytes = answer(0, 0, None);
    for length in 1..bytes.len() {
        let cut: Vec<_> = messages(&bytes[..length]).collect();
        assert!(matches!(cut[..], [Err(_)]), "{length}: {cut:?}");
    }
}

#[test]
fn the_kernel_answers_with_the_loopback_device() {
    let mut netlink = Netlink::open(None).expect("a netlink socket");
    let mut names = Vec::new();
    let all = Request::new(libc::RTM_GETLINK, 0, &[0; 16]);
    netlink
        .dump(all, |kind, content| {
            assert_eq!(kind, libc::RTM_NEWLINK);
            let name = attributes(content.get(16..).unwrap_or_default())
                .find(|(kind, _)| *kind == libc::IFLA_IFNAME);
            names.extend(name.map(|(_, name)| name.to_vec()));
        })
        .expect("a list");
    assert!(names.contains(&b"lo\0".to_vec()), "{names:?}");
    // The kernel refuses an address on a device that does not exist, and then answers the next request again.
    let absurd = Request::new(libc::RTM_NEWADDR, 0, &[2, 32, 0, 0, 255, 255, 255, 127]);
    netlink
        .execute(absurd)
        .expect_err("the device does not exist");
    let all = Request::new(libc::RTM_GETLINK, 0, &[0; 16]);
    netlink.dump(all, |_, _| ()).expect("a list");
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        for message in messages(&bytes).flatten() {
            prop_assert!(message.content.len() < bytes.len());
            drop(verdict(&message));
        }
        let values: usize = attributes(&bytes).map(|(_, value)| value.len() + 4).sum();
        prop_assert!(values <= bytes.len());
    }

    #[test]
    fn attributes_of_a_request_are_read_back(
        fixed in proptest::collection::vec(any::<u8>(), 0..5),
        outer in 0_u16..0x3fff,
        inner in proptest::collection::vec((0_u16..0x3fff, proptest::collection::vec(any::<u8>(), 0..9)), 0..5),
    ) {
        let fixed = [fixed, vec![0; 3]].concat();
        let fixed = &fixed[..fixed.len() / 4 * 4];
        let request = Request::new(99, 0, fixed).nested(outer, |mut nested| {
            for (kind, value) in &inner {
                nested = nested.with(*kind, value);
            }
            nested
        });
        let bytes = request.finish(3);
        let read = messages(&bytes).next().expect("one").expect("well-formed");
        prop_assert_eq!((read.kind, read.sequence), (99, 3));
        let content = read.content.strip_prefix(fixed).expect("the fixed header");
        let (kind, nested) = attributes(content).next().expect("one attribute");
        prop_assert_eq!(kind, outer);
        let found: Vec<_> = attributes(nested).map(|(kind, value)| (kind, value.to_vec())).collect();
        prop_assert_eq!(found, inner);
    }
}
