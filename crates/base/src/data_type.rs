//! TensorFlow's element types, with their wire numbers (`types.proto`).

use std::fmt;

macro_rules! data_types {
    ($($variant:ident = $number:literal, $name:literal, $bytes:expr;)*) => {
        /// The element type of a tensor.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        #[expect(missing_docs, reason = "the names are TensorFlow's")]
        pub enum DataType { $($variant = $number,)* }

        impl DataType {
            /// Every type, in the order of the wire numbers.
            pub const ALL: &'static [DataType] = &[$(DataType::$variant,)*];

            /// The type with this wire number; none for DT_INVALID, references and numbers not in use.
            pub fn from_number(number: i32) -> Option<DataType> {
                match number { $($number => Some(DataType::$variant),)* _ => None }
            }

            /// TensorFlow's lower-case name: `float`, `int32`, `half`.
            pub fn name(self) -> &'static str {
                match self { $(DataType::$variant => $name,)* }
            }

            /// The type of that lower-case name.
            pub fn from_name(name: &str) -> Option<DataType> {
                match name { $($name => Some(DataType::$variant),)* _ => None }
            }

            /// Bytes an element takes in memory; `None` where elements have no fixed size (string, resource, variant).
            pub fn size(self) -> Option<usize> {
                match self { $(DataType::$variant => $bytes,)* }
            }
        }
    };
}

data_types! {
    Float = 1, "float", Some(4);
    Double = 2, "double", Some(8);
    Int32 = 3, "int32", Some(4);
    Uint8 = 4, "uint8", Some(1);
    Int16 = 5, "int16", Some(2);
    Int8 = 6, "int8", Some(1);
    String = 7, "string", None;
    Complex64 = 8, "complex64", Some(8);
    Int64 = 9, "int64", Some(8);
    Bool = 10, "bool", Some(1);
    Qint8 = 11, "qint8", Some(1);
    Quint8 = 12, "quint8", Some(1);
    Qint32 = 13, "qint32", Some(4);
    Bfloat16 = 14, "bfloat16", Some(2);
    Qint16 = 15, "qint16", Some(2);
    Quint16 = 16, "quint16", Some(2);
    Uint16 = 17, "uint16", Some(2);
    Complex128 = 18, "complex128", Some(16);
    Half = 19, "half", Some(2);
    Resource = 20, "resource", None;
    Variant = 21, "variant", None;
    Uint32 = 22, "uint32", Some(4);
    Uint64 = 23, "uint64", Some(8);
    Float8E5m2 = 24, "float8_e5m2", Some(1);
    Float8E4m3fn = 25, "float8_e4m3fn", Some(1);
    Float8E4m3fnuz = 26, "float8_e4m3fnuz", Some(1);
    Float8E4m3b11fnuz = 27, "float8_e4m3b11fnuz", Some(1);
    Float8E5m2fnuz = 28, "float8_e5m2fnuz", Some(1);
    Int4 = 29, "int4", Some(1);
    Uint4 = 30, "uint4", Some(1);
    Int2 = 31, "int2", Some(1);
    Uint2 = 32, "uint2", Some(1);
    Float4E2m1fn = 33, "float4_e2m1fn", Some(1);
}

impl DataType {
    /// The wire number.
    pub fn number(self) -> i32 {
        self as i32
    }

    /// The enumerator as protobuf's text form spells it: `DT_FLOAT`.
    pub fn enumerator(self) -> String {
        format!("DT_{}", self.name().to_ascii_uppercase())
    }

    /// Whether elements are float, double, half, bfloat16 or an 8- or 4-bit float.
    pub fn is_floating(self) -> bool {
        use DataType::*;
        matches!(
            self,
            Float
                | Double
                | Half
                | Bfloat16
                | Float8E5m2
                | Float8E4m3fn
                | Float8E4m3fnuz
                | Float8E4m3b11fnuz
                | Float8E5m2fnuz
                | Float4E2m1fn
        )
    }

