//! A TUN device whose connections are carried: the user-space stack between it and the engine.
//!
//! What connects anywhere through the device becomes a flow to that address. The application's SYN is answered when the
//! server has reached the target, and refused when it has not. Questions to name servers go to the one that was
//! chosen, see [`crate::name_questions`].

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Instant;

use quictun_engine::FlowId;
use quictun_netstack::{Config, Event, FRAME_MAX, FlowId as StackFlow, Stack};
use quictun_sys::Tun;
use quictun_wire::target::Target;
use tracing::{debug, error, info, warn};

use crate::app_socket::AppSocket;
use crate::name_questions::{self, NameQuestions};
use crate::poller::Key;
use crate::stack_socket::{SharedStack, StackSocket};
use crate::worker::Io;

/// Frames taken in before what they caused goes on: more, and short flows wait for bulk.
const FRAMES: usize = 8;

/// The device, the stack, and which flow of the one is which of the engine.
pub(crate) struct TunPort {
    tun: Tun,
    shared: Rc<SharedStack>,
    frame: Box<[u8; FRAME_MAX]>,
    to_engine: BTreeMap<StackFlow, FlowId>,
    to_stack: BTreeMap<FlowId, StackFlow>,
    questions: Option<NameQuestions>,
    gone: bool,
}

impl std::fmt::Debug for TunPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TunPort({})", self.tun.name())
    }
}

impl TunPort {
    /// A stack on a device; its sequence numbers follow from `seed`.
    pub(crate) fn new(tun: Tun, dns: Option<IpAddr>, seed: u64) -> io::Result<Self> {
        let now = Instant::now();
        let config = Config {
            datagram_port: dns.map(|_| name_questions::PORT),
            ..Config::default()
        };
        let stack = Stack::new(config, seed, now).map_err(io::Error::other)?;
        let frame = vec![0; FRAME_MAX].into_boxed_slice().try_into();
        Ok(Self {
            tun,
            shared: Rc::new(SharedStack {
                stack: RefCell::new(stack),
                now: Cell::new(now),
                unfinished: RefCell::default(),
            }),
            frame: frame
                .map_err(|_| io::Error::other("a buffer of another length than asked for"))?,
            to_engine: BTreeMap::new(),
            to_stack: BTreeMap::new(),
            questions: dns.map(NameQuestions::new).transpose()?,
            gone: false,
        })
    }

    pub(crate) fn start(&self, io: &mut Io<'_>) -> io::Result<()> {
        info!(target: "quictun", device = self.tun.name(), "carrying what connects through the device");
        io.poller.add_input(&self.tun, Key::Tun)
    }

