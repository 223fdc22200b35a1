//! Files of TensorFlow. One program, since each takes its time to link and its place on the disk.

mod config;
mod devices;
mod golden;
mod graphs;
mod round_trip;
mod samples;
