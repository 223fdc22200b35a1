//! Models from files: a graph that has a training target, and examples in `.npy` files.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use plimsoll::formats::{SignatureDef, TensorInfo};
use plimsoll::model::{self, Model as File, SavedGraph};
use plimsoll::signature::{Asked, FeedRule, Unfilled};
use plimsoll::{Code, DataType, Error, Graph, GraphDef, Output, Registry, Values};
use plimsoll_train::Trainer;
use plimsoll_train::data::{Component, DataSet, Examples, arrays};
use plimsoll_train::model::{Parts, Score, Scores, Together};

use super::{Planned, TrainArgs};
use crate::device_options::DeviceOptions;
use crate::failure::{Failure, OrUsage, Result, wrong_use};
use crate::load::Machine;
use crate::names;

/// The signatures that test by default.
const EVALUATIONS: [&str; 2] = ["evaluate", "test_step"];

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
    /// The other scalars of a step.
    metrics: Vec<Score>,
    /// The tensors that held-out examples are fed to, in the order of the data, and what they give.
    evaluation: Option<Scores>,
}

impl Wanted {
    fn of_graph(args: &TrainArgs) -> Result<Wanted> {
        if let Some(signature) = &args.signature {
            return wrong_use(format!("--signature {signature}: {} is a graph, and only SavedModels have signatures", args.what));
        }
        let data = args.data.iter().map(|text| split(text)).collect::<Result<Vec<_>>>()?;
        let evaluation = match (&args.held_out, &args.evaluate[..]) {
            (None, _) => None,
            (Some(_), []) => return wrong_use("--held-out: say which scalar the held-out examples give, with --evaluate TENSOR"),
            (Some(_), tensors) => {
                let results = tensors.iter().map(|tensor| Score::new(tensor.as_str(), tensor.as_str())).collect();
                Some(Scores { feeds: data.iter().map(|(name, _)| name.clone()).collect(), results })
            }
        };
        let (targets, fetch, init) = (args.target.clone(), args.fetch.clone(), args.init.clone());
        Ok(Wanted { targets, fetch, init, values: Values::default(), data, metrics: Vec::new(), evaluation })
    }

