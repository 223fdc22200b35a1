//! The models of a command line: opened, and asked for by name.
//!
//! A name is a tensor or an operation of the graph; of a SavedModel, an argument or a result of the signature that is called. Where
//! there are several models, `MODEL::NAME` means one of them. MODEL is its path as it was typed, the name of its file or folder
//! with or without extension, or its number from 1. A name without a model is for every model that has it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use plimsoll::formats::SignatureDef;
use plimsoll::model::{self, Model, SavedGraph, Tags};
use plimsoll::signature::{Asked, node_of};
use plimsoll::{Devices, Error, Graph, Session};

use crate::failure::{Failure, OrUsage, Result, wrong_use};
use crate::names::{self, list};
use crate::outputs;

/// A model with its session.
pub struct Opened {
    /// Its path, as it was typed.
    pub label: String,
    /// Nothing has run.
    pub session: Session,
    /// The signature that is called, of a SavedModel.
    call: Option<(String, SignatureDef)>,
}

/// The request to one model, in names of its graph.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Tensors, each with the text that asked for it.
    pub fetches: Vec<Fetch>,
    /// Operations.
    pub targets: Vec<String>,
}

/// A tensor that is wanted.
#[derive(Clone, Debug)]
pub struct Fetch {
    /// As it is shown.
    pub shown: String,
    /// The tensor.
    pub tensor: String,
    /// Where it goes.
    pub file: Option<PathBuf>,
}

impl Wanted {
    /// The names of the tensors.
    pub fn tensors(&self) -> Vec<&str> {
        self.fetches.iter().map(|fetch| fetch.tensor.as_str()).collect()
    }

    /// The names of the operations.
    pub fn targets(&self) -> Vec<&str> {
        self.targets.iter().map(String::as_str).collect()
    }

    /// The names of both.
    pub fn names(&self) -> Vec<&str> {
        self.tensors().into_iter().chain(self.targets()).collect()
    }

    /// The names, to make a signature of.
    pub fn asked(&self) -> Asked {
        Asked { fetches: self.fetches.iter().map(|fetch| fetch.tensor.clone()).collect(), targets: self.targets.clone() }
    }
}

impl Opened {
    fn new(devices: &Devices, path: &Path, Call { tags, signature, names }: &Call<'_>, checkpoint: Option<&Path>) -> Result<Opened> {
        let label = path.display().to_string();
        let read = names::tagged(model::read(path)?, path, tags)?;
        let is_graph = matches!(read, Model::Graph(_));
        let is_meta = matches!(read, Model::MetaGraph(_));
        let mut saved = SavedGraph::of(read, path).map_err(|error| error.context(&label))?;
        // A graph, and a MetaGraph without signatures, are asked by the names of their tensors.
        let name = match signature {
            Some(name) => Some(*name),
            None if is_graph || (is_meta && saved.callable().next().is_none()) => None,
            None => Some(only_signature(&label, &saved)?),
        };
        let call = match name {
            Some(name) => Some((name.to_string(), saved.signature(name).map_err(|error| error.context(&label)).or_usage()?.clone())),
            None => None,
        };
        if let Some((_, signature)) = &call {
            // A call is made as a whole.
            let infos = || signature.inputs.iter().chain(&signature.outputs);
            let others = names.iter().copied().filter(|name| infos().all(|(argument, _)| argument != name));
            saved.keep_for(&infos().map(|(_, info)| info.name.as_str()).chain(others).collect::<Vec<_>>());
        }
        let SavedGraph { graph: def, values, init, .. } = saved;
        let graph = devices.resolve(def).map_err(|error| error.context(&label))?;
        let values = values.with_checkpoint(checkpoint);
        let session = devices.session_with(graph, &values, init).map_err(|error| error.context(&label))?;
        Ok(Opened { label, session, call })
    }

    /// The graph that runs.
    pub fn graph(&self) -> &Graph {
        self.session.graph()
    }

    /// The tensor to feed that the name means, if the model has it.
    pub fn feed(&self, name: &str) -> Option<String> {
        self.tensor(name, |call| &call.inputs)
    }

    /// The tensor to fetch that the name means, if the model has it.
    pub fn fetch(&self, name: &str) -> Option<String> {
        self.tensor(name, |call| &call.outputs)
    }

