//! Channels as their users see them: two ends, in one process and in two, honest, hostile and killed.

mod check;
mod descriptor;
mod hostile;
mod killed;
mod oracle;
mod peer;
mod region;
mod sleep;
