//! Descriptors that cuDNN takes, and those that it refuses, with its status: a table of the real one, which the mock has to keep to.
//! `PLIMSOLL_BLESS=1` writes it where cuDNN is installed.

mod attention;
mod statistics;

use std::ffi::{CStr, CString, c_int, c_void};
use std::fmt::Write;
use std::path::Path;

use plimsoll_base::Code;
use plimsoll_cards::Environment;
use plimsoll_device_cuda::{ComputeLibrary, Planner};

use super::engines::H100;
use super::machine::Machine;

const TABLE: &str = include_str!("../../data/cudnn/descriptors.txt");

pub type Handle = *mut c_void;
type Status = c_int;

/// The backend's functions.
pub struct Backend {
    create: unsafe extern "C" fn(c_int, *mut Handle) -> Status,
    set: unsafe extern "C" fn(Handle, c_int, c_int, i64, *const c_void) -> Status,
    get: unsafe extern "C" fn(Handle, c_int, c_int, i64, *mut i64, *mut c_void) -> Status,
    finalize: unsafe extern "C" fn(Handle) -> Status,
}

/// An attribute: its name, the type of its elements, how many, and their bytes.
#[derive(Clone)]
pub struct Attribute(pub c_int, pub c_int, pub i64, pub Vec<u8>);

pub fn integers(name: c_int, values: &[i64]) -> Attribute {
    Attribute(name, 3, values.len() as i64, values.iter().flat_map(|value| value.to_ne_bytes()).collect())
}

/// Of elements of 4 bytes.
pub fn numbers(name: c_int, of: c_int, values: &[i32]) -> Attribute {
    Attribute(name, of, values.len() as i64, values.iter().flat_map(|value| value.to_ne_bytes()).collect())
}

pub fn others(name: c_int, handles: &[Handle]) -> Attribute {
    Attribute(name, 15, handles.len() as i64, handles.iter().flat_map(|handle| (*handle as usize).to_ne_bytes()).collect())
}

fn addresses(name: c_int, values: &[i64]) -> Attribute {
    Attribute(name, 6, values.len() as i64, integers(name, values).3)
}

/// What was refused, and how.
pub type Made<T> = Result<T, String>;

impl Backend {
    pub fn load(path: &Path) -> Backend {
        let path = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: a name that ends with a zero, of a library that stays loaded.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!library.is_null(), "{path:?} cannot be loaded");
        let symbol = |name: &CStr| {
            // SAFETY: as above.
            let address = unsafe { libc::dlsym(library, name.as_ptr()) };
            assert!(!address.is_null(), "no {name:?}");
            address
        };
        // SAFETY: by cuDNN's documentation these are functions of these types.
        unsafe {
            Backend {
                create: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(c_int, *mut Handle) -> Status>(symbol(
                    c"cudnnBackendCreateDescriptor",
                )),
                set: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(Handle, c_int, c_int, i64, *const c_void) -> Status>(symbol(
                    c"cudnnBackendSetAttribute",
                )),
                get: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(Handle, c_int, c_int, i64, *mut i64, *mut c_void) -> Status>(
                    symbol(c"cudnnBackendGetAttribute"),
                ),
                finalize: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(Handle) -> Status>(symbol(c"cudnnBackendFinalize")),
            }
        }
    }

    fn create(&self, kind: c_int) -> Made<Handle> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: it writes a handle.
        match unsafe { (self.create)(kind, &mut handle) } {
            0 => Ok(handle),
            status => Err(format!("create {status}")),
        }
    }

    fn set(&self, handle: Handle, Attribute(name, of, count, bytes): &Attribute) -> Made<()> {
        // SAFETY: so many elements are there.
        match unsafe { (self.set)(handle, *name, *of, *count, bytes.as_ptr().cast()) } {
            0 => Ok(()),
            status => Err(format!("set {name} {status}")),
        }
    }

    fn finish(&self, handle: Handle) -> Made<Handle> {
        // SAFETY: a descriptor.
        match unsafe { (self.finalize)(handle) } {
            0 => Ok(handle),
            status => Err(format!("finalize {status}")),
        }
    }

    /// A finished descriptor. Nothing is given back: a few hundred of them do not matter.
    pub fn make(&self, kind: c_int, attributes: &[Attribute]) -> Made<Handle> {
        let handle = self.create(kind)?;
        attributes.iter().try_for_each(|attribute| self.set(handle, attribute))?;
        self.finish(handle)
    }

    /// How many elements there are, and the first ones' bytes.
    pub fn get(&self, handle: Handle, name: c_int, of: c_int, most: i64) -> Made<(i64, [u64; 64])> {
        let (mut count, mut bytes) = (0, [0; 64]);
        // SAFETY: there is room for 64 elements of 8 bytes.
        match unsafe { (self.get)(handle, name, of, most, &mut count, bytes.as_mut_ptr().cast()) } {
            0 => Ok((count, bytes)),
            status => Err(format!("get {name} {status}")),
        }
    }

    /// The descriptors of an attribute.
    pub fn list(&self, handle: Handle, name: c_int, kind: c_int, most: i64) -> Made<Vec<Handle>> {
        let mut handles: Vec<Handle> = (0..most).map(|_| self.create(kind)).collect::<Made<_>>()?;
        let mut count = 0;
        // SAFETY: there are so many descriptors to be filled.
        match unsafe { (self.get)(handle, name, 15, most, &mut count, handles.as_mut_ptr().cast()) } {
            0 => Ok(handles.into_iter().take(count as usize).collect()),
            status => Err(format!("get {name} {status}")),
        }
    }
}

