//! The holders of all listeners: one table for all workers of a server (PROTOCOL REVERSE-6, REVERSE-7).
//!
//! A worker consults the table at LISTEN, at UNLISTEN, when a connection ends, and before it accepts. It waits at most
//! for another worker's access to the table. The bytes of flows do not pass through it.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use quictun_engine::ConnectionId;
use quictun_wire::code::ListenCode;
use quictun_wire::listening::{HOLDER_LEN, Listen, ListenAddress, ListenId};

use crate::listener::Listener;
use quictun_trust::shares::{CommonShares, Holder, SharePlace};

/// Maximum number of listeners of one client: more than a client has forwards, and few enough for a linear search.
pub(crate) const LISTENERS_MAX: usize = 64;

/// Maximum number of listeners being made. Each has a reserved place in its worker's mailbox.
pub(crate) const BINDING_MAX: usize = 1024;

/// Maximum number of listeners being made for one client: all that it may have, and the same again for a client that
/// reconnects while they are being made. A client that asks and withdraws without end leaves the other places free.
const BINDING_OF_ONE_MAX: usize = 2 * LISTENERS_MAX;

/// Identifies a listener in the process. Numbers are never reused.
pub(crate) type ListenerNumber = u64;

/// The worker and connection of a listener's holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HolderLocation {
    pub(crate) worker: usize,
    pub(crate) connection: ConnectionId,
}

/// The table of all listeners. Clones share the same table.
#[derive(Clone, Debug)]
pub(crate) struct Holders {
    table: Arc<Mutex<ListenerTable>>,
    /// Each listener holds a descriptor, as flows do.
    descriptors: CommonShares,
}

/// A listener of a client, and its place among the descriptors that clients share.
#[derive(Debug)]
pub(crate) struct PlacedListener {
    listener: Arc<Listener>,
    _place: SharePlace,
}

#[derive(Debug, Default)]
struct ListenerTable {
    by_client: BTreeMap<Arc<str>, Vec<HeldListener>>,
    /// Listeners being made. Each is made to the end, even if it is no longer wanted.
    binding: BTreeMap<ListenerNumber, Binding>,
    next: ListenerNumber,
}

/// A listener that is being made.
#[derive(Debug)]
struct Binding {
    client: Arc<str>,
    place: SharePlace,
}

#[derive(Debug)]
struct HeldListener {
    number: ListenerNumber,
    holder: [u8; HOLDER_LEN],
    id: ListenId,
    asked: ListenAddress,
    /// `None` while the listener is being made.
    bound: Option<(Arc<PlacedListener>, ListenAddress)>,
    location: HolderLocation,
    /// Set once the connection has ended: the listener is kept until then.
    until: Option<Instant>,
}

/// The outcome of a LISTEN.
#[derive(Debug)]
pub(crate) enum ListenOutcome {
    /// The caller must make the listener, with this number.
    Bind {
        number: ListenerNumber,
        /// A listener of the same client whose connection has ended, and which the caller closes.
        gave_way: Option<LostListener>,
    },
    /// The listener exists already.
    Exists(Box<ExistingListener>),
    Refused(ListenCode),
}

#[derive(Debug)]
pub(crate) struct ExistingListener {
    pub(crate) number: ListenerNumber,
    pub(crate) listener: Arc<PlacedListener>,
    pub(crate) asked: ListenAddress,
    pub(crate) bound: ListenAddress,
    /// The previous holder's location, if it was another one.
    pub(crate) before: Option<PreviousHolder>,
}

/// A listener that was kept for a holder which has not returned.
#[derive(Debug)]
pub(crate) struct LostListener {
    pub(crate) number: ListenerNumber,
    pub(crate) id: ListenId,
    pub(crate) listener: Arc<PlacedListener>,
    pub(crate) bound: ListenAddress,
    pub(crate) location: HolderLocation,
}

/// The previous holder of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PreviousHolder {
    pub(crate) location: HolderLocation,
    pub(crate) id: ListenId,
    /// The previous holder is another process of the client, which must be notified.
    pub(crate) other: bool,
}

impl Deref for PlacedListener {
    type Target = Listener;

