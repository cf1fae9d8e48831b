//! What was found, for people.
//!
//! [`markdown`] and [`html`] show the same things in the same order: verdict, tables with published figures beside
//! ours, plots (HTML), how far to trust it, the machine, and the command that repeats it.

mod flame;
mod html;
mod markdown;
mod validity;
mod words;

pub use html::html;
pub use markdown::{markdown, text};
