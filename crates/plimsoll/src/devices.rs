//! The devices of a program, with the operations that graphs are made of.

use std::io::Write;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use plimsoll_base::Result;
use plimsoll_graph::{Graph, GraphDef};
use plimsoll_ops::{GraphBuilder, Registry};

use crate::checkpoint::Files;
use crate::model::{self, Model, SavedGraph};
use crate::{Options, Session, machine};

/// Logical devices, each with its line, opened once and shared by sessions. Cloning shares them.
///
/// Everything of [`plimsoll_runtime::Devices`] is here too: specifications, options, reports.
#[derive(Clone, Debug)]
pub struct Devices {
    inner: plimsoll_runtime::Devices,
    registry: Arc<Registry>,
}

impl Devices {
    /// Opens the devices that the options, and the variables that TensorFlow and CUDA look at, make of this machine.
    ///
    /// # Errors
    /// INVALID_ARGUMENT naming option and value for options that make no sense; UNIMPLEMENTED for those of later work.
    pub fn open(options: &Options) -> Result<Devices> {
        let inner = plimsoll_runtime::Devices::open_in(options, &machine::environment())?;
        Ok(Devices { inner, registry: Arc::new(Registry::standard()) })
    }

    /// A session for the model at `path`: a GraphDef, binary or text (`.pb`, `.pbtxt`), or a SavedModel folder, whose variables
    /// have their values and whose signatures can be called ([`Session::call`]).
    ///
    /// # Errors
    /// NOT_FOUND where there is no such file; what is wrong with the file, and where; for files of other kinds the error says what
    /// exports them. Otherwise as [`Devices::session`], and for a SavedModel as [`Session::run`] of what restores it.
    pub fn load(&self, path: impl AsRef<Path>) -> Result<Session> {
        let path = path.as_ref();
        match model::read(path)? {
            Model::Graph(def) => self.session(self.resolve(def)?),
            Model::SavedModel(saved) => {
                let saved = SavedGraph::new(&saved, path)?;
                let session = self.session(self.resolve(saved.graph)?)?.with_signatures(saved.signatures);
                let restore: Vec<&str> = saved.restore.iter().map(String::as_str).collect();
                if !restore.is_empty() {
                    session.run(&[], &[], &restore)?;
                    session.release_unused();
                }
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

    /// A session for a graph. With [`Options::log_placement`], every placement is written to standard error.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for device strings that make no sense, and for nodes that ask for a device that is not there where
    /// soft placement is off.
    pub fn session(&self, graph: Graph) -> Result<Session> {
        let (registry, files) = (self.registry.clone(), Arc::new(Files));
        let session = Session::from(plimsoll_runtime::Session::with_checkpoints(&self.inner, &graph, registry, files)?);
        if self.inner.options().log_placement {
            let mut log = std::io::stderr().lock();
            for (node, device) in session.placements() {
                // Where it cannot be written to, nobody wants to know.
                let _ = writeln!(log, "{}: ({}): {device}", node.name, node.op);
            }
        }
        Ok(session)
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
