//! Operations: values, gradients, refusals. One program, since each takes its time to link and its place on the disk.

mod common;
mod gradients;
mod hostile_requests;
mod robust;
mod slices;
mod types;
mod values;