    /// The device has frames.
    pub(crate) fn handle_ready(&mut self, io: &mut Io<'_>) {
        self.shared.now.set(io.now);
        for _ in 0..FRAMES {
            match self.tun.read(self.frame.as_mut_slice()) {
                Ok(length) => {
                    let mut stack = self.shared.stack.borrow_mut();
                    stack.handle_frame(io.now, &mut self.frame[..length]);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(cause) => {
                    self.lose(io, &cause);
                    break;
                }
            }
        }
        self.handle_events(io);
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let questions = self
            .questions
            .as_ref()
            .and_then(NameQuestions::next_timeout);
        let stack = self.shared.stack.borrow().next_timeout();
        [questions, stack].into_iter().flatten().min()
    }

    pub(crate) fn handle_timeout(&mut self, io: &mut Io<'_>) {
        self.shared.now.set(io.now);
        self.shared.stack.borrow_mut().handle_timeout(io.now);
        if let Some(questions) = &mut self.questions {
            questions.handle_timeout(io);
        }
        self.handle_events(io);
    }

    /// The server has reached the target of a flow: now the application hears of it.
    pub(crate) fn handle_established(&mut self, io: &mut Io<'_>, flow: FlowId) {
        if let Some(questions) = &self.questions {
            questions.handle_established(io, flow);
        }
        let Some(&id) = self.to_stack.get(&flow) else {
            return;
        };
        let accepted = self.shared.stack.borrow_mut().accept(io.now, id);
        if let Err(cause) = accepted {
            // Its application has given up, or there are no buffers left.
            debug!(target: "quictun", %cause, "a connection could not be accepted");
            io.engine.handle_socket(io.now, flow, false, false, true);
        }
    }

    pub(crate) fn handle_closed(&mut self, flow: FlowId) {
        if let Some(id) = self.to_stack.remove(&flow) {
            self.to_engine.remove(&id);
        }
        if let Some(questions) = &mut self.questions {
            questions.handle_closed(flow);
        }
    }

    /// Sends what the stack has. Tells whether the engine may have something to do after that.
    pub(crate) fn flush(&mut self, io: &mut Io<'_>) -> bool {
        let mut any = false;
        while !self.gone {
            self.shared.now.set(io.now);
            loop {
                let length = self
                    .shared
                    .stack
                    .borrow_mut()
                    .poll_transmit(io.now, &mut self.frame);
                let Some(length) = length else { break };
                match self.tun.write(&self.frame[..length]) {
                    Ok(()) => {}
                    // TCP repeats what a device has no room for.
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(cause) => {
                        self.lose(io, &cause);
                        return true;
                    }
                }
            }
            if !self.handle_events(io) {
                break;
            }
            any = true;
        }
        any
    }

    fn handle_events(&mut self, io: &mut Io<'_>) -> bool {
        let mut any = false;
        loop {
            let event = self.shared.stack.borrow_mut().poll_event();
            let Some(event) = event else { break };
            any = true;
            match event {
                Event::Offered {
                    flow,
                    client,
                    target,
                } => self.open(io, flow, client, target),
                Event::Open(id) => self.ready(io, id, true, true),
                Event::Readable(id) => self.ready(io, id, true, false),
                Event::Writable(id) => {
                    self.finish_again(io.now, id);
                    self.ready(io, id, false, true);
                }
                Event::Ended { flow, ending } => {
                    debug!(target: "quictun", ?ending, "a connection through the device has ended");
                    if ending != quictun_netstack::Ending::Finished
                        && let Some(&engine) = self.to_engine.get(&flow)
                    {
                        io.engine.handle_socket(io.now, engine, false, false, true);
                    }
                }
            }
        }
        let Some(questions) = &mut self.questions else {
            return any;
        };
        loop {
            let asked = self.shared.stack.borrow_mut().poll_datagram();
            let Some(asked) = asked else { break };
            any = true;
            questions.ask(io, asked);
        }
        while let Some(reply) = questions.poll_reply(io) {
            any = true;
            self.shared.stack.borrow_mut().send_datagram(&reply);
        }
        any
    }

    fn open(&mut self, io: &mut Io<'_>, id: StackFlow, client: SocketAddr, target: SocketAddr) {
        let socket = StackSocket::new(self.shared.clone(), id, client);
        let target = match &self.questions {
            Some(questions) if target == name_questions::STAND_IN => questions.resolver(),
            _ => target,
        };
        // Written and read once, so that a target has one text wherever it comes from.
        let token = match Target::parse(&format!("tcp:{target}")) {
            Ok(target) => target.to_string(),
            Err(cause) => {
                warn!(target: "quictun", %target, %cause, "a connection was refused");
                return;
            }
        };
        let client_app = client.to_string();
        info!(target: "quictun", { "Client-App-Addr" = client_app }, "Starting handshake with server endpoint");
        let opened = io
            .engine
            .open_flow(io.now, AppSocket::Stack(socket), token, client_app);
        match opened {
            Some(flow) => {
                self.to_engine.insert(id, flow);
                self.to_stack.insert(flow, id);
            }
            None => {
                warn!(target: "quictun", "too many connections wait for the server: one was refused");
            }
        }
    }

    fn ready(&mut self, io: &mut Io<'_>, id: StackFlow, readable: bool, writable: bool) {
        if let Some(&flow) = self.to_engine.get(&id) {
            io.engine
                .handle_socket(io.now, flow, readable, writable, false);
        }
    }

    fn finish_again(&mut self, now: Instant, id: StackFlow) {
        let mut unfinished = self.shared.unfinished.borrow_mut();
        if let Some(at) = unfinished.iter().position(|waiting| *waiting == id)
            && self.shared.stack.borrow_mut().finish(now, id).is_ok()
        {
            unfinished.swap_remove(at);
        }
    }

    /// The device is gone: so are all its flows.
    fn lose(&mut self, io: &mut Io<'_>, cause: &io::Error) {
        if std::mem::replace(&mut self.gone, true) {
            return;
        }
        error!(target: "quictun", device = self.tun.name(), %cause, "the device is gone: its connections are reset");
        if let Err(cause) = io.poller.remove(&self.tun) {
            debug!(target: "quictun", %cause, "the device was not watched");
        }
        for flow in self.to_stack.keys() {
            io.engine.handle_socket(io.now, *flow, false, false, true);
        }
    }
}