    fn deref(&self) -> &Listener {
        &self.listener
    }
}

impl PlacedListener {
    /// Returns the listener itself, for the sockets of its sources, which do not keep it open.
    pub(crate) fn shared(&self) -> &Arc<Listener> {
        &self.listener
    }
}

impl Holders {
    /// Creates an empty table of listeners that take their descriptors from `descriptors`.
    pub(crate) fn new(descriptors: CommonShares) -> Self {
        Self {
            table: Arc::default(),
            descriptors,
        }
    }

    /// Handles a client's LISTEN. The caller has checked that the rules allow the address.
    pub(crate) fn ask(
        &self,
        client: &Arc<str>,
        listen: &Listen,
        address: &ListenAddress,
        location: HolderLocation,
    ) -> ListenOutcome {
        let mut table = self.table();
        if let Some(answer) = table.find_existing(client, listen, address, location) {
            return answer;
        }
        if table.is_bound(address) {
            return ListenOutcome::Refused(ListenCode::InUse);
        }
        let its = table.binding.values();
        let its = its.filter(|binding| binding.client == *client);
        if table.binding.len() >= BINDING_MAX || its.count() >= BINDING_OF_ONE_MAX {
            return ListenOutcome::Refused(ListenCode::Failed);
        }
        let own = table.by_client.get(client).map_or(0, Vec::len);
        let holder = Holder::Client(client.clone());
        let place = (own < LISTENERS_MAX)
            .then(|| self.descriptors.place(&holder))
            .flatten();
        let gave_way = match &place {
            Some(_) => None,
            None => table.take_lost(client),
        };
        let place = match (place, &gave_way) {
            (Some(place), _) => place,
            (None, Some(_)) => self.descriptors.place_above(&holder),
            (None, None) => return ListenOutcome::Refused(ListenCode::TooMany),
        };
        table.next += 1;
        let number = table.next;
        let client = client.clone();
        table.binding.insert(
            number,
            Binding {
                client: client.clone(),
                place,
            },
        );
        let held = HeldListener {
            number,
            holder: listen.holder,
            id: listen.id,
            asked: address.clone(),
            bound: None,
            location,
            until: None,
        };
        table.by_client.entry(client).or_default().push(held);
        ListenOutcome::Bind { number, gave_way }
    }

    /// Stores a new listener. Gives it back as an error if it is no longer wanted.
    pub(crate) fn bound(
        &self,
        number: ListenerNumber,
        listener: Listener,
        bound: &ListenAddress,
    ) -> Result<Arc<PlacedListener>, Listener> {
        let mut table = self.table();
        let binding = table.binding.remove(&number);
        let (Some(Binding { place, .. }), Some(held)) = (binding, table.find(number)) else {
            return Err(listener);
        };
        let listener = Arc::new(PlacedListener {
            listener: Arc::new(listener),
            _place: place,
        });
        held.bound = Some((listener.clone(), bound.clone()));
        Ok(listener)
    }

    /// Handles that the listener could not be made.
    pub(crate) fn failed(&self, number: ListenerNumber) {
        let mut table = self.table();
        table.binding.remove(&number);
        table.remove(number);
    }

    /// Forgets a listener that is still being made.
    pub(crate) fn forget(&self, number: ListenerNumber) {
        self.table().remove(number);
    }

    /// Returns whether this location is the one that accepts.
    pub(crate) fn is_at(&self, number: ListenerNumber, location: HolderLocation) -> bool {
        let mut table = self.table();
        table
            .find(number)
            .is_some_and(|held| held.location == location)
    }

    /// Returns whether a holder has, or will have, the listener with this id.
    pub(crate) fn has(&self, holder: &[u8; HOLDER_LEN], id: ListenId) -> bool {
        let table = self.table();
        let mut all = table.by_client.values().flatten();
        all.any(|held| (&held.holder, held.id) == (holder, id))
    }

    /// Handles the end of the connection: the listener is kept for its holder until then. Returns `false` if the
    /// listener has another location by now.
    pub(crate) fn lose(
        &self,
        number: ListenerNumber,
        location: HolderLocation,
        until: Instant,
    ) -> bool {
        let mut table = self.table();
        let held = table.find(number).filter(|held| held.location == location);
        held.map(|held| held.until = Some(until)).is_some()
    }

