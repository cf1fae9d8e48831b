//! Reports for people.
//!
//! [`markdown`] and [`html`] show the same things in the same order. They begin with the result, as a sentence and as a
//! chart, and the verdict with its cost. Tables with published figures beside the measured ones and further charts
//! follow. At the end are the validity of the run, the machine, and the command that repeats the run. [`charts`]
//! returns the files that Markdown refers to; the HTML page embeds its charts.

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
