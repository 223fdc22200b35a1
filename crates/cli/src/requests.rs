//! What a command that plans is asked to plan: feeds, fetches and targets of each model, and runs before.

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::Args;
use plimsoll::{Devices, Signature};

use crate::failure::{Result, wrong_use};
use crate::models::{Calls, Models, Opened};
use crate::names::{self, FeedShapes, Sized};

/// The options that say it.
#[derive(Args)]
pub struct AskedArgs {
    /// Of the graphs of a SavedModel the one with exactly these tags, as serve,gpu [default: serve, or the only one]
    #[arg(long, value_name = "TAGS")]
    pub tags: Vec<String>,
    /// The signature of a SavedModel that is called: names are those of its arguments and results [default: serving_default, or
    /// the only one]
    #[arg(long, value_name = "NAME")]
    signature: Vec<String>,
    /// A tensor to compute, as loss:0
    #[arg(long, value_name = "TENSOR")]
    fetch: Vec<String>,
    /// An operation to run
    #[arg(long, value_name = "OPERATION")]
    target: Vec<String>,
    /// The shape of a tensor that is fed, as x=32x6. A dimension N stands for every size: the answer is the peak for N = 1, 2, 4 and so
    /// on, and the largest N that fits. Without any shape, open batches are N
    #[arg(long, value_name = "NAME=2x3|NAME=Nx3")]
    feed_shape: Vec<String>,
    /// A file of such shapes: lines NAME=2x3, or JSON {"NAME": [2, 3]}
    #[arg(long, value_name = "FILE")]
    shapes: Option<PathBuf>,
    /// An operation that runs before, as `eval` and `train` run it; the answer covers it, too
    #[arg(long, value_name = "OPERATION")]
    init: Vec<String>,
    /// A checkpoint that variables are taken from: a folder (the latest in it) or a prefix; the answer covers the loading
    #[arg(long, value_name = "DIR")]
    restore: Option<PathBuf>,
}

impl AskedArgs {
    /// Whether something is asked of models: recorded cases say all of it by themselves.
    pub fn is_of_models(&self) -> bool {
        let AskedArgs { tags, signature, fetch, target, feed_shape, shapes, init, restore } = self;
        let lists = [tags, signature, fetch, target, feed_shape, init];
        lists.iter().any(|list| !list.is_empty()) || shapes.is_some() || restore.is_some()
    }

    fn shapes(&self) -> Result<FeedShapes> {
        let mut shapes = self.shapes.as_deref().map(names::read_shapes).transpose()?.unwrap_or_default();
        // They override those of a file.
        let mut given = BTreeSet::new();
        for text in &self.feed_shape {
            let (name, shape) = names::parse_feed_shape(text)?;
            if !given.insert(name.clone()) {
                return wrong_use(format!("--feed-shape {text}: '{name}' has a shape already; leave one of them out"));
            }
            shapes.insert(name, shape);
        }
        Ok(shapes)
    }
}

/// What is asked of a model.
pub struct Requested {
    /// Runs before.
    pub init: Option<Signature>,
    /// The run.
    pub signature: Sized,
}

/// The models, and what is asked of each.
pub struct Requests {
    pub models: Models,
    pub all: Vec<Requested>,
}

/// Opens models and finds out what is asked of each.
pub fn requests(devices: &Devices, models: &[PathBuf], args: &AskedArgs) -> Result<Requests> {
    let shapes = args.shapes()?;
    let fetched = args.fetch.iter().map(|text| text.split_once('=').map_or(text.as_str(), |(name, _)| name));
    let others = shapes.keys().chain(&args.target).chain(&args.init).map(String::as_str);
    let calls = Calls { tags: &args.tags, signatures: &args.signature, names: fetched.chain(others).collect() };
    let models = Models::open(devices, models, &calls, args.restore.as_deref())?;
    let mut fed = vec![FeedShapes::new(); models.all().len()];
    for (name, shape) in &shapes {
        models.find(name, Opened::feed)?.0.into_iter().for_each(|(model, name)| {
            fed[model].insert(name, shape.clone());
        });
    }
    let mut inits: Vec<Vec<String>> = vec![Vec::new(); models.all().len()];
    for name in &args.init {
        models.find(name, Opened::node)?.0.into_iter().for_each(|(model, name)| inits[model].push(name));
    }
    let wanted = models.wanted(devices, &args.fetch, &args.target)?;
    for ((init, model), wanted) in inits.iter_mut().zip(models.all()).zip(&wanted).filter(|((init, _), _)| init.is_empty()) {
        *init = model.session.preparation_for(&wanted.names());
    }
    let mut all = Vec::with_capacity(inits.len());
    for (((model, wanted), shapes), init) in models.all().iter().zip(&wanted).zip(&fed).zip(inits) {
        let shown = |node: &str| model.argument_of(node);
        let signature = names::signature(model.graph(), devices.registry(), &wanted.asked(), shapes, shown)?;
        let init = Some(Signature { targets: init, ..Signature::default() }).filter(|init| !init.targets.is_empty());
        all.push(Requested { init, signature });
    }
    Ok(Requests { models, all })
}
