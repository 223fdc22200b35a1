//! Which rung it is.

use std::fmt;

use plimsoll_base::{Error, Result};

use super::{Daemon, Enforce, Found, Group, Library, Loads, Rung, Sees};

/// The missing part of a rung.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lack {
    /// Why it is not possible.
    pub why: String,
    /// A remedy; empty where there is none.
    pub remedy: String,
}

impl Lack {
    fn new(why: impl Into<String>, remedy: impl Into<String>) -> Lack {
        Lack { why: why.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

/// A rung, and whether it is possible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Which.
    pub rung: Rung,
    /// The missing part; none where the rung is possible.
    pub lack: Option<Lack>,
}

/// A rung that was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The strongest that holds.
    pub rung: Rung,
    /// Those that hold beside it, weaker ones.
    pub also: Vec<Rung>,
    /// The higher ones, and their missing parts. Empty where one was asked for.
    pub above: Vec<Step>,
    /// Whether frameworks are told their share, in case that the program starts one.
    pub tells_frameworks: bool,
    /// The thing that is named, would be used and cannot be.
    pub warning: Option<String>,
}

impl Choice {
    /// Whether a rung holds.
    pub fn has(&self, rung: Rung) -> bool {
        self.rung == rung || self.also.contains(&rung)
    }
}

impl Found {
    /// All rungs but the last, the strongest first, each with its missing part.
    pub fn steps(&self) -> Vec<Step> {
        let lack = |rung: Rung| match rung {
            Rung::Kernel => self.kernel_lacks(),
            Rung::Mps => self.mps_lacks(),
            Rung::Shim => self.shim_lacks(),
            Rung::Framework => self.framework_lacks(),
            Rung::Watched => self.watching_lacks(),
            Rung::NotWatched => None,
        };
        Rung::ALL[..5].iter().map(|&rung| Step { rung, lack: lack(rung) }).collect()
    }

    /// The obstacle of rungs that need real cards.
    fn no_driver(&self) -> Option<Lack> {
        self.simulated.then(|| Lack::new("cards are simulated, and no driver stands before them", "use real cards"))
    }

    fn kernel_lacks(&self) -> Option<Lack> {
        let kernel = &self.kernel;
        let lack = |why: String, remedy: &str| Some(Lack::new(why, remedy));
        if let Some(lack) = self.no_driver() {
            return Some(lack);
        }
        if !kernel.has_limits {
            let driver = kernel.driver.as_ref().map_or("this driver".to_string(), |version| format!("driver {version}"));
            return lack(format!("{driver} has no memory limits for control groups"), "install driver r615 or later");
        }
        if let Some(card) = kernel.divided.first() {
            return lack(format!("{card} is divided (MIG), and limits are for undivided cards"), "switch MIG off for that card");
        }
        if !kernel.is_root {
            return lack("limits are set by root alone".into(), "start it as root, or let an administrator do so");
        }
        match &kernel.group {
            Group::In(_) => {}
            Group::NotMounted => return lack("cgroup v2 is not mounted".into(), "mount cgroup v2 at /sys/fs/cgroup"),
            Group::Not(folder, why) => {
                let remedy = "let PLIMSOLL_CGROUP name a control group without processes of its own";
                return lack(format!("no control group can be made in {}: {why}", folder.display()), remedy);
            }
        }
        let refused = kernel.refused.as_ref()?;
        lack(format!("the driver refuses: {refused}"), "see what the driver says of memory limits: nvidia-smi memory-limits --help")
    }

    fn mps_lacks(&self) -> Option<Lack> {
        let start = "start one: nvidia-cuda-mps-control -d";
        self.no_driver().or_else(|| match &self.mps {
            Daemon::Runs(_) => None,
            Daemon::None(folder) => Some(Lack::new(format!("no control daemon of MPS has its pipes in {}", folder.display()), start)),
            Daemon::Ended(folder) => {
                Some(Lack::new(format!("the control daemon of MPS that was in {} has ended", folder.display()), start))
            }
            Daemon::OfAnother(folder, user) => Some(Lack::new(
                format!("the control daemon of MPS in {} is that of user {user}", folder.display()),
                "start one of your own, with CUDA_MPS_PIPE_DIRECTORY in a folder of yours",
            )),
        })
    }

    fn shim_lacks(&self) -> Option<Lack> {
        if let Some(lack) = self.no_driver() {
            return Some(lack);
        }
        if let Some(lack) = self.library_lacks() {
            return Some(lack);
        }
        match &self.program.loads {
            Loads::Yes | Loads::NotAsked => None,
            Loads::No(why) => Some(Lack::new(format!("the program {why}"), "start a dynamically linked program of this machine")),
        }
    }

