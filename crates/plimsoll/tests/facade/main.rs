//! The facade: sessions, checkpoints, several models. One program, since each takes its time to link and its place on the disk.

mod bound;
mod configuration;
mod file;
mod freeze;
mod saver;
mod session;
mod several;
mod softened;
mod stored;
