//! What calls say: `cudnnStatus_t`.

use std::cell::RefCell;
use std::ffi::{CStr, c_int};

pub type Status = c_int;

pub const SUCCESS: Status = 0;
pub const NOT_INITIALIZED: Status = 1001;
pub const BAD: Status = 2000;
pub const NULL: Status = 2002;
pub const MISALIGNED: Status = 2003;
pub const NOT_FINISHED: Status = 2004;
pub const WRONG_TYPE: Status = 2010;
pub const NOT_SUPPORTED: Status = 3000;
pub const WRONG_CARD: Status = 3007;
pub const NO_HOST_MEMORY: Status = 4003;
pub const NO_CARD_MEMORY: Status = 4004;
pub const DRIVER: Status = 5001;

/// The name of a status.
pub fn name(status: Status) -> &'static CStr {
    match status {
        SUCCESS => c"CUDNN_STATUS_SUCCESS",
        NOT_INITIALIZED => c"CUDNN_STATUS_NOT_INITIALIZED",
        BAD => c"CUDNN_STATUS_BAD_PARAM",
        NULL => c"CUDNN_STATUS_BAD_PARAM_NULL_POINTER",
        MISALIGNED => c"CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER",
        NOT_FINISHED => c"CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED",
        WRONG_TYPE => c"CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE",
        NOT_SUPPORTED => c"CUDNN_STATUS_NOT_SUPPORTED",
        WRONG_CARD => c"CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH",
        NO_HOST_MEMORY => c"CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED",
        NO_CARD_MEMORY => c"CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
        DRIVER => c"CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER",
        _ => c"CUDNN_UNKNOWN_STATUS",
    }
}

thread_local! {
    /// What this thread's last failure was about.
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
}

/// The status of a call; a failure's words are kept for who asks.
pub fn said(answer: Result<(), (Status, String)>) -> Status {
    match answer {
        Ok(()) => SUCCESS,
        Err((status, why)) => {
            LAST.set(why);
            status
        }
    }
}

/// The words of this thread's last failure, once.
pub fn take_last() -> String {
    LAST.take()
}
