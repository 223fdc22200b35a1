//! Plans and placements. One program, since each takes its time to link and its place on the disk.

mod attending;
mod buckets;
mod clock;
mod convolutions;
mod half;
mod laid_out;
mod libraries;
mod placement;
mod placer;
mod placing;
mod plans;