    /// Whether elements are integers (not quantised, not bool).
    pub fn is_integer(self) -> bool {
        use DataType::*;
        matches!(self, Int32 | Uint8 | Int16 | Int8 | Int64 | Uint16 | Uint32 | Uint64 | Int4 | Uint4 | Int2 | Uint2)
    }

    /// Whether elements are complex numbers.
    pub fn is_complex(self) -> bool {
        self.part().is_some()
    }

    /// The type of the real and of the imaginary part of a complex type, which lie in this order.
    pub fn part(self) -> Option<DataType> {
        match self {
            DataType::Complex64 => Some(DataType::Float),
            DataType::Complex128 => Some(DataType::Double),
            _ => None,
        }
    }

    /// The complex type with parts of this type.
    pub fn pair(self) -> Option<DataType> {
        match self {
            DataType::Float => Some(DataType::Complex64),
            DataType::Double => Some(DataType::Complex128),
            _ => None,
        }
    }

    /// The type that numbers of this type are computed and summed in: `float` for floats of two bytes, else the type itself.
    pub fn compute_type(self) -> DataType {
        match self {
            DataType::Half | DataType::Bfloat16 => DataType::Float,
            other => other,
        }
    }

    /// Bytes of a number of an element, whose order machines choose: half of a complex element, else all of it. `None` where elements
    /// have no fixed size.
    pub fn number_size(self) -> Option<usize> {
        self.part().unwrap_or(self).size()
    }

    /// Bytes that `elements` elements take; `None` on overflow or where elements have no fixed size.
    pub fn bytes_of(self, elements: u64) -> Option<u64> {
        elements.checked_mul(self.size()? as u64)
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The type of an argument: a data type, or a reference to a variable of that type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ArgType {
    /// The element type.
    pub base: DataType,
    /// Whether it is a reference.
    pub is_ref: bool,
}

impl ArgType {
    /// A value of `base`.
    pub const fn value(base: DataType) -> ArgType {
        ArgType { base, is_ref: false }
    }

    /// A reference to a variable of `base`.
    pub const fn reference(base: DataType) -> ArgType {
        ArgType { base, is_ref: true }
    }

    /// From the wire, where a reference is the type's number plus 100.
    pub fn from_number(number: i32) -> Option<ArgType> {
        match number {
            101.. => DataType::from_number(number - 100).map(ArgType::reference),
            _ => DataType::from_number(number).map(ArgType::value),
        }
    }

    /// The wire number.
    pub fn number(self) -> i32 {
        self.base.number() + if self.is_ref { 100 } else { 0 }
    }
}

impl fmt::Display for ArgType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.base.name(), if self.is_ref { "_ref" } else { "" })
    }
}

/// Written as TensorFlow's name.
#[cfg(feature = "serde")]
impl serde::Serialize for DataType {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for DataType {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<DataType, D::Error> {
        let name = <String as serde::Deserialize>::deserialize(deserializer)?;
        DataType::from_name(&name).ok_or_else(|| serde::de::Error::custom(format!("{name} is no element type")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_go_both_ways() {
        for &data_type in DataType::ALL {
            assert_eq!(DataType::from_number(data_type.number()), Some(data_type));
            assert_eq!(DataType::from_name(data_type.name()), Some(data_type));
            let reference = ArgType::reference(data_type);
            assert_eq!(ArgType::from_number(reference.number()), Some(reference));
        }
        assert_eq!(DataType::from_number(0), None);
        assert_eq!(ArgType::from_number(100), None);
        assert_eq!(ArgType::from_number(i32::MAX), None);
        assert_eq!(ArgType::reference(DataType::Float).to_string(), "float_ref");
        assert_eq!(DataType::Half.enumerator(), "DT_HALF");
    }

    #[test]
    fn a_complex_element_is_two_numbers() {
        assert_eq!([DataType::Complex64, DataType::Complex128, DataType::Half].map(DataType::number_size), [Some(4), Some(8), Some(2)]);
        assert_eq!(DataType::String.number_size(), None);
    }
}
