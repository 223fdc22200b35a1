//! Programs under the shim, on a driver without cards that knows the use at every instant.

mod client;
mod counted;
mod line;
mod quiet;
mod rig;
mod ways;
