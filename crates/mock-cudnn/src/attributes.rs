//! The attributes of descriptors: their elements, and how many.

use std::ffi::c_int;

/// `cudnnBackendDescriptorType_t`.
pub mod kind {
    use super::c_int;

    pub const POINTWISE: c_int = 0;
    pub const WINDOW: c_int = 1;
    pub const ENGINE: c_int = 2;
    pub const CHOICE: c_int = 3;
    pub const HEURISTICS: c_int = 4;
    pub const PLAN: c_int = 5;
    pub const KNOB: c_int = 7;
    pub const FORWARD: c_int = 10;
    pub const BY_FILTER: c_int = 11;
    pub const BY_INPUT: c_int = 12;
    pub const ON_EACH: c_int = 13;
    pub const STATISTICS: c_int = 14;
    pub const GRAPH: c_int = 15;
    pub const PACK: c_int = 16;
    pub const TENSOR: c_int = 17;
    pub const PRODUCT: c_int = 18;
    pub const MULTIPLIED: c_int = 19;
    pub const REDUCTION: c_int = 21;
    pub const REDUCED: c_int = 22;
    pub const SEEN: c_int = 31;
    pub const PROPERTIES: c_int = 38;
    pub const ATTENTION: c_int = 41;

    pub const ALL: [c_int; 22] = [
        POINTWISE, WINDOW, ENGINE, CHOICE, HEURISTICS, PLAN, KNOB, FORWARD, BY_FILTER, BY_INPUT, ON_EACH, STATISTICS, GRAPH, PACK, TENSOR,
        PRODUCT, MULTIPLIED, REDUCTION, REDUCED, SEEN, PROPERTIES, ATTENTION,
    ];
}

/// The type of an attribute's elements, by its number in `cudnnBackendAttributeType_t`, and their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Element(pub c_int, pub usize);

pub const HANDLE: Element = Element(0, 8);
pub const TYPE: Element = Element(1, 4);
pub const BOOLEAN: Element = Element(2, 1);
pub const INTEGER: Element = Element(3, 8);
pub const FLOAT: Element = Element(4, 4);
pub const ADDRESS: Element = Element(6, 8);
pub const CONVOLUTION_MODE: Element = Element(7, 4);
pub const HEURISTICS_MODE: Element = Element(8, 4);
pub const KNOB_TYPE: Element = Element(9, 4);
pub const NAN: Element = Element(10, 4);
pub const POINTWISE_MODE: Element = Element(14, 4);
pub const NUMERICAL_NOTE: Element = Element(11, 4);
pub const DESCRIPTOR: Element = Element(15, 8);
pub const STATISTICS_MODE: Element = Element(16, 4);
pub const BEHAVIOUR_NOTE: Element = Element(19, 4);
pub const REDUCTION_OPERATOR: Element = Element(18, 4);
pub const INTEGER_4: Element = Element(23, 4);
pub const CHARACTER: Element = Element(24, 1);

/// An attribute of a kind of descriptors.
#[derive(Clone, Copy, Debug)]
pub struct Attribute {
    pub element: Element,
    /// Whether it is a list; others have one element.
    pub is_list: bool,
}

/// What an attribute is; none where the kind has no such attribute.
pub fn attribute(of: c_int, name: c_int) -> Option<Attribute> {
    let first = first_of(of);
    let (element, is_list) = match (of, name) {
        (kind::POINTWISE, 0) => (POINTWISE_MODE, false),
        (kind::POINTWISE, 1) | (kind::WINDOW, 100) => (TYPE, false),
        (kind::POINTWISE, 2) => (NAN, false),
        (kind::ON_EACH, 750..=753 | 758) | (kind::STATISTICS, 772..=774) => (DESCRIPTOR, false),
        (kind::STATISTICS, 770) => (STATISTICS_MODE, false),
        (kind::STATISTICS, 771) => (TYPE, false),
        (kind::PRODUCT, 1500) | (kind::REDUCTION, 1601) => (TYPE, false),
        (kind::REDUCTION, 1600) => (REDUCTION_OPERATOR, false),
        (kind::MULTIPLIED, 1520..=1523) | (kind::REDUCED, 1610..=1612) | (kind::SEEN, 2200 | 2201) => (DESCRIPTOR, false),
        (kind::ATTENTION, 2800..=2805 | 2811) => (DESCRIPTOR, false),
        (kind::ATTENTION, 2812 | 2813) => (INTEGER, false),
        (kind::WINDOW, 101) => (CONVOLUTION_MODE, false),
        (kind::WINDOW, 102..=105) => (INTEGER, true),
        (kind::WINDOW, 106) | (kind::ENGINE, 1301) | (kind::PLAN, 402) | (kind::KNOB, 601) | (kind::TENSOR, 900 | 906) => (INTEGER, false),
        (kind::HEURISTICS, 200) => (HEURISTICS_MODE, false),
        (kind::HEURISTICS, 201 | 204) | (kind::CHOICE, 300) | (kind::PLAN, 401 | 407) | (kind::ENGINE, 1300 | 1307) => (DESCRIPTOR, false),
        (kind::HEURISTICS, 202) | (kind::CHOICE, 302) | (kind::GRAPH, 801) => (DESCRIPTOR, true),
        (kind::PLAN, 400) | (kind::GRAPH, 800) => (HANDLE, false),
        (kind::KNOB, 600) => (KNOB_TYPE, false),
        (kind::FORWARD | kind::BY_FILTER | kind::BY_INPUT, _) if (first..first + 2).contains(&name) => (FLOAT, false),
        (kind::FORWARD | kind::BY_FILTER | kind::BY_INPUT, _) if (first + 2..first + 6).contains(&name) => (DESCRIPTOR, false),
        (kind::TENSOR, 901) => (TYPE, false),
        (kind::TENSOR, 902 | 903) | (kind::PACK, 1000) => (INTEGER, true),
        (kind::TENSOR, 907 | 908) => (BOOLEAN, false),
        (kind::PACK, 1001) => (ADDRESS, true),
        (kind::PACK, 1003) => (ADDRESS, false),
        (kind::ENGINE, 1303) => (NUMERICAL_NOTE, true),
        (kind::ENGINE, 1305) => (BEHAVIOUR_NOTE, true),
        (kind::PROPERTIES, 2700) => (INTEGER_4, false),
        (kind::PROPERTIES, 2702) => (CHARACTER, true),
        _ => return None,
    };
    Some(Attribute { element, is_list })
}

/// The first attribute of a convolution's kind: alpha, beta, window, filter, input and result follow each other.
pub fn first_of(of: c_int) -> c_int {
    match of {
        kind::BY_INPUT => 706,
        kind::BY_FILTER => 712,
        _ => 700,
    }
}
