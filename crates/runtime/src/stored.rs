//! Values of variables that are in files: a session reads them when a plan first needs the variables.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_base::{Bytes, DataType, Error, Result};
use plimsoll_device::Device;
use plimsoll_graph::Shape;
use plimsoll_plan::{PlanVariable, loading_buffer};

use crate::variables::Storage;

/// Files with values of variables.
pub trait Stored: Send + Sync {
    /// Bytes that are held beside the variable while its value is read, at least one; none where there is no value for it.
    fn buffer(&self, variable: &PlanVariable) -> Option<Bytes>;

    /// The variables that have a value here.
    ///
    /// # Errors
    /// The flaw of the files.
    fn variables(&self) -> Result<Vec<StoredVariable>>;

    /// Reads a value as [`Stored::read`] does, whatever its type and shape.
    ///
    /// # Errors
    /// NOT_FOUND where there is no value; the flaw of the file.
    fn read_key(&self, key: &str, buffer: &mut [u8], give: &mut dyn FnMut(u64, &[u8]) -> Result<()>) -> Result<()>;

    /// Whether the value takes the place of one that the variable has already; it does so once.
    fn overrides(&self, variable: &PlanVariable) -> bool;

    /// Whether it does so for the variable of that key.
    fn overrides_key(&self, key: &str) -> bool;

    /// Whether several threads may read values through parts of one buffer. Else each value gets the whole of it.
    fn divides_buffer(&self) -> bool;

    /// Reads the value, of the variable's type and shape, through `buffer`, which is as large as [`Stored::buffer`] says at
    /// least: `give` gets every piece with its offset.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for another type or shape; the flaw of the file.
    fn read(&self, variable: &PlanVariable, buffer: &mut [u8], give: &mut dyn FnMut(u64, &[u8]) -> Result<()>) -> Result<()>;
}

/// A variable with a value in files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredVariable {
    /// The key of the variable in a session.
    pub key: String,
    /// The node's name.
    pub name: String,
    /// The element type in the file.
    pub data_type: DataType,
    /// The shape in the file.
    pub shape: Shape,
}

/// Marks the variables of a plan that have a value in files, but for those that the plan assigns before it reads them.
pub(crate) fn mark(variables: &mut [PlanVariable], stored: &dyn Stored) {
    let is_assigned_first = |variable: &PlanVariable| variable.assigned_by.is_some() && variable.read_first_by.is_none();
    for variable in variables.iter_mut().filter(|variable| !is_assigned_first(variable)) {
        variable.stored = stored.buffer(variable);
    }
}

/// Gives variables without a value theirs. The buffer counts under the line of `host`.
///
/// # Errors
/// RESOURCE_EXHAUSTED where the line has no room for the buffer; the error of reading. A variable is then without a value.
pub(crate) fn load(wanted: &[(PlanVariable, Storage)], stored: &dyn Stored, host: &Arc<dyn Device>, holder: &str) -> Result<()> {
    let bytes = loading_buffer(wanted.iter().map(|(variable, _)| variable));
    let read = |(variable, storage): &(PlanVariable, Storage), buffer: &mut [u8]| {
        let mut give = |offset: u64, piece: &[u8]| storage.write_piece(offset, piece);
        stored.read(variable, buffer, &mut give).map_err(|error| error.at_node(&variable.name))?;
        storage.set_loaded();
        Ok(())
    };
    with_exact_buffer(host, bytes, holder, |buffer| {
        let whole: u64 = wanted.iter().map(|(variable, _)| variable.bytes.0).sum();
        let threads = match stored.divides_buffer() && whole >= WORTH_THREADS {
            true => (host.spec().threads as usize).min(wanted.len()).min(buffer.len() / LEAST_PART),
            false => 1,
        };
        if threads <= 1 {
            return wanted.iter().try_for_each(|one| read(one, buffer));
        }
        in_parallel(wanted, buffer, threads, &read)
    })
}

/// Values of fewer bytes in all are read by one thread.
const WORTH_THREADS: u64 = 8 << 20;

/// The least part of a buffer that a thread reads through.
const LEAST_PART: usize = 8 << 10;

/// Reads values by several threads, each through a part of the buffer. Where several fail, the error is that of the first of them in
/// the order of the values.
fn in_parallel<T: Sync>(
    values: &[T],
    buffer: &mut [u8],
    threads: usize,
    read: &(impl Fn(&T, &mut [u8]) -> Result<()> + Sync),
) -> Result<()> {
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(None::<(usize, Error)>));
    let work = |part: &mut [u8]| {
        while failed.lock().unwrap_or_else(PoisonError::into_inner).is_none() {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(value) = values.get(index) else { return };
            if let Err(error) = read(value, part) {
                let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                if failed.as_ref().is_none_or(|(first, _)| index < *first) {
                    *failed = Some((index, error));
                }
            }
        }
    };
    let work = &work;
    let mut parts = buffer.chunks_exact_mut(buffer.len() / threads);
    let own = parts.next();
    std::thread::scope(|scope| {
        for part in parts.take(threads - 1) {
            // Where the system has no thread left, the others do its part.
            let _ = std::thread::Builder::new().name("plimsoll-load".to_string()).spawn_scoped(scope, move || work(part));
        }
        own.into_iter().for_each(work);
    });
    failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), |(_, error)| Err(error))
}

/// Does something with a buffer that counts under the line of `host`: of `most` bytes, or fewer where there is less room.
///
/// # Errors
/// RESOURCE_EXHAUSTED where there is no room for the smallest reservation; the error of `action`.
pub(crate) fn with_buffer(
    host: &Arc<dyn Device>,
    most: Bytes,
    holder: &str,
    mut action: impl FnMut(&mut [u8]) -> Result<()>,
) -> Result<()> {
    let least = Bytes(host.spec().granularity);
    let mut bytes = most.max(Bytes(1));
    loop {
        // A failure after the buffer was granted is not tried again.
        let mut granted = false;
        let result = with_exact_buffer(host, bytes, holder, |buffer| {
            granted = true;
            action(buffer)
        });
        match result {
            Err(error) if !granted && error.is_no_room() && bytes > least => bytes = Bytes(bytes.0 / 2).max(least),
            result => return result,
        }
    }
}

fn with_exact_buffer(host: &Arc<dyn Device>, bytes: Bytes, holder: &str, action: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<()> {
    let mut loan = host.lend(&format!("{holder}: loading of variables"));
    loan.set(host.spec().reserved(bytes)).map_err(Error::from)?;
    let length = usize::try_from(bytes.0).map_err(|_| Error::internal("a buffer larger than an address space"))?;
    action(&mut vec![0; length])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_read_each_value_once_and_fail_as_one_would() {
        for threads in 1..5 {
            let values: Vec<AtomicUsize> = (0..100).map(|_| AtomicUsize::new(0)).collect();
            let mut buffer = vec![0; 70];
            let read = |value: &AtomicUsize, part: &mut [u8]| {
                assert_eq!(part.len(), 70 / threads);
                value.fetch_add(1, Ordering::SeqCst);
                Ok(())
            };
            in_parallel(&values, &mut buffer, threads, &read).unwrap();
            assert!(values.iter().all(|value| value.load(Ordering::SeqCst) == 1));
            let numbers: Vec<usize> = (0..100).collect();
            let fail = |number: &usize, _: &mut [u8]| match number {
                17..=19 => Err(Error::data_loss(number.to_string())),
                _ => Ok(()),
            };
            let error = in_parallel(&numbers, &mut buffer, threads, &fail).unwrap_err();
            assert_eq!(error.message(), "17");
        }
    }
}
