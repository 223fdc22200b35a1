//! Models from files: a graph that has a training target, and examples in `.npy` files.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use plimsoll::model::{self, Model as File, SavedGraph};
use plimsoll::signature::{Asked, FeedRule, Unfilled};
use plimsoll::{Code, Error, Graph, GraphDef, Output, Registry, Values};
use plimsoll_train::Trainer;
use plimsoll_train::data::{Component, DataSet, Examples, arrays};
use plimsoll_train::model::{Parts, Together};

use super::{Planned, TrainArgs};
use crate::device_options::DeviceOptions;
use crate::failure::{Failure, OrUsage, Result, wrong_use};
use crate::names;

/// The target that initialises by default.
const INIT: &str = "init";

/// A model as it is in its file, and its examples.
pub struct Model {
    path: PathBuf,
    graph: GraphDef,
    examples: Examples,
    wanted: Wanted,
}

/// Targets, fetches and feeds, as nodes and tensors of the graph.
struct Wanted {
    targets: Vec<String>,
    fetch: Option<String>,
    /// The targets that give the variables their first values, if they were named.
    init: Vec<String>,
    values: Values,
    data: Vec<(String, PathBuf)>,
}

impl Wanted {
    fn of_graph(args: &TrainArgs) -> Result<Wanted> {
        if let Some(signature) = &args.signature {
            return wrong_use(format!("--signature {signature}: {} is a graph, and only SavedModels have signatures", args.what));
        }
        let data = args.data.iter().map(|text| split(text)).collect::<Result<Vec<_>>>()?;
        Ok(Wanted { targets: args.target.clone(), fetch: args.fetch.clone(), init: args.init.clone(), values: Values::default(), data })
    }

    /// A step calls the signature: its arguments are fed, its results are computed, and with them whatever the call changes.
    fn of_signature(args: &TrainArgs, saved: &SavedGraph) -> Result<Wanted> {
        let names = |names: &mut dyn Iterator<Item = &String>| names.cloned().collect::<Vec<_>>().join(", ");
        let Some(name) = &args.signature else {
            let all = names(&mut saved.signatures.keys());
            return wrong_use(format!("say which signature trains, with --signature NAME; {} has {all}", args.what));
        };
        let signature = saved.signature(name).or_usage()?;
        let mut data = Vec::with_capacity(args.data.len());
        for text in &args.data {
            let (argument, file) = split(text)?;
            let Some(info) = signature.inputs.get(&argument) else {
                let all = names(&mut signature.inputs.keys());
                let error =
                    Error::invalid_argument(format!("--data {text}: the signature '{name}' has no argument '{argument}'; there are {all}"));
                return Err(Failure::usage(error.suggesting(&argument, signature.inputs.keys().map(String::as_str))));
            };
            data.push((model::node_of(&info.name).to_string(), file));
        }
        let fetch = match &args.fetch {
            None => signature.outputs.get("loss").map(|info| info.name.clone()),
            Some(result) => match signature.outputs.get(result) {
                Some(info) => Some(info.name.clone()),
                None => {
                    let all = names(&mut signature.outputs.keys());
                    let error =
                        Error::invalid_argument(format!("--fetch {result}: the signature '{name}' does not give that; it gives {all}"));
                    return Err(Failure::usage(error.suggesting(result, signature.outputs.keys().map(String::as_str))));
                }
            },
        };
        let mut targets: Vec<String> = signature.outputs.values().map(|info| model::node_of(&info.name).to_string()).collect();
        targets.extend(args.target.iter().cloned());
        targets.sort_unstable();
        targets.dedup();
        Ok(Wanted { targets, fetch, init: args.init.clone(), values: saved.values.clone(), data })
    }
}

impl Model {
    /// Reads the model and opens its examples.
    ///
    /// # Errors
    /// Wrong use for options that models do not have, for files that are not there, and for arrays that are not examples; the flaw
    /// of a file.
    pub fn new(args: &TrainArgs) -> Result<Model> {
        let path = PathBuf::from(&args.what);
        model::check(&path).or_usage()?;
        let (graph, wanted) = match model::read(&path)? {
            File::SavedModel(saved) => {
                check(args)?;
                let saved = SavedGraph::new(*saved, &path).map_err(|error| error.context(path.display()))?;
                let wanted = Wanted::of_signature(args, &saved)?;
                (saved.graph, wanted)
            }
            File::Graph(graph) => {
                check(args)?;
                (graph, Wanted::of_graph(args)?)
            }
        };
        if args.data.is_empty() {
            return wrong_use("name its examples: --data NAME=FILE.npy for each placeholder");
        }
        let examples =
            arrays::open(&wanted.data.iter().map(|(name, file)| (name.clone(), file.as_path())).collect::<Vec<_>>()).map_err(|error| {
                match error.code() {
                    Code::DataLoss | Code::Unknown => Failure::from(error),
                    _ => Failure::usage(error),
                }
            })?;
        Ok(Model { path, graph, examples, wanted })
    }

