//! Clients and servers from the user's view.

mod bridge;
mod calls;
mod end;
mod idle;
mod killed;
mod pair;
mod silence_limit;
mod sleep;
mod stream;