    /// The missing part of the shim's file, for every program.
    pub(crate) fn library_lacks(&self) -> Option<Lack> {
        let remedy = match self.names_shim {
            true => "unset PLIMSOLL_SHIM, or let it name the libplimsoll_shim.so of this version",
            false => "put the libplimsoll_shim.so of this version beside plimsoll, or let PLIMSOLL_SHIM name it",
        };
        match &self.shim {
            Library::Off => Some(Lack::new("it is switched off: PLIMSOLL_SHIM is empty", "unset PLIMSOLL_SHIM")),
            Library::Missing(path) => Some(Lack::new(format!("there is no {}", path.display()), remedy)),
            Library::Unusable(path, why) => Some(Lack::new(format!("{} {why}", path.display()), remedy)),
            Library::At(_) => None,
        }
    }

    /// A warning: a shim that the user named cannot be used.
    fn warning(&self, enforce: Enforce, rung: Rung) -> Option<String> {
        let is_wanted = matches!(enforce, Enforce::Best | Enforce::Only(Rung::Mps)) && rung != Rung::Kernel;
        let lack = self.library_lacks().filter(|_| is_wanted && self.names_shim && !self.simulated)?;
        Some(format!("PLIMSOLL_SHIM: {lack}: the program runs without the shim"))
    }

    fn framework_lacks(&self) -> Option<Lack> {
        let is_known = self.program.is_python || self.program.file.is_none();
        (!is_known).then(|| {
            let why = "the program is not Python: whether it starts a framework is not known";
            Lack::new(why, "start Python itself")
        })
    }

    fn watching_lacks(&self) -> Option<Lack> {
        match &self.sees {
            Sees::Yes => None,
            Sees::No(why) => Some(Lack::new(why.clone(), "")),
        }
    }
}

/// The best rung, or the one that is asked for.
///
/// # Errors
/// FAILED_PRECONDITION with the missing part, where the rung that is asked for is not possible.
pub fn choose(found: &Found, enforce: Enforce) -> Result<Choice> {
    let steps = found.steps();
    let is_possible = |step: &&Step| step.lack.is_none();
    let top = match enforce {
        Enforce::Best => Rung::Kernel,
        Enforce::Only(rung) => {
            if let Some(lack) = steps.iter().find(|step| step.rung == rung).and_then(|step| step.lack.as_ref()) {
                let error = Error::failed_precondition(format!("--enforce {rung}: {lack}"));
                return Err(if lack.remedy.is_empty() { error } else { error.with_remedy(lack.remedy.clone()) });
            }
            rung
        }
        Enforce::Nothing => Rung::Watched,
    };
    let mut possible = steps.iter().filter(|step| step.rung >= top).filter(is_possible).map(|step| step.rung);
    let rung = possible.next().unwrap_or(Rung::NotWatched);
    // Limits of the kernel are shown to the program and hold for all of it: the shim would add a second count of the same.
    let also = possible.filter(|other| !(rung == Rung::Kernel && matches!(other, Rung::Mps | Rung::Shim))).collect();
    let above = match enforce {
        Enforce::Best => steps.iter().filter(|step| step.rung < rung).cloned().collect(),
        _ => Vec::new(),
    };
    let warning = found.warning(enforce, rung);
    Ok(Choice { rung, also, above, tells_frameworks: enforce != Enforce::Nothing, warning })
}

#[cfg(test)]
mod tests {
    use super::super::{Kernel, Program};
    use super::*;

    /// A machine that has everything.
    fn all() -> Found {
        Found {
            simulated: false,
            kernel: Kernel {
                driver: Some("615.10".into()),
                has_limits: true,
                divided: Vec::new(),
                is_root: true,
                group: Group::In("/sys/fs/cgroup".into()),
                refused: None,
            },
            mps: Daemon::Runs("/tmp/nvidia-mps".into()),
            shim: Library::At("/opt/libplimsoll_shim.so".into()),
            names_shim: false,
            program: Program { file: Some("/usr/bin/python3".into()), loads: Loads::Yes, loader: None, is_python: true },
            sees: Sees::Yes,
        }
    }

    /// The rung on that machine without these things, and the missing part of the rung above.
    fn chosen(less: fn(&mut Found)) -> (Rung, Vec<Rung>, String) {
        let mut found = all();
        less(&mut found);
        let choice = choose(&found, Enforce::Best).unwrap();
        let above = choice.above.last().and_then(|step| step.lack.clone()).map_or(String::new(), |lack| lack.why);
        (choice.rung, choice.also, above)
    }