    fn tensor(
        &self,
        name: &str,
        infos: impl Fn(&SignatureDef) -> &std::collections::BTreeMap<String, plimsoll::formats::TensorInfo>,
    ) -> Option<String> {
        let info = self.call.as_ref().and_then(|(_, call)| infos(call).get(name));
        info.map(|info| info.name.clone()).or_else(|| self.node(name))
    }

    /// The name, if the graph has a node or tensor of it.
    pub fn node(&self, name: &str) -> Option<String> {
        self.graph().find(node_of(name)).map(|_| name.to_string())
    }

    /// The user's name of a node that is fed.
    pub fn argument_of(&self, node: &str) -> String {
        let inputs = self.call.iter().flat_map(|(_, call)| &call.inputs);
        let argument = inputs.into_iter().find(|(_, info)| model::node_of(&info.name) == node).map(|(name, _)| name);
        argument.map_or(node, String::as_str).to_string()
    }

    /// All that the signature gives.
    fn results(&self) -> Option<Vec<Fetch>> {
        let (_, call) = self.call.as_ref()?;
        let fetch =
            |(name, info): (&String, &plimsoll::formats::TensorInfo)| Fetch { shown: name.clone(), tensor: info.name.clone(), file: None };
        Some(call.outputs.iter().map(fetch).collect())
    }
}

/// The signature to call where none is named.
fn only_signature<'a>(label: &str, saved: &'a SavedGraph) -> Result<&'a str> {
    if let Some(name) = saved.default_signature() {
        return Ok(name);
    }
    let names: Vec<String> = saved.callable().map(str::to_string).collect();
    wrong_use(match names.is_empty() {
        true => format!("{label} has no signatures to call"),
        false => format!("say which signature of {label} is called, with --signature NAME; it has {}", list(&names)),
    })
}

/// Which graphs, which of their signatures and which tensors and operations the command line names, each as `[MODEL::]NAME`.
#[derive(Clone)]
pub struct Calls<'a> {
    /// Tags, in lists with commas.
    pub tags: &'a [String],
    /// Names of signatures.
    pub signatures: &'a [String],
    /// Tensors and operations.
    pub names: Vec<&'a str>,
}

/// What is called of one model.
#[derive(Clone, Default)]
struct Call<'a> {
    tags: Tags,
    signature: Option<&'a str>,
    names: Vec<&'a str>,
}

/// The models of a command line, in its order.
pub struct Models(Vec<Opened>);

impl Models {
    /// Opens the models, the SavedModels among them with the graphs and signatures that are called. Variables have the
    /// values of `checkpoint`, where it has any for them.
    ///
    /// # Errors
    /// Wrong use for files that are not there and signatures that no model has; the flaw of a file.
    pub fn open(devices: &Devices, paths: &[PathBuf], named: &Calls<'_>, checkpoint: Option<&Path>) -> Result<Models> {
        paths.iter().try_for_each(|path| model::check(path)).or_usage()?;
        let labels: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        let mut calls = vec![Call::default(); paths.len()];
        for text in named.tags {
            let (models, tags) = scope(&labels, text)?;
            let saved: Vec<usize> = models.iter().copied().filter(|&model| paths[model].is_dir()).collect();
            if saved.is_empty() {
                return wrong_use(format!("--tags {text}: only the graphs of a SavedModel have tags"));
            }
            saved.into_iter().for_each(|model| calls[model].tags = Tags::listed(tags));
        }
        for text in named.signatures {
            let (models, name) = scope(&labels, text)?;
            let saved: Vec<usize> =
                models.iter().copied().filter(|&model| paths[model].is_dir() || model::is_meta(&paths[model])).collect();
            if saved.is_empty() {
                return wrong_use(format!("--signature {text}: a GraphDef has no signatures; say --fetch and --target"));
            }
            saved.into_iter().for_each(|model| calls[model].signature = Some(name));
        }
        for text in &named.names {
            // One that means no model is said when it is looked for.
            let Ok((models, name)) = scope(&labels, text) else { continue };
            models.into_iter().for_each(|model| calls[model].names.push(name));
        }
        paths.iter().zip(calls).map(|(path, call)| Opened::new(devices, path, &call, checkpoint)).collect::<Result<Vec<_>>>().map(Models)
    }

