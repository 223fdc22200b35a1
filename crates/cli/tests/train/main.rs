//! `plimsoll train` from the outside. One program, since each takes its time to link and its place on the disk.

mod builtin;
mod common;
mod model;
mod networks;
