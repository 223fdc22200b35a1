//! What computing on cards needs besides cards: the driver, and the compiler of kernels; and cuDNN, where it is wanted and there.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_base::{Error, Result};
use plimsoll_cards::{CudnnMode, Environment};

use crate::{Compiler, ComputeLibrary, CudaDriver, Found, Planner};

/// The driver, the compiler and cuDNN, found and loaded.
#[derive(Clone, Debug)]
pub struct Toolkit {
    /// The driver.
    pub driver: Arc<CudaDriver>,
    /// The compiler, which keeps what it has made in the user's folder for such files.
    pub compiler: Arc<Compiler>,
    /// cuDNN, or why it is not used, with the way to get it; none where it is not asked for.
    pub cudnn: Option<Result<Arc<Planner>>>,
}

impl Toolkit {
    /// Looks for them, as [`ComputeLibrary::find`] does, and loads them.
    ///
    /// # Errors
    /// NOT_FOUND for a library that is not there, with the way to get it; FAILED_PRECONDITION for one that is too old, and for a driver
    /// that cannot begin. Where cuDNN has to compute ([`CudnnMode::Always`]), its errors are errors, too.
    pub fn find(environment: &Environment, mode: CudnnMode) -> Result<Toolkit> {
        let driver = CudaDriver::load(&find(ComputeLibrary::Driver, environment)?)?;
        let compiler = Compiler::load(&find(ComputeLibrary::Nvrtc, environment)?, cubins(environment))?;
        let cudnn = match mode {
            CudnnMode::Never => None,
            CudnnMode::Auto => Some(Planner::find(environment).map(Arc::new)),
            CudnnMode::Always => Some(Ok(Arc::new(Planner::find(environment)?))),
        };
        Ok(Toolkit { driver, compiler: Arc::new(compiler), cudnn })
    }

    /// cuDNN, where it is there.
    pub fn planner(&self) -> Option<&Arc<Planner>> {
        self.cudnn.as_ref()?.as_ref().ok()
    }

    /// The sentence where cuDNN would be used, and is not.
    pub fn without_cudnn(&self) -> Option<String> {
        self.cudnn.as_ref()?.as_ref().err().map(without_cudnn)
    }
}

/// The sentence for a card without cuDNN.
pub fn without_cudnn(why: &Error) -> String {
    let remedy = why.remedy().map_or_else(String::new, |remedy| format!("; {remedy}"));
    format!("products and convolutions are computed without cuDNN: {}{remedy}", why.message())
}

fn find(library: ComputeLibrary, environment: &Environment) -> Result<PathBuf> {
    match library.find(environment).found {
        Ok(Found { path, .. }) => Ok(path),
        Err(why) => Err(Error::not_found(format!("{} was not found: {why}", library.name())).with_remedy(library.install())),
    }
}

/// The folder of code for cards: `plimsoll/cubins` in the user's folder for files that may be made again. None where that is not known.
fn cubins(environment: &Environment) -> Option<PathBuf> {
    let folder = |name: &str| environment.get(name).map(Path::new).filter(|path| path.is_absolute());
    let cache = folder("XDG_CACHE_HOME").map(Path::to_path_buf).or_else(|| folder("HOME").map(|home| home.join(".cache")))?;
    Some(cache.join("plimsoll/cubins"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cubins_are_in_the_users_folder() {
        let of = |variables: &[(&str, &str)]| {
            let environment = variables.iter().fold(Environment::new(), |environment, (name, value)| environment.with(name, value));
            cubins(&environment).map(|folder| folder.display().to_string())
        };
        assert_eq!(of(&[("HOME", "/home/a")]).as_deref(), Some("/home/a/.cache/plimsoll/cubins"));
        assert_eq!(of(&[("HOME", "/home/a"), ("XDG_CACHE_HOME", "/b")]).as_deref(), Some("/b/plimsoll/cubins"));
        assert_eq!((of(&[]), of(&[("XDG_CACHE_HOME", "here")])), (None, None));
    }

    #[test]
    fn a_library_that_is_not_there_says_how_to_get_it() {
        let error = Toolkit::find(&Environment::new().with("PLIMSOLL_CUDA_LIBS", "/nowhere"), CudnnMode::Auto).err();
        // A machine with a driver and a compiler has both.
        let Some(error) = error else { return };
        assert!(error.remedy().is_some(), "{error}");
    }
}
