//! Engines: programs of others that take a run to another machine, wait for its end, and end as it did. The lease is taken there.

use crate::lease::{Amount, Request, Which};

/// The most runs at once that an engine is given where nobody says how many.
const AT_ONCE: usize = 16;

/// An engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Ray, by the Python package: this interpreter has it.
    Ray {
        /// The interpreter.
        python: String,
    },
    /// Slurm, in an allocation of several nodes: each run is a step on one of them.
    Slurm {
        /// The nodes.
        nodes: usize,
        /// The processors of a node.
        cores: usize,
        /// This program, by which a step takes its lease.
        program: String,
    },
}

impl Engine {
    /// Slurm's allocation around this process, by its environment: none outside of one, on one node, and in a step, whose nodes are
    /// divided already.
    pub fn of_slurm(variable: &dyn Fn(&str) -> Option<String>, program: &str) -> Option<Engine> {
        let number = |name: &str| variable(name)?.split('(').next()?.trim().parse::<usize>().ok();
        variable("SLURM_JOB_ID")?;
        if variable("SLURM_STEP_ID").is_some_and(|step| step.parse::<u32>().is_ok()) {
            return None;
        }
        let nodes = number("SLURM_JOB_NUM_NODES").or_else(|| number("SLURM_NNODES"))?;
        let cores = number("SLURM_CPUS_ON_NODE").unwrap_or(1).max(1);
        (nodes > 1).then(|| Engine::Slurm { nodes, cores, program: program.into() })
    }

    /// How many runs it is given at once where nobody says it. Those that find no room for their lease wait where they are.
    pub fn at_once(&self) -> usize {
        match self {
            Engine::Ray { .. } => AT_ONCE,
            Engine::Slurm { nodes, cores, .. } => nodes.saturating_mul(*cores),
        }
    }

    /// The nodes that runs are divided among here.
    pub(super) fn nodes(&self) -> usize {
        match self {
            Engine::Ray { .. } => 1,
            Engine::Slurm { nodes, .. } => *nodes,
        }
    }

    /// The words in front of a program: they take it to a node, and take the lease there.
    pub(super) fn words(&self, node: usize, request: Option<&Request>) -> Vec<String> {
        let mut words: Vec<String> = match self {
            Engine::Ray { python } => vec![python.clone(), "-m".into(), "plimsoll.ray".into(), "run".into()],
            Engine::Slurm { program, .. } => {
                let step = ["srun", "--nodes=1", "--ntasks=1", "--overlap", "--quiet", &format!("--relative={node}"), program, "run"];
                step.map(String::from).into()
            }
        };
        if let Some(request) = request {
            words.push(match &request.cards {
                Which::Count(count) => format!("--gpus={count}"),
                Which::List(list) => format!("--gpus={},", list.iter().map(usize::to_string).collect::<Vec<_>>().join(",")),
            });
            match request.memory {
                Amount::All => {}
                Amount::Bytes(bytes) => words.push(format!("--memory={}", bytes.0)),
                Amount::Fraction(fraction) => words.push(format!("--memory={fraction}")),
            }
        }
        if let Engine::Slurm { .. } = self {
            words.extend(["--wait".into(), "--quiet".into()]);
        }
        words.push("--".into());
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_base::Bytes;

    fn slurm(variables: &[(&str, &str)]) -> Option<Engine> {
        let variable = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_string());
        Engine::of_slurm(&variable, "plimsoll")
    }

    #[test]
    fn an_allocation_of_several_nodes_is_an_engine() {
        let job = [("SLURM_JOB_ID", "7"), ("SLURM_JOB_NUM_NODES", "2"), ("SLURM_CPUS_ON_NODE", "8")];
        let engine = slurm(&job).unwrap();
        assert_eq!((engine.at_once(), engine.nodes()), (16, 2));
        assert_eq!(slurm(&job[1..]), None, "no job");
        assert_eq!(slurm(&[job[0], ("SLURM_JOB_NUM_NODES", "1")]), None);
        assert_eq!(slurm(&[job[0], ("SLURM_JOB_NUM_NODES", "many")]), None);
        assert_eq!(slurm(&[job[0], job[1], ("SLURM_STEP_ID", "0")]), None, "its nodes are divided");
        assert!(slurm(&[job[0], job[1], ("SLURM_STEP_ID", "batch")]).is_some());
    }

    #[test]
    fn the_lease_is_taken_on_the_node() {
        let engine = slurm(&[("SLURM_JOB_ID", "7"), ("SLURM_NNODES", "3")]).unwrap();
        let request = Request { cards: Which::Count(2), memory: Amount::Bytes(Bytes(1 << 30)), ..Request::default() };
        assert_eq!(
            engine.words(2, Some(&request)).join(" "),
            "srun --nodes=1 --ntasks=1 --overlap --quiet --relative=2 plimsoll run --gpus=2 --memory=1073741824 --wait --quiet --"
        );
        let ray = Engine::Ray { python: "python3".into() };
        let request = Request { cards: Which::List(vec![1]), memory: Amount::Fraction(0.5), ..Request::default() };
        assert_eq!(ray.words(0, Some(&request)).join(" "), "python3 -m plimsoll.ray run --gpus=1, --memory=0.5 --");
    }
}
