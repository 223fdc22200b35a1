//! Graphs in the making, for front ends in Python. A node is its number, a tensor a node and the number of its output.

use std::sync::{Mutex, MutexGuard, PoisonError};

use plimsoll::builder::{GraphBuilder, Scopes};
use plimsoll::graph::{ArgType, Id};
use plimsoll::{Code, DataType, Error, NodeId, Output, PartialShape, formats};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::attrs::{Dims, attr_of, attr_to};
use crate::errors::raised;
use crate::process::Own;
use crate::tensor::to_value;

/// A node and one of its outputs.
type Tensor = (u32, u32);

/// Name, operation, device, inputs, and the nodes that it runs after.
type Described = (String, String, String, Vec<Tensor>, Vec<u32>);

/// The wire number of the type, whether it is a reference, and the shape.
type Facts = (i32, bool, Dims);

/// A graph in the making. Scopes that are entered are left in turn.
#[pyclass(frozen, module = "plimsoll._native")]
pub struct Builder(Own<Mutex<State>>);

struct State {
    builder: GraphBuilder,
    around: Vec<Scopes>,
}

impl State {
    fn node(&self, number: u32) -> plimsoll::Result<NodeId> {
        let node = NodeId::from_index(number as usize);
        self.builder.graph().nodes().get(node).map(|_| node).ok_or_else(|| wrong(format!("there is no node {number}")))
    }

    fn nodes(&self, numbers: &[u32]) -> plimsoll::Result<Vec<NodeId>> {
        numbers.iter().map(|number| self.node(*number)).collect()
    }

    fn output(&self, (node, index): Tensor) -> plimsoll::Result<Output> {
        Ok(Output { node: self.node(node)?, index })
    }
}

fn wrong(message: String) -> Error {
    Error::new(Code::InvalidArgument, message)
}

fn number(node: NodeId) -> u32 {
    node.index() as u32
}

impl Builder {
    fn state(&self) -> PyResult<MutexGuard<'_, State>> {
        Ok(self.0.get()?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Opens a scope; it is left by `leave`.
    fn enter<T>(&self, py: Python<'_>, open: impl FnOnce(&mut State) -> plimsoll::Result<T>) -> PyResult<T> {
        let mut state = self.state()?;
        let around = state.builder.scopes();
        let opened = open(&mut state).map_err(|error| raised(py, &error))?;
        state.around.push(around);
        Ok(opened)
    }

    /// The graph as far as it is built.
    pub fn graph(&self) -> PyResult<plimsoll::Graph> {
        Ok(self.state()?.builder.graph().clone())
    }
}

#[pymethods]
impl Builder {
    #[new]
    fn new() -> Builder {
        Builder(Own::new(Mutex::new(State { builder: plimsoll::builder::standard(), around: Vec::new() })))
    }

    /// Adds a node: its number. A name that ends with a slash is the name itself. Attributes that follow need not be given.
    #[pyo3(signature = (op, name, inputs, attrs, controls))]
    fn add(
        &self,
        py: Python<'_>,
        op: &str,
        name: Option<&str>,
        inputs: Vec<Tensor>,
        attrs: &Bound<'_, PyDict>,
        controls: Vec<u32>,
    ) -> PyResult<u32> {
        let mut state = self.state()?;
        let fail = |error: Error| raised(py, &error);
        let def = state.builder.registry().table().require(op).map_err(fail)?;
        let inputs = inputs.into_iter().map(|input| state.output(input)).collect::<plimsoll::Result<Vec<Output>>>().map_err(fail)?;
        let controls = state.nodes(&controls).map_err(fail)?;
        let mut node = state.builder.op(op);
        for (key, value) in attrs {
            let key: String = key.extract()?;
            let known = def.attrs.iter().find(|attr| attr.name == key);
            let kind = match known {
                Some(attr) => attr.kind.as_str(),
                None if key.starts_with('_') => "list(string)",
                None => return Err(fail(wrong(format!("{op} has no attribute '{key}'")))),
            };
            let attr = attr_of(kind, &value).map_err(|error| {
                let text = format!("attribute '{key}' of {op} is {kind}: {}", error.value(py));
                if error.is_instance_of::<pyo3::exceptions::PyNotImplementedError>(py) {
                    error
                } else {
                    pyo3::exceptions::PyTypeError::new_err(text)
                }
            })?;
            node = node.attr(&key, attr);
        }
        if let Some(name) = name {
            node = node.name(name);
        }
        node.inputs(inputs).controls(controls).build_node().map(number).map_err(fail)
    }

    /// How many nodes there are: their numbers are below.
    fn __len__(&self) -> PyResult<usize> {
        Ok(self.state()?.builder.graph().nodes().len())
    }

