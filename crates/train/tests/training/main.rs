//! Trainings: learning, memory, checkpoints, refusals. One program, since each takes its time to link and its place on the disk.

mod files;
mod graphs;
mod out_of_memory;
mod towers;
mod training;
