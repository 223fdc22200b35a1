//! Streams and events.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

use super::raw::{self, Handle, Trouble};
use super::{Argument, Context, CudaDriver, Function, Pinned, call};

/// A queue of a card: what is pushed runs in order. The calling thread is in the card's context.
#[derive(Debug)]
pub(crate) struct Stream {
    driver: Arc<CudaDriver>,
    handle: Handle,
    /// For [`Stream::synchronize`].
    end: Event,
}

// SAFETY: a stream may be used from any thread, several at a time.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    /// A stream; among those that are ready, work of a smaller priority goes first.
    pub fn new(driver: &Arc<CudaDriver>, priority: i32) -> Result<Stream, Trouble> {
        let end = Event::new(driver)?;
        let mut handle = std::ptr::null_mut();
        call!(driver, stream_create(&mut handle, raw::STREAM, priority as c_int))?;
        Ok(Stream { driver: driver.clone(), handle, end })
    }

    /// The driver's handle.
    pub(crate) fn handle(&self) -> Handle {
        self.handle
    }

    /// Fills bytes of the card.
    pub fn set_bytes(&self, address: u64, value: u8, bytes: u64) -> Result<(), Trouble> {
        if bytes == 0 {
            return Ok(());
        }
        call!(self.driver, set_bytes(address, value, bytes as usize, self.handle))
    }

    /// Copies pinned memory to the card.
    pub fn copy_in(&self, address: u64, from: &Pinned, offset: usize, bytes: usize) -> Result<(), Trouble> {
        call!(self.driver, copy_in(address, from.at(offset, bytes).cast(), bytes, self.handle))
    }

    /// Copies from the card to pinned memory.
    pub fn copy_out(&self, to: &Pinned, offset: usize, address: u64, bytes: usize) -> Result<(), Trouble> {
        call!(self.driver, copy_out(to.at(offset, bytes).cast(), address, bytes, self.handle))
    }

    /// Copies in the card's memory.
    pub fn copy(&self, to: u64, from: u64, bytes: u64) -> Result<(), Trouble> {
        call!(self.driver, copy(to, from, bytes as usize, self.handle))
    }

    /// Copies from another card's memory, or to it. The driver chooses the way.
    pub fn copy_across(&self, (to, onto): (u64, &Context), (from, of): (u64, &Context), bytes: u64) -> Result<(), Trouble> {
        call!(self.driver, copy_across(to, onto.handle(), from, of.handle(), bytes as usize, self.handle))
    }

    /// What is pushed from now on waits for what was before the mark when it was last recorded, on whichever card that is.
    pub fn wait(&self, event: &Event) -> Result<(), Trouble> {
        call!(self.driver, stream_wait(self.handle, event.handle, 0))
    }

    /// Launches a kernel of blocks in one dimension. The arguments are as it declares them; addresses among them are those of memory
    /// that lives until it has run.
    pub fn launch(&self, function: Function, blocks: u32, threads: u32, arguments: &mut [Argument]) -> Result<(), Trouble> {
        let mut places: [*mut c_void; raw::MOST_ARGUMENTS] = [std::ptr::null_mut(); raw::MOST_ARGUMENTS];
        for (place, argument) in places.iter_mut().zip(arguments.iter_mut()) {
            *place = (&raw mut *argument).cast();
        }
        let null = std::ptr::null_mut();
        let places = places.as_mut_ptr();
        call!(self.driver, launch(function.0, blocks, 1, 1, threads, 1, 1, 0, self.handle, places, null))
    }

    /// Sleeps until all that was pushed has run.
    pub fn synchronize(&mut self) -> Result<(), Trouble> {
        self.end.record(self)?;
        self.end.synchronize()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // The driver ends it when its work is over.
        let _ = call!(self.driver, stream_destroy(self.handle));
    }
}

/// A mark in a stream that can be waited for.
#[derive(Debug)]
pub(crate) struct Event {
    driver: Arc<CudaDriver>,
    handle: Handle,
}

// SAFETY: an event may be used from any thread, several at a time.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// A mark that is nowhere, and so passed.
    pub fn new(driver: &Arc<CudaDriver>) -> Result<Event, Trouble> {
        Event::with(driver, raw::EVENT)
    }

    /// The same, which also keeps when a stream came to it.
    pub fn timed(driver: &Arc<CudaDriver>) -> Result<Event, Trouble> {
        Event::with(driver, raw::TIMED_EVENT)
    }

    fn with(driver: &Arc<CudaDriver>, flags: c_uint) -> Result<Event, Trouble> {
        let mut handle = std::ptr::null_mut();
        call!(driver, event_create(&mut handle, flags))?;
        Ok(Event { driver: driver.clone(), handle })
    }

    /// Seconds of the card from another mark to this one, which streams have passed. Both keep the time.
    pub fn seconds_since(&self, other: &Event) -> Result<f64, Trouble> {
        let mut milliseconds = 0f32;
        call!(self.driver, event_elapsed(&mut milliseconds, other.handle, self.handle))?;
        Ok(f64::from(milliseconds) * 1e-3)
    }

    /// Puts it behind what the stream has now.
    pub fn record(&self, stream: &Stream) -> Result<(), Trouble> {
        call!(self.driver, event_record(self.handle, stream.handle))
    }

    /// Sleeps until the stream is there.
    pub fn synchronize(&self) -> Result<(), Trouble> {
        call!(self.driver, event_synchronize(self.handle))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let _ = call!(self.driver, event_destroy(self.handle));
    }
}
