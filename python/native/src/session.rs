//! Sessions and callables. The interpreter's lock is free while they plan, wait and compute.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use plimsoll::{Cancellation, DataType, HostTensor, Result, Shape};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::errors::{closed, raised};
use crate::plan::Plan;
use crate::process::Own;
use crate::tensor::{of_value, to_value};

/// How long a wait is between two looks for a signal.
const LOOK: Duration = Duration::from_millis(50);

/// Does `work` without the interpreter's lock. A signal that Python turns into an exception, as Ctrl-C is, ends it.
fn interruptible<T: Send>(py: Python<'_>, under_way: &UnderWay, work: impl FnOnce(&Cancellation) -> Result<T> + Send) -> PyResult<T> {
    let cancellation = Arc::new(Cancellation::new());
    let _known = under_way.add(&cancellation);
    watched(py, || work(&cancellation), || cancellation.cancel())?.map_err(|error| raised(py, &error))
}

/// Does `work` without the interpreter's lock, in a thread of its own: signals come to the one that waits. The first signal that Python
/// turns into an exception calls `end`, which lets the work end soon; the exception comes when it has.
fn watched<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send, end: impl Fn()) -> PyResult<T> {
    let (is_done, ready) = (Mutex::new(false), Condvar::new());
    let (done, signal) = std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let done = work();
            *is_done.lock().unwrap_or_else(PoisonError::into_inner) = true;
            ready.notify_one();
            done
        });
        let mut signal = None;
        loop {
            py.detach(|| {
                let is_done = is_done.lock().unwrap_or_else(PoisonError::into_inner);
                drop(ready.wait_timeout_while(is_done, LOOK, |is_done| !*is_done));
            });
            if worker.is_finished() || *is_done.lock().unwrap_or_else(PoisonError::into_inner) {
                return (worker.join(), signal);
            }
            if signal.is_none()
                && let Err(error) = py.check_signals()
            {
                signal = Some(error);
                end();
            }
        }
    });
    match (done, signal) {
        (_, Some(signal)) => Err(signal),
        (Ok(done), None) => Ok(done),
        (Err(_), None) => Err(pyo3::exceptions::PySystemError::new_err("the thread of a run has panicked")),
    }
}

/// What runs of a session that may last can be ended by.
#[derive(Default)]
struct UnderWay(Mutex<Vec<Arc<Cancellation>>>);

impl UnderWay {
    fn all(&self) -> MutexGuard<'_, Vec<Arc<Cancellation>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Knows one until what comes back is dropped.
    fn add(&self, cancellation: &Arc<Cancellation>) -> Known<'_> {
        self.all().push(cancellation.clone());
        Known(self, cancellation.clone())
    }
}

struct Known<'a>(&'a UnderWay, Arc<Cancellation>);

impl Drop for Known<'_> {
    fn drop(&mut self) {
        self.0.all().retain(|known| !Arc::ptr_eq(known, &self.1));
    }
}

/// A graph on devices, with its variables.
#[pyclass(frozen, module = "plimsoll._native")]
pub struct Session {
    session: Own<RwLock<Option<plimsoll::Session>>>,
    /// The types of the tensors that were fed, by their names.
    types: Mutex<HashMap<String, Option<DataType>>>,
    /// Whether there are loops: how long a run takes is then not known from the one before.
    has_loops: bool,
    /// The runs under way, for which another one may have to wait.
    running: AtomicUsize,
    under_way: UnderWay,
}

/// A run under way, until it is dropped.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(running: &'a AtomicUsize) -> (Counted<'a>, bool) {
        let is_alone = running.fetch_add(1, Ordering::Relaxed) == 0;
        (Counted(running), is_alone)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether signals come to this thread.
fn is_main_thread() -> bool {
    std::thread::current().id() == *MAIN.get_or_init(|| std::thread::current().id())
}

/// The thread that imported the module; signals come to the main one, which is that as a rule.
pub static MAIN: OnceLock<ThreadId> = OnceLock::new();

const LOOPS: [&str; 4] = ["Enter", "RefEnter", "While", "StatelessWhile"];

fn has_loops(session: &plimsoll::Session) -> bool {
    let (graph, is_loop) = (session.graph(), |op: &str| LOOPS.contains(&op));
    let mut functions = graph.library.functions.iter();
    graph.nodes().values().any(|node| is_loop(&node.op)) || functions.any(|function| function.nodes.iter().any(|node| is_loop(&node.op)))
}

