//! cuDNN's functions.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use crate::attributes::{Attribute, DESCRIPTOR, attribute, kind};
use crate::descriptor::{Answer, Choice, Descriptor, Made, because};
use crate::status::{self, BAD, NOT_INITIALIZED, NOT_SUPPORTED, NULL, Status, WRONG_TYPE, said};
use crate::{driver, finish, run};

type Opaque = *mut c_void;

/// No version that there is: what it says is not what cuDNN says.
const VERSION: usize = 92_699;

#[unsafe(no_mangle)]
pub extern "C" fn cudnnGetVersion() -> usize {
    VERSION
}

#[unsafe(no_mangle)]
pub extern "C" fn cudnnGetErrorString(status: Status) -> *const c_char {
    status::name(status).as_ptr()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetLastErrorString(place: *mut c_char, size: usize) {
    let text = status::take_last();
    let bytes = &text.as_bytes()[..text.len().min(size.saturating_sub(1))];
    if !place.is_null() && size > 0 {
        // SAFETY: the caller's promise: there is room for so many.
        unsafe {
            place.copy_from_nonoverlapping(bytes.as_ptr().cast(), bytes.len());
            place.add(bytes.len()).write(0);
        }
    }
}

/// Writes a handle where a program says.
unsafe fn give(place: *mut Opaque, made: impl FnOnce() -> Answer<usize>) -> Status {
    if place.is_null() {
        return NULL;
    }
    said(made().map(|number| {
        // SAFETY: the caller's promise.
        unsafe { place.write(number as Opaque) };
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnCreate(place: *mut Opaque) -> Status {
    // SAFETY: the caller's promise.
    unsafe { give(place, driver::open) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cudnnDestroy(handle: Opaque) -> Status {
    said(driver::close(handle as usize))
}

#[unsafe(no_mangle)]
pub extern "C" fn cudnnSetStream(handle: Opaque, stream: Opaque) -> Status {
    said(driver::set_stream(handle as usize, stream as usize))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnBackendCreateDescriptor(of: c_int, place: *mut Opaque) -> Status {
    // SAFETY: the caller's promise.
    unsafe { give(place, || Descriptor::create(of)) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cudnnBackendDestroyDescriptor(descriptor: Opaque) -> Status {
    said(Descriptor::destroy(descriptor as usize))
}

#[unsafe(no_mangle)]
pub extern "C" fn cudnnBackendFinalize(descriptor: Opaque) -> Status {
    said(Descriptor::of(descriptor as usize).and_then(|descriptor| finish::finish(&descriptor)))
}

#[unsafe(no_mangle)]
pub extern "C" fn cudnnBackendExecute(handle: Opaque, plan: Opaque, pack: Opaque) -> Status {
    let find = |number: Opaque| Descriptor::of(number as usize);
    said(find(plan).and_then(|plan| run::execute(handle as usize, &plan, &*find(pack)?)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnBackendSetAttribute(
    descriptor: Opaque,
    name: c_int,
    element: c_int,
    count: i64,
    from: *const c_void,
) -> Status {
    // SAFETY: the caller's promise.
    said(Descriptor::of(descriptor as usize).and_then(|descriptor| unsafe { set(&descriptor, name, element, count, from) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnBackendGetAttribute(
    descriptor: Opaque,
    name: c_int,
    element: c_int,
    most: i64,
    count: *mut i64,
    to: *mut c_void,
) -> Status {
    // SAFETY: the caller's promise.
    said(Descriptor::of(descriptor as usize).and_then(|descriptor| unsafe { get(&descriptor, name, element, most, count, to) }))
}

fn known(descriptor: &Descriptor, name: c_int, element: c_int) -> Answer<Attribute> {
    let Some(attribute) = attribute(descriptor.kind, name) else {
        return because(BAD, format!("descriptors of kind {} have no attribute {name}", descriptor.kind));
    };
    if attribute.element.0 != element && descriptor.kind == kind::PACK && name == 1001 {
        return because(NOT_SUPPORTED, "addresses that are none");
    }
    if attribute.element.0 != element && [kind::POINTWISE, kind::STATISTICS].contains(&descriptor.kind) {
        return because(BAD, format!("attribute {name} of elements of type {element}"));
    }
    if attribute.element.0 != element {
        return because(WRONG_TYPE, format!("attribute {name} has elements of type {}", attribute.element.0));
    }
    Ok(attribute)
}

/// # Safety
/// There are so many elements of that type.
unsafe fn set(descriptor: &Descriptor, name: c_int, element: c_int, count: i64, from: *const c_void) -> Answer<()> {
    let mut state = descriptor.state();
    if state.made.is_some() {
        return because(BAD, "an attribute of a descriptor that is finished");
    }
    let Attribute { element, is_list } = known(descriptor, name, element)?;
    let Some(count) = usize::try_from(count).ok().filter(|count| *count > 0 && (is_list || *count == 1)) else {
        return because(BAD, format!("{count} elements of attribute {name}"));
    };
    if from.is_null() {
        return because(NULL, format!("no elements of attribute {name}"));
    }
    if element == DESCRIPTOR {
        // SAFETY: the caller's promise.
        let numbers = (0..count).map(|at| unsafe { from.cast::<usize>().add(at).read() });
        let others: Vec<Arc<Descriptor>> = numbers.map(Descriptor::of).collect::<Answer<_>>()?;
        if descriptor.kind == kind::CHOICE && name == 302 && !finish::are_apart(&others) {
            return because(BAD, "a knob that is turned twice");
        }
        state.others.insert(name, others);
        return Ok(());
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), count * element.1) };
    state.values.insert(name, bytes.to_vec());
    Ok(())
}

/// # Safety
/// There is room for `most` elements of that type, or none is asked for; descriptors are there to be filled.
unsafe fn get(descriptor: &Descriptor, name: c_int, element: c_int, most: i64, count: *mut i64, to: *mut c_void) -> Answer<()> {
    let Attribute { element, is_list } = known(descriptor, name, element)?;
    let Some(made) = descriptor.state().made.clone() else { return because(NOT_INITIALIZED, "a descriptor that is not finished") };
    let most = usize::try_from(most).unwrap_or(0);
    if !is_list && most == 0 {
        return because(BAD, format!("attribute {name} has an element"));
    }
    let note = |all: usize| {
        if !count.is_null() {
            // SAFETY: the caller's promise.
            unsafe { count.write(all as i64) };
        }
    };
    if element == DESCRIPTOR {
        let results = results(&made, name)?;
        // How many there are is not said to who has no room.
        let results = &results[..results.len().min(most)];
        for (at, result) in results.iter().enumerate() {
            // SAFETY: the caller's promise.
            let place = Descriptor::of(unsafe { to.cast::<usize>().add(at).read() })?;
            place.state().made = Some(result.clone());
        }
        note(results.len());
        return Ok(());
    }
    let bytes = bytes(descriptor, &made, name)?;
    let all = bytes.len() / element.1;
    if !to.is_null() {
        // SAFETY: the caller's promise.
        unsafe { to.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), all.min(most) * element.1) };
    }
    note(all);
    Ok(())
}

/// The descriptors of an attribute.
fn results(made: &Made, name: c_int) -> Answer<Vec<Made>> {
    match (made, name) {
        (Made::Engines(choices), 202) => Ok(choices.iter().cloned().map(Made::Choice).collect()),
        (Made::Choice(choice), 300) => Ok(vec![Made::Engine(choice.clone())]),
        (Made::Choice(choice), 302) => Ok(choice.engine.knobs.iter().map(|(of, value)| Made::Knob(*of, *value)).collect()),
        _ => because(BAD, format!("attribute {name} is not said")),
    }
}

/// The bytes of an attribute's elements: as they were set, or as they follow.
fn bytes(descriptor: &Descriptor, made: &Made, name: c_int) -> Answer<Vec<u8>> {
    let numbers = |numbers: &[c_int]| Ok(numbers.iter().flat_map(|number| number.to_ne_bytes()).collect());
    match (made, name) {
        (Made::Plan(plan), 402) => Ok((plan.workspace as i64).to_ne_bytes().to_vec()),
        (Made::Engine(Choice { engine, .. }), 1301) => Ok(engine.index.to_ne_bytes().to_vec()),
        (Made::Engine(Choice { engine, .. }), 1303) => numbers(&engine.numerics),
        (Made::Engine(Choice { engine, .. }), 1305) => numbers(&engine.behaviour),
        (Made::Knob(of, _), 600) => Ok(of.to_ne_bytes().to_vec()),
        (Made::Knob(_, value), 601) => Ok(value.to_ne_bytes().to_vec()),
        (Made::Properties(json), 2702) => Ok([json.as_bytes(), &[0]].concat()),
        _ => match descriptor.state().values.get(&name) {
            Some(bytes) => Ok(bytes.clone()),
            None => because(BAD, format!("attribute {name} was not set")),
        },
    }
}
