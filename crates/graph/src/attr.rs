//! Attributes of nodes and functions.

use std::fmt;

use plimsoll_base::{ArgType, DataType, Error, Result};

use crate::{Attrs, HostTensor, PartialShape};

/// A function's name with the attributes that instantiate it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FuncRef {
    /// The function's name in the library.
    pub name: String,
    /// Attributes for its placeholders.
    pub attrs: Attrs,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum AttrValue {
    /// Bytes; most of them are UTF-8 text.
    Bytes(Vec<u8>),
    /// An integer.
    Int(i64),
    /// A float.
    Float(f32),
    /// A bool.
    Bool(bool),
    /// A type, by its wire number (which may be one that is not known here).
    Type(i32),
    /// A shape, as far as it is known.
    Shape(PartialShape),
    /// A tensor.
    Tensor(HostTensor),
    /// In a function body: the name of the function's attribute that takes this place.
    Placeholder(String),
    /// A function.
    Func(FuncRef),
    /// A list.
    List(Box<AttrList>),
    /// An attribute without a value.
    Unset,
    /// An encoded AttrValue that says more than the forms above can hold; it is only carried along.
    Opaque(Box<[u8]>),
}

/// A list; of its kinds at most one is not empty in well-formed graphs.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(missing_docs, reason = "one list for each kind of AttrValue")]
pub struct AttrList {
    pub bytes: Vec<Vec<u8>>,
    pub ints: Vec<i64>,
    pub floats: Vec<f32>,
    pub bools: Vec<bool>,
    pub types: Vec<i32>,
    pub shapes: Vec<PartialShape>,
    pub tensors: Vec<HostTensor>,
    pub funcs: Vec<FuncRef>,
}

impl AttrValue {
    /// A text.
    pub fn text(text: impl Into<String>) -> AttrValue {
        AttrValue::Bytes(text.into().into_bytes())
    }

    /// A data type.
    pub fn data_type(data_type: DataType) -> AttrValue {
        AttrValue::Type(data_type.number())
    }

    /// A list of integers.
    pub fn ints(ints: impl Into<Vec<i64>>) -> AttrValue {
        AttrValue::List(Box::new(AttrList { ints: ints.into(), ..AttrList::default() }))
    }

    /// A list of data types.
    pub fn data_types(types: &[DataType]) -> AttrValue {
        AttrValue::List(Box::new(AttrList { types: types.iter().map(|data_type| data_type.number()).collect(), ..AttrList::default() }))
    }

    /// A list of texts.
    pub fn texts<S: AsRef<str>>(texts: &[S]) -> AttrValue {
        let bytes = texts.iter().map(|text| text.as_ref().as_bytes().to_vec()).collect();
        AttrValue::List(Box::new(AttrList { bytes, ..AttrList::default() }))
    }

    /// The kind of this value in TensorFlow's words: `int`, `list`, `type`.
    pub fn kind(&self) -> &'static str {
        match self {
            AttrValue::Bytes(_) => "string",
            AttrValue::Int(_) => "int",
            AttrValue::Float(_) => "float",
            AttrValue::Bool(_) => "bool",
            AttrValue::Type(_) => "type",
            AttrValue::Shape(_) => "shape",
            AttrValue::Tensor(_) => "tensor",
            AttrValue::Placeholder(_) => "placeholder",
            AttrValue::Func(_) => "func",
            AttrValue::List(_) => "list",
            AttrValue::Unset => "nothing",
            AttrValue::Opaque(_) => "a value of an unusual form",
        }
    }
}

/// Typed reading of attributes. Every reader fails with INVALID_ARGUMENT that names the attribute where it is absent or
/// of another kind.
pub trait AttrsExt {
    /// The attribute, of any kind.
    fn require(&self, name: &str) -> Result<&AttrValue>;
    /// A data type that is known here.
    fn data_type(&self, name: &str) -> Result<DataType>;
    /// An integer.
    fn int(&self, name: &str) -> Result<i64>;
    /// A float.
    fn float(&self, name: &str) -> Result<f32>;
    /// A bool.
    fn bool(&self, name: &str) -> Result<bool>;
    /// UTF-8 text.
    fn text(&self, name: &str) -> Result<&str>;
    /// A shape.
    fn shape(&self, name: &str) -> Result<&PartialShape>;
    /// A tensor.
    fn tensor(&self, name: &str) -> Result<&HostTensor>;
    /// A function.
    fn func(&self, name: &str) -> Result<&FuncRef>;
    /// A list.
    fn list(&self, name: &str) -> Result<&AttrList>;
    /// A list of data types that are known here.
    fn data_types(&self, name: &str) -> Result<Vec<DataType>>;
}