impl Session {
    pub fn new(session: plimsoll::Session) -> Session {
        let has_loops = has_loops(&session);
        Session {
            session: Own::new(RwLock::new(Some(session))),
            types: Mutex::default(),
            has_loops,
            running: AtomicUsize::new(0),
            under_way: UnderWay::default(),
        }
    }

    fn get(&self) -> PyResult<plimsoll::Session> {
        self.session.get()?.read().unwrap_or_else(PoisonError::into_inner).clone().ok_or_else(closed)
    }

    /// # Errors
    /// RuntimeError for a closed session.
    fn check_open(&self) -> PyResult<()> {
        match self.session.get()?.read().unwrap_or_else(PoisonError::into_inner).is_some() {
            true => Ok(()),
            false => Err(closed()),
        }
    }

    /// The type of a tensor, where the graph says it.
    fn type_of(&self, session: &plimsoll::Session, name: &str) -> Option<DataType> {
        let mut types = self.types.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = types.get(name) {
            return *known;
        }
        let found = dtype(session, name);
        types.insert(name.to_string(), found);
        found
    }

    fn fed(&self, session: &plimsoll::Session, names: &[String], values: &Bound<'_, PyTuple>) -> PyResult<Vec<HostTensor>> {
        names.iter().zip(values.iter_borrowed()).map(|(name, value)| of_value(&value, self.type_of(session, name))).collect()
    }
}

/// The type of a tensor of a graph, where an attribute of its node says it.
fn dtype(session: &plimsoll::Session, name: &str) -> Option<DataType> {
    use plimsoll::graph::AttrsExt;
    let graph = session.graph();
    let output = graph.tensor(name).ok()?;
    let node = graph.node(output.node);
    ["dtype", "T", "DstT", "out_type"]
        .into_iter()
        .find_map(|attr| node.attrs.data_type(attr).ok())
        .filter(|_| node.op.starts_with("Placeholder"))
}

fn refs(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}

#[pymethods]
impl Session {
    /// The plan of such a run. Nothing of the graph runs.
    fn plan(
        &self,
        py: Python<'_>,
        names: Vec<String>,
        values: &Bound<'_, PyTuple>,
        fetches: Vec<String>,
        targets: Vec<String>,
    ) -> PyResult<Plan> {
        let session = self.get()?;
        let tensors = self.fed(&session, &names, values)?;
        interruptible(py, &self.under_way, |cancellation| {
            let feeds: Vec<(&str, HostTensor)> = refs(&names).into_iter().zip(tensors).collect();
            session.until(cancellation).plan(&feeds, &refs(&fetches), &refs(&targets))
        })
        .map(Plan)
    }

    /// As many runs as there are calls: each gives a list, or, where `one` is said, the one tensor that is fetched.
    #[pyo3(signature = (names, fetches, targets, one=false))]
    fn callable(slf: Py<Self>, names: Vec<String>, fetches: Vec<String>, targets: Vec<String>, one: bool) -> PyResult<Callable> {
        let session = slf.get().get()?;
        let types = names.iter().map(|name| slf.get().type_of(&session, name)).collect();
        let one = one && fetches.len() == 1;
        Ok(Callable { session: slf, names, types, fetches, targets, one, last: Own::new(Mutex::new(None)) })
    }

    /// Calls a signature: names and values of results.
    fn call(&self, py: Python<'_>, signature: &str, names: Vec<String>, values: &Bound<'_, PyTuple>) -> PyResult<Vec<(String, Py<PyAny>)>> {
        let session = self.get()?;
        let types: Vec<Option<DataType>> = match session.signatures().get(signature) {
            Some(found) => names.iter().map(|name| found.inputs.get(name).and_then(|info| self.type_of(&session, &info.name))).collect(),
            None => vec![None; names.len()],
        };
        let tensors = types.into_iter().zip(values.iter_borrowed()).map(|(wanted, value)| of_value(&value, wanted));
        let tensors = tensors.collect::<PyResult<Vec<HostTensor>>>()?;
        let made = interruptible(py, &self.under_way, |cancellation| {
            let feeds: Vec<(&str, HostTensor)> = refs(&names).into_iter().zip(tensors).collect();
            session.until(cancellation).call(signature, &feeds)
        })?;
        made.into_iter().map(|(name, tensor)| Ok((name, to_value(py, tensor)?))).collect()
    }

