//! The holders of all listeners: one table for all workers of a server (PROTOCOL REVERSE-6, REVERSE-7).
//!
//! A worker consults the table at LISTEN, at UNLISTEN, when a connection ends, and before it accepts. It waits at most
//! for another worker's access to the table. The bytes of flows do not pass through it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use quictun_engine::ConnectionId;
use quictun_wire::code::ListenCode;
use quictun_wire::listening::{HOLDER_LEN, Listen, ListenAddress, ListenId};

use crate::listener::Listener;

/// Maximum number of listeners of one client: more than a client has forwards, and few enough for a linear search.
pub(crate) const LISTENERS_MAX: usize = 64;

/// Maximum number of listeners being made. Each has a reserved place in its worker's mailbox.
pub(crate) const BINDING_MAX: usize = 1024;

/// Identifies a listener in the process. Numbers are never reused.
pub(crate) type Number = u64;

/// The worker and connection of a listener's holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) worker: usize,
    pub(crate) connection: ConnectionId,
}

/// The table of all listeners. Clones share the same table.
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
    /// `None` while the listener is being made.
    bound: Option<(Arc<Listener>, ListenAddress)>,
    place: Place,
    /// Set once the connection has ended: the listener is kept until then.
    until: Option<Instant>,
}

/// The outcome of a LISTEN.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The caller must make the listener, with this number.
    Bind(Number),
    /// The listener exists already.
    Have(Box<Have>),
    Refused(ListenCode),
}

#[derive(Debug)]
pub(crate) struct Have {
    pub(crate) number: Number,
    pub(crate) listener: Arc<Listener>,
    pub(crate) asked: ListenAddress,
    pub(crate) bound: ListenAddress,
    /// The previous holder's place, if it was another one.
    pub(crate) before: Option<Before>,
}

/// The previous holder of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Before {
    pub(crate) place: Place,
    pub(crate) id: ListenId,
    /// The previous holder is another process of the client, which must be notified.
    pub(crate) other: bool,
}

impl Holders {
    /// Handles a client's LISTEN. The caller has checked that the rules allow the address.
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

    /// Stores a new listener. Returns `None` if it is no longer wanted.
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

    /// Handles that the listener could not be made.
    pub(crate) fn failed(&self, number: Number) {
        let mut table = self.table();
        table.binding = table.binding.saturating_sub(1);
        table.remove(number);
    }

    /// Forgets a listener that is still being made.
    pub(crate) fn forget(&self, number: Number) {
        self.table().remove(number);
    }

    /// Returns whether this place is the one that accepts.
    pub(crate) fn is_at(&self, number: Number, place: Place) -> bool {
        let mut table = self.table();
        table.find(number).is_some_and(|held| held.place == place)
    }

    /// Handles the end of the connection: the listener is kept for its holder until then. Returns `false` if the
    /// listener has another place by now.
    pub(crate) fn lose(&self, number: Number, place: Place, until: Instant) -> bool {
        let mut table = self.table();
        let held = table.find(number).filter(|held| held.place == place);
        held.map(|held| held.until = Some(until)).is_some()
    }

    /// Removes a listener that is no longer needed. Returns `false` if the listener has another place by now.
    pub(crate) fn release(&self, number: Number, place: Place) -> bool {
        let mut table = self.table();
        let here = table.find(number).is_some_and(|held| held.place == place);
        if here {
            table.remove(number);
        }
        here
    }

    /// Locks the table. It stays consistent even if a thread panicked while it held the lock, because each change is
    /// one step.
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Looks for a listener that the client has already, from the same process or another one.
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
            // PROTOCOL REVERSE-4: the client must give up this listener before it may ask for another address.
            Some(index) if own[index].bound.is_some() => {
                return Some(Answer::Refused(ListenCode::InUse));
            }
            // Its first request has not been answered at its previous place.
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
    /// Returns whether the listener is, or will be, at this address. A port that the system chooses never matches,
    /// because each request gets another port.
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
        /// Makes a listener of the process `HOME` at (0, 1).
        fn new() -> (Self, Number, ListenAddress) {
            let world = Self {
                holders: Holders::default(),
                client: "home".into(),
            };
            let Answer::Bind(number) = world.ask(HOME, 1, false, &any(), place(0, 1)) else {
                panic!("the listener is new");
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
        // A report from the previous connection has no effect.
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
        // The previous holder may ask again in the other mode, any number of times.
        for _ in 0..3 {
            let code = refused(world.ask(HOME, 1, true, &bound, place(0, 1)));
            assert_eq!(code, ListenCode::Taken);
        }
        // While the listener is kept for its holder, no other process gets it by waiting.
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
        // Ports that the system chooses never conflict.
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
            panic!("the listener is new");
        };
        // The client asks again, on another connection, before the first listener is made.
        let Answer::Bind(second) = world.ask(HOME, 2, false, &any(), place(1, 2)) else {
            panic!("the listener is new");
        };
        let (listener, bound) = for_client(&any()).expect("a free port");
        assert!(world.holders.bound(first, listener, &bound).is_none());
        let (listener, bound) = for_client(&any()).expect("a free port");
        assert!(world.holders.bound(second, listener, &bound).is_some());
        let Answer::Bind(third) = world.ask(HOME, 3, false, &any(), place(0, 1)) else {
            panic!("the listener is new");
        };
        world.holders.forget(third);
        let (listener, bound) = for_client(&any()).expect("a free port");
        assert!(world.holders.bound(third, listener, &bound).is_none());
        assert_eq!(world.holders.table().binding, 0);
    }
}
