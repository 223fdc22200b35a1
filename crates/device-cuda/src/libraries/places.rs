//! The folders that libraries for computing may be in.

use std::path::{Path, PathBuf};

use plimsoll_cards::Environment;

use super::ComputeLibrary;

/// Where toolkits are installed: after the loader.
pub(super) const TOOLKITS: [&str; 2] = ["/usr/local/cuda/lib64", "/opt/cuda/lib64"];

/// The folders before the loader, in order.
pub(super) fn folders(environment: &Environment, program: Option<&Path>, library: ComputeLibrary) -> Vec<PathBuf> {
    let value = |name: &str| environment.get(name).filter(|value| !value.is_empty());
    let mut folders: Vec<PathBuf> = value("PLIMSOLL_CUDA_LIBS").map(|named| std::env::split_paths(named).collect()).unwrap_or_default();
    folders.retain(|folder| !folder.as_os_str().is_empty());
    // The driver's library belongs to the driver: no other copy is the right one.
    if library == ComputeLibrary::Driver {
        return folders;
    }
    folders.extend(program.and_then(Path::parent).map(Path::to_path_buf));
    let mut prefixes: Vec<PathBuf> = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(value).map(PathBuf::from).collect();
    prefixes.extend(python(value("PATH")));
    for prefix in prefixes {
        for packages in site_packages(&prefix) {
            folders.extend(wheels(library).map(|wheel| packages.join("nvidia").join(wheel).join("lib")));
        }
        // Conda's own packages.
        folders.push(prefix.join("lib"));
    }
    folders
}

/// The folders of a wheel: of CUDA 13, and a name of its own.
fn wheels(library: ComputeLibrary) -> impl Iterator<Item = &'static str> {
    let own: &[&str] = match library {
        ComputeLibrary::Driver => &[],
        ComputeLibrary::Nvrtc => &["cuda_nvrtc"],
        // The second has the engines alone that are compiled for a graph.
        ComputeLibrary::Cudnn => &["cudnn", "cudnn_jit"],
        ComputeLibrary::CublasLt => &["cublas"],
    };
    ["cu13"].into_iter().chain(own.iter().copied())
}

/// The environment of the first `python3` on the path.
fn python(path: Option<&str>) -> Option<PathBuf> {
    let folder = std::env::split_paths(path?).find(|folder| folder.join("python3").exists())?;
    folder.parent().map(Path::to_path_buf)
}

/// The folders of an environment's packages, the newest Python's first.
fn site_packages(prefix: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(prefix.join("lib")).into_iter().flatten().flatten();
    let mut versions: Vec<PathBuf> =
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("python3")).map(|entry| entry.path()).collect();
    versions.sort();
    versions.into_iter().rev().flat_map(|version| ["site-packages", "dist-packages"].map(|name| version.join(name))).collect()
}

/// The last file of a folder, by name, that begins so.
pub(super) fn newest(folder: &Path, prefix: &str) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder).ok()?.flatten();
    entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix)).map(|entry| entry.path()).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_come_in_their_order() {
        let prefix = std::env::temp_dir().join(format!("plimsoll-places-{}", std::process::id()));
        for version in ["python3.11", "python3.9", "other"] {
            std::fs::create_dir_all(prefix.join("lib").join(version)).unwrap();
        }
        std::fs::create_dir_all(prefix.join("bin")).unwrap();
        std::fs::write(prefix.join("bin/python3"), "").unwrap();
        let environment = Environment::new().with("PLIMSOLL_CUDA_LIBS", "/a::/b").with("VIRTUAL_ENV", prefix.to_str().unwrap());
        let found = folders(&environment, Some(Path::new("/usr/bin/plimsoll")), ComputeLibrary::Cudnn);
        let packages = prefix.join("lib/python3.9/site-packages/nvidia");
        assert_eq!(found[..3], ["/a", "/b", "/usr/bin"].map(PathBuf::from));
        assert_eq!(found[3..5], [packages.join("cu13/lib"), packages.join("cudnn/lib")]);
        assert_eq!(found.last(), Some(&prefix.join("lib")));
        assert_eq!(found.len(), 3 + 2 * 2 * 3 + 1);
        // The environment of the program `python3`, where none is active.
        let path = format!("/nowhere:{}", prefix.join("bin").display());
        let by_path = folders(&Environment::new().with("PATH", &path), None, ComputeLibrary::Nvrtc);
        assert!(by_path.contains(&packages.join("cuda_nvrtc/lib")), "{by_path:?}");
        // The driver's library is where it is told to be, or the loader's.
        assert_eq!(folders(&environment, Some(Path::new("/usr/bin/plimsoll")), ComputeLibrary::Driver).len(), 2);
        assert!(folders(&Environment::new(), None, ComputeLibrary::CublasLt).is_empty());
        std::fs::remove_dir_all(prefix).unwrap();
    }
}
