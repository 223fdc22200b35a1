//! Engines: programs of others that take a run to another machine, wait for its end, and end as it did. The lease is taken there.

use crate::lease::{Amount, Request, Which};

/// The most runs at once that an engine is given where nobody says how many.
const AT_ONCE: usize = 16;

/// The most nodes of an allocation, and the most processors of one.
const MOST_NODES: usize = 1 << 16;
const MOST_PROCESSORS: usize = 1 << 16;

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
        /// The processors that the allocation has of each node.
        processors: Vec<usize>,
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
        let nodes = number("SLURM_JOB_NUM_NODES").or_else(|| number("SLURM_NNODES")).filter(|nodes| (2..=MOST_NODES).contains(nodes))?;
        // `salloc` says those of each node, a step those of its own.
        let listed = variable("SLURM_JOB_CPUS_PER_NODE").and_then(|list| listed(&list)).filter(|listed| listed.len() == nodes);
        let processors = listed.unwrap_or_else(|| vec![number("SLURM_CPUS_ON_NODE").unwrap_or(1).max(1); nodes]);
        Some(Engine::Slurm { processors, program: program.into() })
    }

    /// How many runs it is given at once where nobody says it. Those that find no room for their lease wait where they are.
    pub fn at_once(&self) -> usize {
        match self {
            Engine::Ray { .. } => AT_ONCE,
            Engine::Slurm { processors, .. } => processors.iter().sum(),
        }
    }

    /// Of the nodes that runs are divided among here, the one for the next run: the most of its processors are free.
    /// `running` says how many runs a node has.
    pub(super) fn next(&self, running: impl Fn(usize) -> usize) -> usize {
        let Engine::Slurm { processors, .. } = self else { return 0 };
        let load = |node: usize| running(node) as f64 / processors[node] as f64;
        (0..processors.len()).min_by(|one, other| load(*one).total_cmp(&load(*other))).unwrap_or(0)
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

/// Slurm's short form of a number for each node: `4(x2),2` is 4, 4 and 2. None where it is not one, or has a zero.
fn listed(text: &str) -> Option<Vec<usize>> {
    let mut numbers = Vec::new();
    for part in text.split(',') {
        let (number, times) = match part.trim().split_once("(x") {
            Some((number, times)) => (number, times.strip_suffix(')')?.parse().ok()?),
            None => (part.trim(), 1),
        };
        let number: usize = number.parse().ok().filter(|number| (1..=MOST_PROCESSORS).contains(number))?;
        if times > MOST_NODES - numbers.len() {
            return None;
        }
        numbers.extend(std::iter::repeat_n(number, times));
    }
    Some(numbers)
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
        assert_eq!(engine.at_once(), 16);
        assert_eq!([engine.next(|_| 0), engine.next(|node| 1 - node), engine.next(|node| node)], [0, 1, 0]);
        assert_eq!(slurm(&job[1..]), None, "no job");
        assert_eq!(slurm(&[job[0], ("SLURM_JOB_NUM_NODES", "1")]), None);
        assert_eq!(slurm(&[job[0], ("SLURM_JOB_NUM_NODES", "many")]), None);
        assert_eq!(slurm(&[job[0], job[1], ("SLURM_STEP_ID", "0")]), None, "its nodes are divided");
        assert!(slurm(&[job[0], job[1], ("SLURM_STEP_ID", "batch")]).is_some());
    }

    #[test]
    fn nodes_have_processors_of_their_own() {
        let of = |list| slurm(&[("SLURM_JOB_ID", "7"), ("SLURM_JOB_NUM_NODES", "3"), ("SLURM_JOB_CPUS_PER_NODE", list)]).unwrap();
        let engine = of("2(x2),8");
        assert_eq!(engine.at_once(), 12);
        // Two runs on each of the first two fill them; the third has room for eight.
        assert_eq!([engine.next(|node| [1, 1, 3][node]), engine.next(|node| [1, 1, 5][node])], [2, 0]);
        for wrong in ["2(x2)", "2(x4)", "2(x2),0", "2(x2", "2(x18446744073709551615)", "x", ""] {
            assert_eq!(of(wrong).at_once(), 3, "{wrong}");
        }
        assert_eq!(slurm(&[("SLURM_JOB_ID", "7"), ("SLURM_JOB_NUM_NODES", "99999999999")]), None);
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