    /// The models.
    pub fn all(&self) -> &[Opened] {
        &self.0
    }

    /// The models themselves.
    pub fn into_all(self) -> Vec<Opened> {
        self.0
    }

    /// The models that `[MODEL::]NAME` means, by position, with the name in each. There is one at least.
    ///
    /// # Errors
    /// Wrong use where no model has it.
    pub fn find<'t>(&self, text: &'t str, what: impl Fn(&Opened, &str) -> Option<String>) -> Result<(Vec<(usize, String)>, &'t str)> {
        let labels: Vec<String> = self.0.iter().map(|model| model.label.clone()).collect();
        let (models, name) = scope(&labels, text)?;
        let found: Vec<(usize, String)> =
            models.iter().filter_map(|&model| what(&self.0[model], name).map(|found| (model, found))).collect();
        if !found.is_empty() {
            return Ok((found, name));
        }
        let signatures: BTreeSet<&str> =
            models.iter().filter_map(|&model| self.0[model].call.as_ref()).map(|(name, _)| name.as_str()).collect();
        let message = match (signatures.into_iter().next(), models[..] == [models[0]] && self.0.len() > 1) {
            (Some(signature), _) => format!("there is no '{name}' in the signature '{signature}', nor in the graph"),
            (None, true) => format!("there is no '{name}' in {}", labels[models[0]]),
            (None, false) => format!("there is no '{name}' in the graph"),
        };
        // A signature's names of tensors come before those of the graph.
        let calls = || models.iter().filter_map(|&model| self.0[model].call.as_ref()).map(|(_, call)| call);
        let arguments = calls().flat_map(|call| call.inputs.keys().chain(call.outputs.keys())).map(String::as_str);
        let nodes = models.iter().flat_map(|&model| self.0[model].graph().node_names());
        let error = Error::invalid_argument(message).suggesting(node_of(name), arguments.chain(nodes));
        // Where nothing is near it: what there is.
        let shown = |tensors: BTreeSet<&String>| list(&tensors.into_iter().cloned().collect::<Vec<_>>());
        let inputs = shown(calls().flat_map(|call| call.inputs.keys()).collect());
        let outputs = shown(calls().flat_map(|call| call.outputs.keys()).collect());
        let is_said = error.remedy().is_some() || calls().next().is_none();
        Err(Failure::usage(if is_said { error } else { error.with_remedy(format!("arguments: {inputs}; results: {outputs}")) }))
    }

    /// The request to each model: of `[MODEL::]TENSOR[=FILE]` and `[MODEL::]OPERATION`, those that it has. A model without any
    /// gives all results of its signature, or the one output that no node of its graph uses.
    ///
    /// # Errors
    /// Wrong use for names that no model has, and where the target is not clear.
    pub fn wanted(&self, devices: &Devices, fetches: &[String], targets: &[String]) -> Result<Vec<Wanted>> {
        let mut wanted = vec![Wanted::default(); self.0.len()];
        for text in fetches {
            let (tensor, file) = text.split_once('=').map_or((text.as_str(), None), |(name, file)| (name, Some(PathBuf::from(file))));
            if file.as_ref().is_some_and(|file| file.as_os_str().is_empty()) {
                return wrong_use(format!("--fetch {text}: write TENSOR, or TENSOR=FILE.npy"));
            }
            let (found, shown) = self.find(tensor, Opened::fetch)?;
            if file.is_some() && found.len() > 1 {
                let example = self.label(found[0].0);
                return wrong_use(format!("'{shown}' is in several models, which would be written to one file: write {example}::{text}"));
            }
            for (model, tensor) in found {
                wanted[model].fetches.push(Fetch { shown: shown.to_string(), tensor, file: file.clone() });
            }
        }
        let fetches = wanted.iter().flat_map(|wanted| &wanted.fetches);
        let mut files: Vec<PathBuf> = fetches.filter_map(|fetch| fetch.file.as_deref().map(outputs::spelled_out)).collect();
        let count = files.len();
        files.sort_unstable();
        files.dedup();
        if files.len() < count {
            return wrong_use("two tensors would be written to one file");
        }
        for text in targets {
            self.find(text, Opened::node)?.0.into_iter().for_each(|(model, node)| wanted[model].targets.push(node));
        }
        for (model, wanted) in self.0.iter().zip(&mut wanted) {
            let is_asked = !wanted.fetches.is_empty() || !wanted.targets.is_empty();
            match model.results() {
                Some(results) if !is_asked => wanted.fetches = results,
                // A call is made as a whole: if it changes variables, they are changed.
                Some(results) => {
                    let is_fetched = |tensor: &str| wanted.fetches.iter().any(|fetch| fetch.tensor == tensor);
                    let others = results.iter().filter(|result| !is_fetched(&result.tensor));
                    let others: Vec<String> = others.map(|result| model::node_of(&result.tensor).to_string()).collect();
                    wanted.targets.extend(others);
                }
                None if !is_asked => {
                    let ends = names::only_end(model.graph(), devices.registry())?;
                    let fetch = |name: String| Fetch { shown: name.clone(), tensor: name, file: None };
                    *wanted = Wanted { fetches: ends.fetches.into_iter().map(fetch).collect(), targets: ends.targets };
                }
                None => {}
            }
        }
        Ok(wanted)
    }

    /// The names that tell a model from the others on the command line.
    fn label(&self, model: usize) -> String {
        let label = &self.0[model].label;
        let is_only = self.0.iter().filter(|other| other.label == *label).count() == 1;
        if is_only { label.clone() } else { (model + 1).to_string() }
    }
}

