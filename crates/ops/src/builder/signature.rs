//! Attributes that follow from a node's inputs, and whether inputs and attributes fit the operation.

use plimsoll_base::{ArgType, DataType, Error, Result};
use plimsoll_graph::{ArgDef, AttrDef, AttrList, AttrValue, Attrs, OpDef};

/// Fills in every attribute: those that are said, those that follow from the inputs' types and number, and defaults.
///
/// # Errors
/// INVALID_ARGUMENT: attributes that the operation does not have or that cannot have that value. The same for inputs of the wrong
/// number or type, and for attributes that neither follow nor have a default.
pub(super) fn complete(def: &OpDef, attrs: &mut Attrs, inputs: &[ArgType]) -> Result<()> {
    for name in attrs.keys().filter(|name| !name.starts_with('_')) {
        if !def.attrs.iter().any(|attr| attr.name == *name) {
            return Err(Error::invalid_argument(format!("{} has no attribute '{name}'", def.name)));
        }
    }
    infer_from_inputs(def, attrs, inputs)?;
    def.fill_defaults(attrs)?;
    for attr in &def.attrs {
        check_attr(def, attr, &attrs[&attr.name])?;
    }
    check_inputs(def, attrs, inputs)
}

/// Cuts the inputs into arguments and notes the types and lengths that they have.
fn infer_from_inputs(def: &OpDef, attrs: &mut Attrs, inputs: &[ArgType]) -> Result<()> {
    let mut rest = inputs;
    for (position, arg) in def.inputs.iter().enumerate() {
        let length = match known_length(arg, attrs)? {
            Some(length) => length,
            None => open_length(def, position, attrs, rest.len())?,
        };
        let Some((mine, after)) = rest.split_at_checked(length) else { return Err(wrong_count(def, inputs.len())) };
        rest = after;
        if !arg.type_list_attr.is_empty() {
            let types: Vec<DataType> = mine.iter().map(|arg| arg.base).collect();
            attrs.insert_missing(&arg.type_list_attr, || AttrValue::data_types(&types));
        }
        if !arg.number_attr.is_empty() {
            attrs.insert_missing(&arg.number_attr, || AttrValue::Int(mine.len() as i64));
        }
        if let (Some(first), false) = (mine.first(), arg.type_attr.is_empty()) {
            attrs.insert_missing(&arg.type_attr, || AttrValue::data_type(first.base));
        }
    }
    if rest.is_empty() { Ok(()) } else { Err(wrong_count(def, inputs.len())) }
}

/// How many tensors an argument stands for, where it or an attribute says so.
fn known_length(arg: &ArgDef, attrs: &Attrs) -> Result<Option<usize>> {
    let wrong = |name: &str| Error::invalid_argument(format!("attribute '{name}' does not say how many inputs there are"));
    if !arg.type_list_attr.is_empty() {
        return match attrs.get(&arg.type_list_attr) {
            None => Ok(None),
            Some(AttrValue::List(list)) => Ok(Some(list.types.len())),
            Some(_) => Err(wrong(&arg.type_list_attr)),
        };
    }
    if arg.number_attr.is_empty() {
        return Ok(Some(1));
    }
    match attrs.get(&arg.number_attr) {
        None => Ok(None),
        Some(AttrValue::Int(length)) => usize::try_from(*length).map(Some).map_err(|_| wrong(&arg.number_attr)),
        Some(_) => Err(wrong(&arg.number_attr)),
    }
}

/// The length of an argument without a given length: the inputs that the arguments of known length leave, shared by those of this
/// length.
fn open_length(def: &OpDef, position: usize, attrs: &Attrs, left: usize) -> Result<usize> {
    let open = &def.inputs[position];
    let (mut known, mut sharers) = (0usize, 0usize);
    for arg in &def.inputs[position..] {
        match known_length(arg, attrs)? {
            Some(length) => known = known.saturating_add(length),
            None if !arg.number_attr.is_empty() && arg.number_attr == open.number_attr => sharers += 1,
            None if std::ptr::eq(arg, open) => sharers += 1,
            None => {
                let name = if open.number_attr.is_empty() { &open.type_list_attr } else { &open.number_attr };
                return Err(Error::invalid_argument(format!(
                    "{} takes several lists: attribute '{name}' must say how long '{}' is",
                    def.name, open.name
                )));
            }
        }
    }
    match left.checked_sub(known) {
        Some(left) if left.is_multiple_of(sharers) => Ok(left / sharers),
        _ => Err(wrong_count(def, left)),
    }
}