    /// A node's name, operation, device, inputs and the nodes that it runs after.
    fn node(&self, py: Python<'_>, node: u32) -> PyResult<Described> {
        let state = self.state()?;
        let node = state.builder.node(state.node(node).map_err(|error| raised(py, &error))?);
        let inputs = node.inputs.iter().map(|input| (number(input.node), input.index)).collect();
        let controls = node.controls.iter().map(|control| number(*control)).collect();
        Ok((node.name.clone(), node.op.clone(), node.device.clone(), inputs, controls))
    }

    /// A node's attributes.
    fn attrs<'py>(&self, py: Python<'py>, node: u32) -> PyResult<Bound<'py, PyDict>> {
        let state = self.state()?;
        let node = state.builder.node(state.node(node).map_err(|error| raised(py, &error))?);
        let attrs = PyDict::new(py);
        for (name, value) in node.attrs.iter() {
            attrs.set_item(name, attr_to(py, value)?)?;
        }
        Ok(attrs)
    }

    /// The facts about a node's outputs.
    fn outputs(&self, py: Python<'_>, node: u32) -> PyResult<Vec<Facts>> {
        let state = self.state()?;
        let node = state.node(node).map_err(|error| raised(py, &error))?;
        let fact = |index| {
            let fact = state.builder.fact(Output { node, index });
            (fact.data_type.number(), fact.is_ref, fact.shape.0.clone())
        };
        Ok((0..state.builder.output_count(node) as u32).map(fact).collect())
    }

    /// The elements of a tensor where they are known before anything runs.
    fn value(&self, py: Python<'_>, tensor: Tensor) -> PyResult<Option<Py<PyAny>>> {
        let state = self.state()?;
        let output = state.output(tensor).map_err(|error| raised(py, &error))?;
        state.builder.fact(output).value.clone().map(|value| to_value(py, value)).transpose()
    }

    fn set_shape(&self, py: Python<'_>, tensor: Tensor, shape: Dims) -> PyResult<()> {
        let mut state = self.state()?;
        let output = state.output(tensor).map_err(|error| raised(py, &error))?;
        state.builder.set_shape(output, &PartialShape(shape)).map_err(|error| raised(py, &error))
    }

    fn set_device(&self, py: Python<'_>, node: u32, device: &str) -> PyResult<()> {
        let mut state = self.state()?;
        state.node(node).and_then(|node| state.builder.set_device(node, device)).map_err(|error| raised(py, &error))
    }

    /// The second input of a Merge becomes what a NextIteration gives.
    fn close_loop(&self, py: Python<'_>, merge: u32, next: u32) -> PyResult<()> {
        let mut state = self.state()?;
        let nodes = state.node(merge).and_then(|merge| Ok((merge, state.node(next)?)));
        nodes.and_then(|(merge, next)| state.builder.close_loop(merge, next)).map_err(|error| raised(py, &error))
    }

    /// A name that is not taken, under the name scope; it is taken now.
    fn unique_name(&self, name: &str) -> PyResult<String> {
        Ok(self.state()?.builder.unique_name(name))
    }

    /// The name scope, without a slash at the end.
    fn name_scope(&self) -> PyResult<String> {
        Ok(self.state()?.builder.current_name_scope().to_string())
    }

    fn enter_name_scope(&self, py: Python<'_>, name: &str) -> PyResult<String> {
        self.enter(py, |state| Ok(state.builder.enter_name_scope(name).to_string()))
    }

    /// A device, or none.
    fn enter_device(&self, py: Python<'_>, device: Option<&str>) -> PyResult<()> {
        self.enter(py, |state| match device {
            Some(device) => state.builder.enter_device(device),
            None => {
                state.builder.enter_no_device();
                Ok(())
            }
        })
    }

    /// Nodes that have to have run, or none.
    fn enter_control_dependencies(&self, py: Python<'_>, nodes: Option<Vec<u32>>) -> PyResult<()> {
        self.enter(py, |state| match nodes {
            Some(nodes) => state.nodes(&nodes).and_then(|nodes| state.builder.enter_control_dependencies(&nodes)),
            None => {
                state.builder.enter_no_control_dependencies();
                Ok(())
            }
        })
    }

    /// A node that others are placed with, the name of one that is yet to be made, or none.
    #[pyo3(signature = (node=None, name=None))]
    fn enter_colocation(&self, py: Python<'_>, node: Option<u32>, name: Option<&str>) -> PyResult<()> {
        self.enter(py, |state| match (node, name) {
            (Some(node), _) => state.node(node).and_then(|node| state.builder.enter_colocation(node)),
            (None, Some(name)) => {
                state.builder.enter_colocation_with_new(name);
                Ok(())
            }
            (None, None) => {
                state.builder.enter_no_colocation();
                Ok(())
            }
        })
    }

    /// Leaves the scope that was entered last.
    fn leave(&self) -> PyResult<()> {
        let mut state = self.state()?;
        if let Some(scopes) = state.around.pop() {
            state.builder.set_scopes(scopes);
        }
        Ok(())
    }

    fn set_seed(&self, seed: Option<i64>) -> PyResult<()> {
        self.state()?.builder.set_seed(seed);
        Ok(())
    }

    /// The attributes `seed` and `seed2` of a random operation made here.
    #[pyo3(signature = (own=None))]
    fn seeds(&self, own: Option<i64>) -> PyResult<(i64, i64)> {
        Ok(self.state()?.builder.seeds(own))
    }

    /// The gradients of ys for xs; None where no y depends on an x.
    fn gradients(
        &self,
        py: Python<'_>,
        ys: Vec<Tensor>,
        grad_ys: Vec<Option<Tensor>>,
        xs: Vec<Tensor>,
        gate: bool,
    ) -> PyResult<Vec<Option<Tensor>>> {
        let mut state = self.state()?;
        let made = (|| {
            let all = |tensors: &[Tensor]| tensors.iter().map(|tensor| state.output(*tensor)).collect::<plimsoll::Result<Vec<Output>>>();
            let (ys, xs) = (all(&ys)?, all(&xs)?);
            let given = grad_ys.iter().map(|tensor| tensor.map(|tensor| state.output(tensor)).transpose());
            let given = given.collect::<plimsoll::Result<Vec<Option<Output>>>>()?;
            state.builder.set_gate_gradients(gate);
            let made = state.builder.gradients_from(&ys, &given, &xs);
            state.builder.set_gate_gradients(false);
            made
        })();
        let made = made.map_err(|error: Error| raised(py, &error))?;
        Ok(made.into_iter().map(|output| output.map(|output| (number(output.node), output.index))).collect())
    }

    /// The graph as an encoded GraphDef.
    fn graph_def<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &formats::write_graph_def(&self.graph()?.to_def())))
    }

    /// The graph as a GraphDef in protobuf's text form.
    fn graph_text(&self) -> PyResult<String> {
        Ok(formats::print_graph_def(&self.graph()?.to_def()))
    }

    /// The names of all operations that nodes can be made of.
    fn operations(&self) -> PyResult<Vec<String>> {
        Ok(self.state()?.builder.registry().table().names().map(str::to_string).collect())
    }

    /// The names of the operations that have kernels.
    fn computed(&self) -> PyResult<Vec<&'static str>> {
        Ok(self.state()?.builder.registry().names())
    }

    /// An operation's inputs, outputs and attributes; None for one that is not there. An input or output is its name, the wire number
    /// of its type (0 where an attribute says it), the attributes that say type, number and list of types, and whether it is a
    /// reference. An attribute is its name, its kind, whether it has a default, and that.
    #[expect(clippy::type_complexity, reason = "plain data for Python")]
    fn op_def(
        &self,
        py: Python<'_>,
        op: &str,
    ) -> PyResult<
        Option<(
            Vec<(String, i32, String, String, String, bool)>,
            Vec<(String, i32, String, String, String, bool)>,
            Vec<(String, String, bool, Py<PyAny>)>,
        )>,
    > {
        let Some(def) = self.state()?.builder.registry().table().get(op) else { return Ok(None) };
        let mut attrs = Vec::with_capacity(def.attrs.len());
        for attr in &def.attrs {
            let default = attr.default.as_ref().map(|default| attr_to(py, default)).transpose()?;
            attrs.push((attr.name.clone(), attr.kind.clone(), default.is_some(), default.unwrap_or_else(|| py.None())));
        }
        macro_rules! ends {
            ($args:expr) => {
                $args
                    .iter()
                    .map(|arg| {
                        let attrs = (arg.type_attr.clone(), arg.number_attr.clone(), arg.type_list_attr.clone());
                        (arg.name.clone(), arg.data_type, attrs.0, attrs.1, attrs.2, arg.is_ref)
                    })
                    .collect()
            };
        }
        Ok(Some((ends!(def.inputs), ends!(def.outputs), attrs)))
    }
}

/// The names of all types with their wire numbers; a reference's is 100 more.
#[pyfunction]
pub fn types() -> Vec<(&'static str, i32)> {
    DataType::ALL.iter().map(|kind| (kind.name(), ArgType { base: *kind, is_ref: false }.number())).collect()
}
