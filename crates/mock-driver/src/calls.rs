//! How often a program has called the functions that runs use.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char};
use std::sync::{Mutex, PoisonError};

static CALLS: Mutex<BTreeMap<&str, u64>> = Mutex::new(BTreeMap::new());

/// Counts a call of a function.
pub fn note(function: &'static str) {
    *CALLS.lock().unwrap_or_else(PoisonError::into_inner).entry(function).or_default() += 1;
}

/// How often this process has called a function of this library, by the name in `cuda.h`, or with null all that are counted. For tests,
/// which look for it in the library that they have opened.
///
/// # Safety
/// The name is null or ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_mock_calls(function: *const c_char) -> u64 {
    let calls = CALLS.lock().unwrap_or_else(PoisonError::into_inner);
    if function.is_null() {
        return calls.values().sum();
    }
    // SAFETY: the caller's promise.
    let function = unsafe { CStr::from_ptr(function) };
    function.to_str().ok().and_then(|function| calls.get(function)).copied().unwrap_or(0)
}
