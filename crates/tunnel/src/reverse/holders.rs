//! Who has which listener: all workers of a server, in one table (PROTOCOL REVERSE-6, REVERSE-7).
//!
//! A worker asks the table at LISTEN, at UNLISTEN, when a connection ends, and before it accepts. It never waits for more
//! than another worker's look into the table, and no byte of a flow passes here.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use quictun_engine::ConnectionId;
use quictun_wire::code::ListenCode;
use quictun_wire::listening::{HOLDER_LEN, Listen, ListenAddress, ListenId};

use crate::listener::Listener;

/// Listeners of one client: more than a client has forwards, and few enough to look at each time.
pub(crate) const LISTENERS_MAX: usize = 64;

/// Listeners that are being made. Each has a place in its worker's mailbox.
pub(crate) const BINDING_MAX: usize = 1024;

/// Names a listener in the process; never used twice.
pub(crate) type Number = u64;

/// Where the holder of a listener is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) worker: usize,
    pub(crate) connection: ConnectionId,
}

/// The table. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holders(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    by_client: BTreeMap<Arc<str>, Vec<Held>>,
    binding: usize,
    next: Number,
}

#[derive(Debug)]
struct Held {
    number: Number,
    holder: [u8; HOLDER_LEN],
    id: ListenId,
    asked: ListenAddress,
    /// `None`: it is being made.
    bound: Option<(Arc<Listener>, ListenAddress)>,
    place: Place,
    /// Its connection has ended; it is kept until then.
    until: Option<Instant>,
}

/// What becomes of a LISTEN.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The listener is to be made, under this number.
    Bind(Number),
    /// It is there.
    Have(Box<Have>),
    Refused(ListenCode),
}

#[derive(Debug)]
pub(crate) struct Have {
    pub(crate) number: Number,
    pub(crate) listener: Arc<Listener>,
    pub(crate) asked: ListenAddress,
    pub(crate) bound: ListenAddress,
    /// Where it was before, if elsewhere.
    pub(crate) before: Option<Before>,
}

/// Who had a listener until now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Before {
    pub(crate) place: Place,
    pub(crate) id: ListenId,
    /// Another process of the client: it is told.
    pub(crate) other: bool,
}

impl Holders {
    /// A client asks, and its rules allow the address.
    pub(crate) fn ask(
        &self,
        client: &Arc<str>,
        listen: &Listen,
        address: &ListenAddress,
        place: Place,
    ) -> Answer {
        let mut table = self.table();
        if let Some(answer) = table.again(client, listen, address, place) {
            return answer;
        }
        let own = table.by_client.get(client).map_or(0, Vec::len);
        if table.is_bound(address) {
            return Answer::Refused(ListenCode::InUse);
        }
        if own >= LISTENERS_MAX {
            return Answer::Refused(ListenCode::TooMany);
        }
        if table.binding >= BINDING_MAX {
            return Answer::Refused(ListenCode::Failed);
        }
        table.binding += 1;
        table.next += 1;
        let number = table.next;
        let held = Held {
            number,
            holder: listen.holder,
            id: listen.id,
            asked: address.clone(),
            bound: None,
            place,
            until: None,
        };
        table
            .by_client
            .entry(client.clone())
            .or_default()
            .push(held);
        Answer::Bind(number)
    }

    /// The listener that was to be made is there. `None`: it is not wanted any more.
    pub(crate) fn bound(
        &self,
        number: Number,
        listener: Listener,
        bound: &ListenAddress,
    ) -> Option<Arc<Listener>> {
        let mut table = self.table();
        table.binding = table.binding.saturating_sub(1);
        let held = table.find(number)?;
        let listener = Arc::new(listener);
        held.bound = Some((listener.clone(), bound.clone()));
        Some(listener)
    }

    /// It could not be made.
    pub(crate) fn failed(&self, number: Number) {
        let mut table = self.table();
        table.binding = table.binding.saturating_sub(1);
        table.remove(number);
    }

    /// It is not wanted any more, and is being made still.
    pub(crate) fn forget(&self, number: Number) {
        self.table().remove(number);
    }

    /// Whether this place is the one that accepts.
    pub(crate) fn is_at(&self, number: Number, place: Place) -> bool {
        let mut table = self.table();
        table.find(number).is_some_and(|held| held.place == place)
    }

    /// The connection has ended: the listener is kept for its holder until then. `false`: it is elsewhere.
    pub(crate) fn lose(&self, number: Number, place: Place, until: Instant) -> bool {
        let mut table = self.table();
        let held = table.find(number).filter(|held| held.place == place);
        held.map(|held| held.until = Some(until)).is_some()
    }

    /// Nobody needs it any more. `false`: it is elsewhere.
    pub(crate) fn release(&self, number: Number, place: Place) -> bool {
        let mut table = self.table();
        let here = table.find(number).is_some_and(|held| held.place == place);
        if here {
            table.remove(number);
        }
        here
    }