/// The attributes with one in the place of that of its name, or behind them.
fn with(mut attributes: Vec<Attribute>, other: Attribute) -> Vec<Attribute> {
    match attributes.iter_mut().find(|attribute| attribute.0 == other.0) {
        Some(attribute) => *attribute = other,
        None => attributes.push(other),
    }
    attributes
}

fn without(mut attributes: Vec<Attribute>, name: c_int) -> Vec<Attribute> {
    attributes.retain(|attribute| attribute.0 != name);
    attributes
}

/// A tensor of floats with its channels last.
fn tensor(name: i64, sizes: [i64; 4]) -> Vec<Attribute> {
    let [_, c, h, w] = sizes;
    let strides = [h * w * c, 1, w * c, c];
    vec![
        numbers(901, 1, &[0]),
        integers(902, &sizes),
        integers(903, &strides),
        integers(906, &[name]),
        integers(900, &[16]),
        Attribute(907, 2, 1, vec![0]),
    ]
}

/// A convolution of 3x3 taps with padding.
fn window() -> Vec<Attribute> {
    let ones: fn(c_int) -> Attribute = |name| integers(name, &[1, 1]);
    vec![integers(106, &[2]), numbers(100, 1, &[0]), numbers(101, 7, &[1]), ones(105), ones(104), ones(102), ones(103)]
}

/// What a convolution is of.
struct Parts {
    input: Vec<Attribute>,
    filter: Vec<Attribute>,
    result: Vec<Attribute>,
    window: Vec<Attribute>,
}

fn parts() -> Parts {
    Parts { input: tensor(1, [2, 4, 5, 5]), filter: tensor(2, [8, 4, 3, 3]), result: tensor(3, [2, 8, 5, 5]), window: window() }
}

/// The attributes of a convolution of that kind.
fn operation(backend: &Backend, kind: c_int, parts: &Parts) -> Made<Vec<Attribute>> {
    let first = if kind == 10 { 700 } else { if kind == 12 { 706 } else { 712 } };
    let float = |name, value: f32| Attribute(name, 4, 1, value.to_ne_bytes().to_vec());
    let mut attributes = vec![float(first, 1.0), float(first + 1, 0.0)];
    for (name, kind, of) in [(2, 1, &parts.window), (3, 17, &parts.filter), (4, 17, &parts.input), (5, 17, &parts.result)] {
        attributes.push(others(first + name, &[backend.make(kind, of)?]));
    }
    Ok(attributes)
}

