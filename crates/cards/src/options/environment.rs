//! Environment variables, handed in as data.

use std::collections::BTreeMap;

/// The values of the environment variables that decide about devices. Nothing here reads the process's environment: the caller that
/// opens devices passes it in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    /// The variables that are looked at.
    pub const NAMES: [&str; 17] = [
        "CUDA_VISIBLE_DEVICES",
        "CUDA_DEVICE_ORDER",
        "SLURM_STEP_GPUS",
        "SLURM_JOB_GPUS",
        "PLIMSOLL_SIM_GPUS",
        "PLIMSOLL_NVML",
        "PLIMSOLL_CUDA_LIBS",
        "PLIMSOLL_LEASE",
        "TF_FORCE_GPU_ALLOW_GROWTH",
        "TF_DEVICE_MIN_SYS_MEMORY_IN_MB",
        "TF_MIN_GPU_MULTIPROCESSOR_COUNT",
        "TF_GPU_ALLOCATOR",
        "TF_GPU_HOST_MEM_LIMIT_IN_MB",
        "TF_ENABLE_GPU_GARBAGE_COLLECTION",
        "TF_CUDNN_WORKSPACE_LIMIT_IN_MB",
        "TF_NUM_INTRAOP_THREADS",
        "TF_NUM_INTEROP_THREADS",
    ];

    /// The variables that say where programs, their libraries, and files that may be made again are.
    pub const FOLDERS: [&str; 5] = ["VIRTUAL_ENV", "CONDA_PREFIX", "PATH", "XDG_CACHE_HOME", "HOME"];

    /// No variable is set.
    pub fn new() -> Environment {
        Environment::default()
    }

    /// Of these variables, those that say which cards a machine has and where its libraries are. The others choose and divide for one
    /// program.
    #[must_use]
    pub fn of_the_machine(&self) -> Environment {
        let finds =
            |name: &str| Environment::FOLDERS.contains(&name) || (name.starts_with("PLIMSOLL_") && Environment::NAMES.contains(&name));
        Environment(self.0.iter().filter(|(name, _)| finds(name)).map(|(name, value)| (name.clone(), value.clone())).collect())
    }

    /// Sets a variable.
    pub fn with(mut self, name: &str, value: &str) -> Environment {
        self.0.insert(name.into(), value.into());
        self
    }

    /// Of these variables, as `std::env::vars` gives them, those that are looked at.
    pub fn of(variables: impl IntoIterator<Item = (String, String)>) -> Environment {
        let is_looked_at = |name: &str| Environment::NAMES.contains(&name) || Environment::FOLDERS.contains(&name);
        Environment(variables.into_iter().filter(|(name, _)| is_looked_at(name)).collect())
    }

    /// The value of a variable; none if it is not set. The empty text is a value.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// A whole number, blanks around it tolerated; none if the variable is not set or is no number.
    pub(crate) fn number(&self, name: &str) -> Option<i64> {
        self.get(name)?.trim().parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_looked_at_is_kept() {
        let variables = [("SHELL", "/"), ("CUDA_VISIBLE_DEVICES", ""), ("TF_NUM_INTRAOP_THREADS", " 3 ")];
        let environment = Environment::of(variables.map(|(name, value)| (name.to_string(), value.to_string())));
        assert_eq!((environment.get("SHELL"), environment.get("CUDA_VISIBLE_DEVICES")), (None, Some("")));
        assert_eq!((environment.number("TF_NUM_INTRAOP_THREADS"), environment.number("CUDA_VISIBLE_DEVICES")), (Some(3), None));
        assert_eq!(Environment::new().with("CUDA_VISIBLE_DEVICES", "3,2").get("CUDA_VISIBLE_DEVICES"), Some("3,2"));
    }
}
