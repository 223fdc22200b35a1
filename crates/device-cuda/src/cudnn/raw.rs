//! cuDNN's backend as C has it: numbers and functions. From `cudnn_graph.h` of cuDNN 9.

use std::ffi::{c_char, c_int, c_void};

use crate::library::functions;

/// A descriptor.
pub(super) type Handle = *mut c_void;

/// `cudnnBackendDescriptorType_t`.
pub(super) mod kind {
    pub const POINTWISE: i32 = 0;
    pub const CONVOLUTION: i32 = 1;
    pub const ENGINE: i32 = 2;
    pub const ENGINE_CHOICE: i32 = 3;
    pub const HEURISTICS: i32 = 4;
    pub const PLAN: i32 = 5;
    pub const KNOB_CHOICE: i32 = 7;
    pub const FORWARD: i32 = 10;
    pub const BY_FILTER: i32 = 11;
    pub const BY_INPUT: i32 = 12;
    pub const ON_EACH: i32 = 13;
    pub const STATISTICS: i32 = 14;
    pub const GRAPH: i32 = 15;
    pub const ADDRESSES: i32 = 16;
    pub const TENSOR: i32 = 17;
    pub const PRODUCT: i32 = 18;
    pub const MULTIPLIED: i32 = 19;
    pub const REDUCTION: i32 = 21;
    pub const REDUCED: i32 = 22;
    pub const SEEN: i32 = 31;
    pub const PROPERTIES: i32 = 38;
    pub const ATTENTION: i32 = 41;
}

/// `cudnnBackendAttributeName_t`.
pub(super) mod attribute {
    pub const POINTWISE_MODE: i32 = 0;
    pub const POINTWISE_TYPE: i32 = 1;
    pub const POINTWISE_NAN: i32 = 2;
    pub const CONVOLUTION_TYPE: i32 = 100;
    pub const CONVOLUTION_MODE: i32 = 101;
    pub const DILATIONS: i32 = 102;
    pub const STRIDES: i32 = 103;
    pub const PADDING_BEHIND: i32 = 104;
    pub const PADDING_BEFORE: i32 = 105;
    pub const AXES: i32 = 106;
    pub const HEURISTICS_MODE: i32 = 200;
    pub const HEURISTICS_GRAPH: i32 = 201;
    pub const HEURISTICS_RESULTS: i32 = 202;
    pub const HEURISTICS_PROPERTIES: i32 = 204;
    pub const CHOICE_ENGINE: i32 = 300;
    pub const CHOICE_KNOBS: i32 = 302;
    pub const PLAN_HANDLE: i32 = 400;
    pub const PLAN_CHOICE: i32 = 401;
    pub const PLAN_WORKSPACE: i32 = 402;
    pub const PLAN_PROPERTIES: i32 = 407;
    pub const KNOB_TYPE: i32 = 600;
    pub const KNOB_VALUE: i32 = 601;
    pub const ON_EACH_OF: i32 = 750;
    pub const ON_EACH_FROM: i32 = 751;
    pub const ON_EACH_SECOND: i32 = 752;
    pub const ON_EACH_TO: i32 = 753;
    pub const ON_EACH_CHOICE: i32 = 758;
    pub const STATISTICS_MODE: i32 = 770;
    pub const STATISTICS_TYPE: i32 = 771;
    pub const STATISTICS_OF: i32 = 772;
    pub const STATISTICS_SUMS: i32 = 773;
    pub const STATISTICS_SQUARES: i32 = 774;
    pub const GRAPH_HANDLE: i32 = 800;
    pub const GRAPH_OPERATIONS: i32 = 801;
    pub const TENSOR_ALIGNMENT: i32 = 900;
    pub const TENSOR_TYPE: i32 = 901;
    pub const TENSOR_SIZES: i32 = 902;
    pub const TENSOR_STRIDES: i32 = 903;
    pub const TENSOR_NAME: i32 = 906;
    pub const TENSOR_IS_VIRTUAL: i32 = 907;
    pub const TENSOR_IS_BY_VALUE: i32 = 908;
    pub const ADDRESSES_NAMES: i32 = 1000;
    pub const ADDRESSES_OF: i32 = 1001;
    pub const ADDRESSES_WORKSPACE: i32 = 1003;
    pub const ENGINE_GRAPH: i32 = 1300;
    pub const ENGINE_INDEX: i32 = 1301;
    pub const ENGINE_NUMERICS: i32 = 1303;
    pub const ENGINE_BEHAVIOUR: i32 = 1305;
    pub const ENGINE_PROPERTIES: i32 = 1307;
    pub const PRODUCT_TYPE: i32 = 1500;
    pub const PRODUCT_A: i32 = 1520;
    pub const PRODUCT_B: i32 = 1521;
    pub const PRODUCT_TO: i32 = 1522;
    pub const PRODUCT_OF: i32 = 1523;
    pub const REDUCTION_OPERATOR: i32 = 1600;
    pub const REDUCTION_TYPE: i32 = 1601;
    pub const REDUCED_FROM: i32 = 1610;
    pub const REDUCED_TO: i32 = 1611;
    pub const REDUCED_BY: i32 = 1612;
    pub const SEEN_FROM: i32 = 2200;
    pub const SEEN_TO: i32 = 2201;
    pub const PROPERTIES_CARD: i32 = 2700;
    pub const PROPERTIES_JSON: i32 = 2702;
    pub const ATTENTION_Q: i32 = 2800;
    pub const ATTENTION_K: i32 = 2801;
    pub const ATTENTION_V: i32 = 2802;
    pub const ATTENTION_RESULT: i32 = 2803;
    pub const ATTENTION_SUMS: i32 = 2804;
    pub const ATTENTION_SCALE: i32 = 2805;
    pub const ATTENTION_GRAPH: i32 = 2811;
    pub const ATTENTION_GRAPH_FROM: i32 = 2812;
    pub const ATTENTION_GRAPH_TO: i32 = 2813;
}

