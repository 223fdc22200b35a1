//! Pictures of plans, of machines and of leases: as pages of HTML that need nothing but a browser, as SVG, and as text.
//!
//! Data goes in, text comes out. The crate knows no plan, graph or machine: [`Picture`], [`Listing`] and [`Lease`] are what it draws.
//! Names come from files and are hostile: they are cut to a length, and characters that would act are written out ([`shown`]).
//! A page is one file. It loads nothing, and a policy in its head allows no script but its own, by its hash ([`shell`]).
//!
//! [`picture`]: what a plan looks like. [`compact`]: the same as JSON, for the page's script (`page.js`). [`svg`], [`text`]: the memory
//! of a device over a step. [`chart`]: bars and curves. [`listing`]: who holds which card.
#![forbid(unsafe_code)]

pub mod chart;
mod compact;
pub mod listing;
pub mod picture;
mod shell;
mod shown;
pub mod svg;
pub mod text;

pub use listing::{Lease, Listing};
pub use picture::Picture;
pub use shown::{escaped, shown, shown_lines};
