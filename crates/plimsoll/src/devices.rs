//! The devices of a program, with the operations that graphs are made of.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_base::Result;
use plimsoll_cards::config::DeviceConfig;
use plimsoll_cards::{Division, MachineDescription};
use plimsoll_graph::id::Id;
use plimsoll_graph::{Graph, GraphDef, Node};
use plimsoll_ops::{GraphBuilder, Registry};
use plimsoll_plan::Softened;

use crate::checkpoint::Files;
use crate::model::{self, SavedGraph, Tags};
use crate::values::Objects;
use crate::values::Values;
use crate::vocabulary;
use crate::{Bytes, DeviceKind, DeviceReport, DeviceSpec, Options, Plan, Session, machine};

/// Logical devices, each with its line, opened once and shared by sessions. Cloning shares them.
#[derive(Clone)]
pub struct Devices {
    inner: plimsoll_runtime::Devices,
    registry: Arc<Registry>,
    log: Option<Arc<LogPlacement>>,
}

/// Called with the placement of each session that is opened, under [`Options::log_placement`]. Later again, when a plan shows that
/// the host computes nodes in place of their device: once for each such node, with notes alone.
pub type LogPlacement = dyn Fn(&PlacementLog) + Send + Sync;

/// Where the nodes of a session are, in TensorFlow's words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlacementLog {
    /// Remarks of the placer, which TensorFlow writes to standard error, and nodes that the host computes in place of their device.
    pub notes: Vec<String>,
    /// A line for each node (see [`Session::placement_log`]), which TensorFlow writes to standard output.
    pub lines: Vec<String>,
}

impl From<plimsoll_runtime::Devices> for Devices {
    /// Devices from another maker, with TensorFlow's operations.
    fn from(inner: plimsoll_runtime::Devices) -> Devices {
        let registry = registry(inner.options());
        Devices { inner, registry, log: None }
    }
}

/// The note about a node that the host computes.
fn note(graph: &Graph, plan: &plimsoll_plan::Plan, softened: &Softened) -> String {
    let Node { name, op, .. } = graph.node(softened.node);
    let [host, device] = [plan.host, softened.device].map(|device| plan.devices[device.index()].name.as_str());
    let why = if softened.why.is_empty() { String::new() } else { format!(": {}", softened.why) };
    format!("Node '{name}' ({op}) is computed on {host} because soft placement is on and {device} cannot compute it{why}")
}

/// TensorFlow's operations, fused as far as the options say.
fn registry(options: &Options) -> Arc<Registry> {
    let registry = plimsoll_runtime::standard_registry();
    Arc::new(match options.fusions {
        Some(most) => registry.with_most_fusions(most),
        None => registry,
    })
}

impl Devices {
    /// Opens the devices that the options, and the variables that TensorFlow and CUDA look at, make of this machine.
    ///
    /// # Errors
    /// INVALID_ARGUMENT naming option and value for options that make no sense; UNIMPLEMENTED for those of later work.
    pub fn open(options: &Options) -> Result<Devices> {
        plimsoll_runtime::Devices::open_in(options, &machine::environment()).map(Devices::from)
    }

    /// The devices that the options make of a machine that is not here, to plan for it: plans, placements and their texts are those of
    /// [`Devices::open`] there. Nothing runs on them (FAILED_PRECONDITION). No variable of this process
    /// counts, but for those that say where libraries are: cuDNN plans for a machine that has the same version; a note says where it cannot.
    ///
    /// # Errors
    /// INVALID_ARGUMENT naming option and value for options that make no sense for that machine, and for simulated cards beside it.
    /// FAILED_PRECONDITION for a GPU on a real card that was not opened when the machine was described, and where cuDNN has to compute and cannot plan.
    pub fn described(options: &Options, machine: &MachineDescription) -> Result<Devices> {
        plimsoll_runtime::Devices::described(options, machine, &machine::environment().of_the_machine()).map(Devices::from)
    }

    /// This machine, for [`Devices::described`] elsewhere: its processor, and its cards, whichever of them this process may see. The
    /// cards are the simulated ones of the options or of PLIMSOLL_SIM_GPUS, else those of NVIDIA's driver, which are opened.
    ///
    /// # Errors
    /// As [`Devices::open`].
    pub fn describe(options: &Options) -> Result<MachineDescription> {
        plimsoll_runtime::Devices::describe(options, &machine::environment())
    }

