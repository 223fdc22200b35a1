//! The name and the caches of this machine's processor.

use plimsoll_base::Bytes;
use plimsoll_device::Caches;

/// Bytes of a core's caches, as Linux says in `/sys`; 0 for a level that is not told.
pub fn caches() -> Caches {
    let mut caches = Caches::default();
    for index in 0..8 {
        let read = |file: &str| std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{file}"));
        let (Ok(level), Ok(kind), Ok(size)) = (read("level"), read("type"), read("size")) else { continue };
        // `32K`: kernels write K and M for powers of 1024.
        let Ok(Bytes(bytes)) = Bytes::of_option(&format!("{}iB", size.trim())) else { continue };
        match (level.trim(), kind.trim()) {
            (_, "Instruction") => {}
            ("1", _) => caches.l1 = bytes,
            ("2", _) => caches.l2 = bytes,
            ("3", _) => caches.l3 = bytes,
            _ => {}
        }
    }
    caches
}

/// The processor's name, where the system tells it.
pub fn processor() -> Option<String> {
    let info = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let named = info.lines().filter_map(|line| line.split_once(':')).find(|(key, _)| key.trim() == "model name");
    named.map(|(_, name)| name.trim().to_string())
}

#[cfg(test)]
mod tests {
    #[test]
    fn levels_grow() {
        let caches = super::caches();
        if caches.l1 == 0 || caches.l2 == 0 {
            eprintln!("skipped: the system does not tell the caches");
            return;
        }
        assert!(caches.l1 <= caches.l2 && (caches.l3 == 0 || caches.l2 <= caches.l3), "{caches:?}");
    }
}
