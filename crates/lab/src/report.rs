//! What was found, for people.
//!
//! [`markdown`] and [`html`] show the same things in the same order: the result in a sentence and as a chart, the verdict
//! with its cost, tables with published figures beside ours, further charts, how far to trust it, the machine, and the
//! command that repeats it. [`charts`] are the files that Markdown shows; the page holds its own.

mod charts;
mod colours;
mod flame;
mod html;
mod markdown;
mod terminal;
mod validity;
mod words;

pub use charts::charts;
pub use html::html;
pub use markdown::markdown;
pub use terminal::text;