    /// How [`Devices::open`] would divide this machine. No device is opened, and nothing is reserved.
    ///
    /// # Errors
    /// As [`Devices::open`], but for room.
    pub fn divide(options: &Options) -> Result<Division> {
        plimsoll_runtime::Devices::divide(options, &machine::environment())
    }

    /// `tf.config` for this machine, before its devices are opened: settings that begin with these options. [`Devices::open`] takes
    /// what [`crate::machine::device_config::DeviceConfig::options`] makes of them.
    ///
    /// # Errors
    /// As [`Devices::divide`]; INVALID_ARGUMENT for a list of visible devices that names one that is not there.
    pub fn configuration(options: Options) -> Result<DeviceConfig> {
        let environment = machine::environment();
        let cards = plimsoll_runtime::Devices::cards(&options, &environment)?;
        DeviceConfig::import(cards, environment, options)
    }

    /// The same devices, for sessions whose nodes may go elsewhere than they ask (`soft`) or not, and which log where nodes go or not.
    #[must_use]
    pub fn with_placement(&self, soft: bool, log: bool) -> Devices {
        Devices { inner: self.inner.with_placement(soft, log), ..self.clone() }
    }

    /// The same devices, where `log` is called with the placement of each session if [`Options::log_placement`] is set.
    #[must_use]
    pub fn with_placement_log(self, log: impl Fn(&PlacementLog) + Send + Sync + 'static) -> Devices {
        Devices { log: Some(Arc::new(log)), ..self }
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

    /// A session for the model at `path`: a GraphDef, binary or text (`.pb`, `.pbtxt`), a MetaGraph (`.meta`) with its
    /// checkpoint beside it, or a SavedModel folder. Variables have their values and whose signatures can be called ([`Session::call`]).
    ///
    /// # Errors
    /// NOT_FOUND where there is no such file; the flaw of the file and its place; for files of other kinds the error says what
    /// exports them. Otherwise as [`Devices::session`], and for a SavedModel as [`Session::run`] of its restoring operations.
    pub fn load(&self, path: impl AsRef<Path>) -> Result<Session> {
        self.load_tagged(path, &Tags::default())
    }

    /// As [`Devices::load`], of the graphs of a SavedModel the one with these tags.
    ///
    /// # Errors
    /// As [`Devices::load`]; NOT_FOUND where no graph has the tags, with the sets of tags that there are; INVALID_ARGUMENT for tags of a
    /// model that is no SavedModel.
    pub fn load_tagged(&self, path: impl AsRef<Path>, tags: &Tags) -> Result<Session> {
        let path = path.as_ref();
        let saved = SavedGraph::of(model::read(path)?.with_tags(tags)?, path)?;
        let session = self.session_with(self.resolve(saved.graph)?, &saved.values, saved.init)?.with_signatures(saved.signatures);
        let session = session.prepared_for_signatures(&self.registry);
        session.prepare()?;
        Ok(session)
    }

    /// The graph of a definition: names become ids, missing attributes are filled in, and the graph is checked.
    ///
    /// # Errors
    /// INVALID_ARGUMENT naming the node.
    pub fn resolve(&self, def: GraphDef) -> Result<Graph> {
        Graph::resolve(def, self.registry.table())
    }

    /// A session for a graph.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for device strings that make no sense, and for nodes that ask for a device that is not there where
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
        let session = self.unlogged(graph, values, init)?;
        // By first fit and by time it is placed again, when its runs are known.
        if !self.inner.options().placement.looks_at_runs() {
            self.write_log(&session);
        }
        Ok(session)
    }

    pub(crate) fn unlogged(&self, graph: Graph, values: &Values, init: Vec<String>) -> Result<Session> {
        let (registry, files) = (self.registry.clone(), Arc::new(Files));
        let graph = vocabulary::read_in(&graph).unwrap_or(graph);
        let (mut run, mut objects) = (Vec::new(), Objects::default());
        let mut stored = |graph: &Graph| {
            let mut opened = values.open(graph)?;
            run.append(&mut opened.run);
            objects = std::mem::take(&mut opened.objects);
            Ok(opened.stored())
        };
        let inner = plimsoll_runtime::Session::with_files(&self.inner, graph, registry, files, &mut stored, &values.called)?;
        run.extend(init);
        Ok(Session::of(inner).with_preparation(run).with_objects(objects))
    }