    /// Removes a listener that is no longer needed. Returns `false` if the listener has another location by now.
    pub(crate) fn release(&self, number: ListenerNumber, location: HolderLocation) -> bool {
        let mut table = self.table();
        let here = table
            .find(number)
            .is_some_and(|held| held.location == location);
        if here {
            table.remove(number);
        }
        here
    }

    /// Locks the table. It stays consistent even if a thread panicked while it held the lock, because each change is
    /// one step.
    fn table(&self) -> MutexGuard<'_, ListenerTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ListenerTable {
    /// Looks for a listener that the client has already, from the same process or another one.
    fn find_existing(
        &mut self,
        client: &Arc<str>,
        listen: &Listen,
        address: &ListenAddress,
        location: HolderLocation,
    ) -> Option<ListenOutcome> {
        let own = self.by_client.get_mut(client)?;
        let same = |held: &HeldListener| (held.holder, held.id) == (listen.holder, listen.id);
        let index = match own.iter().position(same) {
            Some(index) if own[index].asked == *address && own[index].bound.is_some() => index,
            // PROTOCOL REVERSE-4: the client must give up this listener before it may ask for another address.
            Some(index) if own[index].bound.is_some() => {
                return Some(ListenOutcome::Refused(ListenCode::InUse));
            }
            // The server has not answered the first request for this listener, which came from another location.
            Some(index) => {
                own.remove(index);
                own.iter().position(|held| held.is_for(address))?
            }
            None => own.iter().position(|held| held.is_for(address))?,
        };
        let held = &mut own[index];
        let other = held.holder != listen.holder;
        let Some((listener, bound)) = &held.bound else {
            return Some(ListenOutcome::Refused(ListenCode::InUse));
        };
        if other && listen.wait {
            return Some(ListenOutcome::Refused(ListenCode::Taken));
        }
        // Another process may ask for the port that the system has chosen for the previous one.
        held.asked = address.clone();
        let existing = ExistingListener {
            number: held.number,
            listener: listener.clone(),
            asked: held.asked.clone(),
            bound: bound.clone(),
            before: (held.location != location || other).then_some(PreviousHolder {
                location: held.location,
                id: held.id,
                other: other && held.until.is_none(),
            }),
        };
        (held.holder, held.id) = (listen.holder, listen.id);
        (held.location, held.until) = (location, None);
        Some(ListenOutcome::Exists(Box::new(existing)))
    }

    /// Removes the listener of a client whose connection was lost first, if there is one.
    fn take_lost(&mut self, client: &Arc<str>) -> Option<LostListener> {
        let own = self.by_client.get_mut(client)?;
        let lost = own
            .iter()
            .enumerate()
            .filter(|(_, held)| held.bound.is_some());
        let lost = lost.filter_map(|(index, held)| Some((held.until?, index)));
        let held = own.remove(lost.min()?.1);
        let (listener, bound) = held.bound?;
        Some(LostListener {
            number: held.number,
            id: held.id,
            listener,
            bound,
            location: held.location,
        })
    }

    fn is_bound(&self, address: &ListenAddress) -> bool {
        let mut all = self.by_client.values().flatten();
        all.any(|held| held.is_for(address))
    }

    fn find(&mut self, number: ListenerNumber) -> Option<&mut HeldListener> {
        let mut all = self.by_client.values_mut().flatten();
        all.find(|held| held.number == number)
    }

    fn remove(&mut self, number: ListenerNumber) {
        self.by_client.retain(|_, own| {
            own.retain(|held| held.number != number);
            !own.is_empty()
        });
    }
}

