//! Sessions on devices: values, memory, order, refusals. One program, since each takes its time to link and its place on the disk.

mod auto;
mod branches;
mod buckets;
mod cancel;
mod constants;
mod first_fit;
mod fitted_loops;
mod freeze;
mod halves;
mod host_memory;
mod hostile;
mod lanes;
mod mutated_loops;
mod out_of_memory;
mod plan_files;
mod profile;
mod random_graphs;
mod room;
mod s_table;
mod session;
mod several;
mod soften;
mod softmaxes;
mod stages;
mod stats;
mod transfers;
