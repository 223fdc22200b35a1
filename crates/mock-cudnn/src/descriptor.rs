//! Descriptors: attributes that a program sets, and what they are as a whole once they are finished.

use std::collections::{BTreeMap, HashMap};
use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::attention::{Attention, Operation};
use crate::attributes::kind;
use crate::behind::{Behind, OnEach, Statistics};
use crate::convolution::{Convolution, Tensor, Window};
use crate::engines::Engine;
use crate::status::{BAD, NO_HOST_MEMORY, NULL, Status};

/// Why not, in words.
pub type Why = (Status, String);
pub type Answer<T> = Result<T, Why>;

pub fn because<T>(status: Status, why: impl Into<String>) -> Answer<T> {
    Err((status, why.into()))
}

/// A descriptor. Others that have it as an attribute keep it.
#[derive(Debug)]
pub struct Descriptor {
    pub kind: c_int,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
pub struct State {
    /// The bytes of each attribute's elements.
    pub values: BTreeMap<c_int, Vec<u8>>,
    /// The descriptors of each attribute that has some.
    pub others: BTreeMap<c_int, Vec<Arc<Descriptor>>>,
    pub made: Option<Made>,
}

/// What a finished descriptor is.
#[derive(Clone, Debug)]
pub enum Made {
    Tensor(Tensor),
    Window(Window),
    Convolution(Convolution),
    /// `cudnnPointwiseMode_t`.
    Pointwise(c_int),
    OnEach(OnEach),
    /// Of a graph of attention.
    Operation(Operation),
    /// What a product is: floats.
    Arithmetic,
    /// `cudnnReduceTensorOp_t`, of floats.
    Reduction(c_int),
    Statistics(Statistics),
    Graph(Graph),
    /// A card's properties, as JSON.
    Properties(String),
    Engines(Vec<Choice>),
    Engine(Choice),
    Choice(Choice),
    Knob(c_int, i64),
    Plan(Plan),
    Pack(Pack),
}

/// What is computed, and the handle whose card it is for.
#[derive(Clone, Debug)]
pub struct Graph {
    pub of: Computed,
    pub handle: Option<usize>,
}

/// A convolution with what is behind it, or attention.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "a test has a few of them")]
pub enum Computed {
    Convolution(Convolution, Behind),
    Attention(Attention),
}

/// An engine for a graph.
#[derive(Clone, Debug)]
pub struct Choice {
    pub graph: Graph,
    pub engine: Engine,
}

/// What can run; on cards of the handle.
#[derive(Clone, Debug)]
pub struct Plan {
    pub choice: Choice,
    pub handle: Option<usize>,
    pub workspace: u64,
}

/// Addresses.
#[derive(Clone, Debug)]
pub struct Pack {
    pub tensors: Vec<(i64, u64)>,
    pub workspace: u64,
}

#[derive(Default)]
struct All {
    last: usize,
    descriptors: HashMap<usize, Arc<Descriptor>>,
}

fn all() -> MutexGuard<'static, All> {
    static ALL: OnceLock<Mutex<All>> = OnceLock::new();
    ALL.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

impl Descriptor {
    /// Makes one; its number.
    pub fn create(of: c_int) -> Answer<usize> {
        if !kind::ALL.contains(&of) {
            return because(NO_HOST_MEMORY, format!("no descriptor of kind {of}"));
        }
        let mut all = all();
        all.last += 1;
        // As aligned as an address.
        let number = all.last << 4;
        all.descriptors.insert(number, Arc::new(Descriptor { kind: of, state: Mutex::default() }));
        Ok(number)
    }

    /// The descriptor of a number.
    pub fn of(number: usize) -> Answer<Arc<Descriptor>> {
        if number == 0 {
            return because(NULL, "no descriptor");
        }
        all().descriptors.get(&number).cloned().ok_or_else(|| (BAD, "a descriptor that is not there".to_string()))
    }

    pub fn destroy(number: usize) -> Answer<()> {
        Descriptor::of(number)?;
        all().descriptors.remove(&number);
        Ok(())
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it is; an error where it is not finished.
    pub fn made(&self) -> Answer<Made> {
        self.state().made.clone().ok_or_else(|| (BAD, "a descriptor that is not finished".to_string()))
    }
}

impl State {
    pub fn integers(&self, name: c_int) -> Option<Vec<i64>> {
        let number = |bytes: &[u8]| bytes.try_into().map(i64::from_ne_bytes).ok();
        self.values.get(&name)?.chunks(8).map(number).collect()
    }

    pub fn integer(&self, name: c_int) -> Option<i64> {
        self.integers(name)?.first().copied()
    }

    /// A number of 4 bytes.
    pub fn number(&self, name: c_int) -> Option<c_int> {
        self.values.get(&name)?.as_slice().try_into().map(c_int::from_ne_bytes).ok()
    }

    pub fn float(&self, name: c_int) -> Option<f32> {
        self.values.get(&name)?.as_slice().try_into().map(f32::from_ne_bytes).ok()
    }

    pub fn other(&self, name: c_int) -> Option<&Arc<Descriptor>> {
        self.others.get(&name)?.first()
    }
}