impl HeldListener {
    /// Returns whether the listener is, or will be, at this address. A port that the system chooses never matches,
    /// because each request gets another port.
    fn is_for(&self, address: &ListenAddress) -> bool {
        let bound = self.bound.as_ref().map(|(_, bound)| bound);
        !address.has_any_port() && (self.asked == *address || bound == Some(address))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::reverse::bind::for_client;

    const HOME: [u8; HOLDER_LEN] = [1; HOLDER_LEN];
    const OTHER: [u8; HOLDER_LEN] = [2; HOLDER_LEN];

    fn location(worker: usize, connection: u64) -> HolderLocation {
        HolderLocation {
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

    struct Fixture {
        holders: Holders,
        client: Arc<str>,
    }

    impl Fixture {
        /// Makes a listener of the process `HOME` at (0, 1).
        fn new() -> (Self, ListenerNumber, ListenAddress) {
            let fixture = Self {
                holders: Holders::new(CommonShares::new(1000, 4)),
                client: "home".into(),
            };
            let ListenOutcome::Bind { number, .. } =
                fixture.ask(HOME, 1, false, &any(), location(0, 1))
            else {
                panic!("the listener is new");
            };
            let (listener, bound) = for_client(&any(), None).expect("a free port");
            let made = fixture.holders.bound(number, listener, &bound);
            assert!(made.is_ok());
            (fixture, number, bound)
        }

        fn ask(
            &self,
            holder: [u8; HOLDER_LEN],
            id: ListenId,
            wait: bool,
            address: &ListenAddress,
            location: HolderLocation,
        ) -> ListenOutcome {
            let listen = listen(holder, id, wait);
            self.holders.ask(&self.client, &listen, address, location)
        }
    }

    fn existing(answer: ListenOutcome) -> ExistingListener {
        match answer {
            ListenOutcome::Exists(existing) => *existing,
            other => panic!("{other:?}"),
        }
    }

    fn refused(answer: ListenOutcome) -> ListenCode {
        match answer {
            ListenOutcome::Refused(code) => code,
            other => panic!("{other:?}"),
        }
    }

    // PROTOCOL REVERSE-6.
    #[test]
    fn a_listener_follows_its_holder_to_another_connection_and_keeps_its_port() {
        let (fixture, number, bound) = Fixture::new();
        let again = existing(fixture.ask(HOME, 1, true, &any(), location(1, 2)));
        assert_eq!((again.number, &again.bound), (number, &bound));
        let before = PreviousHolder {
            location: location(0, 1),
            id: 1,
            other: false,
        };
        assert_eq!(again.before, Some(before));
        assert!(fixture.holders.is_at(number, location(1, 2)));
        // A report from the previous connection has no effect.
        assert!(!fixture.holders.lose(number, location(0, 1), Instant::now()));
        assert!(!fixture.holders.release(number, location(0, 1)));
        let same = existing(fixture.ask(HOME, 1, true, &any(), location(1, 2)));
        assert_eq!(same.before, None);
        assert!(fixture.holders.release(number, location(1, 2)));
        assert!(matches!(
            fixture.ask(HOME, 1, true, &any(), location(1, 2)),
            ListenOutcome::Bind { .. }
        ));
    }

    // PROTOCOL REVERSE-7.
    #[test]
    fn another_process_takes_a_listener_over_once_and_the_waiting_one_gets_it_back_after_that() {
        let (fixture, number, bound) = Fixture::new();
        let code = refused(fixture.ask(OTHER, 7, true, &bound, location(0, 2)));
        assert_eq!(code, ListenCode::Taken);
        let taken = existing(fixture.ask(OTHER, 7, false, &bound, location(0, 2)));
        let before = PreviousHolder {
            location: location(0, 1),
            id: 1,
            other: true,
        };
        assert_eq!((taken.number, taken.before), (number, Some(before)));
        // The new holder keeps the listener on its next connection.
        let again = existing(fixture.ask(OTHER, 7, true, &bound, location(0, 2)));
        assert_eq!((again.number, &again.asked), (number, &bound));
        // The previous holder may ask again in the other mode, any number of times.
        for _ in 0..3 {
            let code = refused(fixture.ask(HOME, 1, true, &bound, location(0, 1)));
            assert_eq!(code, ListenCode::Taken);
        }
        // While the listener is kept for its holder, no other process gets it by waiting.
        let until = Instant::now() + Duration::from_secs(1);
        assert!(fixture.holders.lose(number, location(0, 2), until));
        assert_eq!(
            refused(fixture.ask(HOME, 1, true, &bound, location(0, 1))),
            ListenCode::Taken
        );
        assert!(fixture.holders.release(number, location(0, 2)));
        assert!(matches!(
            fixture.ask(HOME, 1, true, &bound, location(0, 1)),
            ListenOutcome::Bind { .. }
        ));
    }

    // PROTOCOL REVERSE-4.
    #[test]
    fn another_client_never_gets_an_address_that_is_taken_or_being_made() {
        let (fixture, _, bound) = Fixture::new();
        let other: Arc<str> = "other".into();
        let asked = listen(OTHER, 1, false);
        let answer = fixture.holders.ask(&other, &asked, &bound, location(1, 9));
        assert_eq!(refused(answer), ListenCode::InUse);
        let fixed = ListenAddress::parse("tcp:127.0.0.1:9").expect("an address");
        let made = fixture.ask(HOME, 2, false, &fixed, location(0, 1));
        assert!(matches!(made, ListenOutcome::Bind { .. }));
        let answer = fixture.holders.ask(&other, &asked, &fixed, location(1, 9));
        assert_eq!(refused(answer), ListenCode::InUse);
        // Ports that the system chooses never conflict.
        assert!(matches!(
            fixture.holders.ask(&other, &asked, &any(), location(1, 9)),
            ListenOutcome::Bind { .. }
        ));
    }

    // PROTOCOL REVERSE-4, section 8: at the limit, and one above.
    #[test]
    fn each_client_has_its_own_limit_of_listeners() {
        let (fixture, ..) = Fixture::new();
        for id in 2..=LISTENERS_MAX as u64 {
            assert!(matches!(
                fixture.ask(HOME, id, false, &any(), location(0, 1)),
                ListenOutcome::Bind { .. }
            ));
        }
        assert_eq!(
            refused(fixture.ask(HOME, 99, false, &any(), location(0, 1))),
            ListenCode::TooMany
        );
        let other: Arc<str> = "other".into();
        let answer = fixture
            .holders
            .ask(&other, &listen(OTHER, 1, false), &any(), location(0, 2));
        let ListenOutcome::Bind { number, .. } = answer else {
            panic!("{answer:?}");
        };
        fixture.holders.failed(number);
        assert!(fixture.holders.table().find(number).is_none());
    }

    /// Makes listeners until the client gets no more, and returns their numbers.
    fn make_all(holders: &Holders, client: &Arc<str>) -> Vec<ListenerNumber> {
        let mut made = Vec::new();
        for id in 1000.. {
            let listen = listen(HOME, id, false);
            match holders.ask(client, &listen, &any(), location(0, 1)) {
                ListenOutcome::Bind { number, .. } => {
                    let (listener, bound) = for_client(&any(), None).expect("a free port");
                    assert!(holders.bound(number, listener, &bound).is_ok());
                    made.push(number);
                }
                answer => {
                    assert_eq!(refused(answer), ListenCode::TooMany);
                    break;
                }
            }
        }
        made
    }

    // PROTOCOL LIMIT-2.
    #[test]
    fn listeners_share_the_descriptors_of_flows() {
        let descriptors = CommonShares::new(20, 4);
        let holders = Holders::new(descriptors.clone());
        let [one, two]: [Arc<str>; 2] = ["one".into(), "two".into()];
        let made = make_all(&holders, &one);
        assert_eq!(made.len(), 16, "four fifths");
        assert_eq!(make_all(&holders, &two).len(), 4);
        let flow_of = |client: &Arc<str>| descriptors.take(&Holder::Client(client.clone()));
        assert!(!flow_of(&one) && !flow_of(&"three".into()));
        for number in made {
            assert!(holders.release(number, location(0, 1)));
        }
        assert!(flow_of(&one) && flow_of(&"three".into()));
    }

    // PROTOCOL LIMIT-4.
    #[test]
    fn a_listener_that_was_lost_first_gives_way_to_a_new_one() {
        let holders = Holders::new(CommonShares::new(1000, 4));
        let client: Arc<str> = "home".into();
        let made = make_all(&holders, &client);
        assert_eq!(made.len(), LISTENERS_MAX);
        let now = Instant::now();
        for (number, seconds) in made.iter().zip([2, 1]) {
            let until = now + Duration::from_secs(seconds);
            assert!(holders.lose(*number, location(0, 1), until));
        }
        for lost in [made[1], made[0]] {
            let asked = listen(OTHER, lost, false);
            let outcome = holders.ask(&client, &asked, &any(), location(1, 2));
            let ListenOutcome::Bind { gave_way, .. } = outcome else {
                panic!("{outcome:?}");
            };
            assert_eq!(gave_way.map(|gone| gone.number), Some(lost));
        }
        let outcome = holders.ask(&client, &listen(OTHER, 9, false), &any(), location(1, 2));
        assert_eq!(refused(outcome), ListenCode::TooMany, "none is lost");
    }

    // PROTOCOL LIMIT-1.
    #[test]
    fn a_client_that_asks_and_withdraws_without_end_leaves_places_for_others() {
        let (fixture, ..) = Fixture::new();
        let mut making = Vec::new();
        for id in 2..2 * BINDING_MAX as u64 {
            match fixture.ask(HOME, id, false, &any(), location(0, 1)) {
                ListenOutcome::Bind { number, .. } => making.push(number),
                answer => assert_eq!(refused(answer), ListenCode::Failed),
            }
            if let Some(number) = making.last() {
                fixture.holders.forget(*number);
            }
        }
        let other: Arc<str> = "other".into();
        let asked = listen(OTHER, 1, false);
        let answer = fixture.holders.ask(&other, &asked, &any(), location(0, 2));
        assert!(matches!(answer, ListenOutcome::Bind { .. }), "{answer:?}");
        // The places are free again once the listeners have been made.
        for number in making {
            let (listener, bound) = for_client(&any(), None).expect("a free port");
            assert!(fixture.holders.bound(number, listener, &bound).is_err());
        }
        assert!(matches!(
            fixture.ask(HOME, 2, false, &any(), location(0, 1)),
            ListenOutcome::Bind { .. }
        ));
    }

    // PROTOCOL REVERSE-4.
    #[test]
    fn an_id_that_has_a_listener_gets_no_other_address() {
        let (fixture, number, bound) = Fixture::new();
        let other = ListenAddress::parse("tcp:127.0.0.1:9").expect("an address");
        let code = refused(fixture.ask(HOME, 1, false, &other, location(0, 1)));
        assert_eq!(code, ListenCode::InUse);
        let still = existing(fixture.ask(HOME, 1, false, &any(), location(0, 1)));
        assert_eq!((still.number, still.bound), (number, bound));
        assert!(fixture.holders.release(number, location(0, 1)));
        let made = fixture.ask(HOME, 1, false, &other, location(0, 1));
        assert!(matches!(made, ListenOutcome::Bind { .. }));
    }

    #[test]
    fn a_listener_that_is_made_too_late_is_dropped() {
        let fixture = Fixture::new().0;
        let ListenOutcome::Bind { number: first, .. } =
            fixture.ask(HOME, 2, false, &any(), location(0, 1))
        else {
            panic!("the listener is new");
        };
        // The client asks again, on another connection, before the first listener is made.
        let ListenOutcome::Bind { number: second, .. } =
            fixture.ask(HOME, 2, false, &any(), location(1, 2))
        else {
            panic!("the listener is new");
        };
        let (listener, bound) = for_client(&any(), None).expect("a free port");
        assert!(fixture.holders.bound(first, listener, &bound).is_err());
        let (listener, bound) = for_client(&any(), None).expect("a free port");
        assert!(fixture.holders.bound(second, listener, &bound).is_ok());
        let ListenOutcome::Bind { number: third, .. } =
            fixture.ask(HOME, 3, false, &any(), location(0, 1))
        else {
            panic!("the listener is new");
        };
        fixture.holders.forget(third);
        let (listener, bound) = for_client(&any(), None).expect("a free port");
        assert!(fixture.holders.bound(third, listener, &bound).is_err());
        assert!(fixture.holders.table().binding.is_empty());
    }
}