fn wrong_count(def: &OpDef, given: usize) -> Error {
    let list = def.inputs.iter().any(|arg| !arg.number_attr.is_empty() || !arg.type_list_attr.is_empty());
    let names: Vec<&str> = def.inputs.iter().map(|arg| arg.name.as_str()).collect();
    let takes = if list { format!("({})", names.join(", ")) } else { format!("{} inputs ({})", names.len(), names.join(", ")) };
    Error::invalid_argument(format!("{} takes {takes}, not {given} inputs", def.name))
}

fn check_inputs(def: &OpDef, attrs: &Attrs, inputs: &[ArgType]) -> Result<()> {
    let wanted = def.input_types(attrs)?;
    if wanted.len() != inputs.len() {
        return Err(wrong_count(def, inputs.len()));
    }
    for (position, (wanted, given)) in wanted.iter().zip(inputs).enumerate() {
        if given.base != wanted.base || (wanted.is_ref && !given.is_ref) {
            return Err(Error::invalid_argument(format!("input {position} of {} is {given}, not {wanted}", def.name)));
        }
    }
    Ok(())
}

fn check_attr(def: &OpDef, attr: &AttrDef, value: &AttrValue) -> Result<()> {
    let (fits, size) = match (attr.kind.as_str(), value) {
        ("int", AttrValue::Int(value)) => (true, Some(*value)),
        ("string", AttrValue::Bytes(_)) | ("float", AttrValue::Float(_)) | ("bool", AttrValue::Bool(_)) | ("type", AttrValue::Type(_)) => {
            (true, None)
        }
        ("shape", AttrValue::Shape(_)) | ("func", AttrValue::Func(_)) | ("tensor", AttrValue::Tensor(_) | AttrValue::Unset) => (true, None),
        (kind, AttrValue::List(list)) if kind.starts_with("list(") => (list_fits(kind, list), Some(list_len(list) as i64)),
        (_, AttrValue::Opaque(_)) => (true, None),
        _ => (false, None),
    };
    if !fits {
        return Err(Error::invalid_argument(format!("attribute '{}' of {} is {}, not {}", attr.name, def.name, value.kind(), attr.kind)));
    }
    if let (Some(minimum), Some(size)) = (attr.minimum, size)
        && size < minimum
    {
        let what = if attr.kind == "int" { "is" } else { "has length" };
        return Err(Error::invalid_argument(format!(
            "attribute '{}' of {} {what} {size}, and must be at least {minimum}",
            attr.name, def.name
        )));
    }
    let Some(AttrValue::List(allowed)) = &attr.allowed else { return Ok(()) };
    let is_allowed = match value {
        AttrValue::Type(number) => allowed.types.contains(number),
        AttrValue::Bytes(bytes) => allowed.bytes.contains(bytes),
        AttrValue::List(list) => {
            list.types.iter().all(|number| allowed.types.contains(number)) && list.bytes.iter().all(|bytes| allowed.bytes.contains(bytes))
        }
        _ => true,
    };
    if is_allowed {
        Ok(())
    } else {
        Err(Error::invalid_argument(format!(
            "attribute '{}' of {} cannot be {value}, only {}",
            attr.name,
            def.name,
            AttrValue::List(allowed.clone())
        )))
    }
}

fn list_len(list: &AttrList) -> usize {
    let numbers = list.bytes.len() + list.ints.len() + list.floats.len() + list.bools.len();
    numbers + list.types.len() + list.shapes.len() + list.tensors.len() + list.funcs.len()
}

fn list_fits(kind: &str, list: &AttrList) -> bool {
    let own = match kind {
        "list(string)" => list.bytes.len(),
        "list(int)" => list.ints.len(),
        "list(float)" => list.floats.len(),
        "list(bool)" => list.bools.len(),
        "list(type)" => list.types.len(),
        "list(shape)" => list.shapes.len(),
        "list(tensor)" => list.tensors.len(),
        "list(func)" => list.funcs.len(),
        _ => return true,
    };
    own == list_len(list)
}
