//! A cuDNN without cards, for tests: the part of its backend that convolutions and attention need, beside the mock driver of the same folder.
//!
//! Descriptors are checked as cuDNN 9 checks them, with its statuses: `device-cuda/tests/computing/descriptors.rs` asks both. It plans for
//! the card whose properties it is given, as JSON, and for the card of a handle. It offers a few engines for each convolution: one that is
//! not deterministic, one with a large workspace, one for tensor cores, one with full floats, and the plain one without a workspace. Their
//! notes and their workspaces are such as cuDNN's are. Of what is computed behind a convolution it has engines for a bias, as cuDNN 9.26
//! has. Some engines cuDNN compiles where there is a driver: here those for a ReLU's gradient behind a convolution or its gradient by the input,
//! for sums of channels, for attention, and for its gradient as on an H100. What an engine computes it computes on the mock driver's stream, from the sizes
//! and strides of the descriptors; before, it overwrites its workspace. Tensor cores round floats to TF32.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]
#![allow(non_snake_case, reason = "cuDNN's functions keep their names")]

mod attention;
mod attributes;
mod behind;
mod calls;
mod convolution;
mod descriptor;
mod driver;
mod engines;
mod finish;
mod run;
mod status;
