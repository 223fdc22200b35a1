//! Arguments, results and attributes of an operation: TensorFlow's OpDef.

use plimsoll_base::{ArgType, Error, Result};

use crate::{AttrValue, Attrs, AttrsExt};

/// An input or output of an operation. Exactly one of `data_type`, `type_attr` and `type_list_attr` says its type;
/// `number_attr` makes it a run of that many tensors.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ArgDef {
    /// The argument's name.
    pub name: String,
    /// A fixed type, by its wire number; 0 where an attribute says it.
    pub data_type: i32,
    /// The attribute that holds the type.
    pub type_attr: String,
    /// The attribute that holds how many tensors there are.
    pub number_attr: String,
    /// The attribute that holds a list of types, one tensor for each.
    pub type_list_attr: String,
    /// Whether it is a reference to a variable.
    pub is_ref: bool,
    /// Encoded fields that have no place above; only carried along.
    pub carried: Vec<u8>,
}

/// An attribute of an operation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AttrDef {
    /// The attribute's name.
    pub name: String,
    /// `int`, `list(type)`, `func`, …
    pub kind: String,
    /// The value where a node does not say.
    pub default: Option<AttrValue>,
    /// The least int, or the least length of a list.
    pub minimum: Option<i64>,
    /// The types or strings that are allowed; empty for any.
    pub allowed: Option<AttrValue>,
    /// Encoded fields that have no place above; only carried along.
    pub carried: Vec<u8>,
}

/// An operation's (or a function's) signature.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(missing_docs, reason = "the flags are TensorFlow's")]
pub struct OpDef {
    pub name: String,
    pub inputs: Vec<ArgDef>,
    pub outputs: Vec<ArgDef>,
    pub control_outputs: Vec<String>,
    pub attrs: Vec<AttrDef>,
    pub is_stateful: bool,
    pub is_commutative: bool,
    pub is_aggregate: bool,
    pub allows_uninitialized_input: bool,
    /// Encoded fields that have no place above; only carried along.
    pub carried: Vec<u8>,
}

impl OpDef {
    /// The types of a node's inputs under these attributes, one for each tensor.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where an attribute that says so is missing or makes no sense.
    pub fn input_types(&self, attrs: &Attrs) -> Result<Vec<ArgType>> {
        arg_types(&self.inputs, attrs)
    }

    /// The types of a node's outputs under these attributes, one for each tensor.
    ///
    /// # Errors
    /// As [`OpDef::input_types`].
    pub fn output_types(&self, attrs: &Attrs) -> Result<Vec<ArgType>> {
        arg_types(&self.outputs, attrs)
    }

    /// How many tensors each input argument stands for, in order.
    ///
    /// # Errors
    /// As [`OpDef::input_types`].
    pub fn input_lengths(&self, attrs: &Attrs) -> Result<Vec<usize>> {
        self.inputs.iter().map(|arg| Ok(types_of(arg, attrs)?.len())).collect()
    }

    /// How many tensors each output argument stands for, in order.
    ///
    /// # Errors
    /// As [`OpDef::input_types`].
    pub fn output_lengths(&self, attrs: &Attrs) -> Result<Vec<usize>> {
        self.outputs.iter().map(|arg| Ok(types_of(arg, attrs)?.len())).collect()
    }

    /// The attributes with every missing default filled in.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where one is missing that has no default.
    pub fn fill_defaults(&self, attrs: &mut Attrs) -> Result<()> {
        for attr in &self.attrs {
            if attrs.contains_key(&attr.name) {
                continue;
            }
            let default = attr
                .default
                .clone()
                .ok_or_else(|| Error::invalid_argument(format!("attribute '{}' of {} is missing", attr.name, self.name)))?;
            attrs.insert(attr.name.clone(), default);
        }
        Ok(())
    }
}

fn arg_types(args: &[ArgDef], attrs: &Attrs) -> Result<Vec<ArgType>> {
    let mut types = Vec::with_capacity(args.len());
    for arg in args {
        types.extend(types_of(arg, attrs)?);
        if types.len() > MAX_ARGS {
            return Err(Error::invalid_argument(format!("argument '{}' stands for more than {MAX_ARGS} tensors", arg.name)));
        }
    }
    Ok(types)
}

/// More inputs or outputs than this on one node are taken for an attack.
const MAX_ARGS: usize = 1 << 20;

fn types_of(arg: &ArgDef, attrs: &Attrs) -> Result<Vec<ArgType>> {
    if !arg.type_list_attr.is_empty() {
        return Ok(attrs.data_types(&arg.type_list_attr)?.into_iter().map(|base| ArgType { base, is_ref: arg.is_ref }).collect());
    }
    let base = if arg.type_attr.is_empty() {
        ArgType::from_number(arg.data_type)
            .ok_or_else(|| Error::invalid_argument(format!("argument '{}' has type {}, which does not exist", arg.name, arg.data_type)))?
            .base
    } else {
        attrs.data_type(&arg.type_attr)?
    };
    let count = if arg.number_attr.is_empty() {
        1
    } else {
        let count = attrs.int(&arg.number_attr)?;
        usize::try_from(count)
            .ok()
            .filter(|count| *count <= MAX_ARGS)
            .ok_or_else(|| Error::invalid_argument(format!("attribute '{}' cannot be {count}", arg.number_attr)))?
    };
    Ok(vec![ArgType { base, is_ref: arg.is_ref }; count])
}
