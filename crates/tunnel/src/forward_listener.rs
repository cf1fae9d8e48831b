//! A forward as a worker has it: its listener, which all workers share, and the destination of its connections.

use std::sync::Arc;

use crate::listener::Listener;
use crate::settings::{Forward, ForwardTo};

/// The handle of a forward's listener, and the destination of its connections.
#[derive(Clone, Debug)]
pub(crate) struct ForwardListener {
    pub(crate) listener: Arc<Listener>,
    pub(crate) destination: ForwardDestination,
}

/// The destination of a forward's connections.
#[derive(Clone, Debug)]
pub(crate) enum ForwardDestination {
    /// Every connection gets this token.
    Token(String),
    /// A plugin gives a token for each connection.
    Plugin,
    /// Each connection names its target itself, by a proxy protocol.
    Proxy,
    /// Each connection leads to its original destination: [`AcceptOutcome::Diverted`](crate::listener::AcceptOutcome::Diverted).
    Original,
}

impl ForwardListener {
    /// Returns the parts of a forward for a worker, or `None` if a plugin would have to name its targets.
    pub(crate) fn of(forward: &Forward, listener: Arc<Listener>) -> Option<Self> {
        let destination = ForwardDestination::of(&forward.to)?;
        Some(Self {
            listener,
            destination,
        })
    }
}

impl ForwardDestination {
    /// Returns the destination of a forward's connections, or `None` if a plugin names it.
    pub(crate) fn of(to: &ForwardTo) -> Option<Self> {
        match to {
            ForwardTo::Target(target) => Some(Self::Token(target.to_string())),
            ForwardTo::Proxy => Some(Self::Proxy),
            ForwardTo::Destination => Some(Self::Original),
            ForwardTo::Source(_) => None,
        }
    }
}