    /// The signatures: for each its inputs and its outputs, as name, tensor, type and shape.
    fn signatures<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let session = self.get()?;
        let all = PyDict::new(py);
        for (name, signature) in session.signatures() {
            let ends = |infos: &std::collections::BTreeMap<String, plimsoll::formats::TensorInfo>| {
                let ends = PyDict::new(py);
                for (name, info) in infos {
                    ends.set_item(name, (info.name.as_str(), type_name(info.dtype), info.tensor_shape.as_ref().map(dims)))?;
                }
                PyResult::Ok(ends)
            };
            all.set_item(name, (ends(&signature.inputs)?, ends(&signature.outputs)?))?;
        }
        Ok(all)
    }

    /// The names of all operations.
    fn operations(&self) -> PyResult<Vec<String>> {
        Ok(self.get()?.graph().node_names().map(str::to_string).collect())
    }

    /// The variables: name, type and shape.
    fn variables(&self) -> PyResult<Vec<(String, String, Vec<u64>)>> {
        let of = |variable: plimsoll::VariableInfo| (variable.name.clone(), variable.data_type.name().to_string(), variable.shape.to_vec());
        Ok(self.get()?.variables().into_iter().map(of).collect())
    }

    fn read_variable(&self, py: Python<'_>, name: &str) -> PyResult<Py<PyAny>> {
        let session = self.get()?;
        let tensor = py.detach(|| session.read_variable(name)).map_err(|error| raised(py, &error))?;
        to_value(py, tensor)
    }

    fn write_variable(&self, py: Python<'_>, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let session = self.get()?;
        let wanted = session.variables().into_iter().find(|variable| variable.name == name).map(|variable| variable.data_type);
        let tensor = of_value(value, wanted)?;
        py.detach(|| session.write_variable(name, &tensor)).map_err(|error| raised(py, &error))
    }

    fn save(&self, py: Python<'_>, prefix: PathBuf) -> PyResult<()> {
        let session = self.get()?;
        py.detach(|| session.save(prefix)).map_err(|error| raised(py, &error))
    }

    fn restore(&self, py: Python<'_>, checkpoint: PathBuf) -> PyResult<()> {
        let session = self.get()?;
        py.detach(|| session.restore(checkpoint)).map(drop).map_err(|error| raised(py, &error))
    }

    /// Gives every byte back, once runs under way are done. A signal that Python turns into an exception, as Ctrl-C is, ends these.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Some(session) = self.session.get()?.write().unwrap_or_else(PoisonError::into_inner).take() else { return Ok(()) };
        let close = move || {
            session.close();
            drop(session);
        };
        watched(py, close, || self.under_way.all().iter().for_each(|run| run.cancel()))
    }
}

fn type_name(number: i32) -> &'static str {
    DataType::from_number(number).map_or("unknown", DataType::name)
}

/// Sizes; none of an unknown rank, and -1 for unknown ones.
fn dims(shape: &plimsoll::formats::TensorShapeProto) -> Option<Vec<i64>> {
    (!shape.unknown_rank).then(|| shape.dim.iter().map(|dim| dim.size).collect())
}

/// A run that is called again and again. It is planned for the shapes that it was called with last.
#[pyclass(frozen, weakref, module = "plimsoll._native")]
pub struct Callable {
    session: Py<Session>,
    names: Vec<String>,
    types: Vec<Option<DataType>>,
    fetches: Vec<String>,
    targets: Vec<String>,
    /// Whether its one fetch is given as it is.
    one: bool,
    last: Own<Mutex<Option<Arc<Last>>>>,
}

/// The plan for the feeds of the last call.
struct Last {
    shapes: Vec<(DataType, Shape)>,
    /// The elements that the plan depends on, by feed.
    values: Vec<Option<HostTensor>>,
    callable: plimsoll::Callable,
    /// Whether runs are so short that no signal need end them.
    is_short: bool,
}

impl Last {
    fn takes(&self, tensors: &[HostTensor]) -> bool {
        let same = |((kind, shape), tensor): (&(DataType, Shape), &HostTensor)| (*kind, shape) == (tensor.data_type(), tensor.shape());
        let valued = |(value, tensor): (&Option<HostTensor>, &HostTensor)| value.as_ref().is_none_or(|value| value == tensor);
        self.shapes.iter().zip(tensors).all(same) && self.values.iter().zip(tensors).all(valued)
    }
}

