//! Devices and models for a command.

use std::path::Path;

use plimsoll::model::{self, Model};
use plimsoll::{Devices, Session};

use crate::device_options::DeviceOptions;
use crate::failure::{Failure, OrUsage, Result};

/// Opens the devices that the command line asks for.
pub fn devices(options: &DeviceOptions) -> Result<Devices> {
    Devices::open(&options.resolve(None)?).or_usage()
}

/// A session for a model. A file that is not there or of another kind is wrong use, one that makes no sense a failure.
pub fn session(devices: &Devices, path: &Path) -> Result<Session> {
    model::check(path).or_usage()?;
    match model::read(path)? {
        Model::SavedModel(_) => Err(Failure::usage(model::saved_models_not_yet(path))),
        Model::Graph(def) => {
            let graph = devices.resolve(def).map_err(|error| error.context(path.display()))?;
            Ok(devices.session(graph).map_err(|error| error.context(path.display()))?)
        }
    }
}