    /// A step runs the targets, or what the collection `train_op` names. Values come from the checkpoint beside, or from `init_op`.
    fn of_meta(args: &TrainArgs, saved: &SavedGraph) -> Result<Wanted> {
        let mut wanted = Wanted::of_graph(args)?;
        if wanted.targets.is_empty() {
            wanted.targets.extend(saved.train.iter().map(|name| model::node_of(name).to_string()));
        }
        if wanted.init.is_empty() {
            wanted.init.extend(saved.init.iter().cloned());
        }
        wanted.values = saved.values.clone();
        Ok(wanted)
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
        let mut arguments = Vec::with_capacity(args.data.len());
        for text in &args.data {
            let (argument, file) = split(text)?;
            let Some(info) = signature.inputs.get(&argument) else {
                let all = names(&mut signature.inputs.keys());
                let error =
                    Error::invalid_argument(format!("--data {text}: the signature '{name}' has no argument '{argument}'; there are {all}"));
                return Err(Failure::usage(error.suggesting(&argument, signature.inputs.keys().map(String::as_str))));
            };
            data.push((model::node_of(&info.name).to_string(), file));
            arguments.push(argument);
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
        let scores = scores_of(signature);
        let metrics = scores.into_iter().filter(|score| Some(&score.tensor) != fetch.as_ref()).collect();
        let evaluation = args.held_out.map(|_| evaluation(args, saved, &arguments)).transpose()?;
        Ok(Wanted { targets, fetch, init: args.init.clone(), values: saved.values.clone(), data, metrics, evaluation })
    }
}

/// The scalars that a signature gives.
fn scores_of(signature: &SignatureDef) -> Vec<Score> {
    let is_score = |info: &TensorInfo| {
        let is_scalar = info.tensor_shape.as_ref().is_some_and(|shape| !shape.unknown_rank && shape.dim.is_empty());
        is_scalar && [DataType::Float, DataType::Double].iter().any(|data_type| data_type.number() == info.dtype)
    };
    let scores = signature.outputs.iter().filter(|(_, info)| is_score(info));
    scores.map(|(name, info)| Score::new(name.as_str(), info.name.as_str())).collect()
}

/// What tests a SavedModel: a signature with the arguments that are trained with.
fn evaluation(args: &TrainArgs, saved: &SavedGraph, arguments: &[String]) -> Result<Scores> {
    let name = match &args.evaluate[..] {
        [name] => name.as_str(),
        [] => match EVALUATIONS.iter().find(|name| saved.signatures.contains_key(**name)) {
            Some(name) => name,
            None => {
                let all = names::list(&saved.signatures.keys().cloned().collect::<Vec<_>>());
                return wrong_use(format!("say which signature tests, with --evaluate NAME; {} has {all}", args.what));
            }
        },
        [..] => return wrong_use("--evaluate: a SavedModel is tested by one signature"),
    };
    let signature = saved.signature(name).or_usage()?;
    let feed = |argument: &String| signature.inputs.get(argument).map(|info| model::node_of(&info.name).to_string());
    let feeds: Option<Vec<String>> = arguments.iter().map(feed).collect();
    let Some(feeds) = feeds.filter(|feeds| feeds.len() == signature.inputs.len()) else {
        let all = names::list(&signature.inputs.keys().cloned().collect::<Vec<_>>());
        return wrong_use(format!("--evaluate {name}: it takes {all}, and the examples have {}", names::list(arguments)));
    };
    let results = scores_of(signature);
    match results.is_empty() {
        true => wrong_use(format!("--evaluate {name}: the signature gives no scalar of float or double")),
        false => Ok(Scores { feeds, results }),
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
        let (graph, wanted) = match names::tagged(model::read(&path)?, &path, &names::tags(args.tags.as_deref()))? {
            File::SavedModel(saved) => {
                check(args)?;
                let saved = SavedGraph::new(*saved, &path).map_err(|error| error.context(path.display()))?;
                let wanted = Wanted::of_signature(args, &saved)?;
                (saved.graph, wanted)
            }
            File::MetaGraph(meta) => {
                check(args)?;
                let saved = SavedGraph::of_meta(*meta, &path).map_err(|error| error.context(path.display()))?;
                let wanted = if args.signature.is_some() { Wanted::of_signature(args, &saved)? } else { Wanted::of_meta(args, &saved)? };
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
    pub fn plan(self, args: &TrainArgs, options: &DeviceOptions, machine: &Machine) -> Result<Planned> {
        let devices = machine.open(&machine.resolve(options)?, options)?;
        let graph = devices.resolve(self.graph).map_err(|error| error.context(self.path.display()))?;
        let parts = parts(args, &self.wanted, &graph, devices.registry(), self.examples.components())?;
        let has_test = parts.evaluation.is_some();
        let (training, held_out) = match args.held_out {
            None => (self.examples, None),
            Some(share) => {
                let (training, held_out) = self.examples.divided(share).or_usage()?;
                (training, Some(held_out))
            }
        };
        let headline = format!(
            "{}: {}, batches of {} of {} examples{}, seed {}",
            self.path.display(),
            self.wanted.targets.join(", "),
            args.batch_size,
            training.count(),
            held_out.as_ref().map_or_else(String::new, |held_out| format!(", {} held out", held_out.count())),
            args.seed
        );
        let data = DataSet::new(training, held_out, args.seed).or_usage()?;
        let trainer = Trainer::with_graph(&devices, graph, parts, data, args.batch_size, args.seed);
        let trainer = trainer.map_err(|error| match error.code() {
            Code::InvalidArgument => Failure::usage(error),
            _ => Failure::from(error),
        })?;
        Ok(Planned { devices, trainer, headline, has_test, is_simulated: false })
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
    let steps = Together { train: asked.targets, loss: wanted.fetch.clone(), metrics: wanted.metrics.clone(), feeds: vec![feeds] };
    if let Some(scores) = &wanted.evaluation {
        names::check(scores.results.iter().map(|score| &score.tensor), graph)?;
    }
    Ok(Parts { values: wanted.values.clone(), evaluation: wanted.evaluation.clone(), ..Parts::new(init, steps) })
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