    /// The table is consistent whatever panicked while it was locked: each change of it is one step.
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// A listener that the client has already: of the same process, or of another one.
    fn again(
        &mut self,
        client: &Arc<str>,
        listen: &Listen,
        address: &ListenAddress,
        place: Place,
    ) -> Option<Answer> {
        let own = self.by_client.get_mut(client)?;
        let same = |held: &Held| (held.holder, held.id) == (listen.holder, listen.id);
        let index = match own.iter().position(same) {
            Some(index) if own[index].asked == *address && own[index].bound.is_some() => index,
            // PROTOCOL REVERSE-4: for another address it has to give this one up first.
            Some(index) if own[index].bound.is_some() => {
                return Some(Answer::Refused(ListenCode::InUse));
            }
            // Its first request has not been answered where it was.
            Some(index) => {
                own.remove(index);
                own.iter().position(|held| held.is_for(address))?
            }
            None => own.iter().position(|held| held.is_for(address))?,
        };
        let held = &mut own[index];
        let other = held.holder != listen.holder;
        let Some((listener, bound)) = &held.bound else {
            return Some(Answer::Refused(ListenCode::InUse));
        };
        if other && listen.wait {
            return Some(Answer::Refused(ListenCode::Taken));
        }
        let have = Have {
            number: held.number,
            listener: listener.clone(),
            asked: held.asked.clone(),
            bound: bound.clone(),
            before: (held.place != place || other).then_some(Before {
                place: held.place,
                id: held.id,
                other: other && held.until.is_none(),
            }),
        };
        (held.holder, held.id) = (listen.holder, listen.id);
        (held.place, held.until) = (place, None);
        Some(Answer::Have(Box::new(have)))
    }

    fn is_bound(&self, address: &ListenAddress) -> bool {
        let mut all = self.by_client.values().flatten();
        all.any(|held| held.is_for(address))
    }

    fn find(&mut self, number: Number) -> Option<&mut Held> {
        let mut all = self.by_client.values_mut().flatten();
        all.find(|held| held.number == number)
    }

    fn remove(&mut self, number: Number) {
        self.by_client.retain(|_, own| {
            own.retain(|held| held.number != number);
            !own.is_empty()
        });
    }
}