    /// Plans its training.
    ///
    /// # Errors
    /// Wrong use for names that the graph does not have, and for examples that it cannot be fed; RESOURCE_EXHAUSTED where it does
    /// not fit.
    pub fn plan(self, args: &TrainArgs, options: &DeviceOptions) -> Result<Planned> {
        let devices = crate::load::open(&options.resolve(None)?, options)?;
        let graph = devices.resolve(self.graph).map_err(|error| error.context(self.path.display()))?;
        let parts = parts(args, &self.wanted, &graph, devices.registry(), self.examples.components())?;
        let headline = format!(
            "{}: {}, batches of {} of {} examples, seed {}",
            self.path.display(),
            self.wanted.targets.join(", "),
            args.batch_size,
            self.examples.count(),
            args.seed
        );
        let data = DataSet::new(self.examples, None, args.seed).or_usage()?;
        let trainer = Trainer::with_graph(&devices, graph, parts, data, args.batch_size, args.seed);
        let trainer = trainer.map_err(|error| match error.code() {
            Code::InvalidArgument => Failure::usage(error),
            _ => Failure::from(error),
        })?;
        Ok(Planned { devices, trainer, headline, has_test: false, is_simulated: false })
    }
}

/// Whether the options make sense for models.
fn check(args: &TrainArgs) -> Result<()> {
    let given = [
        (args.is_async, "--async"),
        (args.augment, "--augment"),
        (args.towers.is_some(), "--towers"),
        (args.optimizer.is_some(), "--optimizer"),
        (args.learning_rate.is_some(), "--learning-rate"),
    ];
    if let Some((_, option)) = given.into_iter().find(|(is_given, _)| *is_given) {
        return wrong_use(format!("{option}: a model has its own towers, optimizer and learning rate, in its graph"));
    }
    Ok(())
}

/// Reads `NAME=FILE.npy`.
fn split(text: &str) -> Result<(String, PathBuf)> {
    match text.split_once('=') {
        Some((name, file)) if !name.is_empty() && !file.is_empty() => Ok((name.to_string(), PathBuf::from(file))),
        _ => wrong_use(format!("--data {text}: write NAME=FILE.npy")),
    }
}

/// The parts of the graph that are run, and their feeds.
fn parts(args: &TrainArgs, wanted: &Wanted, graph: &Graph, registry: &Registry, components: &[Component]) -> Result<Parts> {
    if wanted.targets.is_empty() {
        let ends = Asked { fetches: Vec::new(), ..Asked::ends(graph, registry) };
        return wrong_use(format!("say what a step runs, with --target OPERATION; {}", names::described(&ends)));
    }
    let asked = Asked { fetches: wanted.fetch.iter().cloned().collect(), targets: wanted.targets.clone() };
    names::check(asked.fetches.iter().chain(&asked.targets).chain(&wanted.init), graph)?;
    let init = match wanted.init.as_slice() {
        [] if wanted.values.are_saved() => Vec::new(),
        [] if graph.find(INIT).is_some() => vec![INIT.to_string()],
        [] => {
            return wrong_use("the graph has no operation 'init': say what gives its variables their first values, with --init OPERATION");
        }
        [..] => wanted.init.clone(),
    };
    let mut fed = HashSet::new();
    for (component, (_, file)) in components.iter().zip(&wanted.data) {
        let tensor = feed(graph, registry, component, file, args.batch_size)?;
        if !fed.insert(tensor) {
            return wrong_use(format!("--data {0}=...: '{0}' is given twice", component.name));
        }
    }
    let missing = asked.unfilled(graph, registry, &fed);
    if !missing.is_empty() {
        let said = |Unfilled { name, data_type, shape }: &Unfilled| format!("'{name}' ({data_type}{shape})");
        let placeholders: Vec<String> = missing.iter().map(said).collect();
        let options: Vec<String> = missing.iter().map(|unfilled| format!("--data {}=FILE.npy", unfilled.name)).collect();
        let what = if missing.len() == 1 { "placeholder" } else { "placeholders" };
        let error = Error::invalid_argument(format!("a step needs the {what} {}", placeholders.join(", ")));
        return Err(Failure::usage(error.with_remedy(format!("add {}", options.join(" ")))));
    }
    let feeds = components.iter().map(|component| component.name.clone()).collect();
    let steps = Together { train: asked.targets, loss: wanted.fetch.clone(), feeds: vec![feeds] };
    Ok(Parts { values: wanted.values.clone(), ..Parts::new(init, steps) })
}

/// The tensor that is fed with batches of a component.
fn feed(graph: &Graph, registry: &Registry, component: &Component, file: &Path, batch_size: u64) -> Result<Output> {
    let Component { name, data_type, shape } = component;
    names::check([name], graph)?;
    let Some(rule) = FeedRule::of(graph, registry, name).or_usage()? else {
        return wrong_use(format!("--data {name}=...: '{name}' is an operation without results"));
    };
    if !rule.is_placeholder {
        let op = &graph.node(rule.tensor.node).op;
        return wrong_use(format!("--data {name}=...: '{name}' is a {op}, and only placeholders are fed"));
    }
    let given: Vec<u64> = std::iter::once(batch_size).chain(shape.iter().copied()).collect();
    if rule.takes(*data_type, &given) {
        return Ok(rule.tensor);
    }
    let is_tail_right = rule.takes_batches(&given);
    let is = format!("{data_type}{}", plimsoll::Shape::new(given));
    let error = Error::invalid_argument(format!(
        "--data {name}={}: batches of {batch_size} are {is}, and '{name}' is {}{}",
        file.display(),
        rule.data_type,
        rule.shape
    ));
    Err(Failure::usage(match rule.batch() {
        _ if rule.data_type != *data_type => error.with_remedy(names::conversion(rule.data_type)),
        Some(size) if size != batch_size && is_tail_right => error.with_remedy(format!("give --batch-size {size}")),
        _ => error,
    }))
}