/// A run that took no longer is not watched for signals.
const SHORT: Duration = Duration::from_millis(5);

impl Callable {
    fn last(&self) -> PyResult<MutexGuard<'_, Option<Arc<Last>>>> {
        Ok(self.last.get()?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Plans and runs, and keeps the plan.
    fn run_anew(&self, py: Python<'_>, tensors: &[HostTensor], last: Option<Arc<Last>>) -> PyResult<Vec<HostTensor>> {
        let session = self.session.get().get()?;
        let feeds: Vec<&HostTensor> = tensors.iter().collect();
        let has_loops = self.session.get().has_loops;
        let (made, now) = interruptible(py, &self.session.get().under_way, |cancellation| {
            let (values, callable) = match &last {
                Some(last) => (last.values.clone(), last.callable.clone()),
                None => {
                    let fed: Vec<(&str, HostTensor)> = refs(&self.names).into_iter().zip(tensors.iter().cloned()).collect();
                    let session = session.until(cancellation);
                    let callable = session.callable_for(&fed, &refs(&self.fetches), &refs(&self.targets))?;
                    let signature = session.signature(&fed, &refs(&self.fetches), &refs(&self.targets))?;
                    let values: Vec<Option<HostTensor>> = signature.feeds.into_iter().map(|feed| feed.value).collect();
                    (if values.iter().any(Option::is_some) { values } else { Vec::new() }, callable)
                }
            };
            let begin = Instant::now();
            let made = callable.until(cancellation).run(&feeds)?;
            let shapes = tensors.iter().map(|tensor| (tensor.data_type(), tensor.shape().clone())).collect();
            Ok((made, Last { shapes, values, callable, is_short: !has_loops && begin.elapsed() < SHORT }))
        })?;
        *self.last()? = Some(Arc::new(now));
        Ok(made)
    }
}

#[pymethods]
impl Callable {
    /// Drops the plan, and with it what the session has of the devices.
    fn close(&self) -> PyResult<()> {
        *self.last()? = None;
        Ok(())
    }

    #[pyo3(signature = (*values))]
    fn __call__(&self, py: Python<'_>, values: &Bound<'_, PyTuple>) -> PyResult<Py<PyAny>> {
        if values.len() != self.names.len() {
            let message = format!("Expected {} feeds, but got {}", self.names.len(), values.len());
            return Err(pyo3::exceptions::PyValueError::new_err(message));
        }
        let tensors = self.types.iter().zip(values.iter_borrowed()).map(|(wanted, value)| of_value(&value, *wanted));
        let tensors = tensors.collect::<PyResult<Vec<HostTensor>>>()?;
        self.session.get().check_open()?;
        let last = self.last()?.clone().filter(|last| last.takes(&tensors));
        let (_counted, is_alone) = Counted::new(&self.session.get().running);
        let ends_soon = |last: &Last| last.is_short && (is_alone || !is_main_thread());
        let mut made = match last {
            Some(last) if ends_soon(&last) => py
                .detach(|| {
                    let feeds: Vec<&HostTensor> = tensors.iter().collect();
                    let begin = Instant::now();
                    let made = last.callable.run(&feeds)?;
                    Ok((made, begin.elapsed() < SHORT))
                })
                .map_err(|error| raised(py, &error))
                .and_then(|(made, is_short)| {
                    if !is_short {
                        let Last { shapes, values, callable, .. } = &*last;
                        let (shapes, values, callable) = (shapes.clone(), values.clone(), callable.clone());
                        *self.last()? = Some(Arc::new(Last { shapes, values, callable, is_short }));
                    }
                    Ok(made)
                })?,
            last => self.run_anew(py, &tensors, last)?,
        };
        drop(tensors);
        match (self.one, made.pop()) {
            (true, Some(only)) => to_value(py, only),
            (_, last) => {
                made.extend(last);
                let values = made.into_iter().map(|tensor| to_value(py, tensor)).collect::<PyResult<Vec<_>>>()?;
                Ok(pyo3::types::PyList::new(py, values)?.into_any().unbind())
            }
        }
    }
}
