//! Channels from the user's view: two ends, in one process and in two; honest, hostile and killed peers.

mod check;
mod descriptor;
mod hostile;
mod killed;
mod oracle;
mod peer;
mod region;
mod sleep;