    #[test]
    fn the_best_that_there_is() {
        use Rung::*;
        assert_eq!(chosen(|_| ()), (Kernel, vec![Framework, Watched], String::new()));
        let below = vec![Shim, Framework, Watched];
        assert_eq!(chosen(|found| found.kernel.is_root = false), (Mps, below.clone(), "limits are set by root alone".into()));
        type Less = fn(&mut Found);
        let kernel: [(Less, &str); 5] = [
            (|found| found.kernel.has_limits = false, "driver 615.10 has no memory limits for control groups"),
            (|found| found.kernel.divided = vec!["H100".into()], "H100 is divided (MIG), and limits are for undivided cards"),
            (|found| found.kernel.group = Group::NotMounted, "cgroup v2 is not mounted"),
            (
                |found| found.kernel.group = Group::Not("/g".into(), "it is read-only".into()),
                "no control group can be made in /g: it is read-only",
            ),
            (|found| found.kernel.refused = Some("not supported".into()), "the driver refuses: not supported"),
        ];
        for (less, why) in kernel {
            assert_eq!(chosen(less), (Mps, below.clone(), why.into()));
        }
        let no_mps: [(Less, &str); 3] = [
            (|found| found.mps = Daemon::None("/p".into()), "no control daemon of MPS has its pipes in /p"),
            (|found| found.mps = Daemon::Ended("/p".into()), "the control daemon of MPS that was in /p has ended"),
            (|found| found.mps = Daemon::OfAnother("/p".into(), 7), "the control daemon of MPS in /p is that of user 7"),
        ];
        for (less, why) in no_mps {
            let mut found = all();
            found.kernel.is_root = false;
            less(&mut found);
            let choice = choose(&found, Enforce::Best).unwrap();
            assert_eq!((choice.rung, choice.also, choice.above.len()), (Shim, vec![Framework, Watched], 2));
            assert_eq!(choice.above[1].lack.as_ref().unwrap().why, why);
        }
        let no_shim: [(Less, &str); 4] = [
            (|found| found.shim = Library::Off, "it is switched off: PLIMSOLL_SHIM is empty"),
            (|found| found.shim = Library::Missing("/s.so".into()), "there is no /s.so"),
            (|found| found.shim = Library::Unusable("/s.so".into(), "is no library".into()), "/s.so is no library"),
            (|found| found.program.loads = Loads::No("is statically linked".into()), "the program is statically linked"),
        ];
        for (less, why) in no_shim {
            let mut found = all();
            (found.kernel.is_root, found.mps) = (false, Daemon::None("/p".into()));
            less(&mut found);
            let choice = choose(&found, Enforce::Best).unwrap();
            assert_eq!((choice.rung, choice.also, choice.above[2].lack.as_ref().unwrap().why.as_str()), (Framework, vec![Watched], why));
            found.program.is_python = false;
            assert_eq!(choose(&found, Enforce::Best).unwrap().rung, Watched);
            found.sees = Sees::No("nobody says".into());
            let choice = choose(&found, Enforce::Best).unwrap();
            assert_eq!((choice.rung, choice.also, choice.above.len()), (NotWatched, vec![], 5));
        }
    }

    #[test]
    fn simulated_cards_have_settings_alone() {
        let mut found = Found { simulated: true, sees: Sees::No("simulated".into()), ..all() };
        assert_eq!(choose(&found, Enforce::Best).unwrap().rung, Rung::Framework);
        found.program.is_python = false;
        assert_eq!(choose(&found, Enforce::Best).unwrap().rung, Rung::NotWatched);
        for rung in [Rung::Kernel, Rung::Mps, Rung::Shim] {
            let error = choose(&found, Enforce::Only(rung)).unwrap_err();
            assert!(error.message().contains("cards are simulated"), "{error}");
        }
    }

    #[test]
    fn what_is_asked_for_is_had_or_refused() {
        for rung in Rung::ALL.into_iter().take(4) {
            assert_eq!(rung.word().parse::<Enforce>().unwrap(), Enforce::Only(rung));
            let choice = choose(&all(), Enforce::Only(rung)).unwrap();
            assert_eq!((choice.rung, choice.above.len()), (rung, 0));
            assert!(choice.also.iter().all(|other| *other > rung), "{choice:?}");
        }
        let nothing = choose(&all(), "none".parse().unwrap()).unwrap();
        assert_eq!((nothing.rung, nothing.also), (Rung::Watched, vec![]));
        for text in ["watched", "not watched", "", "Kernel", "kill"] {
            assert!(text.parse::<Enforce>().is_err(), "{text}");
        }
        let mut found = all();
        found.program.loads = Loads::No("is statically linked".into());
        let error = choose(&found, Enforce::Only(Rung::Shim)).unwrap_err();
        assert_eq!(error.code(), plimsoll_base::Code::FailedPrecondition);
        assert_eq!(error.message(), "--enforce shim: the program is statically linked");
        assert!(error.remedy().is_some());
    }
}