/// `cudnnPointwiseMode_t`.
const ADD: i32 = 0;
const RELU: i32 = 100;
const GREATER: i32 = 302;
const SELECT: i32 = 601;
/// `CUDNN_DATA_BOOLEAN`.
const BOOLEAN: i32 = 11;

fn of_mode(mode: i32) -> Vec<Attribute> {
    vec![numbers(0, 14, &[mode]), numbers(1, 1, &[0])]
}

/// Everything that is tried.
struct Tries<'a> {
    backend: &'a Backend,
    text: String,
}

impl Tries<'_> {
    fn try_(&mut self, what: &str, act: impl FnOnce(&Backend) -> Made<()>) {
        let said = act(self.backend).map_or_else(|refused| refused, |()| "taken".to_string());
        writeln!(self.text, "{what}: {said}").unwrap();
    }

    fn made(&mut self, what: &str, kind: c_int, attributes: &[Attribute]) {
        self.try_(what, |backend| backend.make(kind, attributes).map(drop));
    }

    fn tensors(&mut self) {
        let base = || tensor(1, [2, 4, 5, 5]);
        self.made("a tensor", 17, &base());
        for name in [900, 901, 902, 903, 906, 907] {
            self.made(&format!("a tensor without {name}"), 17, &without(base(), name));
        }
        for (what, attribute) in [
            ("a type of 8 bytes", integers(901, &[0])),
            ("two types", numbers(901, 1, &[0, 0])),
            ("sizes of 4 bytes", numbers(902, 23, &[2, 4, 5, 5])),
            ("no sizes", integers(902, &[])),
            ("five sizes", integers(902, &[2, 4, 5, 5, 1])),
            ("a size below 0", integers(902, &[2, -4, 5, 5])),
            ("a size of 0", integers(902, &[2, 0, 5, 5])),
            ("three strides", integers(903, &[1, 1, 1])),
            ("a stride below 0", integers(903, &[-1, 1, 20, 4])),
            ("a stride of 0", integers(903, &[0, 1, 20, 4])),
            ("overlapping elements", integers(903, &[1, 1, 1, 1])),
            ("no alignment", integers(900, &[0])),
            ("an alignment of 1", integers(900, &[1])),
            ("an alignment of 3", integers(900, &[3])),
            ("an alignment of 4", integers(900, &[4])),
            ("an alignment below 0", integers(900, &[-16])),
            ("an integer for a boolean", integers(907, &[0])),
            ("the name 0", integers(906, &[0])),
            ("two names", integers(906, &[1, 2])),
            ("an attribute of a convolution", integers(106, &[2])),
            ("an attribute that is none", integers(9999, &[2])),
        ] {
            self.made(&format!("a tensor with {what}"), 17, &with(base(), attribute));
        }
        self.try_("an attribute of a finished tensor", |backend| {
            let handle = backend.make(17, &base())?;
            backend.set(handle, &integers(900, &[16]))
        });
        self.try_("a tensor that is finished twice", |backend| {
            backend.make(17, &base()).and_then(|handle| backend.finish(handle)).map(drop)
        });
        self.try_("a question to a tensor that is not finished", |backend| {
            backend.create(17).and_then(|at| backend.get(at, 900, 3, 1)).map(drop)
        });
        self.made("a descriptor of no kind", 99, &[]);
    }

    fn convolutions(&mut self) {
        for name in [100, 101, 102, 103, 104, 105, 106] {
            self.made(&format!("a convolution without {name}"), 1, &without(window(), name));
        }
        for (what, attribute) in [
            ("no axes", integers(106, &[0])),
            ("one axis", integers(106, &[1])),
            ("one axis more", integers(106, &[3])),
            ("nine axes", integers(106, &[9])),
            ("a stride of 0", integers(103, &[0, 1])),
            ("a dilation of 0", integers(102, &[0, 1])),
            ("padding below 0", integers(105, &[-1, 0])),
            ("padding behind below 0", integers(104, &[-1, 0])),
            ("padding of three axes", integers(105, &[1, 1, 1])),
            ("flipped taps", numbers(101, 7, &[0])),
            ("sums of bfloat16", numbers(100, 1, &[9])),
        ] {
            self.made(&format!("a convolution with {what}"), 1, &with(window(), attribute));
        }
        let longer = vec![integers(106, &[3]), integers(102, &[1; 3]), integers(103, &[1; 3])];
        for (name, kind) in [("forward", 10), ("by the input", 12), ("by the filter", 11)] {
            let mut of = |what: &str, parts: Parts| {
                self.try_(&format!("{name}{what}"), |backend| {
                    let attributes = operation(backend, kind, &parts)?;
                    backend.make(kind, &attributes).map(drop)
                });
            };
            of("", parts());
            of(" with other channels of the result", Parts { result: tensor(3, [2, 9, 5, 5]), ..parts() });
            of(" with a longer result", Parts { result: tensor(3, [2, 8, 5, 6]), ..parts() });
            of(" with a shorter result", Parts { result: tensor(3, [2, 8, 5, 4]), ..parts() });
            of(" with more images in the result", Parts { result: tensor(3, [3, 8, 5, 5]), ..parts() });
            of(" in groups", Parts { filter: tensor(2, [8, 2, 3, 3]), ..parts() });
            of(" in no whole groups", Parts { filter: tensor(2, [8, 3, 3, 3]), ..parts() });
            of(" with a result of halves", Parts { result: with(tensor(3, [2, 8, 5, 5]), numbers(901, 1, &[2])), ..parts() });
            of(" along three axes of two", Parts { window: longer.clone(), ..parts() });
            of(" with one name twice", Parts { result: tensor(1, [2, 8, 5, 5]), ..parts() });
            for missing in 0..6 {
                self.try_(&format!("{name} without its attribute {missing}"), |backend| {
                    let attributes = operation(backend, kind, &parts())?;
                    let name = attributes[missing].0;
                    backend.make(kind, &without(attributes, name)).map(drop)
                });
            }
            self.try_(&format!("{name} with a tensor that is not finished"), |backend| {
                let attributes = operation(backend, kind, &parts())?;
                let name = attributes[4].0;
                backend.make(kind, &with(attributes, others(name, &[backend.create(17)?]))).map(drop)
            });
        }
        self.made("a graph of nothing", 15, &[]);
    }

    /// What follows a convolution: its descriptors, and for which graphs there are engines.
    fn epilogues(&mut self) -> Made<()> {
        let backend = self.backend;
        let of = of_mode;
        self.made("an addition", 0, &of(ADD));
        self.made("a maximum with zero", 0, &of(RELU));
        self.made("a maximum with zero that keeps NaN", 0, &with(of(RELU), numbers(2, 10, &[1])));
        for name in [0, 1] {
            self.made(&format!("an addition without {name}"), 0, &without(of(ADD), name));
        }
        for (what, attribute) in [
            ("a mode of 8 bytes", integers(0, &[0])),
            ("two modes", numbers(0, 14, &[0, 0])),
            ("an attribute of a tensor", integers(900, &[16])),
            ("numbers of bfloat16", numbers(1, 1, &[9])),
        ] {
            self.made(&format!("an addition with {what}"), 0, &with(of(ADD), attribute));
        }
        let whole = |name: i64| tensor(name, [2, 8, 5, 5]);
        let between = |name: i64| with(whole(name), Attribute(907, 2, 1, vec![1]));
        let bias = || tensor(20, [1, 8, 1, 1]);
        let on_each = |mode: i32, from: &[Attribute], second: Option<&[Attribute]>, to: &[Attribute]| -> Made<Vec<Attribute>> {
            let mut attributes = vec![others(750, &[backend.make(0, &of(mode))?]), others(751, &[backend.make(17, from)?])];
            attributes.extend(second.map(|second| Made::Ok(others(752, &[backend.make(17, second)?]))).transpose()?);
            attributes.push(others(753, &[backend.make(17, to)?]));
            Ok(attributes)
        };
        let sum = on_each(ADD, &whole(10), Some(&bias()), &whole(11))?;
        self.made("a sum", 13, &sum);
        for name in [750, 751, 752, 753] {
            self.made(&format!("a sum without {name}"), 13, &without(sum.clone(), name));
        }
        for (what, sizes) in
            [("other channels", [1, 7, 1, 1]), ("the whole", [2, 8, 5, 5]), ("a row", [1, 1, 1, 5]), ("more", [4, 8, 5, 5])]
        {
            let second = tensor(20, sizes);
            self.try_(&format!("a sum with {what}"), |backend| {
                let attributes = on_each(ADD, &whole(10), Some(&second), &whole(11))?;
                backend.make(13, &attributes).map(drop)
            });
        }
        let larger = tensor(11, [2, 8, 5, 6]);
        self.try_("a sum of another size", |backend| {
            let attributes = on_each(ADD, &whole(10), Some(&bias()), &larger)?;
            backend.make(13, &attributes).map(drop)
        });
        self.try_("a maximum with zero of one tensor", |backend| {
            let attributes = on_each(RELU, &whole(10), None, &whole(11))?;
            backend.make(13, &attributes).map(drop)
        });

        // Graphs: a convolution, and steps behind it. Of all of them, whether there are engines.
        let card = backend.make(38, &[Attribute(2702, 24, H100.len() as i64, H100.as_bytes().to_vec())])?;
        for data_type in [0, 2, 9] {
            let typed = |attributes: Vec<Attribute>| with(attributes, numbers(901, 1, &[data_type]));
            let steps_of: [&[&str]; 14] = [
                &["bias"],
                &["bias", "relu"],
                &["relu"],
                &["whole"],
                &["whole", "relu"],
                &["whole", "bias"],
                &["whole", "bias", "relu"],
                &["bias", "whole"],
                &["bias", "whole", "relu"],
                &["relu", "bias"],
                &["bias", "bias"],
                &["whole", "whole", "bias"],
                &["bias", "relu", "relu"],
                &["row"],
            ];
            for steps in steps_of {
                self.try_(&format!("elements of type {data_type}, {} behind a convolution", steps.join(", ")), |backend| {
                    let parts = Parts { input: typed(parts().input), filter: typed(parts().filter), result: between(30), window: window() };
                    let attributes = operation(backend, 10, &parts)?;
                    // Between operations a tensor is one descriptor.
                    let mut value = backend.make(17, &parts.result)?;
                    let mut operations = vec![backend.make(10, &with(attributes, others(705, &[value])))?];
                    for (at, step) in (1..).zip(steps) {
                        let to = if at == steps.len() as i64 { typed(whole(3)) } else { between(30 + at) };
                        let to = backend.make(17, &to)?;
                        let (mode, second) = match *step {
                            "bias" => (ADD, Some(typed(tensor(40 + at, [1, 8, 1, 1])))),
                            "whole" => (ADD, Some(typed(whole(40 + at)))),
                            "row" => (ADD, Some(typed(tensor(40 + at, [1, 1, 1, 5])))),
                            _ => (RELU, None),
                        };
                        let of = if mode == RELU { with(of(mode), numbers(2, 10, &[1])) } else { of(mode) };
                        let mut each = vec![others(750, &[backend.make(0, &of)?]), others(751, &[value]), others(753, &[to])];
                        each.extend(second.map(|second| Made::Ok(others(752, &[backend.make(17, &second)?]))).transpose()?);
                        operations.push(backend.make(13, &each)?);
                        value = to;
                    }
                    let graph = backend.make(15, &[others(801, &operations)])?;
                    let heuristics = backend.make(4, &[others(201, &[graph]), numbers(200, 8, &[3]), others(204, &[card])])?;
                    let choices = backend.list(heuristics, 202, 3, 64)?;
                    if choices.is_empty() { Err("no engine".to_string()) } else { Ok(()) }
                });
            }
        }
        for (name, kind) in [("by the input", 12), ("by the filter", 11)] {
            self.try_(&format!("a bias behind a gradient {name}"), |backend| {
                let is_input = kind == 12;
                let mut of = parts();
                let (made, sizes) = if is_input { (&mut of.input, [2, 4, 5, 5]) } else { (&mut of.filter, [8, 4, 3, 3]) };
                *made = with(tensor(30, sizes), Attribute(907, 2, 1, vec![1]));
                let value = backend.make(17, made)?;
                let first = if is_input { 710 } else { 715 };
                let attributes = with(operation(backend, kind, &of)?, others(first, &[value]));
                let conv = backend.make(kind, &attributes)?;
                let (second, to) = (backend.make(17, &tensor(40, [1, 4, 1, 1]))?, backend.make(17, &tensor(41, sizes))?);
                let each =
                    [others(750, &[backend.make(0, &of_mode(ADD))?]), others(751, &[value]), others(752, &[second]), others(753, &[to])];
                let each = backend.make(13, &each)?;
                let graph = backend.make(15, &[others(801, &[conv, each])])?;
                let heuristics = backend.make(4, &[others(201, &[graph]), numbers(200, 8, &[3]), others(204, &[card])])?;
                if backend.list(heuristics, 202, 3, 64)?.is_empty() { Err("no engine".to_string()) } else { Ok(()) }
            });
        }
        self.choices()?;
        self.statistics(card)?;
        let sum = backend.make(13, &sum)?;
        self.made("a graph of two sums that have nothing to do with each other", 15, &[others(801, &[sum, sum])]);
        self.made("a graph of a sum", 15, &[others(801, &[sum])]);
        Ok(())
    }

    /// Numbers that are said, comparisons and choices, and a graph of a gradient with a ReLU's behind it.
    fn choices(&mut self) -> Made<()> {
        let backend = self.backend;
        let flag = |name, is_so: bool| Attribute(name, 2, 1, vec![u8::from(is_so)]);
        let said = |name: i64| with(with(tensor(name, [1; 4]), integers(903, &[1; 4])), flag(908, true));
        self.made("a number that is said", 17, &said(50));
        self.made("a number that is said and never in memory", 17, &with(said(50), flag(907, true)));
        self.made("a tensor that is said", 17, &with(tensor(50, [2, 8, 5, 5]), flag(908, true)));
        self.made("an integer for whether a number is said", 17, &with(said(50), integers(908, &[1])));
        let whole = |name: i64| tensor(name, [2, 4, 5, 5]);
        let between = |name: i64| with(whole(name), flag(907, true));
        let truths = |name: i64| with(between(name), numbers(901, 1, &[BOOLEAN]));
        let each = |mode: i32, tensors: &[(c_int, Handle)]| -> Made<Vec<Attribute>> {
            let of = [others(750, &[backend.make(0, &of_mode(mode))?])];
            Ok(of.into_iter().chain(tensors.iter().map(|(name, tensor)| others(*name, &[*tensor]))).collect())
        };
        let make = |attributes: Vec<Attribute>| backend.make(17, &attributes);
        let (zero, value, is_above) = (make(said(50))?, make(between(51))?, make(truths(52))?);
        let (features, to) = (make(whole(53))?, make(whole(54))?);
        let comparison = each(GREATER, &[(751, features), (752, zero), (753, is_above)])?;
        let choice = each(SELECT, &[(751, value), (752, zero), (758, is_above), (753, to)])?;
        self.made("a comparison", 13, &comparison);
        self.made("a choice between values", 13, &choice);
        for name in [750, 751, 752, 753] {
            self.made(&format!("a comparison without {name}"), 13, &without(comparison.clone(), name));
        }
        for name in [750, 751, 752, 753, 758] {
            self.made(&format!("a choice between values without {name}"), 13, &without(choice.clone(), name));
        }
        let of = operation(backend, 12, &Parts { input: between(51), ..parts() })?;
        let gradient = backend.make(12, &with(of, others(710, &[value])))?;
        let (comparison, choice) = (backend.make(13, &comparison)?, backend.make(13, &choice)?);
        self.made("a graph of a gradient by the input and of a ReLU's", 15, &[others(801, &[gradient, comparison, choice])]);
        self.made("a graph of them without the comparison", 15, &[others(801, &[gradient, choice])]);
        Ok(())
    }

    fn cards(&mut self) {
        let json = |text: &str| vec![Attribute(2702, 24, text.len() as i64, text.as_bytes().to_vec())];
        self.made("properties", 38, &json(H100));
        self.made("no properties", 38, &[]);
        self.made("properties without a name", 38, &json("{}"));
        self.made("properties of no object", 38, &json("abc"));
        let all: serde_json::Map<String, serde_json::Value> = serde_json::from_str(H100).unwrap();
        for name in all.keys() {
            let mut fewer = all.clone();
            fewer.remove(name);
            self.made(&format!("properties without {name}"), 38, &json(&serde_json::to_string(&fewer).unwrap()));
        }
    }

    /// Choices, engines and plans, of whichever engine is the first.
    fn engines(&mut self) -> Made<()> {
        let backend = self.backend;
        let operation = backend.make(10, &operation(backend, 10, &parts())?)?;
        let graph = backend.make(15, &[others(801, &[operation])])?;
        let card = backend.make(38, &[Attribute(2702, 24, H100.len() as i64, H100.as_bytes().to_vec())])?;
        let heuristics = vec![others(201, &[graph]), numbers(200, 8, &[3]), others(204, &[card])];
        for name in [200, 201, 204] {
            self.made(&format!("heuristics without {name}"), 4, &without(heuristics.clone(), name));
        }
        let heuristics = backend.make(4, &heuristics)?;
        self.try_("no results", |backend| backend.get(heuristics, 202, 15, 0).map(drop));
        let choices = backend.list(heuristics, 202, 3, 64)?;
        // One that is for certain cards alone.
        for choice in choices {
            let engine = backend.list(choice, 300, 2, 1)?[0];
            let index = backend.get(engine, 1301, 3, 1)?.1[0] as i64;
            let of = vec![others(1300, &[graph]), integers(1301, &[index])];
            if backend.make(2, &of).is_ok() {
                continue;
            }
            self.made("an engine for no card", 2, &of);
            let of = with(of, others(1307, &[card]));
            self.made("an engine by its number", 2, &of);
            self.made("an engine without a graph", 2, &without(of.clone(), 1300));
            self.made("an engine without a number", 2, &without(of.clone(), 1301));
            self.made("an engine with a number that is none", 2, &with(of.clone(), integers(1301, &[1000])));
            self.made("an engine with a number below 0", 2, &with(of.clone(), integers(1301, &[-1])));
            let engine = backend.make(2, &of)?;
            let knobs = backend.list(choice, 302, 7, 64)?;
            let turned: Made<Vec<(i32, i64)>> = knobs
                .iter()
                .map(|knob| Ok((backend.get(*knob, 600, 9, 1)?.1[0] as i32, backend.get(*knob, 601, 3, 1)?.1[0] as i64)))
                .collect();
            let turned = turned?;
            let knob = |(of, value): (i32, i64)| backend.make(7, &[numbers(600, 9, &[of]), integers(601, &[value])]);
            let made: Vec<Handle> = turned.iter().map(|turned| knob(*turned)).collect::<Made<_>>()?;
            self.made("a choice", 3, &[others(300, &[engine])]);
            self.made("a choice with its knobs", 3, &[others(300, &[engine]), others(302, &made)]);
            let far = knob((turned[0].0, 123_456))?;
            self.made("a choice with a knob turned too far", 3, &[others(300, &[engine]), others(302, &[far])]);
            let unknown = knob((999, 1))?;
            self.made("a choice with a knob that is none", 3, &[others(300, &[engine]), others(302, &[unknown])]);
            self.made("a choice with a knob twice", 3, &[others(300, &[engine]), others(302, &[made[0], made[0]])]);
            self.made("a plan", 5, &[others(401, &[choice]), others(407, &[card])]);
            let plan = backend.make(5, &[others(401, &[choice]), others(407, &[card])])?;
            self.try_("its workspace", |backend| backend.get(plan, 402, 3, 1).map(drop));
            self.try_("its workspace of 4 bytes", |backend| backend.get(plan, 402, 23, 1).map(drop));
            self.try_("no bytes of its workspace", |backend| backend.get(plan, 402, 3, 0).map(drop));
            self.try_("what it has not", |backend| backend.get(plan, 9999, 3, 1).map(drop));
            self.try_("the same workspace by name", |backend| {
                let again = backend.make(3, &[others(300, &[engine]), others(302, &made)])?;
                let again = backend.make(5, &[others(401, &[again]), others(407, &[card])])?;
                let (first, second) = (backend.get(plan, 402, 3, 1)?.1[0], backend.get(again, 402, 3, 1)?.1[0]);
                if first == second { Ok(()) } else { Err(format!("{second} bytes, and not {first}")) }
            });
            return Ok(());
        }
        Err("no engine is for certain cards alone".to_string())
    }

    fn packs(&mut self) {
        let base = || vec![integers(1000, &[1, 2, 3]), addresses(1001, &[16, 32, 48]), addresses(1003, &[64])];
        self.made("addresses", 16, &base());
        for name in [1000, 1001, 1003] {
            self.made(&format!("addresses without {name}"), 16, &without(base(), name));
        }
        for (what, attribute) in [
            ("two tensors", addresses(1001, &[16, 32])),
            ("a tensor nowhere", addresses(1001, &[0, 32, 48])),
            ("no workspace", addresses(1003, &[0])),
            ("one name twice", integers(1000, &[1, 1, 3])),
            ("numbers for addresses", integers(1001, &[16, 32, 48])),
        ] {
            self.made(&format!("addresses with {what}"), 16, &with(base(), attribute));
        }
    }
}

