//! Descriptors: values of cuDNN that are given attributes, and then finished.

use std::ffi::{CStr, c_char, c_void};
use std::sync::Arc;

use plimsoll_base::{Error, Result};

use super::raw::{Functions, Handle, NO_MEMORY, element};

/// The most elements of an attribute that is read here.
const MOST: usize = 64;

/// A descriptor; dropping it gives it back.
#[derive(Debug)]
pub(super) struct Descriptor {
    cudnn: Arc<Functions>,
    handle: Handle,
}

/// The error of a call.
pub(super) fn error(cudnn: &Functions, what: &str, status: i32) -> Error {
    let mut bytes = [0 as c_char; 512];
    if let Some(last) = cudnn.last_text {
        // SAFETY: it writes no more bytes than it is told, and ends them with a zero.
        unsafe { last(bytes.as_mut_ptr(), bytes.len()) };
    }
    // SAFETY: the bytes are numbers of one byte.
    let bytes = unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast::<u8>(), bytes.len()) };
    let last = CStr::from_bytes_until_nul(bytes).map_or_else(|_| String::new(), |text| text.to_string_lossy().trim().to_string());
    let name = cudnn.text.map_or_else(String::new, |text| {
        // SAFETY: it gives a text that stays, or null.
        let text = unsafe { text(status) };
        // SAFETY: as above; it ends with a zero.
        if text.is_null() { String::new() } else { unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned() }
    });
    let message = format!("cuDNN: {what}: {name} ({status}){}{last}", if last.is_empty() { "" } else { ": " });
    // Statuses from 3000 on say that it has no such thing; others that it was used wrongly, or cannot be used.
    match status {
        3000..4000 => Error::unimplemented(message),
        status if NO_MEMORY.contains(&status) => Error::resource_exhausted(message),
        _ => Error::failed_precondition(message),
    }
}

// SAFETY: a finished descriptor does not change, and may be read and given back from any thread.
unsafe impl Send for Descriptor {}
// SAFETY: as above.
unsafe impl Sync for Descriptor {}

impl Descriptor {
    pub fn new(cudnn: &Arc<Functions>, kind: i32, what: &str) -> Result<Descriptor> {
        let mut handle = std::ptr::null_mut();
        let create = cudnn.create.ok_or_else(|| Error::failed_precondition("this cuDNN makes no descriptors: it is too old"))?;
        // SAFETY: by cuDNN's documentation it writes a handle there.
        match unsafe { create(kind, &mut handle) } {
            0 => Ok(Descriptor { cudnn: cudnn.clone(), handle }),
            status => Err(error(cudnn, what, status)),
        }
    }

    fn set(&self, attribute: i32, element: i32, count: usize, from: *const c_void) -> Result<()> {
        let set = self.cudnn.set.ok_or_else(|| Error::failed_precondition("this cuDNN sets no attributes: it is too old"))?;
        // SAFETY: so many elements of that type are there; cuDNN copies them.
        match unsafe { set(self.handle, attribute, element, count as i64, from) } {
            0 => Ok(()),
            status => Err(error(&self.cudnn, &format!("attribute {attribute}"), status)),
        }
    }

    pub fn integers(&self, attribute: i32, values: &[i64]) -> Result<()> {
        self.set(attribute, element::INT64, values.len(), values.as_ptr().cast())
    }

    pub fn float(&self, attribute: i32, value: f32) -> Result<()> {
        self.set(attribute, element::FLOAT, 1, (&raw const value).cast())
    }

    pub fn bool(&self, attribute: i32, value: bool) -> Result<()> {
        self.set(attribute, element::BOOLEAN, 1, (&raw const value).cast())
    }

    /// A number of 4 bytes: of an enumeration, or of that type of elements.
    pub fn number(&self, attribute: i32, element: i32, value: i32) -> Result<()> {
        self.set(attribute, element, 1, (&raw const value).cast())
    }

    pub fn text(&self, attribute: i32, text: &str) -> Result<()> {
        self.set(attribute, element::CHAR, text.len(), text.as_ptr().cast())
    }