/// `cudnnBackendAttributeType_t`.
pub(super) mod element {
    pub const HANDLE: i32 = 0;
    pub const DATA_TYPE: i32 = 1;
    pub const BOOLEAN: i32 = 2;
    pub const INT64: i32 = 3;
    pub const FLOAT: i32 = 4;
    pub const ADDRESS: i32 = 6;
    pub const CONVOLUTION_MODE: i32 = 7;
    pub const HEURISTICS_MODE: i32 = 8;
    pub const KNOB_TYPE: i32 = 9;
    pub const NAN: i32 = 10;
    pub const NUMERICAL_NOTE: i32 = 11;
    pub const POINTWISE_MODE: i32 = 14;
    pub const DESCRIPTOR: i32 = 15;
    pub const STATISTICS_MODE: i32 = 16;
    pub const REDUCTION_OPERATOR: i32 = 18;
    pub const BEHAVIOUR_NOTE: i32 = 19;
    pub const INT32: i32 = 23;
    pub const CHAR: i32 = 24;
}

/// `CUDNN_CROSS_CORRELATION`.
pub(super) const CROSS_CORRELATION: i32 = 1;
/// `CUDNN_GENSTATS_SUM_SQSUM`.
pub(super) const SUMS_AND_SQUARES: i32 = 0;
/// `CUDNN_HEUR_MODE_A`.
pub(super) const BY_MODEL: i32 = 3;
/// `CUDNN_NUMERICAL_NOTE_*`.
pub(super) const NOTE_TENSOR_CORE: i32 = 0;
pub(super) const NOTE_NONDETERMINISTIC: i32 = 4;
/// `CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP`: engine 0 has it, which sums in the plain order.
pub(super) const NOTE_REFERENCE: i32 = 9;
/// Inputs are rounded to fewer bits, sums are, or other sums are computed than the convolution's own: by FFT, or in one of Winograd's forms.
pub(super) const NOTES_OTHER_SUMS: [i32; 7] = [1, 2, 3, 5, 6, 7, 8];
/// `CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION`.
pub(super) const NOTE_COMPILES: i32 = 0;

/// `CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED` and `..._DEVICE_ALLOCATION_FAILED`.
pub(crate) const NO_MEMORY: [i32; 2] = [4003, 4004];

functions! {
    version: unsafe extern "C" fn() -> usize = c"cudnnGetVersion";
    text: unsafe extern "C" fn(c_int) -> *const c_char = c"cudnnGetErrorString";
    last_text: unsafe extern "C" fn(*mut c_char, usize) = c"cudnnGetLastErrorString";
    create: unsafe extern "C" fn(c_int, *mut Handle) -> c_int = c"cudnnBackendCreateDescriptor";
    destroy: unsafe extern "C" fn(Handle) -> c_int = c"cudnnBackendDestroyDescriptor";
    set: unsafe extern "C" fn(Handle, c_int, c_int, i64, *const c_void) -> c_int = c"cudnnBackendSetAttribute";
    get: unsafe extern "C" fn(Handle, c_int, c_int, i64, *mut i64, *mut c_void) -> c_int = c"cudnnBackendGetAttribute";
    finalize: unsafe extern "C" fn(Handle) -> c_int = c"cudnnBackendFinalize";
    open: unsafe extern "C" fn(*mut Handle) -> c_int = c"cudnnCreate";
    close: unsafe extern "C" fn(Handle) -> c_int = c"cudnnDestroy";
    set_stream: unsafe extern "C" fn(Handle, Handle) -> c_int = c"cudnnSetStream";
    execute: unsafe extern "C" fn(Handle, Handle, Handle) -> c_int = c"cudnnBackendExecute";
}
