//! Signals by name.

/// `SIGKILL` for 9, by Linux's numbers; a number without a name of its own is `SIG40`.
pub(crate) fn name(signal: i32) -> String {
    const NAMES: [&str; 32] = [
        "0", "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM", "TERM", "STKFLT",
        "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
    ];
    match usize::try_from(signal).ok().and_then(|signal| NAMES.get(signal)) {
        Some(name) => format!("SIG{name}"),
        None => format!("SIG{signal}"),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_are_the_systems() {
        for (signal, name) in
            [(1, "SIGHUP"), (9, "SIGKILL"), (11, "SIGSEGV"), (15, "SIGTERM"), (31, "SIGSYS"), (40, "SIG40"), (-1, "SIG-1")]
        {
            assert_eq!(super::name(signal), name);
        }
    }
}