/// The models that `[MODEL::]NAME` is for, by position, and the name. There is one at least.
fn scope<'t>(labels: &[String], text: &'t str) -> Result<(Vec<usize>, &'t str)> {
    let Some((model, name)) = text.split_once("::") else { return Ok(((0..labels.len()).collect(), text)) };
    let matching = |matches: &dyn Fn(&str) -> bool| (0..labels.len()).filter(|&index| matches(&labels[index])).collect::<Vec<_>>();
    let file = |label: &str| Path::new(label).file_name().map(|name| name.to_string_lossy().into_owned());
    let stem = |label: &str| Path::new(label).file_stem().map(|name| name.to_string_lossy().into_owned());
    let rules: [&dyn Fn(&str) -> bool; 3] =
        [&|label| label == model, &|label| file(label).as_deref() == Some(model), &|label| stem(label).as_deref() == Some(model)];
    let mut found = rules.into_iter().map(matching).find(|found| !found.is_empty()).unwrap_or_default();
    if found.is_empty() {
        found.extend(model.parse::<usize>().ok().and_then(|number| number.checked_sub(1)).filter(|index| *index < labels.len()));
    }
    match found[..] {
        [only] => Ok((vec![only], name)),
        [] => {
            let error = Error::invalid_argument(format!("{text}: there is no model '{model}'; there are {}", list(labels)));
            let names: Vec<String> = labels.iter().flat_map(|label| [Some(label.clone()), stem(label)]).flatten().collect();
            Err(Failure::usage(error.suggesting(model, names.iter().map(String::as_str))))
        }
        [first, second, ..] => {
            wrong_use(format!("{text}: '{model}' is several models: write {}::{name} or {}::{name}", first + 1, second + 1))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_say_which_model_it_means() {
        let labels = ["nets/a.pb", "b", "nets/2.pb", "other/a.pb"].map(str::to_string);
        let scoped = |text: &'static str| scope(&labels, text).map_err(|failure| failure.error().message().to_string());
        assert_eq!(scoped("x:0"), Ok((vec![0, 1, 2, 3], "x:0")));
        for (text, model) in [("b::x", 1), ("nets/a.pb::x", 0), ("other/a.pb::x", 3), ("2::x", 2), ("1::x", 0), ("4::x", 3), ("2.pb::x", 2)]
        {
            assert_eq!(scoped(text), Ok((vec![model], "x")), "{text}");
        }
        assert_eq!(scoped("a::x"), Err("a::x: 'a' is several models: write 1::x or 4::x".to_string()));
        for text in ["c::x", "5::x", "0::x", "::x"] {
            assert!(scoped(text).unwrap_err().contains("there is no model"), "{text}");
        }
    }
}
