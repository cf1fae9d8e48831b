//! The user of the stack: answers offers, echoes bytes, and finishes after the application has finished.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use quictun_netstack::{Event, FlowEnding, FlowError, Stack, StackFlowId, StackRead};

/// The answer to offered flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OfferAnswer {
    Accept,
    Refuse,
    /// Neither accepts nor refuses.
    Silence,
}

/// Echoes what it reads, and stops reading while it holds [`HOLD`] bytes or more.
pub(crate) struct EchoService {
    pub(crate) answer: OfferAnswer,
    /// Flows that were offered, in order.
    pub(crate) offered: Vec<StackFlowId>,
    pub(crate) opened: u64,
    pub(crate) endings: Vec<(StackFlowId, FlowEnding)>,
    pub(crate) events: u64,
    /// True if it reads nothing for now.
    pub(crate) deaf: bool,
    /// True if it never finishes, even if the application has.
    pub(crate) stays: bool,
    echoes: BTreeMap<StackFlowId, EchoFlow>,
}

#[derive(Default)]
struct EchoFlow {
    held: VecDeque<u8>,
    ended: bool,
    finished: bool,
}

const HOLD: usize = 256 * 1024;

impl EchoService {
    pub(crate) fn new(answer: OfferAnswer) -> Self {
        Self {
            answer,
            offered: Vec::new(),
            opened: 0,
            endings: Vec::new(),
            events: 0,
            deaf: false,
            stays: false,
            echoes: BTreeMap::new(),
        }
    }

    /// Handles all pending events.
    pub(crate) fn work(&mut self, now: Instant, stack: &mut Stack) {
        while let Some(event) = stack.poll_event() {
            self.events += 1;
            match event {
                Event::Offered { flow, .. } => {
                    self.offered.push(flow);
                    match self.answer {
                        OfferAnswer::Accept => match stack.accept(now, flow) {
                            Ok(()) => {
                                self.echoes.insert(flow, EchoFlow::default());
                            }
                            Err(FlowError::NoMemory) => stack.refuse(flow).unwrap(),
                            Err(error) => panic!("{error}"),
                        },
                        OfferAnswer::Refuse => stack.refuse(flow).unwrap(),
                        OfferAnswer::Silence => {}
                    }
                }
                Event::Open(_) => self.opened += 1,
                Event::Readable(flow) | Event::Writable(flow) => self.pump(now, stack, flow),
                Event::Ended { flow, ending } => {
                    self.endings.push((flow, ending));
                    self.echoes.remove(&flow);
                }
            }
        }
    }

    /// Reads and writes as much as possible.
    pub(crate) fn pump(&mut self, now: Instant, stack: &mut Stack, flow: StackFlowId) {
        let Some(echo) = self.echoes.get_mut(&flow) else {
            return;
        };
        loop {
            let mut moved = false;
            if !self.deaf && !echo.ended && echo.held.len() < HOLD {
                let held = &mut echo.held;
                let read = stack.read(now, flow, |bytes| {
                    held.extend(bytes);
                    bytes.len()
                });
                match read {
                    Ok(StackRead::Data(_)) => moved = true,
                    Ok(StackRead::Finished) => echo.ended = true,
                    Ok(StackRead::Empty) => {}
                    Err(FlowError::Gone) => return,
                    Err(error) => panic!("{error}"),
                }
            }
            if !echo.held.is_empty() {
                let written = stack.write(now, flow, echo.held.make_contiguous());
                let written = written.unwrap();
                moved |= written > 0;
                echo.held.drain(..written);
            }
            if !moved {
                break;
            }
        }
        if echo.ended && echo.held.is_empty() && !self.stays && !echo.finished {
            stack.finish(now, flow).unwrap();
            echo.finished = true;
        }
    }
}