fn table(path: &Path) -> String {
    let backend = Backend::load(path);
    let mut tries = Tries { backend: &backend, text: String::new() };
    tries.tensors();
    tries.convolutions();
    tries.cards();
    tries.engines().unwrap();
    tries.packs();
    tries.epilogues().unwrap();
    tries.attention().unwrap();
    tries.text
}

#[test]
fn the_mock_refuses_what_cudnn_refuses() {
    let Some(machine) = Machine::new("descriptors", &[64]) else { return };
    machine.add_cudnn();
    let said = table(&machine.folder().join("libcudnn.so.9"));
    let differ: Vec<String> = said
        .lines()
        .zip(TABLE.lines())
        .filter(|(mock, real)| mock != real)
        .map(|(mock, real)| format!("{mock}, and cuDNN: {real}"))
        .collect();
    assert!(differ.is_empty() && said.lines().count() == TABLE.lines().count(), "{}", differ.join("\n"));
}

#[test]
fn cudnn_refuses_what_the_table_says() {
    let environment = Environment::of(std::env::vars());
    let found = match ComputeLibrary::Cudnn.find(&environment).found {
        Ok(found) => found,
        Err(why) => {
            eprintln!("skipped: cuDNN is not installed: {why}; {}", ComputeLibrary::Cudnn.install());
            return;
        }
    };
    let is_small = Planner::find(&environment).map_or_else(|why| why.code() == Code::NotFound, |planner| planner.compiles_all());
    if (found.version.0, found.version.1) != (9, 26) || is_small {
        eprintln!("skipped: cuDNN {:?} is not that of the table, 9.26 with all of its libraries and cuBLASLt", found.version);
        return;
    }
    let said = table(&found.path);
    if std::env::var_os("PLIMSOLL_BLESS").is_some() {
        std::fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join("data/cudnn/descriptors.txt"), &said).unwrap();
        return;
    }
    let differ: Vec<&str> = said.lines().filter(|line| !TABLE.lines().any(|other| other == *line)).collect();
    assert!(differ.is_empty(), "cuDNN {:?} says otherwise:\n{}", found.version, differ.join("\n"));
}