macro_rules! reader {
    ($self:ident, $name:ident, $pattern:pat => $value:expr, $wanted:literal) => {
        match $self.require($name)? {
            $pattern => Ok($value),
            other => Err(Error::invalid_argument(format!("attribute '{}' is {}, not {}", $name, other.kind(), $wanted))),
        }
    };
}

impl AttrsExt for Attrs {
    fn require(&self, name: &str) -> Result<&AttrValue> {
        self.get(name).ok_or_else(|| Error::invalid_argument(format!("attribute '{name}' is missing")))
    }

    fn data_type(&self, name: &str) -> Result<DataType> {
        let number = reader!(self, name, AttrValue::Type(number) => *number, "a type")?;
        known_type(name, number)
    }

    fn int(&self, name: &str) -> Result<i64> {
        reader!(self, name, AttrValue::Int(value) => *value, "an int")
    }

    fn float(&self, name: &str) -> Result<f32> {
        reader!(self, name, AttrValue::Float(value) => *value, "a float")
    }

    fn bool(&self, name: &str) -> Result<bool> {
        reader!(self, name, AttrValue::Bool(value) => *value, "a bool")
    }

    fn text(&self, name: &str) -> Result<&str> {
        let bytes = reader!(self, name, AttrValue::Bytes(bytes) => bytes, "a string")?;
        std::str::from_utf8(bytes).map_err(|_| Error::invalid_argument(format!("attribute '{name}' is not UTF-8")))
    }

    fn shape(&self, name: &str) -> Result<&PartialShape> {
        reader!(self, name, AttrValue::Shape(shape) => shape, "a shape")
    }

    fn tensor(&self, name: &str) -> Result<&HostTensor> {
        reader!(self, name, AttrValue::Tensor(tensor) => tensor, "a tensor")
    }

    fn func(&self, name: &str) -> Result<&FuncRef> {
        reader!(self, name, AttrValue::Func(func) => func, "a function")
    }

    fn list(&self, name: &str) -> Result<&AttrList> {
        reader!(self, name, AttrValue::List(list) => list, "a list")
    }

    fn data_types(&self, name: &str) -> Result<Vec<DataType>> {
        self.list(name)?.types.iter().map(|number| known_type(name, *number)).collect()
    }
}

fn known_type(name: &str, number: i32) -> Result<DataType> {
    ArgType::from_number(number)
        .map(|arg| arg.base)
        .ok_or_else(|| Error::invalid_argument(format!("attribute '{name}' names type {number}, which does not exist")))
}

impl fmt::Display for AttrValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn list<T: fmt::Display>(f: &mut fmt::Formatter<'_>, items: impl Iterator<Item = T>) -> fmt::Result {
            for (position, item) in items.enumerate() {
                write!(f, "{}{item}", if position > 0 { "," } else { "" })?;
            }
            Ok(())
        }
        let type_name = |number: &i32| ArgType::from_number(*number).map_or_else(|| format!("type {number}"), |arg| arg.to_string());
        match self {
            AttrValue::Bytes(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
            AttrValue::Int(value) => write!(f, "{value}"),
            AttrValue::Float(value) => write!(f, "{value:?}"),
            AttrValue::Bool(value) => write!(f, "{value}"),
            AttrValue::Type(number) => f.write_str(&type_name(number)),
            AttrValue::Shape(shape) => write!(f, "{shape}"),
            AttrValue::Tensor(tensor) => write!(f, "{tensor:?}"),
            AttrValue::Placeholder(name) => write!(f, "${name}"),
            AttrValue::Func(func) => write!(f, "@{}", func.name),
            AttrValue::Unset => f.write_str("()"),
            AttrValue::Opaque(bytes) => write!(f, "<{} bytes>", bytes.len()),
            AttrValue::List(items) => {
                f.write_str("[")?;
                list(f, items.bytes.iter().map(|bytes| format!("\"{}\"", bytes.escape_ascii())))?;
                list(f, items.ints.iter())?;
                list(f, items.floats.iter())?;
                list(f, items.bools.iter())?;
                list(f, items.types.iter().map(type_name))?;
                list(f, items.shapes.iter())?;
                list(f, items.tensors.iter().map(|tensor| format!("{tensor:?}")))?;
                list(f, items.funcs.iter().map(|func| format!("@{}", func.name)))?;
                f.write_str("]")
            }
        }
    }
}
