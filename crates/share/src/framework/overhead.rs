//! The bytes of a card that a framework takes beside its own allocator.

use plimsoll_base::Bytes;

/// The bytes of a card for a context, its code and the libraries around it (cuBLAS, cuDNN), beside the framework's own allocator,
/// per process. No setting of a framework counts it, so it is subtracted from the allocator's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overheads {
    /// PyTorch's.
    pub pytorch: Bytes,
    /// TensorFlow's.
    pub tensorflow: Bytes,
    /// JAX's.
    pub jax: Bytes,
}

impl Overheads {
    /// Stated, not measured: a round number above the 300 to 500 MB that are reported for a context with cuBLAS and cuDNN loaded
    /// lazily. Newer cards take more.
    pub const STATED: Overheads = Overheads { pytorch: Bytes(512 << 20), tensorflow: Bytes(512 << 20), jax: Bytes(512 << 20) };

    /// The file in the user's state folder that replaces the stated ones.
    pub const FILE: &str = "framework-overheads";

    /// Those that were measured with this driver, and the stated ones for the rest. Each line of `measured` is a driver's version,
    /// a framework (`pytorch`, `tensorflow`, `jax`) and a number of bytes. The last line for a framework counts, and other lines
    /// are passed over.
    pub fn measured(measured: &str, driver: &str) -> Overheads {
        let mut out = Overheads::STATED;
        for line in measured.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [version, framework, bytes] = words[..] else { continue };
            let (true, Ok(bytes)) = (version == driver, bytes.parse().map(Bytes)) else { continue };
            match framework {
                "pytorch" => out.pytorch = bytes,
                "tensorflow" => out.tensorflow = bytes,
                "jax" => out.jax = bytes,
                _ => {}
            }
        }
        out
    }

    /// The text of the file with the new measurements: the largest for each framework, in the place of the former ones for this
    /// driver.
    pub fn replaced(before: &str, driver: &str, now: &[(&str, Bytes)]) -> String {
        let is_new = |framework: &str| now.iter().any(|(name, _)| *name == framework);
        let is_kept = |line: &&str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            matches!(words[..], [version, framework, _] if version != driver || !is_new(framework))
        };
        let mut out: String = before.lines().filter(is_kept).flat_map(|line| [line, "\n"]).collect();
        let mut names: Vec<&str> = now.iter().map(|(name, _)| *name).collect();
        names.sort_unstable();
        names.dedup();
        for framework in names {
            let most = now.iter().filter(|(name, _)| *name == framework).map(|(_, bytes)| bytes.0).max();
            out.push_str(&format!("{driver} {framework} {}\n", most.unwrap_or_default()));
        }
        out
    }
}

/// The part of a share that a framework's allocator may take: the share without the overhead, and at least half of it. A share that
/// is less than twice the overhead may be exceeded by the overhead.
pub(super) fn without(share: Bytes, overhead: Bytes) -> Bytes {
    Bytes(share.0 - overhead.0.min(share.0 / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_overhead_is_subtracted_up_to_half() {
        for (share, overhead, left) in [(2048, 512, 1536), (1024, 512, 512), (600, 512, 300), (0, 512, 0), (u64::MAX, 0, u64::MAX)] {
            assert_eq!(without(Bytes(share), Bytes(overhead)), Bytes(left), "{share} - {overhead}");
        }
    }

    #[test]
    fn what_was_measured_counts_for_its_driver() {
        let text = "535.1 pytorch 100\nnonsense\n535.1 pytorch 300 \n535.1 jax -4\n600.2 tensorflow 7\n535.1 other 1\n\u{0}";
        let measured = Overheads::measured(text, "535.1");
        assert_eq!(measured, Overheads { pytorch: Bytes(300), ..Overheads::STATED });
        assert_eq!(Overheads::measured(text, "600.2").tensorflow, Bytes(7));
        assert_eq!(Overheads::measured("", "1"), Overheads::STATED);
    }

    #[test]
    fn what_is_measured_again_replaces_its_line() {
        let before = "535.1 pytorch 900\nnonsense\n535.1 jax 5\n600.2 pytorch 7";
        let after = Overheads::replaced(before, "535.1", &[("pytorch", Bytes(3)), ("tensorflow", Bytes(8)), ("pytorch", Bytes(4))]);
        assert_eq!(after, "535.1 jax 5\n600.2 pytorch 7\n535.1 pytorch 4\n535.1 tensorflow 8\n");
        assert_eq!(Overheads::replaced("", "1", &[]), "");
        assert_eq!(Overheads::measured(&after, "535.1"), Overheads { pytorch: Bytes(4), tensorflow: Bytes(8), jax: Bytes(5) });
    }
}
