//! A program connects to an address that no host has. The stack answers in place of the target and echoes what it
//! receives.
//!
//! The program uses smoltcp as its TCP, and frames pass between the two in memory. With a TUN device, frames are read
//! from the device and written to it instead, and `now` is the current time.
//!
//! ```sh
//! cargo run -p quictun-netstack --example echo
//! ```

#![expect(clippy::print_stdout, reason = "the example prints what happens")]

use std::collections::VecDeque;
use std::error::Error;
use std::time::{Duration, Instant};

use quictun_netstack::{Config, Event, FRAME_MAX, FlowId, HEADER, Offload, Read, Stack};
use smoltcp::iface::{Config as InterfaceConfig, Interface, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{Socket, SocketBuffer};
use smoltcp::time::Instant as Micros;
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr, Ipv4Address};

/// Longest packet of the device, in bytes.
const MTU: usize = 1500;

fn main() -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    let config = Config {
        mtu: MTU,
        // This device splits no packets and fills in no checksums.
        offload: false,
        ..Config::default()
    };
    let mut stack = Stack::new(config, 1, start)?;
    let mut device = Memory::default();
    let mut interface = program(&mut device)?;
    let buffer = || SocketBuffer::new(vec![0; 4096]);
    let mut sockets = SocketSet::new(Vec::new());
    let handle = sockets.add(Socket::new(buffer(), buffer()));
    let target = (Ipv4Address::new(203, 0, 113, 9), 80);
    sockets
        .get_mut::<Socket<'_>>(handle)
        .connect(interface.context(), target, 40_000)?;
    let frame: Result<Box<[u8; FRAME_MAX]>, _> = vec![0; FRAME_MAX].try_into();
    let mut frame = frame.expect("the length is right");
    // Virtual time: each turn of the loop takes a millisecond.
    for millis in 0..60_000 {
        let now = start + Duration::from_millis(millis);
        interface.poll(
            Micros::from_millis(i64::try_from(millis)?),
            &mut device,
            &mut sockets,
        );
        let socket = sockets.get_mut::<Socket<'_>>(handle);
        if socket.may_send() {
            socket.send_slice(b"hello")?;
            socket.close();
        }
        if socket.can_recv() {
            let heard =
                socket.recv(|bytes| (bytes.len(), String::from_utf8_lossy(bytes).into_owned()))?;
            println!("the program hears {heard:?}");
        }
        for packet in device.sent.drain(..) {
            let mut packet = [Offload::default().to_bytes().as_slice(), &packet].concat();
            stack.handle_frame(now, &mut packet);
        }
        if stack.next_timeout().is_some_and(|at| at <= now) {
            stack.handle_timeout(now);
        }
        if serve(&mut stack, now)? {
            return Ok(());
        }
        while let Some(length) = stack.poll_transmit(now, &mut frame) {
            device.arrived.push_back(frame[HEADER..length].to_vec());
        }
    }
    Err("the flow does not end".into())
}

/// Does the work of the stack's user. Returns whether the flow has ended.
fn serve(stack: &mut Stack, now: Instant) -> Result<bool, Box<dyn Error>> {
    while let Some(event) = stack.poll_event() {
        println!("{event:?}");
        match event {
            Event::Offered { flow, .. } => stack.accept(now, flow)?,
            Event::Readable(flow) => echo(stack, now, flow)?,
            Event::Open(_) | Event::Writable(_) => {}
            Event::Ended { .. } => return Ok(true),
        }
    }
    Ok(false)
}

/// Echoes everything that has arrived. A program that sends more needs back-pressure when a write finds no room.
fn echo(stack: &mut Stack, now: Instant, flow: FlowId) -> Result<(), Box<dyn Error>> {
    loop {
        let mut heard = Vec::new();
        let read = stack.read(now, flow, |bytes| {
            heard.extend_from_slice(bytes);
            bytes.len()
        })?;
        match read {
            Read::Data(_) => {
                stack.write(now, flow, &heard)?;
            }
            Read::Finished => return Ok(stack.finish(now, flow)?),
            Read::Empty => return Ok(()),
        }
    }
}

/// Creates a host with one address and a default route.
fn program(device: &mut Memory) -> Result<Interface, Box<dyn Error>> {
    let settings = InterfaceConfig::new(HardwareAddress::Ip);
    let mut interface = Interface::new(settings, device, Micros::ZERO);
    let own = IpCidr::new(IpAddress::v4(10, 0, 0, 2), 24);
    let mut has_room = true;
    interface.update_ip_addrs(|all| has_room = all.push(own).is_ok());
    assert!(has_room, "smoltcp has room for an address");
    let gateway = Ipv4Address::new(10, 0, 0, 1);
    interface.routes_mut().add_default_ipv4_route(gateway)?;
    Ok(interface)
}

/// A device whose packets are kept in memory.
#[derive(Default)]
struct Memory {
    arrived: VecDeque<Vec<u8>>,
    sent: VecDeque<Vec<u8>>,
}

struct Arrived(Vec<u8>);

struct Sent<'a>(&'a mut VecDeque<Vec<u8>>);

impl Device for Memory {
    type RxToken<'a> = Arrived;
    type TxToken<'a> = Sent<'a>;

    fn receive(&mut self, _: Micros) -> Option<(Arrived, Sent<'_>)> {
        let packet = self.arrived.pop_front()?;
        Some((Arrived(packet), Sent(&mut self.sent)))
    }

    fn transmit(&mut self, _: Micros) -> Option<Sent<'_>> {
        Some(Sent(&mut self.sent))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut all = DeviceCapabilities::default();
        all.medium = Medium::Ip;
        all.max_transmission_unit = MTU;
        all
    }
}

impl RxToken for Arrived {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, take: F) -> R {
        take(&self.0)
    }
}

impl TxToken for Sent<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, fill: F) -> R {
        let mut packet = vec![0; length];
        let result = fill(&mut packet);
        self.0.push_back(packet);
        result
    }
}