    /// Logs the placement of a session, and from now on the nodes that the host computes in place of their device.
    pub(crate) fn write_log(&self, session: &Session) {
        let Some(log) = self.log.as_ref().filter(|_| self.inner.options().log_placement) else { return };
        log(&PlacementLog { notes: session.placement_notes().to_vec(), lines: session.placement_log().collect() });
        let (log, noted) = (log.clone(), Mutex::new(BTreeSet::new()));
        session.inner().observe_plans(Box::new(move |graph, plan| {
            let is_new = |softened: &&Softened| noted.lock().unwrap_or_else(PoisonError::into_inner).insert(softened.node);
            let notes: Vec<String> = plan.softened.iter().filter(is_new).map(|softened| note(graph, plan, softened)).collect();
            if !notes.is_empty() {
                log(&PlacementLog { notes, lines: Vec::new() });
            }
        }));
    }

    /// The specifications that plans are made for.
    pub fn specs(&self) -> &[DeviceSpec] {
        self.inner.specs()
    }

    /// The options that they were opened with.
    pub fn options(&self) -> &Options {
        self.inner.options()
    }

    /// How the machine was divided; none where the devices were made elsewhere.
    pub fn division(&self) -> Option<&Division> {
        self.inner.division()
    }

    /// The lines that TensorFlow logs when it creates devices.
    pub fn start_log(&self) -> Vec<String> {
        self.inner.start_log()
    }

    /// How much of each device is in use.
    pub fn report(&self) -> Vec<DeviceReport> {
        self.inner.report()
    }

    /// Forgets the peaks: they become the present use.
    pub fn reset_peaks(&self) {
        self.inner.reset_peaks();
    }

    /// Bytes of a device (`GPU:0`, `/cpu:0`, or any name that one device alone matches) that sessions have now, arenas that are
    /// kept for the next run included.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for a name of no device, or of several.
    pub fn memory_allocated(&self, device: &str) -> Result<Bytes> {
        self.inner.memory_allocated(device)
    }

    /// The most of [`Devices::memory_allocated`] at once, since the devices were opened or the peak was reset.
    ///
    /// # Errors
    /// As [`Devices::memory_allocated`].
    pub fn max_memory_allocated(&self, device: &str) -> Result<Bytes> {
        self.inner.max_memory_allocated(device)
    }

    /// Bytes of a device that no other program can have because of this one.
    ///
    /// # Errors
    /// As [`Devices::memory_allocated`].
    pub fn memory_reserved(&self, device: &str) -> Result<Bytes> {
        self.inner.memory_reserved(device)
    }

    /// For each device, how much of its line other programs hold now.
    ///
    /// # Errors
    /// The errors of the machine's ledger.
    pub fn memory_out_of_reach(&self) -> Result<Vec<Bytes>> {
        self.inner.memory_out_of_reach()
    }

    /// Makes [`Devices::max_memory_allocated`] the present allocation.
    ///
    /// # Errors
    /// As [`Devices::memory_allocated`].
    pub fn reset_max_memory_allocated(&self, device: &str) -> Result<()> {
        self.inner.reset_max_memory_allocated(device)
    }

    /// Gives back memory that sessions keep and no run needs now, and bytes that growing cards hold and do not use. Variables stay.
    pub fn empty_cache(&self) {
        self.inner.empty_cache();
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

impl fmt::Debug for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// Times the ways of cards to compute the products and convolutions of these plans, which were made for these devices. What the table of the
/// devices ([`Options::tuned`]) has is not timed again. The devices have as much memory as before, and keep to their lines meanwhile. `shown` is
/// called with each request before it is timed.
///
/// # Errors
/// FAILED_PRECONDITION where no device is a card on which kernels can be timed, with the reason. RESOURCE_EXHAUSTED where other programs
/// have the room that a line would allow.
pub fn tune(devices: &Devices, plans: &[Plan], how: plimsoll_runtime::HowToTune, shown: &dyn Fn(&str)) -> Result<plimsoll_runtime::Tuning> {
    let plans: Vec<plimsoll_plan::Plan> = plans.iter().map(|plan| plan.inner().clone()).collect();
    plimsoll_runtime::tune(&devices.inner, &plans, how, shown)
}
