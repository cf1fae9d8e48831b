//! Clients and servers as their users see them.

mod calls;
mod end;
mod pair;
