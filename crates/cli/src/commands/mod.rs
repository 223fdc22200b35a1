//! The commands.

pub mod bench;
pub mod calibrate;
pub mod devices;
pub mod doctor;
pub mod eval;
pub mod ops;
pub mod place;
pub mod plan;
pub mod run;
pub mod setup;
pub mod sweep;
pub mod train;
pub mod tune;
pub mod verify;
