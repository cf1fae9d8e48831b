//! Clients and servers as their users see them.

mod bridge;
mod calls;
mod end;
mod idle;
mod killed;
mod pair;
mod patience;
mod sleep;
mod stream;