impl Held {
    /// Whether it is, or will be, at this address. A port that the system chooses is one of its own each time.
    fn is_for(&self, address: &ListenAddress) -> bool {
        let any = matches!(address, ListenAddress::Tcp(at) if at.port() == 0);
        let bound = self.bound.as_ref().map(|(_, bound)| bound);
        !any && (self.asked == *address || bound == Some(address))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::reverse::bind::for_client;

    const HOME: [u8; HOLDER_LEN] = [1; HOLDER_LEN];
    const OTHER: [u8; HOLDER_LEN] = [2; HOLDER_LEN];

    fn place(worker: usize, connection: u64) -> Place {
        Place {
            worker,
            connection: ConnectionId(connection),
        }
    }

    fn any() -> ListenAddress {
        ListenAddress::parse("tcp:127.0.0.1:0").expect("an address")
    }

    fn listen(holder: [u8; HOLDER_LEN], id: ListenId, wait: bool) -> Listen {
        Listen {
            id,
            wait,
            holder,
            address: String::new(),
        }
    }

    struct World {
        holders: Holders,
        client: Arc<str>,
    }

    impl World {
        /// A listener of the process `HOME` at (0, 1).
        fn new() -> (Self, Number, ListenAddress) {
            let world = Self {
                holders: Holders::default(),
                client: "home".into(),
            };
            let Answer::Bind(number) = world.ask(HOME, 1, false, &any(), place(0, 1)) else {
                panic!("it is new");
            };
            let (listener, bound) = for_client(&any()).expect("a free port");
            let made = world.holders.bound(number, listener, &bound);
            assert!(made.is_some());
            (world, number, bound)
        }

        fn ask(
            &self,
            holder: [u8; HOLDER_LEN],
            id: ListenId,
            wait: bool,
            address: &ListenAddress,
            place: Place,
        ) -> Answer {
            let listen = listen(holder, id, wait);
            self.holders.ask(&self.client, &listen, address, place)
        }
    }

    fn have(answer: Answer) -> Have {
        match answer {
            Answer::Have(have) => *have,
            other => panic!("{other:?}"),
        }
    }

    fn refused(answer: Answer) -> ListenCode {
        match answer {
            Answer::Refused(code) => code,
            other => panic!("{other:?}"),
        }
    }

    // PROTOCOL REVERSE-6.
    #[test]
    fn a_listener_follows_its_holder_to_another_connection_and_keeps_its_port() {
        let (world, number, bound) = World::new();
        let again = have(world.ask(HOME, 1, true, &any(), place(1, 2)));
        assert_eq!((again.number, &again.bound), (number, &bound));
        let before = Before {
            place: place(0, 1),
            id: 1,
            other: false,
        };
        assert_eq!(again.before, Some(before));
        assert!(world.holders.is_at(number, place(1, 2)));
        // What the connection before says is void.
        assert!(!world.holders.lose(number, place(0, 1), Instant::now()));
        assert!(!world.holders.release(number, place(0, 1)));
        let same = have(world.ask(HOME, 1, true, &any(), place(1, 2)));
        assert_eq!(same.before, None);
        assert!(world.holders.release(number, place(1, 2)));
        assert!(matches!(
            world.ask(HOME, 1, true, &any(), place(1, 2)),
            Answer::Bind(_)
        ));
    }

    // PROTOCOL REVERSE-7.
    #[test]
    fn another_process_takes_it_over_once_and_who_waits_gets_it_when_the_holder_has_gone() {
        let (world, number, bound) = World::new();
        let code = refused(world.ask(OTHER, 7, true, &bound, place(0, 2)));
        assert_eq!(code, ListenCode::Taken);
        let taken = have(world.ask(OTHER, 7, false, &bound, place(0, 2)));
        let before = Before {
            place: place(0, 1),
            id: 1,
            other: true,
        };
        assert_eq!((taken.number, taken.before), (number, Some(before)));
        // The one before asks again, now with the other mode, as often as it likes.
        for _ in 0..3 {
            let code = refused(world.ask(HOME, 1, true, &bound, place(0, 1)));
            assert_eq!(code, ListenCode::Taken);
        }
        // While it is kept for its holder nobody else gets it by waiting.
        let until = Instant::now() + Duration::from_secs(1);
        assert!(world.holders.lose(number, place(0, 2), until));
        assert_eq!(
            refused(world.ask(HOME, 1, true, &bound, place(0, 1))),
            ListenCode::Taken
        );
        assert!(world.holders.release(number, place(0, 2)));
        assert!(matches!(
            world.ask(HOME, 1, true, &bound, place(0, 1)),
            Answer::Bind(_)
        ));
    }

    // PROTOCOL REVERSE-4.
    #[test]
    fn another_client_never_gets_an_address_that_is_taken_or_being_made() {
        let (world, _, bound) = World::new();
        let other: Arc<str> = "other".into();
        let asked = listen(OTHER, 1, false);
        let answer = world.holders.ask(&other, &asked, &bound, place(1, 9));
        assert_eq!(refused(answer), ListenCode::InUse);
        let fixed = ListenAddress::parse("tcp:127.0.0.1:9").expect("an address");
        let made = world.ask(HOME, 2, false, &fixed, place(0, 1));
        assert!(matches!(made, Answer::Bind(_)));
        let answer = world.holders.ask(&other, &asked, &fixed, place(1, 9));
        assert_eq!(refused(answer), ListenCode::InUse);
        // Ports that the system chooses are no conflict.
        assert!(matches!(
            world.holders.ask(&other, &asked, &any(), place(1, 9)),
            Answer::Bind(_)
        ));
    }

    // PROTOCOL REVERSE-4, section 8: at the limit, and one above.
    #[test]
    fn a_client_has_so_many_listeners_and_another_one_its_own() {
        let (world, ..) = World::new();
        for id in 2..=LISTENERS_MAX as u64 {
            assert!(matches!(
                world.ask(HOME, id, false, &any(), place(0, 1)),
                Answer::Bind(_)
            ));
        }
        assert_eq!(
            refused(world.ask(HOME, 99, false, &any(), place(0, 1))),
            ListenCode::TooMany
        );
        let other: Arc<str> = "other".into();
        let answer = world
            .holders
            .ask(&other, &listen(OTHER, 1, false), &any(), place(0, 2));
        let Answer::Bind(number) = answer else {
            panic!("{answer:?}");
        };
        world.holders.failed(number);
        assert!(world.holders.table().find(number).is_none());
    }

    // PROTOCOL REVERSE-4.
    #[test]
    fn an_id_that_has_a_listener_gets_no_other_address() {
        let (world, number, bound) = World::new();
        let other = ListenAddress::parse("tcp:127.0.0.1:9").expect("an address");
        let code = refused(world.ask(HOME, 1, false, &other, place(0, 1)));
        assert_eq!(code, ListenCode::InUse);
        let still = have(world.ask(HOME, 1, false, &any(), place(0, 1)));
        assert_eq!((still.number, still.bound), (number, bound));
        assert!(world.holders.release(number, place(0, 1)));
        let made = world.ask(HOME, 1, false, &other, place(0, 1));
        assert!(matches!(made, Answer::Bind(_)));
    }

    #[test]
    fn a_listener_that_is_made_too_late_is_nobodys() {
        let world = World::new().0;
        let Answer::Bind(first) = world.ask(HOME, 2, false, &any(), place(0, 1)) else {
            panic!("it is new");
        };
        // It asks again, on another connection, before the first one is there.
        let Answer::Bind(second) = world.ask(HOME, 2, false, &any(), place(1, 2)) else {
            panic!("it is new");
        };
        let (listener, bound) = for_client(&any()).expect("a free port");
        assert!(world.holders.bound(first, listener, &bound).is_none());
        let (listener, bound) = for_client(&any()).expect("a free port");
        assert!(world.holders.bound(second, listener, &bound).is_some());
        let Answer::Bind(third) = world.ask(HOME, 3, false, &any(), place(0, 1)) else {
            panic!("it is new");
        };
        world.holders.forget(third);
        let (listener, bound) = for_client(&any()).expect("a free port");
        assert!(world.holders.bound(third, listener, &bound).is_none());
        assert_eq!(world.holders.table().binding, 0);
    }
}
