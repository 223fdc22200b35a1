//! The devices of a program, with the operations that graphs are made of.

use std::io::Write;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use plimsoll_base::Result;
use plimsoll_device::Division;
use plimsoll_graph::{Graph, GraphDef};
use plimsoll_ops::{GraphBuilder, Registry};

use crate::checkpoint::Files;
use crate::model::{self, Model, SavedGraph};
use crate::values::Values;
use crate::{DeviceKind, DeviceSpec, Options, PlacementMode, Session, machine};

/// Logical devices, each with its line, opened once and shared by sessions. Cloning shares them.
///
/// Everything of [`plimsoll_runtime::Devices`] is here too: specifications, options, reports.
#[derive(Clone, Debug)]
pub struct Devices {
    inner: plimsoll_runtime::Devices,
    registry: Arc<Registry>,
    log: PlacementLog,
}

/// Where [`Options::log_placement`] writes the line of every node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlacementLog {
    /// Standard output, as TensorFlow does.
    #[default]
    Stdout,
    /// Standard error, where standard output is for something else.
    Stderr,
}

impl From<plimsoll_runtime::Devices> for Devices {
    /// Devices from another maker, with TensorFlow's operations.
    fn from(inner: plimsoll_runtime::Devices) -> Devices {
        Devices { inner, registry: Arc::new(plimsoll_runtime::standard_registry()), log: PlacementLog::default() }
    }
}

impl Devices {
    /// Opens the devices that the options, and the variables that TensorFlow and CUDA look at, make of this machine. With
    /// [`Options::log_placement`], the [mapping](Devices::device_mapping) is written to standard error.
    ///
    /// # Errors
    /// INVALID_ARGUMENT naming option and value for options that make no sense; UNIMPLEMENTED for those of later work.
    pub fn open(options: &Options) -> Result<Devices> {
        let inner = plimsoll_runtime::Devices::open_in(options, &machine::environment())?;
        let devices = Devices { inner, registry: Arc::new(plimsoll_runtime::standard_registry()), log: PlacementLog::default() };
        if options.log_placement {
            note(devices.device_mapping());
        }
        Ok(devices)
    }

    /// How [`Devices::open`] would divide this machine. No device is opened, and nothing is reserved.
    ///
    /// # Errors
    /// As [`Devices::open`], but for room.
    pub fn divide(options: &Options) -> Result<Division> {
        plimsoll_runtime::Devices::divide(options, &machine::environment())
    }

    /// The same devices with the lines of their sessions' nodes going there.
    pub fn with_placement_log(self, log: PlacementLog) -> Devices {
        Devices { log, ..self }
    }

    /// Which logical device is on which card, as TensorFlow logs it with `log_device_placement`: `Device mapping:` and a line
    /// for each, or that there are none.
    pub fn device_mapping(&self) -> String {
        let line = |spec: &DeviceSpec| (spec.kind == DeviceKind::Gpu).then(|| format!("\n{} -> {}", spec.name, spec.description));
        match self.inner.specs().iter().filter_map(line).collect::<String>() {
            none if none.is_empty() => "Device mapping: no known devices.".to_string(),
            lines => format!("Device mapping:{lines}"),
        }
    }

    /// A session for the model at `path`: a GraphDef, binary or text (`.pb`, `.pbtxt`), or a SavedModel folder, whose variables
    /// have their values and whose signatures can be called ([`Session::call`]).
    ///
    /// # Errors
    /// NOT_FOUND where there is no such file; the flaw of the file and its place; for files of other kinds the error says what
    /// exports them. Otherwise as [`Devices::session`], and for a SavedModel as [`Session::run`] of its restoring operations.
    pub fn load(&self, path: impl AsRef<Path>) -> Result<Session> {
        let path = path.as_ref();
        match model::read(path)? {
            Model::Graph(def) => self.session(self.resolve(def)?),
            Model::SavedModel(saved) => {
                let saved = SavedGraph::new(*saved, path)?;
                let session = self.session_with(self.resolve(saved.graph)?, &saved.values, saved.init)?.with_signatures(saved.signatures);
                session.prepare()?;
                Ok(session)
            }
        }
    }

    /// The graph of a definition: names become ids, missing attributes are filled in, and the graph is checked.
    ///
    /// # Errors
    /// INVALID_ARGUMENT naming the node.
    pub fn resolve(&self, def: GraphDef) -> Result<Graph> {
        Graph::resolve(def, self.registry.table())
    }

    /// A session for a graph. With [`Options::log_placement`], the device of every node is written to standard output, as
    /// [`Session::placement_log`] has it. The placer's other notes go to standard error.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for device strings that make no sense. The same for nodes that ask for a device that is not there where
    /// soft placement is off.
    pub fn session(&self, graph: Graph) -> Result<Session> {
        self.session_with(graph, &Values::default(), Vec::new())
    }

    /// As [`Devices::session`], with values of variables from files, and operations that [`Session::prepare`] runs. The values
    /// are read when a run first needs the variables.
    ///
    /// # Errors
    /// As [`Devices::session`]; NOT_FOUND where files are not there; the flaw of a file.
    pub fn session_with(&self, graph: Graph, values: &Values, init: Vec<String>) -> Result<Session> {
        let session = self.unlogged(&graph, values, init)?;
        drop(graph);
        // By first fit it is placed again, when its runs are known.
        if self.inner.options().placement != PlacementMode::FirstFit {
            self.write_log(&session);
        }
        Ok(session)
    }

    pub(crate) fn unlogged(&self, graph: &Graph, values: &Values, init: Vec<String>) -> Result<Session> {
        let (registry, files) = (self.registry.clone(), Arc::new(Files));
        let mut run = Vec::new();
        let mut stored = |graph: &Graph| {
            let mut opened = values.open(graph)?;
            run.append(&mut opened.run);
            Ok(opened.stored())
        };
        let inner = plimsoll_runtime::Session::with_files(&self.inner, graph, registry, files, &mut stored)?;
        run.extend(init);
        Ok(Session::from(inner).with_preparation(run))
    }

    pub(crate) fn write_log(&self, session: &Session) {
        if self.inner.options().log_placement {
            session.placement().notes.iter().for_each(note);
            let lines: String = session.placement_log().map(|line| line + "\n").collect();
            // A stream that cannot be written to is ignored.
            let _ = match self.log {
                PlacementLog::Stdout => std::io::stdout().lock().write_all(lines.as_bytes()),
                PlacementLog::Stderr => std::io::stderr().lock().write_all(lines.as_bytes()),
            };
        }
    }

    /// An empty graph, to be built of these operations.
    pub fn builder(&self) -> GraphBuilder {
        GraphBuilder::new(self.registry.clone())
    }

    /// The operations.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }
}

impl Deref for Devices {
    type Target = plimsoll_runtime::Devices;

    fn deref(&self) -> &plimsoll_runtime::Devices {
        &self.inner
    }
}

/// Writes a line to standard error.
fn note(text: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}
