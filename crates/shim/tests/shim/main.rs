//! Programs under the shim, on a driver without cards that knows what is used at every instant.

mod client;
mod counted;
mod line;
mod quiet;
mod rig;
mod ways;
