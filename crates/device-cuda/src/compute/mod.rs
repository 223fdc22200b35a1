//! Cards that compute: a logical device takes a program, and a thread of the host pushes its commands on the device's stream: the caller's
//! where the program is the whole run, else one of the device's own.
//!
//! Addresses stay for as long as a run keeps its bindings, so the arguments of a launch are blocks and offsets. Guards, and the word in
//! which kernels leave faults, are read on the card. Queues of cards wait for each other by events ([`marks`]). The host waits for the card
//! where a queue has to wait for a processor's, where a copy goes to the host, and at the end: there it says how far the queue is. From the second use of its bindings on, a run launches graphs: one for
//! each stretch of commands between which the host has nothing to do ([`stretch`]), so most steps are one launch. Loops and branches
//! whose buffers are the card's are bodies of these graphs ([`bodies`]): the card decides whether they run.

mod bodies;
mod card;
mod copies;
mod device;
mod drafts;
mod executable;
mod graph_room;
mod loaded;
mod marks;
mod measured;
mod memory;
mod queue;
mod stretch;
mod timing;
mod words;

pub use card::CudaCard;
pub use device::CudaDevice;
pub use graph_room::GraphUse;
pub use measured::Measured;