    /// Other descriptors, which this one keeps.
    pub fn descriptors(&self, attribute: i32, others: &[&Descriptor]) -> Result<()> {
        let handles: Vec<Handle> = others.iter().map(|other| other.handle).collect();
        self.set(attribute, element::DESCRIPTOR, handles.len(), handles.as_ptr().cast())
    }

    /// cuDNN's own handle, or addresses of a card.
    pub fn addresses(&self, attribute: i32, element: i32, values: &[u64]) -> Result<()> {
        self.set(attribute, element, values.len(), values.as_ptr().cast())
    }

    /// cuDNN's handle of it, which lives as long as it.
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// Finishes it: cuDNN looks at it as a whole.
    pub fn finish(self, what: &str) -> Result<Descriptor> {
        let finalize = self.cudnn.finalize.ok_or_else(|| Error::failed_precondition("this cuDNN finishes nothing: it is too old"))?;
        // SAFETY: the handle is a descriptor's.
        match unsafe { finalize(self.handle) } {
            0 => Ok(self),
            status => Err(error(&self.cudnn, what, status)),
        }
    }

    /// Reads at most `most` elements to a place for as many; how many there are.
    fn get(&self, attribute: i32, element: i32, most: usize, to: *mut c_void) -> Result<usize> {
        let get = self.cudnn.get.ok_or_else(|| Error::failed_precondition("this cuDNN says no attributes: it is too old"))?;
        let mut count = 0;
        // SAFETY: there is a place for so many elements of that type.
        match unsafe { get(self.handle, attribute, element, most as i64, &mut count, to) } {
            0 => Ok(usize::try_from(count).unwrap_or(0)),
            status => Err(error(&self.cudnn, &format!("attribute {attribute}"), status)),
        }
    }

    pub fn integer(&self, attribute: i32) -> Result<i64> {
        let mut value = 0i64;
        self.get(attribute, element::INT64, 1, (&raw mut value).cast()).map(|_| value)
    }

    /// A number of 4 bytes: of an enumeration.
    pub fn read_number(&self, attribute: i32, element: i32) -> Result<i32> {
        let mut value = 0i32;
        self.get(attribute, element, 1, (&raw mut value).cast()).map(|_| value)
    }

    /// Numbers of an enumeration.
    pub fn numbers(&self, attribute: i32, element: i32) -> Result<Vec<i32>> {
        let mut values = [0i32; MOST];
        let count = self.get(attribute, element, MOST, values.as_mut_ptr().cast())?;
        Ok(values[..count.min(MOST)].to_vec())
    }

    pub fn read_text(&self, attribute: i32) -> Result<String> {
        let bytes = self.get(attribute, element::CHAR, 0, std::ptr::null_mut())?;
        let mut text = vec![0u8; bytes];
        let count = self.get(attribute, element::CHAR, bytes, text.as_mut_ptr().cast())?;
        text.truncate(count);
        while text.last() == Some(&0) {
            text.pop();
        }
        String::from_utf8(text).map_err(|_| Error::failed_precondition("cuDNN: a text that is not UTF-8"))
    }

    /// At most so many descriptors of a kind. Not of every attribute cuDNN says beforehand how many there are.
    pub fn read_descriptors(&self, attribute: i32, kind: i32, most: usize) -> Result<Vec<Descriptor>> {
        let mut read: Vec<Descriptor> = (0..most).map(|_| Descriptor::new(&self.cudnn, kind, "a result")).collect::<Result<_>>()?;
        let mut handles: Vec<Handle> = read.iter().map(|descriptor| descriptor.handle).collect();
        let count = self.get(attribute, element::DESCRIPTOR, handles.len(), handles.as_mut_ptr().cast())?;
        read.truncate(count);
        Ok(read)
    }

    /// The one descriptor of a kind.
    pub fn read_descriptor(&self, attribute: i32, kind: i32) -> Result<Descriptor> {
        let read = Descriptor::new(&self.cudnn, kind, "a result")?;
        let mut handle = read.handle;
        self.get(attribute, element::DESCRIPTOR, 1, (&raw mut handle).cast())?;
        Ok(read)
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        if let Some(destroy) = self.cudnn.destroy {
            // SAFETY: the handle is a descriptor's, which ends here.
            unsafe { destroy(self.handle) };
        }
    }
}
